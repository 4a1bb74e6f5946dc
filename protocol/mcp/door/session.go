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
	id           string
	owner        string // the caller's id
	version      string
	capabilities json.RawMessage
	inFlight     mcp.InFlight
	subscription *subscription // for resources that the client subscribed to

	conn *jsonrpc.Conn // for our requests

	mu    sync.Mutex
	level string // the lowest level that the client wants to be sent
	used  time.Time
}

func (s *session) logLevel() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
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
	sub, _ := newSubscription()
	one := &session{
		owner: r.caller.ID, version: version, capabilities: slices.Clone(params.Capabilities), level: "info",
		conn: newConn(), subscription: sub,
	}
	w := strictjson.NewWriter(500)
	w.Text("protocolVersion", version)
	own := s.introduce(ctx, r.caller, false, false)
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

	maxSessions = 10_000 // of all callers
	maxOwned    = 1_000  // of one
	sessionIdle = time.Hour
)

// sessions holds those of legacy clients over HTTP.
type sessions struct {
	mu        sync.Mutex
	all       map[string]*session
	perCaller identity.PerCaller[int]
}

func newSessions() *sessions {
	return &sessions{all: map[string]*session{}, perCaller: identity.PerCaller[int]{}}
}

var errSessions = errors.New("too many sessions are open: end some with DELETE, or wait")

// add registers a session.
func (s *sessions) add(one *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxSessions || s.perCaller[one.owner] >= maxOwned {
		s.sweep()
	}
	if len(s.all) >= maxSessions || s.perCaller[one.owner] >= maxOwned {
		return errSessions
	}
	one.id, one.used = rand.Text(), time.Now()
	s.all[one.id] = one
	s.perCaller.Add(one.owner, 1)
	return nil
}

// find returns a session to its owner, and nil to any other caller.
func (s *sessions) find(p tool.Principal, id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[id]
	if one == nil || one.owner != p.ID {
		return nil
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.used = time.Now()
	return one
}

func (s *sessions) remove(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(one)
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
