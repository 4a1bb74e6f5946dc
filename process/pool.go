package process

import (
	"context"
	"time"
)

// A Worker is a warm child that serves one call after another.
type Worker interface {
	// Close ends the worker and everything it started.
	Close()
}

// PoolOptions has useful zero values.
type PoolOptions struct {
	Name       string        // what the pool runs, for error messages
	Max        int           // workers at the most; 0: 16. At the limit Get waits
	Idle       time.Duration // an unused worker is closed after this; 0: 5 minutes
	FastCrash  time.Duration // a worker that fails within this after its start counts as a fast crash; 0: 10 s
	Breaker    int           // fast crashes or failed starts in a row until the breaker opens; 0: 5
	Backoff    time.Duration // wait before the restart after the first failure, doubling; 0: 100 ms
	MaxBackoff time.Duration // also how long the breaker stays open before one start is tried again; 0: 30 s
}

// A Pool keeps warm workers. Each is used by one call at a time.
type Pool[W Worker] struct{}

// NewPool makes a pool that starts workers as they are needed.
func NewPool[W Worker](start func(ctx context.Context) (W, error), o PoolOptions) *Pool[W] {
	panic("todo")
}

// Get gives a worker to the caller alone, a warm one if there is one. While the breaker is open it fails at
// once with a *tool.Error of code breaker_open that says why and until when. A start that fails is
// returned to the caller as it is; while a backoff runs, Get waits for its end or for ctx.
func (p *Pool[W]) Get(ctx context.Context) (W, error) { panic("todo") }

// Put gives a worker back. A broken one (healthy false) is closed and not used again; stale ones are given
// back with Retire.
func (p *Pool[W]) Put(w W, healthy bool) { panic("todo") }

// Retire gives a worker back that is to be closed although nothing is wrong with it.
func (p *Pool[W]) Retire(w W) { panic("todo") }

// Close closes the idle workers and those in use as they come back, and waits for that until ctx ends.
func (p *Pool[W]) Close(ctx context.Context) error { panic("todo") }
