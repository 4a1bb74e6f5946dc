package namel3ss

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestMistakesInNamel3ssTOMLNameTheirPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[python_tools]\ntimeout_seconds = \"x\"", "namel3ss.toml:2:"},
		{"[python_tools]\ntimeout_seconds = 0", "timeout_seconds: expected more than 0"},
		{"a = 1\na = 2", "namel3ss.toml"},
		{"[python_tools", "namel3ss.toml:1:"},
		{"a = " + strings.Repeat("[", 500_000), "namel3ss.toml"},
	} {
		kit.Refused(t, kit.Err(parseSettings("namel3ss.toml", []byte(c.text))), tool.CodeInvalidInput, c.want, c.text, c.want)
	}
	s, err := parseSettings("namel3ss.toml", []byte("[server]\nport = 1\n[python_tools]\ntimeout_seconds = 3\nservice_url = \"x\"\n"))
	if err != nil || *s.Python.Timeout != 3 {
		t.Errorf("other tables are none of ours: %+v, %v", s, err)
	}
}

// The order is binding, declaration, namel3ss.toml, environment, ten seconds; the user's config overrides all.
//
// contract(namel3ss): Tools are terminated after their timeout (default 10 seconds).
// contract(namel3ss): Configure per-tool with `timeout_seconds`, or set a global default in `namel3ss.toml`.
func TestTimeoutOrder(t *testing.T) {
	sources := []struct {
		name string
		on   func(files map[string]string, o *Options)
		want time.Duration
	}{
		{"contract", func(map[string]string, *Options) {}, 10 * time.Second},
		{"environment", func(map[string]string, *Options) { t.Setenv(timeoutVariable, "5.5") }, 5500 * time.Millisecond},
		{"namel3ss.toml", func(f map[string]string, _ *Options) {
			f["namel3ss.toml"] = "[python_tools]\ntimeout_seconds = 4\n"
		}, 4 * time.Second},
		{"app.ai", func(f map[string]string, _ *Options) { f["app.ai"] += "  timeout_seconds is 3\n" }, 3 * time.Second},
		{"binding", func(f map[string]string, _ *Options) {
			f[".namel3ss/tools.yaml"] = "tools:\n  greet: {entry: 'a:b', timeout_ms: 1234.5}\n"
		}, 1234500 * time.Microsecond},
		{"config", func(_ map[string]string, o *Options) { o.Timeout = config.Duration(time.Second) }, time.Second},
	}
	files := map[string]string{"app.ai": "tool \"greet\":\n  implemented using python\n  input:\n  output:\n",
		".namel3ss/tools.yaml": "tools: {greet: 'a:b'}\n"}
	var o Options
	for _, s := range sources { // each overrides all before it
		s.on(files, &o)
		specs, err := open(t, write(t, files), o).Tools(t.Context())
		if err != nil || specs[0].Timeout != s.want {
			t.Errorf("%s: want %v, got %v, %v", s.name, s.want, specs[0].Timeout, err)
		}
	}
	t.Setenv(timeoutVariable, "soon")
	kit.Fails(t, kit.Err(New(t.Context(), write(t, map[string]string{"app.ai": "tool \"a\":\n"}), Options{}, quiet())), timeoutVariable)
}

// contract(namel3ss): `runner`: `local`, `service`, or `container`
// contract(namel3ss): `resolved_source`: `builtin_pack`, `installed_pack`, or `binding`
// contract(namel3ss): `timeout_ms` and `duration_ms`
// contract(namel3ss): `protocol_version`: current tool protocol version
// contract(namel3ss): local runner: `python_env`, `python_path`, `deps_source`
func TestAppOffersDeclaredAndBoundTools(t *testing.T) {
	tooltest.NoLeaks(t)
	root := write(t, map[string]string{
		"app.ai": "tool \"greet\":\n  implemented using python\n  purity is \"pure\"\n  input:\n    name is text\n  output:\n    hello is text\n" +
			"tool \"unbound\":\n  implemented using python\n  input:\n  output:\ntool \"js\":\n  implemented using node\n  input:\n  output:\n",
		".namel3ss/tools.yaml": "tools:\n  greet: 'tools.greet:run'\n  js: {kind: node, entry: '../a.js:run'}\n  extra: 'tools.greet:run'\n" +
			"  far: {kind: python, entry: 'a:b', runner: service}\n  boxed: {kind: python, entry: 'a:b', runner: container}\n  odd: 'no entry'\n",
		"tools/greet.py": "def run(p):\n    return {'hello': p['name']}\n",
	})
	r := open(t, root, Options{})
	specs := kit.Must(r.Tools(t.Context()))(t)
	inputs, why := map[string]string{}, map[string]string{}
	for _, s := range specs {
		inputs[s.Name] = string(s.Input)
		if err := r.Unavailable(s.Name); err != nil {
			why[s.Name] = err.Error()
			kit.Fails(t, kit.Err(call(r, s.Name, `{}`, tool.Discard)), "", "%s is unavailable and ran", s.Name)
		}
	}
	if inputs["greet"] != `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}` || inputs["extra"] != `{"type":"object"}` {
		t.Errorf("inputs %v", inputs)
	}
	for name, want := range map[string]string{"unbound": "bound to no function", "js": "module:function", "far": "service", "boxed": "no image", "odd": "module:function"} {
		kit.Contains(t, why[name], want, name)
	}
	kit.Equal(t, len(why), 5, "unavailable are %v", why)
	d := must(t, r, "greet", `{"name":"Ada"}`).Trace.Details
	for field, want := range map[string]any{
		"type": "tool_call", "tool": "greet", "tool_name": "greet", "kind": "python", "purity": "pure", "resolved_source": "binding",
		"timeout_ms": 10000.0, "entry": "tools.greet:run", "runner": "local", "protocol_version": 1, "python_env": "system",
		"deps_source": "none", "status": "ok", "result": "ok", "decision": "allowed", "capability": "none", "mode": "warm",
		"python_path": systemPython(t), "input_summary": objectSummary{Count: 1, Keys: []string{"name"}, Type: "object"},
		"output_summary": objectSummary{Count: 1, Keys: []string{"hello"}, Type: "object"},
	} {
		kit.Equal(t, cmp.Diff(want, d[field]), "", "trace field %s", field)
	}
	if _, ok := d["duration_ms"].(float64); !ok {
		t.Errorf("duration_ms is %v", d["duration_ms"])
	}
}

func TestSummaryTellsFormAndNotContent(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11}`: `{"count":11,"keys":["a","b","c","d","e","f","g","h","i","j"],"type":"object"}`,
		`["x","y"]`: `{"count":2,"type":"array"}`,
		`"secret"`:  `{"type":"string"}`,
		`null`:      `{"type":"null"}`,
	} {
		if got, _ := json.Marshal(summarise(json.RawMessage(value))); string(got) != want {
			t.Errorf("%s: got %s", value, got)
		}
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	root := write(t, map[string]string{"app.ai": "tool \"a\":\n  implemented using node\n  input:\n  output:\n",
		".namel3ss/tools.yaml": "tools: {a: {kind: python, entry: 'a:b'}}\n"})
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"mode":           {Options{Mode: "hot"}, `mode is one of warm, fresh`},
		"workers":        {Options{Workers: -1}, "workers"},
		"tier":           {Options{Tier: new(4)}, "tier"},
		"entry alone":    {Options{Entry: "a:b"}, "name it with `tool`"},
		"entry form":     {Options{Tool: "a", Entry: "a.py"}, "module:function"},
		"entry trick":    {Options{Tool: "a", Entry: "a:b\nimport os"}, "module:function"},
		"unknown tool":   {Options{Tool: "b"}, `has no tool "b"`},
		"missing app":    {Options{App: "nowhere"}, "not a folder"},
		"missing python": {Options{Tool: "z", Entry: "a:b", Interpreter: "./python9"}, "no Python"},
	} {
		kit.Fails(t, kit.Err(New(context.Background(), root, c.o, quiet())), c.want, name, c.want)
	}
}

func TestFilesOfAnAppAreBounded(t *testing.T) {
	big := write(t, map[string]string{"app.ai": strings.Repeat("#\n", 1<<20)})
	kit.Fails(t, kit.Err(loadApp(big)), "app.ai")
	folder := write(t, map[string]string{"app.ai/x": ""})
	kit.Fails(t, kit.Err(loadApp(folder)), "not a regular file")
}

func TestOpenReadsASourceOfTheConfig(t *testing.T) {
	tooltest.NoLeaks(t)
	root := write(t, map[string]string{"app/tools/sample.py": "def greet(p):\n    return {'message': 'Hello ' + p['name']}\n"})
	cfg := kit.Must(config.Parse(filepath.Join(root, "toolpost.yaml"), []byte(`sources:
  - {name: one, protocol: namel3ss, tool: greeter, entry: "tools.sample:greet", app: ./app, timeout: 20s, tier: 1,
     description: Greets., input: {type: object, required: [name]}, effects: {reads: true}, guarantees: {no_network: true},
     walls: {network: loopback, memory: 268435456}}
`)))(t)
	r := kit.Must(Open(t.Context(), cfg.Sources[0], quiet()))(t)
	defer r.Close(context.Background())
	specs, err := r.(tool.Source).Tools(t.Context())
	want := []*tool.Spec{{
		Name: "greeter", Description: "Greets.", Input: json.RawMessage(`{"type":"object","required":["name"]}`), Tier: 1, TierFrom: tool.TierConfig,
		Timeout: 20 * time.Second, Effects: tool.Effects{Reads: true}, Guarantees: tool.Guarantees{NoNetwork: true},
		Held: tool.Guarantees{NoEnvWrite: true, Sandbox: true}, Room: specs[0].Room,
	}}
	app := filepath.Join(root, "app")
	if around := specs[0].Walls; !strings.Contains(around, app) || !strings.Contains(around, "network loopback; 256 MiB") {
		t.Errorf("its walls: %s", around)
	}
	specs[0].Walls = ""
	if d := cmp.Diff(want, specs); err != nil || d != "" {
		t.Error(err, d)
	}
	if res := must(t, r, "greeter", `{"name":"Ada"}`); string(res.Output) != `{"message":"Hello Ada"}` || res.Trace.Details["enforcement_level"] != "enforced" {
		t.Errorf("got %s, %v", res.Output, res.Trace.Details)
	}
}

func TestInterpreterOfTheVenvIsPreferred(t *testing.T) {
	tooltest.NoLeaks(t)
	files := map[string]string{"code.py": "import sys\ndef run(p):\n    return sys.executable\n", "requirements.txt": ""}
	root := write(t, files)
	o := Options{Tool: "t", Entry: "code:run"}
	if d := must(t, open(t, root, o), "t", `{}`).Trace.Details; d["python_env"] != "system" || d["deps_source"] != "requirements" {
		t.Errorf("trace %v", d)
	}
	venv := filepath.Join(root, ".venv")
	kit.OK(t, os.MkdirAll(filepath.Join(venv, "bin"), 0o755))
	kit.Refused(t, kit.Err(New(t.Context(), root, o, quiet())), tool.CodeUnavailable, ".venv/bin/python cannot be run", "a .venv without python")
	kit.OK(t, os.Symlink(systemPython(t), filepath.Join(venv, "bin", "python")))
	kit.OK(t, os.WriteFile(filepath.Join(root, "pyproject.toml"), nil, 0o644))
	res := must(t, open(t, root, o), "t", `{}`)
	d := res.Trace.Details
	if d["python_env"] != "venv" || d["python_path"] != filepath.Join(venv, "bin", "python") || d["deps_source"] != "pyproject" {
		t.Errorf("trace %v", d)
	}
}

func TestAShimIsResolvedOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	bin := t.TempDir()
	count := filepath.Join(bin, "count")
	script := "#!/bin/sh\necho x >> " + count + "\nexec " + systemPython(t) + " \"$@\"\n"
	kit.OK(t, os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o755))
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	r := python(t, "def run(p):\n    return 1\n", Options{Mode: modeFresh})
	must(t, r, "t", `{}`)
	must(t, r, "t", `{}`)
	if runs, _ := os.ReadFile(count); string(runs) != "x\n" {
		t.Errorf("the shim ran %d times", len(runs)/2)
	}
	kit.OK(t, os.WriteFile(filepath.Join(bin, "python3"), []byte("#!/bin/sh\necho no >&2; exit 3\n"), 0o755))
	kit.Fails(t, kit.Err(New(t.Context(), t.TempDir(), Options{Tool: "t", Entry: "a:b"}, quiet())), "does not start a Python: exit status 3")
}
