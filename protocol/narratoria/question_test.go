package narratoria_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// questioned calls a tool that asks, with or without answers.
func questioned(t *testing.T, what, answers, resume string) outcome {
	t.Helper()
	var sink tooltest.Collect
	r, err := newRunner(t, python("asks.py")).Invoke(t.Context(), &tool.Call{
		ID: "request-1", Tool: "torch", Args: json.RawMessage(`{"ask":"` + what + `","answers":"an argument"}`),
		Answers: json.RawMessage(answers), Resume: resume,
	}, &sink)
	return outcome{r, err, sink.Events()}
}

func TestQuestionEndsTheCall(t *testing.T) {
	for what, want := range map[string]struct{ message, schema string }{
		"form":   {"What is your name?", `{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}`},
		"twice":  {"second?", ``},
		"rounds": {"What is your name?", `{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}`},
	} {
		t.Run(what, func(t *testing.T) {
			got := questioned(t, what, "", "")
			if got.err != nil || got.result.OK || got.result.Ask == nil || got.result.Failure != nil {
				t.Fatalf("%+v, %v", got.result, got.err)
			}
			a := got.result.Ask
			if a.Message != want.message || string(a.Schema) != want.schema || a.ID == "" {
				t.Errorf("it asks %+v", a)
			}
			if again := questioned(t, what, "", ""); again.result.Ask.ID != a.ID {
				t.Errorf("the same question is called %s, and then %s", a.ID, again.result.Ask.ID)
			}
			if warned := strings.Contains(eventsOf(got), "takes the place of an earlier one"); warned != (what == "twice") {
				t.Errorf("the events are %s", eventsOf(got))
			}
		})
	}
}

func eventsOf(got outcome) string {
	var all strings.Builder
	for _, e := range got.events {
		all.WriteString(string(e.Kind) + " " + string(e.Data) + "\n")
	}
	return all.String()
}

func TestAToolAsksForSeveralThings(t *testing.T) {
	got := questioned(t, "needs", "", "")
	if got.err != nil || got.result.Ask == nil || len(got.result.Ask.Needs) != 2 {
		t.Fatalf("%+v, %v", got.result, got.err)
	}
	who, folders := got.result.Ask.Needs[0], got.result.Ask.Needs[1]
	if who.Kind != tool.NeedForm || who.Key != "who" || who.Message != "Who?" || len(who.Schema) == 0 || who.Optional {
		t.Errorf("it needs %+v", who)
	}
	if folders.Kind != tool.NeedRoots || !folders.Optional {
		t.Errorf("it needs %+v", folders)
	}
}

func TestAToolFindsTheAnswersInItsEnvelope(t *testing.T) {
	got := questioned(t, "form", `{"name":"Ada"}`, "q")
	want := `{"answers": {"name": "Ada"}, "resume": "q", "repeated": true}`
	if got.err != nil || !got.result.OK || string(got.result.Output) != want {
		t.Errorf("%+v, %v", got.result, got.err)
	}
}

func TestAToolGoesFromQuestionToQuestionByItsOwnId(t *testing.T) {
	got := questioned(t, "rounds", `{"name":"Ada"}`, "anything")
	if got.err != nil || got.result.Ask == nil || got.result.Ask.ID != "colour:Ada" {
		t.Fatalf("%+v, %v", got.result, got.err)
	}
	got = questioned(t, "rounds", `{"colour":"red"}`, got.result.Ask.ID)
	if got.err != nil || string(got.result.Output) != `{"name": "Ada", "colour": "red"}` {
		t.Errorf("%+v, %v", got.result, got.err)
	}
}

func TestAToolThatSaysNoDoesNotAsk(t *testing.T) {
	got := questioned(t, "refuse", "", "")
	if got.err != nil || got.result.Ask != nil || got.result.Failure == nil {
		t.Errorf("%+v, %v", got.result, got.err)
	}
}

func TestUnreadableQuestionIsAnOrdinaryEvent(t *testing.T) {
	got := questioned(t, "bad", "", "")
	if got.err != nil || got.result.Ask != nil || !got.result.OK || !strings.Contains(eventsOf(got), "this question cannot be asked") {
		t.Errorf("%+v, %v: %s", got.result, got.err, eventsOf(got))
	}
}

// The runner reads the door's question, and the door reads the runner's answers.
func TestAQuestionGoesThroughDoorAndRunner(t *testing.T) {
	asks := tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		if c.Answers == nil {
			return &tool.Result{Ask: &tool.Ask{ID: "7", Message: "sure?", Schema: []byte(`{"type":"boolean"}`)}}, nil
		}
		return &tool.Result{OK: true, Output: json.RawMessage(`{"resume":"` + c.Resume + `","answers":` + string(c.Answers) + `}`)}, nil
	})
	out := serve(t, asks, `{"requestId":"r","input":{"a":1}}`, "r")
	wantLines(t, out, `{"event":"ask","payload":{"id":"7","message":"sure?","schema":{"type":"boolean"}},"type":"ui_event"}`,
		`{"ok":true,"summary":"it asks: sure?","type":"done"}`)
	out = serve(t, asks, `{"requestId":"r","input":{"a":1},"answers":true,"resume":"7"}`, "r")
	wantLines(t, out, `{"ok":true,"output":{"answers":true,"resume":"7"},"type":"done"}`)
	// Without an input they are arguments.
	if out = serve(t, asks, `{"answers":true,"resume":"7"}`, ""); out[0]["event"] != "ask" {
		t.Errorf("%s", out)
	}
}

// contract(narratoria): `ok: true` indicates successful logical completion.
func TestChoicesAreNoQuestion(t *testing.T) {
	got := questioned(t, "choice", "", "")
	wantOK(t, got)
	if got.result.Ask != nil || got.result.Summary != "Where to?" || !strings.Contains(eventsOf(got), "narrative_choice") {
		t.Errorf("%+v: %s", got.result, eventsOf(got))
	}
}
