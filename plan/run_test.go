package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A runCase is a plan and its expected outcome.
type runCase struct {
	plan   string // its tools, or the whole plan if it begins with a brace and a requestId
	states string
	fails  string // the category of the plan's error; empty if it succeeds
	began  string // the calls, in the order in which they began
	also   func(*testing.T, *plan.Result, *recorder, *world)
}

func retry(n int) string { return fmt.Sprintf(`'retryPolicy':{'maxRetries':%d}`, n) }

func parallel(tools string) string {
	return `{'requestId':'r','parallel':true,'tools':[` + tools + `]}`
}

func resultOf(r *plan.Result, id string) plan.ToolResult {
	for _, t := range r.ToolResults {
		if t.ToolID == id {
			return t
		}
	}
	return plan.ToolResult{}
}

// gave checks the arguments of a tool's call, which its output contains.
func gave(t *testing.T, r *plan.Result, id, want string) {
	t.Helper()
	if got := string(resultOf(r, id).Output); !strings.Contains(got, strings.ReplaceAll(want, "'", `"`)) {
		t.Errorf("%s gave %s, without %s", id, got, want)
	}
}

func orderCases() map[string]runCase {
	return map[string]runCase{
		"nothing": {plan: ``},
		"one":     {plan: `{'toolId':'a','tool':'do','input':{'as':'a'}}`, states: "a:success", began: "a"},
		"in the order of the list": {
			plan:   `{'toolId':'c','tool':'do','input':{'as':'c'}},{'toolId':'a','tool':'do','input':{'as':'a'}},{'toolId':'b','tool':'do','input':{'as':'b'}}`,
			states: "c:success a:success b:success", began: "c a b",
		},
		"behind what it depends on, and no further": {
			plan: `{'toolId':'d','tool':'do','input':{'as':'d'},'dependencies':['b']},{'toolId':'a','tool':'do','input':{'as':'a'}},` +
				`{'toolId':'b','tool':'do','input':{'as':'b'}},{'toolId':'c','tool':'do','input':{'as':'c'}}`,
			states: "a:success b:success d:success c:success", began: "a b d c",
		},
		"a diamond": {
			plan: `{'toolId':'d','tool':'do','input':{'as':'d'},'dependencies':['b','c']},{'toolId':'c','tool':'do','input':{'as':'c'},'dependencies':['a']},` +
				`{'toolId':'b','tool':'do','input':{'as':'b'},'dependencies':['a']},{'toolId':'a','tool':'do','input':{'as':'a'}}`,
			states: "a:success c:success b:success d:success", began: "a c b d",
		},
		"a dependency twice": {
			plan:   `{'toolId':'b','tool':'do','input':{'as':'b'},'dependencies':['a','a']},{'toolId':'a','tool':'do','input':{'as':'a'}}`,
			states: "a:success b:success", began: "a b",
		},
		"async without parallel does not overlap": {
			plan: `{'toolId':'a','tool':'do','async':true,'input':{'as':'a','take':50}},{'toolId':'b','tool':'do','async':true,'input':{'as':'b','take':50}}`,
			also: func(t *testing.T, r *plan.Result, _ *recorder, w *world) {
				if w.most != 1 || r.ExecutionTimeMs != 100 {
					t.Errorf("%d at once, %d ms", w.most, r.ExecutionTimeMs)
				}
			},
			states: "a:success b:success",
		},
		"parallel without async does not overlap": {
			plan: parallel(`{'toolId':'a','tool':'do','input':{'as':'a','take':50}},{'toolId':'b','tool':'do','async':true,'input':{'as':'b','take':50}},` +
				`{'toolId':'c','tool':'do','input':{'as':'c','take':50}}`),
			also: func(t *testing.T, r *plan.Result, _ *recorder, w *world) {
				if w.most != 1 || r.ExecutionTimeMs != 150 {
					t.Errorf("%d at once, %d ms", w.most, r.ExecutionTimeMs)
				}
			},
			states: "a:success b:success c:success", began: "a b c",
		},
		"parallel and async overlap": {
			plan: parallel(`{'toolId':'a','tool':'do','async':true,'input':{'as':'a','take':50}},{'toolId':'b','tool':'do','async':true,'input':{'as':'b','take':50}}`),
			also: func(t *testing.T, r *plan.Result, _ *recorder, w *world) {
				if w.most != 2 || r.ExecutionTimeMs != 50 {
					t.Errorf("%d at once, %d ms", w.most, r.ExecutionTimeMs)
				}
			},
			states: "a:success b:success",
		},
		"no more overlap than may": {
			plan: parallel(many(40, `'async':true`, `'take':10`)),
			also: func(t *testing.T, r *plan.Result, _ *recorder, w *world) {
				if w.most != 16 || len(r.ToolResults) != 40 {
					t.Errorf("%d at once of %d", w.most, len(r.ToolResults))
				}
			},
		},
		"one that runs alone is not overtaken": {
			plan: parallel(`{'toolId':'a','tool':'do','async':true,'input':{'as':'a','take':50}},{'toolId':'b','tool':'do','input':{'as':'b'}},` +
				`{'toolId':'c','tool':'do','async':true,'input':{'as':'c'}}`),
			states: "a:success b:success c:success", began: "a b c",
		},
		"a dependent does not overlap with what it needs": {
			plan: parallel(`{'toolId':'b','tool':'do','async':true,'input':{'as':'b'},'dependencies':['a']},{'toolId':'a','tool':'do','async':true,'input':{'as':'a','take':50}}`),
			also: func(t *testing.T, _ *plan.Result, _ *recorder, w *world) {
				kit.Equal(t, w.most, 1)
			},
			states: "a:success b:success", began: "a b",
		},
	}
}

// many is a list of tools.
func many(n int, fields, input string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{'toolId':'t%d','tool':'do',%s,'input':{'as':'t%d',%s}}`, i, fields, i, input))
	}
	return strings.Join(all, ",")
}

func failureCases() map[string]runCase {
	return map[string]runCase{
		"a required failure skips its dependents, and theirs": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9},` + retry(0) + `},{'toolId':'b','tool':'do','input':{'as':'b'},'dependencies':['a']},` +
				`{'toolId':'c','tool':'do','input':{'as':'c'},'dependencies':['b'],'required':false},{'toolId':'x','tool':'do','input':{'as':'x'}}`,
			states: "a:failed b:skipped c:skipped x:success", fails: plan.ToolFailure, began: "a x",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				kit.Equal(t, fmt.Sprintln(r.FailedTools, r.DisabledSkills, r.CanReplan, r.Error.Code),
					"[a] [do] true tool_failed\n", r)
			},
		},
		"an optional failure lets dependents run": {
			plan: `{'toolId':'a','tool':'do','required':false,'input':{'as':'a','fails':9},` + retry(0) + `},` +
				`{'toolId':'b','tool':'do','input':{'as':'b'},'dependencies':['a']}`,
			states: "a:failed b:success", began: "a b",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				kit.Equal(t, fmt.Sprintln(r.FailedTools, r.CanReplan, r.Error), "[a] false <nil>\n", r)
			},
		},
		"one of two dependencies failed": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a'}},{'toolId':'b','tool':'do','input':{'as':'b','fails':9},` + retry(0) + `},` +
				`{'toolId':'c','tool':'do','dependencies':['a','b']}`,
			states: "a:success b:failed c:skipped", fails: plan.ToolFailure, began: "a b",
		},
		"what runs already is not skipped": {
			plan:   parallel(`{'toolId':'a','tool':'do','async':true,'input':{'as':'a','fails':9},` + retry(0) + `},{'toolId':'b','tool':'do','async':true,'input':{'as':'b','take':50}}`),
			states: "a:failed b:success", fails: plan.ToolFailure,
		},
		"it succeeds at last": {
			plan:   `{'toolId':'a','tool':'do','input':{'as':'a','fails':3}}`,
			states: "a:success", began: "a a a a",
			also: func(t *testing.T, r *plan.Result, rec *recorder, _ *world) {
				if got := r.ToolResults[0]; got.RetryCount != 3 || got.ExecutionTimeMs != 100+200+400 || got.Error != nil {
					t.Errorf("%+v", got)
				}
				var told []string
				for _, s := range rec.steps(t) {
					told = append(told, fmt.Sprint(s.State, s.Attempt))
				}
				kit.Equal(t, strings.Join(told, " "), "running1 retrying1 running2 retrying2 running3 retrying3 running4 success4")
			},
		},
		"three retries are the default": {
			plan:   `{'toolId':'a','tool':'do','input':{'as':'a','fails':9}}`,
			states: "a:failed", began: "a a a a", fails: plan.ToolFailure,
		},
		"a policy that says half": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9},'retryPolicy':{'maxRetries':1,'backoffMs':1000}}`,
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				if got := r.ToolResults[0]; got.RetryCount != 1 || got.ExecutionTimeMs != 1000 {
					t.Errorf("%+v", got)
				}
			},
			states: "a:failed", began: "a a", fails: plan.ToolFailure,
		},
		"no retries":                                 {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9},` + retry(0) + `}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"a crash is tried again":                     {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':1,'code':'crash'}}`, states: "a:success", began: "a a"},
		"a crash":                                    {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'code':'crash'},` + retry(0) + `}`, states: "a:failed", began: "a", fails: plan.ProcessError},
		"a breach of protocol":                       {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'code':'protocol'},` + retry(0) + `}`, states: "a:failed", began: "a", fails: plan.InvalidJSON},
		"a bad exit":                                 {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'code':'protocol','why':'exit_status'},` + retry(0) + `}`, states: "a:failed", began: "a", fails: plan.ProcessError},
		"a refusal is final":                         {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'code':'access_denied'}}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"a lease is final":                           {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'code':'lease_required'}}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"a quota is final":                           {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'code':'quota_exceeded'}}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"a breaker is final":                         {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'code':'breaker_open'}}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"a wrong input is final":                     {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'code':'invalid_input'}}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"a file that is not there is final":          {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'says':'not_found'}}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"a tool that finds its input wrong is final": {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'says':'invalid_input'}}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"a tool that denies access is final":         {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'says':'access_denied'}}`, states: "a:failed", began: "a", fails: plan.ToolFailure},
		"another failure is not":                     {plan: `{'toolId':'a','tool':'do','input':{'as':'a','fails':1,'says':'not_now'}}`, states: "a:success", began: "a a"},
		"a question is final and said": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a','ask':true}}`, states: "a:failed", began: "a", fails: plan.ToolFailure,
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				if e := r.ToolResults[0].Error; e.Code != "asked" || !strings.Contains(e.Message, "sure?") {
					t.Errorf("%+v", e)
				}
			},
		},
		"a plan that is not right runs nothing": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a'}},{'toolId':'b','tool':'nosuch'}`, fails: plan.ToolFailure,
		},
		"a circle runs nothing": {plan: `{'toolId':'a','tool':'do','dependencies':['a']}`, fails: plan.CircularDependency},
	}
}

func timeCases() map[string]runCase {
	return map[string]runCase{
		"a tool has 30 s": {
			plan:   `{'toolId':'a','tool':'do','input':{'as':'a','take':31000}},{'toolId':'b','tool':'do','dependencies':['a']},{'toolId':'c','tool':'do','input':{'as':'c'}}`,
			states: "a:timeout b:skipped c:success", fails: plan.Timeout, began: "a c",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				if got := r.ToolResults[0]; got.ExecutionTimeMs != 30000 || got.Error.Category != plan.Timeout {
					t.Errorf("%+v", got)
				}
			},
		},
		"with all its attempts": {
			plan:   `{'toolId':'a','tool':'do','input':{'as':'a','fails':9,'take':14000},` + retry(10) + `}`,
			states: "a:timeout", fails: plan.Timeout, began: "a a a",
		},
		"and the pauses between them": {
			plan:   `{'toolId':'a','tool':'do','input':{'as':'a','fails':9},'retryPolicy':{'maxRetries':2,'backoffMs':40000}}`,
			states: "a:timeout", fails: plan.Timeout, began: "a",
		},
		"an optional one that is late": {
			plan:   `{'toolId':'a','tool':'do','required':false,'input':{'as':'a','take':31000}},{'toolId':'b','tool':'do','input':{'as':'b'},'dependencies':['a']}`,
			states: "a:timeout b:success", began: "a b",
		},
		"a plan has 60 s": {
			plan:   many(4, `'async':false`, `'take':25000`),
			states: "t0:success t1:success t2:timeout t3:skipped", fails: plan.Timeout,
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				if r.ExecutionTimeMs != 60000 || r.Error.Code != plan.CodePlanTimeout || !r.CanReplan {
					t.Errorf("%+v", r)
				}
			},
		},
	}
}

func referenceCases() map[string]runCase {
	a := `{'toolId':'a','tool':'do','input':{'as':'a','gives':{'n':1.50,'list':[{'k':'v'}],'text':'x','no':null}}},`
	return map[string]runCase{
		"a value keeps its kind and its digits": {
			plan:   a + `{'toolId':'b','tool':'do','input':{'as':'b','x':'${a.output.n}','y':'${a.output}'}}`,
			states: "a:success b:success",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				gave(t, r, "b", `'x':1.50`)
				gave(t, r, "b", `'y':{'list':[{'k':'v'}],'n':1.50,'no':null,'text':'x'}`)
			},
		},
		"a part of a list": {
			plan: a + `{'toolId':'b','tool':'do','input':{'as':'b','x':['${a.output.list.0.k}','${a.output.no}']}}`, states: "a:success b:success",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) { gave(t, r, "b", `'x':['v',null]`) },
		},
		"within a text": {
			plan:   a + `{'toolId':'b','tool':'do','input':{'as':'b','x':'<${a.output.text}|${a.output.n}|${a.output.list}|${HOME}|$${a.output.text}>'}}`,
			states: "a:success b:success",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				gave(t, r, "b", `'x':'<x|1.50|[{\'k\':\'v\'}]|${HOME}|${a.output.text}>'`)
			},
		},
		"an escape alone": {
			plan: a + `{'toolId':'b','tool':'do','input':{'as':'b','x':'$${a.output.text}'}}`, states: "a:success b:success",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) { gave(t, r, "b", `'x':'${a.output.text}'`) },
		},
		"what is not there": {
			plan: a + `{'toolId':'b','tool':'do','input':{'as':'b','x':'${a.output.list.1}'}}`, states: "a:success b:failed", fails: plan.ToolFailure, began: "a",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				if e := resultOf(r, "b").Error; !strings.Contains(e.Message, "${a.output.list.1} has no value") {
					t.Errorf("%+v", e)
				}
			},
		},
		"of an optional one that failed": {
			plan: `{'toolId':'a','tool':'do','required':false,'input':{'as':'a','fails':9},` + retry(0) + `},` +
				`{'toolId':'b','tool':'do','input':{'as':'b','x':'${a.output.n}','y':['${a.output}'],'z':'<${a.output}>'}}`,
			states: "a:failed b:success",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				gave(t, r, "b", `'args':{'as':'b','y':[null],'z':'<>'}`)
			},
		},
		"a value that does not fit the schema": {
			plan: a + `{'toolId':'b','tool':'strict','input':{'as':'b','n':'${a.output.text}'}}`, states: "a:success b:failed", fails: plan.ToolFailure, began: "a",
			also: func(t *testing.T, r *plan.Result, _ *recorder, _ *world) {
				if e := resultOf(r, "b").Error; e.Code != string(tool.CodeInvalidInput) {
					t.Errorf("%+v", e)
				}
			},
		},
	}
}

func eventCases() map[string]runCase {
	return map[string]runCase{
		"patches are seen by those behind": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a','patch':{'torch':{'lit':true},'old':null}}},{'toolId':'b','tool':'do','input':{'as':'b','patch':{'torch':{'oil':3}}}},` +
				`{'toolId':'c','tool':'do','input':{'as':'c'}}`,
			states: "a:success b:success c:success",
			also: func(t *testing.T, r *plan.Result, rec *recorder, _ *world) {
				gave(t, r, "a", `'state':{'old':1}`)
				gave(t, r, "b", `'state':{'torch':{'lit':true}}`)
				gave(t, r, "c", `'state':{'torch':{'lit':true,'oil':3}}`)
				kit.Equal(t, string(r.AggregatedState), `{"torch":{"lit":true,"oil":3}}`)
				kit.Equal(t, strings.Join(rec.of(tool.KindStatePatch), ";"), `{"torch":{"lit":true},"old":null};{"torch":{"oil":3}}`)
			},
		},
		"patches of failed attempts are not kept": {
			plan:   `{'toolId':'a','tool':'do','input':{'as':'a','fails':2,'patch':{'n':1},'asset':'x'}},{'toolId':'b','tool':'do','required':false,'input':{'as':'b','fails':9,'patch':{'m':1},'asset':'y'}}`,
			states: "a:success b:failed",
			also: func(t *testing.T, r *plan.Result, rec *recorder, _ *world) {
				if got := string(r.AggregatedState); got != `{"n":1,"old":1}` || len(rec.of(tool.KindStatePatch)) != 1 {
					t.Error(got, rec.of(tool.KindStatePatch))
				}
				if len(r.Assets) != 1 || r.Assets[0].AssetID != "x" || len(rec.of(tool.KindAsset)) != 3+4 {
					t.Errorf("%+v", r.Assets)
				}
			},
		},
		"patches come in the plan's order, not in that of completion": {
			plan: parallel(`{'toolId':'a','tool':'do','async':true,'input':{'as':'a','take':90,'patch':{'last':'a'}}},` +
				`{'toolId':'b','tool':'do','async':true,'input':{'as':'b','take':10,'patch':{'last':'b'}}},{'toolId':'c','tool':'do','async':true,'input':{'as':'c'},'dependencies':['b']}`),
			states: "a:success b:success c:success",
			also: func(t *testing.T, r *plan.Result, rec *recorder, _ *world) {
				gave(t, r, "c", `'state':{'last':'b','old':1}`)
				kit.Equal(t, string(r.AggregatedState)+strings.Join(rec.of(tool.KindStatePatch), ""), `{"last":"b","old":1}{"last":"a"}{"last":"b"}`)
			},
		},
		"events say whose they are": {
			plan:   `{'toolId':'a','tool':'do','input':{'as':'a','say':1,'event':{'event':'narrative_choice','payload':{}}}}`,
			states: "a:success",
			also: func(t *testing.T, r *plan.Result, rec *recorder, _ *world) {
				logs := strings.Join(rec.of(tool.KindLog), "\n")
				if !strings.Contains(logs, `{"level":"info","message":"0","fields":{"toolId":"a","a":1}}`) || !strings.Contains(logs, `{"plan":{"planId":"`+r.PlanID) {
					t.Error(logs)
				}
				if got := rec.of(tool.KindUIEvent); len(got) != 1 || got[0] != `{"event":"narrative_choice","payload":{}}` {
					t.Error(got)
				}
				if got := r.ToolResults[0].Events; len(got) != 2 || got[0].Kind != tool.KindUIEvent {
					t.Errorf("%+v", got)
				}
			},
		},
		"few of many events are kept": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a','say':3000}}`, states: "a:success",
			also: func(t *testing.T, r *plan.Result, rec *recorder, _ *world) {
				if n := len(r.ToolResults[0].Events); n != 1001 || len(rec.events) < 3000 {
					t.Error(n, len(rec.events))
				}
			},
		},
		"more output than a plan may give": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a','gives':'` + strings.Repeat("x", 3<<20) + `'}},{'toolId':'b','tool':'do','input':{'as':'b','gives':'${a.output}'}},` +
				`{'toolId':'c','tool':'do','input':{'as':'c','gives':'${a.output}'}},{'toolId':'d','tool':'do','input':{'as':'d','gives':1}}`,
			states: "a:success b:success c:failed d:success", fails: plan.ToolFailure,
		},
		"each call is one of the engine's, and knows its parent": {
			plan: `{'toolId':'a','tool':'do','input':{'as':'a'}}`, states: "a:success",
			also: func(t *testing.T, r *plan.Result, _ *recorder, w *world) {
				c := w.calls[0]
				if c.Parent != "outer" || c.Run != "run-1" || c.Caller.ID != "ada" || c.Session != "" || c.ID != r.ToolResults[0].Call ||
					c.Spec.Name != "do" || !c.Guarantees.NoNetwork {
					t.Errorf("%+v", c)
				}
			},
		},
	}
}

func TestAPlanRunsByTheRules(t *testing.T) {
	for _, table := range []map[string]runCase{orderCases(), failureCases(), timeCases(), referenceCases(), eventCases()} {
		for name, c := range table {
			t.Run(name, func(t *testing.T) { synctest.Test(t, c.run) })
		}
	}
}

func (c runCase) run(t *testing.T) {
	w := newWorld(t)
	text := c.plan
	if !strings.HasPrefix(text, `{'requestId'`) {
		text = one(text)
	}
	call := outer()
	call.State, call.Guarantees.NoNetwork = json.RawMessage(`{"old":1}`), true
	var rec recorder
	x := plan.Executor{Handler: w, Catalog: w}
	r := kit.Must(x.Run(t.Context(), plan.Run{Call: call, Plan: parse(t, text)}, &rec))(t)
	if got := states(r); c.states != "" && got != c.states {
		t.Errorf("%s, want %s", got, c.states)
	}
	if got := strings.Join(w.began, " "); c.began != "" && got != c.began {
		t.Errorf("began %s, want %s", got, c.began)
	}
	category := ""
	if r.Error != nil {
		category = r.Error.Category
	}
	if category != c.fails || r.Success != (c.fails == "") || r.AttemptNumber != 1 || r.PlanID == "" {
		t.Errorf("%+v, error %+v", r, r.Error)
	}
	if c.also != nil {
		c.also(t, r, &rec, w)
	}
}

func TestCancellingAPlanCancelsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(tool.Errorf(tool.CodeCancelled, "enough")) })
		x := plan.Executor{Handler: w, Catalog: w}
		begun := time.Now()
		r, err := x.Run(ctx, plan.Run{Call: outer(), Plan: parse(t, parallel(many(4, `'async':true`, `'take':9000`)))}, &recorder{})
		if r != nil || tool.CodeOf(err) != tool.CodeCancelled || !strings.Contains(err.Error(), "enough") || time.Since(begun) != time.Second || w.now != 0 {
			t.Errorf("%+v, %v, after %v, %d run", r, err, time.Since(begun), w.now)
		}
	})
}

// Events of plans are encoded by hand: they must match their types.
func TestEncodedEventsMatchTheirTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var kinds [2]int
		out := tool.SinkFunc(func(ev tool.Event) error {
			var data struct {
				Fields struct {
					Plan, Step json.RawMessage
				}
			}
			kit.Check(t, json.Unmarshal(ev.Data, &data), ev.Data)
			for i, c := range []struct {
				text json.RawMessage
				into any
			}{{data.Fields.Plan, new(plan.Begun)}, {data.Fields.Step, new(plan.Step)}} {
				if c.text == nil {
					continue
				}
				kinds[i]++
				err := strictjson.UnmarshalClosed(c.text, c.into)
				if again, _ := strictjson.Marshal(c.into); err != nil || string(again) != string(c.text) {
					t.Errorf("%s is not %s: %v", c.text, again, err)
				}
			}
			return nil
		})
		p := parse(t, `{"requestId":"r\"ä","narrative":"<n>","tools":[{"toolId":"a\\","tool":"get","input":{"as":"a","take":5}},
			{"toolId":"b","tool":"do","dependencies":["a\\"],"input":{"as":"b","fails":9},"retryPolicy":{"maxRetries":1},"required":false}]}`)
		x := plan.Executor{Handler: w, Catalog: w}
		kit.Must(x.Run(t.Context(), plan.Run{Call: outer(), Plan: p}, out))(t)
		if kinds != [2]int{1, 6} {
			t.Errorf("%d of plans and %d of steps", kinds[0], kinds[1])
		}
	})
}

func TestPlanStopsWhenItsSinkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gone := errors.New("gone")
		n := 0
		out := tool.SinkFunc(func(tool.Event) error {
			if n++; n > 2 {
				return gone
			}
			return nil
		})
		x := plan.Executor{Handler: w, Catalog: w}
		_, err := x.Run(t.Context(), plan.Run{Call: outer(), Plan: parse(t, one(many(4, `'async':true`, `'take':10`)))}, out)
		if !errors.Is(err, gone) || len(w.began) > 2 {
			t.Errorf("%v, %v", err, w.began)
		}
	})
}

// A plan may run another, which has everything that the outer one has; but not without end.
func TestRecursivePlanEndsAtTheMaximumDepth(t *testing.T) {
	w := newWorld(t)
	x := plan.Executor{Handler: w, Catalog: w}
	itself := parse(t, `{'requestId':'r','tools':[{'toolId':'a','tool':'do','input':{'as':'a','patch':{'n':1}}},`+
		`{'toolId':'b','tool':'nest','retryPolicy':{'maxRetries':0}}]}`)
	w.nest = func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if c.Depth > 2*tool.MaxDepth {
			t.Error("it does not end")
			return tool.Failed("endless", "too deep"), nil
		}
		r, err := x.Run(ctx, plan.Run{Call: c, Plan: itself}, out)
		if err != nil || r.Success {
			return &tool.Result{OK: true}, err
		}
		return tool.Failed("inner", r.Error.Message), nil
	}
	out := &recorder{}
	r, err := x.Run(t.Context(), plan.Run{Call: outer(), Plan: itself}, out)
	if err != nil || r.Success || !strings.Contains(r.Error.Message, "calls deep") || len(w.began) != tool.MaxDepth {
		t.Fatalf("%v, %d calls: %v", err, len(w.began), r.Error)
	}
	for i, c := range w.calls {
		if c.Depth != i+1 || c.Caller.ID != "ada" || c.Run != "run-1" || (i == 0) != (c.Parent == "outer") {
			t.Errorf("call %d: %+v", i, c)
		}
	}
	for _, s := range out.steps(t) {
		kit.Equal(t, s.PlanID, r.PlanID, "a step of an inner plan is told as one of the outer: %+v", s)
	}
}

// A shelf is a store with one plan that another process began, and the state that it was left in.
type shelf struct {
	plan.Store
	left  plan.Record
	ended string
}

func (s *shelf) Adopt(context.Context, string, string, string) (plan.Record, []plan.Note, error) {
	return s.left, nil, nil
}

func (s *shelf) Note(context.Context, string, []plan.Note) error { return nil }

func (s *shelf) End(_ context.Context, _, state string, _ []byte, _ []plan.Note) error {
	s.ended = state
	return nil
}

// A tool can disappear between two processes. A plan that cannot be resumed ends, and does not seem to run for ever.
func TestResumedPlanEndsIfItsToolsAreGone(t *testing.T) {
	w := newWorld(t)
	store := &shelf{left: plan.Record{ID: "left", State: plan.Running, Plan: json.RawMessage(`{"requestId":"r","tools":[{"toolId":"a","tool":"gone"}]}`), Before: json.RawMessage(`[]`)}}
	x := plan.Executor{Handler: w, Catalog: w, Store: store}
	r, err := x.Resume(t.Context(), plan.Run{Call: outer()}, "left", nil, &recorder{})
	if err != nil || r.Success || store.ended != plan.Failed {
		t.Errorf("%+v, %v; it is %q", r, err, store.ended)
	}
}

// A planner can disappear between two processes too, or no longer be available to the caller.
func TestResumedPlanFailsIfItsPlannerIsGone(t *testing.T) {
	w := newWorld(t)
	store := &shelf{left: plan.Record{ID: "left", State: plan.Running, Planner: "gone", Plan: json.RawMessage(`{"requestId":"r","tools":[{"toolId":"a","tool":"gone"}]}`), Before: json.RawMessage(`[]`)}}
	x := plan.Executor{Handler: w, Catalog: w, Store: store}
	none := func(tool.Principal, string) (plan.Planner, error) { // a typed nil, as some functions return it
		return (*nobody)(nil), tool.Errorf(tool.CodeNotFound, "there is no planner")
	}
	r, err := x.Resume(t.Context(), plan.Run{Call: outer()}, "left", none, &recorder{})
	if err != nil || r.Success || store.ended != plan.Failed {
		t.Errorf("%+v, %v; it is %q", r, err, store.ended)
	}
}

type nobody struct{ name string }

func (n *nobody) Plan(context.Context, plan.Request) (*plan.Plan, error) {
	return nil, tool.Errorf(tool.CodeInternal, "%s was asked", n.name)
}

// A new process opens its sources while it resumes what another began.
func TestAResumedPlanWaitsForItsTools(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // how long its source takes to open
		want  string        // how it ends
	}{
		"there already": {0, plan.Done},
		"soon there":    {7 * time.Second, plan.Done},
		"too late":      {time.Hour, plan.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if c.after > 0 {
					w.Replace(t.Context(), nil)
				}
				go func() {
					time.Sleep(c.after)
					w.Replace(t.Context(), []engine.Binding{{Name: "s", Protocol: "fake", Runner: source{w}}})
				}()
				const bound = time.Minute
				store := &shelf{left: plan.Record{ID: "left", State: plan.Running, Before: json.RawMessage(`[]`),
					Plan: json.RawMessage(`{"requestId":"r","tools":[{"toolId":"a","tool":"do"},{"toolId":"b","toolPath":"x/dice.py"}]}`)}}
				x := plan.Executor{Handler: w, Catalog: w, Store: store, Settled: time.Now().Add(bound)}
				began := time.Now()
				r, err := x.Resume(t.Context(), plan.Run{Call: outer()}, "left", nil, &recorder{})
				if took := time.Since(began); err != nil || store.ended != c.want || r.Success != (c.want == plan.Done) || took < min(c.after, bound) || took > bound {
					t.Errorf("after %v it is %q: %+v, %v", took, store.ended, r, err)
				}
				time.Sleep(c.after)
			})
		})
	}
}

// A call that ends meanwhile waits no longer; and if it is made again, as after a shutdown, the plan is resumed then.
func TestCancelledResumeIsNotAFailure(t *testing.T) {
	for _, c := range []struct {
		why  *tool.Error
		want string
	}{
		{tool.Errorf(tool.CodeCancelled, "the job was cancelled"), plan.Cancelled},
		{tool.Errorf(tool.CodeCancelled, "the program was shut down").Because(plan.Shutdown), plan.Running},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			store := &shelf{left: plan.Record{ID: "left", State: plan.Running, Before: json.RawMessage(`[]`),
				Plan: json.RawMessage(`{"requestId":"r","tools":[{"toolId":"a","tool":"gone"}]}`)}}
			x := plan.Executor{Handler: w, Catalog: w, Store: store, Settled: time.Now().Add(time.Hour)}
			ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, c.why)
			defer stop()
			call := outer()
			call.Background = true
			began := time.Now()
			_, err := x.Resume(ctx, plan.Run{Call: call}, "left", nil, &recorder{})
			if took := time.Since(began); took != time.Second || !errors.Is(err, c.why) || store.ended != c.want {
				t.Errorf("%v: after %v it is %q: %v", c.why, took, store.ended, err)
			}
		})
	}
}

// The events of tools are kept up to a limit of the whole plan; a tool with too much data about assets is stopped.
func TestEventsOfAPlanAreBounded(t *testing.T) {
	w := newWorld(t)
	x := plan.Executor{Handler: w, Catalog: w}
	p := parse(t, one(many(4, retry(0), `'say':300,'size':8192`)+`,{'toolId':'p','tool':'do','required':false,'input':{'as':'p','much':80},`+retry(0)+`}`))
	r, err := x.Run(t.Context(), plan.Run{Call: outer(), Plan: p}, &recorder{})
	if err != nil || states(r) != "t0:success t1:success t2:success t3:success p:failed" {
		t.Fatalf("%v, %s", err, states(r))
	}
	kept := 0
	for _, one := range r.ToolResults[:4] {
		for _, ev := range one.Events {
			kept += len(ev.Data)
		}
	}
	last := r.ToolResults[3].Events
	if kept < 3<<20 || kept > 4<<20+4096 || len(last) != 1 || !strings.Contains(string(last[0].Data), "more events than are kept") {
		t.Errorf("%d bytes of events are kept, and %d events of the last", kept, len(last))
	}
	if e := resultOf(r, "p").Error; e.Code != string(tool.CodeQuotaExceeded) {
		t.Errorf("20 MiB about assets: %+v", e)
	}
}

// One tool may emit a lot, and a plan has ten thousand of them: their output and events are bounded together.
func TestTotalOutputOfAPlanIsBounded(t *testing.T) {
	w := newWorld(t)
	x := plan.Executor{Handler: w, Catalog: w}
	p := parse(t, one(many(6, `'required':false,`+retry(0), `'much':20`)))
	for i := range 3 { // these fail, with errors as large
		p.Tools[3+i].Input = fmt.Appendf(nil, `{"as":"f%d","fails":1,"size":5000000}`, i)
	}
	r := kit.Must(x.Run(t.Context(), plan.Run{Call: outer(), Plan: p}, &recorder{}))(t)
	size := 0
	for _, one := range r.ToolResults {
		if one.Error != nil {
			size += len(one.Error.Message) + len(one.Error.Details)
		}
	}
	for _, a := range r.Assets {
		size += len(a.Metadata)
	}
	if size > 8<<20+10_000 || len(r.Assets) != 20 {
		t.Errorf("%d bytes and %d assets: %s", size, len(r.Assets), states(r))
	}
}

// A reference has a few bytes, but its value can be as large as a tool's output.
func TestReferencesCannotBlowArgumentsUp(t *testing.T) {
	const times = plan.MaxBytes>>20 + 1
	gives := `{'toolId':'a','tool':'do','input':{'as':'a','gives':{'x':'` + strings.Repeat("x", 1<<20) + `'}}},`
	for name, input := range map[string]string{
		"in a text":    `'` + strings.Repeat("${a.output.x}", times) + `'`,
		"in a list":    `[` + strings.Repeat(`'${a.output}',`, times) + `0]`,
		"in an object": `{` + strings.Repeat(`'%d':'${a.output.x}',`, times) + `'':0}`,
	} {
		t.Run(name, func(t *testing.T) {
			for n := range times {
				input = strings.Replace(input, "%d", fmt.Sprint(n), 1)
			}
			w := newWorld(t)
			x := plan.Executor{Handler: w, Catalog: w}
			p := parse(t, one(gives+`{'toolId':'b','tool':'do','input':{'as':'b','event':`+input+`}},{'toolId':'c','tool':'do','input':{'as':'c','event':'${a.output.x}'}}`))
			r, err := x.Run(t.Context(), plan.Run{Call: outer(), Plan: p}, &recorder{})
			if err != nil || states(r) != "a:success b:failed c:success" || !strings.Contains(resultOf(r, "b").Error.Message, "more than 8388608 bytes") {
				t.Errorf("%v, %s, %.200v", err, states(r), resultOf(r, "b").Error)
			}
			if slices.Contains(w.began, "b") || resultOf(r, "b").RetryCount != 0 {
				t.Error("it was called, or tried again")
			}
		})
	}
}

// planners returns one plan after the other, and keeps its requests.
type planners struct {
	plans []string
	t     *testing.T
	asked []plan.Request
}

func (p *planners) Plan(_ context.Context, r plan.Request) (*plan.Plan, error) {
	p.asked = append(p.asked, r)
	if len(p.asked) > len(p.plans) {
		return nil, tool.Errorf(tool.CodeNotFound, "no more plans")
	}
	return parse(p.t, p.plans[len(p.asked)-1]), nil
}

func TestAPlanThatFailedIsReplaced(t *testing.T) {
	fails := one(`{'toolId':'a','tool':'do','input':{'as':'a','fails':99,'patch':{'never':1}},` + retry(0) + `},{'toolId':'p','tool':'get','input':{'as':'p','patch':{'kept':1}}}`)
	works := one(`{'toolId':'b','tool':'get','input':{'as':'b'}}`)
	forbidden := one(`{'toolId':'b','tool':'do'}`)
	bad := one(`{'toolId':'b','tool':'get','input':{'as':'b','fails':99},` + retry(0) + `}`)
	for name, c := range map[string]struct {
		first   string
		plans   []string
		attempt int
		success bool
		asked   int
	}{
		"at the first try":    {fails, []string{works}, 2, true, 1},
		"at the second":       {fails, []string{forbidden, works}, 3, true, 2},
		"never":               {fails, []string{bad, forbidden, forbidden, forbidden, forbidden, works}, 6, false, 5},
		"no other plan":       {fails, nil, 1, false, 1},
		"a circle is, too":    {one(`{'toolId':'a','tool':'do','dependencies':['a']}`), []string{works}, 2, true, 1},
		"one that succeeds":   {works, []string{works}, 1, true, 0},
		"the fifth replan":    {`{'metadata':{'generationAttempt':5},` + fails[1:], []string{bad, works}, 6, false, 1},
		"one beyond the last": {`{'metadata':{'generationAttempt':9},` + fails[1:], []string{works}, 9, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := &planners{plans: c.plans, t: t}
				var rec recorder
				x := plan.Executor{Handler: w, Catalog: w}
				r, err := x.Run(t.Context(), plan.Run{Call: outer(), Plan: parse(t, c.first), Planner: p, Prompt: "go"}, &rec)
				if err != nil || r.AttemptNumber != c.attempt || r.Success != c.success || len(p.asked) != c.asked {
					t.Fatalf("%+v, %v; asked %d times", r, err, len(p.asked))
				}
				for i, asked := range p.asked {
					if asked.Prompt != "go" || asked.ID != "r" || asked.Attempt < 2 || asked.Failed == nil || asked.Failed.PlanID == "" || len(asked.Tools) == 0 {
						t.Errorf("%d: %+v", i, asked)
					}
					if c.first == fails && (asked.Disabled[0] != "do" || string(asked.State) != `{"kept":1}`) {
						t.Errorf("%d: disabled %v, state %s", i, asked.Disabled, asked.State)
					}
				}
				if c.attempt == 6 && c.first == fails && !slices.Equal(r.DisabledSkills, []string{"do", "get"}) {
					t.Error(r.DisabledSkills)
				}
				kit.Equal(t, r.CanReplan, (name == "no other plan"), "it can be replaced")
			})
		})
	}
}
