package idempotency

import (
	"container/list"
	"sync"
	"time"

	"toolpost/tool"
)

// A memory keeps outcomes for a while. Calls that are still running are in it too, and are not counted.
type memory struct {
	ttl           time.Duration
	max, maxBytes int

	mu      sync.Mutex
	entries map[digest]*entry
	recent  list.List // entries with an outcome, the most recently used first
	bytes   int       // of their outputs
}

// An entry is one call that has a key.
type entry struct {
	scope, input digest
	settled      chan struct{} // closed when the call is over
	result       *tool.Result  // nil: it came to nothing
	expires      time.Time
	place        *list.Element // nil: still running
}

// claim returns the entry of a scope. Where there is none, it makes one that is the caller's to settle.
func (m *memory) claim(scope, input digest) (e *entry, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[scope]; e != nil {
		if e.place == nil {
			return e, false
		}
		if time.Now().Before(e.expires) {
			m.recent.MoveToFront(e.place)
			return e, false
		}
		m.forget(e)
	}
	e = &entry{scope: scope, input: input, settled: make(chan struct{})}
	m.entries[scope] = e
	return e, true
}

// settle ends a claim: with an outcome to remember, or with nil.
func (m *memory) settle(e *entry, r *tool.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(e.settled)
	if r == nil {
		delete(m.entries, e.scope)
		return
	}
	e.result, e.expires = r, time.Now().Add(m.ttl)
	e.place = m.recent.PushFront(e)
	m.bytes += len(r.Output)
	for m.recent.Len() > m.max || m.bytes > m.maxBytes && m.recent.Len() > 1 {
		m.forget(m.recent.Back().Value.(*entry))
	}
}

func (m *memory) forget(e *entry) {
	m.recent.Remove(e.place)
	m.bytes -= len(e.result.Output)
	delete(m.entries, e.scope)
}
