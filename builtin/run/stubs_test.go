package run

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// hostile are tools whose names and descriptions try to break out of the text of a program.
func hostile() []function {
	schema := func(text string) json.RawMessage { return json.RawMessage(text) }
	deep := `{"type":"string"}`
	for range 50 {
		deep = `{"type":"object","properties":{"a":` + deep + `,"b-c":{"type":"integer"}},"required":["a"]}`
	}
	var wide []string
	for i := range 500 {
		wide = append(wide, fmt.Sprintf(`"property_number_%d":{"type":"string","description":"the one of that number, which is %d"}`, i, i))
	}
	specs := []*tool.Spec{
		{Name: "plain", Input: schema(`{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string","description":"say \"hi\"\nthen */ \"\"\" stop"}},"required":["a"]}`), Output: schema(`{"type":"array","items":{"type":"object","properties":{"x":{"enum":[1,"two",null,true]},"y":{"type":["string","null"]}},"required":["x"]}}`)},
		{Name: "import", Description: "ends with \\"},
		{Name: "x\"]\nimport os #", Description: "\"\"\"\nimport os\n\"\"\" */ evil() /*"},
		{Name: "9 lives", Input: schema(`{"type":"object","properties":{"a b":{},"class":{"const":"x y"},"__x":{"anyOf":[{"type":"number"},{}]}}}`)},
		{Name: "deep", Input: schema(deep), Output: schema(deep)},
		{Name: "wide", Input: schema(`{"type":"object","properties":{` + strings.Join(wide, ",") + `}}`)},
		{Name: "self", Input: schema(`{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":"integer"}}}}}`)},
		{Name: "odd", Input: schema(`{"type":17,"properties":[],"enum":"x"}`), Output: schema(`true`)},
		{Name: "none"},
		{Name: "nul\u0000\u2028", Description: "line\u2028separator \u0085 and \x00"},
	}
	catalog := fixed(specs)
	for _, s := range specs {
		s.Source = "src-1"
	}
	return visible(nil, catalog, tool.Principal{}) //nolint:staticcheck // the context is not used
}

func TestStubsAreValidCodeForHostileSpecs(t *testing.T) {
	all := hostile()
	kit.MustEqual(t, len(all), 10)
	python := pythonStubs(all)
	check := exec.CommandContext(t.Context(), "python3", "-c", `
import ast, sys
tree = ast.parse(sys.stdin.read())
exec(compile(tree, "stubs", "exec"), names := {})
tools = names["tools"]
source = tools.src_1
print(sorted(n for n in vars(source) if not n.startswith("__")))
assert not any(isinstance(n, (ast.Import, ast.Call)) and not (isinstance(n, ast.Call) and n.func.id == "TypedDict") for n in ast.walk(tree)), "it does something"
`)
	check.Stdin = strings.NewReader(python)
	out, err := check.CombinedOutput()
	want := `['deep', 'import_', 'none', 'nul__', 'odd', 'plain', 'self', 't9_lives', 'wide', 'x___import_os__']`
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("%v, %s\n%s", err, out, python)
	}
	for _, line := range []string{
		"async def plain(*, a: str, b: int = ...) -> list[src_1_plain_Result_item]:", `x: Literal[1, "two", None, True]`, "y: NotRequired[str | None]",
	} {
		kit.Contains(t, python, line)
	}
	declared := typeScript(all)
	kit.Contains(t, declared, `plain(args: { a: string; b?: number }): Promise<Array<{ x: 1 | "two" | null | true; y?: string | null }>>;`)
	compileTypeScript(t, declared)
	for _, text := range []string{python, declared} {
		if len(text) > maxText {
			t.Errorf("%d bytes", len(text))
		}
	}
}

// compileTypeScript checks declarations with the client's compiler.
func compileTypeScript(t *testing.T, text string) {
	t.Helper()
	tsc, err := filepath.Abs("../../clients/testdata/js/node_modules/typescript/bin/tsc")
	if err == nil {
		_, err = os.Stat(tsc)
	}
	if err != nil {
		t.Log("no TypeScript here:", err)
		return
	}
	file := filepath.Join(t.TempDir(), "tools.ts")
	kit.OK(t, os.WriteFile(file, []byte(text+"\nexport const x: Promise<any> = tools.src_1.plain({ a: 'x' })\n"), 0o600))
	if out, err := exec.CommandContext(t.Context(), "node", tsc, "--noEmit", "--strict", "--target", "es2022", file).CombinedOutput(); err != nil {
		t.Errorf("%v, %s\n%s", err, out, text)
	}
}

func TestTwoToolsDoNotShareAnIdentifier(t *testing.T) {
	var specs fixed
	for _, name := range []string{"a.b", "a_b", "a-b", "then", "class"} {
		specs = append(specs, &tool.Spec{Name: name, Source: "s"})
	}
	var got []string
	for _, f := range visible(t.Context(), specs, tool.Principal{}) {
		got = append(got, f.spec.Name+"="+f.path())
	}
	kit.Equal(t, fmt.Sprint(got), "[a.b=s.a_b_2 a_b=s.a_b a-b=s.a_b_3 then=s.then_ class=s.class_]", got)
}

func TestADescriptionIsBounded(t *testing.T) {
	var specs fixed
	for i := range 10_000 {
		specs = append(specs, &tool.Spec{Name: fmt.Sprintf("tool%05d", i), Source: fmt.Sprintf("s%d", i%7), Description: strings.Repeat("word ", 50)})
	}
	all := visible(t.Context(), specs, tool.Principal{})
	for _, write := range []func([]function) string{pythonStubs, typeScript} {
		text, fit := within(all, write)
		if len(text) > maxText || fit < 100 || fit > 1000 {
			t.Errorf("%d tools in %d bytes", fit, len(text))
		}
	}
}
