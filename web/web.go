// Package web is the one HTTP front. It owns an address: how it is listened on and spoken to (TCP, a Unix socket, TLS),
// which hosts and origins are served, who calls, how much a peer may send and how long it may take, the calls that run
// there, and how all of it comes to an end. Doors mount their routes on a front and know nothing of this, so a new one
// cannot be a weaker one; and several of them can share an address.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"time"

	"toolpost/engine/running"
	"toolpost/identity"
	"toolpost/tool"
)

// Options of a front. Only Gate must be given.
type Options struct {
	Listen   string            // address, or unix:PATH; "": DefaultListen
	Listener net.Listener      // in place of Listen; the front closes it
	Mode     fs.FileMode       // of the Unix socket; 0: 0600
	TLS      TLSFiles          // zero: no TLS
	Gate     identity.Gate     // who may come in
	Hosts    []string          // Host headers accepted beside the listen address and localhost, with or without a port
	Origins  []string          // origins of browser pages accepted beside our own, such as https://example.org
	MaxBody  int64             // bytes of a request; 0: 8 MiB
	Bounds   identity.Bounds   // connections at the same time; zero: those that follow from this process's descriptors
	Times    Times             // of every wait on a peer
	Calls    *running.Calls    // that run now, so that they can be cancelled by id; nil: those of this front alone
	Drain    time.Duration     // how long calls in flight may go on after the end; 0: 10 s
	Log      *slog.Logger      // nil: silence
	Ready    func(addr string) // called once, with the real address, when connections are taken
}

// DefaultListen is where a front listens unless it is told otherwise.
const DefaultListen = "127.0.0.1:8700"

// Times bounds every wait on a peer. What is zero has the default.
type Times struct {
	Header time.Duration // until the whole header is there; 10 s
	Body   time.Duration // until the whole body is there; 30 s
	Write  time.Duration // until the peer takes what we write; meanwhile a slow one is back-pressure; 1 min
	Idle   time.Duration // between two requests of a connection; 2 min
	Grace  time.Duration // for cancelled calls to be answered, and for other requests, at the end; 2 s
}

// maxHeader is net/http's bound on all headers of a request together.
const maxHeader = 64 << 10

// A Door is one protocol at an address. Its zero values are useful but for Name and Routes.
type Door struct {
	Name   string // by which it is told apart from others: Principal.Door of who comes in
	Routes func(s *Server, h tool.Handler, c tool.Catalog) []Route
	Hint   string  // where to look instead, for whoever asks for a path that nobody serves
	Offers []Offer // what people are told who open the address in a browser
	// Refusals are in the protocol's own form; nil: problem documents.
	Refusals Refuser
	// Basic says that a token may also come as the password of Basic, for clients that know no bearer tokens.
	Basic bool
	// Keys is another header that a token may come in as it is, for clients that have one of their own; "": none.
	Keys string
	// Accepts and Exposes list the headers that pages of allowed origins may send, and those of answers that they may
	// read, beside the usual ones.
	Accepts, Exposes []string
	Anonymous        identity.Anonymous // who comes in by its routes without showing anything; zero: nobody
	// Session gives the proof of whoever has signed in and shows a cookie in place of a token, or says why the cookie does
	// not count for this request; "": there is none. Nil: cookies are nothing here.
	Session func(*http.Request) (proof string, err error)
	// Challenge gives parameters of Bearer for whoever is refused, such as where tokens are to be had: `, name="value"`;
	// nil: none.
	Challenge func(*http.Request) string
}

// A Refuser says no in the form of its protocol. It is asked for everything that the front refuses before the door has
// a say: another host, a foreign page, a stranger, a method that is not there.
type Refuser func(e *tool.Error) (body []byte) // JSON

// A Route is one thing that can be asked of a door.
type Route struct {
	Method string // "": any
	Path   string // with {parameters}, as http.ServeMux reads it
	Open   bool   // whoever asks is answered, without a caller
	// Optional says that who shows no token is answered too, without a caller; a token must be good.
	Optional bool
	Lasts    func(*http.Request) bool // a POST asks for a stream, which ends when its caller is no longer admitted; nil: none does
	Serve    func(w http.ResponseWriter, r *http.Request, p tool.Principal)
}

// A Front is an address and the doors there.
type Front struct {
	o     Options
	doors []Door
}

var _ tool.Door = (*Front)(nil)

// New makes a front; Serve opens it.
func New(o Options, doors ...Door) *Front {
	orElse(&o.Listen, DefaultListen)
	orElse(&o.Mode, 0o600)
	orElse(&o.MaxBody, 8<<20)
	orElse(&o.Drain, 10*time.Second)
	orElse(&o.Log, slog.New(slog.DiscardHandler))
	orElse(&o.Times.Header, 10*time.Second)
	orElse(&o.Times.Body, 30*time.Second)
	orElse(&o.Times.Write, time.Minute)
	orElse(&o.Times.Idle, 2*time.Minute)
	orElse(&o.Times.Grace, 2*time.Second)
	orElse(&o.Calls, new(running.Calls))
	orElse(&o.Bounds, identity.DefaultBounds())
	return &Front{o, doors}
}

// orElse gives an option that was left out its default.
func orElse[T comparable](option *T, usual T) {
	if *option == *new(T) {
		*option = usual
	}
}

// Serve takes calls until ctx ends. From then on no connection and no call is taken; calls in flight have
// Options.Drain to end, then they are cancelled and answered.
func (f *Front) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	if f.o.Gate == nil {
		if f.o.Listener != nil {
			_ = f.o.Listener.Close()
		}
		return tool.Errorf(tool.CodeInternal,
			"nobody asks who comes in at %s, which would be open to everyone: give it a Gate", f.o.Listen)
	}
	certs, err := newCertificates(f.o)
	if err != nil {
		return err
	}
	ln, err := f.listen(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil
	case err != nil:
		return err
	}
	s := newServer(f.o, f.doors, ln.Addr(), h, c)
	if certs != nil {
		s.certs, ln = certs, tls.NewListener(ln, certs.config())
	}
	srv := s.http()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	if f.o.Ready != nil {
		f.o.Ready(ln.Addr().String())
	}
	var idle <-chan struct{}
	select {
	case <-ctx.Done():
		idle = s.inFlight.drain() // first, so that whoever sees the address closed is told so on its open connections too
		_ = ln.Close()
		<-ended
	case err = <-ended:
		idle = s.inFlight.drain()
		err = tool.Errorf(tool.CodeUnavailable, "the HTTP door can take no more connections: %w", err)
	}
	s.finish(idle)
	f.close(srv)
	s.crowd.sending.Wait()
	return err
}

// http makes the server of the standard library. There is no other: the house test looks for one.
func (s *Server) http() *http.Server {
	return &http.Server{
		Handler:     s,
		BaseContext: func(net.Listener) context.Context { return s.life },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return s.crowd.admit(withPeer(ctx, conn), conn)
		},
		ConnState:         s.crowd.watch,
		ReadHeaderTimeout: s.o.Times.Header,
		IdleTimeout:       s.o.Times.Idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
	}
}

// close ends connections: idle ones at once, others when they have their answer or the grace is over.
func (f *Front) close(srv *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Times.Grace)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		f.o.Log.Warn("the HTTP door did not close cleanly", "error", err)
	}
	_ = srv.Close()
}
