package tool

import (
	"context"
	"sync"
	"time"
)

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Within reports whether done is closed within d.
func Within(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// A LazyContext ends with its parent, or when End is called. It creates a cancellable context only when a goroutine
// waits for it, which most quick tools never do: for them context.WithCancelCause would cost as much as the rest of the
// chain.
type LazyContext struct {
	Parent context.Context

	mu     sync.Mutex
	ended  bool
	waited *waited // nil if nothing waits and the end had no cause
}

// A waited is the context that others wait for, and why it ends.
type waited struct {
	ctx   context.Context // nil if nothing waits
	stop  context.CancelCauseFunc
	cause error
}

// End ends the context; the first cause counts. A nil cause means that the call is over, and reads as context.Canceled.
func (c *LazyContext) End(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
	case c.waited != nil:
		c.waited.stop(cause)
	case cause != nil:
		c.waited = &waited{cause: cause}
	}
	c.ended = true
}

// Ended reports whether End was called.
func (c *LazyContext) Ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Err implements context.Context. Calling it does not count as waiting.
func (c *LazyContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.waited != nil && c.waited.ctx != nil:
		return c.waited.ctx.Err()
	case c.ended:
		return context.Canceled
	}
	return c.Parent.Err()
}

// Done implements context.Context.
func (c *LazyContext) Done() <-chan struct{} { return c.waitable().Done() }

// Value implements context.Context. Package context uses it to find a cancellable context, so that it can attach a
// child without a goroutine, and to learn the cause.
func (c *LazyContext) Value(key any) any { return c.waitable().Value(key) }

// Deadline implements context.Context.
func (c *LazyContext) Deadline() (time.Time, bool) { return c.Parent.Deadline() }

func (c *LazyContext) waitable() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waited == nil {
		c.waited = new(waited)
	}
	w := c.waited
	if w.ctx == nil {
		if w.ctx, w.stop = context.WithCancelCause(c.Parent); c.ended {
			w.stop(w.cause)
		}
	}
	return w.ctx
}

// A Clock counts the time that a tool has for a call. The engine puts its clock into the context of the call, under
// ClockKey: like the deadline that it is about, it is not passed as an argument.
type Clock interface {
	// Stop pauses the clock until goOn is called.
	Stop() (goOn func())
}

// ClockKey is the key of a Clock in a context.
type ClockKey struct{}

// Waiting reports that a call waits for its worker, which is busy or starting. Until goOn is called, the time is not
// charged to the tool. The engine limits the wait by ending the context. Without a clock in ctx Waiting does nothing.
func Waiting(ctx context.Context) (goOn func()) {
	if c, ok := ctx.Value(ClockKey{}).(Clock); ok {
		return c.Stop()
	}
	return func() {}
}
