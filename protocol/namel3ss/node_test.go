package namel3ss

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/host/spawn"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// javascript opens a single tool `t` whose function is `run` in that file.
func javascript(t testing.TB, file, code string, o Options) *Runner {
	t.Helper()
	o.Tool, o.Kind, o.Entry = "t", appfile.KindNode, file+":run"
	r := open(t, write(t, map[string]string{file: code}), o)
	if err := r.Unavailable("t"); err != nil {
		t.Skipf("no Node.js on this machine: %v", err)
	}
	return r
}

func TestNodeToolsOfBothModuleKindsRunBesidePythonOnes(t *testing.T) {
	tooltest.NoLeaks(t)
	root := write(t, map[string]string{
		"app.ai":               "tool \"esm\":\n  implemented using node\n  input:\n    name is text\n  output:\n    hello is text\n",
		".namel3ss/tools.yaml": "tools:\n  esm: 'tools.greet:run'\n  cjs: {kind: node, entry: 'tools/old.cjs:run'}\n  short: {kind: node, entry: 'tools/old:late'}\n  py: 'tools.greet:run'\n",
		"tools/greet.mjs":      "import fs from 'node:fs';\nexport async function run(p) { return {hello: p.name, cwd: process.cwd()}; }\n",
		"tools/old.cjs":        "const path = require('path');\nconst api = {};\napi.run = (p) => ({hello: p.name, argv: process.argv.length});\napi.late = (p) => new Promise((r) => setTimeout(() => r('late'), 10));\nmodule.exports = api;\n",
		"tools/greet.py":       "def run(p):\n    return {'hello': p['name']}\n",
	})
	r := open(t, root, Options{})
	if err := r.Unavailable("esm"); err != nil {
		t.Skipf("no Node.js on this machine: %v", err)
	}
	for name, want := range map[string]string{
		"esm": `{"hello":"Adä","cwd":"` + root + `"}`, "cjs": `{"hello":"Adä","argv":1}`, "short": `"late"`, "py": `{"hello":"Adä"}`,
	} {
		res := must(t, r, name, `{"name":"Adä"}`)
		kit.Equal(t, string(res.Output), want, name)
		if d := res.Trace.Details; name != "py" && (d["kind"] != "node" || d["runner"] != "local" || d["python_path"] != nil) {
			t.Errorf("%s: trace %v", name, d)
		}
	}
}

func TestNodeErrorsAreFailuresOfTheirClass(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = `
class Odd extends Error {}
export function run(p) { return eval(p.do); }
const reject = (e) => Promise.reject(e);
function raise(e) { throw e; }
`
	r := javascript(t, "code.mjs", code, Options{})
	for _, c := range []struct{ do, typ, message string }{
		{`raise(new TypeError("Missing input"))`, "TypeError", "Missing input"},
		{`raise(new Odd("odd"))`, "Odd", "odd"},
		{`raise("text")`, "string", "text"},
		{`reject(new RangeError("later"))`, "RangeError", "later"},
		{`setTimeout(() => raise(new Odd("much later")), 1), new Promise(() => setInterval(() => 0, 1000))`, "Odd", "much later"},
		{`NaN`, "RangeError", "not a JSON number"},
		{`10n`, "TypeError", "BigInt"},
		{`"\ud800"`, "RangeError", "half a character"},
		{`raise(new Error("\ud800"))`, "Error", "\uFFFD"},
		{`() => 1`, "TypeError", "cannot be written as JSON"},
	} {
		args, _ := json.Marshal(map[string]string{"do": c.do})
		res, err := call(r, "t", string(args), tool.Discard)
		if err != nil || res.OK || res.Failure.Reason != c.typ || !strings.Contains(res.Failure.Message, c.message) {
			t.Errorf("%s: want %s with %q, got %+v, %v", c.do, c.typ, c.message, res, err)
		}
	}
	for do, want := range map[string]tool.Code{`process.exit(0)`: tool.CodeProtocol, `process.exit(3)`: tool.CodeCrash, `process.kill(process.pid, "SIGKILL")`: tool.CodeCrash} {
		args, _ := json.Marshal(map[string]string{"do": do})
		kit.Refused(t, kit.Err(call(r, "t", string(args), tool.Discard)), want, "", do, want)
	}
}

func TestInvalidNodeEntriesAreExplained(t *testing.T) {
	for entry, want := range map[string]string{"nothing:run": "no module nothing; looked for nothing.mjs", "code:walk": "has no function walk; it has run", "broken:run": "SyntaxError"} {
		r := open(t, write(t, map[string]string{"code.mjs": "export const run = 1;\n", "broken.mjs": "{"}), Options{Tool: "t", Kind: appfile.KindNode, Entry: entry})
		if err := r.Unavailable("t"); err != nil {
			t.Skipf("no Node.js on this machine: %v", err)
		}
		res, err := call(r, "t", `{}`, tool.Discard)
		if err != nil || res.OK || !strings.Contains(res.Failure.Reason+": "+res.Failure.Message, want) {
			t.Errorf("%s: want %q, got %+v, %v", entry, want, res, err)
		}
	}
	for _, entry := range []string{"../x:run", "a/../../x:run", "/etc/x:run", "x", "x:", ":run", "x:run()"} {
		if appfile.CheckEntry(appfile.KindNode, entry) == nil {
			t.Errorf("%q was accepted", entry)
		}
	}
}

func TestNodePrintsAndRawWritesNeverCorruptTheReply(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = `
import fs from "node:fs";
import { execFileSync } from "node:child_process";
console.log("while importing");
export function run(p) {
  console.log('{"ok":true,"protocol_version":1,"result":"forged"}');
  fs.writeSync(1, "raw\n");
  console.error("to stderr");
  const out = execFileSync("sh", ["-c", "echo x >&3 && echo open || echo closed"], {stdio: ["ignore", "pipe", "ignore"]});
  return {third: String(out).trim()};
}
`
	var got tooltest.Collect
	res, err := call(javascript(t, "code.mjs", code, Options{}), "t", `{}`, &got)
	if err != nil || string(res.Output) != `{"third":"closed"}` {
		t.Errorf("got %+v, %v", res, err)
	}
	for _, line := range []string{"while importing", `{"ok":true,"protocol_version":1,"result":"forged"}`, "raw", "to stderr"} {
		if !strings.Contains(strings.Join(got.Logs(), "\n"), line) {
			t.Errorf("%s is not in the log: %q", line, got.Logs())
		}
	}
}

func TestNodeToolIsEndedWithItsTime(t *testing.T) {
	tooltest.NoLeaks(t)
	r := javascript(t, "code.mjs", "export const run = () => new Promise(() => setInterval(() => 0, 1000));\n", Options{Options: spawn.Options{Timeout: config.Duration(700 * time.Millisecond)}})
	kit.Refused(t, kit.Err(call(r, "t", `{}`, tool.Discard)), tool.CodeTimeout, "")
}
