package namel3ss

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// peer opens a tool whose interpreter is a program written from the contract alone.
func peer(t testing.TB, o Options) *Runner {
	t.Helper()
	source := kit.Must(os.ReadFile("testdata/peer_tool.py"))(t)
	path := filepath.Join(t.TempDir(), "peer")
	kit.OK(t, os.WriteFile(path, append([]byte("#!"+systemPython(t)+"\n"), source...), 0o755))
	o.Tool, o.Entry, o.Mode = "greeter", "tools.sample_tool:greet", modeFresh
	r := open(t, t.TempDir(), o)
	localOf(r, "greeter").python.path = path
	return r
}

// contract(namel3ss): protocol_version: 1
// contract(namel3ss): `protocol_version` (number): current protocol version.
// contract(namel3ss): `tool` (string): tool name from the `.ai` declaration.
// contract(namel3ss): `entry` (string): module:function entry point.
// contract(namel3ss): `payload` (object): JSON payload for the tool.
// contract(namel3ss): `capability_context` (object, optional): guarantees + sources for enforcement.
func TestRequestHasExactlyTheFieldsOfTheContract(t *testing.T) {
	tooltest.NoLeaks(t)
	const trace = "0195d3a2-7f2b-7000-8000-0123456789ab"
	r := peer(t, Options{})
	res, err := r.Invoke(t.Context(), &tool.Call{Tool: "greeter", Trace: trace, Args: []byte(`{"name":"Ada","n":1.50,"big":12345678901234567890}`)}, tool.Discard)
	if err != nil || !res.OK {
		t.Fatal(res, err)
	}
	var got struct {
		Request any
		Raw     string
	}
	kit.OK(t, json.Unmarshal(res.Output, &got))
	want := map[string]any{
		"protocol_version": 1.0, "tool": "greeter", "entry": "tools.sample_tool:greet", "trace_id": trace,
		"payload": map[string]any{"name": "Ada", "n": 1.5, "big": 12345678901234567890.0},
		"capability_context": map[string]any{
			"tool_name": "greeter", "resolved_source": "binding", "runner": "local", "protocol_version": 1.0,
			"guarantees": map[string]any{
				"no_filesystem_read": false, "no_filesystem_write": false, "no_network": false,
				"no_subprocess": false, "no_env_read": false, "no_env_write": false,
			},
			"sources": map[string]any{},
		},
	}
	kit.Equal(t, cmp.Diff(want, got.Request), "")
	kit.Contains(t, got.Raw,
		`{"name":"Ada","n":1.50,"big":12345678901234567890}`, "numbers must stay numbers, with their digits")
}

// contract(namel3ss): `trace_id` (string, optional): trace correlation id.
func TestMissingTraceIDIsReplacedByAUUID(t *testing.T) {
	res := kit.Must(peer(t, Options{}).Invoke(t.Context(), &tool.Call{Tool: "greeter"}, tool.Discard))(t)
	var got struct{ Request request }
	if err := json.Unmarshal(res.Output, &got); err != nil || len(got.Request.TraceID) != 36 {
		t.Errorf("trace_id %q, %v", got.Request.TraceID, err)
	}
}

// contract(namel3ss): `sandbox` (boolean, optional): enable sandboxed execution.
// contract(namel3ss): local sandbox: `sandbox`
func TestSandboxIsSentOnlyWhenTrue(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		sandbox *bool
		sent    bool
		traced  any
	}{{nil, false, nil}, {&no, false, false}, {&yes, true, true}} {
		res := must(t, peer(t, Options{Sandbox: c.sandbox}), "greeter", `{}`)
		kit.Equal(t, strings.Contains(string(res.Output), `"sandbox"`), c.sent, "sandbox %v: sent", c.sandbox)
		kit.Equal(t, res.Trace.Details["sandbox"], c.traced, "sandbox %v: traced as", c.sandbox)
	}
}

// Every outcome of the contract's local section and of the notes on it.
//
// contract(namel3ss): Success: {"ok": true, "protocol_version": 1, "result": { "message": "Hello Ada", "ok": true }}
// contract(namel3ss): Exit code `0`: tool completed and wrote a JSON response.
// contract(namel3ss): Non-zero exit code with no stdout: the tool subprocess crashed; namel3ss raises a tool error.
func TestOutcomes(t *testing.T) {
	const ok = `{"ok":true,"protocol_version":1,"result":{"message":"Hello Ada","ok":true}}`
	const no = `{"ok":false,"protocol_version":1,"error":{"type":"ValueError","message":"Missing input","reason_code":"guarantee_blocked"}}`
	for _, c := range []struct {
		name, say string
		exit      int
		code      tool.Code // empty for a result
		want      string    // in the output, the failure or the error
	}{
		{"success is the result", ok, 0, "", `{"message":"Hello Ada","ok":true}`},
		{"a valid reply counts whatever the exit code", ok, 3, "", `{"message":"Hello Ada","ok":true}`},
		{"an error reply is the tool's own failure", no, 0, "", "Missing input"},
		{"an error reply counts whatever the exit code", no, 9, "", "Missing input"},
		{"a result may be any JSON value", `{"ok":true,"result":[1,null,"x"]}`, 0, "", `[1,null,"x"]`},
		{"a result of null is a result", `{"ok":true,"result":null}`, 0, "", `null`},
		{"white space around the reply is fine", "\n " + ok + " \n", 0, "", "Hello Ada"},
		{"unknown fields are fine", `{"ok":true,"result":1,"more":{}}`, 0, "", "1"},
		{"an error without words has failed too", `{"ok":false}`, 0, "", "did not say why"},
		{"no stdout and a bad exit code is a crash", "", 3, tool.CodeCrash, "exit status 3"},
		{"blank stdout and a bad exit code is a crash", " \n", 1, tool.CodeCrash, "exit status 1"},
		{"half a reply and a bad exit code is a crash", ok[:20], 1, tool.CodeCrash, "ends too early"},
		{"exit 0 without stdout breaks the protocol", "", 0, tool.CodeProtocol, "no reply"},
		{"garbage breaks the protocol", "Hello Ada", 0, tool.CodeProtocol, "not one JSON object"},
		{"half a reply breaks the protocol", ok[:20], 0, tool.CodeProtocol, "ends too early"},
		{"a list is no reply", `[1]`, 0, tool.CodeProtocol, "got array"},
		{"two replies break the protocol", ok + "\n" + ok, 0, tool.CodeProtocol, "not one JSON object"},
		{"a reply without ok breaks the protocol", `{"result":1}`, 0, tool.CodeProtocol, "no ok"},
		{"ok must be a boolean", `{"ok":"true","result":1}`, 0, tool.CodeProtocol, "ok must be true or false, not string"},
		{"ok true without result breaks the protocol", `{"ok":true}`, 0, tool.CodeProtocol, "no result"},
		{"another protocol_version is refused", `{"ok":true,"protocol_version":2,"result":1}`, 0, tool.CodeProtocol, "protocol_version 2"},
		{"protocol_version must be a number", `{"ok":true,"protocol_version":"1","result":1}`, 0, tool.CodeProtocol, "must be a number"},
		{"error must be an object", `{"ok":false,"error":"no"}`, 0, tool.CodeProtocol, "error must be an object"},
		{"a message must be text", `{"ok":false,"error":{"message":5}}`, 0, tool.CodeProtocol, "message must be a string"},
		{"a duplicate key is refused", `{"ok":false,"ok":true,"result":1}`, 0, tool.CodeProtocol, "duplicate"},
		{"invalid UTF-8 is refused", "{\"ok\":true,\"result\":\"\xff\"}", 0, tool.CodeProtocol, "UTF-8"},
		{"nesting without end is refused", `{"ok":true,"result":` + strings.Repeat("[", 5000), 0, tool.CodeProtocol, "deeper"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := ending{reply: []byte(c.say)}
			e.exit.Code = c.exit
			rep, err := e.outcome("greeter", "")
			if c.code != "" {
				if tool.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "greeter") {
					t.Errorf("want %s with %q, got %v", c.code, c.want, err)
				}
				return
			}
			kit.OK(t, err)
			kit.Contains(t, string(rep.Result)+rep.Error.Message, c.want)
		})
	}
}

// The same through a process: exit code, stdout and stderr arrive as the table assumes.
func TestOutcomesOfAPeer(t *testing.T) {
	tooltest.NoLeaks(t)
	r := peer(t, Options{})
	for _, c := range []struct {
		name, args string
		code       tool.Code
		want       string
	}{
		{"crash with stderr's tail", `{"say":"","exit":3,"stderr":"first\nlast words\n"}`, tool.CodeCrash, "exit status 3; the last it wrote to stderr: first | last words"},
		{"crash by a signal", `{"say":"","signal":11}`, tool.CodeCrash, "SIGSEGV"},
		{"garbage", `{"say":"what?"}`, tool.CodeProtocol, "not one JSON object"},
		{"invalid UTF-8", `{"say":"{\"ok\":true,\"result\":\"\u00ff\"}"}`, tool.CodeProtocol, "UTF-8"},
		{"reply and a bad exit code", `{"exit":7}`, "", ""},
		{"reply and a signal", `{"signal":9}`, "", ""},
		{"reply, stdout closed, and a moment more", `{"close":0.2}`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, err := call(r, "greeter", c.args, tool.Discard)
			kit.MustEqual(t, tool.CodeOf(err), c.code, res, err)
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q is not in: %v", c.want, err)
			}
		})
	}
}

// contract(namel3ss): Error: {"ok": false, "protocol_version": 1, "error": { "type", "message", "reason_code" }}
func TestFailureKeepsTypeAndReasonCode(t *testing.T) {
	say := `{"ok":false,"protocol_version":1,"error":{"type":"ValueError","message":"Missing input","reason_code":"guarantee_blocked"},` +
		`"capability_checks":[{"capability":"network","allowed":false,"guarantee_source":"user","reason":"guarantee_blocked"}]}`
	args, _ := json.Marshal(map[string]string{"say": say})
	res := kit.Must(call(peer(t, Options{}), "greeter", string(args), tool.Discard))(t)
	f := res.Failure
	if res.OK || f.Code != tool.CodeToolError || f.Reason != "ValueError" || f.Message != "Missing input" {
		t.Errorf("got %+v", f)
	}
	kit.Equal(t, string(f.Details), `{"type":"ValueError","reason_code":"guarantee_blocked"}`, "details")
	d := res.Trace.Details
	if d["status"] != "error" || d["error_type"] != "ValueError" || d["error_message"] != "Missing input" || d["reason"] != "guarantee_blocked" {
		t.Errorf("trace %v", d)
	}
	kit.Contains(t, fmt.Sprintf("%s", d["capability_checks"]),
		`"guarantee_source":"user"`, "capability_checks are not in the trace")
}

func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		`{"ok":true,"protocol_version":1,"result":{}}`, `{"ok":false,"error":{"type":"E","message":"m","reason_code":"r"}}`,
		`{"ok":true}`, `{"ok":1}`, `[]`, ``, `{"ok":true,"ok":false}`, `{"ok":true,"result":` + strings.Repeat("[", 300), "\xff",
		`{"ok":false,"error":null,"capability_checks":[{}]}`, `{"ok":true,"protocol_version":1e0,"result":0}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rep, err := parseReply(b)
		if err != nil {
			return
		}
		if rep.OK && !json.Valid(rep.Result) {
			t.Fatalf("accepted a result that is not JSON: %q", rep.Result)
		}
		out := encodeReply(rep, protocolVersion)
		again, err := parseReply(out)
		if err != nil || again.OK != rep.OK || again.Error != rep.Error {
			t.Fatalf("%s came back as %+v, %v", out, again, err)
		}
	})
}
