package plan

import (
	"context"
	"errors"
	"time"

	"toolpost/tool"
)

// A work is a tool of a plan that is called until it succeeds or a retry would not help. It belongs to one goroutine,
// and is handed over when it is done.
type work struct {
	*attempt
	t      *tooling   // read only
	call   *tool.Call // the same at each attempt
	broken error      // why it cannot be called: a reference has no value
	result ToolResult
	given
}

// do calls the tool until it succeeds, or its attempts or its time are over. The time is for all attempts together: a
// slow tool gets no more of it by failing.
func (w *work) do(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, w.limits.Tool, w.late)
	defer cancel()
	for try := 1; ; try++ {
		again := w.once(ctx, try)
		w.result.ExecutionTimeMs = time.Since(began).Milliseconds()
		if !again || try > w.t.retries || ctx.Err() != nil {
			return
		}
		next := w.result
		next.State = Retrying
		w.changed(w.t.step, &next, try)
		if !tool.Sleep(ctx, w.t.backoff<<(try-1)) {
			w.fail(w.ending(ctx))
			w.result.ExecutionTimeMs = time.Since(began).Milliseconds()
			return
		}
	}
}

// ending returns why a context ended, as the error of a call.
func (w *work) ending(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errPlanTime) {
		return tool.Errorf(tool.CodeTimeout, "%s", w.planTime().Message)
	}
	return tool.Ended(ctx)
}

// once makes one attempt, and reports whether another may do better.
func (w *work) once(ctx context.Context, try int) (again bool) {
	c := *w.call
	c.ID = tool.NewID()
	w.result.State, w.result.Error, w.result.Call, w.result.RetryCount = Running, nil, c.ID, try-1
	if err := w.keepRunning(); err != nil {
		w.stop(err)
		return w.fail(err)
	}
	w.changed(w.t.step, &w.result, try)
	if w.broken != nil {
		return w.fail(w.broken)
	}
	tap := &tap{a: w.attempt, toolID: w.t.ID, events: []tool.Event{}}
	r, err := w.x.Handler.Invoke(ctx, &c, tap)
	w.result.Events, w.given = tap.events, given{}
	if err != nil && errors.Is(context.Cause(ctx), errPlanTime) {
		err = w.ending(ctx)
	}
	if w.result.Error, again = errorOf(r, err); w.result.Error != nil {
		w.result.State = stateOf(w.result.Error)
		return again
	}
	w.result.State, w.result.Output, w.given = Success, r.Output, tap.given
	return false
}

// fail ends the work with an error of our own.
func (w *work) fail(err error) (again bool) {
	w.result.Error, _ = errorOf(nil, err)
	w.result.State = stateOf(w.result.Error)
	return false
}

func stateOf(e *Error) string {
	if e.Category == Timeout {
		return TimedOut
	}
	return Failed
}
