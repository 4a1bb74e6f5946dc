package singularity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"toolpost/identity"
	"toolpost/tool"
)

// ServerOptions are those of the embedded NATS server. Only Gate must be given, and that only where it listens.
type ServerOptions struct {
	Listen  string        // address such as 127.0.0.1:4222, port 0 for any; "": none, for this process alone
	Gate    identity.Gate // who may connect: the token, or a user's password
	TLS     *tls.Config   // nil: none
	MaxConn int           // connections; 0: 1024
	Log     *slog.Logger  // nil: silence
}

// maxPayload is the largest message that the embedded server carries.
const maxPayload = 8 << 20

// A Server is a NATS server in this process. It keeps nothing: there is no JetStream, so no stream can cover
// our subjects and answer in our place. Nobody connects without a token, this process's own door included.
type Server struct {
	srv      *server.Server
	own      string // the token of this process
	embedded *embedded
}

// StartServer starts a server and waits until it takes connections.
func StartServer(o ServerOptions) (*Server, error) {
	if o.Listen != "" && o.Gate == nil {
		return nil, tool.Errorf(tool.CodeInternal, "the NATS server does not know who may come in: give it a Gate")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxConn == 0 {
		o.MaxConn = 1024
	}
	s := &Server{own: rand.Text() + rand.Text()}
	opts, err := o.nats()
	if err != nil {
		return nil, err
	}
	opts.CustomClientAuthentication = &doorkeeper{own: s.own, gate: o.Gate, log: o.Log}
	if s.srv, err = server.NewServer(opts); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the NATS server cannot be started: %w", err)
	}
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
		MaxConn:         o.MaxConn,
		TLSConfig:       o.TLS,
		TLS:             o.TLS != nil,
		TLSTimeout:      connectWithin.Seconds(),
		AuthTimeout:     connectWithin.Seconds(),
		DontListen:      o.Listen == "",
	}
	if o.Listen == "" {
		return opts, nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n < 0 || n > 65535 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%q is no address to listen on: write it like 127.0.0.1:4222", o.Listen)
	}
	opts.Host, opts.Port = host, n
	if n == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if ip := net.ParseIP(host); o.TLS == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		o.Log.Warn("NATS listens beyond this machine without TLS: tokens and calls can be read on the way", "listen", o.Listen)
	}
	return opts, nil
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
			return tool.Errorf(tool.CodeUnavailable, "NATS cannot be served on %s: %s; choose another address, or stop what uses this one", listen, why)
		default:
		}
	}
	return tool.Errorf(tool.CodeUnavailable, "the NATS server on %s was not ready after %v", listen, within)
}

// ClientURL is the address for clients; empty where the server does not listen.
func (s *Server) ClientURL() string {
	if s.srv.Addr() == nil {
		return ""
	}
	return s.srv.ClientURL()
}

// connection gives what connects this process, without a socket.
func (s *Server) connection() []nats.Option {
	return []nats.Option{nats.InProcessServer(s.srv), nats.Token(s.own)}
}

// Close ends the server and every connection to it.
func (s *Server) Close() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// A doorkeeper decides who may connect.
type doorkeeper struct {
	own  string
	gate identity.Gate
	log  *slog.Logger
}

// Check implements server.Authentication.
func (d *doorkeeper) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	token := given.Token
	if token == "" {
		token = given.Password
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(d.own)) == 1 {
		return true
	}
	if d.gate == nil || token == "" {
		return false
	}
	p, err := d.gate(context.Background(), identity.Credentials{Door: "nats", Token: token})
	if err != nil {
		d.log.Warn("NATS refused a connection", "from", fmt.Sprint(c.RemoteAddress()), "reason", tool.AsError(err).Message)
		return false
	}
	c.RegisterUser(&server.User{Username: p.ID, Permissions: callersMay()})
	return true
}

// callersMay lets a caller send requests and read answers, and neither read the requests of others nor answer
// in our place.
func callersMay() *server.Permissions {
	return &server.Permissions{
		Subscribe: &server.SubjectPermission{Deny: []string{prefixTools + ">", prefixToolpost + ">", "$SRV.>"}},
	}
}

// embedded takes what the server logs. It never ends the process, as the server's own logger would.
type embedded struct {
	log   *slog.Logger
	fatal chan string // the first reason why the server cannot go on
}

func (e *embedded) say(level slog.Level, format string, v []any) {
	if e.log.Enabled(context.Background(), level) {
		e.log.Log(context.Background(), level, "nats: "+fmt.Sprintf(format, v...))
	}
}

// Noticef implements server.Logger; what the server notices is a detail to us.
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
