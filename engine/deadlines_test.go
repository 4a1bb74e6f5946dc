package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine"
	"toolpost/engine/queue"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// seconds returns a source whose tools may run for so many seconds each; they are named after that.
func seconds(run tool.HandlerFunc, limits ...int) *fake {
	f := &fake{run: run}
	for _, n := range limits {
		f.specs = append(f.specs, &tool.Spec{Name: fmt.Sprint(n), Timeout: time.Duration(n) * time.Second})
	}
	return f
}

func TestCallsSideBySideEndEachAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := []int{5, 1, 9, 3, 3, 7}
		e := start(t, engine.Options{}, bind("one", seconds(untilDone, 1, 3, 5, 7, 9)))
		begin := time.Now()
		var all sync.WaitGroup
		for i, n := range limits {
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			started := time.Since(begin)
			all.Go(func() {
				_, err := call(t, e, fmt.Sprint(n), ``)
				if err == nil || err.Code != tool.CodeTimeout {
					t.Errorf("%d: %v", n, err)
				}
				late := time.Since(begin) - started - time.Duration(n)*time.Second
				if late < 0 || late > time.Millisecond {
					t.Errorf("%d ended %v after its deadline", n, late)
				}
			})
		}
		all.Wait()
	})
}

func TestAQuickCallDoesNotMoveTheDeadlineOfASlowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if c.Tool == "2" {
				return &tool.Result{OK: true}, nil
			}
			return untilDone(ctx, c, out)
		}
		e := start(t, engine.Options{}, bind("one", seconds(run, 2, 4)))
		begin := time.Now()
		var slow sync.WaitGroup
		slow.Go(func() {
			if _, err := call(t, e, "4", ``); err == nil || err.Code != tool.CodeTimeout {
				t.Error(err)
			}
			kit.Equal(t, time.Since(begin), 4*time.Second, "took")
		})
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if _, err := call(t, e, "2", ``); err != nil {
				t.Error(err)
			}
		}
		slow.Wait()
	})
}

func TestCallContextHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept context.Context
		run := func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
			kept = ctx
			end, ok := ctx.Deadline()
			if !ok || time.Until(end) != 3*time.Second || ctx.Err() != nil {
				t.Errorf("%v, %v, %v", end, ok, ctx.Err())
			}
			child, stop := context.WithCancel(ctx)
			defer stop()
			<-child.Done()
			if code := tool.CodeOf(context.Cause(child)); !errors.Is(ctx.Err(), context.DeadlineExceeded) || code != tool.CodeTimeout {
				t.Errorf("%v, %v", ctx.Err(), code)
			}
			return &tool.Result{OK: true}, nil
		}
		e := start(t, engine.Options{}, bind("one", seconds(run, 3)))
		if _, err := call(t, e, "3", ``); err != nil {
			t.Error(err)
		}
		quick := start(t, engine.Options{}, bind("one", seconds(func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
			kept = ctx
			return &tool.Result{OK: true}, nil
		}, 3)))
		if _, err := call(t, quick, "3", ``); err != nil {
			t.Error(err)
		}
		select {
		case <-kept.Done():
		default:
			t.Error("after its call a context has not ended")
		}
		if !errors.Is(kept.Err(), context.Canceled) || !errors.Is(context.Cause(kept), context.Canceled) {
			t.Errorf("after its call a context says %v", kept.Err())
		}
	})
}

func TestACallersOwnEarlierDeadlineComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, engine.Options{}, bind("one", seconds(untilDone, 3)))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		begin := time.Now()
		if _, err := e.Invoke(ctx, &tool.Call{Tool: "3"}, tool.Discard); tool.CodeOf(err) != tool.CodeTimeout || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestLateHandlerSeesTheCauseOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		run := func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
			time.Sleep(5 * time.Second) // ignoring its context
			if v := ctx.Value(key{}); v != "kept" || !errors.Is(ctx.Err(), context.DeadlineExceeded) || tool.CodeOf(context.Cause(ctx)) != tool.CodeTimeout {
				t.Errorf("%v, %v, %v", v, ctx.Err(), context.Cause(ctx))
			}
			return nil, ctx.Err()
		}
		e := start(t, engine.Options{}, bind("one", seconds(run, 3)))
		ctx := context.WithValue(t.Context(), key{}, "kept")
		kit.Refused(t, kit.Err(e.Invoke(ctx, &tool.Call{Tool: "3"}, tool.Discard)), tool.CodeTimeout, "")
	})
}

func TestCancellationByTheCallerEndsTheCall(t *testing.T) {
	why := tool.Errorf(tool.CodeCancelled, "enough")
	e := start(t, engine.Options{}, bind("one", source(untilDone, "a")))
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(time.Millisecond, func() { stop(why) })
	if _, err := e.Invoke(ctx, &tool.Call{Tool: "a"}, tool.Discard); tool.AsError(err).Message != "enough" {
		t.Error(err)
	}
}

// A tool's time starts when a worker runs it: until then its clock is stopped, within a limit.
func TestWaitingForAWorkerIsNotTheToolsTime(t *testing.T) {
	for _, c := range []struct {
		waits, runs time.Duration
		want        tool.Code
		after       time.Duration
	}{
		{0, 4 * time.Second, "", 4 * time.Second},
		{20 * time.Second, 4 * time.Second, "", 24 * time.Second},
		{20 * time.Second, 6 * time.Second, tool.CodeTimeout, 25 * time.Second},
		{40 * time.Second, 0, tool.CodeUnavailable, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			run := func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				for _, d := range []time.Duration{c.waits / 2, c.waits - c.waits/2} { // it finds a worker, which is gone again
					goOn := tool.Waiting(ctx)
					tool.Waiting(ctx)() // nested, it has no effect
					select {
					case <-time.After(d):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					goOn()
				}
				select {
				case <-time.After(c.runs):
					return &tool.Result{OK: true}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			e := start(t, engine.Options{}, bind("one", seconds(run, 5)))
			began := time.Now()
			_, err := call(t, e, "5", ``)
			if took := time.Since(began); took-c.after > time.Millisecond || c.after > took {
				t.Errorf("%+v: it took %v", c, took)
			}
			if err != nil && err.Code != c.want || err == nil && c.want != "" {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

// A crowd has two tools that share places.
type crowd struct {
	*fake
	places int
}

func (c crowd) Places(string) (string, int) { return "both", c.places }

// A waiting call has not begun: it uses up no lease, and its clock does not run.
func TestQueuedCallHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
			time.Sleep(4 * time.Second)
			return &tool.Result{OK: true}, ctx.Err()
		}
		var leases atomic.Int32
		used := func(next tool.Handler) tool.Handler {
			return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				leases.Add(1)
				return next.Invoke(ctx, c, out)
			})
		}
		o := engine.Options{Queue: queue.Options{Calls: 7, Wait: time.Minute}, Stages: map[string]engine.Stage{
			"lease": func(*tool.Spec) tool.Middleware { return used },
		}}
		e := start(t, o, bind("one", crowd{seconds(run, 5, 6), 2}))
		var refused atomic.Int32
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				switch _, err := call(t, e, fmt.Sprint(5+i%2), ``); {
				case err != nil && err.Code == tool.CodeUnavailable:
					refused.Add(1)
				case err != nil:
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		if n := leases.Load(); n != 2 {
			t.Errorf("%d of the calls that wait have begun", n-2)
		}
		all.Wait()
		if refused.Load() != 1 || leases.Load() != 9 {
			t.Errorf("%d were refused, %d began", refused.Load(), leases.Load())
		}
	})
}
