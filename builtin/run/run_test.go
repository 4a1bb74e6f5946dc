package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestAProgramCallsToolsAsFunctions(t *testing.T) {
	w := newWorld(t, "{}")
	w.want("python", `return await tools.files.readFile(path="a.txt")`, "hello\n")
	w.want("python", `return await tools.files.readFile({"path": "a.txt"})`, "hello\n")
	w.want("python", `return await tools["readFile"](path="a.txt")`, "hello\n")
	w.want("python", `return await tools["files.readFile"](path="a.txt")`, "hello\n")
	w.want("python", `return await tools.file.read(path="a.txt")`, "hello\n") // an alias
	w.want("javascript", `return await tools.files.readFile({path: "a.txt"})`, "hello\n")
	w.want("javascript", `return await tools["files.readFile"]({path: "a.txt"})`, "hello\n")
	// A name that is not an identifier is converted to one.
	w.want("python", `return (await tools.probe.odd_name_v1(x=1))["args"]`, map[string]any{"x": 1})
	w.want("javascript", `return (await tools.probe.odd_name_v1({x: 1})).args`, map[string]any{"x": 1})
}

func TestCallsRunSideBySide(t *testing.T) {
	w := newWorld(t, "{}")
	w.want("python", `
import asyncio
all = await asyncio.gather(*(tools.probe.who(n=n) for n in range(300)))
return [sum(a["args"]["n"] for a in all), [a["args"]["n"] for a in all] == list(range(300))]`, []any{44850, true})
	w.want("javascript", `
const all = await Promise.all(Array.from({length: 300}, (_, n) => tools.probe.who({n})))
return [all.reduce((sum, a) => sum + a.args.n, 0), all.every((a, n) => a.args.n === n)]`, []any{44850, true})
	// A cancelled call frees its place and ends.
	w.want("python", `
import asyncio
try:
    await asyncio.wait_for(tools.probe.wait(), 0.05)
except asyncio.TimeoutError:
    return (await tools.probe.who())["caller"]`, "ada")
	kit.Eventually(t, "no call runs", func() bool { return w.probe.running.Load() == 0 })
}

func TestMissingAwaitOrCallIsExplained(t *testing.T) {
	w := newWorld(t, "{}")
	for _, c := range [][3]string{
		{"python", `return tools.files.readFile(path="a.txt")`, "the result has a call that was not awaited: write await"},
		{"python", `text = tools.files.readFile(path="a.txt"); return text.upper()`, "files.readFile() was not awaited: write await in front of the call"},
		{"python", `return len(tools.files.readFile(path="a.txt"))`, "files.readFile() was not awaited"},
		{"python", `return [f for f in tools.files.listFiles()]`, "files.listFiles() was not awaited"},
		{"python", `return tools.files.listFiles()[0]`, "files.listFiles() was not awaited"},
		{"python", `print(tools.files.listFiles())`, "files.listFiles() was not awaited"},
		{"python", `if tools.files.listFiles(): return 1`, "files.listFiles() was not awaited"},
		{"python", `return "a" + tools.files.readFile(path="a.txt")`, "files.readFile() was not awaited"},
		{"python", `await tools.probe.who(n=tools.files.listFiles())`, "the arguments have a call that was not awaited"},
		{"javascript", `return tools.files.readFile({path: "a.txt"}).length`, "a call that was not awaited: write await in front of it"},
		{"javascript", `for (const f of tools.files.listFiles()) print(f)`, "a call that was not awaited"},
		{"javascript", `return tools.files.listFiles()[0]`, "a call that was not awaited"},
		{"javascript", "return `${tools.files.listFiles()}`", "a call that was not awaited"},
		{"javascript", `return {a: tools.files.listFiles()}`, "a call that was not awaited"},
		{"javascript", `await tools.probe.who({n: tools.files.listFiles()})`, "a call that was not awaited"},
		{"python", `return [tools.files.readFile]`, "the result has the tool files.readFile itself: call it"},
		{"javascript", `return tools.files.readFile`, "the result is a function"},
		{"javascript", `return {toJSON() {}}`, "JSON has no word for"},
		{"javascript", `import fs from "fs"`, "write const {...} = require('...')"},
		{"javascript", `throw {a: 1}`, `{"a":1}`},
		{"python", `await tools.files.readFil(path="a.txt")`, `"files.readFil"; did you mean "files.readFile"?`},
		{"javascript", `await tools.file.readFile({path: "a.txt"})`, `did you mean "files.readFile"?`},
	} {
		if o := w.run(c[0], c[1]); o.err == nil || !strings.Contains(o.err.Message, c[2]) {
			t.Errorf("%s: %+v", c[1], o)
		}
	}
	// A missing file is not a missing tool.
	o := w.run("python", `await tools.files.readFile(path="readFil")`)
	if o.err == nil || strings.Contains(o.err.Message, "did you mean") {
		t.Errorf("%+v", o)
	}
	for _, language := range languages() {
		o := w.run(language, strings.Repeat("tools.probe.wait()\n", 2))
		kit.Contains(t, o.summary, "2 calls that still ran were not awaited, and cancelled", language, o)
	}
	w.want("javascript", `const {sep} = await import("node:path"); return sep`, "/")
	if o := w.run("javascript", `await import("node:path")`); o.Stderr != "" {
		t.Errorf("%+v", o)
	}
}

// Everything about a call except its tool and arguments comes from the call that the program runs for.
func TestCallsInheritCallerAndParentOfTheProgram(t *testing.T) {
	w := newWorld(t, "{}")
	for _, language := range languages() {
		code := map[string]string{
			"python":     `return [await tools.probe.who() for _ in range(3)]`,
			"javascript": `return [await tools.probe.who(), await tools.probe.who(), await tools.probe.who()]`,
		}[language]
		o := w.runAs(t.Context(), tool.Call{Caller: ada(), Session: "s1"}, language, code)
		text, _ := json.Marshal(o.Result)
		one := fmt.Sprintf(`{"args":{},"caller":"ada","depth":1,"parent":"%s"}`, o.id)
		if o.err != nil || string(text) != "["+one+","+one+","+one+"]" || o.Calls != 3 {
			t.Errorf("%s: %s, %v", language, text, o.err)
		}
		rows := w.rows(o.id)
		if len(rows) != 3 {
			t.Fatalf("%s: %d rows", language, len(rows))
		}
		for _, r := range rows {
			if r.Caller != "ada" || r.Session != "s1" || r.Tool != "who" || r.Call == o.id {
				t.Errorf("%+v", r)
			}
		}
	}
	if slices.Contains(w.probe.sessions, "") {
		t.Error("a call without the session")
	}
}

func TestACallThatFailsRaises(t *testing.T) {
	w := newWorld(t, "{}")
	for call, want := range map[string][]any{
		"probe.fail":      {"tool_error", "no_luck", "it did not work"},
		"probe.forbidden": {"access_denied", "", ""}, // with these arguments
		"probe.hidden":    {"not_found", "", ""},
		"probe.asks":      {"asked", "", ""},
	} {
		for language, code := range map[string]string{
			"python": "try:\n    await tools." + call + "(no=1)\nexcept ToolError as e:\n    return [e.code, e.reason, e.message]",
			"javascript": "try { await tools." + call + "({no: 1}) } catch (e) {\n" +
				"  if (!(e instanceof ToolError)) throw e\n  return [e.code, e.reason, e.message] }",
		} {
			o := w.run(language, code)
			got, _ := o.Result.([]any)
			if len(got) != 3 || got[0] != want[0] || want[2] != "" && (got[1] != want[1] || got[2] != want[2]) {
				t.Errorf("%s of %s: %v, %v", language, call, got, o.err)
			}
		}
	}
	// A refused call is recorded as one.
	o := w.run("python", "try:\n    await tools.probe.forbidden(no=1)\nfinally:\n    pass")
	rows := w.rows(o.id)
	if len(rows) != 1 || rows[0].Outcome != "refused" || o.err == nil || !strings.Contains(o.err.Message, "ToolError: access_denied") {
		t.Errorf("%+v, %v", rows, o.err)
	}
}

func TestAnExceptionIsToldInTheProgramsOwnLines(t *testing.T) {
	w := newWorld(t, "{}")
	for _, c := range []struct{ language, code, want string }{
		{"python", "def half(x):\n    return 1 / x\n\nprint('before')\nhalf(0)", "ZeroDivisionError: division by zero\n  line 5, in the program: half(0)\n  line 2, in half: return 1 / x"},
		{"python", "x = 1\ny = = 2", "SyntaxError: invalid syntax\n  line 2, in the program: y = = 2"},
		{"python", "print('before')\nawait tools.probe.fail()", "ToolError: tool_error: it did not work\n  line 2, in the program: await tools.probe.fail()"},
		{"javascript", "function half(x) {\n  return x.y.z\n}\nconsole.log('before')\nhalf({})", "TypeError: Cannot read properties of undefined (reading 'z')\n  line 5, in the program: half({})\n  line 2, in half: return x.y.z"},
		{"javascript", "let x = 1\nlet y = = 2", "SyntaxError: Unexpected token '='\n  line 2, in the program: let y = = 2"},
		{"javascript", "console.log('before')\nawait tools.probe.fail()", "ToolError: tool_error: it did not work\n  line 2, in the program: await tools.probe.fail()"},
		{"javascript", "throw 'a text'", "string: a text"},
	} {
		o := w.run(c.language, c.code)
		if o.err == nil || o.err.Code != tool.CodeToolError || o.err.Message != c.want {
			t.Errorf("%s: %v, want %s", c.code, o.err, c.want)
		}
		if strings.Contains(c.code, "before") && (o.Stdout != "before\n" || !strings.Contains(string(o.err.Details), `"stdout":"before\n"`)) {
			t.Errorf("%s: what it printed is lost: %+v", c.code, o)
		}
	}
}

func TestTopLevelNamesAreThoseOfAModule(t *testing.T) {
	w := newWorld(t, "{}")
	w.want("python", `
from __future__ import annotations
import asyncio, json
from dataclasses import dataclass
count: int = 0
later: str

@dataclass
class Point:
    x: int

def inc(n: int = 2):
    global count
    count += n
    return helper()

def helper():
    return count

for i in range(3):
    inc()
async with asyncio.timeout(5) if hasattr(asyncio, "timeout") else asyncio.Lock():
    pass
squares = [i * i async for i in agen()] if False else [i * i for i in range(3)]
return [count, Point(3), squares, {"b", "a"}]`, []any{6, map[string]any{"x": 3}, []any{0, 1, 4}, []any{"a", "b"}})
	w.want("javascript", `
const { createHash } = require('node:crypto')
const { basename } = await import('node:path')
return [createHash('sha256').update('x').digest('hex').length, basename('/a/b'), new Map([['a', new Set([1])]]), undefined]`,
		[]any{64, "b", map[string]any{"a": []any{1}}, nil})
	w.want("python", "import sys\nsys.exit(0)", nil)
	w.want("python", "", nil)
	w.want("javascript", "", nil)
}

func TestValuesWithoutJSONFormAreExplained(t *testing.T) {
	w := newWorld(t, "{}")
	for _, c := range []struct{ language, code, want string }{
		{"python", "return object()", "the result has a value of type object"},
		{"python", "return float('nan')", "a number that is not finite"},
		{"python", `return "\ud800"`, "not valid Unicode"},
		{"python", "a = []\na.append(a)\nreturn a", "contains itself"},
		{"python", "return 'x' * 5_000_000", "the result is longer than"},
		{"python", "await tools.probe.who(x=object())", "the arguments of probe.who: the arguments have a value of type object"},
		{"python", "await tools.probe.who(1)", "by their names"},
		{"python", "await tools.probe.who(x='x' * 5_000_000)", "are longer than"},
		{"javascript", "return 1n", "a BigInt"},
		{"javascript", "return NaN", "a number that is not finite"},
		{"javascript", `return "\ud800"`, "not valid Unicode"},
		{"javascript", "const a = []; a.push(a); return a", "JSON"},
		{"javascript", "return 'x'.repeat(5000000)", "the result is longer than"},
		{"javascript", "await tools.probe.who(1)", "as one object"},
	} {
		if o := w.run(c.language, c.code); o.err == nil || !strings.Contains(o.err.Message, c.want) {
			t.Errorf("%s: %v, want %s", c.code, o.err, c.want)
		}
	}
	w.want("javascript", `return "\\ud800 is six letters \u{1F600}"`, `\ud800 is six letters 😀`)
}

func TestCancelEndsTheProgramAndItsCalls(t *testing.T) {
	w := newWorld(t, "{}")
	for language, code := range map[string]string{
		"python":     "import asyncio\nawait asyncio.gather(*(tools.probe.wait() for _ in range(5)))",
		"javascript": "await Promise.all([1, 2, 3, 4, 5].map(() => tools.probe.wait()))",
	} {
		w.probe.begun.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan outcome)
		go func() { done <- w.runAs(ctx, tool.Call{Caller: ada()}, language, code) }()
		kit.Eventually(t, "all of its calls run", func() bool { return w.probe.begun.Load() == 5 })
		cancel()
		o := <-done
		if o.err == nil || o.err.Code != tool.CodeCancelled || w.probe.running.Load() != 0 {
			t.Errorf("%s: %v, %d calls run on", language, o.err, w.probe.running.Load())
		}
		rows := w.rows(o.id)
		if len(rows) != 5 {
			t.Errorf("%s: %d rows", language, len(rows))
		}
		for _, r := range rows {
			kit.Equal(t, r.Code, string(tool.CodeCancelled), r)
		}
	}
	// A program that returns leaves no call running either.
	w.want("python", "tools.probe.wait()\nawait tools.probe.who()\nreturn 1", 1)
	kit.Eventually(t, "no call runs", func() bool { return w.probe.running.Load() == 0 })
}

func TestCallsWithinCallsEndAtTheGreatestDepth(t *testing.T) {
	w := newWorld(t, "{timeout: 4m}") // a busy machine starts interpreters slowly
	code := "return 'the bottom'"
	for range tool.MaxDepth {
		quoted, _ := json.Marshal(code)
		code = fmt.Sprintf("return (await tools.files.runCode(language='python', code=%s))['result']", quoted)
	}
	w.want("python", code, "the bottom")
	quoted, _ := json.Marshal(code)
	o := w.run("python", fmt.Sprintf("return (await tools.files.runCode(language='python', code=%s))['result']", quoted))
	if o.err == nil || !strings.Contains(o.err.Message, "calls deep") {
		t.Errorf("one more: %v, %v", o.Result, o.err)
	}
}

// The only worker runs a program that waits for another that it has called: if that one had to wait for the same worker,
// neither would end before its timeout.
func TestProgramsThatCallProgramsDoNotWaitForEachOther(t *testing.T) {
	w := newWorld(t, "{workers: 1, timeout: 40s}")
	done := make(chan outcome)
	for range 2 {
		go func() {
			done <- w.run("python", `return (await tools.files.runCode(language="python", code="return 1"))["result"]`)
		}()
	}
	for range 2 {
		if o := <-done; o.err != nil || o.Result != 1.0 {
			t.Errorf("%v, %v", o.Result, o.err)
		}
	}
}

func TestAPrintedFloodIsCutAndSaidToBe(t *testing.T) {
	w := newWorld(t, "{max_output: 1000}")
	for language, code := range map[string]string{
		"python":     "for i in range(100000): print('x' * 99)\nreturn 'done'",
		"javascript": "for (let i = 0; i < 100000; i++) console.log('x'.repeat(99))\nreturn 'done'",
	} {
		if o := w.run(language, code); o.err != nil || o.Result != "done" || len(o.Stdout) != 1000 || !o.Truncated {
			t.Errorf("%s: %v, %d bytes, %v", language, o.err, len(o.Stdout), o.Truncated)
		}
	}
}

func TestAProgramMakesOnlySoManyCalls(t *testing.T) {
	w := newWorld(t, "{max_calls: 10}")
	for language, code := range map[string]string{
		"python":     "n = 0\ntry:\n    while True:\n        await tools.probe.who()\n        n += 1\nexcept ToolError as e:\n    return [n, e.code, e.reason]",
		"javascript": "let n = 0\ntry { for (;;) { await tools.probe.who(); n++ } } catch (e) { return [n, e.code, e.reason] }",
	} {
		o := w.run(language, code)
		if got := fmt.Sprint(o.Result); got != "[10 quota_exceeded too_many_calls]" || len(w.rows(o.id)) != 10 {
			t.Errorf("%s: %s, %v, %d rows", language, got, o.err, len(w.rows(o.id)))
		}
	}
}

func TestALanguageWithoutItsInterpreterIsRefused(t *testing.T) {
	w := newWorld(t, "{node: /nowhere/node, python: python3}")
	o := w.run("javascript", "return 1")
	if o.err == nil || o.err.Code != tool.CodeUnavailable || !strings.Contains(o.err.Message, "/nowhere/node cannot be run; install it") {
		t.Errorf("%v", o.err)
	}
	w.want("python", "return 1", 1)
}

func TestRunOffLeavesTheToolsOut(t *testing.T) {
	w := newWorld(t, "off")
	for _, name := range []string{"runCode", "describe_tools", "code.run"} {
		kit.Refused(t, kit.Err(w.Catalog().Lookup(t.Context(), ada(), name)), tool.CodeNotFound, "", name)
	}
	kit.Check(t, kit.Err(w.Catalog().Lookup(t.Context(), ada(), "grepCode")))
}
