package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/builtin/story"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

const talePlans = `
title: A tale
opening: Knock
answers:
  - prompts: [Knock]
    plan: {narrative: Who is there?, tools: [{toolId: a, tool: says, input: {as: choices}}]}
  - prompts: [Ada herself]
    plan: {narrative: "Come in, ${prompt}.", tools: [{toolId: a, tool: says, input: {as: odd}}, {toolId: b, tool: story.offer, input: {choices: [{label: Sit}]}}]}
  - prompts: [fail]
    plan: {narrative: first, tools: [{toolId: a, tool: says, input: {as: fails}, retryPolicy: {maxRetries: 0}}]}
  - prompts: [fail]
    plan: {narrative: second, tools: [{toolId: b, tool: story.offer, input: {choices: [{label: Sit}]}}]}
  - prompts: [gone]
    plan: {tools: [{toolId: a, tool: no-such-tool}]}
`

// taleTool is a tool that shows and patches what it is told to.
const taleTool = `
read line
event() { echo "{\"version\":\"0\",\"type\":$1}"; }
case "$line" in
*choices*) event '"ui_event","event":"narrative_choice","payload":{"choices":["Nobody",{"id":"ada","label":"Ada herself","hint":"really"},{"id":"Eve"}]}'
  event '"state_patch","patch":{"knocked":true}' ;;
*odd*) event '"ui_event","event":"narrative_choice","payload":{"choices":[7]}'
  event '"ui_event","event":"camera_shake","payload":{"strength":3}' ;;
*fails*) event '"ui_event","event":"narrative_choice","payload":{"choices":["Of a tool that failed"]}'
  event '"state_patch","patch":{"broken":true}'
  event '"done","ok":false,"summary":"no"'; exit 0 ;;
esac
event '"done","ok":true'
`

// A tale is a story that is played in a node.
type tale struct {
	*testing.T
	n *node.Node
}

func (s tale) call(name, caller, session, args string) (*tool.Result, error) {
	return s.n.Handler().Invoke(s.Context(), &tool.Call{
		Tool: name, Session: session, Args: json.RawMessage(args), Caller: tool.Principal{ID: caller},
	}, tool.Discard)
}

func (s tale) turn(prompt string) (turn story.Turn) {
	s.Helper()
	r, err := s.call("story.turn", "ada", "tale", `{"prompt":"`+prompt+`"}`)
	if err != nil {
		s.Fatal(err)
	}
	if err := json.Unmarshal(r.Output, &turn); err != nil {
		s.Fatal(err)
	}
	return turn
}

func openTale(t *testing.T) tale {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"tale.yaml": talePlans, "says.sh": taleTool} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	n := open(t, parse(t, dir, "sources: [{name: says, protocol: narratoria, command: [sh, says.sh]}]\n"+
		"planners: [{name: tale, file: tale.yaml}]\nstore: {}\n"), node.Options{})
	t.Cleanup(func() { shut(t, n) })
	return tale{t, n}
}

// contract(narratoria): Player selection becomes next prompt
// contract(narratoria): `narrative_choice`: choices are strings or `{id, label, hint}`; the chosen label is the next prompt.
func TestChosenLabelIsTheNextPrompt(t *testing.T) {
	s := openTale(t)
	first := s.turn("")
	if choices, _ := json.Marshal(first.Choices); string(choices) !=
		`[{"id":"Nobody","label":"Nobody"},{"id":"ada","label":"Ada herself","hint":"really"},{"id":"Eve","label":"Eve"}]` {
		t.Errorf("%s", choices)
	}
	if first.Narrative != "Who is there?" || string(first.State) != `{"knocked":true}` || !first.Success || first.Tools[0].State != "success" {
		t.Errorf("%+v", first)
	}
	second := s.turn("ada") // its id
	if second.Narrative != "Come in, Ada herself." || len(second.Choices) != 1 || second.Choices[0].Label != "Sit" {
		t.Errorf("%+v", second)
	}
	if odd, _ := json.Marshal(second.Unsupported); string(odd) !=
		`[{"event":"narrative_choice","payload":{"choices":[7]}},{"event":"camera_shake","payload":{"strength":3}}]` {
		t.Errorf("%s", odd)
	}
	var shown struct {
		Turns []story.Past
		State json.RawMessage
	}
	r, err := s.call("story.show", "ada", "", `{"session":"tale"}`)
	if err != nil || json.Unmarshal(r.Output, &shown) != nil {
		t.Fatal(r, err)
	}
	if len(shown.Turns) != 2 || shown.Turns[0].Prompt != "Knock" || shown.Turns[1].Prompt != "Ada herself" ||
		len(shown.Turns[0].Choices) != 3 || shown.Turns[1].Story != "tale" || string(shown.State) != `{"knocked":true}` {
		t.Errorf("%+v", shown)
	}
	r, err = s.call("story.show", "eve", "tale", `{}`)
	if err != nil || strings.Contains(string(r.Output), "Knock\",\"narrative") || !strings.Contains(string(r.Output), `"turns":[]`) {
		t.Errorf("another caller sees %s, %v", r.Output, err)
	}
}

func TestFailedTurnIsReplannedWithoutTheTool(t *testing.T) {
	s := openTale(t)
	turn := s.turn("fail")
	if turn.Narrative != "second" || !turn.Success || len(turn.Choices) != 1 || turn.Choices[0].Label != "Sit" || string(turn.State) != `{}` {
		t.Errorf("%+v", turn)
	}
	turn = s.turn("gone")
	if turn.Success || turn.Error == nil || !strings.Contains(turn.Error.Message, "no-such-tool") {
		t.Errorf("%+v", turn)
	}
	for args, want := range map[string]tool.Code{`{"story":"other"}`: tool.CodeNotFound, `{"prompt":"unheard of"}`: tool.CodeNotFound} {
		kit.Refused(t, kit.Err(s.call("story.turn", "ada", "tale", args)), want, "", args)
	}
	kit.Refused(t, kit.Err(s.call("story.turn", "ada", "", `{}`)), tool.CodeInvalidInput, "")
}

func TestAPlanMayBeReplacedByAPlannerOfTheConfig(t *testing.T) {
	s := openTale(t)
	r, err := s.call("plan.run", "ada", "tale", `{"planner":"tale","prompt":"fail","plan":{"requestId":"r","tools":[`+
		`{"toolId":"a","tool":"says","input":{"as":"fails"},"retryPolicy":{"maxRetries":0}}]}}`)
	if err != nil || !strings.Contains(string(r.Output), `"success":true`) || !strings.Contains(string(r.Output), `"attemptNumber":2`) {
		t.Errorf("%+v, %v", r, err)
	}
}

// The file of a planner decides what is called, so no tool may write it.
func TestNoToolChangesThePlansOfAStory(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "tale.yaml"), []byte(talePlans), 0o600))
	n := open(t, parse(t, dir, "sources: [{name: files, protocol: builtin, roots: [{path: ., write: true}]}]\n"+
		"planners: [{name: tale, file: tale.yaml}]\n"), node.Options{})
	defer shut(t, n)
	s := tale{t, n}
	kit.Refused(t, kit.Err(s.call("writeFile", "ada", "", `{"path":"tale.yaml","content":"answers: []"}`)),
		tool.CodeAccessDenied, "", "it was written")
	kit.Check(t, kit.Err(s.call("writeFile", "ada", "", `{"path":"other.yaml","content":"answers: []"}`)))
}
