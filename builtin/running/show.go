package running

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/audit"
	"toolpost/engine/calls"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// ShowArgs are the arguments of showCall.
type ShowArgs struct {
	Call   string `json:"call" schema:"required minLength=1 maxLength=256" doc:"the id of the call"`
	Caller string `json:"caller,omitzero" schema:"minLength=1" doc:"the caller, for operators; default: the caller of the latest call with this id"`
	Row    int64  `json:"row,omitzero" schema:"minimum=1" doc:"its row in the audit log, if known; this makes it faster to find"`
}

// Shown is the outcome of showCall.
type Shown struct {
	Record  json.RawMessage `json:"record" doc:"its record in the audit log, or the record so far"`
	Running bool            `json:"running"`
	Kept    bool            `json:"kept" doc:"the call is still in memory; otherwise only its record is left"`
	Args    json.RawMessage `json:"args,omitzero" doc:"without secrets; if cut, a string with the beginning; the same applies to output and error"`
	Output  json.RawMessage `json:"output,omitzero"`
	Error   json.RawMessage `json:"error,omitzero"`
	Summary string          `json:"summary,omitzero"`
	Events  []calls.Event   `json:"events"`
	Omitted int64           `json:"omitted,omitzero" doc:"number of earlier events that were dropped"`
	Stages  []calls.Stage   `json:"stages" doc:"the stages that it reached; for a call that was not watched, only those in which it could have waited"`
	Cut     []calls.Cut     `json:"cut,omitzero"`
	Walls   Walls           `json:"walls"`
	Made    []calls.Child   `json:"children" doc:"the calls that it made"`
}

// Walls describe the confinement of a call's tool.
type Walls struct {
	Stood      string    `json:"stood,omitzero" doc:"what the tool is confined to, in words; empty: nothing is started for it here"`
	Guarantees []string  `json:"guarantees" doc:"what was enforced"`
	Blocked    []Blocked `json:"blocked"`
}

// A Blocked is an attempt that the walls stopped.
type Blocked struct {
	What string `json:"what"`
	Line string `json:"line,omitzero" doc:"the line of the config that would allow it"`
}

func (o Options) show(ctx context.Context, c *define.Call, a ShowArgs) (s Shown, err error) {
	if err := c.Caller.Reaches(a.Caller, "calls"); err != nil {
		return s, err
	}
	call, kept := o.Calls.Find(c.Caller, a.Caller, a.Call)
	if !kept {
		for _, answer := range o.ask(ctx, c, "showCall") {
			if answer.Err == nil && strictjson.Unmarshal(answer.Output, &s) == nil && s.Kept {
				return s, nil
			}
		}
		if c.FromHub { // which can read the log itself
			return s, tool.Errorf(tool.CodeNotFound, "no call %q is in memory", a.Call)
		}
		return o.fromLog(ctx, c, a)
	}
	s = Shown{
		Kept: true, Running: call.Running(), Args: call.Args, Output: call.Output, Error: call.Error,
		Summary: call.Summary, Events: append([]calls.Event{}, call.Events...), Omitted: call.Omitted,
		Stages: append([]calls.Stage{}, call.Stages...), Cut: call.Cut, Walls: wallsOf(&call),
		Made: o.Calls.Children(&call),
	}
	record := &call.Record
	if !s.Running { // its row has more: what it touched, its place in the log
		// The record begins a moment after the call.
		f := audit.Filter{Since: call.Since, Until: call.Since.Add(time.Second), Caller: call.Caller}
		if row, err := o.find(ctx, c.Caller, f, call.Call); err == nil && row != nil {
			record = row
		}
	}
	s.Record, err = audit.Columns().Marshal(record)
	return s, err
}

// fromLog shows the record of a call that is no longer kept in memory.
func (o Options) fromLog(ctx context.Context, c *define.Call, a ShowArgs) (s Shown, err error) {
	f := audit.Filter{Caller: a.Caller}
	if !c.Caller.Operator() {
		f.Caller = c.Caller.ID
	}
	if a.Row > 0 {
		f.After, f.Limit = a.Row+1, 1
	}
	r, err := o.find(ctx, c.Caller, f, a.Call)
	switch {
	case err != nil:
		return s, err
	case r == nil && c.Caller.Operator():
		return s, tool.Errorf(tool.CodeNotFound, "no call %q is known: it is neither in memory nor in the log of calls",
			a.Call)
	case r == nil:
		return s, tool.Errorf(tool.CodeNotFound, "no call %q of yours is known", a.Call)
	}
	s = Shown{
		Args: r.Args, Events: []calls.Event{}, Stages: []calls.Stage{}, Made: []calls.Child{},
		Walls: Walls{Guarantees: list(r.Walls), Blocked: []Blocked{}},
	}
	s.Record, err = audit.Columns().Marshal(r)
	return s, err
}

// mostRows is how many rows are searched for one call: about a second.
const mostRows = 200_000

// find searches the log for a call, the newest rows first, and returns it as p may see it. It returns nil if the call is
// missing, or too far back.
func (o Options) find(ctx context.Context, p tool.Principal, f audit.Filter, id string) (found *tool.Record, err error) {
	if o.Log == nil {
		return nil, nil
	}
	enough, rows := errors.New("found, or looked for long enough"), 0
	err = o.Log.Log(ctx, f, true, func(r *tool.Record) error {
		if rows++; r.Call == id {
			found = r
		}
		if found != nil || rows == mostRows {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	if found != nil && !p.Operator() {
		found = found.AsTold()
	}
	return found, err
}

// wallsOf describes the walls of a call, and for each stopped attempt the config line that would allow it.
func wallsOf(call *calls.Call) Walls {
	w := Walls{Guarantees: list(call.Record.Walls), Blocked: []Blocked{}}
	if call.Spec == nil {
		return w
	}
	w.Stood = call.Spec.Walls
	if call.Running() {
		w.Guarantees = append(list(""), call.Spec.Guarantees.Asked()...)
	}
	for _, b := range call.Blocked {
		w.Blocked = append(w.Blocked, Blocked{
			What: strings.TrimSpace(b.Capability + " " + b.Target),
			Line: strings.TrimPrefix(walls.Hint(call.Spec, []tool.Blocked{b}, ""), "; "),
		})
	}
	return w
}

func list(words string) []string {
	if words == "" {
		return []string{}
	}
	return strings.Split(words, ",")
}
