// Package plan runs plans: graphs of calls to tools of any protocol, in which the output of one call can be the input of
// the next. A plan is checked before anything runs, each of its calls passes the engine like any other, and its result
// is one document.
//
// The JSON of its types is Narratoria's Plan JSON and execution result, field by field, so that existing planners can be
// used as they are.
//
//	p, err := plan.Read(document)                     // strict; err is an *Error with the place of what is wrong
//	graph, err := plan.Check(ctx, catalog, caller, p) // tools found, arguments and references checked, an order
//	result, err := executor.Run(ctx, plan.Run{Call: c, Plan: p, Planner: planner}, out)
//
// Run checks the plan itself. Its error means that there is no outcome, because it was cancelled. A plan that failed,
// including an invalid one, is a Result. Progress is reported as events of the call that it runs for: see Begun and Step
// for those of the plan itself.
package plan

import (
	"context"
	"encoding/json"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Plan is a graph of calls.
type Plan struct {
	RequestID      string   `json:"requestId" schema:"required minLength=1" doc:"names the request that the plan answers"`
	Title          string   `json:"title,omitzero" schema:"maxLength=200" doc:"what the plan does, in a few words"`
	Narrative      string   `json:"narrative,omitzero" doc:"what the player is told"`
	Tools          []Tool   `json:"tools" schema:"required" doc:"what is called; may be empty"`
	Parallel       bool     `json:"parallel,omitzero" doc:"whether tools that are async may overlap"`
	DisabledSkills []string `json:"disabledSkills,omitzero" doc:"tools that failed before, and are not to be used"`
	Metadata       Metadata `json:"metadata,omitzero"`
}

// Metadata describes where a plan comes from.
type Metadata struct {
	GenerationAttempt int    `json:"generationAttempt,omitzero" schema:"minimum=1" doc:"1 for a first plan, one more for each that replaces one that failed"`
	ParentPlanID      string `json:"parentPlanId,omitzero" doc:"the plan that this one replaces"`
}

// A Tool is one call of a plan.
type Tool struct {
	ID           string          `json:"toolId" schema:"required minLength=1" doc:"its name in the plan"`
	Path         string          `json:"toolPath,omitzero" doc:"the tool as Narratoria writes it; or tool"`
	Name         string          `json:"tool,omitzero" doc:"the tool by its registered name; or toolPath"`
	Input        json.RawMessage `json:"input,omitzero" schema:"type=object" doc:"its arguments; ${toolId.output.path} stands for what an earlier one gave"`
	Dependencies []string        `json:"dependencies,omitzero" doc:"the toolIds that come first"`
	Required     *bool           `json:"required,omitzero" doc:"whether its failure fails the plan; default true"`
	Async        bool            `json:"async,omitzero" doc:"whether it may overlap with others, where the plan is parallel"`
	Retry        *Retry          `json:"retryPolicy,omitzero"`
}

// A Retry is how often a failed tool is called again: the delay before retry n is backoffMs * 2^(n-1).
type Retry struct {
	Most      *int `json:"maxRetries,omitzero" schema:"minimum=0 maximum=10" doc:"default 3"`
	BackoffMs *int `json:"backoffMs,omitzero" schema:"minimum=0" doc:"default 100"`
}

// The states of a tool in a plan. A complete result has only the last four.
const (
	Waiting  = "waiting"
	Running  = "running"
	Retrying = "retrying" // an attempt failed, and another follows
	Success  = "success"
	Failed   = "failed"
	Skipped  = "skipped" // a tool that it depends on failed
	TimedOut = "timeout"
)

// A Result is the outcome of a plan.
type Result struct {
	PlanID          string          `json:"planId"`
	Success         bool            `json:"success"`
	CanReplan       bool            `json:"canReplan"`
	FailedTools     []string        `json:"failedTools"`
	DisabledSkills  []string        `json:"disabledSkills"`
	ToolResults     []ToolResult    `json:"toolResults"`
	Error           *Error          `json:"error,omitzero"`
	AggregatedState json.RawMessage `json:"aggregatedState"`
	Assets          []tool.Asset    `json:"aggregatedAssets"`
	ExecutionTimeMs int64           `json:"executionTimeMs"`
	AttemptNumber   int             `json:"attemptNumber"`

	document json.RawMessage // the whole result, if it was encoded already
}

// Document encodes the result.
func (r *Result) Document() (json.RawMessage, error) {
	if r.document != nil {
		return r.document, nil
	}
	return strictjson.Marshal(r)
}

// A ToolResult is the outcome of one tool of a plan.
type ToolResult struct {
	ToolID          string          `json:"toolId"`
	State           string          `json:"state"`
	Output          json.RawMessage `json:"output,omitzero"`
	Events          []tool.Event    `json:"events"`
	ExecutionTimeMs int64           `json:"executionTimeMs"`
	RetryCount      int             `json:"retryCount"`
	Error           *Error          `json:"error,omitzero"`
	Call            string          `json:"call,omitzero"` // the id of its last attempt, for further details
}

// An Error is why a plan or one of its tools failed.
type Error struct {
	Code     string          `json:"code"`
	Message  string          `json:"message"`
	Category string          `json:"category"`
	Details  json.RawMessage `json:"details,omitzero"`
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// The categories of errors.
const (
	ToolFailure        = "tool_failure"
	CircularDependency = "circular_dependency"
	Timeout            = "timeout"
	InvalidJSON        = "invalid_json"
	ProcessError       = "process_error"
)

// A Planner turns a prompt into a plan, and a failed plan into another one.
type Planner interface {
	Plan(ctx context.Context, r Request) (*Plan, error)
}

// A Request is the input of a planner.
type Request struct {
	ID       string          // of the plan's requestId
	Prompt   string          // what the player said or chose
	State    json.RawMessage // the state of the session
	Tools    []*tool.Spec    // that the caller may use
	Failed   *Result         // of the plan to be replaced; nil for the first plan
	Disabled []string        // tools that the plan must not use: the union of those that failed before
	Attempt  int             // 1 for a first plan
}
