package engine

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"toolpost/engine/policy"
	"toolpost/tool"
)

// Replace publishes another set of sources at once. A runner that was bound before stays bound, with its calls. A runner
// that is no longer bound takes no new calls, and is closed when its last call has ended. A source that fails keeps its
// last known tools on the list, as unavailable, with the reason. If two sources bring the same name, the first binding
// keeps it. Replace returns the changes of each source whose tools changed.
func (e *Engine) Replace(ctx context.Context, bindings []Binding) []tool.Change {
	e.replacing.Lock()
	defer e.replacing.Unlock()
	old := e.shelf.Load()
	bound := make([]*source, len(bindings))
	var listing sync.WaitGroup // in parallel: a source that does not answer delays no other
	for i, b := range bindings {
		listing.Go(func() { bound[i] = e.bind(ctx, b, old) })
	}
	listing.Wait()
	for _, src := range bound { // one by one: the order decides which new source was seen first
		if src != old.sources[src.Name] && (!src.Waits || src.Comes) {
			src.verdict = e.check(ctx, src)
		}
	}
	var p *policy.Policy
	if e.policy != nil {
		p = e.policy()
	}
	e.publish(bound, p)
	for _, src := range old.bound {
		if !slices.Contains(bound, src) && src.Runner != nil {
			e.retiring.Go(func() { e.retire(context.WithoutCancel(ctx), src) })
		}
	}
	return changesOf(old, bound)
}

// publish stores a new shelf, then signals the change.
func (e *Engine) publish(bound []*source, p *policy.Policy) {
	e.shelf.Load().settle(time.Now().Add(-1)) // before what comes now
	e.shelf.Store(e.newShelf(bound, p))
	e.changes.Tell()
}

func (e *Engine) bind(ctx context.Context, b Binding, old *shelf) *source {
	before := old.sources[b.Name]
	if before != nil && b.Runner != nil && before.Runner == b.Runner && b.Err == nil {
		return before
	}
	if before != nil && before.Waits && b.Waits && before.Comes == b.Comes {
		return before
	}
	src := &source{Binding: b, idle: make(chan struct{}), known: map[string]time.Time{}}
	if before != nil {
		src.known = before.known
	}
	src.life, src.end = context.WithCancel(context.WithoutCancel(ctx))
	if b.Err == nil && !b.Waits {
		changed := tool.Changed(b.Runner) // before listing, so that no change in between is missed
		src.specs, src.Err = e.list(ctx, b)
		if changed != nil {
			e.retiring.Go(func() { e.listen(src, changed) })
		}
	}
	if src.Err != nil && before != nil {
		src.specs = before.specs
	}
	return src
}

// list asks a source for its tools. It drops a tool without a name, or with the name of another tool of the source,
// because a call could not tell which is meant.
func (e *Engine) list(ctx context.Context, b Binding) ([]*tool.Spec, error) {
	s, ok := b.Runner.(tool.Source)
	if !ok {
		return nil, fmt.Errorf("the runner does not say which tools it has")
	}
	given, err := s.Tools(ctx)
	if err != nil {
		return nil, err
	}
	specs, names := make([]*tool.Spec, 0, len(given)), map[string]bool{}
	for _, spec := range given {
		if spec == nil || spec.Name == "" || names[tool.VisibleName(spec.Name)] {
			e.log.Warn("a tool without a name of its own is left out", "source", b.Name)
			continue
		}
		names[tool.VisibleName(spec.Name)] = true
		specs = append(specs, spec)
	}
	return specs, nil
}

func (e *Engine) retire(ctx context.Context, src *source) {
	<-src.retire()
	if err := src.Runner.Close(ctx); err != nil {
		e.log.Warn("a source did not close cleanly", "source", src.Name, "error", err)
	}
}

// Close takes no new calls, waits until ctx ends for those that run, and closes every source. If that would take too
// long, cancel the calls first.
func (e *Engine) Close(ctx context.Context) error {
	e.Replace(ctx, nil)
	closed := make(chan struct{})
	go func() { e.retiring.Wait(); close(closed) }()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("some calls or sources did not end in time: %w", ctx.Err())
	}
}

// Limits for sources whose tools change. A source may report changes as often as it likes, and each time the whole shelf
// is made anew. So a source is listed at most ten times a second.
const (
	relistPause   = 100 * time.Millisecond
	relistTimeout = 10 * time.Second
	firstRelist   = time.Second // after a failed listing; doubled each time
	lastRelist    = 30 * time.Second
)

// listen lists the tools of a source again whenever it reports a change, until it retires. Its runner stays, and so do
// the calls that run on it.
func (e *Engine) listen(src *source, changed <-chan struct{}) {
	for waitFor(src.life, changed) {
		changed = tool.Changed(src.Runner)
		for delay := firstRelist; !e.relist(src); delay = min(2*delay, lastRelist) {
			if !tool.Sleep(src.life, delay) {
				return
			}
		}
		if !tool.Sleep(src.life, relistPause) {
			return
		}
	}
}

// waitFor waits for a channel; it returns false if ctx ends first.
func waitFor(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// relist publishes the tools that a source has now, and reports whether the source could be listed. If not, it keeps its
// tools: they are not known to be gone.
func (e *Engine) relist(src *source) bool {
	ctx, cancel := context.WithTimeout(src.life, relistTimeout)
	defer cancel()
	specs, err := e.list(ctx, src.Binding)
	if err != nil {
		if src.life.Err() == nil {
			e.log.Warn("the tools of a source changed and cannot be listed; those that it had stay", "source", src.Name,
				"error", err)
		}
		return false
	}
	e.replacing.Lock()
	defer e.replacing.Unlock()
	old := e.shelf.Load()
	if old.sources[src.Name] != src || src.Err == nil && reflect.DeepEqual(specs, src.specs) {
		return true
	}
	change := tool.Compare(src.Name, src.specs, specs)
	src.specs, src.Err = specs, nil
	src.verdict = e.check(ctx, src)
	e.publish(old.bound, old.policy) // not the current policy, which comes with its own sources
	e.log.Info("the tools of a source changed", "source", src.Name, "tools", change.String())
	return true
}
