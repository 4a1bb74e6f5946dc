package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/audit"
	"toolpost/engine/follow"
	"toolpost/engine/persist"
	"toolpost/tool"
)

// WatchArgs are the arguments of audit.watch.
type WatchArgs struct {
	audit.Filter
	After *int64 `json:"after,omitzero" schema:"minimum=0" doc:"start after the row with this number: the next of the previous call. Without it, limit is the number of past rows to start with; default: none"`
}

// Watched is the outcome of audit.watch.
type Watched struct {
	Next int64 `json:"next"` // the after of the next call
}

// How much is read at once; how often to look for rows of other programs, by the number of the last row; and how often to
// try a store that is away.
const (
	watchRows = 200
	lookEvery = 500 * time.Millisecond
	awayEvery = 2 * time.Second
)

// watch reads the log itself, row by row after the last one, at the listener's pace. So a slow listener misses nothing,
// takes no memory, and delays no call.
func (t tools) watch(ctx context.Context, c *define.Call, a WatchArgs, f *follow.Follower) (w Watched, err error) {
	a.Filter = a.Counted()
	if w.Next, err = t.begin(ctx, c, a); err != nil {
		return w, err
	}
	away := false
	for more := true; more && err == nil; {
		changed, wait := t.rows.Changed(), lookEvery
		rows, failed := t.rows.Next(ctx, w.Next, watchRows)
		switch {
		case ctx.Err() != nil:
			return w, context.Cause(ctx)
		case failed != nil && !persist.Away(failed):
			return w, failed
		case failed != nil && !away:
			err = c.Out.Emit(tool.LogEvent("warn", "the store is away; the rows follow when it is back"))
		}
		if away = failed != nil; away {
			changed, wait = nil, awayEvery
		}
		for _, r := range rows {
			if w.Next = r.Seq; err == nil && a.Fits(r) {
				err = tell(c.Out, r)
			}
		}
		if err != nil {
			return w, err
		}
		if len(rows) == watchRows { // there are more already
			wait = 0
		}
		more, err = f.Wait(ctx, changed, wait)
	}
	return w, err
}

// begin shows the last rows on request, and returns the row after which to continue. It reads the head first: rows that were
// added meanwhile come after it.
func (t tools) begin(ctx context.Context, c *define.Call, a WatchArgs) (after int64, err error) {
	if a.After != nil {
		return *a.After, nil
	}
	if after, err = t.rows.Head(ctx); err != nil || a.Limit == 0 {
		return after, err
	}
	var last []*tool.Record
	a.Limit = min(a.Limit, pageRows)
	err = t.rows.Log(ctx, a.Filter, true, func(r *tool.Record) error {
		if r.Seq <= after {
			last = append(last, r)
		}
		return nil
	})
	for _, r := range slices.Backward(last) {
		if err == nil {
			err = tell(c.Out, r)
		}
	}
	return after, err
}

// tell emits a row as an event: in words for clients that do not know records, and whole in its fields.
func tell(out tool.Sink, r *tool.Record) error {
	doc, err := audit.Columns().Marshal(r)
	if err != nil {
		return err
	}
	name := r.Tool
	if name == "" {
		name = "? " + r.Asked
	}
	words := strings.TrimSpace(fmt.Sprintf("%s of %s by %s: %s %s", name, r.Caller, r.Door, r.Outcome, r.Code))
	return out.Emit(tool.NewEvent(tool.KindLog, tool.Log{Level: r.Outcome.Level(), Message: words, Fields: doc}))
}
