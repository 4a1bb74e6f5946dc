package web

import (
	"context"
	"sync"

	"toolpost/tool"
)

// calls are those that run now, so that they can be cancelled by id and waited for at the end.
type calls struct {
	mu       sync.Mutex
	running  map[callKey]context.CancelCauseFunc
	draining bool
	idle     chan struct{} // closed when draining and none is left
}

// A callKey is whose call it is, and its id. Callers choose ids without knowing of each other.
type callKey struct{ caller, id string }

func keyOf(c *tool.Call) callKey { return callKey{c.Caller.ID, c.ID} }

func newCalls() *calls {
	return &calls{running: map[callKey]context.CancelCauseFunc{}, idle: make(chan struct{})}
}

// begin lets a call in; whoever did it calls end with the same key once it has been answered.
func (c *calls) begin(key callKey, cancel context.CancelCauseFunc) *tool.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return tool.Errorf(tool.CodeUnavailable, "the server is shutting down and takes no new calls").Because("draining")
	}
	if c.running[key] != nil {
		return tool.Errorf(tool.CodeConflict,
			"a call %s of yours is running already: choose another id, or none", key.id).Because("duplicate_call")
	}
	c.running[key] = cancel
	return nil
}

func (c *calls) end(key callKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, key)
	if c.draining && len(c.running) == 0 {
		close(c.idle)
	}
}

// cancel reports whether its caller has such a call.
func (c *calls) cancel(key callKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	stop := c.running[key]
	if stop == nil {
		return false
	}
	stop(tool.Errorf(tool.CodeCancelled, "the call was cancelled by its caller"))
	return true
}

// drain lets no new call in, and returns a channel that is closed when the last one has ended. It is
// called once.
func (c *calls) drain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	if len(c.running) == 0 {
		close(c.idle)
	}
	return c.idle
}

func (c *calls) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

func (c *calls) cancelAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stop := range c.running {
		stop(tool.Errorf(tool.CodeCancelled, "the call was cancelled because the server shut down before it had ended"))
	}
}
