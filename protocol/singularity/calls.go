package singularity

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
	"toolpost/wire/envelope"
)

// calls are those that wait or run and have a name, so that they can be cancelled by it.
type calls struct {
	mu      sync.Mutex
	running map[callKey]*called
}

// A callKey is the name of a call. Callers choose their names without knowing of each other.
type callKey struct{ caller, id string }

type called struct {
	callKey
	ctx    context.Context
	cancel context.CancelCauseFunc
	twice  bool // another call has this name; this one is not run
}

// expect notes a call as soon as it is here, so that it can be cancelled while it waits. It gives nil for a call
// without a name, or with a name that will be refused.
func (c *calls) expect(base context.Context, caller string, m *nats.Msg) *called {
	id, err := envelope.ID(m.Header)
	if err != nil || id == "" {
		return nil
	}
	ctx, cancel := context.WithCancelCause(base)
	c.mu.Lock()
	defer c.mu.Unlock()
	key := callKey{caller, id}
	one := &called{callKey: key, ctx: ctx, cancel: cancel, twice: c.running[key] != nil}
	if !one.twice {
		c.running[key] = one
	}
	return one
}

func (c *calls) forget(one *called) {
	if one == nil {
		return
	}
	one.cancel(nil)
	if one.twice {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, one.callKey)
}

// cancel ends a call of the caller's own. A name that it has not given here is a call of another node, or one that has
// ended.
func (c *calls) cancel(caller, id string) {
	c.mu.Lock()
	one := c.running[callKey{caller, id}]
	c.mu.Unlock()
	if one != nil {
		one.cancel(tool.Errorf(tool.CodeCancelled, "the call was cancelled by its caller"))
	}
}
