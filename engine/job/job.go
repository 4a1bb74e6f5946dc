// Package job runs calls later: a job is accepted, kept, run once by some program that serves, watched, cancelled, and
// has one outcome that says honestly what came of it.
package job

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The states of a job. The first two are not its end.
const (
	Queued    = "queued"    // it waits for a program that runs it
	Running   = "running"   //
	Done      = "done"      // there is a result, and it is good
	Failed    = "failed"    // the tool said no, or the call was refused or came to nothing
	Asked     = "asked"     // the tool has a question first: its result has it, and it goes on when that is answered
	Cancelled = "cancelled" // it was asked to end
	Lost      = "lost"      // its program ended while it ran, and its outcome is unknown
)

// States lists them.
func States() []string {
	return []string{Queued, Running, Done, Failed, Asked, Cancelled, Lost}
}

// A Job is a call that runs later. Its JSON is what its caller sees of it, beside its outcome.
type Job struct {
	ID       string    `json:"job"`
	Caller   string    `json:"caller,omitzero"` // seen in a list of those of all callers
	Tool     string    `json:"tool"`
	State    string    `json:"state"`             // queued, running, or how it ended
	Stop     bool      `json:"stopping,omitzero"` // it was asked to end; seen while it runs
	Made     time.Time `json:"made"`
	Began    time.Time `json:"began,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Expires  time.Time `json:"expires,omitzero"`  // when it may be forgotten; of one that has ended
	Attempts int       `json:"attempts,omitzero"` // how often it was begun
	Again    bool      `json:"-"`                 // it does no harm when it runs twice
	Lease    string    `json:"-"`                 // of a job that waits; when it is begun, whoever begins it has it
	Call     []byte    `json:"-"`                 // what is called, JSON; not kept beyond its end, but for one that asked
	Outcome  []byte    `json:"-"`                 // JSON; nil: there is none yet
	Events   int       `json:"-"`                 // of the attempts before; for who begins it
	Bytes    int       `json:"-"`                 // of these events
}

// A Book keeps jobs for those who want them run.
type Book interface {
	// Add keeps a job, durably, unless too many wait already.
	Add(ctx context.Context, j Job, perCaller, most int) error
	// Find gives a job of a caller and its events after so many, as they are at one moment.
	Find(ctx context.Context, caller, id string, after int64, most int) (Job, [][]byte, error)
	// List gives the jobs of a caller, the newest first, of one state or of any.
	List(ctx context.Context, caller, state string, most int) ([]Job, error)
	// All is List for the jobs of all callers, and Of tells whose job one is.
	All(ctx context.Context, state string, most int) ([]Job, error)
	Of(ctx context.Context, id string) (caller string, err error)
	// Cancel ends a job that waits, with this outcome, and wants one that runs to end.
	Cancel(ctx context.Context, caller, id string, outcome []byte) (Job, error)
	// Asked gives a job that waits for answers, with what it calls. Answer puts it back to be run, with another call; or,
	// without one, keeps another outcome. It does so only where the outcome is still the one that was seen.
	Asked(ctx context.Context, caller, id string) (Job, error)
	Answer(ctx context.Context, caller, id string, seen, call, outcome []byte, lease string) (Job, error)
}

// A Ledger keeps jobs for those who run them.
type Ledger interface {
	// Claim begins jobs: of several programs one gets each.
	Claim(ctx context.Context, most int) ([]Job, error)
	// Append adds events to a job that is still this program's, behind so many that it has. It may be called again with
	// the same where nobody knows whether it did.
	Append(ctx context.Context, id string, attempt, after int, events [][]byte) error
	// Settle ends a job that is still this program's, or with Queued puts it back.
	Settle(ctx context.Context, id string, attempt int, state string, outcome []byte) error
	// Recover lets decide say what becomes of each job whose program is gone. One whose call waits for an approval has not
	// begun: it is put back as if nobody had taken it.
	Recover(ctx context.Context, decide func(Job) (state string, outcome []byte)) (int, error)
	// Wake puts the jobs back whose approval was decided, or waited for in vain. resume gives what such a job calls, with
	// the id of the approval; an error leaves it where it is.
	Wake(ctx context.Context, resume func(call []byte, approval string) ([]byte, error)) (int, error)
	// Stops gives the jobs of this program that were asked to end.
	Stops(ctx context.Context) ([]string, error)
	// Expire removes the jobs that ended before a time.
	Expire(ctx context.Context, before time.Time) (int, error)
}

// Options of a queue. A field that may be left zero says what that means; the others have to be set.
type Options struct {
	Store interface {
		Book
		Ledger
	}
	Handler tool.Handler // runs jobs as it runs other calls
	// Lookup finds a tool that a caller may see.
	Lookup func(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error)
	// Own reports whether a tool is one of those for jobs, which are not run as jobs.
	Own func(*tool.Spec) bool
	// Resumes reports whether a tool that was interrupted goes on where it was when its call is made again, under the
	// same id; nil: none does.
	Resumes func(*tool.Spec) bool
	// Known gives the rights that a caller has now, where somebody keeps a list of callers who has it on the list. A
	// caller who was on it when the job was made, and is not when it runs, is refused.
	Known func(id string) (rights *tool.Rights, ok bool)
	// Admit refuses a caller who may no longer call, however it was known.
	Admit func(ctx context.Context, p tool.Principal) error

	// Available says why a tool cannot be called now; nil: it can, or the call will tell. Sources may take a while to
	// open: during Settling, after the start of Run, a job whose tool is not there yet waits for it.
	Available func(ctx context.Context, p tool.Principal, name string) error
	Settling  time.Duration

	Workers   int           // jobs that run at once; 0: 8
	PerCaller int           // jobs of one caller that may wait; 0: 1,000
	Most      int           // jobs that may wait in all; 0: 10,000
	Drain     time.Duration // that jobs get to end when the queue does; 0: 10 s
	Keep      time.Duration // how long a job is kept after its end; 0: 24 h
	Log       *slog.Logger
}

// A Queue accepts jobs and, while Run runs, runs them.
type Queue struct {
	o     Options
	wake  chan struct{} // there may be something to do
	ended chan struct{} // closed when Run has ended
}

// New makes a queue.
func New(o Options) *Queue {
	o.Workers, o.PerCaller, o.Most = cmp.Or(o.Workers, 8), cmp.Or(o.PerCaller, 1000), cmp.Or(o.Most, 10_000)
	o.Drain, o.Keep = cmp.Or(o.Drain, 10*time.Second), cmp.Or(o.Keep, 24*time.Hour)
	return &Queue{o: o, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// maxArgs is how many bytes the arguments of a job may have: as many as come in by a door.
const maxArgs = 8 << 20

// Start accepts a call as a job. A call that would be refused now is refused now. When Start returns, the job is
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
		Lease: c.Lease, Call: call,
	}
	if err := q.o.Store.Add(ctx, j, q.o.PerCaller, q.o.Most); err != nil {
		return nil, err
	}
	nudge(q.wake)
	j.Made = j.Made.UTC()
	return show(q.dated(j))
}

// nudge wakes who waits on a channel, or will.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// again reports whether a tool does no harm when it runs twice.
func (q *Queue) again(s *tool.Spec) bool {
	return s.Effects.Idempotent || s.Effects.ReadOnly() || q.o.Resumes != nil && q.o.Resumes(s)
}

// Request writes down a call that may have to be made later, by a program that knows nothing of this one.
func (q *Queue) Request(c *tool.Call) ([]byte, error) {
	_, known := q.o.Known(c.Caller.ID)
	return encode(c, known)
}

// Later makes a job, under an id, of what Request wrote down: the call of a program that is gone. Whether its caller may
// still make it is found out when it runs, as with every job.
func (q *Queue) Later(ctx context.Context, id, caller, name string, request []byte) error {
	err := q.o.Store.Add(ctx, Job{
		ID: id, Caller: caller, Tool: name, State: Queued, Made: time.Now(), Again: true, Call: request,
	}, q.o.PerCaller, q.o.Most)
	nudge(q.wake)
	return err
}

// wouldPass makes the call as a dry run, so that what is wrong with it is said at once.
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

// A request is a call as it is kept. Its lease is kept apart, and for a shorter time.
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
	Operates bool            `json:"operates,omitzero"` // the caller was an operator

	Guarantees tool.Guarantees `json:"guarantees,omitzero"`
}

// rights are those of a caller. All says that Tools are nil: an empty list may be left out.
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
