package plan_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tools "toolpost/builtin/plan"
	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/plan"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

type reference struct{ tooltest.Reference }

func (reference) Close(context.Context) error { return nil }

// A house is an engine with the plan tools and the reference tools, and a store.
type house struct {
	*engine.Engine
	t  *testing.T
	db *store.DB
	x  *plan.Executor
}

func open(t *testing.T) *house {
	t.Helper()
	db := kit.Must(sqlite.Open(filepath.Join(t.TempDir(), "store.db"), store.Options{}))(t)
	h := &house{engine.New(engine.Options{}), t, db, nil}
	h.x = &plan.Executor{
		Handler: h, Catalog: h, Store: db.Plans(), Again: func(*tool.Call, string) ([]byte, error) { return []byte("{}"), nil },
	}
	set := tools.New(tools.Options{Executor: h.x, Store: db.Plans()})
	h.Replace(t.Context(), []engine.Binding{
		{Name: "toolpost", Protocol: "builtin", Runner: set}, {Name: "ref", Protocol: "fake", Runner: reference{}},
	})
	t.Cleanup(func() {
		kit.Check(t, h.Close(context.Background()))
		kit.Check(t, db.Close())
	})
	return h
}

// call calls a tool as p. Single quotes stand for double ones.
func (h *house) call(p tool.Principal, name, args string) (*tool.Result, error) {
	return h.Invoke(h.t.Context(), &tool.Call{
		Tool: name, Args: json.RawMessage(strings.ReplaceAll(args, "'", `"`)), Caller: p,
	}, tool.Discard)
}

// gives decodes the output of a call by ada.
func gives[T any](h *house, name, args string) (out T) {
	h.t.Helper()
	r, err := h.call(ada, name, args)
	if err == nil {
		err = strictjson.Unmarshal(r.Output, &out)
	}
	kit.OK(h.t, err, "%s %s", name, args)
	return out
}

var (
	ada      = tool.Principal{ID: "ada"}
	operator = tool.Principal{ID: "owner", Operates: true}
)

const (
	right = `{'plan':{'requestId':'r','tools':[{'toolId':'a','tool':'echo','input':{'value':1}}]}}`
	wrong = `{'plan':{'requestId':'r','tools':[{'toolId':'a','tool':'echo','dependencies':['b']}]}}`
)

func TestInvalidPlanIsAResultNotAnError(t *testing.T) {
	h := open(t)
	for _, args := range []string{wrong, `{'plan':{}}`, `{'plan':{'requestId':'r','tools':[{'toolId':'a','tool':'nosuch'}]}}`} {
		if r := gives[plan.Result](h, "plan.run", args); r.Success || r.Error == nil || len(r.ToolResults) != 0 {
			t.Errorf("%s: %+v", args, r)
		}
		if r, err := h.call(ada, "plan.run", args); err != nil || r.OK || r.Failure.Code != tool.CodeToolError ||
			!strings.HasPrefix(r.Failure.Message, "the plan failed: ") {
			t.Errorf("%s: the call of a plan that failed did not: %+v, %v", args, r, err)
		}
		c := gives[tools.Checked](h, "plan.check", args)
		if c.Valid || c.Error == nil || c.Order == nil {
			t.Errorf("%s: %+v", args, c)
		}
	}
	r, err := h.call(ada, "plan.check", right)
	if err != nil || string(r.Output) != `{"valid":true,"order":["a"]}` || r.Summary != "the plan is right: 1 tool" {
		t.Errorf("%s, %v", r.Output, err)
	}
}

func TestArgumentsOfRun(t *testing.T) {
	h := open(t)
	for args, want := range map[string]tool.Code{
		`{}`:                                    tool.CodeInvalidInput,
		right[:len(right)-1] + `,'resume':'p'}`: tool.CodeInvalidInput,
		right[:len(right)-1] + `,'planner':'who'}`:      tool.CodeNotFound,
		`{'plan':'text'}`:                               tool.CodeInvalidInput,
		`{'plan':[]}`:                                   tool.CodeInvalidInput,
		`{'resume':'nosuch'}`:                           tool.CodeNotFound,
		`{'resume':'` + strings.Repeat("x", 300) + `'}`: tool.CodeInvalidInput,
	} {
		kit.Refused(t, kit.Err(h.call(ada, "plan.run", args)), want, "", args)
	}
}

func TestPlansAreSeenByTheirCallersAndByOperators(t *testing.T) {
	h := open(t)
	ran := gives[plan.Result](h, "plan.run", right)
	if !ran.Success || len(ran.ToolResults) != 1 {
		t.Fatalf("%+v", ran)
	}
	show := `{'plan':'` + ran.PlanID + `'}`
	for _, who := range []struct {
		tool.Principal
		sees bool
	}{{ada, true}, {operator, true}, {tool.Principal{ID: "eve"}, false}} {
		r, err := h.call(who.Principal, "plan.show", show)
		if who.sees != (err == nil) || !who.sees && tool.CodeOf(err) != tool.CodeNotFound {
			t.Errorf("%s: %v", who.ID, err)
		}
		if who.sees && !strings.Contains(string(r.Output), `"state":"done"`) {
			t.Errorf("%s sees %s", who.ID, r.Output)
		}
		listed, err := h.call(who.Principal, "plan.list", `{'state':'done','limit':5}`)
		if err != nil || strings.Contains(string(listed.Output), ran.PlanID) != who.sees {
			t.Errorf("%s: %+v, %v", who.ID, listed, err)
		}
	}
	for _, args := range []string{`{'state':'waiting'}`, `{'limit':0}`, `{'limit':1001}`} {
		kit.Refused(t, kit.Err(h.call(ada, "plan.list", args)), tool.CodeInvalidInput, "", args)
	}
}

func TestWithoutAStoreThereIsNothingToShow(t *testing.T) {
	set := tools.New(tools.Options{Executor: new(plan.Executor)})
	specs, err := set.Tools(t.Context())
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
	}
	if err != nil || !slices.Equal(names, []string{"plan.check", "plan.run"}) {
		t.Errorf("%v, %v", names, err)
	}
}

// A job is a call without a waiting client, which is repeated after its program has ended: it continues the plan that it
// began, and does not begin another.
func TestAJobThatRunsAgainGoesOnWithItsPlan(t *testing.T) {
	h := open(t)
	var runs [2]plan.Result
	for i := range runs {
		c := &tool.Call{
			ID: "the-job", Tool: "plan.run", Args: json.RawMessage(strings.ReplaceAll(right, "'", `"`)), Caller: ada, Background: true,
		}
		r, err := h.Invoke(t.Context(), c, tool.Discard)
		if err == nil {
			err = strictjson.Unmarshal(r.Output, &runs[i])
		}
		kit.OK(t, err)
	}
	if runs[0].PlanID != runs[1].PlanID || runs[0].ToolResults[0].Call != runs[1].ToolResults[0].Call {
		t.Errorf("%+v and %+v", runs[0], runs[1])
	}
}
