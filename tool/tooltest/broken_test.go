package tooltest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// A broken handler is the reference with one fault.
type broken struct {
	name  string
	check string // the check that finds it
	want  string // what the suite reports
	with  fault
}

// A fault is a handler's Invoke, with the test to which it may tie what it leaves behind.
type fault func(ctx context.Context, t *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error)

// answering always returns the same outcome.
func answering(r *tool.Result, err error) fault {
	return func(context.Context, *testing.T, *tool.Call, tool.Sink) (*tool.Result, error) { return r, err }
}

func TestBrokenHandlersAreFound(t *testing.T) {
	for _, b := range slices.Concat(brokenOutcomes(), brokenEvents(), brokenEnds(), brokenLeaks()) {
		t.Run(b.name, func(t *testing.T) {
			i := slices.IndexFunc(checks(), func(c check) bool { return c.name == b.check })
			if i < 0 {
				t.Fatalf("there is no check %q", b.check)
			}
			h := tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				return b.with(ctx, t, c, out)
			})
			r := &recorder{TB: t}
			s := Subject{New: func(testing.TB) tool.Handler { return h }, Grace: 300 * time.Millisecond}
			s.verify(r, checks()[i])
			kit.Contains(t, r.finish(), b.want, "the suite")
		})
	}
}

func brokenOutcomes() []broken {
	ref := Reference{}.Invoke
	return []broken{
		{"returns both nil", "echo returns its arguments", "neither a result nor an error",
			answering(nil, nil)},
		{"returns both", "echo returns its arguments", "both a result and an error",
			answering(&tool.Result{OK: true}, errors.New("and an error"))},
		{"an OK result with a failure", "a tool's failure is a result", "is OK and has a failure",
			func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				r, err := ref(ctx, c, out)
				r.OK = true
				return r, err
			}},
		{"a failure without a reason", "a tool's failure is a result", "does not say why",
			answering(&tool.Result{}, nil)},
		{"a failure as an error", "a tool's failure is a result", "as an error and not as a result",
			answering(nil, errors.New("the tool failed"))},
		{"a failure without the tool's words", "a tool's failure is a result", "the caller reads",
			answering(tool.Failed("", "it failed"), nil)},
		{"output that is not JSON", "echo returns its arguments", "not JSON",
			answering(&tool.Result{OK: true, Output: []byte(`{"a":1,"a":2}`)}, nil)},
		{"numbers become floats", "echo returns its arguments", "back",
			func(_ context.Context, _ *testing.T, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
				return &tool.Result{OK: true, Output: []byte(strings.ReplaceAll(string(c.Args), "1.50", "1.5"))}, nil
			}},
		{"changes the arguments", "echo returns its arguments", "changed the call's Args",
			func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				c.Args[0] = ' '
				return ref(ctx, c, out)
			}},
		{"changes the spec", "echo returns its arguments", "changed the call's Spec",
			func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				c.Spec.Timeout = time.Second
				return ref(ctx, c, out)
			}},
		{"knows every tool", "an unknown tool is not found", "error of code not_found",
			answering(&tool.Result{OK: true}, nil)},
		{"a crash as a failure", "a crash is an error", "error of code crash",
			answering(tool.Failed("", "it crashed"), nil)},
		{"does not survive a crash", "a crash is an error", "echo: the worker is gone",
			func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				if c.Tool == "echo" {
					return nil, errors.New("the worker is gone")
				}
				return ref(ctx, c, out)
			}},
	}
}

func brokenEvents() []broken {
	return []broken{
		{"drops the last event", "events come in order and before the outcome", "of 1 events had come",
			rewriting(func(logs []tool.Event) []tool.Event { return logs[:max(0, len(logs)-1)] })},
		{"reorders", "events come in order and before the outcome", "was due",
			rewriting(func(logs []tool.Event) []tool.Event { slices.Reverse(logs); return logs })},
		{"repeats", "events come in order and before the outcome", "was due",
			rewriting(func(logs []tool.Event) []tool.Event { return slices.Repeat(logs, 2) })},
		{"data that is not an object", "events come in order and before the outcome", "the data of an event",
			rewriting(func(logs []tool.Event) []tool.Event {
				return append(logs, tool.Event{Kind: tool.KindLog, Data: []byte(`[1]`)})
			})},
		{"an unknown kind", "events come in order and before the outcome", "unknown kind",
			rewriting(func(logs []tool.Event) []tool.Event {
				return append(logs, tool.Event{Kind: "shout", Data: []byte(`{}`)})
			})},
		{"mixes calls", "calls at the same time do not mix", "echo: sent", mixing()},
		{"emits after the return", "events come in order and before the outcome", "after Invoke had returned",
			func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				go func() {
					time.Sleep(20 * time.Millisecond)
					_ = out.Emit(tool.LogEvent("info", "too late"))
				}()
				return Reference{}.Invoke(ctx, c, out)
			}},
		{"swallows the sink's error", "a sink's error stops the call", "the sink said", swallowing},
		{"runs on after the sink's error", "a sink's error ends a tool that would never end", "went on after", swallowing},
		{"says another error than the sink's", "a sink's error stops the call", "the sink said",
			func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				if r, err := (Reference{}).Invoke(ctx, c, out); err == nil {
					return r, nil
				}
				return nil, errors.New("something went wrong")
			}},
		{"queues without bound", "a sink that blocks holds the tool back", "taken from the tool", queueing},
		{"floods with small events", "a sink that blocks holds the tool back", "1 KiB is the least",
			func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				return Reference{}.Invoke(ctx, c, tool.SinkFunc(func(tool.Event) error {
					return out.Emit(tool.LogEvent("info", "small"))
				}))
			}},
	}
}

// rewriting collects the events of a call and passes on what change makes of them.
func rewriting(change func([]tool.Event) []tool.Event) fault {
	return func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		var got Collect
		r, err := Reference{}.Invoke(ctx, c, &got)
		for _, e := range change(got.Events()) {
			if err := out.Emit(e); err != nil {
				return nil, err
			}
		}
		return r, err
	}
}

// mixing returns to every call the output of the call before it.
func mixing() fault {
	var mu sync.Mutex
	last := &tool.Result{OK: true, Output: []byte(`{}`)}
	return func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		r, err := Reference{}.Invoke(ctx, c, out)
		mu.Lock()
		defer mu.Unlock()
		r, last = last, r
		return r, err
	}
}

// swallowing hides the sink's errors from the tool.
func swallowing(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	return Reference{}.Invoke(ctx, c, tool.SinkFunc(func(e tool.Event) error {
		_ = out.Emit(e)
		return nil
	}))
}

// queueing takes events from the tool however slow the caller is.
func queueing(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	var mu sync.Mutex
	var queue []tool.Event
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for ctx.Err() == nil {
			mu.Lock()
			next := queue
			queue = nil
			mu.Unlock()
			for _, e := range next {
				if ctx.Err() == nil {
					_ = out.Emit(e)
				}
			}
		}
	})
	return Reference{}.Invoke(ctx, c, tool.SinkFunc(func(e tool.Event) error {
		mu.Lock()
		defer mu.Unlock()
		queue = append(queue, e)
		return nil
	}))
}

func brokenEnds() []broken {
	endless := func(_ context.Context, t *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		return Reference{}.Invoke(t.Context(), c, out) // ends with the test, so that nothing is left
	}
	return []broken{
		{"ignores cancel", "a cancelled call returns promptly", "did not return within", endless},
		{"ignores a cancel from before", "a call that was cancelled before it began returns promptly", "did not return within", endless},
		{"ignores the deadline", "a deadline is a timeout", "did not return within", endless},
		{"says cancelled for a deadline", "a deadline is a timeout", "error of code timeout",
			func(ctx context.Context, _ *testing.T, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
				<-ctx.Done()
				return nil, context.Canceled
			}},
		{"a result for a cancelled call", "a cancelled call returns promptly", "error of code cancelled",
			func(ctx context.Context, _ *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				_, _ = Reference{}.Invoke(ctx, c, out)
				return &tool.Result{OK: true, Output: []byte(`{}`)}, nil
			}},
		{"does not hang", "a cancelled call returns promptly", "ended before it said",
			answering(&tool.Result{OK: true}, nil)},
	}
}

func brokenLeaks() []broken {
	return []broken{
		{"leaks a goroutine", "an unknown tool is not found", "something is left behind",
			func(ctx context.Context, t *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				go func() { <-t.Context().Done() }()
				return Reference{}.Invoke(ctx, c, out)
			}},
		{"leaks a process", "an unknown tool is not found", "(sleep)",
			func(ctx context.Context, t *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				startSleep(t, "1000", false)
				return Reference{}.Invoke(ctx, c, out)
			}},
		{"leaks a zombie", "an unknown tool is not found", "was not waited for",
			func(ctx context.Context, t *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				startSleep(t, "0", false)
				return Reference{}.Invoke(ctx, c, out)
			}},
		{"leaves processes after the return", "processes of a tool that returned are ended", "still run", leaving},
		{"leaves sessions after the return", "processes in their own sessions are ended", "still run", leaving},
		{"leaves processes after a cancel", "processes of a cancelled tool are ended", "still run", leaving},
		{"leaves sessions after a cancel", "processes in their own sessions are ended on cancel", "still run", leaving},
		{"only says that it started processes", "processes of a cancelled tool are ended", "ended before 3 processes",
			answering(&tool.Result{OK: true, Output: []byte(`{"started":3}`)}, nil)},
	}
}

// leaving is a spawn that does not clean up.
func leaving(ctx context.Context, t *testing.T, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	for range children {
		startSleep(t, mark(), strings.Contains(string(c.Args), `"setsid":true`))
	}
	err := eventually(limit, func() error { // until each is a sleep, and no longer the shell that starts it
		if n := len(sleepers()); n < children {
			return fmt.Errorf("%d of %d processes sleep", n, children)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(c.Args), `"hang":true`) {
		return hang(ctx, out)
	}
	return &tool.Result{OK: true, Output: []byte(`{"started":3}`)}, nil
}

// startSleep starts a process that is not waited for before the test ends; orphans get another parent at once.
func startSleep(t *testing.T, seconds string, orphan bool) {
	argv := []string{"sleep", seconds}
	if orphan {
		argv = []string{"sh", "-c", `setsid sleep "$0" >/dev/null 2>&1 &`, seconds}
	}
	c := exec.Command(argv[0], argv[1:]...)
	if err := c.Start(); err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}
