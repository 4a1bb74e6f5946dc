package all_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/all"
	"toolpost/tool"
)

// A pretended runner notes who calls it. Its calls last until they are told to end.
type pretended struct {
	tool.Changes
	mu      sync.Mutex
	callers map[string]bool
	listed  atomic.Int64
	asks    atomic.Bool
	closed  atomic.Bool
	hold    chan struct{} // calls of the tool wait wait for it
}

func (p *pretended) Tools(context.Context) ([]*tool.Spec, error) {
	p.listed.Add(1)
	return []*tool.Spec{{Name: "run"}}, nil
}

func (p *pretended) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	p.mu.Lock()
	p.callers[c.Caller.ID] = true
	p.mu.Unlock()
	if c.Tool == "wait" {
		select {
		case <-p.hold:
		case <-ctx.Done():
			return nil, tool.Ended(ctx)
		}
	}
	return &tool.Result{OK: true}, nil
}

func (p *pretended) Close(context.Context) error { p.closed.Store(true); return nil }
func (p *pretended) KeepsAsking() bool           { return p.asks.Load() }
func (p *pretended) Places(string) (string, int) { return "all", 2 }
func (p *pretended) Workers() tool.Workers       { return tool.Workers{Alive: 1} }

// A troupe is a source of pretended runners.
type troupe struct {
	tool.Runner
	mu   sync.Mutex
	all  []*pretended
	hold chan struct{}
	key  atomic.Value
	fail atomic.Bool
	t    testing.TB
}

func newTroupe(t testing.TB, exposed bool) *troupe {
	t.Helper()
	tr := &troupe{hold: make(chan struct{}), t: t}
	tr.key.Store("canary-first")
	p := all.Protocol{Name: "pretended", Keys: all.KeysByCaller}
	p.Open = func(_ context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
		if tr.fail.Load() {
			return nil, tool.Errorf(tool.CodeUnavailable, "it does not start")
		}
		if in, ok := src.Injector.(interface {
			Secret(string) (string, error)
			Exposes() []string
		}); ok && len(in.Exposes()) > 0 {
			kit.Must(in.Secret("api"))(t)
		}
		one := &pretended{callers: map[string]bool{}, hold: tr.hold}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.all = append(tr.all, one)
		return one, nil
	}
	src := config.Source{Name: "up", Connections: []string{"api"}}
	src.Credentials = []*tool.Credential{{Connection: "api", Hosts: []string{"api.example.com"}, Env: "API_KEY", Exposed: exposed}}
	tr.Runner = kit.Must(p.OpenSource(t.Context(), src, slog.New(slog.DiscardHandler)))(t)
	return tr
}

func (tr *troupe) call(caller, name string) error {
	c := &tool.Call{Tool: name, Caller: tool.Principal{ID: caller}}
	c.Credentials = []*tool.Credential{{
		Connection: "api", Value: func(context.Context) (string, error) { return tr.key.Load().(string), nil },
	}}
	_, err := tr.Invoke(tr.t.Context(), c, tool.Discard)
	return err
}

// open counts the instances that have not been closed, with the first.
func (tr *troupe) open() (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, one := range tr.all {
		if len(one.callers) > 1 {
			tr.t.Errorf("one instance served %v", one.callers)
		}
		if !one.closed.Load() {
			n++
		}
	}
	return n
}

func TestIdleInstancesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTroupe(t, false)
		kit.OK(t, tr.call("ada", "run"))
		kit.OK(t, tr.call("bob", "run"))
		kit.OK(t, tr.call("ada", "run"))
		kit.Equal(t, tr.open(), 3)
		kit.Equal(t, tr.Runner.(tool.Staffed).Workers().Alive, 3)
		tr.all[1].asks.Store(true)
		go func() { _ = tr.call("cyd", "wait") }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		kit.Equal(t, tr.open(), 3, "the first, that of ada, which has asked, and that of cyd, which runs")
		tr.all[1].asks.Store(false)
		close(tr.hold)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		kit.Equal(t, tr.open(), 1)
		kit.OK(t, tr.call("ada", "run"))
		kit.Equal(t, len(tr.all), 5)
		kit.OK(t, tr.Close(t.Context()))
		kit.Equal(t, tr.open(), 0)
	})
}

func TestInstancesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTroupe(t, false)
		_, places := tr.Runner.(interface{ Places(string) (string, int) }).Places("run")
		kit.Equal(t, places, 128)
		kit.OK(t, tr.call("idle", "run"))
		for i := range 63 {
			go func() { _ = tr.call(fmt.Sprint("busy", i), "wait") }()
		}
		synctest.Wait()
		kit.OK(t, tr.call("next", "run"))
		synctest.Wait()
		kit.Equal(t, tr.open(), 65, "that of idle has ended")
		go func() { _ = tr.call("next", "wait") }()
		synctest.Wait()
		kit.Refused(t, tr.call("last", "run"), tool.CodeUnavailable, "works for 64 callers")
		close(tr.hold)
		synctest.Wait()
		kit.OK(t, tr.call("last", "run"))
		kit.OK(t, tr.Close(t.Context()))
		kit.Equal(t, tr.open(), 0)
	})
}

func TestInstanceThatDoesNotOpenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTroupe(t, false)
		tr.fail.Store(true)
		kit.Refused(t, tr.call("ada", "run"), tool.CodeUnavailable, "does not start")
		tr.fail.Store(false)
		kit.OK(t, tr.call("ada", "run"))
		tr.all[1].Tell()
		kit.OK(t, tr.call("ada", "run"))
		kit.Equal(t, tr.all[1].listed.Load(), 2, "its tools changed")
		kit.OK(t, tr.Close(t.Context()))
	})
}

func TestExposedKeyThatChangesNeedsAnotherInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTroupe(t, true)
		kit.OK(t, tr.call("ada", "run"))
		kit.OK(t, tr.call("ada", "run"))
		kit.Equal(t, len(tr.all), 2)
		tr.key.Store("canary-second")
		kit.OK(t, tr.call("ada", "run"))
		synctest.Wait()
		kit.Equal(t, len(tr.all), 3)
		kit.Equal(t, tr.open(), 2)
		kit.OK(t, tr.Close(t.Context()))
	})
}
