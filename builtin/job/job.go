// Package job has the tools for calls that run later: startJob, showJob, listJobs, answerJob, cancelJob and watchJob. They
// are ordinary tools, so that every door has them, and policy, quotas and the record apply to them.
package job

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"toolpost/builtin/define"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Jobs keeps and runs jobs. It returns the JSON that callers see. A job of another caller is not found.
type Jobs interface {
	// Start accepts a call as a job, or refuses it as it would be refused now.
	Start(ctx context.Context, c *tool.Call) (json.RawMessage, error)
	Show(ctx context.Context, p tool.Principal, id string) (json.RawMessage, error)
	// List returns the jobs of one state, or of any with ""; with 0 it chooses the number itself.
	List(ctx context.Context, p tool.Principal, state string, most int) (json.RawMessage, error)
	Cancel(ctx context.Context, p tool.Principal, id string) (json.RawMessage, error)
	// Answer answers the question of a job, or a part of it.
	Answer(ctx context.Context, p tool.Principal, id string, answers json.RawMessage, lease string) (json.RawMessage, error)
	// Watch sends the events after that number as they come. It returns the job at its end, or when it asks; with asked, it
	// waits past the question until the job goes on.
	Watch(ctx context.Context, p tool.Principal, id string, after int64, asked bool, out tool.Sink) (json.RawMessage, error)
}

// AllJobs shows operators the jobs of all callers.
type AllJobs interface {
	// All is List for the jobs of all callers, and Of returns the caller of a job.
	All(ctx context.Context, state string, most int) (json.RawMessage, error)
	Of(ctx context.Context, id string) (caller string, err error)
}

// watchTime bounds one watch. A client that wants more watches again.
const watchTime = 24 * time.Hour

// New makes the tools.
func New(jobs Jobs, all AllJobs) *define.Set {
	q := queue{jobs, all}
	reads := tool.Effects{Reads: true}
	return define.NewSet(
		define.New(tool.Spec{
			Name: "startJob",
			Description: "Starts a call of another tool as a job, and gives the id of the job at once. " +
				"The job is kept and run whatever becomes of the caller.",
		}, q.start),
		define.New(tool.Spec{
			Name: "showJob", Effects: reads,
			Description: "Shows a job: its state and, once it has ended, its result or why there is none.",
		}, q.one(jobs.Show)),
		define.New(tool.Spec{
			Name: "listJobs", Effects: reads,
			Description: "Lists your jobs, the newest first, without their results.",
		}, q.list),
		define.New(tool.Spec{
			Name: "answerJob",
			Description: "Answers the question of a job that asked, which then goes on. Where it asks for several things, they " +
				"may come one after the other.",
		}, q.answer),
		define.New(tool.Spec{
			Name: "cancelJob", Effects: tool.Effects{Idempotent: true},
			Description: "Cancels a job: one that waits at once, one that runs within a moment.",
		}, q.one(jobs.Cancel)),
		define.New(tool.Spec{
			Name: "watchJob", Effects: reads, Timeout: watchTime,
			Description: "Streams the events of a job, those so far and those to come, and shows the job when it has ended.",
		}, q.watch),
	)
}

type queue struct {
	jobs Jobs
	all  AllJobs
}

type startArgs struct {
	Tool      string          `json:"tool" schema:"required minLength=1 maxLength=1024" doc:"the tool to call"`
	Arguments json.RawMessage `json:"arguments" schema:"type=object" doc:"its arguments; default: none"`
	Session   string          `json:"session" schema:"maxLength=1024" doc:"the session that the call belongs to; default: that of this call"`
	Lease     string          `json:"lease" schema:"maxLength=256" doc:"lease token, for a tool that needs one; default: that of this call"`
	Answers   json.RawMessage `json:"answers" doc:"the answers to a question that the tool asked in an earlier call"`
	Resume    string          `json:"resume" schema:"maxLength=16384" doc:"the id of that question"`
}

// start makes the call that will run later: by the same caller, as a part of the same trace and run.
func (q queue) start(ctx context.Context, c *define.Call, a startArgs) (json.RawMessage, error) {
	return q.jobs.Start(ctx, &tool.Call{
		Tool: a.Tool, Args: a.Arguments, Session: cmp.Or(a.Session, c.Session), Lease: cmp.Or(a.Lease, c.Lease),
		Trace: c.Trace, Span: c.Span, Run: c.Run, Depth: c.Depth, Caller: c.Caller, Guarantees: c.Guarantees,
		Answers: a.Answers, Resume: a.Resume,
	})
}

// A named job is one that startJob returned.
type named struct {
	Job string `json:"job" schema:"required minLength=1 maxLength=256" doc:"the id of the job"`
}

// Args are the arguments of showJob and cancelJob.
type Args struct {
	named
	Caller string `json:"caller" schema:"minLength=1" doc:"the caller of the job, for operators; default: you"`
	All    bool   `json:"all" doc:"also a job of another caller; for operators"`
}

const seesAll = "see the jobs of all callers"

// whose returns the principal that owns the job.
func (q queue) whose(ctx context.Context, c *define.Call, a Args) (p tool.Principal, err error) {
	p = c.Caller
	if err := p.Reaches(a.Caller, "jobs"); err != nil {
		return p, err
	}
	if p.ID = cmp.Or(a.Caller, p.ID); a.All {
		if err := c.Operating(seesAll); err != nil {
			return p, err
		}
		p.ID, err = q.all.Of(ctx, a.Job)
	}
	return p, err
}

// one makes a function that acts on a job. If the caller asked for any caller's job, the result names its caller.
func (q queue) one(
	do func(context.Context, tool.Principal, string) (json.RawMessage, error),
) func(context.Context, *define.Call, Args) (json.RawMessage, error) {
	return func(ctx context.Context, c *define.Call, a Args) (json.RawMessage, error) {
		whose, err := q.whose(ctx, c, a)
		if err != nil {
			return nil, err
		}
		doc, err := do(ctx, whose, a.Job)
		if a.All && len(doc) > 0 {
			b := strictjson.AppendString(strictjson.AppendName([]byte{'{'}, "caller"), whose.ID)
			doc = append(append(b, ','), doc[1:]...)
		}
		return doc, err
	}
}

// ListArgs are the arguments of listJobs.
type ListArgs struct {
	State string `json:"state" schema:"enum=queued|running|done|failed|asked|cancelled|lost" doc:"only jobs in this state"`
	Limit int    `json:"limit" schema:"minimum=1 maximum=1000" doc:"maximum number of jobs, newest first; default 100"`
	All   bool   `json:"all" doc:"the jobs of all callers; for operators"`
}

func (q queue) list(ctx context.Context, c *define.Call, a ListArgs) (json.RawMessage, error) {
	if !a.All {
		return q.jobs.List(ctx, c.Caller, a.State, a.Limit)
	}
	if err := c.Operating(seesAll); err != nil {
		return nil, err
	}
	return q.all.All(ctx, a.State, a.Limit)
}

type answerArgs struct {
	named
	Answers json.RawMessage `json:"answers" schema:"required" doc:"the answer to its question; if it asks for several things, an object with those answered now"`
	Lease   string          `json:"lease" schema:"maxLength=256" doc:"lease token, for a tool that needs one; default: that of this call"`
}

func (q queue) answer(ctx context.Context, c *define.Call, a answerArgs) (json.RawMessage, error) {
	return q.jobs.Answer(ctx, c.Caller, a.Job, a.Answers, cmp.Or(a.Lease, c.Lease))
}

// WatchArgs are the arguments of watchJob.
type WatchArgs struct {
	named
	After int64 `json:"after" schema:"minimum=0" doc:"number of its events that were already received; default 0"`
	Asked bool  `json:"asked" doc:"its question is known: watch until the job continues or ends"`
}

func (q queue) watch(ctx context.Context, c *define.Call, a WatchArgs) (json.RawMessage, error) {
	out := c.Out
	if c.Session != "" {
		out = bystander{out}
	}
	return q.jobs.Watch(ctx, c.Caller, a.Job, a.After, a.Asked, out)
}

// A bystander sees state patches without applying them again: the patches of a job belong to the job's session, not to that
// of the watcher.
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
