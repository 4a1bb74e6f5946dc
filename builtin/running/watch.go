package running

import (
	"context"
	"fmt"
	"strings"

	"toolpost/builtin/define"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// WatchArgs are the arguments of watchCalls.
type WatchArgs struct {
	After  *int64 `json:"after,omitzero" schema:"minimum=0" doc:"continue after this line: the seq of the last line, or the next of the previous call. Default: start with the running calls and the last ones that ended"`
	Events bool   `json:"events,omitzero" doc:"also send the events of running calls"`
	Parent string `json:"parent,omitzero" schema:"maxLength=256" doc:"only this call, and those that it makes"`
	// Others is a map of small numbers.
	Others map[string]int64 `json:"others,omitzero" doc:"in a fleet, with after: the others of the previous call"`
}

// page is how many lines are read at once.
const page = 500

// watch follows the calls of all hubs.
func (o Options) watch(ctx context.Context, c *define.Call, a WatchArgs, f *follow.Follower) (follow.Watched, error) {
	everywhere := define.Everywhere{Name: "watchCalls", Field: "hub", What: "its calls are missing here", Fleet: o.Fleet}
	return everywhere.Lines(ctx, c, false, a.Others, func(ctx context.Context) (follow.Watched, error) { return o.here(ctx, c, a, f) })
}

// here reads the kept lines at the listener's pace: a slow listener finds that lines are gone, and no call waits for it.
func (o Options) here(ctx context.Context, c *define.Call, a WatchArgs, f *follow.Follower) (w follow.Watched, err error) {
	defer o.Calls.Watching()()
	of := calls.Filter{Who: c.Caller, Parent: a.Parent, Events: a.Events}
	if w.Next, err = o.begin(c, of, a.After); err != nil {
		return w, err
	}
	err = f.Lines(ctx, c.Out, &w, o.Calls.Changed, func(after int64) ([]tool.Event, int64, int64) {
		p := o.Calls.Next(of, after, page)
		return events(p.Lines), p.Last, p.Missed
	})
	return w, err
}

// begin shows the kept lines, or continues after the previous call.
func (o Options) begin(c *define.Call, of calls.Filter, after *int64) (next int64, err error) {
	if after != nil && o.Calls.Known(*after) {
		return *after, nil
	}
	lines, next := o.Calls.Now(of)
	for _, ev := range events(lines) {
		if err := c.Out.Emit(ev); err != nil {
			return next, err
		}
	}
	return next, nil
}

// events makes events of lines: in words for clients that do not know lines, and whole in the fields.
func events(lines []calls.Line) (all []tool.Event) {
	for _, l := range lines {
		doc, err := strictjson.Marshal(l)
		if err != nil { // the data of an event is not JSON
			doc, _ = strictjson.Marshal(map[string]string{"error": "a line cannot be shown: " + err.Error()})
		}
		all = append(all, tool.NewEvent(tool.KindLog, tool.Log{Level: level(l), Message: words(l), Fields: doc}))
	}
	return all
}

func level(l calls.Line) string {
	if l.End != nil {
		return l.End.Outcome.Level()
	}
	return "info"
}

func words(l calls.Line) string {
	switch {
	case l.Begin != nil:
		return fmt.Sprintf("%s: %s calls %s", l.Begin.Call, l.Begin.Caller, l.Begin.Tool)
	case l.Event != nil:
		var said struct {
			Message string `json:"message"`
		}
		_ = strictjson.Unmarshal(l.Event.Data, &said) // other events are described by their kind only
		return strings.TrimSpace(fmt.Sprintf("%s: %s %.200s", l.Event.Call, l.Event.Kind, said.Message))
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s", l.End.Call, l.End.Outcome, l.End.Code))
}
