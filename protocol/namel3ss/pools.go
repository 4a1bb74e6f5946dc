package namel3ss

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/tool"
)

// maxPools is the number of sets of guarantees for which a tool has warm interpreters. Most tools have one; a policy may add
// others.
const maxPools = 8

// defaultWorkers is the default limit on the interpreters of a tool.
const defaultWorkers = 16

// pools keep the fork servers of one tool, grouped by their walls.
type pools struct {
	tool    *localTool
	workers int

	mu     sync.Mutex
	all    []*pool // the last used is last
	closed bool
}

// A pool holds the fork servers for one set of guarantees.
type pool struct {
	*process.Pool[*worker]
	tool    *localTool
	held    tool.Guarantees
	sources map[string]string // guarantee -> its origin
	late    bool              // import the tool in the call, not before it
	ahead   atomic.Int64      // children that wait for a call

	users int // calls that need it
}

// take returns the pool for a call, which the call leaves at its end, or the reason why it must run fresh.
func (p *pools) take(ctx context.Context, inv *invocation) (_ *pool, unfit string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.all, func(o *pool) bool { return o.held.Equal(inv.held) })
	var mine *pool
	switch {
	case p.closed:
		return nil, "", tool.Errorf(tool.CodeUnavailable, "its interpreter has been shut down")
	case i >= 0:
		mine = p.all[i]
		p.all = slices.Delete(p.all, i, i+1)
	default:
		if unfit, err := p.tool.unforkable(inv.held); unfit != "" || err != nil {
			return nil, unfit, err
		}
		if len(p.all) == maxPools && !p.makeRoom(ctx) {
			return nil, "there are warm interpreters for other guarantees, and all of them are in use", nil
		}
		mine = p.open(inv)
	}
	mine.users++
	p.all = append(p.all, mine)
	return mine, "", nil
}

func (p *pools) open(inv *invocation) *pool {
	mine := &pool{tool: p.tool, held: inv.held, sources: inv.sources, late: inv.held.NoSubprocess}
	mine.Pool = process.NewPool(mine.start, process.PoolOptions{Name: "its interpreter", Max: p.workers})
	return mine
}

// makeRoom closes the pool that has been unused for the longest time.
func (p *pools) makeRoom(ctx context.Context) bool {
	i := slices.IndexFunc(p.all, func(o *pool) bool { return o.users == 0 })
	if i < 0 {
		return false
	}
	old := p.all[i]
	p.all = slices.Delete(p.all, i, i+1)
	return old.Close(context.WithoutCancel(ctx)) == nil // all of its workers are idle, and ending one takes a bounded time
}

func (p *pools) leave(mine *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine.users--
}

// close closes all pools, and waits for them until ctx ends.
func (p *pools) close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	all := slices.Clone(p.all)
	p.mu.Unlock()
	return atOnce(all, func(o *pool) error { return o.Close(ctx) })
}

// count counts the interpreters of a tool by their state.
func (p *pools) count() (n tool.Workers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		n = n.Plus(one.Workers()).Plus(tool.Workers{Ahead: int(one.ahead.Load())})
	}
	return n
}

// Workers implements tool.Staffed: the interpreters of all tools.
func (r *Runner) Workers() (n tool.Workers) {
	for _, name := range r.names {
		if t, ok := r.tools[name].way.(*localTool); ok && t.pools != nil {
			n = n.Plus(t.pools.count())
		}
	}
	return n
}

// atOnce calls do for all elements at the same time.
func atOnce[T any](all []T, do func(T) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, one := range all {
		wg.Go(func() { errs[i] = do(one) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// worker returns a fork server that has imported the files in their present state. Waiting for a server and starting one do
// not count as the call's time, but an import that takes longer than the tool may run is ended.
func (p *pool) worker(ctx context.Context) (*worker, error) {
	defer tool.Waiting(ctx)()
	limit := p.tool.spec.Timeout
	late := tool.Errorf(tool.CodeTimeout, "its interpreter had not imported it after %v and was ended", limit)
	starting, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	for {
		w, err := p.Get(starting)
		switch {
		case err != nil && ctx.Err() == nil && starting.Err() != nil:
			return nil, late
		case err != nil || !changed(w.hello.Files):
			return w, err
		}
		p.Retire(w)
	}
}

// unforkable returns why calls with these guarantees cannot be forked, or "".
func (t *localTool) unforkable(g tool.Guarantees) (string, error) {
	if !t.around.Stand(g) {
		return "", nil
	}
	_, err := t.fork(t.around.Profile(g))
	if e := tool.AsError(err); e != nil && e.Reason == sandbox.CoverageMissing {
		return "a fork cannot be confined here: " + e.Message, nil
	}
	return "", err
}
