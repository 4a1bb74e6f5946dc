// Package web is the one HTTP front. It owns an address: how to listen and speak there (TCP, a Unix socket, TLS), which
// hosts and origins are served, who calls, how much a peer may send and how long it may take, the calls that run there,
// and how all of it is shut down. Doors mount their routes on a front and know nothing of this, so a new door cannot be
// a weaker one; and several of them can share an address.
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

	"toolpost/engine/calls"
	"toolpost/identity"
	"toolpost/tool"
)

// Options of a front. Only Gate is required.
type Options struct {
	Listen  string            // address, or unix:PATH; default DefaultListen
	Sockets *Sockets          // of all fronts of this program; nil means that each listens by itself
	Mode    fs.FileMode       // of the Unix socket; default 0600
	TLS     TLSFiles          // zero means no TLS
	Gate    identity.Gate     // decides which callers are admitted
	Hosts   []string          // Host headers accepted beside the listen address and localhost, with or without a port
	Origins []string          // origins of browser pages accepted beside our own, such as https://example.org
	MaxBody int64             // maximum size of a request in bytes; default 8 MiB
	Bounds  identity.Bounds   // connections at the same time; by default derived from this process's descriptors
	Times   Times             // of every wait on a peer
	Calls   *calls.Log        // the running calls, so that they can be cancelled by id; nil means those of this front alone
	Drain   time.Duration     // how long calls in flight may go on after the end; default 10 s
	Log     *slog.Logger      // nil disables logging
	Ready   func(addr string) // called once, with the real address, when connections are accepted
}

// ConsoleHeader is required of a change that comes with a cookie of the console. A form cannot send it, and a script of
// another origin needs permission for it first, which it does not get.
const ConsoleHeader = "Toolpost-Console"

// DefaultListen is the default address of a front.
const DefaultListen = "127.0.0.1:8700"

// Times bounds every wait on a peer. A zero value means the default.
type Times struct {
	Header time.Duration // until the whole header has arrived; 10 s
	Body   time.Duration // until the whole body has arrived; 30 s
	Write  time.Duration // until the peer takes what we write; meanwhile a slow one is back-pressure; 1 min
	Idle   time.Duration // between two requests of a connection; 2 min
	Grace  time.Duration // for cancelled calls to be answered, and for other requests, at the end; 2 s
}

// maxHeader is the limit of net/http on all headers of a request together.
const maxHeader = 64 << 10

// A Door is one protocol at an address. Its zero values are useful except for Name and Routes.
type Door struct {
	Name   string // identifies the door: Principal.Door of its callers
	Routes func(s *Server, h tool.Handler, c tool.Catalog) []Route
	Hint   string  // where to look instead, for a request to an unknown path
	Offers []Offer // shown to people who open the address in a browser
	// Refusals are in the protocol's own form; nil means problem documents.
	Refusals Refuser
	// Basic is set if a token may also be the password of Basic, for clients that do not support bearer tokens.
	Basic bool
	// Keys is another header that may contain a bare token, for clients that use their own; "" if there is none.
	Keys string
	// Accepts and Exposes list the headers that pages of allowed origins may send, and those of answers that they may
	// read, beside the usual ones.
	Accepts, Exposes []string
	Anonymous        identity.Anonymous // the caller of requests without credentials; zero admits none
	// Session returns the proof of a signed-in caller that shows a cookie in place of a token, or "" if there is no
	// cookie, or an error if the cookie is not valid for this request. If it is nil, cookies are ignored.
	Session func(*http.Request) (proof string, err error)
	URL     string // the address by which clients know the door, if it is not the one that reaches us; for proofs of possession
	// Challenge returns parameters of Bearer and DPoP for a refused client, such as the address of more about tokens:
	// `, name="value"`. It may be nil.
	Challenge func(*http.Request) string
}

// A Refuser formats a refusal for its protocol. It is used for everything that the front refuses before the door is
// involved: another host, a foreign page, a stranger, a method that does not exist.
type Refuser func(e *tool.Error) (body []byte) // JSON

// A Route is one endpoint of a door.
type Route struct {
	Method string // "" means any
	Path   string // with {parameters}, as http.ServeMux reads it
	Open   bool   // every client is answered, without a caller
	// Optional is set if a client without a token is answered too, without a caller; a token must be valid, unless Open is
	// set as well.
	Optional bool
	// Lasts reports whether a POST asks for a stream that ends when its caller is no longer admitted; nil if none does.
	Lasts func(*http.Request, tool.Principal) bool
	Serve func(w http.ResponseWriter, r *http.Request, p tool.Principal)
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
	orElse(&o.Calls, calls.New(calls.Env{}))
	orElse(&o.Bounds, identity.DefaultBounds())
	if o.Sockets != nil {
		o.Sockets.due++
	}
	return &Front{o, doors}
}

// orElse sets an omitted option to its default.
func orElse[T comparable](option *T, usual T) {
	if *option == *new(T) {
		*option = usual
	}
}

// Serve takes calls until ctx ends. Then it refuses new ones, 503, and says when to try again; calls in flight have
// Options.Drain to end, then they are cancelled and answered. If another program listens on the same socket, new
// connections are left to that one.
func (f *Front) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	if f.o.Gate == nil {
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
	case !f.o.Sockets.complete(ctx):
		return ln.Close()
	}
	s := newServer(f.o, f.doors, ln.Addr(), h, c)
	socket := ln
	if certs != nil {
		s.certs, ln = certs, tls.NewListener(ln, certs.config())
	}
	srv := s.http()
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	if f.o.Ready != nil {
		f.o.Ready(ln.Addr().String())
	}
	select {
	case <-ctx.Done():
		outlived, served := f.o.Sockets.outlives(socket)
		s.leave(outlived, served, func() { _ = ln.Close(); <-ended })
	case err = <-ended:
		s.finish()
		err = tool.Errorf(tool.CodeUnavailable, "the HTTP door can take no more connections: %w", err)
	}
	f.close(srv)
	s.crowd.sending.Wait()
	return err
}

// http makes the server of the standard library. There is no other: a test of package house looks for one.
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

// close ends connections: idle ones at once, others when they have been answered or the grace is over.
func (f *Front) close(srv *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Times.Grace)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		f.o.Log.Warn("the HTTP door did not close cleanly", "error", err)
	}
	_ = srv.Close()
}
