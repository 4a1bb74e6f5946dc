package tool

import (
	"context"
	"sync"
)

// Changing is what a Runner or a Catalog is whose tools may be others after a while, and that knows when.
type Changing interface {
	// Changed gives a channel that is closed when the tools may be others than now. It tells of one change: whoever
	// wants to know of the next one asks again, before looking at the tools, and so misses none. A channel was chosen
	// over a callback because the one who says it must not wait for those who hear it.
	Changed() <-chan struct{}
}

// Changed asks a runner or a catalogue; nil, on which a wait never ends: it cannot tell.
func Changed(of any) <-chan struct{} {
	if c, ok := of.(Changing); ok {
		return c.Changed()
	}
	return nil
}

// Changes implements Changing. The zero value is ready for use.
type Changes struct {
	mu   sync.Mutex
	next chan struct{} // nil: nobody has asked since the last change
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

// Tell says that something has changed. It never waits.
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

// WhyNot says why a tool that a caller may see cannot be called now; nil: it can, or Lookup does not know it either.
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
