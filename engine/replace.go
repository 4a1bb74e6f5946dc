package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"toolpost/engine/policy"
	"toolpost/tool"
)

// Replace publishes another set of sources at once. A runner that was bound before stays bound, with
// its calls; one that is no longer among the bindings takes no new call and is closed when its last
// call has ended. A source that fails keeps the tools that it had when it last lived on the list, as
// unavailable, with the reason. The order of the bindings decides who keeps a name that two bring.
func (e *Engine) Replace(ctx context.Context, bindings []Binding) {
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
		if src != old.sources[src.Name] {
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
	src := &source{Binding: b, idle: make(chan struct{})}
	src.life, src.end = context.WithCancel(context.WithoutCancel(ctx))
	if b.Err == nil {
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
