package node_test

import (
	"encoding/json"
	"testing"

	"toolpost/node"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The outcomes of the last two tools, which succeed, are only in the result of the plan.
const lookAround = `{"plan":{"requestId":"r","parallel":true,"tools":[
{"toolId":"a","tool":"writeFile","input":{"path":"a","content":"here"}},
{"toolId":"b","tool":"readFile","input":{"path":"missing"},"async":true,"required":false,"retryPolicy":{"maxRetries":0}},
{"toolId":"c","tool":"listFiles","input":{"path":"."},"async":true},
{"toolId":"d","tool":"readFile","input":{"path":"a"},"async":true}]}}`

// If the program of a job dies between the end of the job's plan and its own end, the job is run again, but its tools are
// not.
func TestEndedPlanIsNotRunAgain(t *testing.T) {
	n := open(t, parse(t, t.TempDir(), "sources: [{name: files, protocol: builtin, roots: [{path: ., write: true}]}]\nstore: {}\n"),
		node.Options{})
	defer shut(t, n)
	ask := func(into any, c tool.Call) {
		t.Helper()
		c.Caller = tool.Principal{ID: "local", Door: "cli"}
		r, err := n.Handler().Invoke(t.Context(), &c, tool.Discard)
		if err == nil && r.OK {
			err = strictjson.Unmarshal(r.Output, into)
		}
		if err != nil || !r.OK {
			t.Fatalf("%s: %v, %+v", c.Tool, err, r)
		}
	}
	run := tool.Call{ID: "job", Tool: "plan.run", Args: json.RawMessage(lookAround), Background: true}
	var first, second plan.Result
	ask(&first, run)
	ask(&second, run)
	if first.PlanID != second.PlanID || !first.Success || !second.Success || len(second.ToolResults) != 4 {
		t.Fatalf("first %+v\nthen %+v", first, second)
	}
	for i, was := range first.ToolResults {
		if is := second.ToolResults[i]; is.Call != was.Call || is.State != was.State || string(is.Output) != string(was.Output) {
			t.Errorf("%s: first %+v\nthen %+v", was.ToolID, was, is)
		}
	}
	want := plan.Counts{Tools: 4, Done: 3, Failed: 1}
	var all struct {
		Plans []plan.Record `json:"plans"`
	}
	if ask(&all, tool.Call{Tool: "plan.list", Args: json.RawMessage(`{}`)}); len(all.Plans) != 1 || all.Plans[0].Counts != want {
		t.Errorf("listed: %+v", all.Plans)
	}
	var shown plan.Record
	ask(&shown, tool.Call{Tool: "plan.show", Args: json.RawMessage(`{"plan":"` + first.PlanID + `"}`)})
	if shown.State != plan.Done || shown.Counts != want {
		t.Errorf("shown: %+v", shown)
	}
}
