package all

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine/calls"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/model"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/web/console"
)

// DoorOptions are what the doors of a config need besides it.
type DoorOptions struct {
	Log *slog.Logger
	// address of the door http and of those that share it, in place of the config's
	Listen  string
	Sockets *web.Sockets                         // that doors listen on; nil if each opens its own
	Gate    identity.Gate                        // authenticates callers, at every door
	Named   func(id, door string) tool.Principal // returns a caller that a door names, with its current rights; nil: no limits
	Fresh   string                               // the owner's token, if it was created just now
	Version string                               // of this program, for clients
	Ready   func(Listening)                      // called when a door takes calls
	Metrics func(io.Writer) error                // writes the metrics of calls; nil if there are none
	Opening func() []string                      // returns the sources that are still being opened; nil if there are none
	Usable  func() error                         // returns why calls that may change something are refused; nil if none are
	Calls   *calls.Log                           // running calls, from all doors; nil if each front and door has its own
	Known   func(name string) bool               // reports whether the config lists a caller; nil if it lists none
	Keys    *secret.Keyed                        // seals state that callers send back; nil means a key that ends with this program
	Models  *model.Registry                      // of the config, for the doors that use them; nil if there are none
	Console *console.Console                     // at the door http, unless the config disables it; nil if there is none
	Issuers func() []string                      // of tokens that callers may present, by URL; nil if there are none
	// Running returns the digest of the config that runs, for the socket at which commands of the user find this program;
	// nil means no socket.
	Running func() string
	// Waiting holds calls until a person has decided about them, for doors whose callers stay that long; nil means no
	// waiting
	Waiting tool.Middleware

	tried func(door string, err error) // called with the result of trying to open a front; may be nil
}

// Listening describes a door that takes calls.
type Listening struct {
	Door      string // its name in the config
	URL       string
	Also      []string           // more URLs, if it listens on every address of the machine; without a path
	Token     string             // in clear if it was created just now; it cannot be shown again
	Anonymous identity.Anonymous // the caller without credentials
	Console   bool               // the console is served at /
}

// Doors returns the doors of the config. They open when they are served.
func Doors(cfg *config.Config, o DoorOptions) ([]tool.Door, error) {
	if o.Gate == nil {
		return nil, tool.Errorf(tool.CodeInternal, "the doors have no gate to authenticate callers with")
	}
	_, doors, err := build(cfg, o)
	if o.Running != nil {
		doors = append(doors, commandsDoor(cfg, o))
	}
	return doors, err
}

// commandsDoor returns the door for commands of the user who runs this program. They come in as at a process of their own,
// and by the same rules: the kernel identifies the user, and the door has the same name.
func commandsDoor(cfg *config.Config, o DoorOptions) tool.Door {
	door := rest.NewDoor(rest.Options{Log: o.Log, Metrics: o.Metrics, Version: o.Version, Running: o.Running})
	door.Name = "cli"
	return patient{web.New(web.Options{
		Listen: web.UnixPrefix + cfg.Socket(), Gate: o.Gate, Calls: o.Calls, Log: o.Log, Drain: time.Duration(cfg.Limits.Drain),
		MaxBody: 64 << 20, // a command that runs a tool itself can have larger arguments than callers from a network
	}, door), o.Log, o.Sockets.Follows()}
}

// patient is a door that waits for its address, and without which the others serve all the same: another server of this
// config may have it.
type patient struct {
	tool.Door
	log     *slog.Logger
	follows bool // the server that has the address will end
}

// Serve implements tool.Door.
func (p patient) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	for told := false; ; told = true {
		err := p.Door.Serve(ctx, h, c)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if conflict := tool.CodeOf(errors.Unwrap(err)) == tool.CodeConflict; conflict && p.follows {
			p.log.Debug("the server before this one still answers commands")
		} else if !told && conflict {
			p.log.Warn("another server of this config runs, and answers its commands; `toolpost serve --replace` would take over from it")
		} else if !told {
			p.log.Warn("this server does not answer commands yet: its socket cannot be made; trying again", "error", err)
		}
		if !tool.Sleep(ctx, time.Second) {
			return nil
		}
	}
}

// Check validates the doors of a config. It returns the callers without credentials, by the names of the doors that
// admit them. known reports whether the config lists a caller.
func Check(cfg *config.Config, known func(name string) bool) (map[string]identity.Anonymous, error) {
	anonymous, _, err := build(cfg, DoorOptions{Known: known})
	return anonymous, err
}

// Problems returns what would keep the doors of a config from opening on this machine, by their names: files that
// cannot be read, addresses that are not its own.
func Problems(cfg *config.Config, known func(name string) bool) map[string]error {
	found := map[string]error{}
	_, _, _ = build(cfg, DoorOptions{Known: known, tried: func(name string, err error) {
		if err != nil {
			found[name] = err
		}
	}})
	return found
}

// Unencrypted lists the doors that other machines reach without TLS.
func Unencrypted(cfg *config.Config) (names []string) {
	encrypted := map[string]bool{} // by address: doors that share one share its TLS
	at := make([]web.Config, len(cfg.Doors))
	for i, d := range cfg.Doors {
		if d.Peek(&at[i]) == nil && at[i].TLS.Cert != "" {
			encrypted[at[i].Listen] = true
		}
	}
	for i, d := range cfg.Doors {
		if listen := at[i].Listen; listen != "" && !strings.HasPrefix(listen, "unix:") && !encrypted[listen] && web.InClear("http://"+listen) {
			names = append(names, d.Name)
		}
	}
	return names
}

// A Door is a door that a config can open. Either it is mounted on the HTTP front, and has a Mount, or it listens by
// itself, and has an Open and a Claim.
type Door struct {
	Name    string // in doors of the config
	Doc     string
	Options any // the zero value of its config, for the config's schema
	// Mount makes a door of the front, and returns its address in the config. A door with an empty Listen shares the
	// address of the door http. A door without routes is closed.
	Mount func(config.Door, DoorEnv) (web.Config, web.Door, error)
	Path  string // what clients must append to the address of the front
	With  string // another door; a config that opens that one and does not name this one opens this one too
	// Open makes a door that listens by itself.
	Open func(config.Door, DoorEnv) (tool.Door, error)
	// Claim returns the files that it starts from and keeps for itself; for the front's doors they follow from Mount.
	Claim func(d config.Door, dir string) (offlimits.Claim, error)
}

// A DoorEnv has what every door is built from.
type DoorEnv struct {
	DoorOptions
	Dir   string        // base of relative paths in the config
	Drain time.Duration // how long running calls may continue after the end

	anonymous map[string]identity.Anonymous // by the names of doors
}

// Admits records the caller that a door admits without credentials. A door on the network calls it before it is built.
func (env DoorEnv) Admits(d config.Door, a identity.Anonymous, listen string) error {
	if a.Name != "" {
		env.anonymous[d.Name] = a
	}
	return d.Placed(a.Check(listen, env.Known))
}

// Opened reports that a door takes calls.
func (env DoorEnv) Opened(l Listening) {
	l.Token = env.Fresh
	env.Ready(l)
}

// build makes doors. None is open before it is served, so that a caller that only checks can drop them.
func build(cfg *config.Config, o DoorOptions) (map[string]identity.Anonymous, []tool.Door, error) {
	if o.Known == nil {
		o.Known = func(string) bool { return false }
	}
	if o.Waiting == nil {
		o.Waiting = func(h tool.Handler) tool.Handler { return h }
	}
	env := DoorEnv{o, cfg.Dir, time.Duration(cfg.Limits.Drain), map[string]identity.Anonymous{}}
	var doors []tool.Door
	var mounts []mount
	for _, d := range cfg.Doors {
		about, err := doorOf(d)
		if err != nil {
			return nil, nil, err
		}
		if about.Mount != nil {
			m := mount{about: about, entry: d}
			m.config, m.door, err = about.Mount(d, env)
			mounts = append(mounts, m)
		} else {
			var door tool.Door
			door, err = about.Open(d, env)
			doors = append(doors, door)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	mounts = slices.DeleteFunc(append(mounts, env.companions(mounts)...), func(m mount) bool { return m.door.Routes == nil })
	fronts, err := env.fronts(mounts)
	return env.anonymous, append(doors, fronts...), err
}

// companions returns the doors that a config does not name but that accompany one of the mounts, with its web config: a
// caller that needs no credentials there needs none here.
func (env DoorEnv) companions(mounts []mount) (more []mount) {
	named := func(name string) func(mount) bool { return func(m mount) bool { return m.entry.Name == name } }
	for _, about := range networkDoors() {
		i := slices.IndexFunc(mounts, named(about.With))
		if about.With == "" || i < 0 || slices.ContainsFunc(mounts, named(about.Name)) {
			continue
		}
		entry := mounts[i].entry
		entry.Name = about.Name
		m := mount{about: about, entry: entry, config: mounts[i].config}
		// The entry configures the other door, and may have fields that this one does not know.
		if _, door, err := about.Mount(config.Door{Name: about.Name}, env); err == nil {
			m.door = door
			more = append(more, m)
		}
	}
	return more
}

// networkDoors lists the doors of all protocols.
func networkDoors() (doors []Door) {
	for _, p := range Protocols() {
		doors = append(doors, p.Doors...)
	}
	return append(doors, doorsAlone()...)
}

// doorOf finds the definition of a config's door.
func doorOf(d config.Door) (Door, error) {
	known := networkDoors()
	if i := slices.IndexFunc(known, func(k Door) bool { return k.Name == d.Name }); i >= 0 {
		return known[i], nil
	}
	return Door{}, d.Check(DoorParts())
}

// DoorParts lists the doors that a config may have, for its schema.
func DoorParts() (parts []config.Part) {
	for _, d := range networkDoors() {
		parts = append(parts, config.Part{Name: d.Name, Doc: d.Doc, Options: d.Options})
	}
	return parts
}

// DoorClaim returns the files that a door of a config in dir keeps for itself, and those that it starts from.
func DoorClaim(d config.Door, dir string) (offlimits.Claim, error) {
	about, err := doorOf(d)
	switch {
	case err != nil:
		return offlimits.Claim{}, err
	case about.Mount != nil:
		c, _, err := about.Mount(d, DoorEnv{})
		return c.Claim(dir), err
	}
	return about.Claim(d, dir)
}

// A Remote is another Toolpost, used as if it were local.
type Remote = *rest.Client

// Dial returns the Toolpost that serves HTTP at url. The authorities in the file ca vouch for it; default: the
// machine's.
func Dial(url, token, ca string) (Remote, error) { return rest.Dial(url, token, ca) }

// A mount is a door of the HTTP front with its config.
type mount struct {
	about  Door
	entry  config.Door
	config web.Config
	door   web.Door
}

// A front is an address, and the doors on it.
type front struct {
	web.Options
	mounts []mount
}

// fronts groups the doors with the same listen, and returns a server for each address.
func (env DoorEnv) fronts(mounts []mount) ([]tool.Door, error) {
	home := web.DefaultListen
	for _, m := range mounts {
		if m.entry.Name == homeDoor {
			home = cmp.Or(m.config.Listen, home)
		}
	}
	var all []*front
	at := map[string]*front{}
	for _, m := range mounts {
		m.config.Listen = cmp.Or(m.config.Listen, home)
		o, err := m.config.Options(env.Dir)
		if err != nil {
			return nil, m.entry.Placed(err)
		}
		f := at[o.Listen]
		if f == nil {
			f = &front{Options: o}
			all, at[o.Listen] = append(all, f), f
		}
		if about := f.Share(o); about != "" {
			return nil, m.entry.Placed(tool.Errorf(tool.CodeInvalidInput,
				"the doors %s and %s share the address %s and disagree "+
					"about %s: say it at one of them alone, or give one another address", f.mounts[0].entry.Name,
				m.entry.Name, o.Listen, about))
		}
		f.mounts = append(f.mounts, m)
	}
	var doors []tool.Door
	for _, f := range all {
		door, err := env.front(f)
		if err != nil {
			return nil, err
		}
		doors = append(doors, door)
	}
	return doors, nil
}

// homeDoor is the door whose address is the default of the others, and which the command line can move.
const homeDoor = "http"

// front returns the server of an address. The command line moves an address as a whole: a door that relies on another's
// settings there, above all TLS, must not be left behind without them.
func (env DoorEnv) front(f *front) (tool.Door, error) {
	for _, m := range f.mounts {
		if m.entry.Name == homeDoor {
			f.Listen = cmp.Or(env.Listen, f.Listen)
			if err := web.CheckListen(f.Listen); err != nil {
				return nil, err
			}
		}
	}
	var doors []web.Door
	for _, m := range f.mounts {
		if err := env.Admits(m.entry, m.config.Anonymous, f.Listen); err != nil {
			return nil, err
		}
		m.door.Anonymous = m.config.Anonymous
		doors = append(doors, m.door)
	}
	if env.tried != nil {
		env.tried(f.mounts[0].entry.Name, f.Try())
	}
	f.Gate, f.Drain, f.Log, f.Calls, f.Sockets = env.Gate, env.Drain, env.Log, env.Calls, env.Sockets
	f.Ready = func(addr string) {
		var urls []string
		for _, one := range web.Addresses(addr) {
			urls = append(urls, f.URL(one))
		}
		for _, m := range f.mounts {
			url := urls[0]
			if !strings.HasPrefix(url, web.UnixPrefix) {
				url += m.about.Path
			}
			env.Opened(Listening{
				Door: m.entry.Name, URL: url, Also: urls[1:], Anonymous: m.config.Anonymous, Console: m.door.Session != nil,
			})
		}
	}
	return web.New(f.Options, doors...), nil
}
