package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A growing source signals when its tools change.
type growing struct {
	*fake
	tool.Changes
	mu     sync.Mutex
	listed atomic.Int32
}

func (g *growing) Tools(context.Context) ([]*tool.Spec, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed.Add(1)
	return g.specs, g.err
}

func (g *growing) become(err error, names ...string) {
	g.mu.Lock()
	g.specs, g.err = source(nil, names...).specs, err
	g.mu.Unlock()
	g.Tell()
}

func TestASourceThatSaysItsToolsChangedIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		src := &growing{fake: source(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if c.Tool == "slow" {
				<-release
			}
			return echo(ctx, c, out)
		}, "slow")}
		e := start(t, engine.Options{}, bind("one", src), bind("two", source(echo, "b")))
		ended := make(chan *tool.Error)
		go func() {
			_, err := call(t, e, "slow", ``)
			ended <- err
		}()
		synctest.Wait()
		changed := e.Changed()
		src.become(nil, "a", "b")
		<-changed
		kit.Equal(t, cmp.Diff(map[string]string{"a": "one", "b": "two", "one.b": "one"}, listing(e)), "")
		if _, err := call(t, e, "a", ``); err != nil {
			t.Error(err)
		}
		if _, err := call(t, e, "slow", ``); err == nil || err.Code != tool.CodeNotFound {
			t.Errorf("a tool that is gone: %v", err)
		}
		close(release)
		if err := <-ended; err != nil || src.closed.Load() {
			t.Errorf("the call that ran: %v; closed: %v", err, src.closed.Load())
		}
	})
}

func TestFailedListingKeepsToolsAndIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &growing{fake: source(echo, "a")}
		e := start(t, engine.Options{}, bind("one", src))
		src.become(errors.New("not now"))
		time.Sleep(5 * time.Second)
		if _, err := call(t, e, "a", ``); err != nil {
			t.Errorf("while it cannot be asked: %v", err)
		}
		src.mu.Lock()
		src.specs, src.err = source(nil, "c").specs, nil // without a signal
		src.mu.Unlock()
		time.Sleep(time.Minute)
		kit.Equal(t, cmp.Diff(map[string]string{"c": "one"}, listing(e)), "")
	})
}

func TestRelistingIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &growing{fake: source(echo, "a")}
		e := start(t, engine.Options{}, bind("one", src))
		changed := e.Changed()
		for range 1000 {
			src.Tell()
			time.Sleep(time.Millisecond)
		}
		if n := src.listed.Load(); n < 2 || n > 12 {
			t.Errorf("listed %d times within a second", n)
		}
		select {
		case <-changed:
			t.Error("a catalogue that is the same was said to have changed")
		default:
		}
	})
}

func TestCatalogueReportsChangesAndBrokenTools(t *testing.T) {
	src := source(echo, "good", "bad")
	src.specs[1].Aliases = []string{"worse"}
	src.broken = map[string]error{"bad": errors.New("its manifest is wrong")}
	e := engine.New(engine.Options{})
	defer e.Close(context.Background())
	changed := e.Changed()
	e.Replace(t.Context(), []engine.Binding{bind("one", src)})
	select {
	case <-changed:
	default:
		t.Error("sources came, and nobody heard of it")
	}
	for name, want := range map[string]string{
		"good": "", "bad": "its manifest is wrong", "worse": "its manifest is wrong", "one.bad": "its manifest is wrong", "none": "",
	} {
		got := ""
		if err := tool.WhyNot(t.Context(), e, tool.Principal{}, name); err != nil {
			got = err.Error()
		}
		kit.Equal(t, got, want, name)
	}
	nobody := tool.Principal{Rights: &tool.Rights{Tools: tool.Patterns{}}}
	kit.Check(t, e.WhyNot(t.Context(), nobody, "bad"), "who may not see the tool learns about it")
}
