package namel3ss

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/host/sandbox"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// uncoverable is the coverage check of a machine that can enforce nothing.
func uncoverable(name string, g tool.Guarantees) error {
	if asked := g.Asked(); len(asked) > 0 {
		return tool.Errorf(tool.CodeUnsupported, "%s was not run: %s cannot be enforced", name, strings.Join(asked, ", ")).Because(sandbox.CoverageMissing)
	}
	return nil
}

// If a required wall cannot be built, the call does not run, and its error names the wall.
func TestGuaranteeThatCannotBeEnforcedIsRefusedBeforeAnythingStarts(t *testing.T) {
	tooltest.NoLeaks(t)
	guarantees := map[string]tool.Guarantees{
		"no_filesystem_read": {NoFilesystemRead: true}, "no_filesystem_write": {NoFilesystemWrite: true},
		"no_network": {NoNetwork: true}, "no_subprocess": {NoSubprocess: true}, "no_env_read": {NoEnvRead: true},
		"no_env_write": {NoEnvWrite: true}, "secrets_allowed": {SecretsAllowed: []string{}},
	}
	for name, g := range guarantees {
		for _, mode := range append(modes(), appfile.KindNode) {
			root := write(t, map[string]string{"code.py": "open('started', 'w')\ndef run(p):\n    return 1\n", "code.mjs": "import fs from 'node:fs'; fs.writeFileSync('started', '');\n"})
			o := Options{Tool: "t", Entry: "code:run", Mode: mode, Options: spawn.Options{Walls: walls.Options{Write: []string{root}}}}
			if mode == appfile.KindNode {
				o.Kind, o.Mode = appfile.KindNode, ""
			}
			byPolicy := open(t, root, o)
			o.Guarantees = g
			byConfig := open(t, root, o)
			if byConfig.Unavailable("t") != nil {
				continue // no Node.js on this machine
			}
			byConfig.tools["t"].cover, byPolicy.tools["t"].cover = uncoverable, uncoverable
			for _, c := range []struct {
				r    *Runner
				spec *tool.Spec
			}{{byConfig, nil}, {byConfig, &tool.Spec{}}, {byPolicy, &tool.Spec{Guarantees: g}}} {
				_, err := c.r.Invoke(t.Context(), &tool.Call{Tool: "t", Spec: c.spec}, tool.Discard)
				e := tool.AsError(err)
				if e == nil || e.Code != tool.CodeUnsupported || e.Reason != "coverage_missing" || !strings.Contains(e.Message, name+" cannot be enforced") {
					t.Fatalf("%s, %s: %v", name, mode, err)
				}
				var d struct{ Trace map[string]any }
				if err := json.Unmarshal(e.Details, &d); err != nil || d.Trace["decision"] != "blocked" || d.Trace["capability"] != name || d.Trace["reason"] != "coverage_missing" || d.Trace["result"] != "blocked" {
					t.Errorf("%s: trace %v, %v", name, d.Trace, err)
				}
			}
			kit.Fails(t, kit.Err(os.Stat(filepath.Join(root, "started"))),
				"", "%s, %s: the tool was started", name, mode)
		}
	}
}

// contract(namel3ss): unsafe overrides: `unsafe_override`
func TestUnsafeOverrideRunsAndSaysSo(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = "def run(p):\n    return 1\n"
	no := tool.Guarantees{NoNetwork: true}
	for name, files := range map[string]map[string]string{
		"source":       {},
		"file":         {"namel3ss.toml": "allow_unsafe_execution = true\n"},
		"python_tools": {"namel3ss.toml": "[python_tools]\nallow_unsafe_execution = true\n"},
	} {
		files["code.py"] = code
		r := open(t, write(t, files), Options{Tool: "t", Entry: "code:run", Options: spawn.Options{Guarantees: no}, AllowUnsafeExecution: name == "source"})
		r.tools["t"].cover = uncoverable
		if d := must(t, r, "t", `{}`).Trace.Details; d["unsafe_override"] != true {
			t.Errorf("%s: the trace does not say so: %v", name, d)
		}
	}
	// Without an override the trace does not mention one.
	r := open(t, write(t, map[string]string{"code.py": code}), Options{Tool: "t", Entry: "code:run", Options: spawn.Options{Guarantees: no}, AllowUnsafeExecution: true})
	if d := must(t, r, "t", `{}`).Trace.Details; d["unsafe_override"] != nil {
		t.Errorf("trace %v", d)
	}
}

func TestCapabilityContextNamesTheSourceOfEachGuarantee(t *testing.T) {
	r := peer(t, Options{Options: spawn.Options{Guarantees: tool.Guarantees{NoNetwork: true, SecretsAllowed: []string{"A", "B"}}}, AllowUnsafeExecution: true})
	spec := &tool.Spec{Guarantees: tool.Guarantees{NoSubprocess: true, SecretsAllowed: []string{"B", "C"}}}
	res := kit.Must(r.Invoke(t.Context(), &tool.Call{Tool: "greeter", Spec: spec}, tool.Discard))(t)
	var got struct {
		Request struct {
			Context json.RawMessage `json:"capability_context"`
		}
	}
	kit.OK(t, json.Unmarshal(res.Output, &got))
	for _, want := range []string{
		`"no_network": true`, `"no_subprocess": true`, `"no_env_read": false`, `"secrets_allowed": ["B"]`,
		`"sources": {"no_network": "user", "no_subprocess": "policy", "secrets_allowed": "user"}`,
	} {
		kit.Contains(t, string(got.Request.Context), want)
	}
}
