// Package job runs calls later. A job is accepted, stored, and run once by one of the serving processes; it can be
// watched and cancelled. It has one outcome, which is lost if it cannot be known.
package job

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/engine/persist"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The states of a job. In the first two it has not ended.
const (
	Queued    = "queued"    // it waits for a process that runs it
	Running   = "running"   //
	Done      = "done"      // it has a successful result
	Failed    = "failed"    // the tool reported a failure, or the call was refused or had no result
	Asked     = "asked"     // the result has a question of the tool; once it is answered, the job goes on
	Cancelled = "cancelled" // it was cancelled
	Lost      = "lost"      // its process ended while it ran, and its outcome is unknown
)

// Taken is the reason of an error about a job that no longer belongs to this process.
const Taken = "job_taken"

// States lists the states.
func States() []string {
	return []string{Queued, Running, Done, Failed, Asked, Cancelled, Lost}
}

// A Job is a call that runs later. Its JSON is shown to its caller, beside its outcome.
type Job struct {
	ID       string    `json:"job"`
	Caller   string    `json:"caller,omitzero"` // set in a list of the jobs of all callers
	Tool     string    `json:"tool"`
	State    string    `json:"state"`             // queued, running, or how it ended
	Stop     bool      `json:"stopping,omitzero"` // it was cancelled and still runs
	Made     time.Time `json:"made"`
	Began    time.Time `json:"began,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Expires  time.Time `json:"expires,omitzero"`  // when it may be deleted, after it has ended
	Attempts int       `json:"attempts,omitzero"` // how often it was started
	Again    bool      `json:"-"`                 // it is safe to run twice
	Needs    string    `json:"-"`                 // what a process needs to run it: see Queue.needs
	Waiting  string    `json:"waiting,omitzero"`  // what a queued job waits for, if this process cannot run it
	Lease    string    `json:"-"`                 // of a waiting job; the process that starts the job takes it
	Call     []byte    `json:"-"`                 // the call, JSON; deleted when the job ends, unless it asked
	Outcome  []byte    `json:"-"`                 // JSON, or nil if there is none yet
	Events   int       `json:"-"`                 // of the attempts before; for the process that starts it
	Bytes    int       `json:"-"`                 // of these events
}

// A CallerStore keeps jobs for the callers that start them.
type CallerStore interface {
	// Add stores a job durably, unless too many are waiting already.
	Add(ctx context.Context, j Job, perCaller, most int) error
	// Find returns a job of a caller and its events after the first after ones, both of the same moment.
	Find(ctx context.Context, caller, id string, after int64, most int) (Job, [][]byte, error)
	// List returns the jobs of a caller, the newest first, in one state or in any.
	List(ctx context.Context, caller, state string, most int) ([]Job, error)
	// Cancel ends a waiting job with this outcome, and asks a running one to end.
	Cancel(ctx context.Context, caller, id string, outcome []byte) (Job, error)
	// Asked returns a job that waits for answers, with its call. Answer queues it again with another call, or, without
	// one, stores another outcome. It does so only if the outcome is still the one that was seen.
	Asked(ctx context.Context, caller, id string) (Job, error)
	Answer(ctx context.Context, caller, id string, seen, call, outcome []byte, lease string) (Job, error)
}

// An OperatorStore shows operators the jobs of all callers.
type OperatorStore interface {
	// All is CallerStore.List for the jobs of all callers, and Of returns the caller of a job.
	All(ctx context.Context, state string, most int) ([]Job, error)
	Of(ctx context.Context, id string) (caller string, err error)
}

// A Ledger keeps jobs for the processes that run them.
type Ledger interface {
	// Claim starts waiting jobs that this process can run, which has decides by their Needs. Each is given to exactly one
	// process.
	Claim(ctx context.Context, most int, has func(needs string) bool) ([]Job, error)
	// Append adds events after the first after ones, if the job still belongs to this process. It is safe to repeat if
	// it is unknown whether the first attempt succeeded.
	Append(ctx context.Context, j *Job, after int, events [][]byte) error
	// Settle ends a job that still belongs to this process, or with Queued puts it back. The record of its call, if it is not
	// nil, is written at the same time: if it cannot be, the job has not ended.
	Settle(ctx context.Context, j *Job, state string, outcome []byte, record *tool.Record) error
	// Recover calls decide for each job whose process is gone. A job that asked for an approval and has not used it has
	// not begun: it is put back as if it had never been claimed, with the call that resume returns, as in Wake.
	Recover(ctx context.Context, decide func(Job) (state string, outcome []byte),
		resume func(call []byte, approval string) ([]byte, error)) (int, error)
	// Wake puts back the jobs whose approval was decided or has expired. resume returns the call of such a job, with the
	// id of the approval; an error leaves the job as it is.
	Wake(ctx context.Context, resume func(call []byte, approval string) ([]byte, error)) (int, error)
	// Stops returns the jobs of this process that were asked to end.
	Stops(ctx context.Context) ([]string, error)
	// Expire removes the jobs that ended before a time.
	Expire(ctx context.Context, before time.Time) (int, error)
}

// A Bell tells processes of one store that there is something to do: jobs that another does not begin itself, or running jobs
// that are to end.
type Bell interface {
	// Listen calls heard when a process has rung, or may have, until ctx ends.
	Listen(ctx context.Context, heard func())
	Ring(ctx context.Context)
}

// Tools are the tools of this process.
type Tools interface {
	tool.Changing
	// Has reports whether there is a tool that can be called now, and returns the digest of its definition.
	Has(name string) (digest string, ok bool)
}

// Options are the options of a queue. A field that may be zero documents its default; the others are required.
type Options struct {
	// Views of one store: for callers, for operators, and for the processes that run jobs.
	Callers   CallerStore
	Operators OperatorStore
	Ledger    Ledger
	Bell      Bell

	Handler tool.Handler // runs jobs like other calls
	// Lookup finds a tool that a caller may see.
	Lookup func(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error)
	// Own reports whether a tool is one of those for jobs, which cannot run as jobs.
	Own func(*tool.Spec) bool
	// Resumes reports whether a tool that was interrupted continues when its call is made again under the same id; nil
	// means that none does.
	Resumes func(*tool.Spec) bool
	// Known returns the present rights of a caller, if it is on the list of callers. A caller that was on the list when
	// the job was made, and no longer is when it runs, is refused.
	Known func(id string) (rights *tool.Rights, ok bool)
	// Admit refuses a caller that may no longer call, however it was authenticated.
	Admit func(ctx context.Context, p tool.Principal) error

	// A job waits for a process that has its tool. It waits for one with the definition that the tool had when the job was
	// made, as during an update, at most for Patience; 0 means 10 s.
	Tools    Tools
	Patience time.Duration
	// Process is the id of a process that ends with its one client, such as an agent; "" for one that serves. Such a
	// process runs only the jobs that it made, and these only if no serving process has begun them within Patience.
	Process string

	Workers   int           // jobs that run at once; 0 means 8
	PerCaller int           // waiting jobs of one caller; 0 means 1,000
	Most      int           // waiting jobs in all; 0 means 10,000
	Drain     time.Duration // how long jobs may run after the queue has ended; 0 means 10 s
	Keep      time.Duration // how long a job is kept after its end; 0 means 24 h
	Log       *slog.Logger
	Faults    *persist.Faults // logs that the store cannot be used; may be nil
}

// A Queue accepts jobs and, while Run runs, runs them.
type Queue struct {
	o     Options
	wake  chan struct{} // this process has made or put back a job
	runs  atomic.Bool   // Run has begun
	ended chan struct{} // closed when Run has ended
}

// New makes a queue.
func New(o Options) *Queue {
	o.Workers, o.PerCaller, o.Most = cmp.Or(o.Workers, 8), cmp.Or(o.PerCaller, 1000), cmp.Or(o.Most, 10_000)
	o.Drain, o.Keep = cmp.Or(o.Drain, 10*time.Second), cmp.Or(o.Keep, 24*time.Hour)
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	return &Queue{o: o, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// maxArgs limits the arguments of a job, in bytes. It is the limit of the doors.
const maxArgs = 8 << 20

// Start accepts a call as a job. A call that would be refused now is refused at once. When Start returns, the job is
// durable.
func (q *Queue) Start(ctx context.Context, c *tool.Call) (json.RawMessage, error) {
	if len(c.Args) > maxArgs {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of a job have at most %d bytes, not %d", maxArgs,
			len(c.Args)).Because("too_large")
	}
	spec, err := q.o.Lookup(ctx, c.Caller, c.Tool)
	switch {
	case err != nil:
		return nil, err
	case q.o.Own(spec):
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is about calls, and no job itself; call it as it is",
			spec.Name)
	}
	if err := q.wouldPass(ctx, c); err != nil {
		return nil, err
	}
	call, err := q.Request(c)
	if err != nil {
		return nil, err
	}
	j := Job{
		ID: tool.NewID(), Caller: c.Caller.ID, Tool: spec.Name, State: Queued, Made: time.Now(), Again: q.again(spec),
		Needs: q.needs(spec.Ref().String()), Lease: c.Lease, Call: call,
	}
	if err := q.o.Callers.Add(ctx, j, q.o.PerCaller, q.o.Most); err != nil {
		return nil, err
	}
	q.made(ctx)
	j.Made = j.Made.UTC()
	return show(q.dated(j))
}

// needs returns what a process needs to run a tool: the digest of its definition, which may be empty, its name, and the id
// of the process that makes the job, unless that serves.
func (q *Queue) needs(name string) string {
	digest, _ := q.o.Tools.Has(name)
	return strings.TrimSuffix(digest+" "+name+"\n"+q.o.Process, "\n")
}

// parseNeeds returns the parts of what needs returned.
func parseNeeds(needs string) (digest, name, process string) {
	digest, name, _ = strings.Cut(needs, " ")
	name, process, _ = strings.Cut(name, "\n")
	return digest, name, process
}

// made lets a job that was made or put back begin: here, or in another process.
func (q *Queue) made(ctx context.Context) {
	if q.runs.Load() || q.o.Process != "" {
		nudge(q.wake)
	} else {
		q.o.Bell.Ring(ctx)
	}
}

// nudge wakes the goroutine that waits on a channel, now or later.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// again reports whether a tool is safe to run twice.
func (q *Queue) again(s *tool.Spec) bool {
	return s.Effects.Repeatable() || q.o.Resumes != nil && q.o.Resumes(s)
}

// Request encodes a call that may have to be made later, by another process.
func (q *Queue) Request(c *tool.Call) ([]byte, error) {
	_, known := q.o.Known(c.Caller.ID)
	return encode(c, known)
}

// Later makes a job, with the given id, of a call that Request encoded in a process that is gone. Whether its caller may
// still make it is checked when it runs, as with every job.
func (q *Queue) Later(ctx context.Context, id, caller, name string, request []byte) error {
	err := q.o.Callers.Add(ctx, Job{
		ID: id, Caller: caller, Tool: name, State: Queued, Made: time.Now(), Again: true, Needs: " " + name, Call: request,
	}, q.o.PerCaller, q.o.Most)
	q.made(ctx)
	return err
}

// wouldPass makes the call as a dry run, so that errors are reported at once.
func (q *Queue) wouldPass(ctx context.Context, c *tool.Call) error {
	dry := *c
	dry.ID, dry.Key, dry.Lease, dry.DryRun = "", "", "", true
	dry.Spec, dry.Record, dry.Scope, dry.State, dry.Consent = nil, nil, nil, nil, nil
	r, err := q.o.Handler.Invoke(ctx, &dry, tool.Discard)
	if err != nil {
		return err
	}
	var decision struct {
		DryRun  bool   `json:"dry_run"`
		Allowed bool   `json:"allowed"`
		Reason  string `json:"reason"`
	}
	switch err := strictjson.Unmarshal(r.Output, &decision); {
	case err != nil || !decision.DryRun:
		return tool.Errorf(tool.CodeInternal, "%s did not know a dry run", c.Tool)
	case !decision.Allowed:
		return tool.Errorf(tool.CodeAccessDenied, "%s was not accepted as a job: %s", c.Tool,
			cmp.Or(decision.Reason, "the policy refuses it"))
	}
	return nil
}

// A request is a stored call. Its lease is stored apart, and for a shorter time.
type request struct {
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"arguments,omitzero"`
	Session  string          `json:"session,omitzero"`
	Trace    string          `json:"trace,omitzero"`
	Span     string          `json:"span,omitzero"`
	Run      string          `json:"run,omitzero"`
	Depth    int             `json:"depth,omitzero"`
	Answers  json.RawMessage `json:"answers,omitzero"` // to the question of an earlier run
	Resume   string          `json:"resume,omitzero"`
	Rounds   int             `json:"rounds,omitzero"` // how many questions were answered
	Door     string          `json:"door,omitzero"`
	Known    bool            `json:"known,omitzero"` // the caller was on the list of callers
	Rights   *rights         `json:"rights,omitzero"`
	Operates bool            `json:"operates,omitzero"`   // the caller was an operator
	Claimed  bool            `json:"self_named,omitzero"` // of earlier versions: the agent named itself

	Guarantees tool.Guarantees `json:"guarantees,omitzero"`
}

// rights are the rights of a caller. All means that Tools is nil: an empty list may be omitted.
type rights struct {
	Roles []string      `json:"roles,omitzero"`
	All   bool          `json:"all,omitzero"`
	Tools tool.Patterns `json:"tools,omitzero"`
}

func encode(c *tool.Call, known bool) ([]byte, error) {
	r := request{
		Tool: c.Tool, Args: c.Args, Session: c.Session, Trace: c.Trace, Span: c.Span, Run: c.Run, Depth: c.Depth,
		Door: c.Caller.Door, Known: known, Operates: c.Caller.Operates, Guarantees: c.Guarantees,
		Answers: c.Answers, Resume: c.Resume,
	}
	if have := c.Caller.Rights; have != nil {
		r.Rights = &rights{have.Roles, have.Tools == nil, have.Tools}
	}
	b, err := strictjson.Marshal(r)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the call of %s cannot be kept as a job: %w", c.Tool, err)
	}
	return b, nil
}

// decode returns the call of a job, as its caller made it, and whether the caller was on the list of callers.
func decode(j *Job) (c *tool.Call, known bool, err error) {
	var r request
	if err := strictjson.UnmarshalClosed(j.Call, &r); err != nil {
		return nil, false, tool.Errorf(tool.CodeInternal, "what job %s calls cannot be read: %w", j.ID, err)
	}
	p := tool.Principal{ID: j.Caller, Door: r.Door, Operates: r.Operates}
	if r.Claimed {
		p.ID = tool.SelfPrefix + strings.TrimPrefix(p.ID, tool.AgentPrefix)
	}
	if r.Rights != nil {
		p.Rights = &tool.Rights{Roles: r.Rights.Roles, Tools: r.Rights.Tools}
		if !r.Rights.All && p.Rights.Tools == nil {
			p.Rights.Tools = tool.Patterns{}
		}
	}
	c = &tool.Call{
		ID: j.ID, Tool: r.Tool, Args: r.Args, Session: r.Session, Trace: r.Trace, Span: r.Span, Run: r.Run,
		Depth: r.Depth, Lease: j.Lease, Caller: p, Guarantees: r.Guarantees, Answers: r.Answers, Resume: r.Resume,
	}
	return c, r.Known, nil
}
