package process

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"toolpost/host/backoff"
	"toolpost/tool"
)

// A Worker is a warm child that serves one call after another. Its type must be comparable, such as a pointer.
type Worker interface {
	// Close ends the worker and everything it started.
	Close()
}

// PoolOptions configures a Pool. All zero values are useful.
type PoolOptions struct {
	Name      string          // what the pool runs, for error messages
	Max       int             // maximum number of workers, at which Get waits; default 16
	Idle      time.Duration   // an unused worker is closed after this; default 5 minutes
	FastCrash time.Duration   // a worker that fails within this time of its start counts as a fast crash; default 10 s
	Restart   backoff.Breaker // when to start another after a fast crash or a failed start
}

// A Pool keeps warm workers. Each serves one call at a time. The pool has no goroutine of its own.
type Pool[W Worker] struct {
	start func(context.Context) (W, error)
	o     PoolOptions

	mu      sync.Mutex
	idle    []*warm[W]        // the last used comes last, and is used first
	out     map[any]time.Time // the workers in use, and when they were started
	alive   int               // workers that are idle, in use, being started or being closed
	line    []chan ticket[W]  // callers waiting in Get, in order
	restart backoff.Breaker
	trying  bool          // after a failure, one start is tried at a time
	alarm   *time.Timer   // serves the line when the pause after a failure is over
	closing chan struct{} // not nil once the pool is closing; closed when no worker is left
}

// warm is a worker that waits for its next call.
type warm[W Worker] struct {
	w       W
	started time.Time
	timer   *time.Timer
}

// A ticket is what a caller in the line gets: a worker, an error, or, with neither, the right to start a worker.
type ticket[W Worker] struct {
	warm *warm[W]
	err  error
}

// NewPool makes a pool that starts workers as they are needed.
func NewPool[W Worker](start func(ctx context.Context) (W, error), o PoolOptions) *Pool[W] {
	o.Name, o.Max = cmp.Or(o.Name, "the worker"), cmp.Or(max(o.Max, 0), 16)
	o.Idle, o.FastCrash = cmp.Or(max(o.Idle, 0), 5*time.Minute), cmp.Or(max(o.FastCrash, 0), backoff.FastCrash)
	return &Pool[W]{start: start, o: o, restart: o.Restart, out: map[any]time.Time{}}
}

// Get hands out a worker for the caller's exclusive use, a warm one if available; callers at the limit are served in
// order. While the breaker is open and no warm worker is free, it fails at once with a *tool.Error of code breaker_open
// that says why and until when. The error of a failed start is returned unchanged, and counts as a failure unless ctx
// ended it. During a backoff, Get waits for its end or for ctx.
func (p *Pool[W]) Get(ctx context.Context) (W, error) {
	var none W
	if err := ctx.Err(); err != nil {
		return none, err
	}
	mine := make(chan ticket[W], 1)
	p.mu.Lock()
	p.line = append(p.line, mine)
	p.serve()
	p.mu.Unlock()
	select {
	case t := <-mine:
		return p.redeem(ctx, t)
	case <-ctx.Done():
		p.leave(mine)
		return none, ctx.Err()
	}
}

// serve hands tickets to the callers in the line, in order, while there are any.
func (p *Pool[W]) serve() {
	for len(p.line) > 0 {
		t, ok := p.next()
		if !ok {
			return
		}
		p.line[0] <- t
		p.line = p.line[1:]
	}
}

// next makes the next ticket; it returns false if there is none now.
func (p *Pool[W]) next() (t ticket[W], ok bool) {
	switch failing, wait := p.restart.Fails() > 0, p.restart.Wait(); {
	case p.closing != nil:
		t.err = tool.Errorf(tool.CodeUnavailable, "%s has been shut down", p.o.Name)
	case len(p.idle) > 0:
		last := len(p.idle) - 1
		t.warm = p.idle[last]
		p.idle = slices.Delete(p.idle, last, last+1)
		t.warm.timer.Stop()
		p.out[t.warm.w] = t.warm.started
	case p.alive >= p.o.Max:
		return t, false
	case p.restart.Tripped() && (wait > 0 || p.trying):
		t.err = p.restart.Refusal(p.o.Name, "start")
	case failing && p.trying:
		return t, false
	case wait > 0:
		p.wake(wait)
		return t, false
	default:
		p.alive++
		p.trying = failing
	}
	return t, true
}

// wake serves the line when the backoff has passed.
func (p *Pool[W]) wake(after time.Duration) {
	if p.alarm != nil {
		return
	}
	p.alarm = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.alarm = nil
		p.serve()
	})
}

// redeem turns a ticket into a worker.
func (p *Pool[W]) redeem(ctx context.Context, t ticket[W]) (W, error) {
	var none W
	if t.err != nil {
		return none, t.err
	}
	if t.warm != nil {
		return t.warm.w, nil
	}
	w, err := p.start(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trying = false
	switch {
	case err == nil:
		p.out[w] = time.Now()
		p.restart.Tried()
	case ctx.Err() == nil:
		p.restart.Failed(err.Error())
	}
	if err != nil {
		p.gone()
		return none, err
	}
	p.serve()
	return w, nil
}

// leave takes a caller that has stopped waiting out of the line, or returns a ticket that came too late.
func (p *Pool[W]) leave(mine chan ticket[W]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.line, mine); i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
		return
	}
	switch t := <-mine; {
	case t.warm != nil:
		delete(p.out, t.warm.w)
		p.park(t.warm.w, t.warm.started)
		p.serve()
	case t.err == nil:
		p.trying = false
		p.gone()
	}
}

// Put returns a worker to the pool. A broken one (healthy false) is closed, before Put returns, and not used again; stale
// ones are returned with Retire.
func (p *Pool[W]) Put(w W, healthy bool) {
	if !p.takeBack(w, healthy, healthy) {
		p.end(w)
	}
}

// Retire returns a worker that is to be closed although it is healthy.
func (p *Pool[W]) Retire(w W) {
	p.takeBack(w, true, false)
	p.end(w)
}

// takeBack takes a worker back from its caller, and reports whether it is kept for the next.
func (p *Pool[W]) takeBack(w W, healthy, keep bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	started, ok := p.out[w]
	if !ok {
		panic("process: a worker was given back that is not in use")
	}
	delete(p.out, w)
	if healthy || time.Since(started) >= p.o.FastCrash {
		p.restart.Worked()
	} else {
		p.restart.Failed("it crashed soon after its start")
	}
	if keep = keep && p.closing == nil; keep {
		p.park(w, started)
	}
	p.serve()
	return keep
}

// park adds a worker to the idle ones until it expires.
func (p *Pool[W]) park(w W, started time.Time) {
	e := &warm[W]{w: w, started: started}
	e.timer = time.AfterFunc(p.o.Idle, func() { p.expire(e) })
	p.idle = append(p.idle, e)
}

// expire closes a worker that was idle for too long.
func (p *Pool[W]) expire(e *warm[W]) {
	p.mu.Lock()
	i := slices.Index(p.idle, e)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		p.end(e.w)
	}
}

// end closes a worker, and frees its slot once it is gone.
func (p *Pool[W]) end(w W) {
	w.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone()
}

func (p *Pool[W]) gone() {
	p.alive--
	p.serve()
	if p.closing != nil && p.alive == 0 {
		close(p.closing)
	}
}

// Close closes the idle workers, and those in use as they are returned, and waits for that until ctx ends.
func (p *Pool[W]) Close(ctx context.Context) error {
	p.mu.Lock()
	for _, e := range p.idle {
		e.timer.Stop()
		go p.end(e.w)
	}
	p.idle = nil
	if p.closing == nil {
		p.closing = make(chan struct{})
		if p.alive == 0 {
			close(p.closing)
		}
	}
	if p.alarm != nil {
		p.alarm.Stop()
	}
	p.serve() // it turns the waiting callers away
	p.mu.Unlock()
	select {
	case <-p.closing:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		return tool.Errorf(tool.CodeTimeout, "%s: %d workers are still running: %w", p.o.Name, p.alive, ctx.Err())
	}
}

// Workers reports the state of the workers.
func (p *Pool[W]) Workers() tool.Workers {
	p.mu.Lock()
	defer p.mu.Unlock()
	return tool.Workers{Alive: p.alive, Busy: len(p.out), Wait: len(p.line), Most: p.o.Max}
}
