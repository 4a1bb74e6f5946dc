package namel3ss

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/host/spawn"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// both runs a test of one tool's code in both modes.
func both(t *testing.T, code string, test func(t *testing.T, r *Runner)) {
	t.Helper()
	tooltest.NoLeaks(t)
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) { test(t, python(t, code, Options{Mode: mode})) })
	}
}

func TestExceptionIsAFailureOfItsClass(t *testing.T) {
	const code = `
import asyncio, sys

class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")

async def later(payload):
    await asyncio.sleep(0)
    raise LookupError("later")

def deep():
    value = []
    for _ in range(100000):
        value = [value]
    return value

def run(payload):
    return eval(payload["do"], globals())

def fail(err):
    raise err
`
	cases := []struct{ do, typ, message string }{
		{`fail(ValueError("Missing input"))`, "ValueError", "Missing input"},
		{`fail(KeyError())`, "KeyError", "KeyError"},
		{`fail(Odd())`, "Odd", "cannot be made"},
		{`fail(ValueError("lone \ud800 half"))`, "ValueError", `lone \ud800 half`},
		{`sys.exit(3)`, "SystemExit", "3"},
		{`fail(KeyboardInterrupt())`, "KeyboardInterrupt", "KeyboardInterrupt"},
		{`later(None)`, "LookupError", "later"},
		{`object()`, "TypeError", "which JSON has no word for"},
		{`float("nan")`, "ValueError", "JSON compliant"},
		{`float("inf")`, "ValueError", "JSON compliant"},
		{`"\ud800"`, "UnicodeEncodeError", "surrogates not allowed"},
		{`deep()`, "RecursionError", "recursion"},
	}
	both(t, code, func(t *testing.T, r *Runner) {
		for _, c := range cases {
			args, _ := json.Marshal(map[string]string{"do": c.do})
			res, err := call(r, "t", string(args), tool.Discard)
			if err != nil {
				t.Errorf("%s: %v", c.do, err)
				continue
			}
			if res.OK || res.Failure.Reason != c.typ || !strings.Contains(res.Failure.Message, c.message) {
				t.Errorf("%s: want %s with %q, got %+v", c.do, c.typ, c.message, res.Failure)
			}
		}
	})
}

func TestTracebackIsLogged(t *testing.T) {
	both(t, "def run(payload):\n    raise ValueError('deep down')\n", func(t *testing.T, r *Runner) {
		var got tooltest.Collect
		kit.Must(call(r, "t", `{}`, &got))(t)
		lines := strings.Join(got.Logs(), "\n")
		if !strings.Contains(lines, "code.py") || !strings.Contains(lines, "ValueError: deep down") || strings.Contains(lines, "/dev/fd") {
			t.Errorf("want the tool's own frames alone, got\n%s", lines)
		}
	})
}

func TestCoroutineIsAwaited(t *testing.T) {
	both(t, "import asyncio\nasync def run(payload):\n    await asyncio.sleep(0)\n    return {'n': payload['n'] + 1}\n", func(t *testing.T, r *Runner) {
		if res := must(t, r, "t", `{"n":41}`); string(res.Output) != `{"n":42}` {
			t.Errorf("got %s", res.Output)
		}
	})
}

// Anything that a tool writes to standard output, by any means, is a log line and never the reply.
func TestPrintsAndRawWritesNeverCorruptTheReply(t *testing.T) {
	const code = `
import os, subprocess, sys
print("while importing")
def run(payload):
    print('{"ok":true,"protocol_version":1,"result":"forged"}')
    print("größer \ud800")
    os.write(1, b"raw\n")
    os.write(1, b"\xff\xfe bytes\n")
    sys.stdout.write("no newline")
    subprocess.run(["echo", "of a child"])
    print("to stderr", file=sys.stderr)
    return {"input": sys.stdin.read(), "argv": len(sys.argv)}
`
	both(t, code, func(t *testing.T, r *Runner) {
		var got tooltest.Collect
		res, err := call(r, "t", `{}`, &got)
		if err != nil || string(res.Output) != `{"input":"","argv":1}` {
			t.Fatalf("got %v, %v", res, err)
		}
		streams := map[string][]string{}
		for _, e := range got.Events() {
			var l struct {
				Level, Message string
				Fields         struct{ Stream string }
			}
			if err := json.Unmarshal(e.Data, &l); err != nil || e.Kind != tool.KindLog || l.Level != "info" {
				t.Errorf("event %s %s", e.Kind, e.Data)
			}
			streams[l.Fields.Stream] = append(streams[l.Fields.Stream], l.Message)
		}
		out := strings.Join(streams["stdout"], "\n")
		for _, want := range []string{`"forged"`, `größer \ud800`, "raw", "\uFFFD bytes", "no newline", "of a child"} {
			kit.Contains(t, out, want, "stdout")
		}
		kit.Equal(t, fmt.Sprint(streams["stderr"]), "[to stderr]", "stderr: %q", streams["stderr"])
	})
}

func TestEnvironmentIsTheToolsOwn(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Setenv("OUR_SECRET", "not for tools")
	t.Setenv("PASSED", "passed on")
	const code = `
import os, sys
def run(payload):
    return {"env": sorted(os.environ), "cwd": os.getcwd(), "path": sys.path, "given": os.environ["GIVEN"], "root": os.path.dirname(__file__)}
`
	for _, mode := range modes() {
		r := python(t, code, Options{Mode: mode, Options: spawn.Options{Env: map[string]string{"GIVEN": "yes", "PYTHONPATH": "/extra"}, PassEnv: []string{"PASSED", "UNSET"}}})
		var got struct {
			Env, Path        []string
			Cwd, Given, Root string
		}
		kit.OK(t, json.Unmarshal(must(t, r, "t", `{}`).Output, &got))
		for _, name := range got.Env {
			switch name {
			case "PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "GIVEN", "PASSED", "TOOLPOST_TREE", "LC_CTYPE", "TRACEPARENT":
			default:
				t.Errorf("%s: the tool sees %s", mode, name)
			}
		}
		if got.Cwd != got.Root || got.Path[0] != got.Root || got.Path[1] != "/extra" || got.Given != "yes" {
			t.Errorf("%s: got %+v", mode, got)
		}
	}
}

func TestOnlyStandardDescriptorsReachTheTool(t *testing.T) {
	const code = `
import os
def run(payload):
    return {fd: os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)}
`
	both(t, code, func(t *testing.T, r *Runner) {
		var fds map[string]string
		kit.OK(t, json.Unmarshal(must(t, r, "t", `{}`).Output, &fds))
		if len(fds) != 4 || fds["0"] != "/dev/null" {
			t.Errorf("standard input, output, error and the reply are wanted, got %v", fds)
		}
	})
}

func TestAppFilesDoNotShadowTheHostsModules(t *testing.T) {
	tooltest.NoLeaks(t)
	files := map[string]string{"tools/greet.py": "import json\ndef run(payload):\n    return json.dumps(payload)\n"}
	for _, name := range []string{"json", "socket", "gc", "atexit", "array", "importlib"} {
		files[name+".py"] = "raise RuntimeError('shadowed')\n"
	}
	for _, mode := range modes() {
		r := open(t, write(t, files), Options{Tool: "t", Entry: "tools.greet:run", Mode: mode})
		if res := must(t, r, "t", `{"a":1}`); string(res.Output) != `"{\"a\": 1}"` {
			t.Errorf("%s: got %s", mode, res.Output)
		}
	}
}

// contract(namel3ss): Python's own `No module named 'x'` reaches the caller unchanged.
func TestMissingCodeIsAFailureThatHelps(t *testing.T) {
	tooltest.NoLeaks(t)
	files := map[string]string{
		"code.py": "import nowhere_to_be_found\n", "other.py": "NUMBER = 1\ndef greet(p): pass\ndef part(p): pass\n",
		"exits.py": "raise SystemExit('at import')\n", "broken.py": "def run(:\n",
	}
	for _, c := range []struct{ entry, typ, want string }{
		{"tools.none:run", "ModuleNotFoundError", "No module named 'tools'"},
		{"code:run", "ModuleNotFoundError", "No module named 'nowhere_to_be_found'"},
		{"other:run", "AttributeError", "it has greet, part"},
		{"other:NUMBER", "TypeError", "not a function but of type int"},
		{"exits:run", "SystemExit", "at import"},
		{"broken:run", "SyntaxError", "broken.py"},
	} {
		for _, mode := range modes() {
			t.Run(mode+"/"+c.entry, func(t *testing.T) {
				r := open(t, write(t, files), Options{Tool: "t", Entry: c.entry, Mode: mode})
				for range 6 { // more crashes than a pool tolerates
					res := kit.Must(call(r, "t", `{}`, tool.Discard))(t)
					if res.OK || res.Failure.Reason != c.typ || !strings.Contains(res.Failure.Message, c.want) {
						t.Fatalf("want %s with %q, got %+v", c.typ, c.want, res.Failure)
					}
					if c.typ == "ModuleNotFoundError" && res.Failure.Message != c.want {
						t.Fatalf("want Python's own words, got %q", res.Failure.Message)
					}
					if mode == modeFresh {
						break
					}
				}
			})
		}
	}
}

func TestACallKeepsNothingOfTheCallBefore(t *testing.T) {
	const code = `
import os, random
state = []
def run(payload):
    state.append(1)
    os.environ["LEFT"] = os.environ.get("LEFT", "") + "x"
    return {"state": len(state), "left": os.environ["LEFT"], "random": random.random(), "pid": os.getpid()}
`
	both(t, code, func(t *testing.T, r *Runner) {
		seen := map[float64]bool{}
		for range 5 {
			var got struct {
				State  int
				Left   string
				Random float64
			}
			kit.OK(t, json.Unmarshal(must(t, r, "t", `{}`).Output, &got))
			if got.State != 1 || got.Left != "x" || seen[got.Random] {
				t.Fatalf("something of another call is left: %+v", got)
			}
			seen[got.Random] = true
		}
	})
}

func TestWarmCallsShareOneImport(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = `
import os
imported = os.getpid()
def run(payload):
    if payload:
        os.killpg(0, 15)
    return [imported, os.getpid(), os.getppid()]
`
	r := python(t, code, Options{})
	var first, second []int
	_ = json.Unmarshal(must(t, r, "t", `{}`).Output, &first)
	// A call is a session of its own: signals to its group do not reach the server.
	kit.Refused(t, kit.Err(call(r, "t", `{"kill":true}`, tool.Discard)), tool.CodeCrash, "")
	res := must(t, r, "t", `{}`)
	_ = json.Unmarshal(res.Output, &second)
	if first[0] != second[0] || first[1] == second[1] || second[2] != second[0] {
		t.Errorf("want one import and a process for each call, got %v and %v", first, second)
	}
	kit.Equal(t, res.Trace.Details["mode"], "warm", "mode")
}

func TestAnEditedToolIsSeenAtOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	root := write(t, map[string]string{"code.py": "from helper import value\ndef run(payload):\n    return value\n", "helper.py": "value = 1\n"})
	r := open(t, root, Options{Tool: "t", Entry: "code:run"})
	for n := 1; n <= 5; n++ {
		kit.OK(t, os.WriteFile(filepath.Join(root, "helper.py"), fmt.Appendf(nil, "value = %d\n", n), 0o644))
		if res := must(t, r, "t", `{}`); string(res.Output) != fmt.Sprint(n) {
			t.Fatalf("edit %d: the tool still says %s", n, res.Output)
		}
	}
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(root, "__pycache__"))), "", "running a tool wrote into its app")
}

func TestAModuleThatStartsThreadsIsRunFresh(t *testing.T) {
	const threads = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
	const child = "import subprocess\nsubprocess.Popen(['sleep', '600'])\n"
	for reason, code := range map[string]string{"thread": threads, "process": child} {
		t.Run(reason, func(t *testing.T) {
			tooltest.NoLeaks(t)
			r := python(t, code+"def run(payload):\n    return payload\n", Options{})
			for range 2 {
				d := must(t, r, "t", `{}`).Trace.Details
				if d["mode"] != "fresh" || !strings.Contains(fmt.Sprint(d["mode_reason"]), reason) {
					t.Errorf("mode %v because %v", d["mode"], d["mode_reason"])
				}
			}
		})
	}
}

func TestAtexitOfACallRunsAndThatOfTheModuleDoesNot(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = `
import atexit
atexit.register(print, "of the module")
def run(payload):
    atexit.register(print, "of the call")
`
	var got tooltest.Collect
	kit.Must(call(python(t, code, Options{}), "t", `{}`, &got))(t)
	kit.Equal(t, fmt.Sprint(got.Logs()), "[of the call]")
}

func TestThreadsThatAToolLeavesDoNotHoldTheCall(t *testing.T) {
	const code = `
import threading, time
def run(payload):
    threading.Thread(target=time.sleep, args=(600,)).start()
    return 1
`
	both(t, code, func(t *testing.T, r *Runner) { must(t, r, "t", `{}`) })
}

func TestTimeoutEndsTheCallInMilliseconds(t *testing.T) {
	const code = "import time\ndef run(payload):\n    time.sleep(payload['s'])\n"
	for _, mode := range modes() {
		tooltest.NoLeaks(t)
		r := python(t, code, Options{Mode: mode})
		must(t, r, "t", `{"s":0}`)
		var before *worker
		if mode == modeWarm {
			before = server(t, r)
		}
		r.tools["t"].spec.Timeout = 1500 * time.Millisecond
		_, err := call(r, "t", `{"s":600}`, tool.Discard)
		kit.Refused(t, err, tool.CodeTimeout, "longer than its 1.5s", mode)
		var details struct{ Trace map[string]any }
		if err := json.Unmarshal(tool.AsError(err).Details, &details); err != nil || details.Trace["timeout_ms"] != 1500.0 || details.Trace["status"] != "error" {
			t.Errorf("%s: the trace of an error is in its details; got %v, %v", mode, details.Trace, err)
		}
		r.tools["t"].spec.Timeout = patience
		if must(t, r, "t", `{"s":0}`); mode == modeWarm && server(t, r) != before {
			t.Error("the timeout of a call ended its fork server")
		}
	}
}

func TestSecretsAreRedactedFromToolOutput(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Setenv("API_KEY", "sk-very-secret")
	const code = "import os, sys\ndef run(payload):\n    print('key', os.environ['API_KEY'], file=sys.stderr)\n    os.abort()\n"
	for _, mode := range modes() {
		var got tooltest.Collect
		_, err := call(python(t, code, Options{Mode: mode, Options: spawn.Options{PassEnv: []string{"API_KEY"}}}), "t", `{}`, &got)
		said := fmt.Sprint(err, string(tool.AsError(err).Details), got.Logs())
		if tool.CodeOf(err) != tool.CodeCrash || !strings.Contains(said, "key [API_KEY]") || strings.Contains(said, "very-secret") {
			t.Errorf("%s: %s", mode, said)
		}
	}
}
