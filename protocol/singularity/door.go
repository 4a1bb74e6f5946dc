package singularity

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/calls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// DoorOptions needs Server, Start or Connect; everything else has a useful zero value.
type DoorOptions struct {
	Server  *Server                        // the embedded server, in place of Connect; it has one door at a time
	Start   func() (*Server, error)        // starts the embedded server, which lives for as long as the door serves
	Connect Connect                        // an external server
	Caller  string                         // caller of all requests from an external server, default nats; the embedded one uses its Gate
	Named   func(id string) tool.Principal // returns Caller with its current rights; nil means no limits
	Queue   string                         // queue group; default toolpost. Doors in one group share the requests
	Workers int                            // concurrent calls; default 256
	Backlog int                            // requests that may wait for a worker; default 16384. Beyond that they are refused as busy
	Calls   *calls.Log                     // running calls, which can be cancelled by name; nil means those of this door alone
	Drain   time.Duration                  // how long calls in flight may continue after the end; default 10 s
	Version string                         // version in $SRV.INFO; default 0.0.0
	Log     *slog.Logger                   // nil discards
	Ready   func(url string)               // called once, with the server's address, when requests are accepted
}

// A Door serves tools over NATS.
type Door struct{ o DoorOptions }

var _ tool.Door = (*Door)(nil)

// NewDoor makes a door; Serve opens it.
func NewDoor(o DoorOptions) *Door {
	o.Caller, o.Queue = cmp.Or(o.Caller, "nats"), cmp.Or(o.Queue, "toolpost")
	o.Workers, o.Backlog = cmp.Or(max(o.Workers, 0), 256), cmp.Or(max(o.Backlog, 0), 16<<10)
	o.Drain = cmp.Or(max(o.Drain, 0), 10*time.Second)
	o.Calls, o.Log = cmp.Or(o.Calls, calls.New(calls.Env{})), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Named == nil {
		o.Named = func(id string) tool.Principal { return tool.Principal{ID: id} }
	}
	if o.Ready == nil {
		o.Ready = func(string) {}
	}
	return &Door{o}
}

// Serve accepts requests until ctx ends. Calls in flight then have DoorOptions.Drain to end; after that they are cancelled
// and answered. Serve waits for a server that is missing or goes away.
func (d *Door) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	if d.o.Start != nil {
		started, err := d.o.Start()
		if err != nil {
			return err
		}
		defer started.Close()
		d.o.Server = started
	}
	nc, closed, err := d.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if !d.connected(ctx, nc) {
		return nil
	}
	if err := noStreams(ctx, nc); err != nil {
		return err
	}
	changed := tool.Changed(c) // before any caller can ask for the tools
	s := newServing(d.o, h, c)
	defer s.finish()
	home, err := s.newDesk(nc, d.named())
	if err != nil {
		return err
	}
	url := d.o.Connect.URL
	if d.o.Server != nil {
		url = d.o.Server.ClientURL()
		defer d.o.Server.detach()
		if err := d.o.Server.attach(s); err != nil {
			return err
		}
	}
	d.o.Ready(url)
	return d.wait(ctx, home, closed, changed)
}

// named returns the caller of requests on our own connection.
func (d *Door) named() tool.Principal {
	p := d.o.Named(d.o.Caller)
	p.Door = doorName
	return p
}

// wait returns when the door is to be closed. Meanwhile it keeps the rights of the home desk's caller up to date, and
// notifies every caller when the catalogue changes.
func (d *Door) wait(ctx context.Context, home *desk, closed, changed <-chan struct{}) error {
	again := time.NewTicker(recheckEvery)
	defer again.Stop()
	for {
		select {
		case <-changed:
			changed = tool.Changed(home.catalog)
			home.tellChanged()
		case <-ctx.Done():
			return nil
		case <-closed:
			return tool.Errorf(tool.CodeUnavailable, "the connection to NATS was closed for good")
		case <-again.C:
			p := d.named()
			home.caller.Store(&p)
		}
	}
}

func (d *Door) connect() (nc *nats.Conn, closed <-chan struct{}, err error) {
	ended := make(chan struct{})
	options := []nats.Option{
		nats.RetryOnFailedConnect(true),
		nats.ClosedHandler(func(*nats.Conn) { close(ended) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				d.o.Log.Warn("the NATS door lost its connection and tries to get it back", "error", err)
			}
		}),
	}
	if d.o.Server != nil {
		nc, err = d.o.Server.dial("", options...)
		return nc, ended, err
	}
	more, err := d.o.Connect.options()
	if err != nil {
		return nil, nil, err
	}
	nc, err = dial(d.o.Connect.URL, d.o.Connect.shown(), d.o.Log, append(options, more...)...)
	return nc, ended, err
}

// connected waits for the server. It returns false if ctx ends first.
func (d *Door) connected(ctx context.Context, nc *nats.Conn) bool {
	changed := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(changed)
	if nc.IsConnected() {
		return true
	}
	d.o.Log.Warn("the NATS door waits for its server", "server", d.o.Connect.shown(), "error", nc.LastError())
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

// noStreams refuses a server on which a JetStream stream captures our subjects: a caller would get the stream's
// acknowledgement in place of an answer.
func noStreams(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.NAMES", []byte(`{"subject":"tools.>"}`))
	if err != nil {
		return nil // no JetStream there, or we may not ask it
	}
	var list struct {
		Streams []string `json:"streams"`
	}
	if strictjson.Unmarshal(m.Data, &list) == nil && len(list.Streams) > 0 {
		return tool.Errorf(tool.CodeConflict,
			"the JetStream stream %q takes subjects below tools, so callers would get its acknowledgements and not "+
				"our answers: take these subjects out of the stream", list.Streams[0])
	}
	return nil
}
