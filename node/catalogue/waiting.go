package catalogue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"toolpost/tool"
)

// await publishes the sources of a config without opening them: the engine reports when it needs one. Their claims are off
// limits from the start nevertheless. The caller holds loading.
func (c *Catalogue) await(ctx context.Context, to wanted) {
	c.mu.Lock()
	c.now = to
	c.mu.Unlock()
	next := make([]*source, len(to.sources))
	for i, w := range to.sources {
		next[i] = c.newSource(w, to)
		next[i].waits, next[i].claim = true, c.claim(w)
	}
	c.publish(ctx, next, to)
}

// OpenWaiting opens waiting sources concurrently, each within its timeout, and publishes them. A source that cannot be
// opened is dead, as in a node that opens all sources at its start. If ctx ends too soon, the source keeps waiting: that is
// not its failure.
func (c *Catalogue) OpenWaiting(ctx context.Context, names []string) error {
	if c.env.Early {
		return c.arrival(ctx, names)
	}
	c.loading.Lock()
	defer c.loading.Unlock()
	if c.life.Err() != nil {
		return tool.Errorf(tool.CodeUnavailable, "shutting down")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	waiting := c.waiting(names)
	results := make([]opened, len(waiting))
	var opening sync.WaitGroup
	for i, s := range waiting {
		opening.Go(func() { results[i] = c.open(ctx, s.Source, s.claim) })
	}
	opening.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range waiting {
		if ctx.Err() != nil && results[i].err != nil {
			continue
		}
		s.opened, s.waits, s.since, s.sight = results[i], false, time.Now(), results[i].began
		c.retryDead(s)
	}
	c.limit()
	c.bind(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.env.Misplaced()
}

// arrival waits until sources that are being opened are published, as long as a call may take. When the start ends, the
// engine is asked again whether it needs them.
func (c *Catalogue) arrival(ctx context.Context, names []string) error {
	cfg, _ := c.Current()
	soon, cancel := context.WithTimeout(ctx, cmp.Or(time.Duration(cfg.Limits.Timeout), callTimeout))
	defer cancel()
	starting := c.start.Err() == nil
	if starting {
		defer context.AfterFunc(c.start, cancel)()
	}
	if arrived(soon, c.waiting(names)) || starting && ctx.Err() == nil {
		return nil
	}
	return tool.Errorf(tool.CodeUnavailable, "a source that may have it is still opening; try again in a moment").
		RetryAfter(time.Second)
}

// waiting finds the sources that are not open yet, of those that these names need; nil means all names.
func (c *Catalogue) waiting(names []string) (list []*source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		if names != nil && !slices.Contains(names, s.Name) {
			continue
		}
		if list = append(list, c.inFront(s)...); s.waits {
			list = append(list, s)
		}
	}
	return list
}
