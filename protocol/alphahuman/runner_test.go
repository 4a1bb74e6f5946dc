package alphahuman

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"toolpost/config"
	"toolpost/host/container"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// contract(alphahuman): The runtime spawns `python3 skill.py` as a child process and communicates via stdin/stdout.
// contract(alphahuman): "runtime": {"type": "subprocess", "command": "python3", "args": ["skill.py"]}
// contract(alphahuman): Sent once after spawning. Return skill metadata and tool definitions.
// contract(alphahuman): SKILL.md          # Required: same format as TypeScript skills
// contract(alphahuman): manifest.json     # Required: runtime configuration
// contract(alphahuman): skill.py          # Required: JSON-RPC server implementation
func TestTheTemplateOfTheContractRunsAsItIsPrinted(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := open(t, Options{Skill: "testdata/contract"})
	specs, err := r.Tools(t.Context())
	if err != nil || len(specs) != 0 { // "tools": []
		t.Fatalf("got %v, %v", specs, err)
	}
	w := r.programs[0].Current().Own.(*speaker)
	if got := w.intro; w.second || got.Name != "my-skill" || got.Description != "Description" || got.Version != "1.0.0" {
		t.Errorf("it introduced itself as %+v", got)
	}
	raw, err := w.Ask(t.Context(), methodToolsCall, []byte(`{"name":"my_tool","arguments":{"input":"test"}}`), &scope{})
	if err != nil || string(raw) != `{"content": "ok"}` {
		t.Errorf("got %s, %v", raw, err)
	}
}

// contract(alphahuman): "name": "my_tool", "description": "Tool description", "parameters": {
// contract(alphahuman): "content": "Tool result text"
// contract(alphahuman): Execute a tool.
// contract(alphahuman): "name": "my_tool", "arguments": { "input": "hello" }
func TestASkillFromNewWorks(t *testing.T) {
	tooltest.NoLeaks(t)
	folder := kit.Must(Skills{}.New(t.TempDir(), "gas-cost"))(t)
	if found := (Skills{}).Check(folder); len(found) != 0 {
		t.Errorf("the template has findings: %v", found)
	}
	r, _ := open(t, Options{Skill: folder})
	specs := kit.Must(r.Tools(t.Context()))(t)
	want := []*tool.Spec{{
		Name: "greet", Description: "Greets somebody by name.",
		Input: json.RawMessage(`{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}`),
		Walls: "reads " + folder + "; changes nothing; network none; 512 MiB; 128 processes",
		Held:  tool.Guarantees{NoNetwork: true, NoEnvWrite: true, Sandbox: true},
	}}
	kit.Equal(t, cmp.Diff(want, specs, cmpopts.IgnoreFields(tool.Spec{}, "Room")), "")
	says(t, r, "greet", `{"name":"Ada"}`, `"Hello Ada"`)
	result, err := call(t, r, "greet", `{"name":""}`)
	if err != nil || result.OK || result.Failure.Message != "name is missing" {
		t.Errorf("got %+v, %v", result, err)
	}
}

// contract(alphahuman): `lifecycle/onLoad` | Skill loaded
// contract(alphahuman): `lifecycle/onSessionStart` | Session started (params: `{sessionId}`)
// contract(alphahuman): `lifecycle/onSessionEnd` | Session ended (params: `{sessionId}`)
// contract(alphahuman): `lifecycle/onTick` | Periodic tick
// contract(alphahuman): Clean shutdown. The skill should exit after responding.
func TestHooksComeInOrder(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, second := range []bool{false, true} {
		t.Run(fmt.Sprintf("second generation %v", second), func(t *testing.T) {
			t.Parallel()
			skill, names := "first", []string{"lifecycle/onLoad", "lifecycle/onSessionStart", "lifecycle/onTick", "lifecycle/onSessionEnd", "shutdown"}
			if second {
				skill, names = "second", []string{"skill/load", "skill/sessionStart", "skill/tick", "skill/sessionEnd", "skill/unload", "skill/shutdown"}
			}
			dir := filepath.Join(t.TempDir(), "sk")
			copySkill(t, skill, dir)
			kit.Write(t, filepath.Join(dir, manifestFile), `{"version":"2.1","runtime":"python","entry":"skill.py","tick_interval":1}`)
			file := filepath.Join(t.TempDir(), "hooks")
			o := Options{Skill: dir, Data: t.TempDir(), Options: spawn.Options{Env: map[string]string{"HOOKS": file}, Walls: walls.Options{Write: []string{filepath.Dir(file)}}}}
			r := kit.Must(NewRunner(".", o, (&records{}).logger()))(t)
			for range 2 {
				c := &tool.Call{Tool: "say", Session: "s1", Caller: tool.Principal{ID: "me"}}
				kit.Must(r.Invoke(t.Context(), c, tool.Discard))(t)
			}
			kit.Until(t, func() error { return contains(file, "ick") })
			kit.OK(t, r.Close(t.Context()))
			checkHooks(t, file, names, r)
		})
	}
}

func contains(file, words string) error {
	b, err := os.ReadFile(file)
	if err == nil && !strings.Contains(string(b), words) {
		err = fmt.Errorf("%s is not in %s", words, b)
	}
	return err
}

func checkHooks(t *testing.T, file string, want []string, r *Runner) {
	t.Helper()
	b := kit.Must(os.ReadFile(file))(t)
	var got []string
	for l := range strings.Lines(string(b)) {
		var told []json.RawMessage
		kit.OK(t, json.Unmarshal([]byte(l), &told))
		method := jsonrpc.Text(told[0])
		if len(got) == 0 || got[len(got)-1] != method { // more than one tick may have come
			got = append(got, method)
		}
		params := strings.ReplaceAll(string(told[1]), " ", "")
		switch wanted := `{}`; {
		case strings.Contains(method, "ession"):
			wanted = `{"sessionId":"s1"}`
			fallthrough
		case method != methodLoad:
			kit.Equal(t, params, wanted, "%s has the params", method)
		case !strings.Contains(params, `"dataDir":"`+r.programs[0].data.dir+`"`) || !strings.Contains(params, `"version":"2.1"`):
			t.Errorf("%s has the params %s", method, params)
		}
	}
	kit.Equal(t, cmp.Diff(want, got), "")
}

// contract(alphahuman): Both sides number from 1: keep two id spaces.
// contract(alphahuman): Reverse calls interleave with replies.
// contract(alphahuman): `state/get|set`, `data/read|write`, `intelligence/emitEvent`, `entities/upsert|search`
func TestASkillMayAskItsHost(t *testing.T) {
	tooltest.NoLeaks(t)
	data := t.TempDir()
	r, _ := open(t, Options{Skill: "testdata/second", Data: data})
	for _, c := range []struct{ method, params, want string }{
		{"state/get", `null`, `{"state": {}}`},
		{"state/set", `{"partial":{"a":{"b":1.50},"gone":1}}`, `{"ok": true}`},
		{"state/set", `{"partial":{"a":{"c":2},"gone":null}}`, `{"ok": true}`},
		{"state/get", `{}`, `{"state": {"a": {"c": 2}, "gone": null}}`},
		{"data/read", `{"filename":"a.txt"}`, `{"content": ""}`},
		{"data/write", `{"filename":"a.txt","content":"größe\n"}`, `{"ok": true}`},
		{"data/read", `{"filename":"a.txt"}`, `{"content": "gr\u00f6\u00dfe\n"}`},
		{"intelligence/emitEvent", `{"eventType":"alert","data":[1]}`, `{"ok": true}`},
		{"entities/upsert", `{"type":"chat","source":"tg","sourceId":"7","title":"Family","metadata":{"n":1}}`, `{"ok": true}`},
		{"entities/upsert", `{"id":"e2","type":"user","source":"tg","summary":"the familiar one"}`, `{"ok": true}`},
		{"entities/search", `{"query":"FAMIL","types":["chat"],"limit":5}`, `{"results": [{"id": "tg:chat:7", "type": "chat", "source": "tg", "sourceId": "7", "title": "Family", "metadata": {"n": 1}}]}`},
		{"entities/search", `{"query":"nobody"}`, `{"results": []}`},
	} {
		want, _ := json.Marshal(c.want)
		says(t, r, "ask", fmt.Sprintf(`{"method":%q,"params":%s}`, c.method, c.params), string(want))
	}
	kit.Equal(t, string(kit.Must(os.ReadFile(filepath.Join(data, "second", "a.txt")))(t)), "größe\n")
}

func TestBadQuestionsOfASkillAreAnsweredWithErrors(t *testing.T) {
	tooltest.NoLeaks(t)
	outside := filepath.Join(t.TempDir(), "outside")
	kit.Write(t, outside, "secret")
	data := t.TempDir()
	kit.OK(t, os.MkdirAll(filepath.Join(data, "second"), 0o755))
	kit.OK(t, os.Symlink(outside, filepath.Join(data, "second", "link")))
	r, _ := open(t, Options{Skill: "testdata/second", Data: data})
	for _, c := range []struct{ method, params, words string }{
		{"nobody/knows", `{}`, "Method not found: nobody/knows"},
		{"state/set", `{}`, "partial must be an object"},
		{"state/set", `{"partial":[]}`, "partial must be an object"},
		{"state/set", `[]`, "params must be an object, not array"},
		{"data/read", `{"filename":"link"}`, "path escapes"},
		{"data/read", `{"filename":7}`, "params"},
		{"data/write", `{"filename":"big","content":"` + strings.Repeat("x", maxDataFile+1) + `"}`, "at the most"},
		{"intelligence/emitEvent", `{}`, "eventType"},
		{"entities/upsert", `{"type":"x"}`, "needs type and source"},
		{"entities/search", `{"types":"x"}`, "params"},
	} {
		result, err := call(t, r, "ask", fmt.Sprintf(`{"method":%q,"params":%s}`, c.method, c.params))
		if err != nil || result.OK || !strings.Contains(result.Failure.Message, c.words) {
			t.Errorf("%s %.60s: got %+v, %v", c.method, c.params, result, err)
		}
	}
	if b, _ := os.ReadFile(outside); string(b) != "secret" {
		t.Errorf("a file outside is now %q", b)
	}
}

// contract(alphahuman): `data/*` take plain file names.
func TestTheFilesOfASkillHavePlainNames(t *testing.T) {
	tooltest.NoLeaks(t)
	data := t.TempDir()
	kit.Write(t, filepath.Join(data, "second", "notes", "a.txt"), "from a time when folders were taken")
	r, _ := open(t, Options{Skill: "testdata/second", Data: data})
	for _, name := range []string{
		"", ".", "..", "/x", "../x", "../../x", "notes/a.txt", "./x", "x/", "x/.", "notes", `..\x`, `a\b`, "a\x00b", "a\nb", strings.Repeat("x", 256),
	} {
		for _, method := range []string{"data/read", "data/write"} {
			args, err := json.Marshal(map[string]any{"method": method, "params": map[string]any{"filename": name, "content": "y"}})
			kit.OK(t, err)
			result, err := call(t, r, "ask", string(args))
			if err != nil || result.OK || !strings.Contains(result.Failure.Message, "filename") {
				t.Errorf("%s %q: got %+v, %v", method, name, result, err)
			}
		}
	}
	for _, name := range []string{".hidden", "größe.txt", "a b", "...", strings.Repeat("y", 250)} {
		args, _ := json.Marshal(map[string]any{"method": "data/write", "params": map[string]any{"filename": name, "content": name}})
		says(t, r, "ask", string(args), `"{\"ok\": true}"`)
	}
	files, err := os.ReadDir(filepath.Join(data, "second"))
	if err != nil || len(files) != 6 {
		t.Errorf("%v, %v", files, err)
	}
}

// contract(alphahuman): `state/set` merges one level deep, both ways.
func TestTheStateOfASessionIsTheSkillsOwnPart(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := open(t, Options{Skill: "testdata/second"})
	state := `{"other":1,"skills":{"second":{"mine":{"a":1,"b":{"c":1}},"list":[1,2],"kept":{"x":1}},"first":{"theirs":2}}}`
	ask := func(session, args string) (string, []tool.Event) {
		t.Helper()
		var got tooltest.Collect
		result, err := r.Invoke(t.Context(), &tool.Call{Tool: "ask", Session: session, State: json.RawMessage(state), Args: json.RawMessage(args)}, &got)
		if err != nil || !result.OK {
			t.Fatalf("got %+v, %v", result, err)
		}
		return jsonrpc.Text(result.Output), got.Events()
	}
	const get = `{"method":"state/get"}`
	if got, _ := ask("s", get); got != `{"state": {"kept": {"x": 1}, "list": [1, 2], "mine": {"a": 1, "b": {"c": 1}}}}` {
		t.Errorf("got %s", got)
	}
	for partial, want := range map[string]string{ // the expected state of the session, which merges at every depth
		`{"mine":{"b":{"d":2}}}`: `{"kept":{"x":1},"list":[1,2],"mine":{"b":{"d":2}}}`,
		`{"mine":{}}`:            `{"kept":{"x":1},"list":[1,2],"mine":{}}`,
		`{"mine":7,"new":{}}`:    `{"kept":{"x":1},"list":[1,2],"mine":7,"new":{}}`,
		`{"mine":null}`:          `{"kept":{"x":1},"list":[1,2]}`,
		`{"list":[{"a":null}]}`:  `{"kept":{"x":1},"list":[{"a":null}],"mine":{"a":1,"b":{"c":1}}}`,
	} {
		_, events := ask("s", `{"method":"state/set","params":{"partial":`+partial+`}}`)
		if len(events) != 1 || events[0].Kind != tool.KindStatePatch {
			t.Fatalf("%s: %+v", partial, events)
		}
		merged := strictjson.Merge(decoded(t, state), decoded(t, string(events[0].Data)))
		skills := merged["skills"].(map[string]any)
		if got, _ := json.Marshal(skills["second"]); string(got) != want {
			t.Errorf("%s gives %s by %s", partial, got, events[0].Data)
		}
		if got, _ := json.Marshal([]any{merged["other"], skills["first"]}); string(got) != `[1,{"theirs":2}]` {
			t.Errorf("%s changes what is not the skill's: %s", partial, got)
		}
	}
	if _, events := ask("s", `{"method":"state/set","params":{"partial":{"kept":{"x":1}}}}`); len(events) != 0 {
		t.Errorf("nothing was changed, but there is %v", events)
	}
	if got, _ := ask("", get); got != `{"state": {}}` {
		t.Errorf("outside of the session the skill sees %s", got)
	}
}

func decoded(t *testing.T, doc string) map[string]any {
	t.Helper()
	return kit.Must(strictjson.Decode([]byte(doc)))(t).(map[string]any)
}

func TestEventsOfASkillAreEventsOfTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := open(t, Options{Skill: "testdata/second"})
	for _, c := range []struct{ params, kind, data string }{
		{`{"eventType":"log","data":{"message":"m"}}`, "log", `{"level":"info","message":"m"}`},
		{`{"eventType":"progress","data":{"progress":1,"total":2}}`, "progress", `{"progress": 1, "total": 2}`},
		{`{"eventType":"log","data":7}`, "ui_event", `{"event":"log","payload":7}`},
		{`{"eventType":"price_alert","data":{"p":1}}`, "ui_event", `{"event":"price_alert","payload":{"p":1}}`},
		{`{"eventType":"bare"}`, "ui_event", `{"event":"bare"}`},
	} {
		var got tooltest.Collect
		args := json.RawMessage(`{"method":"intelligence/emitEvent","params":` + c.params + `}`)
		kit.Must(r.Invoke(t.Context(), &tool.Call{Tool: "ask", Args: args}, &got))(t)
		events := got.Events()
		if len(events) != 1 || string(events[0].Kind) != c.kind || string(events[0].Data) != c.data {
			t.Errorf("%s: got %s", c.params, fmt.Sprint(events))
		}
	}
}

// Patches that a skill sends without waiting for the answers all arrive before the outcome.
func TestRequestsBeforeTheAnswerAreServedFirst(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := open(t, Options{Skill: "testdata/second"})
	var got tooltest.Collect
	c := &tool.Call{Tool: "burst", Session: "s", Args: json.RawMessage(`{"count":50}`)}
	if _, err := r.Invoke(t.Context(), c, &got); err != nil || len(got.Events()) != 50 {
		t.Errorf("%d events, %v", len(got.Events()), err)
	}
}

// contract(alphahuman): A tool's own failure is a result with `isError:true` (absent on success)
// contract(alphahuman): `content` is a string (v1) or a list of blocks (v2)
func TestContentBecomesOutput(t *testing.T) {
	for result, want := range map[string]string{
		`{"content":"Tool result text"}`:                                      `"Tool result text"`,
		`{"content":""}`:                                                      `""`,
		`{"content":"{\"a\":1}"}`:                                             `"{\"a\":1}"`,
		`{"content":"x","isError":false}`:                                     `"x"`,
		`{"content":[{"type":"text","text":"a\nb"}]}`:                         `"a\nb"`,
		`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`: `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`,
		`{"content":[{"type":"image","data":"eA==","mimeType":"image/png"}]}`: `[{"type":"image","data":"eA==","mimeType":"image/png"}]`,
		`{"content":[]}`:                                                      `[]`,
		`{"content":{"n":1.50}}`:                                              `{"n":1.50}`,
		`{"content":"{}","structuredContent":{"n":1.50}}`:                     `{"n":1.50}`,
		`{"content":"null","structuredContent":null}`:                         `null`,
		`{"content":"words","structuredContent":null}`:                        `"words"`,
	} {
		r, err := decodeResult([]byte(result))
		if err != nil || !r.OK || string(r.Output) != want {
			t.Errorf("%s: got %+v, %v", result, r, err)
		}
	}
	for result, want := range map[string]string{
		`{"content":"no","isError":true}`: "no",
		`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"isError":true}`: "a\nb",
		`{"content":[{"type":"image"}],"isError":true}`:                                      `[{"type":"image"}]`,
		`{"content":"","isError":true}`:                                                      "the tool failed and did not say why",
	} {
		r, err := decodeResult([]byte(result))
		if err != nil || r.OK || r.Failure.Code != tool.CodeToolError || r.Failure.Message != want {
			t.Errorf("%s: got %+v, %v", result, r, err)
		}
	}
	for _, result := range []string{`{}`, `[]`, `"x"`, `null`, `{"isError":true}`, `{"content":"x","isError":"yes"}`, `{"content":"x","isError":1}`} {
		kit.Fails(t, kit.Err(decodeResult([]byte(result))), "", "%s passes", result)
	}
}

func TestResultsSurviveDoorAndRunner(t *testing.T) {
	for _, r := range []*tool.Result{
		{OK: true, Output: json.RawMessage(`{"a":[1.50,{"é":null}]}`), Summary: "s"},
		{OK: true, Output: json.RawMessage(`"text"`)}, {OK: true, Output: json.RawMessage(`null`)}, {OK: true, Output: json.RawMessage(`""`)},
		{OK: true, Output: json.RawMessage(`[]`)}, {OK: true, Output: json.RawMessage(`{}`)}, {OK: true, Output: json.RawMessage(`0.10`)},
		{OK: true, Output: json.RawMessage(`"null"`)}, {OK: true, Output: json.RawMessage(`[{"type":"text","text":"a"}]`)},
		{Failure: &tool.Error{Code: tool.CodeToolError, Reason: "ValueError", Message: "no such torch", Details: json.RawMessage(`{"n":1}`)}},
	} {
		for _, blocks := range []bool{false, true} {
			b := kit.Must(encodeResult(r, blocks))(t)
			got, err := decodeResult(b)
			if d := cmp.Diff(r, got); err != nil || d != "" {
				t.Errorf("%s: %v %s", b, err, d)
			}
		}
	}
}

// contract(alphahuman): "error": { "code": -32601, "message": "Method not found" }
func TestEveryClassOfErrorsSurvivesDoorAndRunner(t *testing.T) {
	for _, code := range tool.Codes() {
		e := &tool.Error{Code: code, Reason: "because", Message: "words", Details: json.RawMessage(`{"a":1}`)}
		var scan strictjson.Scanner
		m := kit.Must(jsonrpc.Decode(&scan, jsonrpc.EncodeReply([]byte("1"), nil, toRPC(e))))(t)
		result, err := outcome(m.Failure(), "t")
		if code == tool.CodeToolError {
			if err != nil || result.OK || result.Failure.Message != "words" {
				t.Errorf("%s: got %+v, %v", code, result, err)
			}
			continue
		}
		kit.Equal(t, cmp.Diff(e, err), "", code)
	}
	for code, want := range map[int]tool.Code{
		-32601: tool.CodeNotFound, -32602: tool.CodeInvalidInput, -32700: tool.CodeProtocol, -32600: tool.CodeProtocol,
	} {
		kit.Refused(t, kit.Err(outcome(jsonrpc.Errorf(code, "words"), "t")), want, "", code)
	}
	for _, code := range []int{-32603, -32000, 1, 0} {
		if r, err := outcome(jsonrpc.Errorf(code, "boom"), "t"); err != nil || r.OK || r.Failure.Message != "boom" {
			t.Errorf("%d: got %+v, %v", code, r, err)
		}
	}
}

// contract(alphahuman): the code of a skill's error is kept, -32601 included.
//
// The code of a skill's error is kept, and the rest of it too: in the error, and by our door when a host calls it.
func TestTheCodeOfASkillsErrorIsKept(t *testing.T) {
	for _, code := range []int{-32601, -32602, -32700, -32600, -32603, -32050, -32000, 42, 0} {
		said := &jsonrpc.Error{Code: code, Message: "words", Data: json.RawMessage(`{"why":"so"}`)}
		want := fmt.Sprintf(`{"jsonrpc":{"code":%d,"message":"words","data":{"why":"so"}}}`, code)
		result, err := outcome(said, "t")
		failure := tool.AsError(err)
		if err == nil {
			failure = result.Failure
		}
		if failure.Reason != fmt.Sprint(code) || string(failure.Details) != want {
			t.Errorf("%d: %+v with %s", code, failure, failure.Details)
		}
		got := serve(t, shelf{"t": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return result, err }},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}`)
		if !strings.HasPrefix(got[0], fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":`, code)) ||
			!strings.Contains(got[0], want) {
			t.Errorf("%d: the door says %s", code, got)
		}
	}
	long := &jsonrpc.Error{Code: 1, Message: "words", Data: strictjson.Quote(strings.Repeat("x", 64<<10))}
	if r, err := outcome(long, "t"); err != nil || len(r.Failure.Details) > 100 {
		t.Errorf("%d bytes, %v", len(r.Failure.Details), err)
	}
}

func TestAThousandCallsAtOnceGetTheirOwnAnswers(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, skill := range []string{"first", "second"} {
		t.Run(skill, func(t *testing.T) {
			r, _ := open(t, Options{Skill: "testdata/" + skill})
			var all sync.WaitGroup
			for n := range 1000 {
				all.Go(func() { says(t, r, "say", fmt.Sprintf(`{"text":"call %d"}`, n), fmt.Sprintf(`"call %d"`, n)) })
			}
			all.Wait()
		})
	}
}

func TestConcurrencyOneGivesASkillOneCallAtATime(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "threads", Options{Concurrency: 1})
	w := r.current(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			says(t, r, "ok", fmt.Sprintf(`{"sleep":0.02,"n":%d}`, n), fmt.Sprintf(`"answer to {\"sleep\": 0.02, \"n\": %d}"`, n))
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for {
		if calls := w.Pending(); calls > 1 {
			t.Errorf("%d calls at once", calls)
		}
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// contract(alphahuman): Tool ids of a skill are `<skill>__<tool>` where two would clash.
func TestToolsThatClashArePrefixedWithTheirSkill(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	copySkill(t, "first", filepath.Join(dir, "a"))
	copySkill(t, "second", filepath.Join(dir, "b"))
	r, _ := open(t, Options{Skills: dir})
	specs := kit.Must(r.Tools(t.Context()))(t)
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	want := []string{
		"ask", "blocks", "burst", "env", "events", "first__crash", "first__echo", "first__fail", "first__hang", "first__hooks", "first__say",
		"flood", "pid", "second__crash", "second__echo", "second__fail", "second__hang", "second__hooks", "second__say", "spawn", "try",
	}
	kit.Equal(t, cmp.Diff(want, names), "")
	says(t, r, "first__say", `{"text":"x"}`, `"x"`)
	says(t, r, "second__say", `{"text":"y"}`, `"y"`)
	if string(specs[0].Input) == "" || slices.ContainsFunc(specs, func(s *tool.Spec) bool { return strings.Contains(string(s.Input), "null") }) {
		t.Error(`"required": null is no schema and must be left out`)
	}
}

func TestASkillThatDoesNotStartHarmsNoOther(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	copySkill(t, "first", filepath.Join(dir, "good"))
	copySkill(t, "hostile", filepath.Join(dir, "bad"))
	kit.Write(t, filepath.Join(dir, "worse", manifestFile), `{"runtime":"quickjs"}`)
	kit.Write(t, filepath.Join(dir, "no-skill", "readme.txt"), ``)
	r, _ := open(t, Options{Skills: dir, Options: spawn.Options{Env: map[string]string{"MODE": "crashes on start"}}})
	kit.Must(r.Tools(t.Context()))(t)
	says(t, r, "say", `{"text":"x"}`, `"x"`)
	refused(t, r.Unavailable("hostile"), tool.CodeCrash, "hostile crashed", "exit status 1", "cannot find my files")
	refused(t, r.Unavailable("worse"), tool.CodeInvalidInput, manifestFile, "field runtime", "quickjs")
	kit.Check(t, r.Unavailable("say"))
	_, err := call(t, r, "hostile", `{}`)
	refused(t, err, tool.CodeCrash, "hostile crashed")
}

func TestGuaranteesHold(t *testing.T) {
	tooltest.NoLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.OK(t, err)
	defer l.Close()
	dir := t.TempDir()
	args := fmt.Sprintf(`{"port":%d,"file":%q}`, l.Addr().(*net.TCPAddr).Port, filepath.Join(dir, "made"))
	for name, c := range map[string]struct {
		o        Options
		could    string
		attempts int
	}{
		"nothing is asked for": {Options{Options: spawn.Options{Walls: walls.Options{Write: []string{dir}}}}, `["write", "run"]`, 1},
		"the default":          {Options{}, `["run"]`, 1}, // the folder is not visible at all
		"the walls are off":    {Options{Options: spawn.Options{Walls: walls.Options{Off: true}}}, `["write", "connect", "run"]`, 0},
		"all is forbidden": {Options{
			Options: spawn.Options{Walls: walls.Options{Write: []string{dir}, Network: walls.Network{"all"}}, Guarantees: tool.Guarantees{NoNetwork: true, NoFilesystemWrite: true, NoSubprocess: true}},
		}, `[]`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Skill = "testdata/first"
			r, _ := open(t, c.o)
			var seen tooltest.Collect
			result, err := r.Invoke(t.Context(), &tool.Call{Tool: "try", Args: json.RawMessage(args)}, &seen)
			if err != nil || jsonrpc.Text(result.Output) != c.could {
				t.Fatalf("%+v, %v", result, err)
			}
			attempts := slices.DeleteFunc(seen.Events(), func(e tool.Event) bool { return !strings.Contains(string(e.Data), `"type":"capability_check"`) })
			if len(attempts) != c.attempts {
				t.Errorf("%d attempts were seen: %v", len(attempts), seen.Logs())
			}
			if level := result.Trace.Details["enforcement_level"]; (level == "none") != c.o.Walls.Off {
				t.Errorf("enforcement_level is %v", level)
			}
		})
	}
	r, _ := open(t, Options{Skill: "testdata/first"})
	one := &tool.Call{Tool: "say", Spec: &tool.Spec{Guarantees: tool.Guarantees{NoSubprocess: true}}}
	_, err = r.Invoke(t.Context(), one, tool.Discard)
	refused(t, err, tool.CodeUnsupported, "no_subprocess", "the guarantees of its source")
	kit.Equal(t, tool.AsError(err).Reason, "coverage_missing", "the reason is")
}

// contract(alphahuman): also `env` (names passed through)
func TestASkillSeesOnlyItsOwnEnvironment(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, value := range map[string]string{"SECRET_OF_OTHERS": "x", "MODE": "m", "PASSED": "p", "PATH": os.Getenv("PATH"), "HOME": "/", "LANG": "C", "TMPDIR": os.TempDir()} {
		t.Setenv(name, value)
	}
	r, _ := open(t, Options{Skill: "testdata/first", Options: spawn.Options{Env: map[string]string{"GIVEN": "g"}, PassEnv: []string{"PASSED"}}})
	result := kit.Must(call(t, r, "env", `{}`))(t)
	var names []string
	kit.OK(t, json.Unmarshal([]byte(jsonrpc.Text(result.Output)), &names))
	kit.Equal(t, cmp.Diff([]string{"GIVEN", "HOME", "LANG", "MODE", "PASSED", "PATH", "TMPDIR", "TOOLPOST_TREE"}, names), "")
}

func TestTwoCallersNeverShareASession(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := open(t, Options{Skill: "testdata/first"})
	for _, caller := range []string{"ada", "bob", "ada"} {
		kit.Must(r.Invoke(t.Context(), &tool.Call{Tool: "say", Session: "main", Caller: tool.Principal{ID: caller}}, tool.Discard))(t)
	}
	result := kit.Must(call(t, r, "hooks", `{}`))(t)
	said := jsonrpc.Text(result.Output)
	if strings.Count(said, "onSessionStart") != 2 || strings.Count(said, `"main"`) != 1 || strings.Count(said, `"main~`) != 1 {
		t.Errorf("the skill was told %s", said)
	}
}

func TestASessionEndsWhenItIsQuiet(t *testing.T) {
	tooltest.NoLeaks(t)
	file := filepath.Join(t.TempDir(), "hooks")
	r, _ := open(t, Options{Skill: "testdata/first", SessionIdle: config.Duration(50 * time.Millisecond), Options: spawn.Options{Env: map[string]string{"HOOKS": file}}})
	kit.Must(r.Invoke(t.Context(), &tool.Call{Tool: "say", Session: "main"}, tool.Discard))(t)
	kit.Until(t, func() error { return contains(file, `["lifecycle/onSessionEnd", {"sessionId": "main"}]`) })
}

// contract(alphahuman): `skill/load|unload|sessionStart|sessionEnd|beforeMessage|afterResponse|tick|status|shutdown`
func TestMessagesAndStatusOfTheSecondGeneration(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := open(t, Options{Skill: "testdata/second"})
	kit.Equal(t, r.BeforeMessage(t.Context(), "asleep"), "asleep", "a skill that does not run")
	kit.Must(r.Tools(t.Context()))(t)
	kit.Equal(t, r.BeforeMessage(t.Context(), "hello"), "HELLO", "skill/beforeMessage")
	kit.Equal(t, r.AfterResponse(t.Context(), "bye"), "bye", "skill/afterResponse")
	if got := r.Status(t.Context()); len(got) != 1 || string(got["second"]) != `{"state": "fine"}` {
		t.Errorf("skill/status gave %s", got)
	}
}

func TestStandardErrorIsTheLogOfTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := open(t, Options{Skill: "testdata/first"})
	var got tooltest.Collect
	_, err := r.Invoke(t.Context(), &tool.Call{Tool: "crash"}, &got)
	refused(t, err, tool.CodeCrash, "exit status 3", "out of luck")
	if logs := got.Logs(); len(logs) > 1 || len(logs) == 1 && logs[0] != "out of luck" {
		t.Errorf("got %q", logs)
	}
}

func TestSkillsMayBeWrittenInJavaScript(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("no node here")
	}
	tooltest.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "js")
	kit.Write(t, filepath.Join(dir, manifestFile), `{"name":"js","runtime":"node","entry":"index.js"}`)
	kit.Write(t, filepath.Join(dir, "index.js"), `
const lines = require("readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  let result = { ok: true };
  if (method === "initialize") result = { name: "js", description: "d", version: "1", tools: [{ name: "shout", parameters: {} }] };
  if (method === "tools/call") result = { content: params.arguments.text.toUpperCase() };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
  if (method === "shutdown") lines.close();
});
`)
	r, _ := open(t, Options{Skill: dir})
	says(t, r, "shout", `{"text":"größe"}`, `"GRÖSSE"`)
}

func TestOptionsAreChecked(t *testing.T) {
	for text, words := range map[string]string{
		`skills: a, skill: b`:                   "`skills`, a folder of skills, or `skill`",
		`timeout: 1s`:                           "`skills`, a folder of skills, or `skill`",
		`skill: no-such-folder`:                 "cannot be read",
		`skills: no-such-folder`:                "cannot be read",
		`skills: ., tier: 4`:                    "tier",
		`skills: ., generation: 3`:              "generation",
		`skills: ., concurrency: -1`:            "negative",
		`skills: ., env: {"a=b": c}`:            "environment variable",
		`skills: ., concurency: 1`:              "did you mean",
		`skills: ., guarantees: {no_net: true}`: "no_net",
	} {
		cfg, err := config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte("sources: [{name: sk, protocol: alphahuman, "+text+"}]"))
		kit.OK(t, err)
		_, err = Open(context.Background(), cfg.Sources[0], (&records{}).logger())
		kit.Fails(t, err, words, text)
	}
}

// Like every source of programs, this one has a folder in which its skills are found, and a container.
func TestSkillsAreFoundInDirAndRunInAContainer(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, o := range map[string]Options{
		"dir":         {Skill: "first", Options: spawn.Options{Dir: "testdata"}},
		"a container": {Skill: "testdata/first", Options: spawn.Options{Container: container.Options{Image: "/", Runtime: "sandbox"}}},
	} {
		r, _ := open(t, o)
		result, err := call(t, r, "echo", `{"text":"hello"}`)
		if err != nil || !strings.Contains(string(result.Output), "hello") {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
}

// What a skill keeps for one caller, no other one finds.
func TestEachCallerHasAFolderForData(t *testing.T) {
	for _, data := range []string{"", ", data: kept"} {
		text := "sources: [{name: sk, protocol: alphahuman, skills: s" + data + "}]"
		src := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t).Sources[0]
		plain := kit.Must(optionsOf(src))(t).Data
		folders := map[string]bool{}
		for _, caller := range []string{"", "ada", "bob", "bob"} {
			src.Injector = kit.Must(walls.NewInjector(nil, caller))(t)
			folders[kit.Must(optionsOf(src))(t).Data] = true
		}
		kit.Equal(t, len(folders), 3, folders)
		kit.Equal(t, folders[plain], true, "without a caller")
	}
}
