// Package job has the tools for calls that run later: startJob, showJob, listJobs, cancelJob and watchJob. They are tools
// like others, so that every door has them, and what holds for calls holds for them: policy, quotas, the record.
package job

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The names of the tools.
const (
	startName  = "startJob"
	showName   = "showJob"
	listName   = "listJobs"
	cancelName = "cancelJob"
	watchName  = "watchJob"
)

// Jobs keeps and runs jobs. What it gives is the JSON that callers see. A job of another caller is not found.
type Jobs interface {
	// Start accepts a call as a job, or refuses it as it would be refused now.
	Start(ctx context.Context, c *tool.Call) (json.RawMessage, error)
	Show(ctx context.Context, p tool.Principal, id string) (json.RawMessage, error)
	// List gives the jobs of one state, or of any with ""; 0 leaves the number to it.
	List(ctx context.Context, p tool.Principal, state string, most int) (json.RawMessage, error)
	Cancel(ctx context.Context, p tool.Principal, id string) (json.RawMessage, error)
	// Watch hands over the events after so many, as they come, and gives the job at its end.
	Watch(ctx context.Context, p tool.Principal, id string, after int64, out tool.Sink) (json.RawMessage, error)
}

// A Runner has the tools.
type Runner struct{ jobs Jobs }

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// New makes the source.
func New(jobs Jobs) *Runner { return &Runner{jobs} }

// Names lists the tools.
func Names() []string { return []string{startName, showName, listName, cancelName, watchName} }

const (
	oneJob = `"job":{"type":"string","minLength":1,"maxLength":256,"description":"the id that startJob gave"}`

	startInput = `{"type":"object","required":["tool"],"additionalProperties":false,"properties":{` +
		`"tool":{"type":"string","minLength":1,"maxLength":1024,"description":"the tool to call"},` +
		`"arguments":{"type":"object","description":"its arguments; none where it is left out"},` +
		`"session":{"type":"string","maxLength":1024,"description":"the session that the call belongs to; default: that of this call"},` +
		`"lease":{"type":"string","maxLength":256,"description":"the token of a lease, for a tool that asks for one; default: that of this call"}}}`
	showInput = `{"type":"object","required":["job"],"additionalProperties":false,"properties":{` + oneJob + `,` +
		`"caller":{"type":"string","minLength":1,"description":"whose job it is, for who runs toolpost; default: who asks"}}}`
	listInput = `{"type":"object","additionalProperties":false,"properties":{` +
		`"state":{"enum":["queued","running","done","failed","asked","cancelled","lost"],"description":"only jobs that are so"},` +
		`"limit":{"type":"integer","minimum":1,"maximum":1000,"description":"at most so many, the newest first; default 100"}}}`
	watchInput = `{"type":"object","required":["job"],"additionalProperties":false,"properties":{` + oneJob + `,` +
		`"after":{"type":"integer","minimum":0,"description":"how many of its events were seen before; default 0"}}}`
)

// watchTime is how long somebody may watch. Whoever still wants to, watches again.
const watchTime = 24 * time.Hour

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	reads := tool.Effects{Reads: true}
	return []*tool.Spec{
		{Name: startName, Input: json.RawMessage(startInput), Description: "Starts a call of another tool as a job, and gives the id of the job at once. The job is kept and run whatever becomes of the caller."},
		{Name: showName, Input: json.RawMessage(showInput), Effects: reads, Description: "Shows a job: its state and, once it has ended, its result or why there is none."},
		{Name: listName, Input: json.RawMessage(listInput), Effects: reads, Description: "Lists your jobs, the newest first, without their results."},
		{Name: cancelName, Input: json.RawMessage(showInput), Effects: tool.Effects{Idempotent: true}, Description: "Cancels a job: one that waits at once, one that runs within a moment."},
		{Name: watchName, Input: json.RawMessage(watchInput), Effects: reads, Timeout: watchTime, Description: "Streams the events of a job, those so far and those to come, and shows the job when it has ended."},
	}, nil
}

// Close implements tool.Runner.
func (r *Runner) Close(context.Context) error { return nil }

// arguments are those of all the tools; the schema of each says which it has.
type arguments struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Session   string          `json:"session"`
	Lease     string          `json:"lease"`
	Job       string          `json:"job"`
	Caller    string          `json:"caller"`
	State     string          `json:"state"`
	Limit     int             `json:"limit"`
	After     int64           `json:"after"`
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(context.Cause(ctx))
	}
	if !slices.Contains(Names(), c.Tool) {
		return nil, tool.Errorf(tool.CodeNotFound, "%q is not a tool for jobs; there are %v", c.Tool, Names())
	}
	var a arguments
	if err := strictjson.UnmarshalClosed(c.Args, &a); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", c.Tool, err)
	}
	if a.Caller != "" && a.Caller != c.Caller.ID && !c.Caller.Operator() {
		return nil, tool.Errorf(tool.CodeAccessDenied, "%q has to do with its own jobs alone; leave out the caller", c.Caller.ID)
	}
	doc, err := r.answer(ctx, c, &a, out)
	if err != nil {
		return nil, err
	}
	return &tool.Result{OK: true, Output: doc}, nil
}

func (r *Runner) answer(ctx context.Context, c *tool.Call, a *arguments, out tool.Sink) (json.RawMessage, error) {
	whose := c.Caller
	whose.ID = cmp.Or(a.Caller, whose.ID)
	switch c.Tool {
	case startName:
		return r.jobs.Start(ctx, called(c, a))
	case showName:
		return r.jobs.Show(ctx, whose, a.Job)
	case listName:
		return r.jobs.List(ctx, c.Caller, a.State, a.Limit)
	case cancelName:
		return r.jobs.Cancel(ctx, whose, a.Job)
	}
	if c.Session != "" {
		out = bystander{out}
	}
	return r.jobs.Watch(ctx, c.Caller, a.Job, a.After, out)
}

// called is the call that is to run later: by the same caller, as a part of the same trace and run.
func called(c *tool.Call, a *arguments) *tool.Call {
	return &tool.Call{
		Tool: a.Tool, Args: a.Arguments, Session: cmp.Or(a.Session, c.Session), Lease: cmp.Or(a.Lease, c.Lease),
		Trace: c.Trace, Span: c.Span, Run: c.Run, Caller: c.Caller, Guarantees: c.Guarantees,
	}
}

// A bystander sees what happens to the state of a session and does not do it a second time: the patches of a job are
// those of its session, not of the one that watches.
type bystander struct{ tool.Sink }

// Emit implements tool.Sink.
func (b bystander) Emit(ev tool.Event) error {
	if ev.Kind == tool.KindStatePatch {
		at := ev.Time
		ev = tool.NewEvent(tool.KindLog, tool.Log{Level: "info", Message: "the job patched the state of its session", Fields: ev.Data})
		ev.Time = at
	}
	return b.Sink.Emit(ev)
}
