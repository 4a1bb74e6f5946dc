// Package plan has the tools for plans: plan.run, plan.check, plan.show and plan.list. They are ordinary tools, so that
// every door has them, and policy, quotas and the record apply to them. To run a long plan as a job, use startJob with
// plan.run.
package plan

import (
	"context"
	"encoding/json"
	"errors"

	"toolpost/builtin/define"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Run is the name of the tool that runs plans, and continues interrupted ones.
const Run = "plan.run"

// A Store returns the plans that are kept.
type Store interface {
	// Find returns a plan of a caller, or of any with "", and the outcomes of its tools.
	Find(ctx context.Context, caller, id string) (plan.Record, []plan.Note, error)
	// List returns plans, the newest first, by caller, session and state; "" means any.
	List(ctx context.Context, caller, session, state string, most int) ([]plan.Record, error)
}

// Options of the tools.
type Options struct {
	Executor *plan.Executor
	Store    Store // nil if no plan is kept, and none can be shown
	// Planner finds a planner that a caller may use, by its name; nil if there are none.
	Planner func(p tool.Principal, name string) (plan.Planner, error)
}

// New makes the tools.
func New(o Options) *define.Set {
	t := tools{o}
	reads := tool.Effects{Reads: true}
	all := []define.Tool{
		define.New(tool.Spec{
			Name: Run, Timeout: o.Executor.Limits.Longest(),
			Description: "Runs a plan: a graph of calls, in which the output of one can be the input of the next. Each call " +
				"is made as if you had made it. Gives the execution result, also of a plan that failed: see success.",
		}, t.run),
		define.New(tool.Spec{
			Name: "plan.check", Effects: reads,
			Description: "Checks a plan without running any of it: ids, tools, arguments, references and order.",
		}, t.check),
	}
	if o.Store != nil {
		all = append(all,
			define.New(tool.Spec{
				Name: "plan.show", Effects: reads,
				Description: "Shows a plan that ran or runs, and what became of its tools so far.",
			}, t.show),
			define.New(tool.Spec{
				Name: "plan.list", Effects: reads,
				Description: "Lists your plans, the newest first. Operators see those of all callers.",
			}, t.list))
	}
	return define.NewSet(all...)
}

// Args returns the arguments of a call that continues a plan.
func Args(planID string) json.RawMessage {
	w := strictjson.NewWriter(64)
	w.Text("resume", planID)
	return w.Done()
}

type tools struct{ o Options }

// RunArgs are the arguments of plan.run.
type RunArgs struct {
	Plan    json.RawMessage `json:"plan" schema:"type=object" doc:"the plan, as Plan JSON: {requestId, tools: [{toolId, tool, input, dependencies}]}"`
	Planner string          `json:"planner" schema:"maxLength=256" doc:"planner that makes another plan if this one fails; default: none"`
	Prompt  string          `json:"prompt" schema:"maxLength=65536" doc:"purpose of the plan, for the planner"`
	Resume  string          `json:"resume" schema:"maxLength=256" doc:"instead of plan: the id of one of your plans to continue, if its program ended before the plan did"`
}

func (t tools) run(ctx context.Context, c *define.Call, a RunArgs) (json.RawMessage, error) {
	r := plan.Run{Call: c.Call, Prompt: a.Prompt, PlannerName: a.Planner}
	if (len(a.Plan) > 0) == (a.Resume != "") {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s takes a plan, or with resume the id of one to go on with", Run)
	}
	if a.Planner != "" {
		var err error
		if r.Planner, err = t.planner(c.Caller, a.Planner); err != nil {
			return nil, err
		}
	}
	var result *plan.Result
	var err error
	if a.Resume != "" {
		result, err = t.o.Executor.Resume(ctx, r, a.Resume, t.o.Planner, c.Out)
	} else if r.Plan, err = plan.Read(a.Plan); err == nil {
		result, err = t.o.Executor.RunOnce(ctx, r, c.Out)
	}
	if refused, ok := errors.AsType[*plan.Error](err); ok {
		result, err = t.o.Executor.Refused(refused), nil
	}
	if err != nil {
		return nil, err
	}
	c.Summary = summary(result)
	if !result.Success {
		c.Failure = &tool.Error{
			Code: tool.CodeToolError, Reason: result.Error.Code, Message: c.Summary, Details: result.Error.Details,
		}
	}
	return result.Document()
}

func (t tools) planner(p tool.Principal, name string) (plan.Planner, error) {
	if t.o.Planner == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no planner named %q", name)
	}
	return t.o.Planner(p, name)
}

// summary describes the outcome of a plan in a few words.
func summary(r *plan.Result) string {
	if r.Success {
		return "the plan succeeded: " + define.Count(len(r.ToolResults), "tool")
	}
	return "the plan failed: " + r.Error.Message
}

// CheckArgs are the arguments of plan.check.
type CheckArgs struct {
	Plan json.RawMessage `json:"plan" schema:"required type=object" doc:"the plan, as Plan JSON"`
}

// Checked is the outcome of plan.check.
type Checked struct {
	Valid   bool         `json:"valid"`
	Order   []string     `json:"order" doc:"the toolIds as they run one after the other"`
	Error   *plan.Error  `json:"error,omitzero" doc:"what is wrong; its details list all faults"`
	Ignored []plan.Fault `json:"ignored,omitzero" doc:"members that no plan has, probably mistyped"`
	Waits   []plan.Fault `json:"waits,omitzero" doc:"tools that wait for others without need, and what to add so that they do not"`
}

func (t tools) check(ctx context.Context, c *define.Call, a CheckArgs) (out Checked, err error) {
	out.Order, out.Ignored = []string{}, plan.Ignored(a.Plan)
	p, err := plan.Read(a.Plan)
	var g *plan.Graph
	if err == nil {
		g, err = plan.Check(ctx, t.o.Executor.Catalog, c.Caller, p)
	}
	if refused, ok := errors.AsType[*plan.Error](err); ok {
		c.Summary, out.Error = "the plan is not right: "+refused.Message, refused
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Valid, out.Order, out.Waits = true, append(out.Order, g.Order()...), g.Waits()
	c.Summary = "the plan is right: " + define.Count(len(out.Order), "tool")
	return out, nil
}

// ShowArgs are the arguments of plan.show.
type ShowArgs struct {
	Plan string `json:"plan" schema:"required minLength=1 maxLength=256" doc:"the planId"`
}

// whose returns the caller whose plans are visible, or "" for all callers.
func whose(c *define.Call) string {
	if c.Caller.Operator() {
		return ""
	}
	return c.Caller.ID
}

func (t tools) show(ctx context.Context, c *define.Call, a ShowArgs) (json.RawMessage, error) {
	r, notes, err := t.o.Store.Find(ctx, whose(c), a.Plan)
	if err != nil {
		return nil, err
	}
	if err := r.Complete(notes); err != nil {
		return nil, err
	}
	c.Summary = "the plan is " + r.State
	return strictjson.Marshal(r)
}

// ListArgs are the arguments of plan.list.
type ListArgs struct {
	Session string `json:"session" schema:"maxLength=1024" doc:"only plans of this session"`
	State   string `json:"state" schema:"enum=running|done|failed|lost|cancelled" doc:"only plans in this state"`
	Limit   int    `json:"limit" schema:"minimum=1 maximum=1000" doc:"maximum number of plans, newest first; default 100"`
}

// Listed is the outcome of plan.list.
type Listed struct {
	Plans []plan.Record `json:"plans"`
}

// defaultList is how many plans a list has by default.
const defaultList = 100

func (t tools) list(ctx context.Context, c *define.Call, a ListArgs) (json.RawMessage, error) {
	if a.Limit == 0 {
		a.Limit = defaultList
	}
	found, err := t.o.Store.List(ctx, whose(c), a.Session, a.State, a.Limit)
	if err != nil {
		return nil, err
	}
	c.Summary = define.Count(len(found), "plan")
	return strictjson.Marshal(Listed{found})
}
