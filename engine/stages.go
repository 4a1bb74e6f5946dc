package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"toolpost/engine/policy"
	"toolpost/tool"
)

// traced numbers the events, and sets the call's id, trace, start and duration in the result.
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

// A frame is the memory that one call needs, in one allocation.
type frame struct {
	sink   numbered
	result tool.Result
}

// numbered gives events their numbers and times, is safe for concurrent use, and drops events after the end of the call.
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

// resolve finds the tool and keeps its source alive while the call runs. It refuses calls that are nested too deeply,
// which ends a tool that calls itself.
func (e *Engine) resolve(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if w := c.Watch.By; w != nil {
		if err := w.Admit(c); err != nil {
			return nil, err
		}
	}
	if c.Depth > tool.MaxDepth {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is %d calls deep, and at most %d are allowed: a plan or code that "+
			"calls itself would never end", c.Tool, c.Depth, tool.MaxDepth).Because("too_deep")
	}
	it, err := e.borrow(ctx, c.Caller, c.Tool)
	if err != nil {
		return nil, e.hidden(c, err)
	}
	defer it.source.release()
	by := e.choose(ctx, it, c)
	r, err := by.invoke(ctx, c, out)
	if by != it && left(err, c) {
		*c.Memo = tool.Memo{Leased: c.Memo.Leased} // the rest may name the node
		return it.invoke(ctx, c, out)
	}
	return r, err
}

// invoke runs a call by one definition of its tool.
func (it *item) invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	c.Spec = it.spec // the call is the engine's own copy: see Invoke
	if w := c.Watch.By; w != nil {
		w.Found(it.spec)
	}
	return it.handler.Invoke(ctx, c, out)
}

// hidden records a call of a tool that exists but is hidden from the caller, and returns its error. For the caller it is
// the error of an unknown tool. Operators can look up the rules anyway, so they are told which one refuses the call, unless
// they made it with fewer rights, as for a model that was offered other tools.
func (e *Engine) hidden(c *tool.Call, err error) error {
	it := e.shelf.Load().byName[c.Tool]
	if it == nil || tool.CodeOf(err) != tool.CodeNotFound || it.visible(c.Caller) {
		return err
	}
	d := it.judge.Hidden(c.Caller)
	e.audit.Refused(c, it.spec, d.Rule)
	if c.Caller.Operator() && d.Rule != policy.ByRights {
		return d.Refusal(c, "")
	}
	return err
}

// handler returns the stages of a tool, down to its runner.
func (e *Engine) handler(it *item) tool.Handler {
	return wrap(watched(placeRunner, it.runner(e.timeout, e.wait, &e.deadlines)), e.ofTool, it)
}

// The places of the chain where calls can spend a long time. The others take microseconds, unless something is wrong.
const (
	placeQueue  = "queue"
	placeRunner = "runner"
)

// watched records when calls enter and leave a place of the chain, if the call is being watched. A panic leaves a step
// open; it ends with the call.
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

// runner is the innermost handler: it passes the call to the runner of the tool's source, under the source's name for
// the tool and the tool's deadline.
func (it *item) runner(standard, wait time.Duration, d *deadlines) tool.Handler {
	limit := it.own.Timeout
	if limit <= 0 {
		limit = standard
	}
	ranOut := tool.Errorf(tool.CodeTimeout, "%s ran longer than its %v%s", it.spec.Name, limit, it.moreTime())
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		end := time.Now().Add(limit)
		if own, ok := ctx.Deadline(); !ok || own.After(end) { // otherwise the caller's own deadline comes first
			l := d.start(ctx, end, wait, ranOut)
			defer d.stop(l)
			ctx = l
		}
		if c.FromHub && c.Record != nil { // for the receipt
			c.Record.Walls = strings.Join(c.Tightened(tool.Guarantees{}).Asked(), ",")
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

// moreTime returns which setting gives a tool more time. The timeouts of built-in tools are their own.
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

// outcome returns why a call failed. If the context ended, the caller wants to read its cause, together with the details
// of the runner's own error.
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
