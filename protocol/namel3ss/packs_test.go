package namel3ss

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/pack"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const packHead = "id: %s\nname: Greetings\nversion: 1.2.3\ndescription: says hello\nauthor: Ada\nlicense: MIT\n"

// packOf returns the files of a pack with one tool, which reports where it was imported from.
func packOf(folder, id, name string) map[string]string {
	return map[string]string{
		folder + "/pack.yaml":         fmt.Sprintf(packHead, id) + "tools: [" + name + "]\n",
		folder + "/tools.yaml":        "tools:\n  " + name + ": {kind: python, entry: 'hello.main:run', purity: pure, timeout_ms: 5000}\n",
		folder + "/capabilities.yaml": "capabilities:\n  " + name + ": {filesystem: read, network: outbound, env: read, subprocess: allow, secrets: [TOKEN]}\n",
		folder + "/hello/main.py":     "import os\ndef run(p):\n    return {'file': __file__, 'cwd': os.getcwd()}\n",
	}
}

func join(all ...map[string]string) map[string]string {
	files := map[string]string{}
	for _, m := range all {
		maps.Copy(files, m)
	}
	return files
}

// contract(namel3ss): Bundled packs reference runners via `tools.yaml` or `entrypoints` in `pack.yaml`.
// contract(namel3ss): pack tools: `pack_id`, `pack_name`, `pack_version`
// contract(namel3ss): `resolved_source`: `builtin_pack`, `installed_pack`, or `binding`
func TestPacksBringTools(t *testing.T) {
	tooltest.NoLeaks(t)
	entrypoints := map[string]string{
		".namel3ss/packs/b/pack.yaml":     fmt.Sprintf(packHead, "b") + "tools: [two]\nentrypoints:\n  two: {kind: python, entry: 'hello.main:run', runner: local}\nsigner_id: x\nsigned_at: y\ndigest: z\n",
		".namel3ss/packs/b/hello/main.py": "def run(p):\n    return {'file': __file__, 'cwd': ''}\n",
	}
	root := write(t, join(packOf("packs/a", "a", "one"), entrypoints))
	r := open(t, root, Options{Trusted: []string{"b"}})
	for name, want := range map[string][]string{"one": {"builtin_pack", "packs/a/hello/main.py", "a"}, "two": {"installed_pack", ".namel3ss/packs/b/hello/main.py", "b"}} {
		res := must(t, r, name, `{}`)
		var out struct{ File, CWD string }
		kit.OK(t, json.Unmarshal(res.Output, &out))
		d := res.Trace.Details
		if d["resolved_source"] != want[0] || out.File != filepath.Join(root, want[1]) || d["pack_id"] != want[2] || d["pack_name"] != "Greetings" || d["pack_version"] != "1.2.3" || d["enforcement_level"] != "enforced" || d["runner"] != "local" {
			t.Errorf("%s: %s, %v", name, res.Output, d)
		}
		if out.CWD != "" && out.CWD != root {
			t.Errorf("%s runs in %s, not in the app", name, out.CWD)
		}
	}
	specs, err := r.Tools(t.Context())
	if err != nil || len(specs) != 2 || specs[0].Timeout.Seconds() != 5 || !specs[0].Effects.Idempotent || specs[0].Description != "says hello" {
		t.Errorf("%+v, %v", specs, err)
	}
}

// contract(namel3ss): Runner selection (`local`, `service`, `container`) is resolved at load time and
// contract(namel3ss): surfaced in tool call traces.
func TestPackChoosesTheRunner(t *testing.T) {
	url := peerService(t)
	files := map[string]string{
		"packs/a/pack.yaml":         fmt.Sprintf(packHead, "a") + "tools: [greeter]\nrunners: {default: service}\nservice_url: " + url + "\nentrypoints: {greeter: {entry: 'a:b'}}\n",
		"packs/a/capabilities.yaml": "capabilities: {greeter: {network: outbound}}\n",
	}
	d := must(t, open(t, write(t, files), Options{}), "greeter", `{"name":"Ada"}`).Trace.Details
	if d["runner"] != "service" || d["service_url"] != url || d["service_handshake"] != true || d["enforcement_level"] != "enforced" || d["pack_id"] != "a" {
		t.Errorf("trace %v", d)
	}
}

func TestCapabilityChecksNameDeclarationsAndDenials(t *testing.T) {
	tooltest.NoLeaks(t)
	files := packOf("packs/a", "a", "one")
	r := open(t, write(t, files), Options{Options: spawn.Options{Guarantees: tool.Guarantees{NoNetwork: true}}})
	res, err := r.Invoke(t.Context(), &tool.Call{Tool: "one", Spec: &tool.Spec{Guarantees: tool.Guarantees{NoSubprocess: true, SecretsAllowed: []string{}}}}, tool.Discard)
	kit.OK(t, err)
	b, _ := json.Marshal(res.Trace.Details["capability_checks"])
	var got []walls.Check
	kit.OK(t, json.Unmarshal(b, &got))
	want := []walls.Check{
		{Capability: "filesystem_read", Allowed: true, Source: "pack", Reason: "pack_declared"},
		{Capability: "filesystem_write", Allowed: false, Source: "pack", Reason: "pack_not_declared"},
		{Capability: "network", Allowed: false, Source: "user", Reason: "policy_denied"},
		{Capability: "subprocess", Allowed: false, Source: "policy", Reason: "policy_denied"},
		{Capability: "env_read", Allowed: true, Source: "pack", Reason: "pack_declared"},
		{Capability: "env_write", Allowed: false, Source: "pack", Reason: "pack_not_declared"},
		{Capability: "secret:TOKEN", Allowed: false, Source: "pack", Reason: "policy_denied"},
	}
	kit.Equal(t, cmp.Diff(want, got), "")
	// The call runs only if the walls of the pack hold.
	r = open(t, write(t, files), Options{})
	r.tools["one"].cover = uncoverable
	_, err = call(r, "one", `{}`, tool.Discard)
	if e := tool.AsError(err); e == nil || e.Reason != "coverage_missing" || !strings.Contains(e.Message, "no_filesystem_write, no_env_write, secrets_allowed") || !strings.Contains(string(e.Details), "pack_not_declared") {
		t.Errorf("got %v", err)
	}
}

// unavailable opens an app in which the named tool cannot be used, and returns the reason. Another tool still can be.
func unavailable(t *testing.T, files map[string]string, name string) error {
	t.Helper()
	files = join(files, map[string]string{
		"app.ai":        "tool \"fine\":\n  implemented using python\n  input:\n  output:\n" + files["app.ai"],
		"tools/fine.py": "def run(p):\n    return 'fine'\n",
	})
	r := open(t, write(t, files), Options{})
	kit.Check(t, r.Unavailable("fine"), "the other tool is harmed")
	specs, err := r.Tools(t.Context())
	if err != nil || !slices.ContainsFunc(specs, func(s *tool.Spec) bool { return s.Name == name }) {
		t.Errorf("%s is not listed: %v", name, err)
	}
	kit.Refused(t, kit.Err(call(r, name, `{}`, tool.Discard)), tool.CodeOf(r.Unavailable(name)), "", name)
	return r.Unavailable(name)
}

func TestNameClashErrorNamesBothPlaces(t *testing.T) {
	binding := map[string]string{".namel3ss/tools.yaml": "tools: {one: 'a:b'}\n"}
	for want, c := range map[string]struct {
		tool  string
		files map[string]string
	}{
		`the tool "one" is in .namel3ss/tools.yaml and in packs/a`: {"one", join(packOf("packs/a", "a", "one"), binding)},
		`the tool "one" is in packs/a and in packs/capability/b`:   {"one", join(packOf("packs/a", "a", "one"), packOf("packs/capability/b", "b", "one"))},
		`packs/a and .namel3ss/packs/b are both the pack "a"`:      {"two", join(packOf("packs/a", "a", "one"), packOf(".namel3ss/packs/b", "a", "two"))},
		`binds the tool "one" in tools.yaml and in entrypoints`: {"one", join(packOf("packs/a", "a", "one"), map[string]string{
			"packs/a/pack.yaml": fmt.Sprintf(packHead, "a") + "tools: [one]\nentrypoints: {one: {entry: 'a:b'}}\n"})},
	} {
		kit.Refused(t, unavailable(t, c.files, c.tool), tool.CodeConflict, want, want)
	}
}

func TestMistakesInPacksNameTheFile(t *testing.T) {
	head := fmt.Sprintf(packHead, "a")
	for _, c := range []struct{ file, text, want string }{
		{"pack.yaml", head + "tools: [one]\ncolour: red\n", `packs/a/pack.yaml:8:1: unknown field "colour"`},
		{"pack.yaml", head, `packs/a/pack.yaml: tools is missing`},
		{"pack.yaml", strings.Replace(head, "author: Ada\n", "", 1) + "tools: [one]\n", `author is missing`},
		{"pack.yaml", fmt.Sprintf(packHead, "../a") + "tools: [one]\n", `id "../a" is not made of`},
		{"pack.yaml", head + "tools: [one, one]\n", `lists the tool "one" twice`},
		{"pack.yaml", head + "tools: [one, two]\n", `lists the tool "two" and does not bind it`},
		{"pack.yaml", head + "tools: [one]\nrunners: {default: cloud}\n", `runners.default is one of`},
		{"pack.yaml", head + "tools: [one]\nentrypoints: {two: {entry: 'a:b'}}\n", `binds the tool "two", which its manifest does not list`},
		{"pack.yaml", head + "tools: [one]\nentrypoints: {one: {runner: x}}\n", `tools.yaml and in entrypoints`},
		{"pack.yaml", "tools: [one\n", `packs/a/pack.yaml:`},
		{"tools.yaml", "tools: {one: {runner: cloud}}\n", `packs/a/tools.yaml: tool "one": runner is one of`},
		{"tools.yaml", "tools: {}\n", `lists the tool "one" and does not bind it`},
		{"tools.yaml", "tools:\n  one: {entri: x}\n", `packs/a/tools.yaml:2:9: unknown field "entri"`},
		{"capabilities.yaml", "capabilities: {one: {network: all}}\n", `capabilities.yaml: tool "one": network is one of`},
		{"capabilities.yaml", "capabilities: {two: {}}\n", `about the tool "two", which the pack does not have`},
		{"capabilities.yaml", "one: {}\n", `unknown field "one"`},
	} {
		files := packOf("packs/a", "a", "one")
		files["packs/a/"+c.file] = c.text
		name := "one"
		switch {
		case c.text == head || strings.HasSuffix(c.text, "[one\n"):
			name = "a" // the names of its tools are unknown: the pack is listed instead
		case strings.Contains(c.want, `"two" and`):
			name = "two"
		}
		kit.Fails(t, unavailable(t, files, name), c.want, c.want)
	}
	kit.Fails(t, unavailable(t, map[string]string{"packs/empty/x": "", "packs/a-file": ""}, "empty"), "packs/empty/pack.yaml is missing")
}

// A pack that cannot be run takes no name from those that can.
func TestRefusedPackTakesNoName(t *testing.T) {
	bound := map[string]string{
		".namel3ss/tools.yaml": "tools: {bound: 'a:b'}\n",
		"app.ai":               "tool \"found\":\n  implemented using python\n  input:\n  output:\n", "tools/found.py": "def run(p):\n    return 1\n",
	}
	for folder, text := range map[string]string{
		"packs/bad":             "tools: [own, bound, found, lone]\ncolour: red\n",
		".namel3ss/packs/alien": fmt.Sprintf(packHead, "alien") + "tools: [own, bound, found, lone]\n",
	} {
		r := open(t, write(t, join(bound, packOf("packs/own", "own", "own"), map[string]string{folder + "/pack.yaml": text})), Options{})
		for _, name := range []string{"own", "bound", "found"} {
			kit.Check(t, r.Unavailable(name), "%s: %s", folder, name)
		}
		if r.Unavailable("lone") == nil {
			t.Errorf("%s: lone can be run", folder)
		}
	}
}

// An unusable tool of a pack hides none of the others.
func TestAToolOfAPackHidesNoOther(t *testing.T) {
	files := packOf("packs/a", "a", "one")
	files["packs/a/pack.yaml"] = fmt.Sprintf(packHead, "a") + "tools: [one, two, three]\nentrypoints: {two: {runner: cloud}}\n"
	r := open(t, write(t, files), Options{})
	must(t, r, "one", `{}`)
	for name, want := range map[string]string{"two": `entrypoints: tool "two": runner is one of`, "three": `lists the tool "three" and does not bind it`} {
		kit.Fails(t, r.Unavailable(name), want, name)
	}
}

func TestLocalPacksAlsoLiveInACapabilityFolder(t *testing.T) {
	tooltest.NoLeaks(t)
	r := open(t, write(t, join(packOf("packs/capability/hello", "hello", "one"), packOf("packs/b", "b", "two"))), Options{})
	if d := must(t, r, "one", `{}`).Trace.Details; d["pack_id"] != "hello" || d["resolved_source"] != "builtin_pack" {
		t.Errorf("trace %v", d)
	}
	must(t, r, "two", `{}`)
	kit.Equal(t, len(r.names), 2, r.names)
}

// An installed pack is third-party code, and runs if the user trusts it; the app's own packs run anyway.
func TestInstalledPacksRunOnlyIfTrusted(t *testing.T) {
	tooltest.NoLeaks(t)
	root := write(t, join(packOf("packs/a", "a", "own"), packOf(".namel3ss/packs/b", "b", "unsigned"), packOf(".namel3ss/packs/c", "c", "signed"),
		packOf("packs/d", "d", "changed")))
	key := filepath.Join(root, "ada")
	kit.OK(t, (pack.Packs{}).Keygen(key))
	for _, folder := range []string{".namel3ss/packs/c", "packs/d"} {
		kit.Must((pack.Packs{}).Sign(filepath.Join(root, folder), key))(t)
	}
	kit.OK(t, os.WriteFile(filepath.Join(root, "packs/d/hello/main.py"), []byte("def run(p):\n    return 1\n"), 0o644))
	for name, c := range map[string]struct {
		o    Options
		runs string
	}{
		"nothing is said": {Options{}, "changed own"},
		"a key":           {Options{PackKeys: []string{"ada.pub"}}, "own signed"},
		"a name":          {Options{Trusted: []string{"b"}}, "changed own unsigned"},
		"both":            {Options{PackKeys: []string{"ada.pub"}, Trusted: []string{"b"}}, "own signed unsigned"},
	} {
		r := open(t, root, c.o)
		var runs []string
		for _, tool := range r.names {
			if r.Unavailable(tool) == nil {
				runs = append(runs, tool)
			}
		}
		kit.Equal(t, strings.Join(runs, " "), c.runs, name)
		if err := r.Unavailable("unsigned"); c.o.Trusted == nil && (tool.AsError(err).Reason != "pack_not_verified" || !strings.Contains(err.Error(), "trusted_packs")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnInstalledPackIsRunAsItWasSigned(t *testing.T) {
	dir, app := filepath.Join(write(t, packOf("pack", "greetings", "one")), "pack"), t.TempDir()
	key := filepath.Join(app, "ada")
	packs := pack.Packs{}
	kit.OK(t, packs.Keygen(key))
	kit.Must(packs.Sign(dir, key))(t)
	in := kit.Must(packs.Install(dir, app, []string{key + ".pub"}, false, false))(t)
	r := open(t, app, Options{PackKeys: []string{"ada.pub"}, AllowUnsafeExecution: true})
	if d := must(t, r, "one", `{}`).Trace.Details; d["resolved_source"] != "installed_pack" {
		t.Errorf("trace %v", d)
	}
	// A pack that was changed after its installation is not run.
	kit.OK(t, os.WriteFile(filepath.Join(in.Path, "hello/main.py"), []byte("def run(p):\n    return 'evil'\n"), 0o644))
	kit.Refused(t, kit.Err(call(open(t, app, Options{PackKeys: []string{"ada.pub"}, AllowUnsafeExecution: true}), "one", `{}`, tool.Discard)), tool.CodeAccessDenied, "")
}
