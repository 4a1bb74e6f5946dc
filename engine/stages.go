package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"toolpost/tool"
)

// recovered turns a panic of anything inside into an internal error, and every error into a
// *tool.Error: the two promises that doors rely on.
func recovered(log *slog.Logger) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
			defer func() {
				if p := recover(); p != nil {
					log.Error("a call panicked", "tool", c.Tool, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
					r, err = nil, tool.Errorf(tool.CodeInternal, "%s: an internal error; the log has the details",
						c.Tool)
				}
			}()
			r, err = next.Invoke(ctx, c, out)
			if err != nil {
				return nil, tool.AsError(err)
			}
			return r, nil
		})
	}
}

// traced numbers the events, and says in the result which call and trace it is of, when the call began and how long it
// took.
func traced(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		f := &frame{sink: numbered{out: out}}
		start := c.Start()
		r, err := next.Invoke(ctx, c, &f.sink)
		f.sink.close()
		if err != nil {
			return nil, err
		}
		f.result = *r
		f.result.Trace.ID, f.result.Trace.Call = c.Trace, c.ID
		f.result.Trace.Start, f.result.Trace.Duration = start, time.Since(start)
		return &f.result, nil
	})
}

// A frame is what one call needs of its own, in one piece of memory.
type frame struct {
	sink   numbered
	result tool.Result
}

// numbered gives events their numbers and times, lets several goroutines emit, and takes nothing after
// the end of the call.
type numbered struct {
	mu   sync.Mutex
	out  tool.Sink
	seq  uint64
	done bool
}

var errEnded = errors.New("the call has ended; its events are no longer delivered")

func (s *numbered) Emit(ev tool.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return errEnded
	}
	s.seq++
	ev.Seq = s.seq
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	return s.out.Emit(ev)
}

func (s *numbered) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
}

// resolve finds the tool and keeps its source alive for as long as the call runs. What calls itself ends here: calls that
// stand too deep find nothing.
func (e *Engine) resolve(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if c.Depth > tool.MaxDepth {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is %d calls deep, and at most %d are allowed: a plan or code that "+
			"calls itself would never end", c.Tool, c.Depth, tool.MaxDepth).Because("too_deep")
	}
	it, err := e.borrow(ctx, c.Caller, c.Tool)
	if err != nil {
		return nil, err
	}
	defer it.source.release()
	c.Spec = it.spec // it is the engine's own: see Invoke
	return it.handler.Invoke(ctx, c, out)
}

// handler returns the stages of a tool, down to its runner.
func (e *Engine) handler(it *item) tool.Handler {
	return wrap(watched(placeRunner, it.runner(e.timeout, e.wait, &e.deadlines)), e.ofTool, it)
}

// The places of the chain where calls can be for long. The others take microseconds, unless something is wrong.
const (
	placeQueue  = "queue"
	placeRunner = "runner"
)

// watched notes when calls come to a place of the chain and when they leave it, where somebody wants to know. A panic
// leaves a step open; it ends with the call.
func watched(place string, next tool.Handler) tool.Handler {
	long := place == placeQueue || place == placeRunner
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if w := c.Watch; w.Steps || long && w.By != nil {
			step := w.By.Enter(place)
			r, err := next.Invoke(ctx, c, out)
			w.By.Leave(step)
			return r, err
		}
		return next.Invoke(ctx, c, out)
	})
}

// runner is the innermost handler: it hands the call to the runner of the tool's source, in the name that
// the source has for it, under the tool's deadline.
func (it *item) runner(standard, wait time.Duration, d *deadlines) tool.Handler {
	limit := it.own.Timeout
	if limit <= 0 {
		limit = standard
	}
	ranOut := tool.Errorf(tool.CodeTimeout, "%s ran longer than its %v%s", it.spec.Name, limit, it.moreTime())
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		end := time.Now().Add(limit)
		if own, ok := ctx.Deadline(); !ok || own.After(end) { // else the caller's own comes first
			l := d.start(ctx, end, wait, ranOut)
			defer d.stop(l)
			ctx = l
		}
		r, err := it.source.Runner.Invoke(ctx, it.renamed(c), out)
		switch {
		case err != nil:
			return nil, outcome(ctx, err)
		case r == nil:
			return nil, tool.Errorf(tool.CodeInternal, "%s: the %s runner gave neither a result nor an error",
				it.spec.Name, it.spec.Protocol)
		}
		ran := *r
		ran.Trace.Tool, ran.Trace.Source, ran.Trace.Protocol = it.spec.Name, it.spec.Source, it.spec.Protocol
		return &ran, nil
	})
}

// moreTime says which setting gives a tool more time. Those of tools that we bring are their own.
func (it *item) moreTime() string {
	switch {
	case it.own.Timeout <= 0:
		return fmt.Sprintf("; `timeout` of source %q gives it more, or `limits: {timeout: ...}` all tools",
			it.spec.Source)
	case it.spec.Protocol == "builtin":
		return ""
	}
	return fmt.Sprintf("; `timeout` of source %q gives it more", it.spec.Source)
}

// outcome says why a call has none. When the context ended, its cause is what a caller wants to read,
// together with the details that the runner put into its own error.
func outcome(ctx context.Context, err error) error {
	code := tool.CodeOf(err)
	if ctx.Err() == nil || code != tool.CodeTimeout && code != tool.CodeCancelled {
		return err
	}
	cause := *tool.AsError(context.Cause(ctx))
	if own := tool.AsError(err).Details; own != nil {
		cause.Details = own
	}
	cause.Err = err
	return &cause
}
