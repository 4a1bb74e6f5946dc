package appfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestToolBlocksOfAppAIBecomeSchemas(t *testing.T) {
	const text = `spec is "1.0"

tool "not this one" is only text

record "User":
  name is text
  tool is text

# tool "nor this":
tool "greet someone":   # a comment
  implemented using python
  purity is "pure"
  timeout_seconds is 2.5

  input:
    name is text
    age is optional number
    "full name" is text optional   # another
    input is json

  output:
    message is text
    ok is boolean
tool "say \"hi\" # now":
  implemented using node
  input:
  output:
page "home":
  title is "tool \"x\":"
`
	strange, err := Parse([]byte(text))
	if err != nil || strange["not this one"] == nil || !strings.Contains(strange["not this one"].Problem.Error(), "app.ai:3:") {
		t.Errorf("want a complaint about line 3, got %v", err)
	}
	tools, err := Parse([]byte(strings.Replace(text, `tool "not this one" is only text`, `toolbox "this neither":`, 1)))
	if err != nil || len(tools) != 2 {
		t.Fatal(tools, err)
	}
	greet, hi := tools["greet someone"], tools[`say "hi" # now`]
	if greet == nil || hi == nil {
		t.Fatal(tools)
	}
	if greet.Name != "greet someone" || greet.Kind != "python" || greet.Purity != "pure" || greet.Timeout != 2500*time.Millisecond {
		t.Errorf("got %+v", greet)
	}
	const in = `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"number"},"full name":{"type":"string"},"input":{}},"required":["name","input"]}`
	const out = `{"type":"object","properties":{"message":{"type":"string"},"ok":{"type":"boolean"}},"required":["message","ok"]}`
	kit.Equal(t, cmp.Diff([]string{in, out}, []string{string(greet.Input.Schema()), string(greet.Output.Schema())}), "")
	if hi.Name != `say "hi" # now` || hi.Kind != "node" ||
		string(hi.Input.Schema()) != `{"type":"object","properties":{}}` ||
		string(hi.Output.Schema()) != `{"type":"object","properties":{}}` {
		t.Errorf("got %+v", hi)
	}
	if greet.Problem != nil || hi.Problem != nil {
		t.Errorf("%v, %v", greet.Problem, hi.Problem)
	}
}

// contract(namel3ss): a declaration that the language refuses (no `implemented using`, no `input:`, no `output:`, unknown lines) is refused with line and column, and hides no other tool.
func TestMistakesInAppAINameTheLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"tool greet:", `app.ai:1:1: a tool block starts like this`},
		{"\n\ntool \"greet\"", `app.ai:3:1: a tool block starts`},
		{"tool \"a\":\ntool \"a\":", `app.ai:2:1: tool "a" is declared twice`},
		{"tool \"a\":\n  implemented using cobol", `app.ai:2:3: tool "a" is implemented using "cobol", which cannot be run here`},
		{"tool \"a\":\n  purity is \"maybe\"", `app.ai:2:3: purity is`},
		{"tool \"a\":\n  timeout_seconds is soon", `app.ai:2:3: timeout_seconds`},
		{"tool \"a\":\n  timeout_seconds is -1", `app.ai:2:3: timeout_seconds`},
		{"tool \"a\":\n  timeout_seconds is 1e300", `app.ai:2:3: timeout_seconds`},
		{"tool \"a\":\n  timeout_seconds is NaN", `app.ai:2:3: timeout_seconds`},
		{"tool \"a\":\n  input:\n    name: text", `app.ai:3:5: a field is written like this`},
		{"tool \"a\":\n  implemented using http", `app.ai:2:3: tool "a" is implemented using "http", which cannot be run here`},
		{"tool \"a\":\n  input:\n    name is colour", `app.ai:3:5: field name has the type "colour"; known are text`},
		{"tool \"a\":\n  input:\n    name is optional", `app.ai:3:5: field name has the type ""`},
		{"tool \"a\":\n  input:\n    n is text\n    n is text", `app.ai:4:5: field n is declared twice`},
		{"tool \"a\":\n  input:\n  input:", `app.ai:3:3: tool "a" has two`},
		{"\ntool \"a\":\n  input:\n  output:\n", `app.ai:2:1: tool "a" has no implementation; add a line such as`},
		{"tool \"a\":\n  implemented using python\n  output:\n", "app.ai:1:1: tool \"a\" has no `input:` block"},
		{"tool \"a\":\n  implemented using python\n  input:\n    n is text\n", "app.ai:1:1: tool \"a\" has no `output:` block"},
		{"tool \"a\":\n  implemented using python\n    retries is 3\n", "app.ai:3:5: tool \"a\" has an unknown line: retries is 3; known are `implemented using`"},
		{"tool \"a\":\n  kind is \"python\"\n", `app.ai:2:3: tool "a" has an unknown line`},
		{"tool \"a\":\n\tinput:", `app.ai:2:2: indented with a tab`},
	} {
		tools, err := Parse([]byte(c.text + "\ntool \"fine\":\n  implemented using python\n  input:\n  output:\n"))
		if err != nil || len(tools) != 2 || tools["fine"].Problem != nil {
			t.Fatalf("%q: %v, %v", c.text, tools, err)
		}
		delete(tools, "fine")
		other := slices.Collect(maps.Values(tools))[0]
		kit.Refused(t, other.Problem, tool.CodeInvalidInput, c.want, c.text)
	}
	if tools, err := Parse([]byte("\ntool \"\":\n  nonsense is 1")); err != nil ||
		!strings.Contains(fmt.Sprint(tools["app.ai:2"].Problem), `app.ai:2:1: a tool block starts`) {
		t.Errorf("%v, %v", tools, err)
	}
	kit.Refused(t, kit.Err(Parse([]byte("tool \"\xff\":"))), tool.CodeInvalidInput, `app.ai: not valid UTF-8`)
}

func TestToolsYAMLTakesEntriesAndMappings(t *testing.T) {
	const text = `
tools:
  short: "tools.a:run"
  "greet someone":
    description: Greets.
    kind: Python
    entry: "tools.b:run"
    runner: local
    env: {A: "1"}
    purity: pure
    timeout_ms: 250
    sandbox: true
    enforcement: verified
    command: [a, b]
    url: "http://127.0.0.1:1/"
    image: x
`
	got := kit.Must(ParseBindings("tools.yaml", []byte(text)))(t)
	ms, yes := 250.0, true
	want := map[string]Bound{
		"short": {&Binding{Entry: "tools.a:run"}, nil},
		"greet someone": {&Binding{
			Description: "Greets.", Kind: "python", Entry: "tools.b:run", Runner: "local", Env: map[string]string{"A": "1"}, Purity: "pure", TimeoutMS: &ms,
			Sandbox: &yes, Enforcement: "verified", Command: []string{"a", "b"}, URL: "http://127.0.0.1:1/", Image: "x",
		}, nil},
	}
	kit.DeepEqual(t, want, got)
	for _, empty := range []string{"", "# nothing\n", "tools: {}\n"} {
		kit.Equal(t, len(kit.Must(ParseBindings("tools.yaml", []byte(empty)))(t)), 0, empty)
	}
}

func TestMistakesInToolsYAMLNameTheirPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"tool: {}", `tools.yaml:1:1: unknown field "tool"`},
		{"tools: [a]", `tools.yaml:1:8: expected a mapping`},
		{"- a", `tools.yaml:1:1: expected a mapping`},
		{"tools:\n  a: 5", `tools.yaml:2:6: expected a mapping`},
		{"tools:\n  a:\n    entri: x", `tools.yaml:3:5: unknown field "entri"`},
		{"tools:\n  a: x:y\n  a: z:y", `tools.yaml:3:3: not valid YAML: mapping key "a" already defined`},
		{"tools:\n  a:\n    entry: x\n    entry: y", `tools.yaml:4:5: not valid YAML: mapping key "entry" already defined`},
		{"tools:\n  a: {kind: cobol}", `kind is one of python, node, not "cobol"`},
		{"tools:\n  a: {runner: cloud}", `runner is one of`},
		{"tools:\n  a: {purity: mostly}", `purity is one of`},
		{"tools:\n  a: {enforcement: hoped}", `enforcement is one of`},
		{"tools:\n  a: {timeout_ms: 0}", `timeout_ms`},
		{"tools:\n  a: {timeout_ms: .nan}", `timeout_ms`},
		{"tools:\n  a: {timeout_ms: soon}", `tools.yaml:2:19:`},
		{"tools:\n  a: {sandbox: perhaps}", `tools.yaml:2:16:`},
		{"tools: &x\n  a: *x", `not allowed here`},
		{"tools:\n  <<: {a: b}", `not allowed here`},
		{"tools: !!map {}", `not allowed here`},
		{"tools: {}\n---\ntools: {}", `second document`},
		{"tools: {\n", `tools.yaml:`},
		{"tools: " + strings.Repeat("[", 100_000), `nested deeper`},
		{strings.Repeat("- ", 100_000), `nested deeper`},
		{"tools:\n  a: \"\xff\"", `not valid UTF-8`},
	} {
		got, err := ParseBindings("tools.yaml", []byte(c.text))
		if err == nil {
			err = got["a"].Problem
		}
		kit.Refused(t, err, tool.CodeInvalidInput, c.want, c.text, c.want, got)
	}
}

func FuzzAppAI(f *testing.F) {
	standard, _ := os.ReadFile("../testdata/standard/app.ai")
	f.Add(standard)
	for _, seed := range []string{"", "tool \"a\":\n  input:\n    x is text optional\n", "tool \"a\":\n\tx", "tool \"\\x\":", "tool \"a\":\n input:\n  \"\\u00e9\" is json\n", "#\"\ntool \"\\\"\":"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tools, err := Parse(b)
		if err != nil {
			return
		}
		for _, d := range tools {
			for _, s := range []*Shape{d.Input, d.Output} {
				if s != nil && !json.Valid(s.Schema()) {
					t.Fatalf("tool %q has the schema %s", d.Name, s.Schema())
				}
			}
		}
	})
}

func FuzzToolsYAML(f *testing.F) {
	standard, _ := os.ReadFile("../testdata/standard/.namel3ss/tools.yaml")
	f.Add(standard)
	for _, seed := range []string{"", "tools:\n  a: {kind: python, entry: 'a:b', timeout_ms: 5}\n", "tools: {a: &x b, c: *x}", "tools: [[[[", "- - -", "tools:\n  ? a\n  : b", "tools: {a: {env: {A: 1}}}", "tools:\n  a: |\n    x\n", "\"tools\": {1: b}", "tools: {a: }"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := ParseBindings("tools.yaml", b)
		if (err == nil) == (found == nil) {
			t.Fatalf("got %v and %v", found, err)
		}
		for name, bound := range found {
			if bound.check() != nil {
				t.Fatalf("%q was accepted as %+v", name, bound)
			}
		}
	})
}
