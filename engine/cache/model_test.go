package cache_test

import (
	"context"
	"encoding/json"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"toolpost/engine/cache"
	"toolpost/tool"
)

// A register is a number that only grows. It is the model: the least that every read must see.
type register struct {
	value atomic.Int64
	done  atomic.Int64 // the largest number whose write has been answered
}

// pause lets other goroutines run at a moment that the test chose.
func pause(steps int) {
	for range steps {
		runtime.Gosched()
	}
}

// A step is one call of a goroutine.
type step struct {
	write, other  bool // other means through the tool of another source, which the rule names
	before, after int  // pauses around the moment at which the value is read or written
}

func steps(t *rapid.T, name string) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			rapid.IntRange(0, 3).Draw(t, "write") == 0, rapid.Bool().Draw(t, "other"),
			rapid.IntRange(0, 4).Draw(t, "before"), rapid.IntRange(0, 4).Draw(t, "after"),
		}
	}), 1, 40).Draw(t, name)
}

// world is a register behind three tools with their stages.
type world struct {
	register
	cache              *cache.Cache
	read, write, other tool.Handler
	spec               *tool.Spec
}

func newWorld() *world {
	w := &world{cache: cache.New(cache.Options{})}
	w.cache.Replace([]cache.Rule{{Tools: tool.Patterns{"read"}, TTL: time.Hour, Invalidate: tool.Patterns{"b.write"}}})
	stage := func(s *tool.Spec, f tool.HandlerFunc) tool.Handler { return w.cache.For(s)(f) }
	w.spec = &tool.Spec{Name: "read", Source: "a", Effects: tool.Effects{Reads: true}}
	w.read = stage(w.spec, func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		s := ctx.Value(stepKey{}).(step)
		pause(s.before)
		seen := w.value.Load()
		pause(s.after)
		return &tool.Result{OK: true, Output: json.RawMessage(strconv.FormatInt(seen, 10))}, nil
	})
	change := func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		s := ctx.Value(stepKey{}).(step)
		pause(s.before)
		n := w.value.Add(1)
		pause(s.after)
		return &tool.Result{OK: true, Output: json.RawMessage(strconv.FormatInt(n, 10))}, nil
	}
	w.write = stage(&tool.Spec{Name: "write", Source: "a"}, change)
	w.other = stage(&tool.Spec{Name: "write", Source: "b"}, change)
	return w
}

type stepKey struct{}

// take makes one call and reports whether its answer is wrong.
func (w *world) take(s step) (wrong bool) {
	h := w.read
	switch {
	case s.write && s.other:
		h = w.other
	case s.write:
		h = w.write
	}
	least := w.done.Load()
	r, err := h.Invoke(context.WithValue(context.Background(), stepKey{}, s), &tool.Call{Args: json.RawMessage(`{}`), Spec: w.spec}, tool.Discard)
	if err != nil {
		return true
	}
	n, _ := strconv.ParseInt(string(r.Output), 10, 64)
	if !s.write {
		return n < least
	}
	for {
		was := w.done.Load()
		if was >= n || w.done.CompareAndSwap(was, n) {
			return false
		}
	}
}

func TestReadAfterWriteSeesTheNewValue(t *testing.T) {
	var hits int64
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		plans := [][]step{steps(t, "first"), steps(t, "second"), steps(t, "third")}
		var wg sync.WaitGroup
		var old atomic.Int64
		for _, plan := range plans {
			wg.Go(func() {
				for _, s := range plan {
					if w.take(s) {
						old.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := old.Load(); n > 0 {
			t.Fatalf("%d reads saw an old value", n)
		}
		hits += w.cache.Stats().Hits
	})
	if hits == 0 {
		t.Error("nothing was ever answered from memory: the test proves nothing")
	}
}
