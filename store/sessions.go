// Package store keeps what outlives a call: its record, the state of its session, leases, outcomes and assets. A
// DB keeps them in a SQL database that several programs may share; packages sqlite and postgres open one. What is
// kept without a database, in memory and in a folder, is kept for this program, or this installation, alone.
package store

import (
	"context"
	"encoding/json"
	"sync"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The bounds of what sessions may keep in memory.
const (
	MaxSessions  = 10_000
	MaxStateSize = 4 << 20 // bytes of JSON of one session
)

// Sessions keeps the state documents of sessions in memory. The zero value is ready to use.
type Sessions struct {
	mu     sync.Mutex
	states map[sessionKey]map[string]any
}

type sessionKey struct{ caller, session string }

// Patch merges the patches into the session's state, in order and all at once.
func (s *Sessions) Patch(_ context.Context, caller, session string, patches []map[string]any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sessionKey{caller, session}
	state, known := s.states[key]
	if !known && len(s.states) >= MaxSessions {
		return tool.Errorf(tool.CodeQuotaExceeded, "there are %d sessions already, the most this server keeps", MaxSessions)
	}
	for _, p := range patches {
		state = strictjson.Merge(state, p)
	}
	if b, err := strictjson.Marshal(state); err != nil {
		return err
	} else if len(b) > MaxStateSize {
		return tool.Errorf(tool.CodeQuotaExceeded, "it would be %d bytes long, and %d is the most", len(b), MaxStateSize)
	}
	if s.states == nil {
		s.states = map[sessionKey]map[string]any{}
	}
	s.states[key] = state
	return nil
}

// State gives the session's state document; a session that nobody has patched is {}.
func (s *Sessions) State(_ context.Context, caller, session string) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[sessionKey{caller, session}]
	if state == nil {
		return json.RawMessage(`{}`), nil
	}
	return strictjson.Marshal(state)
}
