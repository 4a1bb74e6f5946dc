package singularity

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

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
	embedded *embedded
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
	s.embedded = &embedded{log: o.Log, fatal: make(chan string, 1)}
	s.srv.SetLoggerV2(s.embedded, false, false, false)
	if err := s.start(o.Listen); err != nil {
		s.Close()
		return nil, err
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
	host, port, err := net.SplitHostPort(o.Listen)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n < 0 || n > 65535 {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"%q is not an address to listen on: write it like 127.0.0.1:4222", o.Listen)
	}
	if o.Anonymous.Name != "" {
		if host, err = o.private(host); err != nil {
			return nil, err
		}
	}
	opts.Host, opts.Port = host, n
	if n == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if ip := net.ParseIP(host); o.TLS == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
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

func (s *Server) start(listen string) error {
	const within = 10 * time.Second
	s.srv.Start()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		if s.srv.ReadyForConnections(50 * time.Millisecond) {
			return nil
		}
		select {
		case why := <-s.embedded.fatal:
			return tool.Errorf(tool.CodeUnavailable,
				"NATS cannot be served on %s: %s; choose another address, or stop what uses this one", listen, why)
		default:
		}
	}
	return tool.Errorf(tool.CodeUnavailable, "the NATS server on %s was not ready after %v", listen, within)
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
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// embedded receives the server's log. Unlike the server's own logger it never ends the process.
type embedded struct {
	log   *slog.Logger
	fatal chan string // the first reason why the server cannot go on
}

func (e *embedded) say(level slog.Level, format string, v []any) {
	if e.log.Enabled(context.Background(), level) {
		e.log.Log(context.Background(), level, "nats: "+fmt.Sprintf(format, v...))
	}
}

// Noticef implements server.Logger. The server's notices are details to us.
func (e *embedded) Noticef(format string, v ...any) { e.say(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (e *embedded) Warnf(format string, v ...any) { e.say(slog.LevelWarn, format, v) }

// Errorf implements server.Logger.
func (e *embedded) Errorf(format string, v ...any) { e.say(slog.LevelError, format, v) }

// Debugf implements server.Logger.
func (e *embedded) Debugf(format string, v ...any) { e.say(slog.LevelDebug, format, v) }

// Tracef implements server.Logger.
func (e *embedded) Tracef(format string, v ...any) { e.say(slog.LevelDebug, format, v) }

// Fatalf implements server.Logger.
func (e *embedded) Fatalf(format string, v ...any) {
	e.say(slog.LevelError, format, v)
	select {
	case e.fatal <- fmt.Sprintf(format, v...):
	default:
	}
}
