package door

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/identity"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A session is what a legacy client declared with initialize, and the questions that we asked it since.
type session struct {
	declared
	id           string
	owner        string // the caller's id
	inFlight     mcp.InFlight
	subscription *subscription // for resources that the client subscribed to

	conn *jsonrpc.Conn // for our requests

	mu    sync.Mutex
	level string // see logLevel
	used  time.Time
}

// declared is the part of a session that its id contains, sealed: so every program with the same key can serve the client.
type declared struct {
	Version      string          `json:"version"`
	Capabilities json.RawMessage `json:"capabilities,omitzero"`
	Made         int64           `json:"made"` // in Unix seconds
}

func newSession(owner string, d declared) *session {
	sub, _ := newSubscription()
	return &session{declared: d, owner: owner, level: "info", conn: newConn(), subscription: sub}
}

// logLevel returns the lowest level that the client wants to be sent, or "" if it wants none.
func (r *request) logLevel() string {
	if r.session == nil {
		return r.meta.logLevel
	}
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	return r.session.level
}

// ask sends a request of ours with send, and waits for its answer. If ctx ends first, the client is told that it is
// cancelled.
func (s *session) ask(
	ctx context.Context, method string, params []byte, send func([]byte) error,
) (json.RawMessage, error) {
	var id uint64
	raw, err := s.conn.Put(ctx, jsonrpc.Query{
		Method: method, Params: func(uint64) []byte { return params },
		Send: func(_ context.Context, asked uint64, line []byte) error {
			id = asked
			return send(line)
		},
	})
	if errors.Is(err, jsonrpc.ErrAbandoned) {
		_ = send(jsonrpc.EncodeNotification(mcp.NoteCancelled, fmt.Appendf(nil, `{"requestId":%d}`, id)))
		err = context.Cause(ctx)
	}
	return raw, err
}

// take hands an answer to the question that waits for it. A late answer is dropped.
func (s *session) take(text []byte) {
	var scan strictjson.Scanner
	_ = s.conn.Hear(&scan, text, 0) // only requests can cause an error
}

// newConn returns a connection for our questions to a client. It ignores the client's requests and malformed messages.
func newConn() *jsonrpc.Conn {
	return jsonrpc.NewConn(jsonrpc.Options{
		Lenient: true, Take: func(*jsonrpc.Incoming) error { return nil }, Unusable: func(*jsonrpc.Message, []byte, error) {},
	})
}

// initialize reads a legacy client's introduction, and answers it. The version is the client's if we speak it,
// otherwise our newest of that era: then the client decides whether to stay.
func (s *server) initialize(ctx context.Context, r *request) (*session, *strictjson.Writer, *jsonrpc.Error) {
	var params struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
	}
	if bad := r.read(&params); bad != nil {
		return nil, nil, bad
	}
	if params.Version == "" {
		return nil, nil, mcp.Invalid("protocolVersion must be a string that is not empty")
	}
	if len(params.Capabilities) > maxCapabilities {
		return nil, nil, mcp.Invalid("capabilities have at most %d bytes", maxCapabilities)
	}
	version := params.Version
	if !slices.Contains(mcp.LegacyVersions(), version) {
		version = mcp.LegacyVersions()[0]
	}
	one := newSession(r.caller.ID, declared{version, slices.Clone(params.Capabilities), time.Now().Unix()})
	w := strictjson.NewWriter(500)
	w.Text("protocolVersion", version)
	r.session = one
	own := s.introduce(ctx, r.caller, false, r.supportsTasks() && s.runsTasks(ctx, r.caller))
	w.Raw("capabilities", own.Capabilities)
	w.Raw("serverInfo", own.Info)
	w.Text("instructions", own.instructions)
	return one, w, nil
}

// setLevel is logging/setLevel.
func (s *server) setLevel(_ context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	var params struct {
		Level string `json:"level"`
	}
	if bad := r.read(&params); bad != nil || !slices.Contains(mcp.Levels(), params.Level) {
		return nil, mcp.Invalid("level must be one of %s", strings.Join(mcp.Levels(), ", "))
	}
	if r.session != nil {
		r.session.mu.Lock()
		defer r.session.mu.Unlock()
		r.session.level = params.Level
	}
	return strictjson.NewWriter(0), nil
}

// Bounds on sessions. The session of a client that left without DELETE is kept, with its capabilities, until it has been
// idle for too long.
const (
	maxCapabilities = 16 << 10 // bytes of a client's capabilities
	maxSealed       = 2 << 10  // bytes of those that an id contains: it is a header of every request

	maxSessions = 10_000 // of all callers
	maxOwned    = 1_000  // of one
	sessionIdle = time.Hour
	sessionLife = 24 * time.Hour // how long other programs accept an id
)

// sessions holds those of legacy clients over HTTP.
type sessions struct {
	mu        sync.Mutex
	all       map[string]*session
	ended     map[string]time.Time // ids that clients ended here, until no program accepts them
	perCaller identity.PerCaller[int]
	seal      seal
}

func newSessions(seal seal) *sessions {
	return &sessions{
		all: map[string]*session{}, ended: map[string]time.Time{}, perCaller: identity.PerCaller[int]{}, seal: seal,
	}
}

var errSessions = errors.New("too many sessions are open: end some with DELETE, or wait")

// add registers a new session.
func (s *sessions) add(one *session) error {
	one.id = rand.Text()
	if len(one.Capabilities) <= maxSealed {
		if id, err := s.seal.text(one.declared, []byte(one.owner)); err == nil {
			one.id = id
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(one)
}

// put must be called with mu held.
func (s *sessions) put(one *session) error {
	if len(s.all) >= maxSessions || s.perCaller[one.owner] >= maxOwned {
		s.sweep()
	}
	if len(s.all) >= maxSessions || s.perCaller[one.owner] >= maxOwned {
		return errSessions
	}
	one.used = time.Now()
	s.all[one.id] = one
	s.perCaller.Add(one.owner, 1)
	return nil
}

// find returns a session to its owner, and nil to any other caller.
func (s *sessions) find(p tool.Principal, id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[id]
	if one == nil {
		one = s.moved(p, id)
	}
	if one == nil || one.owner != p.ID {
		return nil
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.used = time.Now()
	return one
}

// moved returns the session of a client that initialised itself at another program, or nil if the id is not one.
func (s *sessions) moved(p tool.Principal, id string) *session {
	var d declared
	if _, ended := s.ended[id]; ended || !s.seal.read(id, []byte(p.ID), &d) || time.Since(time.Unix(d.Made, 0)) > sessionLife {
		return nil
	}
	one := newSession(p.ID, d)
	if one.id = id; s.put(one) != nil {
		return nil
	}
	return one
}

// remove ends a session for its client.
func (s *sessions) remove(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(one)
	now := time.Now()
	for id, at := range s.ended {
		if len(s.ended) >= maxSessions || now.Sub(at) > sessionLife {
			delete(s.ended, id)
		}
	}
	s.ended[one.id] = now
}

// drop must be called with mu held.
func (s *sessions) drop(one *session) {
	if s.all[one.id] != one {
		return
	}
	delete(s.all, one.id)
	s.perCaller.Add(one.owner, -1)
}

// sweep ends the sessions that have been idle for too long.
func (s *sessions) sweep() {
	now := time.Now()
	for _, one := range s.all {
		one.mu.Lock()
		asked, _ := one.conn.Pending()
		idle := asked == 0 && now.Sub(one.used) > sessionIdle
		one.mu.Unlock()
		if idle {
			s.drop(one)
		}
	}
}
