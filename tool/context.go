package tool

import (
	"context"
	"sync"
	"time"
)

// A LazyContext ends with its parent, or when End is called. What this takes is made only when somebody waits for it,
// which most quick tools never do: for them context.WithCancelCause would cost as much as the rest of the chain.
type LazyContext struct {
	Parent context.Context

	mu    sync.Mutex
	own   context.Context // what others wait for; nil: nobody does
	stop  context.CancelCauseFunc
	ended bool
	cause error
}

// End ends the context; the first cause counts. Without one it is that of a call that is over: context.Canceled.
func (c *LazyContext) End(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.cause = true, cause
	if c.own != nil {
		c.stop(cause)
	}
}

// Ended reports whether End was called.
func (c *LazyContext) Ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Err implements context.Context. To ask for it is not to wait.
func (c *LazyContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.own != nil:
		return c.own.Err()
	case c.ended:
		return context.Canceled
	}
	return c.Parent.Err()
}

// Done implements context.Context.
func (c *LazyContext) Done() <-chan struct{} { return c.waitable().Done() }

// Value implements context.Context. Package context asks through it for what can be cancelled, in order to hang a child
// there without a goroutine, and to learn the cause.
func (c *LazyContext) Value(key any) any { return c.waitable().Value(key) }

// Deadline implements context.Context.
func (c *LazyContext) Deadline() (time.Time, bool) { return c.Parent.Deadline() }

func (c *LazyContext) waitable() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own == nil {
		c.own, c.stop = context.WithCancelCause(c.Parent)
		if c.ended {
			c.stop(c.cause)
		}
	}
	return c.own
}
