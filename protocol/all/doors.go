package all

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/protocol/namel3ss"
	"toolpost/protocol/rest"
	"toolpost/protocol/singularity"
	"toolpost/tool"
)

// DoorOptions is what the doors of a config need beside it.
type DoorOptions struct {
	Log      *slog.Logger
	Listen   string          // address of the HTTP door, in place of what the config says
	Token    string          // of the HTTP door; empty: one is made and kept in the state folder
	NewToken bool            // forget the kept token and make another
	Version  string          // of this program, for those who ask
	Ready    func(Listening) // called when a door takes calls
}

// Listening says where a door takes calls.
type Listening struct {
	Door  string // http, nats
	URL   string
	Token string // in clear when it was made just now; it cannot be shown again
}

// Doors makes the doors that the config asks for. They are open once they are served.
func Doors(cfg *config.Config, o DoorOptions) ([]tool.Door, error) {
	if len(cfg.Doors) == 0 {
		return nil, nil
	}
	gate, fresh, err := gate(cfg.StateDir(), o)
	if err != nil {
		return nil, err
	}
	b := doorBuilder{o, cfg.Dir, gate, fresh, time.Duration(cfg.Limits.Drain)}
	var doors []tool.Door
	for _, d := range cfg.Doors {
		door, err := b.door(d)
		if err != nil {
			return nil, err
		}
		doors = append(doors, door)
	}
	return doors, nil
}

// DoorParts lists the doors that a config may have, for its schema.
func DoorParts() []config.Part {
	return []config.Part{
		{Name: "http", Doc: "the HTTP door", Options: rest.DoorConfig{}},
		{Name: "nats", Doc: "the NATS door: tools at tools.execute and the subjects of the Singularity contract", Options: singularity.DoorConfig{}},
		{Name: "namel3ss", Doc: "the namel3ss service door: POST /tools and /capabilities/handshake", Options: namel3ss.ServiceConfig{}},
	}
}

// A doorBuilder has what every door needs.
type doorBuilder struct {
	DoorOptions
	dir   string // where relative paths start
	gate  identity.Gate
	fresh string // the token, when it was made just now
	drain time.Duration
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
	return rest.NewDoor(rest.Options{
		Listen:  cmp.Or(b.Listen, c.Listen),
		Gate:    b.gate,
		Hosts:   c.Hosts,
		Origins: c.Origins,
		Drain:   b.drain,
		Log:     b.Log,
		Ready:   func(addr string) { b.Ready(Listening{Door: d.Name, URL: "http://" + addr, Token: b.fresh}) },
	}), nil
}

func (b doorBuilder) namel3ss(d config.Door) (tool.Door, error) {
	var c namel3ss.ServiceConfig
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	o := namel3ss.ServiceOptions{
		Listen: c.Listen, Hosts: c.Hosts, Gate: b.gate, Version: b.Version, Drain: b.drain, Log: b.Log,
		Ready: func(addr string) { b.Ready(Listening{Door: d.Name, URL: "http://" + addr + "/tools", Token: b.fresh}) },
	}
	if c.Open {
		o.Gate = nil
	}
	return namel3ss.NewServiceDoor(o), nil
}

func (b doorBuilder) nats(d config.Door) (tool.Door, error) {
	c := singularity.DoorConfig{Listen: "127.0.0.1:4222"}
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	if c.Embedded && c.URL != "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the NATS door has a url and embedded: true; leave one of them out")
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
		Ready: func() { d.Ready(Listening{Door: "nats", URL: d.config.URL, Token: d.fresh}) },
	}
	if d.config.URL == "" {
		server, err := singularity.StartServer(singularity.ServerOptions{Listen: d.config.Listen, Gate: d.gate, Log: d.Log})
		if err != nil {
			return err
		}
		defer server.Close()
		o.Server = server
		o.Ready = func() { d.Ready(Listening{Door: "nats", URL: server.ClientURL(), Token: d.fresh}) }
	}
	return singularity.NewDoor(o).Serve(ctx, h, c)
}

func gate(dir string, o DoorOptions) (gate identity.Gate, fresh string, err error) {
	if o.Token != "" {
		gate, err = identity.StaticToken(o.Token)
		return gate, "", err
	}
	if o.NewToken {
		if err := os.Remove(filepath.Join(dir, identity.TokenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", tool.Errorf(tool.CodeUnavailable, "cannot forget the old token: %w", err)
		}
	}
	return identity.FileToken(dir)
}

// A Remote is another Toolpost, used as if it were here.
type Remote interface {
	tool.Handler
	tool.Catalog
}

// Dial gives the Toolpost that serves HTTP at url.
func Dial(url, token string) (Remote, error) { return rest.Dial(url, token) }
