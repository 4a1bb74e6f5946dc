package fleet

import (
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
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"toolpost/engine/member"
	"toolpost/fleet/roster"
	"toolpost/host/broker"
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
	known func(key string) (member.Member, error)
	log   *slog.Logger

	mu     sync.Mutex
	conns  map[uint64]string    // the members of connections, by the ids of these
	joins  int                  // connections of the last joinWithin that ask to join
	barred map[string]time.Time // when members were cut off that flooded the hub
	gone   func(id string)      // tells the hub that the connection of a member has ended; nil until there is one
}

// startServer listens on an address such as :7422.
func startServer(listen string, certificate getCertificate, known func(string) (member.Member, error), log *slog.Logger) (*natsServer, error) {
	s := &natsServer{own: rand.Text(), known: known, log: log, conns: map[uint64]string{}, barred: map[string]time.Time{}}
	o := &server.Options{
		ServerName: "toolpost-" + rand.Text(), NoSigs: true, NoLog: true, MaxPayload: maxPayload,
		MaxPending: 256 << 20, AlwaysEnableNonce: true, CustomClientAuthentication: s,
		TLS: true, TLSTimeout: 10, TLSHandshakeFirst: true, AuthTimeout: 10,
		TLSConfig:    &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate},
		PingInterval: 30 * time.Second, MaxPingsOut: 2, // a node that is cut off is noticed by its silence
		WriteDeadline: 5 * time.Second, MaxConn: mostConnections, MaxSubs: 16, // of one connection
	}
	if err := broker.Listen(o, listen); err != nil {
		return nil, err
	}
	if err := o.ProcessConfigString(fmt.Sprintf("accounts: {%s: {}, %s: {}}, system_account: %s", accountFleet, accountSystem, accountSystem)); err != nil {
		return nil, err
	}
	var err error
	if s.srv, err = server.NewServer(o); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the fleet's server cannot be started: %w", err)
	}
	if err = broker.Start(s.srv, log, "fleet", true); err == nil {
		_, s.port, err = net.SplitHostPort(s.srv.Addr().String())
		return s, err
	}
	s.srv.Shutdown()
	if strings.Contains(err.Error(), "address already in use") {
		return nil, errTaken
	}
	return nil, tool.Errorf(tool.CodeUnavailable, "the fleet's server cannot listen on %s: %w", listen, err)
}

// errTaken means that another program listens on the port.
var errTaken = errors.New("the port is taken")

// dial connects this program, without a socket.
func (s *natsServer) dial(account string, more ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append(more, nats.InProcessServer(s.srv), nats.UserInfo(account, s.own))...)
}

// Check implements server.Authentication.
func (s *natsServer) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	switch {
	case given.Password != "" && subtle.ConstantTimeCompare([]byte(given.Password), []byte(s.own)) == 1:
		return s.register(c, given.Username, "hub", nil)
	case given.Nkey != "":
		m, err := s.known(given.Nkey)
		if errors.Is(err, roster.ErrUnread) {
			return s.hangUp(c, err)
		}
		signature, bad := base64.RawURLEncoding.DecodeString(given.Sig)
		if err != nil || bad != nil || !proves(given.Nkey, signature, c.GetNonce()) {
			s.log.Warn("a node was refused: it is no member of this fleet, or was evicted", "from", fmt.Sprint(c.RemoteAddress()))
			return false
		}
		if err := s.admit(c.GetID(), m); err != nil {
			return s.hangUp(c, err)
		}
		if _, err := s.known(given.Nkey); err != nil { // it was evicted meanwhile, and not cut
			return false
		}
		return s.register(c, accountFleet, m.ID,
			only([]string{subjectUp + m.ID, subjectStreams + "*." + m.ID + ".*"}, []string{subjectNode + m.ID, subjectHubs}))
	case given.Username == joinUser:
		return s.admitJoin(c.GetID()) && s.register(c, accountFleet, joinUser,
			only([]string{subjectJoin}, []string{subjectJoined + strconv.FormatUint(c.GetID(), 10)}))
	}
	return false
}

// hangUp closes a connection that this hub cannot admit now. It refuses only those that it never will: the program of a node that is
// refused ends, and one whose connection ends tries again.
func (s *natsServer) hangUp(c server.ClientAuthentication, why error) bool {
	s.log.Warn("a node cannot be admitted now; it tries again", "from", fmt.Sprint(c.RemoteAddress()), "error", why)
	_ = s.srv.DisconnectClientByID(c.GetID())
	return false
}

// errBarred means that a member has flooded this hub a moment ago.
var errBarred = errors.New("it floods this hub")

// admit notes the connection of a member. A member has one: an earlier one is of a program that ended without a word, or of a thief.
func (s *natsServer) admit(cid uint64, m member.Member) error {
	s.mu.Lock()
	if time.Since(s.barred[m.ID]) < barFor {
		s.mu.Unlock()
		return errBarred
	}
	delete(s.barred, m.ID)
	var gone func(id string)
	for other, of := range s.conns {
		if of == m.ID {
			gone = s.gone
			s.log.Warn("a node has connected again, so its earlier connection is cut; if this repeats, its key was copied: evict it", "node", m.Name)
			delete(s.conns, other)
			go func() { _ = s.srv.DisconnectClientByID(other) }()
		}
	}
	s.conns[cid] = m.ID
	s.mu.Unlock()
	if gone != nil { // before it says a word: it may be the same program, which sends no outcome of calls of the earlier connection
		gone(m.ID)
	}
	return nil
}

// barFor is how long a member is not admitted that flooded the hub.
const barFor = 10 * time.Second

// bar cuts the connection of a member, and admits it no more for a while.
func (s *natsServer) bar(id string) {
	s.log.Warn("a node floods this hub with messages that belong to no call, so it is cut off for a while; evict it", "node", id, "for", barFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barred[id] = time.Now()
	for cid, of := range s.conns {
		if of == id {
			go func() { _ = s.srv.DisconnectClientByID(cid) }()
		}
	}
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

// proves reports whether a signature is that of a key.
func proves(key string, signature, of []byte) bool {
	pair, err := nkeys.FromPublicKey(key)
	return err == nil && pair.Verify(of, signature) == nil
}

// only lets a connection publish to some subjects, and read others.
func only(publish, subscribe []string) *server.Permissions {
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
	}
}

// disconnected calls gone with the id of each member whose connection ends, or who has another one.
func (s *natsServer) disconnected(nc *nats.Conn, gone func(id string)) error {
	s.mu.Lock()
	s.gone = gone
	s.mu.Unlock()
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
