package planner_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/plan"
	"toolpost/plan/planner"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// readPlanners reads planners from a config in dir.
func readPlanners(t *testing.T, dir, text string) *planner.Registry {
	t.Helper()
	r := new(secret.Redactor)
	r.Add("KEY", "the-key-itself")
	b := planner.New(planner.Env{Secrets: tooltest.Vault{"KEY": "the-key-itself"}, Redactor: r})
	cfg := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))(t)
	apply := kit.Must(b.Read(cfg))(t)
	apply()
	return b
}

func write(t *testing.T, path, text string) {
	t.Helper()
	kit.OK(t, os.WriteFile(path, []byte(text), 0o755))
}

// ask asks the first planner of a registry.
func ask(t *testing.T, b *planner.Registry, r plan.Request) (*plan.Plan, error) {
	t.Helper()
	p := kit.Must(b.Named(tool.Principal{}, ""))(t)
	r.ID = "r1"
	return p.Plan(t.Context(), r)
}

const story = `
title: The Hill
opening: Knock
answers:
  - prompts: [Open the door]
    when: {door.locked: true}
    plan: {narrative: It is locked., tools: []}
  - prompts: [open the door, enter *]
    when: {door.open: null, keys: 2}
    plan:
      narrative: "You say: ${prompt}. You have ${state.keys} keys${state.nothing}."
      tools:
        - {toolId: a, tool: turn, input: {keys: "${state.keys}", said: "${prompt}", none: "${state.nothing}", kept: "${b.output.x}"}}
  - {prompts: [roll], plan: {narrative: with dice, tools: [{toolId: a, tool: dice}]}}
  - {prompts: [roll], plan: {narrative: without, tools: []}}
fallback: {plan: {narrative: "Pardon, ${prompt}?", tools: []}}
`

func TestAFileAnswersByPromptAndState(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "story.yaml"), story)
	b := readPlanners(t, dir, "planners: [{name: hill, file: story.yaml}]")
	for _, c := range []struct{ prompt, state, want string }{
		{"open  the DOOR!", `{"door":{"locked":true},"keys":2}`, "It is locked."},
		{"Open the door", `{"keys":2}`, "You say: Open the door. You have 2 keys."},
		{"enter quietly", `{"keys":2}`, "You say: enter quietly. You have 2 keys."},
		{"enter quietly", `{"keys":1}`, "Pardon, enter quietly?"},
		{"enter quietly", `{"keys":2,"door":{"open":false}}`, "Pardon, enter quietly?"},
		{"roll", ``, "with dice"},
		{"", `{}`, "Pardon, ?"},
	} {
		p, err := ask(t, b, plan.Request{Prompt: c.prompt, State: json.RawMessage(c.state)})
		if err != nil || p.Narrative != c.want || p.RequestID != "r1" || p.Metadata.GenerationAttempt != 1 {
			t.Errorf("%q in %s: %+v, %v; want %q", c.prompt, c.state, p, err, c.want)
		}
	}
	p, err := ask(t, b, plan.Request{Prompt: "enter", State: json.RawMessage(`{"keys":2}`)})
	if err != nil || p.Narrative != "Pardon, enter?" { // the pattern has a space
		t.Error(p, err)
	}
	p, err = ask(t, b, plan.Request{Prompt: "enter it", State: json.RawMessage(`{"keys":2}`)})
	if err != nil || !sameJSON(t, p.Tools[0].Input,
		`{"keys":2,"said":"enter it","kept":"${b.output.x}"}`) {
		t.Errorf("%s, %v", p.Tools[0].Input, err)
	}
	// The player's text is never a reference, whatever it looks like.
	p, err = ask(t, b, plan.Request{Prompt: "enter ${b.output.x} ${state.keys} $${c.output}", State: json.RawMessage(`{"keys":2}`)})
	if err != nil || !sameJSON(t, p.Tools[0].Input,
		`{"keys":2,"said":"enter $${b.output.x} ${state.keys} $$${c.output}","kept":"${b.output.x}"}`) ||
		p.Narrative != "You say: enter ${b.output.x} ${state.keys} $${c.output}. You have 2 keys." {
		t.Errorf("%s %q, %v", p.Tools[0].Input, p.Narrative, err)
	}
	about := b.List(tool.Principal{})
	if len(about) != 1 || about[0] != (planner.About{Name: "hill", Title: "The Hill", Opening: "Knock"}) {
		t.Errorf("%+v", about)
	}
}

func sameJSON(t *testing.T, got []byte, want string) bool {
	t.Helper()
	var a, b any
	kit.OK(t, errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)))
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestReplanSkipsDisabledTools(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "story.yaml"), story)
	b := readPlanners(t, dir, "planners: [{name: hill, file: story.yaml}]")
	p, err := ask(t, b, plan.Request{
		Prompt: "roll", Disabled: []string{"dice"}, Attempt: 2, Failed: &plan.Result{PlanID: "before"},
	})
	if err != nil || p.Narrative != "without" || p.Metadata != (plan.Metadata{GenerationAttempt: 2, ParentPlanID: "before"}) ||
		len(p.DisabledSkills) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAFileIsReadAgainWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "story.json")
	write(t, path, `{"answers": [{"prompts": ["a"], "plan": {"narrative": "one", "tools": []}}]}`)
	b := readPlanners(t, filepath.Dir(path), "planners: [{name: x, file: story.json}]")
	kit.MustEqual(t, kit.Must(ask(t, b, plan.Request{Prompt: "a"}))(t).Narrative, "one")
	write(t, path, `{"answers": [{"prompts": ["a"], "plan": {"narrative": "two more", "tools": []}}]}`)
	kit.Equal(t, kit.Must(ask(t, b, plan.Request{Prompt: "a"}))(t).Narrative, "two more")
	write(t, path, `{"answers": [{"prompts": ["a"], "plan": {"narrative": "half`)
	kit.Refused(t, kit.Err(ask(t, b, plan.Request{Prompt: "a"})), tool.CodeInvalidInput, "story.json:1:")
	if found := b.Problems(); len(found) != 1 || found[0].About != "planner x" || b.List(tool.Principal{})[0].Error == "" {
		t.Errorf("%+v", found)
	}
}

func TestMistypedMemberIsReportedAsAProblem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.yaml")
	b := readPlanners(t, filepath.Dir(path), "planners: [{name: x, file: s.yaml}]")
	write(t, path, "answers: [{prompts: [a], plan: {narrative: one, tools: [{toolId: x, tool: t, dependencis: [y]}]}}]")
	kit.MustEqual(t, len(kit.Must(ask(t, b, plan.Request{Prompt: "a"}))(t).Tools), 1)
	found := b.Problems()
	if len(found) != 1 || !strings.Contains(found[0].Err.Error(), `tool "x": /tools/0/dependencis is ignored; did you mean "dependencies"?`) {
		t.Errorf("%+v", found)
	}
	write(t, path, "answers: [{prompts: [a], plan: {narrative: one, tools: [{toolId: x, tool: t, dependencies: [y]}]}}]")
	if found := b.Problems(); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

func TestMistakesInAFileAreSaidWithTheirPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.yaml")
	b := readPlanners(t, dir, "planners: [{name: x, file: s.yaml}]")
	for text, want := range map[string]string{
		"answers: [{prompt: [a], plan: {tools: []}}]":                                   `s.yaml:1:12: unknown field "prompt"; did you mean "prompts"?`,
		"answers: [{prompts: [a], plan: {tools: [{toolId: x, async: 1}]}}]":             `no Plan JSON: tool "x": /tools/0/async`,
		"answers: [{prompts: [a], plan: {narrative: x}}]":                               "missing property 'tools'",
		"answers: [{prompts: [a], plan: {tools: [{toolId: state, tool: t}]}}]":          "${state} means something else",
		"answers: [{plan: {tools: []}}]":                                                "answer 1 has no prompts",
		"answers: [{prompts: [a]}]":                                                     "no Plan JSON",
		"title: x":                                                                      "there are no answers",
		"fallback: {prompts: [a], plan: {tools: []}}":                                   "a plan alone",
		"answers: [{prompts: [\"\"], plan: {tools: []}}]":                               "a pattern is empty",
		"answers: [{prompts: [a], plan: {tools: []}}]\n# " + strings.Repeat("x", 1<<20): "longer than",
	} {
		write(t, path, text)
		kit.Fails(t, kit.Err(ask(t, b, plan.Request{Prompt: "a"})), want, text, want)
	}
	write(t, path, "answers: [{prompts: [a], plan: {tools: []}}]")
	kit.Refused(t, kit.Err(ask(t, b, plan.Request{Prompt: "b"})), tool.CodeNotFound, "add a fallback")
	kit.Refused(t, kit.Err(ask(t, b, plan.Request{Prompt: strings.Repeat("a", 20_000)})), tool.CodeInvalidInput, "")
	for _, other := range []string{"folder", "nowhere"} {
		b := readPlanners(t, dir, "planners: [{name: x, file: "+other+"}]")
		kit.OK(t, os.MkdirAll(filepath.Join(dir, "folder"), 0o755))
		kit.Refused(t, kit.Err(ask(t, b, plan.Request{})), tool.CodeUnavailable, "")
	}
}

func TestMistakesInTheConfigAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"planners: [{file: x}]":                                                      "a planner has no name",
		"planners: [{name: a}]":                                                      "plans in one way",
		"planners: [{name: a, file: x, command: [y]}]":                               "plans in one way",
		"planners: [{name: a, command: ['']}]":                                       "the command is empty",
		"planners: [{name: a, file: x, style: s}]":                                   "style is for models",
		"planners: [{name: a, file: x, tools: [s]}]":                                 "tools is for models and commands",
		"planners: [{name: a, fil: x}]":                                              `unknown field "fil"`,
		"planners: [{name: a, file: x}, {name: a, file: y}]":                         "two planners",
		"planners: [{name: a, model: demmo}]\nmodels: [{name: demo, url: http://x}]": `did you mean "demo"?`,
		"planners: [{name: a, model: demo}]":                                         "section models",
		"planners: [{name: a, command: [x], env: {'': y}}]":                          "environment variable",
		"models: [{url: http://x}]":                                                  "a model has no name",
		"models: [{name: a, url: 'ftp://x'}]":                                        "the address of a server",
		"models: [{name: a, url: 'http://u:p@x/v1'}]":                                "nothing else",
		"models: [{name: a, url: 'http://x/v1?key=1'}]":                              "nothing else",
		"models: [{name: a, url: http://x}, {name: a, url: http://y}]":               "two models",
	} {
		cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t)
		kit.Refused(t, kit.Err(planner.New(planner.Env{}).Read(cfg)), tool.CodeInvalidInput, want, text, want)
	}
	b := readPlanners(t, t.TempDir(), "planners: [{name: hill, file: x}]")
	kit.Refused(t, kit.Err(b.Named(tool.Principal{}, "hil")), tool.CodeNotFound, `did you mean "hill"?`)
	kit.Refused(t, kit.Err(readPlanners(t, t.TempDir(), "sources: []").Named(tool.Principal{}, "")), tool.CodeNotFound, "")
}

// A program that answers from its request, and misbehaves if the prompt asks for it.
const program = `
import json, os, subprocess, sys, time
q = json.load(sys.stdin)
p = q["prompt"]
if p == "crash": sys.exit("no idea")
if p == "nothing": sys.exit(0)
if p == "endless":
    while True: print("x" * 65536)
if p == "slow":
    subprocess.Popen(["sleep", "600"])
    time.sleep(600)
if p == "write": open("story.txt", "w")
if p == "text": print("Sure! Here is a plan."); sys.exit(0)
print(json.dumps({"requestId": "its own", "narrative": json.dumps(q, sort_keys=True), "tools":
    [{"toolId": t["tool"], "tool": t["tool"]} for t in q["tools"]]}))
`

func TestAProgramPlansBehindWalls(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "plan.py"), program)
	b := readPlanners(t, dir, `planners: [{name: py, command: [python3, plan.py], tools: ["l*", "dice"], timeout: 10s}]`)
	r := plan.Request{
		Prompt: "go", State: json.RawMessage(`{"a":1}`), Disabled: []string{"dice"}, Attempt: 2,
		Tools: []*tool.Spec{
			{Name: "light", Description: "lights", Input: json.RawMessage(`{"type":"object"}`)}, {Name: "dice"}, {Name: "other"},
		},
	}
	p, err := ask(t, b, r)
	want := `{"disabledSkills": ["dice"], "generationAttempt": 2, "prompt": "go", "requestId": "r1", "state": {"a": 1}, ` +
		`"tools": [{"description": "lights", "input": {"type": "object"}, "tool": "light"}]}`
	if err != nil || p.Narrative != want || p.RequestID != "r1" || len(p.Tools) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	for prompt, want := range map[string]struct {
		code tool.Code
		text string
	}{
		"crash":   {tool.CodeCrash, "no idea"},
		"nothing": {tool.CodeProtocol, "printed nothing"},
		"endless": {tool.CodeProtocol, "longer than 1048576 bytes"},
		"text":    {tool.CodeProtocol, "no Plan JSON"},
		"write":   {tool.CodeCrash, "story.txt"}, // its folder is read-only
	} {
		_, err := ask(t, b, plan.Request{Prompt: prompt})
		if tool.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text) || !strings.Contains(err.Error(), `planner "py"`) {
			t.Errorf("%s: %v", prompt, err)
		}
	}
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(dir, "story.txt"))), "", "it could write")
	began := time.Now()
	b = readPlanners(t, dir, `planners: [{name: py, command: [python3, plan.py], timeout: 1s}]`)
	if _, err := ask(t, b, plan.Request{Prompt: "slow"}); tool.CodeOf(err) != tool.CodeTimeout || time.Since(began) > time.Minute {
		t.Error(err)
	}
	b = readPlanners(t, dir, `planners: [{name: py, command: [./nowhere]}]`)
	if found := b.Problems(); len(found) != 1 {
		t.Errorf("%+v", found)
	}
}
