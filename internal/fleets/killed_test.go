package fleets

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/pg"
	"toolpost/tool/tooltest"
)

// A hub is killed under 64 callers that repeat a call which it did not answer at the other hub, with the same key: each call gets its
// outcome, and has run once.
func TestAKilledHubFailsNoCallWithAKey(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, pg.New(t).Database(t), 2)
	s.work("one", netns.New(t, 11))
	s.work("two", netns.New(t, 12))
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	var mu sync.Mutex
	var disturbed, calm []time.Duration
	var made atomic.Int64
	for caller := range 64 {
		load.Go(func() {
			at := caller % 2
			for n := 0; ctx.Err() == nil; n++ {
				id, began, first := fmt.Sprintf("%d-%d", caller, n), time.Now(), true
				for { // however long the outcome takes
					a := call(context.WithoutCancel(ctx), s.hubs[at], "mark", fmt.Sprintf(`{"id":%q}`, id), "Idempotency-Key", id)
					if a.err == nil && a.OK {
						kit.Equal(t, a.said(), id)
						break
					}
					if a.err == nil && a.Error.Reason != "idempotency_unknown" && a.Error.Reason != "worker_gone" || time.Since(began) > time.Minute {
						t.Errorf("%s: %+v", id, a)
						return
					}
					at, first = 1, false
					time.Sleep(20 * time.Millisecond)
				}
				mu.Lock()
				if took := time.Since(began); first {
					calm = append(calm, took)
				} else {
					disturbed = append(disturbed, took)
				}
				mu.Unlock()
				made.Add(1)
				time.Sleep(time.Second) // the point is the death, and not the rate
			}
		})
	}
	kit.Eventually(t, "calls are made", func() bool { return made.Load() > 64 })
	s.hubs[0].Kill()
	until := made.Load() + 128
	kit.Eventually(t, "calls are made without the hub", func() bool { return made.Load() > until })
	stop()
	load.Wait()
	for id, n := range s.marks() {
		kit.Equal(t, n, 1, id)
	}
	kit.Equal(t, len(s.marks()), int(made.Load()))
	at := func(all []time.Duration, part float64) time.Duration {
		slices.Sort(all)
		return all[int(float64(len(all)-1)*part)].Round(time.Millisecond)
	}
	if len(disturbed) == 0 {
		t.Fatal("the death of the hub disturbed no call")
	}
	t.Logf("%d calls that the death disturbed took %v at the 99th percentile, %d others %v", len(disturbed), at(disturbed, 0.99), len(calm), at(calm, 0.99))
}
