package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"toolpost/host/offlimits"
	"toolpost/identity"
	"toolpost/tool"
)

// Options of the door. Only Gate must be given.
type Options struct {
	Listen   string            // address, or unix:PATH; "": 127.0.0.1:8700
	Listener net.Listener      // in place of Listen; the door closes it
	Mode     fs.FileMode       // of the Unix socket; 0: 0600
	TLS      TLSFiles          // zero: no TLS
	Gate     identity.Gate     // who may come in
	Hosts    []string          // Host headers accepted beside the listen address and localhost, with or without a port
	Origins  []string          // origins of browser pages accepted beside our own, such as https://example.org
	MaxBody  int64             // bytes of a request; 0: 8 MiB
	Bounds   identity.Bounds   // connections at the same time; zero: those that follow from this process's descriptors
	Drain    time.Duration     // how long calls in flight may go on after the end; 0: 10 s
	Log      *slog.Logger      // nil: silence
	Ready    func(addr string) // called once, with the real address, when connections are taken

	// Metrics writes what is counted, as Prometheus reads it; nil: nothing is.
	Metrics func(io.Writer) error

	Anonymous identity.Anonymous // who comes in without showing anything; zero: nobody
}

// URL is where clients find the door once it listens on an address.
func (o Options) URL(addr string) string {
	switch {
	case strings.HasPrefix(o.Listen, unixPrefix):
		return unixPrefix + addr
	case o.TLS.on():
		return "https://" + addr
	}
	return "http://" + addr
}

// DoorConfig is what a config says about the door.
type DoorConfig struct {
	Listen  string   `yaml:"listen" doc:"address to listen on, or unix:PATH for a Unix socket; 127.0.0.1:8700 where it is left out"`
	Mode    string   `yaml:"mode" doc:"mode of the Unix socket, such as \"0660\"; \"0600\" where it is left out"`
	TLS     TLSFiles `yaml:"tls" doc:"speak TLS, with these files; not where it is left out"`
	Hosts   []string `yaml:"hosts" doc:"Host headers accepted beside the listen address and localhost"`
	Origins []string `yaml:"origins" doc:"browser origins accepted; none where it is left out"`
	identity.Anonymous
}

// Options gives what the config says of the door's options. Relative paths start at dir.
func (c DoorConfig) Options(dir string) (Options, error) {
	o := Options{Listen: c.Listen, Hosts: c.Hosts, Origins: c.Origins, TLS: c.TLS, Anonymous: c.Anonymous}
	for _, path := range []*string{&o.TLS.Cert, &o.TLS.Key, &o.TLS.ClientCA} {
		if *path != "" {
			*path = offlimits.Under(dir, *path)
		}
	}
	path, unix := strings.CutPrefix(c.Listen, unixPrefix)
	if path != "" && unix {
		o.Listen = unixPrefix + offlimits.Under(dir, path)
	}
	if c.Mode == "" {
		return o, nil
	}
	mode, err := strconv.ParseUint(c.Mode, 8, 32)
	if err != nil || mode == 0 || mode > 0o777 || !unix {
		return o, tool.Errorf(tool.CodeInvalidInput, "the mode %q of the HTTP door: it is that of a Unix socket, in octal digits such as \"0660\"", c.Mode)
	}
	o.Mode = fs.FileMode(mode)
	return o, nil
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
	if o.Mode == 0 {
		o.Mode = 0o600
	}
	if o.MaxBody == 0 {
		o.MaxBody = 8 << 20
	}
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	if o.Bounds == (identity.Bounds{}) {
		o.Bounds = identity.DefaultBounds()
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
	certs, err := d.certificates()
	if err != nil {
		return err
	}
	ln, err := d.listen(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil
	case err != nil:
		return err
	}
	s := newServer(d.o, d.times, ln.Addr(), h, c)
	if certs != nil {
		s.certs, ln = certs, tls.NewListener(ln, certs.config())
	}
	srv := d.newHTTP(s)
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

func (d *Door) newHTTP(s *server) *http.Server {
	return &http.Server{
		Handler: s,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return s.crowd.Enter(withPeer(ctx, conn), conn)
		},
		ConnState:         s.crowd.Watch,
		ReadHeaderTimeout: d.times.header,
		IdleTimeout:       d.times.idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(d.o.Log.Handler(), slog.LevelWarn),
	}
}

// certificates gives those of the door; nil: it has none.
func (d *Door) certificates() (*certificates, error) {
	switch {
	case !d.o.TLS.on():
		return nil, nil
	case strings.HasPrefix(d.o.Listen, unixPrefix):
		return nil, tool.Errorf(tool.CodeInvalidInput, "the HTTP door listens on a Unix socket, where nothing goes over a wire: leave tls out")
	}
	return newCertificates(d.o.TLS, d.o.Log)
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
