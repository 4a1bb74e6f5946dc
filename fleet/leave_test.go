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

// A node that drains ends after the last outcome has arrived: large ones, which take a while to send, and small ones, which it
// sends just before it says that it leaves.
func TestANodeThatDrainsLosesNoOutcome(t *testing.T) {
	for name, size := range map[string]int{"large": 5 << 20, "small": 5} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			const calls = 20
			for range 5 {
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
				close(leave)
				w.Drain(t.Context())
				w.Close(t.Context())
				for range calls {
					kit.OK(t, kit.Receive(t, "an outcome", results))
				}
				m := kit.Must(f.hub.roster.named(t.Context(), "worker"))(t)
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
	for range 16 {
		load.Go(func() {
			for ctx.Err() == nil {
				kit.Check(t, kit.Err(f.call(context.WithoutCancel(ctx), "note", `{}`)))
			}
		})
	}
	for range 20 {
		w := f.work("one", quick())
		w.Drain(t.Context())
		w.Close(t.Context())
		kit.OK(t, f.hub.Evict(t.Context(), kit.Must(f.hub.roster.named(t.Context(), "one"))(t).ID))
	}
}
