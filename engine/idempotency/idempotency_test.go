package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"toolpost/engine/idempotency"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting answers with the number of the run, and emits an event.
func counting(runs *atomic.Int64) tool.Handler {
	return tool.HandlerFunc(func(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if err := out.Emit(tool.LogEvent("info", "running")); err != nil {
			return nil, err
		}
		n := runs.Add(1)
		return &tool.Result{OK: true, Output: fmt.Appendf(nil, `%d`, n), Trace: tool.Trace{Details: map[string]any{"n": n}}}, nil
	})
}

func call(key, args string) *tool.Call {
	return &tool.Call{
		Tool: "add", Key: key, Args: json.RawMessage(args), Session: "s",
		Caller: tool.Principal{ID: "ada"}, Spec: &tool.Spec{Name: "add", Source: "one"},
	}
}

func invoke(t *testing.T, h tool.Handler, c *tool.Call) (output string, hit bool, err error) {
	t.Helper()
	events := 0
	r, err := h.Invoke(t.Context(), c, tool.SinkFunc(func(tool.Event) error { events++; return nil }))
	if err != nil {
		return "", false, err
	}
	hit = r.Trace.Details[idempotency.Hit] == true
	if hit && events > 0 {
		t.Error("a replay emitted events")
	}
	return string(r.Output), hit, nil
}

func TestTheSameKeyAndInputAreAnsweredFromMemory(t *testing.T) {
	var runs atomic.Int64
	h := idempotency.New(idempotency.Options{}).For(nil)(counting(&runs))
	if out, hit, _ := invoke(t, h, call("k", `{"a":1,"b":[2,3.50]}`)); out != "1" || hit {
		t.Errorf("the first call: %s, hit %v", out, hit)
	}
	if out, hit, _ := invoke(t, h, call("k", ` { "b":[2,3.50], "a":1 } `)); out != "1" || !hit {
		t.Errorf("the same input in another layout: %s, hit %v", out, hit)
	}
	for name, other := range map[string]func(*tool.Call){
		"no key":         func(c *tool.Call) { c.Key = "" },
		"another key":    func(c *tool.Call) { c.Key = "k2" },
		"another caller": func(c *tool.Call) { c.Caller.ID = "eve" },
		"other session":  func(c *tool.Call) { c.Session = "s2" },
		"another tool":   func(c *tool.Call) { c.Spec = &tool.Spec{Name: "sub", Source: "one"} },
		"another source": func(c *tool.Call) { c.Spec = &tool.Spec{Name: "add", Source: "two"} },
		"shifted parts":  func(c *tool.Call) { c.Session, c.Caller.ID = "as", "ad" },
	} {
		c := call("k", `{"a":1,"b":[2,3.50]}`)
		other(c)
		if _, hit, err := invoke(t, h, c); hit || err != nil {
			t.Errorf("%s: hit %v, %v", name, hit, err)
		}
	}
}

func TestAnotherInputUnderTheSameKeyIsAConflict(t *testing.T) {
	var runs atomic.Int64
	h := idempotency.New(idempotency.Options{}).For(nil)(counting(&runs))
	first := `{"n":9007199254740993}`
	if _, _, err := invoke(t, h, call("k", first)); err != nil {
		t.Fatal(err)
	}
	answered := call("k", first)
	answered.Resume, answered.Answers = "q", json.RawMessage(`{"yes":true}`)
	for name, c := range map[string]*tool.Call{
		"other": call("k", `{"n":1}`), "a near number": call("k", `{"n":9007199254740992}`), "answers": answered,
	} {
		_, _, err := invoke(t, h, c)
		if e := tool.AsError(err); e == nil || e.Code != tool.CodeConflict || e.Reason != "idempotency_conflict" {
			t.Errorf("%s: %v", name, err)
		}
	}
	kit.Equal(t, runs.Load(), 1, "runs")
	if _, _, err := invoke(t, h, call("k", `{`)); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Errorf("no JSON: %v", err)
	}
}

func TestToolFailuresAreRecordedAndRefusalsAndQuestionsAreNot(t *testing.T) {
	for name, c := range map[string]struct {
		result *tool.Result
		err    error
		again  int64
	}{
		"a success":        {&tool.Result{OK: true}, nil, 1},
		"a tool's failure": {tool.Failed("", "no"), nil, 1},
		"a refusal":        {nil, tool.Errorf(tool.CodeLeaseRequired, "lease"), 2},
		"a crash":          {nil, errors.New("crash"), 2},
		"a question":       {&tool.Result{Ask: &tool.Ask{ID: "q"}}, nil, 2},
	} {
		var runs atomic.Int64
		h := idempotency.New(idempotency.Options{}).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			runs.Add(1)
			return c.result, c.err
		}))
		for range 2 {
			r, err := h.Invoke(t.Context(), call("k", `{}`), tool.Discard)
			if (r == nil) == (err == nil) {
				t.Errorf("%s: %v and %v", name, r, err)
			}
		}
		kit.Equal(t, runs.Load(), c.again, "%s ran", name)
		if c.result != nil && c.result.Trace.Details != nil {
			t.Errorf("%s: the recorded result was changed", name)
		}
	}
}

// contract(machina): | `IDEMP_DEFAULT_TTL_MS` | 60000ms | `toolhost/main.cpp` |
func TestAnOutcomeIsRememberedForSixtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		h := idempotency.New(idempotency.Options{}).For(nil)(counting(&runs))
		for at, want := range []string{0: "1", 59: "1", 60: "2", 119: "2", 120: "3"} {
			if want == "" {
				time.Sleep(time.Second)
				continue
			}
			if out, _, _ := invoke(t, h, call("k", `{}`)); out != want {
				t.Errorf("after %d s: %s, want %s", at, out, want)
			}
			time.Sleep(time.Second)
		}
	})
}

// contract(machina): | `IDEMP_MAX_ENTRIES` | 1024 | `toolhost/main.cpp` |
func TestOf1025OutcomesTheLeastRecentlyUsedIsForgotten(t *testing.T) {
	var runs atomic.Int64
	h := idempotency.New(idempotency.Options{}).For(nil)(counting(&runs))
	key := func(n int) *tool.Call { return call(fmt.Sprint("k", n), `{}`) }
	for n := range 1024 {
		if _, hit, _ := invoke(t, h, key(n)); hit {
			t.Fatal("a new key was a hit")
		}
	}
	if _, hit, _ := invoke(t, h, key(0)); !hit { // used again: 1 is the oldest now
		t.Error("1,024 outcomes were not kept")
	}
	_, _, _ = invoke(t, h, key(1024))
	for n, want := range map[int]bool{0: true, 2: true, 1024: true} {
		if _, hit, _ := invoke(t, h, key(n)); hit != want {
			t.Errorf("key %d: hit %v", n, hit)
		}
	}
	if _, hit, _ := invoke(t, h, key(1)); hit {
		t.Error("the least recently used outcome was kept")
	}
}

func TestLargeOutcomesDoNotPileUp(t *testing.T) {
	runs := 0
	h := idempotency.New(idempotency.Options{MaxBytes: 1000}).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		runs++
		return &tool.Result{OK: true, Output: json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)}, nil
	}))
	for _, key := range []string{"a", "a", "b", "b", "a"} { // the newest stays, however large
		if _, _, err := invoke(t, h, call(key, `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	kit.Equal(t, runs, 3, "runs")
}

func TestDuplicatesInFlightWaitForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		h := idempotency.New(idempotency.Options{}).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			time.Sleep(time.Second)
			return &tool.Result{OK: true, Output: fmt.Appendf(nil, "%d", runs.Add(1))}, nil
		}))
		var wg sync.WaitGroup
		var hits atomic.Int64
		for range 100 {
			wg.Go(func() {
				out, hit, err := invoke(t, h, call("k", `{}`))
				if out != "1" || err != nil {
					t.Errorf("%s, %v", out, err)
				}
				if hit {
					hits.Add(1)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 || hits.Load() != 99 {
			t.Errorf("%d runs, %d hits", runs.Load(), hits.Load())
		}
	})
}

func TestWaitingDuplicateTakesOverFromAFailedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		h := idempotency.New(idempotency.Options{}).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			time.Sleep(time.Second)
			switch runs.Add(1) {
			case 1:
				return nil, errors.New("crash")
			case 2:
				panic("worse")
			}
			return &tool.Result{OK: true}, nil
		}))
		var wg sync.WaitGroup
		var failed atomic.Int64
		for range 10 {
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						failed.Add(1)
					}
				}()
				if _, _, err := invoke(t, h, call("k", `{}`)); err != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 3 || failed.Load() != 2 {
			t.Errorf("%d runs, %d failed", runs.Load(), failed.Load())
		}
	})
}

func TestWaitingDuplicateCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := idempotency.New(idempotency.Options{}).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			<-release
			return &tool.Result{OK: true}, nil
		}))
		var wg sync.WaitGroup
		wg.Go(func() { _, _, _ = invoke(t, h, call("k", `{}`)) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Invoke(ctx, call("k", `{}`), tool.Discard); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(release)
		wg.Wait()
	})
}

func TestManyCallersAtOnce(t *testing.T) {
	var runs atomic.Int64
	h := idempotency.New(idempotency.Options{Max: 8}).For(nil)(counting(&runs))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 200 {
				if _, _, err := invoke(t, h, call(fmt.Sprint((n*7+i)%20), `{}`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
