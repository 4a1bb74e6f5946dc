package queue_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/queue"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// slow is a tool that takes a second, and counts how many of its calls ran at once.
type slow struct{ now, most, ran atomic.Int32 }

func (s *slow) Invoke(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
	n := s.now.Add(1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	time.Sleep(time.Second)
	s.now.Add(-1)
	s.ran.Add(1)
	return &tool.Result{OK: true}, nil
}

// rush makes calls at once, and returns their errors.
func rush(h tool.Handler, n int) (errs []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			call := &tool.Call{Tool: "t", Resume: []string{"", "a question"}[i%2]} // answers have no precedence
			_, err := h.Invoke(context.Background(), call, tool.Discard)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errs
}

func places(n int) func() int { return func() int { return n } }

func TestCallsWaitForAPlaceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		h := queue.New(queue.Options{Calls: 100, Wait: time.Minute}, places(4)).Stage(s)
		began := time.Now()
		for _, err := range rush(h, 100) {
			kit.Check(t, err)
		}
		if took := time.Since(began); s.most.Load() != 4 || took != 25*time.Second {
			t.Errorf("%d at once, in %v", s.most.Load(), took)
		}
	})
}

// A refused caller gets a time to try again, and its call did not run.
func TestQueueIsBoundedInCallsAndTime(t *testing.T) {
	for reason, o := range map[string]queue.Options{"queue_full": {Calls: 10, Wait: time.Hour}, "queue_timeout": {Wait: 4500 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{}
			refused := 0
			for _, err := range rush(queue.New(o, places(2)).Stage(s), 50) {
				if err == nil {
					continue
				}
				refused++
				var d struct {
					Retry int64 `json:"retry_after_ms"`
				}
				e := tool.AsError(err)
				if e.Code != tool.CodeUnavailable || e.Reason != reason || !strings.Contains(e.Message, "try again in") {
					t.Error(err)
				}
				if json.Unmarshal(e.Details, &d) != nil || d.Retry < 100 || d.Retry > 60_000 {
					t.Errorf("%s", e.Details)
				}
			}
			if ran := int(s.ran.Load()); refused == 0 || ran+refused != 50 || ran < 10 {
				t.Errorf("%s: %d ran, %d were refused", reason, ran, refused)
			}
		})
	}
}

func TestCancelledCallFreesItsPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		h := queue.New(queue.Options{Calls: 1}, places(1)).Stage(s)
		var wg sync.WaitGroup
		wg.Go(func() { _ = rush(h, 1) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		kit.Refused(t, kit.Err(h.Invoke(ctx, &tool.Call{Tool: "t"}, tool.Discard)), tool.CodeTimeout, "was not run")
		if errs := rush(h, 1); errs[0] != nil {
			t.Error(errs[0])
		}
		wg.Wait()
	})
}

func TestCallsDoNotWaitWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		if rush(queue.New(queue.Options{}, places(0)).Stage(s), 500); s.most.Load() != 500 {
			t.Errorf("%d at once", s.most.Load())
		}
	})
}
