package singularity

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"toolpost/host/broker"
	"toolpost/identity"
	"toolpost/tool"
)

// ServerOptions are those of the embedded NATS server. Only Gate is required, and only if the server listens.
type ServerOptions struct {
	Listen string        // address such as 127.0.0.1:4222, port 0 for any; if empty the server is for this process alone
	Gate   identity.Gate // admits clients: by a token, which may be a user's password, or by a certificate
	TLS    *tls.Config   // nil means no TLS
	// Bounds limits the connections at the same time; the default follows from this process's descriptors.
	Bounds  identity.Bounds
	Callers int          // accounts of callers at the same time; default 1024, or the number of connections if that is less
	Log     *slog.Logger // nil discards

	Anonymous identity.Anonymous // the caller for clients without credentials; the zero value admits none

	again time.Duration // how often connected clients are checked; default recheckEvery
	idle  time.Duration // how long an account is kept after its last connection; default 30 s
	rest  time.Duration // how long before its NATS account can go to another caller; default 10 s
}

// maxPayload is the largest message that the embedded server carries.
const maxPayload = 8 << 20

// A Server is a NATS server in this process. It stores nothing: there is no JetStream, so no stream can cover our subjects
// and answer in our place. No client connects without credentials, this process's own door included, unless the options name
// an anonymous caller. Every caller has a NATS account of its own, in which it sees nothing of the others.
type Server struct {
	*doorkeeper
	stop     context.CancelFunc
	watching sync.WaitGroup
}

// StartServer starts a server and waits until it takes connections.
func StartServer(o ServerOptions) (*Server, error) {
	if o.Listen != "" && o.Gate == nil {
		return nil, tool.Errorf(tool.CodeInternal, "the NATS server cannot authenticate anyone: give it a Gate")
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Bounds == (identity.Bounds{}) {
		o.Bounds = identity.DefaultBounds()
	}
	o.Callers = cmp.Or(o.Callers, min(1024, o.Bounds.All))
	o.again = cmp.Or(o.again, recheckEvery)
	o.idle, o.rest = cmp.Or(o.idle, 30*time.Second), cmp.Or(o.rest, 10*time.Second)
	s := &Server{doorkeeper: newDoorkeeper(o)}
	opts, err := o.nats()
	if err != nil {
		return nil, err
	}
	opts.CustomClientAuthentication = s
	if s.srv, err = server.NewServer(opts); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the NATS server cannot be started: %w", err)
	}
	if s.full, err = s.srv.LookupAccount(fullAccount); err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "the NATS server has not taken its accounts: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.watching.Go(func() { s.watch(ctx, o.again) })
	if err := broker.Start(s.srv, o.Log, "nats", false); err != nil {
		s.Close()
		return nil, tool.Errorf(tool.CodeUnavailable,
			"NATS cannot be served on %s: %w; choose another address, or stop what uses this one", o.Listen, err)
	}
	return s, nil
}

func (o ServerOptions) nats() (*server.Options, error) {
	opts := &server.Options{
		ServerName:      "toolpost",
		NoSigs:          true,
		NoSystemAccount: true,
		MaxPayload:      maxPayload,
		MaxControlLine:  20 << 10, // a token may be a JWT with many claims
		// a door has a desk in each account, without a descriptor; the next may come before the last has gone
		MaxConn:     o.Bounds.All + 2*(o.Callers+1),
		TLSConfig:   o.TLS,
		TLS:         o.TLS != nil,
		TLSTimeout:  connectWithin.Seconds(),
		AuthTimeout: connectWithin.Seconds(),
		DontListen:  o.Listen == "",
	}
	_ = opts.ProcessConfigString(`accounts: {` + fullAccount + `: {limits: {max_connections: 0}}}`) // it is looked up later
	if o.Listen == "" {
		return opts, nil
	}
	err := broker.Listen(opts, o.Listen)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"%q is not an address to listen on: write it like 127.0.0.1:4222", o.Listen)
	}
	if o.Anonymous.Name != "" {
		if opts.Host, err = o.private(opts.Host); err != nil {
			return nil, err
		}
	}
	if ip := net.ParseIP(opts.Host); o.TLS == nil && opts.Host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		o.Log.Warn("NATS listens beyond this machine without TLS: tokens and calls can be read on the way",
			"listen", o.Listen)
	}
	return opts, nil
}

// private returns the address of a host, if anonymous callers may connect there. It is resolved here and not when the server
// listens, so that from the first connection on the server listens on the address that was checked.
func (o ServerOptions) private(host string) (string, error) {
	addr, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "the NATS server cannot listen on %s: %w", o.Listen, err)
	}
	if err := o.Anonymous.CheckOn(addr); err != nil || addr.IP == nil { // a nil IP means every address
		return host, err
	}
	return addr.IP.String(), nil
}

// ClientURL returns the address for clients, or "" if the server does not listen.
func (s *Server) ClientURL() string {
	if s.srv.Addr() == nil {
		return ""
	}
	return s.srv.ClientURL()
}

// Close ends the server and every connection to it.
func (s *Server) Close() {
	s.stop()
	s.watching.Wait()
	broker.Stop(s.srv)
}
