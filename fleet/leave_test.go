package fleet

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// A node that drains ends after its last outcome, also one that takes a while to send. What it has sent arrives, even if its hub
// learns earlier that it is gone.
func TestANodeThatDrainsLosesNoOutcome(t *testing.T) {
	for name, size := range map[string]int{"large": 3 << 20, "small": 5} {
		calls := map[string]int{"large": 8, "small": 1000}[name]
		t.Run(name, func(t *testing.T) {
			f := open(t)
			for range 3 {
				began, leave := make(chan bool, calls), make(chan struct{})
				b := &toolbox{specs: []*tool.Spec{{Name: "wait", Effects: tool.Effects{Writes: true}}}}
				b.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
					began <- true
					<-leave
					return &tool.Result{OK: true, Output: []byte(`"` + strings.Repeat("x", size) + `"`)}, nil
				})
				w := f.work("worker", b)
				results := make(chan error, calls)
				for range calls {
					go func() {
						r, err := f.call(t.Context(), "wait", `{}`)
						if err == nil && len(r.Output) != size+2 {
							err = errors.New("the output is cut")
						}
						results <- err
					}()
				}
				for range calls {
					kit.Receive(t, "a call", began)
				}
				h, server := f.hub.hub, f.hub.server
				if name == "small" {
					h.mu.Lock() // the hub is busy until the worker has disconnected
				}
				close(leave)
				w.Drain(t.Context())
				w.Close(t.Context())
				if name == "small" {
					looks := 0 // so that the news waits for the hub
					kit.Eventually(t, "the server sees that it has disconnected", func() bool {
						server.mu.Lock()
						defer server.mu.Unlock()
						if len(server.conns) == 0 {
							looks++
						}
						return looks == 4
					})
					h.mu.Unlock()
				}
				for range calls {
					kit.OK(t, kit.Receive(t, "an outcome", results))
				}
				m := kit.Must(f.hub.roster.Named(t.Context(), "worker"))(t)
				kit.OK(t, f.hub.Evict(t.Context(), m.ID)) // the next one has its name
			}
		})
	}
}

// A node that leaves while hubs send it calls runs each of them, or says that it has not begun it: none is in doubt.
func TestACallToANodeThatLeavesIsNotInDoubt(t *testing.T) {
	f := open(t)
	quick := func() *toolbox {
		b := &toolbox{specs: []*tool.Spec{{Name: "note", Effects: tool.Effects{Writes: true}}}}
		b.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return &tool.Result{OK: true}, nil
		})
		return b
	}
	f.work("two", quick())
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for range 8 {
		load.Go(func() {
			for ctx.Err() == nil {
				kit.Check(t, kit.Err(f.call(context.WithoutCancel(ctx), "note", `{}`)))
			}
		})
	}
	for range 12 {
		w := f.work("one", quick())
		w.Drain(t.Context())
		w.Close(t.Context())
		kit.OK(t, f.hub.Evict(t.Context(), kit.Must(f.hub.roster.Named(t.Context(), "one"))(t).ID))
	}
}

func TestACallGoesToANodeWhoseBreakerIsClosed(t *testing.T) {
	f := open(t)
	for name, err := range map[string]error{"one": tool.BeforeRun(tool.Errorf(tool.CodeBreakerOpen, "it failed too often")), "two": nil} {
		b := &toolbox{specs: []*tool.Spec{{Name: "note", Effects: tool.Effects{Writes: true}}}}
		b.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return &tool.Result{OK: err == nil}, err
		})
		f.work(name, b)
	}
	for range 20 {
		kit.OK(t, kit.Err(f.call(t.Context(), "note", `{}`)))
	}
	kit.OK(t, f.hub.Evict(t.Context(), kit.Must(f.hub.roster.Named(t.Context(), "two"))(t).ID))
	kit.Refused(t, kit.Err(f.call(t.Context(), "note", `{}`)), tool.CodeBreakerOpen, "it failed too often")
}
