package cassette

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"toolpost/tool"
)

// NotRecorded is the reason of a call that is not on the cassette.
const NotRecorded = "not_recorded"

// A Checklist finds out which tools of a cassette were called less often than was recorded. It does not look at
// arguments: a recorded call may have been refused before it reached the runner, and only the runner knows which
// arguments are alike. Unless it is replayed loosely, a cassette answers each recorded call once, so a tool that was
// called as often was called with the same arguments.
type Checklist struct {
	of *Tape

	mu   sync.Mutex
	left map[[2]string]int // recorded calls, by source and tool
}

// Check makes the checklist of a tape.
func Check(t *Tape) *Checklist {
	l := &Checklist{of: t, left: map[[2]string]int{}}
	for _, c := range t.Calls {
		l.left[[2]string{c.Source, c.Tool}]++
	}
	return l
}

// In does nothing: a checklist needs no environment.
func (l *Checklist) In(Env) {}

// For is the engine.Stage.
func (l *Checklist) For(spec *tool.Spec) tool.Middleware {
	if spec == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			r, err := next.Invoke(ctx, c, out)
			if err == nil || tool.AsError(err).Reason != NotRecorded {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.left[[2]string{spec.Source, cmp.Or(spec.Own, spec.Name)}]--
			}
			return r, err
		})
	}
}

// Left returns an error if recorded calls were not made, or nil.
func (l *Checklist) Left() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var tools []string
	for _, s := range l.of.Tools {
		if n := l.left[[2]string{s.Source, s.Name}]; n > 0 {
			tools = append(tools, fmt.Sprintf("%d of %s", n, s.Name))
		}
	}
	if tools == nil {
		return nil
	}
	return tool.Errorf(tool.CodeConflict, "recorded calls were not made: %s", strings.Join(tools, ", ")).
		Because("not_played")
}
