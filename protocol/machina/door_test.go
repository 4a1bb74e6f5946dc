package machina_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/machina"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// Our door and our runner, each tested against the other.
func TestDoorConforms(t *testing.T) {
	for _, mode := range []string{"run", "serve"} {
		t.Run(mode, func(t *testing.T) {
			tooltest.Run(t, tooltest.Subject{
				New:     func(t testing.TB) tool.Handler { return ours(t, machina.Options{Mode: mode}) },
				Without: tooltest.Events | map[string]tooltest.Features{"serve": tooltest.Crash}[mode],
			})
		})
	}
}

// Our door against a host written in Python from the contract alone.
func TestAPythonHostTalksToTheDoor(t *testing.T) {
	tooltest.NoLeaks(t)
	cmd := exec.CommandContext(kit.Context(t), "python3", "testdata/host.py", os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("all of it holds")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// serve sends lines to the door and returns its answers.
func serve(t *testing.T, from int, lines ...string) []map[string]any {
	t.Helper()
	return serveStack(t, newStack(&store.Leases{}, from), lines...)
}

func serveStack(t *testing.T, s *stack, lines ...string) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	d := &machina.Door{
		Mode: machina.Serve, Source: "tooltest", In: strings.NewReader(strings.Join(lines, "\n") + "\n"), Out: &out,
		Caller: tool.Principal{ID: "local", Door: "machina", Operates: true},
	}
	kit.OK(t, d.Serve(kit.Context(t), s, s))
	var answers []map[string]any
	for line := range strings.Lines(out.String()) {
		var m map[string]any
		kit.OK(t, json.Unmarshal([]byte(line), &m), line)
		answers = append(answers, m)
	}
	return answers
}

func ask(aid, input string, more ...string) string {
	b, _ := json.Marshal(input)
	return fmt.Sprintf(`{"aid":%q,"input_json":%s%s}`, aid, b, strings.Join(append([]string{""}, more...), ","))
}

const tooLong = `{"ok":false,"error":"invalid_input: the request is longer than 10485760 bytes, the most that a toolhost takes"}`

const nothing = `{"delta":true,"removed_slots":[],"slots":{}}`

// equal compares an answer with JSON.
func equal(t *testing.T, got map[string]any, want string) {
	t.Helper()
	var w map[string]any
	kit.OK(t, json.Unmarshal([]byte(want), &w))
	kit.Equal(t, cmp.Diff(w, got), "", want)
}

// contract(machina): | `ok` | bool | `true` on success |
// contract(machina): | `output_json` | string | JSON-encoded tool output |
// contract(machina): | `error` | string | Error message (empty on success) |
// contract(machina): | `ds_state` | object | State delta (serve mode) or full state (run mode) |
// contract(machina): | `input_json` | string | no | JSON-encoded tool input (default: `"{}"`) |
// contract(machina): Each line is one request:
// contract(machina): {"ok": false, "error": "tool not found: AID.XX"}
func TestServeAnswersEveryLine(t *testing.T) {
	lines := []string{
		ask("AID.TOOLTEST.ECHO.v1", `{"query":"test","k":"3"}`),
		ask("AID.TOOLTEST.FAIL.v1", `{"message":"no such torch"}`),
		`{"aid":"AID.TOOLTEST.ECHO.v1"}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","ds_state":null,"idempotency_key":null,"_lease_token":null}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","inputs":{"key":"value"}}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","input_json":""}`,
		`{"aid":"AID.EYE.LOOK.v2"}`,
		`not JSON`,
		`{"aid":"A","aid":"B"}`,
		`[]`,
		"{\"aid\":\"\xff\"}",
		`{}`,
		`{"aid":7}`,
		`{"aid":"AID.XX"}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","ds_state":7}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","ds_state":{"slots":{"x":{}}}}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","idempotency_key":7}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","_lease_token":{}}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","input_json":"` + strings.Repeat("x", 11<<20) + `"}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1"}` + "\r",
		"\r", "\r\r", `null`, ` null` + "\r",
		`{"aid":"AID.TOOLTEST.ECHO.v1","input_json":{"query":"test"}}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","inputs":"{}"}`,
		`{"aid":"AID.TOOLTEST.ECHO.v1","ds_state":{"delta":0}}`,
	}
	empty := `{"ok":true,"status":"OK","output_json":"{}","error":"","ds_state":` + nothing + `}`
	want := []string{
		`{"ok":true,"status":"OK","output_json":"{\"query\":\"test\",\"k\":\"3\"}","error":"","ds_state":` + nothing + `}`,
		`{"ok":false,"status":"TOOL_ERROR","output_json":"{}","error":"no such torch","ds_state":` + nothing + `}`,
		empty, empty,
		`{"ok":true,"status":"OK","output_json":"{\"key\":\"value\"}","error":"","ds_state":` + nothing + `}`,
		empty, empty,
		`{"ok":false,"error":"invalid JSON"}`, `{"ok":false,"error":"invalid JSON"}`, `{"ok":false,"error":"missing aid"}`, `{"ok":false,"error":"invalid JSON"}`,
		`{"ok":false,"error":"missing aid"}`, `{"ok":false,"error":"missing aid"}`,
		`{"ok":false,"error":"tool not found: AID.XX"}`,
		`{"ok":false,"error":"invalid ds_state"}`, `{"ok":false,"error":"invalid ds_state"}`,
		`{"ok":false,"error":"invalid idempotency_key"}`, `{"ok":false,"error":"invalid _lease_token"}`,
		tooLong,
		empty,
		`{"ok":false,"error":"invalid JSON"}`, `{"ok":false,"error":"invalid JSON"}`, `{"ok":false,"error":"invalid JSON"}`,
		`{"ok":false,"error":"invalid JSON"}`,
		`{"ok":false,"error":"invalid input_json"}`, `{"ok":false,"error":"invalid inputs"}`,
		empty,
	}
	got := serve(t, 0, lines...)
	kit.MustEqual(t, len(got), len(want), "answers")
	for i := range want {
		equal(t, got[i], want[i])
	}
}

func TestAnEmptyLineEndsServing(t *testing.T) {
	got := serve(t, 0, ask("AID.TOOLTEST.ECHO.v1", `{}`), "", ask("AID.TOOLTEST.ECHO.v1", `{}`))
	kit.Equal(t, len(got), 1)
}

// contract(machina): | `ds_state` | object | no | State snapshot or delta (`"delta": true`) |
// contract(machina): | `ds_state` | object? | Optional DSState snapshot |
func TestStateInServeMode(t *testing.T) {
	slot := func(s string) string {
		return fmt.Sprintf(`{"type":"note","provenance":"host","content_json":%q,"size_bytes":%d}`, s, len(s))
	}
	note := func(input, state string) string {
		return ask("AID.TOOLTEST.NOTE.v1", input, `"ds_state":`+state)
	}
	got := serve(t, 0,
		note(`{}`, `{"slots":{"1":`+slot(`"a"`)+`,"2":`+slot(`"b"`)+`}}`),              // the whole state
		note(`{}`, `{"delta":true,"slots":{"3":`+slot(`"c"`)+`},"removed_slots":[1]}`), // added, then dropped
		note(`{}`, `null`), // unchanged
		note(`{}`, `{"delta":true,"slots":{"2":`+slot(`"B"`)+`},"removed_slots":["2"]}`), // dropping is last
		note(`{"slots":{"4":`+slot(`"d"`)+`,"3":null}}`, `{"delta":true}`),
		note(`{"torch":{"lit":true}}`, `{"delta":true}`), // not about slots
		note(`{}`, `{"delta":true}`),
		note(`{"torch":null}`, `{"delta":true}`),
		note(`{}`, `{"slots":{}}`), // everything is replaced
	)
	saw := func(i int) string { s, _ := got[i]["output_json"].(string); return s }
	told := func(i int) string { b, _ := json.Marshal(got[i]["ds_state"]); return string(b) }
	keys := func(doc string) string {
		var d struct{ Slots map[string]any }
		_ = json.Unmarshal([]byte(doc), &d)
		return strings.Join(slices.Sorted(maps.Keys(d.Slots)), ",")
	}
	for i, want := range []string{"1,2", "2,3", "2,3", "3", "3", "4", "4", "4", ""} {
		kit.Equal(t, keys(saw(i)), want, "call %d saw %s, want slots", i, saw(i))
	}
	for i, want := range map[int]string{
		0: nothing, 1: nothing, 2: nothing, 3: nothing, 6: nothing, 8: nothing,
		4: `{"delta":true,"removed_slots":[3],"slots":{"4":` + sortedJSON(slot(`"d"`)) + `}}`,
		5: `{"delta":true,"removed_slots":[],"slots":{"255":{"content_json":"{\"torch\":{\"lit\":true}}","provenance":"toolpost","size_bytes":22,"type":"toolpost.state"}}}`,
		7: `{"delta":true,"removed_slots":[255],"slots":{}}`,
	} {
		kit.Equal(t, told(i), want, "call %d told", i)
	}
	kit.Contains(t, saw(6), `"torch":{"lit":true}`, "the tool does not see its own state")
}

func sortedJSON(doc string) string {
	var v any
	_ = json.Unmarshal([]byte(doc), &v)
	b, _ := json.Marshal(v)
	return string(b)
}

func TestTheStateIsBounded(t *testing.T) {
	large := func(n string) string {
		return ask("AID.TOOLTEST.NOTE.v1", `{}`, `"ds_state":{"delta":true,"slots":{"`+n+`":{"content_json":"`+strings.Repeat("x", 9<<20)+`"}}}`)
	}
	got := serve(t, 0, large("1"), large("2"), ask("AID.TOOLTEST.NOTE.v1", `{}`))
	if got[0]["ok"] != true || got[1]["error"] != "invalid ds_state" || got[2]["ok"] != true {
		t.Errorf("%.100v, %.100v, %.100v", got[0], got[1], got[2])
	}
}

// The changes of a failed tool remain, and its host takes them over. A call without an outcome, or with a question, has
// changed nothing.
func TestTheStateAfterACallThatFailed(t *testing.T) {
	s := newStack(&store.Leases{}, 0)
	inner := s.next
	s.next = tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		r, err := inner.Invoke(ctx, c, out)
		var args struct{ End string }
		if c.Tool == "note" && json.Unmarshal(c.Args, &args) == nil && args.End != "" {
			switch args.End {
			case "fails":
				return tool.Failed("", "no"), nil
			case "asks":
				return &tool.Result{Ask: &tool.Ask{ID: "q", Message: "really?"}}, nil
			}
			return nil, tool.Errorf(tool.Code(args.End), "no")
		}
		return r, err
	})
	note := func(end, n string) string {
		return ask("AID.TOOLTEST.NOTE.v1", `{"end":"`+end+`","slots":{"`+n+`":{"type":"a"}}}`)
	}
	got := serveStack(t, s, note("crash", "1"), note("timeout", "2"), note("asks", "3"), note("fails", "4"), ask("AID.TOOLTEST.NOTE.v1", `{}`))
	for i := range 3 {
		equal(t, map[string]any{"ds_state": got[i]["ds_state"]}, `{"ds_state":`+nothing+`}`)
	}
	if got[3]["status"] != "TOOL_ERROR" || got[3]["ok"] != false {
		t.Errorf("%v", got[3])
	}
	rest := `{"content_json":"{\"end\":\"fails\"}","provenance":"toolpost","size_bytes":15,"type":"toolpost.state"}`
	equal(t, map[string]any{"ds_state": got[3]["ds_state"]}, `{"ds_state":{"delta":true,"removed_slots":[],"slots":{"4":{"type":"a"},"255":`+rest+`}}}`)
	if saw, _ := got[4]["output_json"].(string); sortedJSON(saw) != `{"end":"fails","slots":{"4":{"type":"a"}}}` {
		t.Errorf("the next call saw %s", saw)
	}
}

// contract(machina): | `idempotent_hit` | bool? | `true` if result was served from cache |
func TestIdempotencyInServeMode(t *testing.T) {
	key := `"idempotency_key":"req-abc-123"`
	got := serve(t, 1,
		ask("AID.TOOLTEST.COUNT.v1", `{"a":1}`, key),
		ask("AID.TOOLTEST.COUNT.v1", `{ "a":1 }`, key, `"ds_state":{"slots":{"1":{}}}`),
		ask("AID.TOOLTEST.COUNT.v1", `{"a":2}`, key),
		ask("AID.TOOLTEST.COUNT.v1", `{"a":1}`, `"idempotency_key":"other"`),
		ask("AID.TOOLTEST.FAIL.v1", `{"message":"no"}`, key),
		ask("AID.TOOLTEST.FAIL.v1", `{"message":"no"}`, key),
		ask("AID.TOOLTEST.SHELL.v1", `{}`, key), // a refusal is not remembered
		ask("AID.TOOLTEST.SHELL.v1", `{}`, key),
	)
	equal(t, got[0], `{"ok":true,"status":"OK","output_json":"{\"runs\":1}","error":"","ds_state":`+nothing+`}`)
	equal(t, got[1], `{"ok":true,"status":"OK","output_json":"{\"runs\":1}","error":"","idempotent_hit":true,"ds_state":`+nothing+`}`)
	equal(t, got[2], `{"ok":false,"error":"idempotency_conflict"}`)
	equal(t, got[3], `{"ok":true,"status":"OK","output_json":"{\"runs\":2}","error":"","ds_state":`+nothing+`}`)
	equal(t, got[5], `{"ok":false,"status":"TOOL_ERROR","output_json":"{}","error":"no","idempotent_hit":true,"ds_state":`+nothing+`}`)
	for _, i := range []int{6, 7} {
		equal(t, got[i], `{"ok":false,"error":"lease_required","tier":2,"aid":"AID.TOOLTEST.SHELL.v1"}`)
	}
}

// contract(machina): ### 4c. Lease-specific errors (serve mode, `MACHINA_LEASE_ENFORCE=1`)
func TestLeasesInServeMode(t *testing.T) {
	s := newStack(&store.Leases{}, 1)
	issued := serveStack(t, s,
		`{"aid":"_lease.issue","tool_aid":"AID.TOOLTEST.SHELL.v1","tier":2,"ttl_ms":5000}`,
		`{"aid":"_lease.issue","input_json":"{\"tool_aid\":\"*\",\"tier\":1,\"ttl_ms\":999999999}"}`,
		`{"aid":"_lease.issue","tool_aid":"AID.XX"}`,
		`{"aid":"_lease.issue","tool_aid":7}`,
		`{"aid":"_lease.issue","tool_aid":"*","tier":9}`,
		`{"aid":"_lease.issue","tool_aid":"AID.TOOLTEST.NOTE.v1"}`,
	)
	shell, _ := issued[0]["token_id"].(string)
	any, _ := issued[1]["token_id"].(string)
	equal(t, issued[0], `{"ok":true,"token_id":"`+shell+`","tool_aid":"AID.TOOLTEST.SHELL.v1","tier":2}`)
	equal(t, issued[1], `{"ok":true,"token_id":"`+any+`","tool_aid":"*","tier":1}`)
	equal(t, issued[2], `{"ok":false,"error":"tool not found: AID.XX"}`)
	for _, i := range []int{3, 4} {
		if issued[i]["ok"] != false || issued[i]["status"] != nil {
			t.Errorf("%v", issued[i])
		}
	}
	if issued[5]["tier"] != 1.0 {
		t.Errorf("the tool's own tier is the default: %v", issued[5])
	}
	token := func(s string) string { return `"_lease_token":"` + s + `"` }
	got := serveStack(t, s,
		ask("AID.TOOLTEST.ECHO.v1", `{}`), // safe
		ask("AID.TOOLTEST.SHELL.v1", `{}`),
		ask("AID.TOOLTEST.SHELL.v1", `{}`, token("tok_unknown")),
		ask("AID.TOOLTEST.SHELL.v1", `{}`, token(any)),
		ask("AID.TOOLTEST.NOTE.v1", `{}`, token(shell)),
		ask("AID.TOOLTEST.SHELL.v1", `{}`, token(shell)),
		ask("AID.TOOLTEST.SHELL.v1", `{}`, token(shell)),
		`{"aid":"_lease.gc"}`,
	)
	if got[0]["ok"] != true || got[5]["ok"] != true {
		t.Errorf("%v, %v", got[0], got[5])
	}
	equal(t, got[1], `{"ok":false,"error":"lease_required","tier":2,"aid":"AID.TOOLTEST.SHELL.v1"}`)
	for i, reason := range map[int]string{2: "not_found", 3: "tier_too_low", 4: "tool_mismatch", 6: "already_consumed"} {
		equal(t, got[i], `{"ok":false,"error":"lease_rejected","reason":"`+reason+`"}`)
	}
	equal(t, got[7], `{"ok":true,"active":2,"issued":3,"consumed":1,"rejected":4}`)
}

// Every class of error has its answer: a status if the tool was reached, otherwise a refusal.
func TestEveryCodeHasItsAnswer(t *testing.T) {
	want := map[tool.Code]string{
		tool.CodeAccessDenied: "", tool.CodeInvalidInput: "", tool.CodeConflict: "", tool.CodeQuotaExceeded: "",
		tool.CodeLeaseRequired: "", tool.CodeLeaseRejected: "", tool.CodeUnavailable: "", tool.CodeUnsupported: "",
		tool.CodeBreakerOpen: "BREAKER_TRIP",
		tool.CodeNotFound:    "TOOL_ERROR", tool.CodeTimeout: "TOOL_ERROR", tool.CodeCancelled: "TOOL_ERROR", tool.CodeCrash: "TOOL_ERROR",
		tool.CodeProtocol: "TOOL_ERROR", tool.CodeInternal: "TOOL_ERROR", tool.CodeToolError: "TOOL_ERROR",
	}
	for _, code := range tool.Codes() {
		status, known := want[code]
		got := serve(t, 0, ask("AID.TOOLTEST.CODE.v1", fmt.Sprintf(`{"code":%q,"reason":"expired"}`, code)))[0]
		if !known || got["ok"] != false || status != "" && got["status"] != status || status == "" && got["status"] != nil {
			t.Errorf("%s: %v", code, got)
		}
		if status != "" && (got["output_json"] == nil || got["ds_state"] == nil) {
			t.Errorf("%s: a dispatched call carries status, output_json, error and ds_state: %v", code, got)
		}
		text, _ := got["error"].(string)
		if code != tool.CodeLeaseRequired && code != tool.CodeLeaseRejected && text != string(code)+": because" {
			t.Errorf("%s: %q", code, text)
		}
	}
	for reason, code := range map[string]string{"INVALID_PICK": "not_found", "BREAKER_TRIP": "breaker_open"} { // from a toolhost behind us
		got := serve(t, 0, ask("AID.TOOLTEST.CODE.v1", `{"code":"`+code+`","reason":"`+reason+`"}`))[0]
		equal(t, got, `{"ok":false,"status":"`+reason+`","output_json":"{}","error":"because","ds_state":`+nothing+`}`)
	}
	got := serve(t, 0, ask("AID.TOOLTEST.CODE.v1", `{"ask":true}`))[0]
	if got["status"] != "TOOL_ERROR" || !strings.Contains(got["error"].(string), "really?") {
		t.Errorf("a question: %v", got)
	}
}

func TestList(t *testing.T) {
	var out bytes.Buffer
	s := newStack(&store.Leases{}, 0)
	d := &machina.Door{Mode: machina.List, Source: "tooltest", Out: &out}
	kit.OK(t, d.Serve(t.Context(), s, s))
	var got struct {
		OK    bool
		Tools []map[string]any
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || !got.OK {
		t.Fatalf("%s, %v", out.String(), err)
	}
	byAID := map[string]map[string]any{}
	for _, l := range got.Tools {
		byAID[l["aid"].(string)] = l
	}
	equal(t, byAID["AID.EYE.LOOK.v2"], `{"aid":"AID.EYE.LOOK.v2","name":"look","deterministic":true,"tags":[],"side_effects":["none"],"replay_inputs":[]}`)
	equal(t, byAID["AID.TOOLTEST.SHELL.v1"], `{"aid":"AID.TOOLTEST.SHELL.v1","name":"shell","deterministic":false,"tags":["tier.2"],"side_effects":["exec"],"replay_inputs":[]}`)
	equal(t, byAID["AID.TOOLTEST.NOTE.v1"], `{"aid":"AID.TOOLTEST.NOTE.v1","name":"note","deterministic":false,"tags":["tier.1"],"side_effects":[],"replay_inputs":[]}`)
	if len(byAID) != len(got.Tools) || len(byAID) != 12 {
		t.Errorf("%d tools", len(byAID))
	}
}

// contract(machina): Entire stdin is consumed as one JSON object:
// contract(machina): | `MAX_STDIN_BYTES` | 10MB | `toolhost/main.cpp` |
func TestExitCodes(t *testing.T) {
	request := `{"input_json":"{\"query\": \"test\"}","ds_state":{"slots":{"1":{"type":"a"}}}}`
	for name, c := range map[string]struct {
		args  []string
		stdin string
		code  int
		want  string
	}{
		"answered": {[]string{"--run", "tooltest", "AID.TOOLTEST.ECHO.v1"}, request, 0,
			`{"ok":true,"status":"OK","output_json":"{\"query\": \"test\"}","error":"","ds_state":{"slots":{"1":{"type":"a"}}}}`},
		"a tool's failure": {[]string{"--run", "tooltest", "AID.TOOLTEST.FAIL.v1"}, `{"inputs":{"message":"no"}}`, 0,
			`{"ok":false,"status":"TOOL_ERROR","output_json":"{}","error":"no","ds_state":{"slots":{}}}`},
		"list": {[]string{"--list", "other"}, "", 0,
			`{"ok":true,"tools":[{"aid":"AID.OTHER.ELSEWHERE.v1","name":"elsewhere","deterministic":false,"tags":[],"side_effects":[],"replay_inputs":[]}]}`},
		"serve": {[]string{"--serve", "tooltest"}, `{"aid":"AID.EYE.LOOK.v2"}`, 0,
			`{"ok":true,"status":"OK","output_json":"{}","error":"","ds_state":` + nothing + `}`},
		"nothing":        {nil, "", 2, ""},
		"unknown mode":   {[]string{"--walk", "tooltest"}, "", 2, ""},
		"no source":      {[]string{"--list"}, "", 2, ""},
		"no aid":         {[]string{"--run", "tooltest"}, "", 2, ""},
		"too many words": {[]string{"--serve", "tooltest", "x"}, "", 2, ""},
		"no such plugin": {[]string{"--list", "nope"}, "", 3,
			`{"ok":false,"error":"plugin not found: nope; name a source that has tools, or the path of a source's plugin"}`},
		"a dead plugin": {[]string{"--run", "dead", "AID"}, request, 3,
			`{"ok":false,"error":"plugin dead is not available: it died"}`},
		"serve no plugin": {[]string{"--serve", "nope"}, "", 3, ""},
		"unknown aid":     {[]string{"--run", "tooltest", "AID.XX"}, request, 4, `{"ok":false,"error":"tool not found: AID.XX"}`},
		"a tool that died": {[]string{"--run", "tooltest", "AID.TOOLTEST.CRASH.v1"}, `{}`, 1,
			`{"ok":false,"status":"TOOL_ERROR","output_json":"{}","error":"crash: crash died without an answer, as it was told to","ds_state":{"slots":{}}}`},
		"a tool without an end": {[]string{"--run", "tooltest", "AID.TOOLTEST.CODE.v1"}, `{"inputs":{"code":"protocol"}}`, 1,
			`{"ok":false,"status":"TOOL_ERROR","output_json":"{}","error":"protocol: because","ds_state":{"slots":{}}}`},
		"no string": {[]string{"--run", "tooltest", "AID.TOOLTEST.ECHO.v1"}, `{"input_json":7}`, 5,
			`{"ok":false,"error":"invalid input_json"}`},
		"bad JSON": {[]string{"--run", "tooltest", "AID.TOOLTEST.ECHO.v1"}, `{`, 5, `{"ok":false,"error":"invalid JSON"}`},
		"no JSON":  {[]string{"--run", "tooltest", "AID.TOOLTEST.ECHO.v1"}, ``, 5, `{"ok":false,"error":"invalid JSON"}`},
		"more than 10 MiB": {[]string{"--run", "tooltest", "AID.TOOLTEST.ECHO.v1"}, `{"input_json":"` +
			strings.Repeat("x", 10<<20) + `"}`, 5, tooLong},
		"no lease in run mode": {[]string{"--run", "tooltest", "AID.TOOLTEST.SHELL.v1"}, `{}`, 0,
			`{"ok":true,"status":"OK","output_json":"{}","error":"","ds_state":{"slots":{}}}`},
		"a lease to serve": {[]string{"--serve", "tooltest"}, `{"aid":"AID.TOOLTEST.SHELL.v1"}`, 0,
			`{"ok":false,"error":"lease_required","tier":2,"aid":"AID.TOOLTEST.SHELL.v1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(kit.Context(t), os.Args[0], c.args...)
			cmd.Env = append(os.Environ(), helper+"="+t.TempDir(), "MACHINA_LEASE_ENFORCE=1", "GORACE=atexit_sleep_ms=0")
			cmd.Stdin = strings.NewReader(c.stdin)
			var out, errOut bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errOut
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d; %s", code, c.code, errOut.String())
			}
			if c.want == "" {
				if out.Len() > 0 || errOut.Len() == 0 {
					t.Errorf("stdout %q, stderr %q", out.String(), errOut.String())
				}
				return
			}
			var got map[string]any
			kit.OK(t, json.Unmarshal(out.Bytes(), &got), out.String())
			equal(t, got, c.want)
		})
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	tooltest.NoLeaks(t)
	in, feed := io.Pipe()
	defer feed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	s := newStack(&store.Leases{}, 0)
	answered, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- (&machina.Door{Mode: machina.Serve, Source: "tooltest", In: in, Out: out}).Serve(ctx, s, s)
		_ = out.Close()
	}()
	fmt.Fprintln(feed, ask("AID.TOOLTEST.ECHO.v1", `{}`))
	line := make([]byte, 1000)
	if n, err := answered.Read(line); err != nil || !bytes.Contains(line[:n], []byte(`"ok":true`)) {
		t.Fatalf("%s, %v", line[:n], err)
	}
	fmt.Fprintln(feed, ask("AID.TOOLTEST.HANG.v1", `{}`))
	cancel()
	rest, _ := io.ReadAll(answered)
	kit.Check(t, <-served)
	if len(rest) > 0 && !bytes.Contains(rest, []byte("cancelled")) {
		t.Errorf("%s", rest)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAPeerThatDoesNotReadEndsServing(t *testing.T) {
	s := newStack(&store.Leases{}, 0)
	in := strings.NewReader(strings.Repeat(ask("AID.TOOLTEST.ECHO.v1", `{}`)+"\n", 10))
	err := (&machina.Door{Mode: machina.Serve, Source: "tooltest", In: in, Out: brokenPipe{}}).Serve(kit.Context(t), s, s)
	kit.Fails(t, err, "broken pipe")
}

func TestEventsAndBadInputAreLogged(t *testing.T) {
	var log, out bytes.Buffer
	s := newStack(&store.Leases{}, 0)
	in := strings.NewReader(ask("AID.TOOLTEST.EVENTS.v1", `{"count":2}`) + "\nnot JSON\n")
	d := &machina.Door{Mode: machina.Serve, Source: "tooltest", In: in, Out: &out, Log: &log}
	kit.OK(t, d.Serve(kit.Context(t), s, s))
	for _, want := range []string{"info: event 1\n", "info: event 2\n", "invalid JSON: "} {
		kit.Contains(t, log.String(), want, "the log")
	}
}

// Our door in front of our runner: the session's document arrives whole, and the tool's changes come back.
func TestStateTravelsThroughBothSides(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		r := ours(t, machina.Options{Mode: mode})
		state := `{"party":{"torches":3},"slots":{"2":{"content_json":"1","provenance":"p","size_bytes":1,"type":"n"}}}`
		for range 2 { // the second time a warm session has it already
			var got tooltest.Collect
			c := call("note", `{"party":{"torches":2,"lit":true},"slots":{"2":null,"7":{"type":"new"}}}`)
			c.State = json.RawMessage(state)
			result, err := invoke(r, c, &got)
			if err != nil || sortedJSON(string(result.Output)) != sortedJSON(state) {
				t.Fatalf("the tool saw %+v, %v", result, err)
			}
			patches := statePatches(&got)
			want := `{"party":{"lit":true,"torches":2},"slots":{"2":null,"7":{"type":"new"}}}`
			if len(patches) != 1 || sortedJSON(patches[0]) != want {
				t.Errorf("patches %v", patches)
			}
		}
		var got tooltest.Collect
		result, err := invoke(r, call("note", `{}`), &got) // another session sees nothing of it
		if err != nil || string(result.Output) != `{"slots":{}}` || len(statePatches(&got)) != 0 {
			t.Errorf("%s, %v, %v", result.Output, err, statePatches(&got))
		}
	})
}

func statePatches(got *tooltest.Collect) (patches []string) {
	for _, e := range got.Events() {
		if e.Kind == tool.KindStatePatch {
			patches = append(patches, string(e.Data))
		}
	}
	return patches
}

// The Python toolhost and the runner both keep state as the contract demands.
func TestStateOfAPythonToolhost(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		dir := t.TempDir()
		record := filepath.Join(dir, "lines")
		r := probe(t, machina.Options{Mode: mode, Sessions: 1, Options: spawn.Options{Env: map[string]string{"RECORD": record}, Walls: walls.Options{Write: []string{dir}}}})
		put := func(state, args string) (string, []string) {
			var got tooltest.Collect
			c := call("put", args)
			c.State = json.RawMessage(state)
			result := kit.Must(invoke(r, c, &got))(t)
			return sortedJSON(string(result.Output)), statePatches(&got)
		}
		one := `{"content_json":"1","provenance":"toolhost.py","size_bytes":1,"type":"note"}`
		two := strings.ReplaceAll(one, `"1"`, `"2"`)
		if saw, patches := put(``, `{"set":{"1":1,"2":2}}`); saw != `{"slots":{}}` ||
			!cmp.Equal(patches, []string{`{"slots":{"1":` + one + `,"2":` + two + `}}`}) {
			t.Errorf("%s, %v", saw, patches)
		}
		both := `{"slots":{"1":` + one + `,"2":` + two + `}}`
		if saw, patches := put(both, `{"set":{"1":2},"drop":[2]}`); saw != both || !cmp.Equal(patches, []string{`{"slots":{"1":{"content_json":"2"},"2":null}}`}) {
			t.Errorf("%s, %v", saw, patches)
		}
		// The changes of a failed tool are reported as well. If the session kept the old state, the toolhost is sent that
		// again.
		nine := strings.ReplaceAll(one, `"1"`, `"9"`)
		if saw, patches := put(both, `{"set":{"9":9},"drop":[2],"fail":true}`); saw != both || !cmp.Equal(patches, []string{`{"slots":{"2":null,"9":` + nine + `}}`}) {
			t.Errorf("%s, %v", saw, patches)
		}
		if saw, _ := put(both, `{}`); saw != both {
			t.Errorf("%s", saw)
		}
		if saw, _ := put(``, `{}`); saw != `{"slots":{}}` {
			t.Errorf("a call without a session saw %s", saw)
		}
		if mode == "run" {
			return
		}
		lines := recorded(t, record)
		if lines[0]["ds_state"] != nil {
			t.Errorf("a fresh toolhost was told about an empty state: %v", lines[0])
		}
		if b, _ := json.Marshal(lines[3]["ds_state"]); string(b) != `{"delta":true,"removed_slots":[9],"slots":{"2":`+two+`}}` {
			t.Errorf("after the failed call it was told %s", b)
		}
	})
}

func TestIdempotentHitDoesNotReplaceTheState(t *testing.T) {
	tooltest.NoLeaks(t)
	r := probe(t, machina.Options{Sessions: 1})
	state := json.RawMessage(`{"slots":{"1":{"type":"kept"}}}`)
	for range 2 { // the toolhost's hit carries an empty ds_state, which is no state at all
		var got tooltest.Collect
		c := call("put", `{"set":{"2":2}}`)
		c.Key, c.State = "k", state
		result := kit.Must(invoke(r, c, &got))(t)
		hit := result.Trace.Details["idempotent_hit"] == true
		if patches := statePatches(&got); hit && patches != nil || !hit && len(patches) != 1 {
			t.Errorf("hit %v: %v", hit, patches)
		}
	}
	c := call("put", `{}`)
	c.State = state
	if result, err := invoke(r, c, tool.Discard); err != nil || sortedJSON(string(result.Output)) != string(state) {
		t.Errorf("%s, %v", result.Output, err)
	}
}
