package all

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"toolpost/config"
	"toolpost/host/offlimits"
	"toolpost/identity"
	"toolpost/protocol/namel3ss"
	"toolpost/protocol/rest"
	"toolpost/protocol/singularity"
	"toolpost/tool"
)

// DoorOptions is what the doors of a config need beside it.
type DoorOptions struct {
	Log     *slog.Logger
	Listen  string                               // address of the HTTP door, in place of what the config says
	Gate    identity.Gate                        // says who comes in, at every door
	Named   func(id, door string) tool.Principal // gives a caller whom a door names the rights of now; nil: no limits
	Fresh   string                               // the owner's token, when it was made just now
	Version string                               // of this program, for those who ask
	Ready   func(Listening)                      // called when a door takes calls
	Metrics func(io.Writer) error                // what the HTTP door shows of calls in numbers; nil: nothing
	Known   func(name string) bool               // reports whether the config lists a caller; nil: it lists none
}

// Listening says where a door takes calls.
type Listening struct {
	Door      string // http, nats
	URL       string
	Token     string             // in clear when it was made just now; it cannot be shown again
	Anonymous identity.Anonymous // who comes in there without credentials
}

// Doors makes the doors that the config asks for. They are open once they are served.
func Doors(cfg *config.Config, o DoorOptions) ([]tool.Door, error) {
	if o.Gate == nil {
		return nil, tool.Errorf(tool.CodeInternal, "there is nobody at the doors who could say who comes in")
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

// build makes doors. None is open before it is served, so that whoever only asks whether they can be made drops them.
func build(cfg *config.Config, o DoorOptions) (map[string]identity.Anonymous, []tool.Door, error) {
	if o.Known == nil {
		o.Known = func(string) bool { return false }
	}
	b := doorBuilder{o, cfg.Dir, time.Duration(cfg.Limits.Drain), map[string]identity.Anonymous{}}
	var doors []tool.Door
	for _, d := range cfg.Doors {
		door, err := b.door(d)
		if err != nil {
			return nil, nil, err
		}
		doors = append(doors, door)
	}
	return b.anonymous, doors, nil
}

// DoorParts lists the doors that a config may have, for its schema.
func DoorParts() []config.Part {
	return []config.Part{
		{Name: "http", Doc: "the HTTP door", Options: rest.DoorConfig{}},
		{Name: "nats", Doc: "the NATS door: tools at tools.execute and the subjects of the Singularity contract", Options: singularity.DoorConfig{}},
		{Name: "namel3ss", Doc: "the namel3ss service door: POST /tools and /capabilities/handshake", Options: namel3ss.ServiceConfig{}},
	}
}

// DoorClaim says which files a door keeps for itself, and which it starts from, of a config in dir.
func DoorClaim(d config.Door, dir string) (offlimits.Claim, error) {
	switch d.Name {
	case "http":
		var c rest.DoorConfig
		err := d.Decode(&c)
		return c.Claim(dir), err
	case "nats":
		var c singularity.DoorConfig
		err := d.Decode(&c)
		return c.Claim(dir), err
	}
	return offlimits.Claim{}, nil
}

// A doorBuilder has what every door needs.
type doorBuilder struct {
	DoorOptions
	dir       string // where relative paths start
	drain     time.Duration
	anonymous map[string]identity.Anonymous // by the names of doors
}

// admits notes who comes in at a door without credentials.
func (b doorBuilder) admits(d config.Door, a identity.Anonymous, listen string) error {
	if a.Name != "" {
		b.anonymous[d.Name] = a
	}
	return d.Placed(a.Check(listen, b.Known))
}

func (b doorBuilder) door(d config.Door) (tool.Door, error) {
	switch d.Name {
	case "http":
		return b.http(d)
	case "nats":
		return b.nats(d)
	case "namel3ss":
		return b.namel3ss(d)
	}
	return nil, d.Check(DoorParts())
}

func (b doorBuilder) http(d config.Door) (tool.Door, error) {
	var c rest.DoorConfig
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	o, err := c.Options(b.dir)
	if err != nil {
		return nil, d.Placed(err)
	}
	o.Listen = cmp.Or(b.Listen, o.Listen)
	if err := b.admits(d, c.Anonymous, o.Listen); err != nil {
		return nil, err
	}
	o.Gate, o.Drain, o.Log, o.Metrics = b.Gate, b.drain, b.Log, b.Metrics
	o.Ready = func(addr string) {
		b.Ready(Listening{Door: d.Name, URL: o.URL(addr), Token: b.Fresh, Anonymous: c.Anonymous})
	}
	return rest.NewDoor(o), nil
}

func (b doorBuilder) namel3ss(d config.Door) (tool.Door, error) {
	var c namel3ss.ServiceConfig
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	if err := b.admits(d, c.Anonymous, c.Listen); err != nil {
		return nil, err
	}
	o := namel3ss.ServiceOptions{
		Listen: c.Listen, Hosts: c.Hosts, Gate: b.Gate, Anonymous: c.Anonymous, Version: b.Version, Drain: b.drain, Log: b.Log,
		Ready: func(addr string) {
			b.Ready(Listening{Door: d.Name, URL: "http://" + addr + "/tools", Token: b.Fresh, Anonymous: c.Anonymous})
		},
	}
	return namel3ss.NewServiceDoor(o), nil
}

func (b doorBuilder) nats(d config.Door) (tool.Door, error) {
	c := singularity.DoorConfig{Listen: "127.0.0.1:4222"}
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, d.Placed(err)
	}
	if err := b.admits(d, c.Anonymous, c.Listen); err != nil {
		return nil, err
	}
	return natsDoor{b, c}, nil
}

// A natsDoor serves at an external NATS server, or starts one for as long as it serves.
type natsDoor struct {
	doorBuilder
	config singularity.DoorConfig
}

// Serve implements tool.Door.
func (d natsDoor) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	o := singularity.DoorOptions{
		Connect: d.config.Connect.Resolve(d.dir), Version: d.Version, Queue: d.config.Queue, Workers: d.config.Workers, Drain: d.drain, Log: d.Log,
		Caller: d.config.Caller,
		Ready:  func() { d.Ready(Listening{Door: "nats", URL: d.config.URL, Token: d.Fresh}) },
	}
	if d.Named != nil {
		o.Named = func(id string) tool.Principal { return d.Named(id, "nats") }
	}
	if d.config.URL == "" {
		certificates, err := d.config.TLS.Load(d.dir)
		if err != nil {
			return err
		}
		server, err := singularity.StartServer(singularity.ServerOptions{
			Listen: d.config.Listen, Gate: d.Gate, Anonymous: d.config.Anonymous, TLS: certificates, Log: d.Log,
		})
		if err != nil {
			return err
		}
		defer server.Close()
		o.Server = server
		o.Ready = func() {
			d.Ready(Listening{Door: "nats", URL: server.ClientURL(), Token: d.Fresh, Anonymous: d.config.Anonymous})
		}
	}
	return singularity.NewDoor(o).Serve(ctx, h, c)
}

// A Remote is another Toolpost, used as if it were here.
type Remote interface {
	tool.Handler
	tool.Catalog
}

// Dial gives the Toolpost that serves HTTP at url.
func Dial(url, token string) (Remote, error) { return rest.Dial(url, token) }
