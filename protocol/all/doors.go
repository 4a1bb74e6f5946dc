package all

import (
	"cmp"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/engine/running"
	"toolpost/host/model"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/web/console"
)

// DoorOptions is what the doors of a config need beside it.
type DoorOptions struct {
	Log *slog.Logger
	// address of the door http and of those that share it, in place of the config's
	Listen  string
	Gate    identity.Gate                        // says who comes in, at every door
	Named   func(id, door string) tool.Principal // gives a caller that a door names its current rights; nil: no limits
	Fresh   string                               // the owner's token, when it was made just now
	Version string                               // of this program, for those who ask
	Ready   func(Listening)                      // called when a door takes calls
	Metrics func(io.Writer) error                // what is told of calls in numbers; nil: nothing
	Calls   *running.Calls                       // that run now, by whichever door they came; nil: each front and door has its own
	Known   func(name string) bool               // reports whether the config lists a caller; nil: it lists none
	Keys    *secret.Keyed                        // seals what callers bring back; nil: one that ends with this program
	Models  *model.Book                          // of the config, for the doors that ask them; nil: there are none
	Console *console.Console                     // at the door http, unless the config says otherwise; nil: none
	Issuers func() []string                      // of tokens that callers may show, by their URLs; nil: there are none
	// Waiting has calls wait until somebody has decided about them, for doors whose callers stay that long; nil: none do
	Waiting tool.Middleware

	tried func(door string, err error) // hears whether a front could be opened; nil: nobody asks
}

// Listening says where a door takes calls.
type Listening struct {
	Door      string // its name in the config
	URL       string
	Also      []string           // more URLs, where it listens on every address of the machine; without a path
	Token     string             // in clear when it was made just now; it cannot be shown again
	Anonymous identity.Anonymous // who comes in there without credentials
	Console   bool               // the console is there, at /
}

// Doors makes the doors that the config asks for. They are open once they are served.
func Doors(cfg *config.Config, o DoorOptions) ([]tool.Door, error) {
	if o.Gate == nil {
		return nil, tool.Errorf(tool.CodeInternal, "the doors have no gate to authenticate callers with")
	}
	_, doors, err := build(cfg, o)
	return doors, err
}

// Check finds what cannot be meant about the doors of a config, and gives who comes in without credentials, by the
// names of the doors where somebody does. Known reports whether the config lists a caller.
func Check(cfg *config.Config, known func(name string) bool) (map[string]identity.Anonymous, error) {
	anonymous, _, err := build(cfg, DoorOptions{Known: known})
	return anonymous, err
}

// Problems says what would keep the doors of a config from opening on this machine, by their names: files that cannot
// be read, addresses that are not its own.
func Problems(cfg *config.Config, known func(name string) bool) map[string]error {
	found := map[string]error{}
	_, _, _ = build(cfg, DoorOptions{Known: known, tried: func(name string, err error) {
		if err != nil {
			found[name] = err
		}
	}})
	return found
}

// A Door is one that a config opens. It stands on the HTTP front, and then has a Mount, or it listens by itself, and
// then has an Open and a Claim.
type Door struct {
	Name    string // in doors of the config
	Doc     string
	Options any // the zero value of what it decodes, for the schema of the config
	// Mount makes a door of the front, and says where the config puts it. One that leaves Listen empty stands where the
	// door http stands. One without routes is closed.
	Mount func(config.Door, Kit) (web.Config, web.Door, error)
	Path  string // what its clients have to be told behind the address of the front
	With  string // another door; a config that opens that one and does not name this one opens it beside it
	// Open makes a door that listens by itself.
	Open func(config.Door, Kit) (tool.Door, error)
	// Claim says which files it starts from and keeps for itself; those of the front's doors follow from Mount.
	Claim func(d config.Door, dir string) (offlimits.Claim, error)
}

// A Kit is what every door is made with.
type Kit struct {
	DoorOptions
	Dir   string        // where relative paths of the config start
	Drain time.Duration // how long calls in flight may go on after the end

	anonymous map[string]identity.Anonymous // by the names of doors
}

// Admits notes who comes in at a door without credentials. A door on the network says so before it is made.
func (k Kit) Admits(d config.Door, a identity.Anonymous, listen string) error {
	if a.Name != "" {
		k.anonymous[d.Name] = a
	}
	return d.Placed(a.Check(listen, k.Known))
}

// Opened tells that a door takes calls.
func (k Kit) Opened(l Listening) {
	l.Token = k.Fresh
	k.Ready(l)
}

// build makes doors. None is open before it is served, so that whoever only asks whether they can be made drops them.
func build(cfg *config.Config, o DoorOptions) (map[string]identity.Anonymous, []tool.Door, error) {
	if o.Known == nil {
		o.Known = func(string) bool { return false }
	}
	if o.Waiting == nil {
		o.Waiting = func(h tool.Handler) tool.Handler { return h }
	}
	k := Kit{o, cfg.Dir, time.Duration(cfg.Limits.Drain), map[string]identity.Anonymous{}}
	var doors []tool.Door
	var mounts []mount
	for _, d := range cfg.Doors {
		about, err := doorOf(d)
		if err != nil {
			return nil, nil, err
		}
		if about.Mount != nil {
			m := mount{about: about, entry: d}
			m.config, m.door, err = about.Mount(d, k)
			mounts = append(mounts, m)
		} else {
			var door tool.Door
			door, err = about.Open(d, k)
			doors = append(doors, door)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	mounts = slices.DeleteFunc(append(mounts, k.beside(mounts)...), func(m mount) bool { return m.door.Routes == nil })
	fronts, err := k.fronts(mounts)
	return k.anonymous, append(doors, fronts...), err
}

// beside makes the doors that stand beside one of the mounts without being asked for, in its own words: whoever may come
// in there without credentials may do so here.
func (k Kit) beside(mounts []mount) (more []mount) {
	named := func(name string) func(mount) bool { return func(m mount) bool { return m.entry.Name == name } }
	for _, about := range networkDoors() {
		i := slices.IndexFunc(mounts, named(about.With))
		if about.With == "" || i < 0 || slices.ContainsFunc(mounts, named(about.Name)) {
			continue
		}
		entry := mounts[i].entry
		entry.Name = about.Name
		m := mount{about: about, entry: entry, config: mounts[i].config}
		// What the entry says is said to the other door, which may know words that this one does not.
		if _, door, err := about.Mount(config.Door{Name: about.Name}, k); err == nil {
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

// doorOf finds what a config's door is.
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

// DoorClaim says which files a door keeps for itself, and which it starts from, of a config in dir.
func DoorClaim(d config.Door, dir string) (offlimits.Claim, error) {
	about, err := doorOf(d)
	switch {
	case err != nil:
		return offlimits.Claim{}, err
	case about.Mount != nil:
		c, _, err := about.Mount(d, Kit{})
		return c.Claim(dir), err
	}
	return about.Claim(d, dir)
}

// A Remote is another Toolpost, used as if it were here.
type Remote = *rest.Client

// Dial returns the Toolpost that serves HTTP at url. The authorities in the file ca vouch for it; empty: the machine's.
func Dial(url, token, ca string) (Remote, error) { return rest.Dial(url, token, ca) }

// A mount is a door of the HTTP front as the config has it.
type mount struct {
	about  Door
	entry  config.Door
	config web.Config
	door   web.Door
}

// A front is an address, and the doors that say that they stand there.
type front struct {
	web.Options
	mounts []mount
}

// fronts puts the doors that say the same listen on one address, and gives what serves each address.
func (k Kit) fronts(mounts []mount) ([]tool.Door, error) {
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
		o, err := m.config.Options(k.Dir)
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
		door, err := k.front(f)
		if err != nil {
			return nil, err
		}
		doors = append(doors, door)
	}
	return doors, nil
}

// homeDoor is where doors stand that have no address of their own, and which the command line can move.
const homeDoor = "http"

// front makes what serves an address. The command line moves an address as a whole: a door that relies on what another
// says there, TLS above all, must not be left behind without it.
func (k Kit) front(f *front) (tool.Door, error) {
	for _, m := range f.mounts {
		if m.entry.Name == homeDoor {
			f.Listen = cmp.Or(k.Listen, f.Listen)
			if err := web.CheckListen(f.Listen); err != nil {
				return nil, err
			}
		}
	}
	var doors []web.Door
	for _, m := range f.mounts {
		if err := k.Admits(m.entry, m.config.Anonymous, f.Listen); err != nil {
			return nil, err
		}
		m.door.Anonymous = m.config.Anonymous
		doors = append(doors, m.door)
	}
	if k.tried != nil {
		k.tried(f.mounts[0].entry.Name, f.Try())
	}
	f.Gate, f.Drain, f.Log, f.Calls = k.Gate, k.Drain, k.Log, k.Calls
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
			k.Opened(Listening{
				Door: m.entry.Name, URL: url, Also: urls[1:], Anonymous: m.config.Anonymous, Console: m.door.Session != nil,
			})
		}
	}
	return web.New(f.Options, doors...), nil
}
