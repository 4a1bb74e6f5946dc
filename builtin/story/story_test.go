package story_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/builtin/story"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/plan"
	"toolpost/plan/planner"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const tale = `
answers:
  - prompts: [begin]
    plan: {narrative: Who is there?, tools: [{toolId: a, tool: story.offer, input: {choices: [{label: Ada herself, id: ada}]}}]}
  - prompts: [ada herself]
    plan: {narrative: Come in., tools: []}
`

// A house is an engine with the story tools, and the history of the sessions.
type house struct {
	*engine.Engine
	past []plan.Record
}

func open(t *testing.T) *house {
	t.Helper()
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "tale.yaml"), []byte(tale), 0o600))
	cfg, err := config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte("planners: [{name: tale, file: tale.yaml}]"))
	kit.OK(t, err)
	planners := planner.New(planner.Env{})
	apply := kit.Must(planners.Read(cfg))(t)
	apply()
	h := &house{Engine: engine.New(engine.Options{})}
	set := story.New(story.Options{
		Planners: planners, Plans: &plan.Executor{Handler: h, Catalog: h},
		Past: func(context.Context, string, string, int) ([]plan.Record, error) { return h.past, nil },
		State: func(_ context.Context, caller, session string) (json.RawMessage, error) {
			return strictjson.Marshal(map[string]string{"of": caller + "/" + session})
		},
	})
	h.Replace(t.Context(), []engine.Binding{{Name: "toolpost", Protocol: "builtin", Runner: set}})
	t.Cleanup(func() {
		kit.Check(t, h.Close(context.Background()))
	})
	return h
}

type heard []tool.Event

func (h *heard) Emit(ev tool.Event) error {
	*h = append(*h, ev)
	return nil
}

// call calls a tool as ada. Single quotes stand for double ones.
func (h *house) call(t *testing.T, name, session, args string, out tool.Sink) (*tool.Result, error) {
	return h.Invoke(t.Context(), &tool.Call{
		Tool: name, Session: session, Args: json.RawMessage(strings.ReplaceAll(args, "'", `"`)), Caller: tool.Principal{ID: "ada"},
	}, out)
}

func TestOfferEmitsNarrativeChoice(t *testing.T) {
	h := open(t)
	var out heard
	r, err := h.call(t, "story.offer", "", `{'choices':[{'label':'Sit'},{'label':'Go','id':'g','hint':'far'}]}`, &out)
	if err != nil || string(r.Output) != `{"offered":2}` || len(out) != 1 || out[0].Kind != tool.KindUIEvent ||
		!strings.Contains(string(out[0].Data), `"event":"narrative_choice"`) {
		t.Errorf("%+v, %v, %+v", r, err, out)
	}
	many := strings.Repeat(`{'label':'x'},`, 21)
	for _, args := range []string{
		`{}`, `{'choices':[]}`, `{'choices':[{'label':''}]}`, `{'choices':['Sit']}`, `{'choices':[` + many[:len(many)-1] + `]}`,
	} {
		kit.Refused(t, kit.Err(h.call(t, "story.offer", "", args, tool.Discard)), tool.CodeInvalidInput, "", args)
	}
}

// The first prompt is the planner's, and the id of an offered choice stands for its label.
func TestTurnContinuesFromTheLastOffer(t *testing.T) {
	h := open(t)
	play := func(args string) (turn story.Turn) {
		t.Helper()
		r, err := h.call(t, "story.turn", "s", args, tool.Discard)
		if err == nil {
			err = strictjson.Unmarshal(r.Output, &turn)
		}
		kit.OK(t, err)
		return turn
	}
	first := play(`{}`)
	if first.Narrative != "Who is there?" || len(first.Choices) != 1 || first.Choices[0].ID != "ada" || !first.Success {
		t.Fatalf("%+v", first)
	}
	h.past = []plan.Record{{
		Plan:   json.RawMessage(`{"requestId":"r","tools":[{"toolId":"a","tool":"story.offer"}]}`),
		Result: json.RawMessage(`{"toolResults":[{"toolId":"a","state":"success","events":[{"kind":"ui_event","data":{"event":"narrative_choice","payload":{"choices":[{"id":"ada","label":"Ada herself"}]}}}]}]}`),
	}, {Plan: json.RawMessage(`not a plan any more`)}}
	if next := play(`{'prompt':'ada'}`); next.Narrative != "Come in." {
		t.Errorf("%+v", next)
	}
}

func TestATurnIsRefusedWithoutASessionOrAStory(t *testing.T) {
	h := open(t)
	for _, c := range []struct {
		session, args string
		want          tool.Code
	}{
		{"", `{}`, tool.CodeInvalidInput},
		{"s", `{'story':'other'}`, tool.CodeNotFound},
		{"s", `{'prompt':'unheard of'}`, tool.CodeNotFound},
		{"s", `{'prompt':7}`, tool.CodeInvalidInput},
	} {
		kit.Refused(t, kit.Err(h.call(t, "story.turn", c.session, c.args, tool.Discard)), c.want, "", c.session, c.args)
	}
}

func TestShowHasTheStoriesAndTheStateOfASession(t *testing.T) {
	h := open(t)
	for session, want := range map[string]string{
		"":  `{"stories":[{"name":"tale","title":"tale","opening":"begin"}],"turns":[],"state":{}}`,
		"s": `{"stories":[{"name":"tale","title":"tale","opening":"begin"}],"turns":[],"state":{"of":"ada/s"}}`,
	} {
		r, err := h.call(t, "story.show", session, `{}`, tool.Discard)
		if err != nil || string(r.Output) != want || r.Summary != "1 story" {
			t.Errorf("%q: %+v, %v", session, r, err)
		}
	}
	kit.Refused(t, kit.Err(h.call(t, "story.show", "", `{'story':'other'}`, tool.Discard)), tool.CodeNotFound, "")
}
