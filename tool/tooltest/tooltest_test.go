package tooltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func reference(testing.TB) tool.Handler { return Reference{} }

func TestTheReferencePasses(t *testing.T) {
	Run(t, Subject{New: reference})
}

// A recorder replaces the test that a check reports to.
type recorder struct {
	testing.TB
	errs     []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Error(args ...any)         { r.errs = append(r.errs, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.errs = append(r.errs, fmt.Sprintf(f, a...)) }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }

// finish runs the clean-ups and returns what was reported.
func (r *recorder) finish() string {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return strings.Join(r.errs, "\n")
}

func TestNoLeaksEndsLeftoverProcesses(t *testing.T) {
	r := &recorder{TB: t}
	noLeaks(r, 50*time.Millisecond, nil)
	startSleep(t, mark(), true)
	kit.OK(t, eventually(limit, func() error {
		if len(sleepers()) == 0 {
			return errors.New("no sleeper is there yet")
		}
		return nil
	}))
	kit.Contains(t, r.finish(), "(sleep)", "an orphan in its own session was not found")
	kit.Check(t, eventually(limit, func() error { return describe(sleepers()) }), "it was not ended")
}

func TestDescendantsAreFoundAtAnyDepth(t *testing.T) {
	NoLeaks(t)
	c := exec.CommandContext(t.Context(), "sh", "-c", "sh -c 'sleep 1000; :' & wait")
	kit.OK(t, c.Start())
	kit.Check(t, eventually(limit, func() error {
		if n := len(Descendants(os.Getpid())); n != 3 {
			return fmt.Errorf("%d descendants, not 3", n)
		}
		return nil
	}))
	for _, pid := range Descendants(os.Getpid()) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
	_ = c.Wait()
}

func TestStatLinesWithStrangeNames(t *testing.T) {
	const rest = "S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1"
	for line, want := range map[string]proc{
		"12 (sleep) " + rest:          {pid: 12, ppid: 7, name: "sleep", state: "S", start: "4711"},
		"12 (a) S 9 (b) (c)) " + rest: {pid: 12, ppid: 7, name: "a) S 9 (b) (c)", state: "S", start: "4711"},
	} {
		if got, ok := parseStat(line); !ok || got != want {
			t.Errorf("%s\ngot  %+v %v\nwant %+v", line, got, ok, want)
		}
	}
	for _, line := range []string{"", "12", "12 (sleep", "12 (sleep) S 7", "x (sleep) " + rest, "12 (sleep) S y" + rest[3:]} {
		if _, ok := parseStat(line); ok {
			t.Errorf("%q was taken for a process", line)
		}
	}
}

func TestNumbersByValue(t *testing.T) {
	p := &probe{without: Digits, grace: time.Second}
	floats := func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: []byte(strings.NewReplacer("1.50", "1.5", "2.5e-3", "0.0025").Replace(string(c.Args)))}, nil
	}
	kit.OK(t, p.open(tool.HandlerFunc(floats)))
	kit.Check(t, echoes(p), "other digits of the same value")
	p.h = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: []byte(`{"n":[1.6]}`)}, nil
	})
	if p.echo(`{"n":[1.5]}`) == nil {
		t.Error("another value passed")
	}
}

func TestFeaturesThatAreMissingAreNotAskedFor(t *testing.T) {
	bare := tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if c.Tool != "echo" && c.Tool != "fail" {
			t.Errorf("%s was called", c.Tool)
		}
		return Reference{}.Invoke(ctx, c, out)
	})
	Run(t, Subject{
		New:     func(testing.TB) tool.Handler { return bare },
		Without: Events | Cancel | Crash | Spawn | Names | Digits,
	})
}

func TestCollectWaits(t *testing.T) {
	var c Collect
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(time.Millisecond, func() { _ = c.Emit(tool.LogEvent("info", "ready")) })
	kit.Check(t, c.WaitLog(ctx, "ready"))
	cancel()
	if err := c.WaitLog(ctx, "never"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_ = c.Emit(tool.NewEvent(tool.KindProgress, tool.Progress{Progress: 1}))
	if got := c.Logs(); !slices.Equal(got, []string{"ready"}) || len(c.Events()) != 2 {
		t.Errorf("logs %q of %d events", got, len(c.Events()))
	}
}
