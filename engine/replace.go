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

// Replace publishes another set of sources at once. A runner that was bound before stays bound, with
// its calls; one that is no longer among the bindings takes no new call and is closed when its last
// call has ended. A source that fails keeps the tools that it had when it last lived on the list, as
// unavailable, with the reason. The order of the bindings decides who keeps a name that two bring. It returns what
// became of the tools of each source whose tools are others now.
func (e *Engine) Replace(ctx context.Context, bindings []Binding) []tool.Change {
	e.replacing.Lock()
	defer e.replacing.Unlock()
	old := e.shelf.Load()
	bound := make([]*source, len(bindings))
	var listing sync.WaitGroup // all at once: one that does not answer takes no other's time
	for i, b := range bindings {
		listing.Go(func() { bound[i] = e.bind(ctx, b, old) })
	}
	listing.Wait()
	for _, src := range bound { // one by one: of those that are new the order decides who was seen first
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

// publish puts up another shelf, and then says so.
func (e *Engine) publish(bound []*source, p *policy.Policy) {
	e.shelf.Store(e.newShelf(bound, p))
	e.changes.Tell()
}

func (e *Engine) bind(ctx context.Context, b Binding, old *shelf) *source {
	before := old.sources[b.Name]
	if before != nil && b.Runner != nil && before.Runner == b.Runner && b.Err == nil {
		return before
	}
	if before != nil && before.Waits && b.Waits {
		return before
	}
	src := &source{Binding: b, idle: make(chan struct{})}
	src.life, src.end = context.WithCancel(context.WithoutCancel(ctx))
	if b.Err == nil && !b.Waits {
		changed := tool.Changed(b.Runner) // asked for before the tools: what changes in between is a change
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

// list asks a source for its tools. One that has no name, or that of another tool of the source, does not count: nobody
// could say which is meant.
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

// Close takes no new call, waits for those that run until ctx ends, and closes every source. Cancel
// the calls first where that would take too long.
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

// Waits on sources whose tools change. A source may say so as often as it likes, and each time all that is published is
// made anew: so one that says it all the time is asked ten times a second, and no oftener.
const (
	relistPause   = 100 * time.Millisecond
	relistTimeout = 10 * time.Second
	firstRelist   = time.Second // after a listing that failed; then twice as long each time
	lastRelist    = 30 * time.Second
)

// listen lists the tools of a source again whenever it says that they changed, until it retires. Its runner stays, and
// so do the calls that run on it.
func (e *Engine) listen(src *source, changed <-chan struct{}) {
	for came(src.life, changed) {
		changed = tool.Changed(src.Runner)
		for delay := firstRelist; !e.relist(src); delay = min(2*delay, lastRelist) {
			if !came(src.life, time.After(delay)) {
				return
			}
		}
		if !came(src.life, time.After(relistPause)) {
			return
		}
	}
}

// came waits for a channel; false: ctx ended first.
func came[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// relist publishes the tools that a source has now, and reports whether it could be asked. Until it can, those that it
// had stay: it is not known that they are gone.
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
	e.publish(old.bound, old.policy) // not the current policy: that one comes with the sources it is for
	e.log.Info("the tools of a source changed", "source", src.Name, "tools", change.String())
	return true
}
