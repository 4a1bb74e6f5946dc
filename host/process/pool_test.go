package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/host/backoff"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A fake is a worker without a process.
type fake struct {
	number int
	closed atomic.Bool
	slow   time.Duration // how long Close takes
}

func (f *fake) Close() {
	time.Sleep(f.slow)
	f.closed.Store(true)
}

// A factory starts fakes, or fails.
type factory struct {
	mu      sync.Mutex
	started []time.Duration // when, since the beginning of the test
	begin   time.Time
	fail    error
	takes   time.Duration
}

func newFactory() *factory { return &factory{begin: time.Now()} }

func (f *factory) start(ctx context.Context) (*fake, error) {
	f.mu.Lock()
	f.started = append(f.started, time.Since(f.begin))
	number, fail, takes := len(f.started), f.fail, f.takes
	f.mu.Unlock()
	select {
	case <-time.After(takes):
		return &fake{number: number}, fail
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *factory) starts() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.started)
}

func (f *factory) set(fail error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// get calls Get, which must succeed.
func get(t *testing.T, p *Pool[*fake]) *fake {
	t.Helper()
	return kit.Must(p.Get(t.Context()))(t)
}

func closePool(t *testing.T, p *Pool[*fake]) {
	t.Helper()
	kit.Check(t, p.Close(t.Context()))
}

func TestAWarmWorkerIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory()
		p := NewPool(f.start, PoolOptions{})
		a, b := get(t, p), get(t, p)
		if a == b {
			t.Error("one worker was given to two")
		}
		p.Put(a, true)
		p.Put(b, true)
		if got := get(t, p); got != b {
			t.Error("the one that was used last is not used first")
		} else {
			p.Put(got, true)
		}
		kit.Equal(t, len(f.starts()), 2, "workers started")
		closePool(t, p)
		if !a.closed.Load() || !b.closed.Load() {
			t.Error("Close left a worker")
		}
	})
}

func TestAnIdleWorkerIsClosedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(newFactory().start, PoolOptions{Idle: time.Minute})
		w := get(t, p)
		time.Sleep(time.Hour) // a worker in use is not idle
		p.Put(w, true)
		time.Sleep(59 * time.Second)
		if p.Put(get(t, p), true); w.closed.Load() {
			t.Error("it was closed too early")
		}
		time.Sleep(59 * time.Second)
		if w.closed.Load() {
			t.Error("using it did not start its time again")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !w.closed.Load() {
			t.Error("it was not closed")
		}
		if next := get(t, p); next == w {
			t.Error("a closed worker was given")
		} else {
			p.Retire(next)
		}
		closePool(t, p)
	})
}

func TestAtTheLimitCallersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(newFactory().start, PoolOptions{Max: 2})
		a, b := get(t, p), get(t, p)
		var order []int
		var callers sync.WaitGroup
		for i := range 10 {
			callers.Go(func() {
				w := get(t, p)
				order = append(order, i)
				time.Sleep(time.Second) // the next in line gets it a second later
				p.Put(w, true)
			})
			synctest.Wait()
		}
		p.Put(a, true)
		time.Sleep(time.Minute)
		p.Put(b, true)
		callers.Wait()
		kit.EqualSlices(t, order, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "the order was")
		closePool(t, p)
	})
}

func TestAPlaceIsFreeWhenItsWorkerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory()
		p := NewPool(f.start, PoolOptions{Max: 1, FastCrash: time.Nanosecond})
		w := get(t, p)
		w.slow = time.Minute
		time.Sleep(time.Second)
		go p.Put(w, false)
		next := get(t, p)
		if !w.closed.Load() || len(f.starts()) != 2 {
			t.Error("there were two workers at once")
		}
		p.Put(next, true)
		closePool(t, p)
	})
}

func TestGetHonoursItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory()
		p := NewPool(f.start, PoolOptions{Max: 1})
		w := get(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while waiting: %v", err)
		}
		if _, err := p.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("from the start: %v", err)
		}
		p.Retire(w)
		f.takes = time.Hour
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while starting: %v", err)
		}
		f.takes = 0
		begin := time.Now()
		if p.Put(get(t, p), true); time.Since(begin) > 0 {
			t.Error("a start that its caller ended counts as a failure")
		}
		closePool(t, p)
	})
}

func TestLateTicketIsGivenBack(t *testing.T) {
	p := NewPool(newFactory().start, PoolOptions{Max: 1})
	mine := make(chan ticket[*fake], 1)
	late := func() {
		p.line = append(p.line, mine)
		p.serve()
		p.leave(mine) // as Get does when its ctx ends at the same moment
	}
	late() // the right to start a worker
	w := get(t, p)
	p.Put(w, true)
	late() // a warm worker
	kit.Equal(t, get(t, p), w, "the worker is lost")
	p.Retire(w)
	closePool(t, p)
}

func TestFailedStartsBackOffAndThenOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory()
		f.fail = errors.New("no such program")
		p := NewPool(f.start, PoolOptions{Name: "greeter", Restart: backoff.Breaker{Failures: 4, First: time.Second, Open: time.Minute}})
		for range 4 {
			if _, err := p.Get(t.Context()); err != f.fail {
				t.Errorf("the error of the start is not returned as it is: %v", err)
			}
		}
		kit.EqualSlices(t, f.starts(),
			[]time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}, "starts were tried at")
		_, err := p.Get(t.Context())
		kit.MustEqual(t, tool.CodeOf(err), tool.CodeBreakerOpen, "the breaker is not open: %v", err)
		until := time.Now().Add(time.Minute).Format(time.RFC3339)
		for _, part := range []string{"greeter", "4 times in a row", "no such program", "in 1m0s", until} {
			kit.Contains(t, err.Error(), part, "%q does not say", err)
		}
		time.Sleep(time.Minute)
		if _, err := p.Get(t.Context()); err != f.fail {
			t.Errorf("after its time one start is not tried: %v", err)
		}
		kit.Refused(t, kit.Err(p.Get(t.Context())),
			tool.CodeBreakerOpen, "", "after another failure the breaker is not open")
		time.Sleep(time.Minute)
		f.set(nil)
		p.Put(get(t, p), true)
		closePool(t, p)
	})
}

func TestWhileTheBreakerTriesOneStartOthersFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory()
		f.fail = errors.New("broken")
		p := NewPool(f.start, PoolOptions{Restart: backoff.Breaker{Failures: 1, Open: time.Minute}})
		p.Get(t.Context())
		time.Sleep(time.Minute)
		f.takes = time.Second
		f.set(nil)
		first := make(chan *fake)
		go func() { w, _ := p.Get(t.Context()); first <- w }()
		synctest.Wait()
		kit.Refused(t, kit.Err(p.Get(t.Context())), tool.CodeBreakerOpen, "", "a second start is tried")
		p.Put(<-first, true)
		closePool(t, p)
	})
}

func TestFastCrashesOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory()
		p := NewPool(f.start, PoolOptions{FastCrash: 10 * time.Second, Restart: backoff.Breaker{Failures: 3, First: time.Second}})
		for range 3 {
			p.Put(get(t, p), false)
		}
		_, err := p.Get(t.Context())
		kit.Refused(t, err, tool.CodeBreakerOpen, "crashed soon after its start", "the breaker is not open")
		kit.EqualSlices(t, f.starts(), []time.Duration{0, time.Second, 3 * time.Second}, "starts were at")
		closePool(t, p)
	})
}

func TestSuccessResetsTheFailureCount(t *testing.T) {
	for name, good := range map[string]func(p *Pool[*fake], w *fake){
		"by a call that went well": func(p *Pool[*fake], w *fake) { p.Put(w, true); p.Retire(must(p)) },
		"by a retired worker":      func(p *Pool[*fake], w *fake) { p.Retire(w) },
		"by a slow crash":          func(p *Pool[*fake], w *fake) { time.Sleep(time.Minute); p.Put(w, false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewPool(newFactory().start, PoolOptions{Restart: backoff.Breaker{Failures: 2}})
				for range 10 {
					p.Put(get(t, p), false)
					good(p, get(t, p))
				}
				closePool(t, p)
			})
		})
	}
}

func must(p *Pool[*fake]) *fake {
	w, _ := p.Get(context.Background())
	return w
}

func TestAWarmWorkerIsGivenAlthoughTheBreakerIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(newFactory().start, PoolOptions{Restart: backoff.Breaker{Failures: 1}})
		a, b := get(t, p), get(t, p)
		p.Put(a, true)
		p.Put(b, false)
		kit.Equal(t, get(t, p), a, "another one was given")
		kit.Refused(t, kit.Err(p.Get(t.Context())), tool.CodeBreakerOpen, "", "the breaker is not open")
		p.Retire(a)
		closePool(t, p)
	})
}

func TestBackoffWaiterLearnsThatTheBreakerOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFactory()
		f.fail = errors.New("broken")
		p := NewPool(f.start, PoolOptions{Restart: backoff.Breaker{Failures: 2, First: time.Second, Open: time.Hour}})
		p.Get(t.Context())
		var errs [2]error
		var waiters sync.WaitGroup
		for i := range errs {
			waiters.Go(func() { _, errs[i] = p.Get(t.Context()) })
			synctest.Wait() // they wait in this order, and may return in any
		}
		waiters.Wait()
		if errs[0] != f.fail || tool.CodeOf(errs[1]) != tool.CodeBreakerOpen {
			t.Errorf("%v and %v", errs[0], errs[1])
		}
		closePool(t, p)
	})
}

func TestCloseWaitsForWorkersInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(newFactory().start, PoolOptions{Name: "greeter", Max: 1})
		w := get(t, p)
		waiting := make(chan error)
		go func() { _, err := p.Get(t.Context()); waiting <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		kit.Refused(t, p.Close(ctx), tool.CodeTimeout, "1 workers", "it does not say what it waits for")
		kit.Refused(t, <-waiting, tool.CodeUnavailable, "", "who waited")
		kit.Refused(t, kit.Err(p.Get(t.Context())), tool.CodeUnavailable, "", "a closed pool gives")
		go func() { time.Sleep(time.Second); p.Put(w, true) }()
		closePool(t, p)
		if !w.closed.Load() {
			t.Error("the worker was not closed")
		}
		closePool(t, p)
	})
}

func TestAPoolUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alive atomic.Int32
		f := newFactory()
		p := NewPool(func(ctx context.Context) (*counted, error) {
			w, err := f.start(ctx)
			if err != nil {
				return nil, err
			}
			if n := alive.Add(1); n > 4 {
				t.Errorf("%d workers at once", n)
			}
			return &counted{w, &alive}, nil
		}, PoolOptions{Max: 4, FastCrash: 1})
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%7)*time.Second)
				defer cancel()
				if w, err := p.Get(ctx); err == nil {
					time.Sleep(time.Duration(i%13) * 100 * time.Millisecond)
					p.Put(w, i%5 != 0)
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if err := p.Close(t.Context()); err != nil || alive.Load() != 0 {
			t.Errorf("%v; at the end %d workers", err, alive.Load())
		}
	})
}

// counted is a fake that counts its Close.
type counted struct {
	*fake
	alive *atomic.Int32
}

func (c *counted) Close() { c.alive.Add(-1) }

func TestAWorkerCannotBeGivenBackTwice(t *testing.T) {
	p := NewPool(newFactory().start, PoolOptions{})
	w := get(t, p)
	p.Put(w, true)
	defer closePool(t, p)
	defer func() {
		if recover() == nil {
			t.Error("one worker would have two users")
		}
	}()
	p.Put(w, true)
}

func ExamplePool() {
	type worker = *fake // has a Close method; most have a *Child in them
	pool := NewPool(func(context.Context) (worker, error) { return &fake{number: 1}, nil }, PoolOptions{Name: "greeter", Max: 2})
	w, err := pool.Get(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("worker", w.number)
	pool.Put(w, true)
	fmt.Println(pool.Close(context.Background()))
	// Output:
	// worker 1
	// <nil>
}
