package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"toolpost/engine/member"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// maxPayload is the largest message that a server of the fleet carries; streams cut theirs at chunk.
const maxPayload = 1 << 20

// joinWithin is how long a connection may take to join.
const joinWithin = 20 * time.Second

// What strangers can take up: connections, those among them that ask to join within joinWithin, and bytes of a request.
const (
	mostConnections = 4096
	mostJoining     = 1024
	maxJoining      = 4 << 10
)

// The accounts of a server. That of the system says when a connection ends.
const (
	accountFleet  = "fleet"
	accountSystem = "system"
)

// A natsServer is the NATS server of a hub. Members prove their nkeys; every other connection can only ask to join, which takes a
// token. The server lets a node publish and read its own subjects alone. It keeps nothing.
type natsServer struct {
	srv   *server.Server
	own   string // the password of this program
	port  string // that it listens on; the server forgets it when it ends
	known func(key string) (member.Member, bool)
	log   *slog.Logger

	mu    sync.Mutex
	conns map[uint64]string // the members of connections, by the ids of these
	joins int               // connections of the last joinWithin that ask to join
}

// startServer listens on an address such as :7422.
func startServer(listen string, certificate tls.Certificate, known func(string) (member.Member, bool), log *slog.Logger) (*natsServer, error) {
	host, port, err := net.SplitHostPort(listen)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.listen is %q; write HOST:PORT or :PORT, such as %s", listen, DefaultListen)
	}
	s := &natsServer{own: rand.Text(), known: known, log: log, conns: map[uint64]string{}}
	o := &server.Options{
		ServerName: "toolpost-" + rand.Text(), Host: host, Port: int(n), NoSigs: true, NoLog: true, MaxPayload: maxPayload,
		MaxPending: 256 << 20, AlwaysEnableNonce: true, CustomClientAuthentication: s,
		TLS: true, TLSTimeout: 10, TLSHandshakeFirst: true, AuthTimeout: 10,
		TLSConfig:    &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}},
		PingInterval: 30 * time.Second, MaxPingsOut: 2, // a node that is cut off is noticed by its silence
		WriteDeadline: 5 * time.Second, MaxConn: mostConnections, MaxSubs: 16, // of one connection
	}
	if n == 0 {
		o.Port = server.RANDOM_PORT
	}
	if err := o.ProcessConfigString(fmt.Sprintf("accounts: {%s: {}, %s: {}}, system_account: %s", accountFleet, accountSystem, accountSystem)); err != nil {
		return nil, err
	}
	if s.srv, err = server.NewServer(o); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the fleet's server cannot be started: %w", err)
	}
	return s, s.start(listen)
}

// errTaken means that another program listens on the port.
var errTaken = errors.New("the port is taken")

// withoutPort returns the address with any free port.
func withoutPort(listen string) string {
	host, _, _ := net.SplitHostPort(listen)
	return net.JoinHostPort(host, "0")
}

// start waits until the server listens.
func (s *natsServer) start(listen string) (err error) {
	fatal := &lastWords{log: s.log}
	s.srv.SetLoggerV2(fatal, false, false, false)
	s.srv.Start()
	for end := time.Now().Add(10 * time.Second); fatal.last() == "" && time.Now().Before(end); {
		if s.srv.ReadyForConnections(20 * time.Millisecond) {
			_, s.port, err = net.SplitHostPort(s.srv.Addr().String())
			return err
		}
	}
	s.srv.Shutdown()
	if strings.Contains(fatal.last(), "address already in use") {
		return errTaken
	}
	return tool.Errorf(tool.CodeUnavailable, "the fleet's server cannot listen on %s: %s", listen, cmp.Or(fatal.last(), "it was not ready in time"))
}

// dial connects this program, without a socket.
func (s *natsServer) dial(account string, more ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append(more, nats.InProcessServer(s.srv), nats.UserInfo(account, s.own))...)
}

func (s *natsServer) close() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// Check implements server.Authentication.
func (s *natsServer) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	switch {
	case given.Password != "" && subtle.ConstantTimeCompare([]byte(given.Password), []byte(s.own)) == 1:
		return s.register(c, given.Username, "hub", nil)
	case given.Nkey != "":
		m, ok := s.known(given.Nkey)
		if !ok || !proven(given.Nkey, given.Sig, c.GetNonce()) {
			s.log.Warn("a node was refused: it is no member of this fleet, or was evicted", "from", fmt.Sprint(c.RemoteAddress()))
			return false
		}
		s.admit(c.GetID(), m)
		if _, ok := s.known(given.Nkey); !ok { // it was evicted meanwhile, and not cut
			return false
		}
		return s.register(c, accountFleet, m.ID, nodeRights(m.ID))
	case given.Username == joinUser:
		return s.admitJoin(c.GetID()) && s.register(c, accountFleet, joinUser, only(subjectJoin, subjectJoined+strconv.FormatUint(c.GetID(), 10)))
	}
	return false
}

// admit notes the connection of a member. A member has one: an earlier one is of a program that ended without a word, or of a thief.
func (s *natsServer) admit(cid uint64, m member.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, of := range s.conns {
		if of == m.ID {
			s.log.Warn("a node has connected again, so its earlier connection is cut; if this repeats, its key was copied: evict it", "node", m.Name)
			delete(s.conns, other)
			go func() { _ = s.srv.DisconnectClientByID(other) }()
		}
	}
	s.conns[cid] = m.ID
}

// admitJoin lets a connection ask to join, for a while.
func (s *natsServer) admitJoin(cid uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joins >= mostJoining {
		return false
	}
	s.joins++
	time.AfterFunc(joinWithin, func() {
		s.mu.Lock()
		s.joins--
		s.mu.Unlock()
		_ = s.srv.DisconnectClientByID(cid)
	})
	return true
}

// joinUser is the name under which a node connects that is no member yet.
const joinUser = "join"

func (s *natsServer) register(c server.ClientAuthentication, account, name string, p *server.Permissions) bool {
	a, err := s.srv.LookupAccount(account)
	if err != nil {
		s.log.Error("the fleet's server has lost an account", "error", err)
		return false
	}
	c.RegisterUser(&server.User{Username: name, Account: a, Permissions: p})
	return true
}

// proven reports whether a client signed the nonce with a key.
func proven(key, signature string, nonce []byte) bool {
	sig, err := base64.RawURLEncoding.DecodeString(signature)
	return err == nil && proves(key, sig, nonce)
}

// proves reports whether a signature is that of a key.
func proves(key string, signature, of []byte) bool {
	pair, err := nkeys.FromPublicKey(key)
	return err == nil && pair.Verify(of, signature) == nil
}

// only lets a connection publish to one subject, and read another.
func only(publish, subscribe string) *server.Permissions {
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{publish}},
		Subscribe: &server.SubjectPermission{Allow: []string{subscribe}},
	}
}

// nodeRights are the subjects of a node.
func nodeRights(id string) *server.Permissions {
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{subjectUp + id, subjectStreams + "*." + id + ".*"}},
		Subscribe: &server.SubjectPermission{Allow: []string{subjectNode + id, subjectHubs}},
	}
}

// disconnected calls gone with the id of each member whose connection ends.
func (s *natsServer) disconnected(nc *nats.Conn, gone func(id string)) error {
	_, err := nc.Subscribe("$SYS.ACCOUNT."+accountFleet+".DISCONNECT", func(m *nats.Msg) {
		var said struct {
			Client struct {
				ID uint64 `json:"id"`
			} `json:"client"`
		}
		if strictjson.Unmarshal(m.Data, &said) != nil {
			return
		}
		s.mu.Lock()
		id := s.conns[said.Client.ID]
		delete(s.conns, said.Client.ID)
		s.mu.Unlock()
		if id != "" {
			gone(id)
		}
	})
	return err
}

// keep cuts the connections of all but some members, and returns whose they were.
func (s *natsServer) keep(members map[string]bool) (cut []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cid, of := range s.conns {
		if !members[of] {
			cut = append(cut, of)
			delete(s.conns, cid)
			go func() { _ = s.srv.DisconnectClientByID(cid) }()
		}
	}
	return cut
}

// lastWords receives the server's log. Unlike the server's own logger it never ends the process.
type lastWords struct {
	log  *slog.Logger
	said atomic.Value // the text of the last fatal error
}

func (l *lastWords) last() string {
	text, _ := l.said.Load().(string)
	return text
}

func (l *lastWords) write(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "fleet: "+fmt.Sprintf(format, v...))
	}
}

// Noticef implements server.Logger. The server's notices are details to us.
func (l *lastWords) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l *lastWords) Warnf(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Errorf implements server.Logger. Errors of connections are not ours.
func (l *lastWords) Errorf(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Debugf implements server.Logger.
func (l *lastWords) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *lastWords) Tracef(string, ...any) {}

// Fatalf implements server.Logger.
func (l *lastWords) Fatalf(format string, v ...any) {
	l.said.Store(fmt.Sprintf(format, v...))
	l.write(slog.LevelError, format, v)
}
