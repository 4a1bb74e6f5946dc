package approval_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/approval"
	"toolpost/tool"
)

// An end is the outcome of a call that waited.
type end struct {
	r   *tool.Result
	err error
}

// waits makes a call that waits, and returns the id of its approval.
func (w *world) waits(t *testing.T, ctx context.Context, c *tool.Call) (id string, ended chan end) {
	t.Helper()
	ended = make(chan end, 1)
	go func() {
		r, err := w.Waiting(w.h).Invoke(ctx, c, tool.Discard)
		ended <- end{r, err}
	}()
	synctest.Wait()
	list, err := w.List(t.Context(), owner, approval.Waiting, 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	return list[0].ID, ended
}

func TestWaitingCallRunsWhenApproved(t *testing.T) {
	for name, change := range map[string]func(*tool.Call){
		"a call":               func(*tool.Call) {},
		"the call of a job":    func(c *tool.Call) { c.Background = true },
		"a call that one made": func(c *tool.Call) { c.Background, c.Parent = true, "job" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				c := call(change)
				id, ended := w.waits(t, t.Context(), c)
				w.decide(t, bob, id, yes(""))
				if got := <-ended; got.err != nil || !got.r.OK || w.ran.Load() != 1 || w.last.ID != c.ID {
					t.Errorf("%+v; it ran %d times, as %q", got, w.ran.Load(), w.last.ID)
				}
			})
		})
	}
}

func TestWaitingCallIsRefusedWhenDeniedOrExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		id, ended := w.waits(t, t.Context(), call())
		w.decide(t, bob, id, approval.Decision{Reason: "not today"})
		if got := <-ended; got.err == nil || tool.AsError(got.err).Reason != approval.WasDenied {
			t.Errorf("denied: %+v", got)
		}
		_, ended = w.waits(t, t.Context(), call())
		if got := <-ended; got.err == nil || tool.AsError(got.err).Reason != approval.TooLate || w.ran.Load() != 0 {
			t.Errorf("expired: %+v; it ran %d times", got, w.ran.Load())
		}
	})
}

func TestTimedOutCallFindsItsApprovalLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		id, ended := w.waits(t, ctx, call())
		got := <-ended
		if tool.CodeOf(got.err) != tool.CodeTimeout || !strings.Contains(tool.AsError(got.err).Message, id) {
			t.Errorf("%+v", got)
		}
		w.decide(t, bob, id, yes(""))
		r, err := w.Waiting(w.h).Invoke(t.Context(), call(), tool.Discard)
		if err != nil || !r.OK || w.ran.Load() != 1 {
			t.Errorf("%+v, %v; it ran %d times", r, err, w.ran.Load())
		}
	})
}

// Both look the same to the approver, and an approval lets one run: the other asks again.
func TestIdenticalCallsNeedOneApprovalEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		first, one := w.waits(t, t.Context(), call())
		if same, other := w.waits(t, t.Context(), call()); same != first {
			t.Errorf("%s and %s", first, same)
		} else {
			for n := int64(1); n <= 2; n++ {
				list, err := w.List(t.Context(), owner, approval.Waiting, 10)
				if err != nil || len(list) != 1 {
					t.Fatalf("%+v, %v", list, err)
				}
				w.decide(t, bob, list[0].ID, yes(""))
				synctest.Wait()
				if w.ran.Load() != n {
					t.Fatalf("%d ran after %d approvals", w.ran.Load(), n)
				}
			}
			for _, ended := range []chan end{one, other} {
				if got := <-ended; got.err != nil || !got.r.OK {
					t.Errorf("%+v", got)
				}
			}
		}
	})
}
