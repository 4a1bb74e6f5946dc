package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An Executor runs plans. It is safe for concurrent use.
type Executor struct {
	Handler tool.Handler // runs the calls of plans like all others, with policy, quotas and records
	Catalog tool.Catalog
	Limits  Limits
	Store   Store // keeps plans; nil means that they end with this process
	// Again encodes, for the store, the call that resumes a plan: a call of the same caller that passes its id to
	// Resume.
	Again func(c *tool.Call, planID string) ([]byte, error)
	// Settled is until when sources may still be opening: a resumed plan waits that long for missing tools. The zero
	// time means that it does not wait.
	Settled time.Time
}

// Limits are the limits of plans. A zero field has its default.
type Limits struct {
	Tool    time.Duration // for a tool with all its attempts; default 30 s
	Plan    time.Duration // for a plan, and for each that replaces it; default 60 s
	Replans *int          // how often a failed plan is replaced; default 5
	Overlap int           // tools of a plan that run at once; default 16
}

func (l Limits) withDefaults() Limits {
	l.Tool, l.Plan = cmp.Or(l.Tool, 30*time.Second), cmp.Or(l.Plan, time.Minute)
	l.Overlap = cmp.Or(l.Overlap, 16)
	if l.Replans == nil {
		l.Replans = new(defaultReplans)
	}
	return l
}

const defaultReplans = 5

// Longest returns how long a run can take: a plan and all that replace it, and as long again for the planner.
func (l Limits) Longest() time.Duration {
	l = l.withDefaults()
	return 2 * time.Duration(*l.Replans+1) * l.Plan
}

// A Run is one request to run a plan.
type Run struct {
	// Call is the call that it runs for: the parent of every call that it makes. These have its caller, run, trace and
	// walls. They see its state, with the patches of the tools before them, but no session: the patches are events of
	// this call, and its own session takes them.
	Call    *tool.Call
	Plan    *Plan
	Planner Planner // replaces a failed plan; nil means that it is not replaced
	// What is stored of the request beside the plan: the prompt, which the planner gets too, and the planner's name.
	Prompt      string
	PlannerName string
}

// Run runs a plan, and those that replace it when it fails. It returns the result of the last one. An error means that
// there is no result: the call was cancelled, its time was over, its events could not be delivered, or the plan could
// not be stored.
func (x *Executor) Run(ctx context.Context, r Run, out tool.Sink) (*Result, error) {
	return x.attempts(ctx, x.first(r, out))
}

// first makes the first attempt of a run.
func (x *Executor) first(r Run, out tool.Sink) *attempt {
	one := &attempt{
		x: x, run: r, plan: r.Plan, limits: x.Limits.withDefaults(), out: newTeller(out),
		number: max(1, r.Plan.Metadata.GenerationAttempt),
	}
	one.state.reset(r.Call.State)
	return one
}

// attempts runs an attempt, and those that replace it.
func (x *Executor) attempts(ctx context.Context, one *attempt) (*Result, error) {
	for {
		result, err := one.do(ctx)
		if err != nil || !result.CanReplan || one.run.Planner == nil {
			return result, err
		}
		next, err := one.replan(ctx, result)
		switch {
		case ctx.Err() != nil:
			return nil, tool.Ended(ctx)
		case err != nil:
			why := tool.LogEvent("warn", "the plan failed, and the planner has no other: "+tool.AsError(err).Message)
			return result, one.out.Emit(why)
		}
		one = next
	}
}

// replan asks the planner for a plan that replaces a failed one. The patches of the failed plan stay: its tools had
// their effects.
func (a *attempt) replan(ctx context.Context, failed *Result) (*attempt, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limits.Plan, tool.Errorf(tool.CodeTimeout,
		"the planner took longer than %v", a.limits.Plan))
	defer cancel()
	var specs []*tool.Spec
	for spec, why := range a.x.Catalog.Specs(ctx, a.run.Call.Caller) {
		if why == nil {
			specs = append(specs, spec)
		}
	}
	p, err := a.run.Planner.Plan(ctx, Request{
		ID: a.plan.RequestID, Prompt: a.run.Prompt, State: failed.AggregatedState, Tools: specs, Failed: failed,
		Disabled: failed.DisabledSkills, Attempt: a.number + 1,
	})
	if err != nil {
		return nil, err
	}
	own := *p
	own.Metadata = Metadata{GenerationAttempt: a.number + 1, ParentPlanID: failed.PlanID}
	own.DisabledSkills = union(failed.DisabledSkills, p.DisabledSkills)
	next := &attempt{x: a.x, run: a.run, plan: &own, limits: a.limits, out: a.out, number: a.number + 1}
	next.state.reset(failed.AggregatedState)
	next.before = slices.Clone(a.before)
	for i := range a.tools {
		next.before = append(next.before, a.tools[i].patches...)
	}
	return next, nil
}

// union lists the elements of all lists, each once and in order.
func union(lists ...[]string) []string {
	all := []string{}
	seen := map[string]bool{}
	for _, list := range lists {
		for _, one := range list {
			if !seen[one] {
				seen[one] = true
				all = append(all, one)
			}
		}
	}
	return all
}

// Begun is the field "plan" of the log event when a plan begins.
type Begun struct {
	PlanID    string      `json:"planId"`
	RequestID string      `json:"requestId"`
	Title     string      `json:"title,omitzero"`
	Attempt   int         `json:"attempt"`
	Narrative string      `json:"narrative"`
	Tools     []BegunTool `json:"tools"` // in the order in which they run
}

// A BegunTool is a tool of a plan that begins, as it is drawn.
type BegunTool struct {
	ToolID       string   `json:"toolId"`
	Tool         string   `json:"tool"`
	Dependencies []string `json:"dependencies"` // including the tools that it refers to
	Required     bool     `json:"required"`
	Async        bool     `json:"async"`
	Alone        string   `json:"alone,omitzero"` // why it overlaps with no other tool, if the plan seems to want that it does
}

// A Step is the field "step" of the log event at each change of a tool.
type Step struct {
	PlanID  string `json:"planId"`
	ToolID  string `json:"toolId"`
	Tool    string `json:"tool"`
	State   string `json:"state"`
	Attempt int    `json:"attempt,omitzero"` // of this tool, from 1
	Call    string `json:"call,omitzero"`    // the id of the attempt's call
	Error   *Error `json:"error,omitzero"`
	Millis  int64  `json:"ms,omitzero"` // that it took so far, with all attempts
}

// appendBegun encodes the graph as a Begun; it must match the tags.
func (g *Graph) appendBegun(b []byte, id string, attempt int) []byte {
	text := func(name, value string) { b = strictjson.AppendString(strictjson.AppendName(b, name), value) }
	b = append(slices.Grow(b, 128*len(g.steps)), '{')
	text("planId", id)
	text("requestId", g.Plan.RequestID)
	if g.Plan.Title != "" {
		text("title", g.Plan.Title)
	}
	b = strconv.AppendInt(strictjson.AppendName(b, "attempt"), int64(attempt), 10)
	text("narrative", g.Plan.Narrative)
	b = strictjson.AppendList(strictjson.AppendName(b, "tools"), g.steps, appendBegunTool)
	return append(b, '}')
}

func appendBegunTool(b []byte, s *step) []byte {
	b = strictjson.AppendString(strictjson.AppendName(append(b, '{'), "toolId"), s.ID)
	b = strictjson.AppendString(strictjson.AppendName(b, "tool"), s.spec.Name)
	b = strictjson.AppendList(strictjson.AppendName(b, "dependencies"), s.needs, func(b []byte, n *step) []byte {
		return strictjson.AppendString(b, n.ID)
	})
	b = strconv.AppendBool(strictjson.AppendName(b, "required"), s.required)
	b = strconv.AppendBool(strictjson.AppendName(b, "async"), s.Async)
	if s.alone != "" {
		b = strictjson.AppendString(strictjson.AppendName(b, "alone"), s.alone)
	}
	return append(b, '}')
}

// append encodes the step; it must match the tags. Every tool of every plan has some, and by hand it takes a quarter of
// the time.
func (s *Step) append(b []byte) []byte {
	text := func(name, value string) { b = strictjson.AppendString(strictjson.AppendName(b, name), value) }
	number := func(name string, value int64) {
		if value != 0 {
			b = strconv.AppendInt(strictjson.AppendName(b, name), value, 10)
		}
	}
	b = append(b, '{')
	text("planId", s.PlanID)
	text("toolId", s.ToolID)
	text("tool", s.Tool)
	text("state", s.State)
	number("attempt", int64(s.Attempt))
	if s.Call != "" {
		text("call", s.Call)
	}
	if s.Error != nil {
		b = append(strictjson.AppendName(b, "error"), raw(s.Error)...)
	}
	number("ms", s.Millis)
	return append(b, '}')
}

// tell makes a log event whose fields have one member, which say writes.
func tell(level, message, member string, say func([]byte) []byte) tool.Event {
	b := append(make([]byte, 0, 384), '{')
	b = strictjson.AppendString(strictjson.AppendName(b, "level"), level)
	b = strictjson.AppendString(strictjson.AppendName(b, "message"), message)
	b = append(strictjson.AppendName(b, "fields"), '{')
	b = say(strictjson.AppendName(b, member))
	return tool.Event{Kind: tool.KindLog, Data: append(b, '}', '}')}
}

// resultOf returns the result of an attempt so far: the tools that have ended, in the order in which they run.
func (a *attempt) resultOf() *Result {
	r := emptyResult(a.id, a.number)
	r.AggregatedState, r.ExecutionTimeMs = a.state.document(), time.Since(a.began).Milliseconds()
	r.ToolResults = slices.Grow(r.ToolResults, len(a.tools)-a.left)
	var disabled []string
	for i := range a.tools {
		t := &a.tools[i]
		if !t.over() {
			continue
		}
		r.ToolResults = append(r.ToolResults, t.result)
		r.Assets = append(r.Assets, t.assets...)
		if t.failed() {
			r.FailedTools = append(r.FailedTools, t.ID)
			disabled = append(disabled, t.spec.Name)
		}
	}
	r.DisabledSkills = union(a.plan.DisabledSkills, disabled)
	return r
}

// conclude sets whether an attempt succeeded, and if not, why.
func (a *attempt) conclude(r *Result, why *Error) *Result {
	var first *tooling
	for i := range a.tools {
		if t := &a.tools[i]; why == nil && first == nil && t.required && t.failed() {
			first = t
		}
	}
	if first != nil {
		e := first.result.Error
		why = &Error{
			Code: CodeToolFailed, Category: e.Category, Message: first.ID + " failed: " + e.Message,
			Details: raw(map[string]any{"toolId": first.ID, "code": e.Code}),
		}
	}
	r.Success, r.Error = why == nil, why
	r.CanReplan = !r.Success && a.number <= *a.limits.Replans
	return r
}

// Refused returns the result of a plan of which nothing ran.
func (x *Executor) Refused(why *Error) *Result {
	r := emptyResult(tool.NewID(), 1)
	r.Error, r.CanReplan = why, *x.Limits.withDefaults().Replans > 0
	return r
}

// emptyResult returns the result of a plan of which nothing is known. Empty lists are not nil.
func emptyResult(id string, attempt int) *Result {
	return &Result{
		PlanID: id, AttemptNumber: attempt, FailedTools: []string{}, DisabledSkills: []string{},
		ToolResults: []ToolResult{}, AggregatedState: json.RawMessage(`{}`), Assets: []tool.Asset{},
	}
}

// errorOf translates the failure of a call into an error of the plan, and reports whether a retry may help.
func errorOf(r *tool.Result, err error) (e *Error, again bool) {
	switch {
	case err != nil:
		own := tool.AsError(err)
		return &Error{string(own.Code), own.Message, categoryOf(own), detailsOf(own)}, worthAnother(own.Code)
	case r.Ask != nil:
		return &Error{
			Code: "asked", Category: ToolFailure, Details: raw(map[string]any{"ask": r.Ask}),
			Message: "it asks a question, which nobody can answer within a plan: " + r.Ask.Message,
		}, false
	case r.OK:
		return nil, false
	case r.Failure == nil:
		why := cmp.Or(r.Summary, "the tool said no")
		return &Error{Code: string(tool.CodeToolError), Message: why, Category: ToolFailure}, true
	}
	return &Error{string(r.Failure.Code), r.Failure.Message, categoryOf(r.Failure), detailsOf(r.Failure)}, !final(r.Failure)
}

func detailsOf(e *tool.Error) json.RawMessage {
	if e.Reason == "" {
		return e.Details
	}
	return raw(struct {
		Reason  string          `json:"reason"`
		Details json.RawMessage `json:"details,omitzero"`
	}{e.Reason, e.Details})
}

func categoryOf(e *tool.Error) string {
	switch {
	case e.Code == tool.CodeTimeout:
		return Timeout
	case e.Code == tool.CodeProtocol && e.Reason != tool.ReasonExit: // the tool's output could not be parsed
		return InvalidJSON
	case slices.Contains([]tool.Code{tool.CodeProtocol, tool.CodeCrash, tool.CodeUnavailable, tool.CodeInternal,
		tool.CodeCancelled}, e.Code):
		return ProcessError
	default:
		return ToolFailure
	}
}

// final reports whether a tool that failed in this way would fail again. The reason is the tool's own word for it.
func final(e *tool.Error) bool {
	codes := []tool.Code{tool.CodeNotFound, tool.CodeInvalidInput, tool.CodeAccessDenied}
	return slices.Contains(codes, e.Code) || slices.Contains(codes, tool.Code(e.Reason))
}

// worthAnother reports whether a failed call may succeed when it is repeated. A call that was refused, or whose
// arguments are wrong, would fail again.
func worthAnother(c tool.Code) bool {
	return slices.Contains([]tool.Code{
		tool.CodeTimeout, tool.CodeUnavailable, tool.CodeCrash, tool.CodeProtocol, tool.CodeInternal, tool.CodeToolError,
	}, c)
}
