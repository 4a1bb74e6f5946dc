// Package idempotency is the stage that repeats the outcome of a call without running it again: two calls of one caller
// with the same key are one call, as long as the first outcome is remembered.
package idempotency

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Settings is the section store.idempotency of a config.
type Settings struct {
	Window  time.Duration `yaml:"window" schema:"default=60s" doc:"how long an outcome is remembered"`
	Entries int           `yaml:"entries" schema:"default=1024" doc:"how many outcomes are remembered"`
	Durable bool          `yaml:"durable" doc:"remember outcomes across restarts and share them between programs that share the store; always so with PostgreSQL"`
}

// Options has useful zero values.
type Options struct {
	TTL      time.Duration // how long an outcome is remembered; 0 means 60 s
	Max      int           // outcomes remembered; 0 means 1,024. The least recently used is dropped first
	MaxBytes int           // bytes of output remembered; 0 means 64 MiB. The newest outcome always stays
	// Outcomes outlives this process and may be shared by several. If it is nil, outcomes are lost when the process
	// ends.
	Outcomes Outcomes
	// Late finds the outcome of a call that a machine of a fleet has lost sight of; it may be nil.
	Late Late
	// Digests makes the digests by which calls are remembered, the same in all processes that share Outcomes; nil means
	// a key that lasts as long as this process.
	Digests *secret.Keyed
}

// Hit is the detail of a trace that marks a replay.
const Hit = "idempotent_hit"

// Conflict is the reason of a refusal: the key belongs to a call with another input.
const Conflict = "idempotency_conflict"

// Calls remembers the results of calls that carried a key. A tool's own failure is a result; errors, such as a refusal or
// a crash, and questions are not remembered.
type Calls struct {
	memory  *memory
	durable *durable // nil means memory only
	digests *secret.Keyed
}

// New makes the memory of one engine.
func New(o Options) *Calls {
	ttl := cmp.Or(o.TTL, time.Minute)
	s := &Calls{
		memory: &memory{
			ttl: ttl, max: cmp.Or(o.Max, 1024), maxBytes: cmp.Or(o.MaxBytes, 64<<20), entries: map[digest]*entry{},
		},
		digests: cmp.Or(o.Digests, secret.NewKeyed(nil)),
	}
	if o.Outcomes != nil {
		s.durable = &durable{o.Outcomes, ttl, o.Late}
	}
	return s
}

// For is an engine.Stage, the same for every tool. It runs behind policy, so that a caller that may not call the tool
// never sees a replay, and before quota and leases, so that a replay is free.
func (s *Calls) For(*tool.Spec) tool.Middleware { return s.stage }

func (s *Calls) stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if c.Key == "" {
			return next.Invoke(ctx, c, out)
		}
		input, errInput := s.inputOf(c)
		scope, errScope := s.scopeOf(c)
		if err := cmp.Or(errInput, errScope); err != nil {
			return nil, err
		}
		for {
			e, mine := s.memory.claim(scope, input)
			if mine {
				return s.run(ctx, next, c, out, e)
			}
			r, err := wait(ctx, c, e, input)
			if r != nil || err != nil {
				return r, err
			}
			// The first call had no outcome: one of the waiting calls is the first now.
		}
	})
}

// run is the first call. However it ends, the calls that wait for it are released.
func (s *Calls) run(
	ctx context.Context, next tool.Handler, c *tool.Call, out tool.Sink, e *entry,
) (r *tool.Result, err error) {
	defer func() {
		kept := r
		if err != nil || r != nil && r.Ask != nil {
			kept = nil
		}
		s.memory.settle(e, kept)
	}()
	if s.durable != nil {
		return s.durable.run(ctx, next, c, out, e)
	}
	return next.Invoke(ctx, c, out)
}

// wait returns the outcome of the call that has the key, or neither result nor error if it had no outcome.
func wait(ctx context.Context, c *tool.Call, e *entry, input digest) (*tool.Result, error) {
	if e.input != input {
		return nil, conflict(c)
	}
	select {
	case <-e.settled:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if e.result == nil {
		return nil, nil
	}
	return replay(e.result), nil
}

func conflict(c *tool.Call) error {
	return tool.Errorf(tool.CodeConflict, "the idempotency key of this call of %s was used with another input; "+
		"use a new key for a new call", c.Tool).Because(Conflict)
}

// replay returns an outcome that is marked as a replay.
func replay(r *tool.Result) *tool.Result {
	again := *r
	again.Trace.Details = maps.Clone(again.Trace.Details)
	if again.Trace.Details == nil {
		again.Trace.Details = map[string]any{}
	}
	again.Trace.Details[Hit] = true
	return &again
}

// A digest identifies texts of any length.
type digest = [sha256.Size]byte

// scopeOf returns the scope of a key: different callers, sessions and tools never share one.
func (s *Calls) scopeOf(c *tool.Call) (digest, error) {
	which := tool.Ref{Name: c.Tool}
	if c.Spec != nil { // whatever alias the caller used
		which = c.Spec.Ref()
	}
	return s.digests.Sum("idempotency key",
		[]byte(c.Caller.ID), []byte(c.Session), []byte(which.Source), []byte(which.Name), []byte(c.Key))
}

// inputOf returns the same digest for equal inputs, whatever their layout. Numbers count as they are written:
// 9007199254740993 and its neighbour are two inputs, although a float64 cannot tell them apart.
func (s *Calls) inputOf(c *tool.Call) (digest, error) {
	args, err := plain(c.Args)
	if err != nil {
		return digest{}, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not JSON: %v", c.Tool, err)
	}
	answers, err := plain(c.Answers)
	if err != nil {
		return digest{}, tool.Errorf(tool.CodeInvalidInput, "the answers for %s are not JSON: %v", c.Tool, err)
	}
	return s.digests.Sum("idempotent input", args, answers, []byte(c.Resume))
}

func plain(raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := strictjson.Decode(raw)
	if err != nil {
		return nil, err
	}
	return strictjson.Marshal(v)
}

// A memory keeps outcomes for a while. It also has the running calls, which are not counted.
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
	result       *tool.Result  // nil if it had no outcome
	expires      time.Time
	place        *list.Element // nil while it runs
}

// claim returns the entry of a scope. If there is none, it makes one that the caller must settle.
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
	m.bytes += len(r.Output) + r.Content.Size()
	for m.recent.Len() > m.max || m.bytes > m.maxBytes && m.recent.Len() > 1 {
		m.forget(m.recent.Back().Value.(*entry))
	}
}

func (m *memory) forget(e *entry) {
	m.recent.Remove(e.place)
	m.bytes -= len(e.result.Output) + e.result.Content.Size()
	delete(m.entries, e.scope)
}
