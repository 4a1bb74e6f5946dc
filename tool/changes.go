package tool

import (
	"context"
	"sync"
)

// Changing is implemented by a Runner or a Catalog whose tools may change, and that knows when they do.
type Changing interface {
	// Changed returns a channel that is closed when the tools may have changed. It reports one change: a caller that
	// wants to know of the next one calls Changed again, before it looks at the tools, and so misses none. A channel was
	// chosen over a callback because the sender must not wait for its listeners.
	Changed() <-chan struct{}
}

// Changed returns the channel of a runner or a catalogue, or nil (which blocks for ever) if it is not Changing.
func Changed(of any) <-chan struct{} {
	if c, ok := of.(Changing); ok {
		return c.Changed()
	}
	return nil
}

// Changes implements Changing. The zero value is ready for use.
type Changes struct {
	mu   sync.Mutex
	next chan struct{} // nil if Changed was not called since the last change
}

// Changed implements Changing.
func (c *Changes) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Tell reports a change. It never blocks.
func (c *Changes) Tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// A Reasoner is a Catalog that finds out why one tool cannot be called without going through all of them.
type Reasoner interface {
	WhyNot(ctx context.Context, p Principal, name string) error
}

// WhyNot returns why a tool that a caller may see cannot be called now. It returns nil if it can, or if Lookup does not
// know it either.
func WhyNot(ctx context.Context, c Catalog, p Principal, name string) error {
	if r, ok := c.(Reasoner); ok {
		return r.WhyNot(ctx, p, name)
	}
	for spec, why := range c.Specs(ctx, p) {
		if spec.Name == name {
			return why
		}
	}
	return nil
}
