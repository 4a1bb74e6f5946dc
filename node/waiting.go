package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"toolpost/tool"
)

// await publishes the sources of a config without opening them: the engine reports when it needs one. Their claims are off
// limits from the start nevertheless. The caller holds loading.
func (n *Node) await(ctx context.Context, to wanted) {
	n.mu.Lock()
	n.now = to
	n.mu.Unlock()
	next := make([]*source, len(to.sources))
	for i, w := range to.sources {
		next[i] = n.newSource(w, to)
		next[i].waits, next[i].claim = true, n.claim(w)
	}
	n.publish(ctx, next, to)
}

// openWaiting opens waiting sources concurrently, each within its timeout, and publishes them. A source that cannot be
// opened is dead, as in a node that opens all sources at its start. If ctx ends too soon, the source keeps waiting: that is
// not its failure.
func (n *Node) openWaiting(ctx context.Context, names []string) error {
	if n.o.Early { // they are being opened
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if !arrived(ctx, n.waiting(names)) {
			return tool.Errorf(tool.CodeUnavailable, "it may belong to a source that is still being opened; try again in a moment")
		}
		return nil
	}
	n.loading.Lock()
	defer n.loading.Unlock()
	if n.life.Err() != nil {
		return tool.Errorf(tool.CodeUnavailable, "shutting down")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.life, cancel)()
	waiting := n.waiting(names)
	results := make([]opened, len(waiting))
	var opening sync.WaitGroup
	for i, s := range waiting {
		opening.Go(func() { results[i] = n.open(ctx, s.Source, s.claim) })
	}
	opening.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, s := range waiting {
		if ctx.Err() != nil && results[i].err != nil {
			continue
		}
		s.opened, s.waits, s.since, s.sight = results[i], false, time.Now(), n.look(s.claim)
		n.retryDead(s)
	}
	n.limit()
	n.bind(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return n.cache.Misplaced()
}

// waiting finds waiting sources by name; nil means all of them.
func (n *Node) waiting(names []string) (list []*source) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sources {
		if s.waits && (names == nil || slices.Contains(names, s.Name)) {
			list = append(list, s)
		}
	}
	return list
}
