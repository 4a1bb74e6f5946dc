package rest

import (
	"context"
	"sync"

	"toolpost/tool"
)

// calls are those that run now, so that they can be cancelled by id and waited for at the end.
type calls struct {
	mu       sync.Mutex
	running  map[string]*running
	draining bool
	idle     chan struct{} // closed when draining and none is left
}

type running struct {
	caller tool.Principal
	cancel context.CancelCauseFunc
}

func newCalls() *calls {
	return &calls{running: map[string]*running{}, idle: make(chan struct{})}
}

// begin lets a call in; the caller calls end with the same id once it has been answered.
func (c *calls) begin(id string, r *running) *tool.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return tool.Errorf(tool.CodeUnavailable, "the server is shutting down and takes no new calls").Because("draining")
	}
	if c.running[id] != nil {
		return tool.Errorf(tool.CodeConflict, "a call %s is running already: choose another id, or none", id).Because("duplicate_call")
	}
	c.running[id] = r
	return nil
}

func (c *calls) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, id)
	if c.draining && len(c.running) == 0 {
		close(c.idle)
	}
}

// cancel reports whether the caller has such a call. Someone else's is not told from none.
func (c *calls) cancel(id string, caller tool.Principal) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.running[id]
	if r == nil || !r.caller.Same(caller) {
		return false
	}
	r.cancel(tool.Errorf(tool.CodeCancelled, "the call was cancelled by its caller"))
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
	for _, r := range c.running {
		r.cancel(tool.Errorf(tool.CodeCancelled, "the call was cancelled because the server shut down before it had ended"))
	}
}
