package fleet

import (
	"context"
	"errors"
	"strings"
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
				m := kit.Must(f.hub.roster.named("worker"))(t)
				kit.OK(t, f.hub.Evict(t.Context(), m.ID)) // the next one has its name
			}
		})
	}
}
