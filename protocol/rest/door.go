package rest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"toolpost/identity"
	"toolpost/tool"
)

// Options of the door. Only Gate must be given.
type Options struct {
	Listen   string            // address; "": 127.0.0.1:8700
	Listener net.Listener      // in place of Listen; the door closes it
	Gate     identity.Gate     // who may come in
	Hosts    []string          // Host headers accepted beside the listen address and localhost, with or without a port
	Origins  []string          // origins of browser pages accepted beside our own, such as https://example.org
	MaxBody  int64             // bytes of a request; 0: 8 MiB
	Drain    time.Duration     // how long calls in flight may go on after the end; 0: 10 s
	Log      *slog.Logger      // nil: silence
	Ready    func(addr string) // called once, with the real address, when connections are taken
}

// DoorConfig is what a config says about the door.
type DoorConfig struct {
	Listen  string   `yaml:"listen" doc:"address to listen on; 127.0.0.1:8700 where it is left out"`
	Hosts   []string `yaml:"hosts" doc:"Host headers accepted beside the listen address and localhost"`
	Origins []string `yaml:"origins" doc:"browser origins accepted; none where it is left out"`
}

// times bounds every wait on a peer.
type times struct {
	header time.Duration // until the whole header is there
	body   time.Duration // until the whole body is there
	write  time.Duration // until the peer takes what we write; meanwhile a slow one is back-pressure
	idle   time.Duration // between two requests of a connection
	beat   time.Duration // between two signs of life on a stream
	grace  time.Duration // for cancelled calls to be answered, and for other requests, at the end
}

// maxHeader is net/http's bound on all headers of a request together.
const maxHeader = 64 << 10

// A Door serves HTTP.
type Door struct {
	o     Options
	times times
}

var _ tool.Door = (*Door)(nil)

// NewDoor makes a door; Serve opens it.
func NewDoor(o Options) *Door {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:8700"
	}
	if o.MaxBody == 0 {
		o.MaxBody = 8 << 20
	}
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Door{o, times{
		header: 10 * time.Second, body: 30 * time.Second, write: time.Minute,
		idle: 2 * time.Minute, beat: 15 * time.Second, grace: 2 * time.Second,
	}}
}

// Serve takes calls until ctx ends. From then on no connection and no call is taken; calls in flight have
// Options.Drain to end, then they are cancelled and answered.
func (d *Door) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	if d.o.Gate == nil {
		return tool.Errorf(tool.CodeInternal, "the HTTP door does not know who may come in: give it a Gate")
	}
	ln, err := d.listen(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil
	case err != nil:
		return err
	}
	s := newServer(d.o, d.times, ln.Addr(), h, c)
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: d.times.header,
		IdleTimeout:       d.times.idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(d.o.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	if d.o.Ready != nil {
		d.o.Ready(ln.Addr().String())
	}
	var idle <-chan struct{}
	select {
	case <-ctx.Done():
		idle = s.calls.drain() // first, so that whoever sees the door closed is told so on its open connections too
		_ = ln.Close()
		<-ended
	case err = <-ended:
		idle = s.calls.drain()
		err = tool.Errorf(tool.CodeUnavailable, "the HTTP door can take no more connections: %w", err)
	}
	s.finish(idle)
	d.close(srv)
	return err
}

func (d *Door) listen(ctx context.Context) (net.Listener, error) {
	if d.o.Listener != nil {
		return d.o.Listener, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", d.o.Listen)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "cannot serve HTTP on %s: %w; choose another address, or stop what uses this one", d.o.Listen, err)
	}
	return ln, nil
}

// close ends connections: idle ones at once, others when they have their answer or the grace is over.
func (d *Door) close(srv *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), d.times.grace)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		d.o.Log.Warn("the HTTP door did not close cleanly", "error", err)
	}
	_ = srv.Close()
}
