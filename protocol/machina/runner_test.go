package machina_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/host/container"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/machina"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// probe returns a runner of the Python toolhost.
func probe(t testing.TB, o machina.Options) *machina.Runner {
	t.Helper()
	o.Command = []string{tooltest.Python(), script(t)}
	if o.Plugin == "" {
		o.Plugin = "probe"
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	return open(t, o)
}

func open(t testing.TB, o machina.Options) *machina.Runner {
	t.Helper()
	r := kit.Must(machina.New(context.Background(), "", o, nil))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		kit.Check(t, r.Close(ctx))
	})
	return r
}

// modes runs a test in both modes.
func modes(t *testing.T, test func(t *testing.T, mode string)) {
	for _, mode := range []string{"run", "serve"} {
		t.Run(mode, func(t *testing.T) {
			tooltest.NoLeaks(t)
			test(t, mode)
		})
	}
}

func invoke(r *machina.Runner, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	specs, _ := r.Tools(context.Background())
	for _, s := range specs {
		if s.Name == c.Tool {
			c.Spec = s
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return r.Invoke(ctx, c, out)
}

func call(name, args string) *tool.Call {
	return &tool.Call{ID: "call-1", Trace: "run-1", Tool: name, Args: json.RawMessage(args)}
}

func TestRunnerConforms(t *testing.T) {
	for _, mode := range []string{"run", "serve"} {
		t.Run(mode, func(t *testing.T) {
			tooltest.Run(t, tooltest.Subject{
				New: func(t testing.TB) tool.Handler {
					return probe(t, machina.Options{Mode: mode, Options: spawn.Options{Timeout: config.Duration(time.Minute)}})
				},
				Without: tooltest.Events,
			})
		})
	}
}

// contract(machina): | `spec_version` | string | `"1.4.2"` | Protocol version |
// contract(machina): | `profile_id` | string | `"A"` | Profile identifier |
// contract(machina): | `run_id` | string | required | UUID-like run identifier |
// contract(machina): | `request_id` | string | optional | Caller-supplied tracing ID |
func TestARunHeaderTravelsWithEveryCall(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		r := kit.Must(invoke(probe(t, machina.Options{Mode: mode}), call("echo", `{"a":1.50}`), tool.Discard))(t)
		want := machina.RunHeader{SpecVersion: "1.4.2", ProfileID: "A", RunID: "run-1", RequestID: "call-1"}
		d := r.Trace.Details
		if d["run_header"] != want || d["aid"] != "AID.PROBE.ECHO.v1" || d["mode"] != mode || d["status"] != "OK" || d["attempts"] != 1 {
			t.Errorf("%v", d)
		}
		b, _ := json.Marshal(d["run_header"])
		kit.Equal(t, string(b), `{"spec_version":"1.4.2","profile_id":"A","run_id":"run-1","request_id":"call-1"}`)
		kit.Equal(t, string(r.Output), `{"a":1.50}`)
		if h := machina.Header(&tool.Call{}); h.RunID == "" || h.RequestID != "" {
			t.Errorf("a call without a trace: %+v", h)
		}
	})
}

func TestListDiscovery(t *testing.T) {
	r := probe(t, machina.Options{Tiers: map[string]int{"AID.PROBE.PUT.v1": 3}})
	specs := kit.Must(r.Tools(t.Context()))(t)
	got := map[string]*tool.Spec{}
	for _, s := range specs {
		got[s.Name] = s
	}
	echo, put, fail := got["echo"], got["put"], got["fail"]
	if echo == nil || !echo.Effects.ReadOnly() || !cmp.Equal(echo.Aliases, []string{"AID.PROBE.ECHO.v1"}) || echo.Tier != 0 || echo.Timeout != 30*time.Second {
		t.Errorf("echo: %+v", echo)
	}
	if put.Tier != 3 || !put.Effects.Writes || fail.Tier != 0 || fail.Effects.ReadOnly() {
		t.Errorf("put: %+v, fail: %+v", put, fail)
	}
}

func TestToolsCanBeNamedInPlaceOfAsked(t *testing.T) {
	r := open(t, machina.Options{Command: []string{"/nonexistent"}, Tools: []machina.ToolOption{
		{AID: "AID.MEMORY.QUERY.v1", Input: config.JSON(`{"type":"object"}`), Effects: tool.Effects{Reads: true}},
		{AID: "AID.MEMORY.APPEND.v1", Name: "append", Tier: new(2)},
		{AID: "AID.MEMORY.APPEND.v2", Name: "append"},
	}})
	specs, _ := r.Tools(t.Context())
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
	}
	kit.Equal(t, cmp.Diff([]string{"memory.query", "append", "AID.MEMORY.APPEND.v2"}, names), "")
	if specs[1].Tier != 2 || specs[1].TierFrom != tool.TierConfig || string(specs[0].Input) != `{"type":"object"}` {
		t.Errorf("%+v", specs[1])
	}
	kit.Fails(t, r.Unavailable("append"), "/nonexistent")
}

// contract(machina): | `timeout` | Process exceeded `MACHINA_TOOLHOST_TIMEOUT` seconds |
// contract(machina): | `MACHINA_TOOLHOST_TIMEOUT` | env or 30s | `machina_dispatch.py` |
func TestATimeoutIsAStructuredError(t *testing.T) {
	t.Setenv("MACHINA_TOOLHOST_TIMEOUT", "0.4")
	modes(t, func(t *testing.T, mode string) {
		r := open(t, machina.Options{
			Command: []string{tooltest.Python(), script(t)}, Plugin: "probe", Mode: mode,
			Tools: []machina.ToolOption{{AID: "AID.PROBE.HANG.v1", Name: "hang"}},
		})
		_, err := invoke(r, call("hang", `{}`), tool.Discard)
		structured(t, err, tool.CodeTimeout, "timeout", "AID.PROBE.HANG.v1", "400ms")
	})
}

// structured checks an error against the contract's dict.
//
// contract(machina): When `run_machina_toolhost()` encounters a failure, it returns a dict:
func structured(t *testing.T, err error, code tool.Code, typ, aid, detail string) {
	t.Helper()
	e := tool.AsError(err)
	if e == nil || e.Code != code || e.Reason != typ {
		t.Fatalf("want %s (%s), got %+v", code, typ, err)
	}
	var d struct {
		Error  bool   `json:"error"`
		AID    string `json:"aid"`
		Type   string `json:"type"`
		Detail string `json:"detail"`
	}
	if err := json.Unmarshal(e.Details, &d); err != nil || !d.Error || d.AID != aid || d.Type != typ || !strings.Contains(d.Detail, detail) {
		t.Errorf("details %s, want %s about %s with %q", e.Details, typ, aid, detail)
	}
}

// contract(machina): | `crash` | Non-zero exit code |
func TestACrashIsAStructuredError(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		r := probe(t, machina.Options{Mode: mode})
		_, err := invoke(r, call("crash", `{}`), tool.Discard)
		structured(t, err, tool.CodeCrash, "crash", "AID.PROBE.CRASH.v1", "exit status 7")
		kit.Contains(t, err.Error(), "about to crash", "the last words are missing: %v", err)
		kit.Check(t, kit.Err(invoke(r, call("echo", `{}`), tool.Discard)), "after the crash")
	})
}

// The exit codes 3 and 4 belong to a toolhost; from a tool they mean nothing.
func TestSilentExitIsACrash(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		r := probe(t, machina.Options{Mode: mode})
		for _, code := range []string{"3", "4"} {
			_, err := invoke(r, call("crash", `{"code":`+code+`}`), tool.Discard)
			structured(t, err, tool.CodeCrash, "crash", "AID.PROBE.CRASH.v1", "exit status "+code)
		}
	})
}

// contract(machina): | `not_found` | Toolhost binary missing |
func TestAMissingToolhostIsAStructuredError(t *testing.T) {
	_, err := machina.New(t.Context(), "", machina.Options{Command: []string{"/nonexistent/machina_toolhost"}}, nil)
	structured(t, err, tool.CodeUnavailable, "not_found", "--list", "/nonexistent/machina_toolhost")
	modes(t, func(t *testing.T, mode string) {
		r := open(t, machina.Options{Command: []string{"/nonexistent/machina_toolhost"}, Mode: mode, Tools: []machina.ToolOption{{AID: "AID.A.B.v1"}}})
		_, err := invoke(r, call("a.b", `{}`), tool.Discard)
		structured(t, err, tool.CodeUnavailable, "not_found", "AID.A.B.v1", "/nonexistent/machina_toolhost")
	})
	_, err = machina.New(t.Context(), "", machina.Options{Command: []string{tooltest.Python(), script(t)}, Plugin: "nope"}, nil)
	structured(t, err, tool.CodeUnavailable, "not_found", "--list", "cannot load nope")
}

func script(t testing.TB) string {
	t.Helper()
	return kit.Must(filepath.Abs("testdata/toolhost.py"))(t)
}

func TestAToolThatTheToolhostDoesNotHaveIsNotFound(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		r := open(t, machina.Options{
			Command: []string{tooltest.Python(), script(t)}, Plugin: "probe", Mode: mode, Tools: []machina.ToolOption{{AID: "AID.PROBE.NOPE.v1", Name: "nope"}},
		})
		_, err := invoke(r, call("nope", `{}`), tool.Discard)
		if e := tool.AsError(err); e == nil || e.Code != tool.CodeNotFound || e.Reason != "not_found" ||
			e.Message != "tool not found: AID.PROBE.NOPE.v1" {
			t.Errorf("%+v", err)
		}
		kit.Refused(t, kit.Err(invoke(r, call("unheard", `{}`), tool.Discard)), tool.CodeNotFound, "")
	})
}

// contract(machina): | `parse_error` | Stdout was not valid JSON |
// contract(machina): | `_TOOLHOST_MAX_OUTPUT` | 1MB (1048576) | `machina_dispatch.py` |
func TestHostileReplies(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		for name, want := range map[string]string{
			"garbage": "parse_error", "huge": "1048576 bytes", "array": "parse_error", "neither": "neither status nor ok",
			"status": "FINE", "state": "ds_state", "state_type": "ds_state",
			"duplicate": "duplicate", "utf8": "UTF-8", "empty_line": "", "silent": "", "half": "",
		} {
			r := hostile(t, mode, name)
			_, err := invoke(r, call(name, `{}`), tool.Discard)
			e := tool.AsError(err)
			if e == nil || e.Code != tool.CodeProtocol && e.Code != tool.CodeCrash {
				t.Errorf("%s: %v", name, err)
				continue
			}
			kit.Contains(t, string(e.Details), want, name)
		}
	})
}

// A tool whose reply is too long would give the same reply again, and would have run twice.
func TestATooLongReplyIsNotAskedForTwice(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	record := filepath.Join(dir, "lines")
	r := probe(t, machina.Options{Plugin: "hostile",
		Options: spawn.Options{Env: map[string]string{"RECORD": record}, Walls: walls.Options{Write: []string{dir}}}})
	c := call("huge", `{}`)
	c.Key = "k" // without a key no call is repeated
	_, err := invoke(r, c, tool.Discard)
	structured(t, err, tool.CodeProtocol, "parse_error", "AID.PROBE.HUGE.v1", "1048576 bytes")
	kit.Equal(t, len(recorded(t, record)), 1, "times asked")
}

// Known toolhosts put anything that their tool returned into output_json, and known hosts pass it on.
func TestAnOutputThatIsNotJSONIsText(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		r := probe(t, machina.Options{Mode: mode, Sessions: 1})
		who := func() string {
			result := kit.Must(invoke(r, call("who", `{}`), tool.Discard))(t)
			return string(result.Output)
		}
		session := who()
		for i, c := range [][2]string{ // as JSON in the reply, and on arrival
			{`"done."`, `"done."`}, {`"{"`, `"{"`}, {`"two\nlines ü"`, `"two\nlines ü"`},
			{`"NaN"`, `"NaN"`}, {`" "`, `" "`}, {`"{} {}"`, `"{} {}"`}, {`""`, ``}, {`null`, ``},
			{`"7"`, `7`}, {`"\"text\""`, `"text"`}, {`"[1]"`, `[1]`}, // is JSON
			{`7`, `7`}, {`[1, {"a": 1.5}]`, `[1, {"a": 1.5}]`}, {`true`, `true`}, {`{"a": 1}`, `{"a": 1}`}, // not even a string
		} {
			if mode == "run" && i >= 3 { // each starts a toolhost
				break
			}
			result, err := invoke(r, call("say", `{"output_json":`+c[0]+`}`), tool.Discard)
			if err != nil || !result.OK || string(result.Output) != c[1] {
				t.Errorf("%s: %v, %v", c[0], result, err)
			}
		}
		result, err := invoke(r, call("say", `{"output_json":"half of it","status":"TOOL_ERROR"}`), tool.Discard)
		if err != nil || result.OK || string(result.Output) != `"half of it"` {
			t.Errorf("of a tool that failed: %v, %v", result, err)
		}
		for _, twice := range []string{`{"a":1,"a":2}`, `[{"a":{"b":1,"b":1}}]`} { // JSON that readers disagree about
			quoted, _ := json.Marshal(twice)
			_, err := invoke(r, call("say", `{"output_json":`+string(quoted)+`}`), tool.Discard)
			structured(t, err, tool.CodeProtocol, "parse_error", "AID.PROBE.SAY.v1", "duplicate")
		}
		if again := who(); mode == "serve" && again != session {
			t.Errorf("session %s was replaced by %s", session, again)
		}
	})
}

// hostile returns a runner of one hostile tool, without listing tools first.
func hostile(t *testing.T, mode, name string) *machina.Runner {
	return open(t, machina.Options{
		Command: []string{tooltest.Python(), script(t)}, Plugin: "hostile", Mode: mode,
		Tools: []machina.ToolOption{{AID: "AID.PROBE." + strings.ToUpper(name) + ".v1", Name: name}},
	})
}

func TestAToolhostThatCrashesAgainAndAgainOpensTheBreaker(t *testing.T) {
	tooltest.NoLeaks(t)
	r := hostile(t, "serve", "garbage")
	for range 5 {
		kit.Refused(t, kit.Err(invoke(r, call("garbage", `{}`), tool.Discard)), tool.CodeProtocol, "")
	}
	kit.Refused(t, kit.Err(invoke(r, call("garbage", `{}`), tool.Discard)), tool.CodeBreakerOpen, "")
}

func TestToolhostEndingWithoutAReplyIsEmptyOutput(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		_, err := invoke(probe(t, machina.Options{Mode: mode, Plugin: "hostile"}), call("silent", `{}`), tool.Discard)
		structured(t, err, tool.CodeProtocol, "empty_output", "AID.PROBE.SILENT.v1", "without a reply")
	})
}

func TestAnExtraLineIsNeverTheAnswerOfTheNextCall(t *testing.T) {
	tooltest.NoLeaks(t)
	r := probe(t, machina.Options{Plugin: "hostile", Sessions: 1})
	for range 3 {
		result, err := invoke(r, call("two_lines", `{}`), tool.Discard)
		if err != nil || strings.Contains(string(result.Output), "stale") {
			t.Fatalf("%s, %v", result.Output, err)
		}
	}
}

func TestCallsShareTwoWarmSessions(t *testing.T) {
	tooltest.NoLeaks(t)
	r := probe(t, machina.Options{})
	sessions := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			args := fmt.Sprintf(`{"call":%d}`, i)
			result, err := invoke(r, call("slow", args), tool.Discard)
			if err != nil || string(result.Output) != args {
				t.Errorf("%v, %v", result, err)
			}
			result, err = invoke(r, call("who", `{}`), tool.Discard)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			sessions[string(result.Output)] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	kit.Equal(t, len(sessions), 2, sessions)
}

func TestACallIsRepeatedOnlyWhenThatIsSafe(t *testing.T) {
	for name, c := range map[string]struct {
		tool, key string
		repeated  bool
	}{
		"a tool that writes":            {"fragile", "", false},
		"with an idempotency key":       {"fragile", "k", true},
		"a tool declared as reading":    {"fragile_reader", "", true},
		"a reading tool that has a key": {"fragile_reader", "k", true},
	} {
		t.Run(name, func(t *testing.T) {
			tooltest.NoLeaks(t)
			dir := t.TempDir()
			r := probe(t, machina.Options{Plugin: dir, Options: spawn.Options{Walls: walls.Options{Write: []string{dir}}}})
			one := call(c.tool, `{}`)
			one.Key = c.key
			result, err := invoke(r, one, tool.Discard)
			runs, _ := os.ReadFile(filepath.Join(dir, "runs"))
			switch {
			case c.repeated && (err != nil || string(result.Output) != `{"run":2}` || result.Trace.Details["attempts"] != 2 || len(runs) != 2):
				t.Errorf("%v, %v, %d runs", result, err, len(runs))
			case !c.repeated && (tool.CodeOf(err) != tool.CodeCrash || len(runs) != 1):
				t.Errorf("%v, %v, %d runs", result, err, len(runs))
			}
		})
	}
}

func TestAnIdleSessionThatDiedIsReplacedBeforeTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "alive")
	kit.OK(t, syscall.Mkfifo(fifo, 0o600))
	r := probe(t, machina.Options{Sessions: 1, Options: spawn.Options{Walls: walls.Options{Write: []string{dir}}}})
	ask := func(name, args string) string {
		result := kit.Must(invoke(r, call(name, args), tool.Discard))(t)
		return string(result.Output)
	}
	first := ask("last", fmt.Sprintf(`{"fifo":%q}`, fifo))
	die, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns once the toolhost has opened it too
	kit.OK(t, err)
	defer die.Close()
	for _, err = die.Write([]byte("x")); err == nil; _, err = die.Write([]byte("x")) { // until no reader is left
		time.Sleep(time.Millisecond)
	}
	if second := ask("who", `{}`); second == first || first == "" {
		t.Errorf("%s, then %s", first, second)
	}
}

// contract(machina): | `status` | string | `"OK"` / `"INVALID_PICK"` / `"TOOL_ERROR"` / `"BREAKER_TRIP"` |
func TestStatusTakesPrecedenceOverOK(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		r := probe(t, machina.Options{Mode: mode})
		for args, want := range map[string]struct {
			code   tool.Code
			reason string
		}{
			`{"status":"INVALID_PICK"}`: {tool.CodeNotFound, "INVALID_PICK"},
			`{"status":"BREAKER_TRIP"}`: {tool.CodeBreakerOpen, "BREAKER_TRIP"},
		} {
			_, err := invoke(r, call("status", args), tool.Discard)
			if e := tool.AsError(err); e == nil || e.Code != want.code || e.Reason != want.reason || e.Message != "because" {
				t.Errorf("%s: %+v", args, err)
			}
		}
		for name, args := range map[string]string{"status": `{"status":"TOOL_ERROR"}`, "field": `{}`, "plain": `{"ok":false,"error":"broken"}`} {
			result, err := invoke(r, call(name, args), tool.Discard)
			if err != nil || result.OK || result.Failure.Code != tool.CodeToolError || result.Failure.Reason != "tool_error" ||
				!strings.Contains(string(result.Failure.Details), `"type":"tool_error"`) {
				t.Errorf("%s: %+v, %v", name, result, err)
			}
		}
		if result, err := invoke(r, call("status", `{"status":"OK"}`), tool.Discard); err != nil || !result.OK {
			t.Errorf("%v, %v", result, err)
		}
		if result, err := invoke(r, call("plain", `{"ok":true}`), tool.Discard); err != nil || !result.OK {
			t.Errorf("ok without a status: %v, %v", result, err)
		}
	})
}

// contract(machina): {"ok": false, "error": "lease_required", "tier": 2, "aid": "AID.XX"}
// contract(machina): {"ok": false, "error": "lease_rejected", "reason": "expired"}
func TestRefusalsOfAToolhost(t *testing.T) {
	tooltest.NoLeaks(t)
	r := probe(t, machina.Options{})
	for args, want := range map[string]struct {
		code   tool.Code
		reason string
	}{
		`{"error":"lease_required","tier":2,"aid":"AID.XX"}`:             {tool.CodeLeaseRequired, ""},
		`{"error":"lease_rejected","reason":"expired"}`:                  {tool.CodeLeaseRejected, "expired"},
		`{"error":"lease_rejected","reason":"lease not found"}`:          {tool.CodeLeaseRejected, "not_found"},
		`{"error":"lease already consumed"}`:                             {tool.CodeLeaseRejected, "already_consumed"},
		`{"error":"lease_rejected","reason":"lease tool mismatch: a b"}`: {tool.CodeLeaseRejected, "tool_mismatch"},
		`{"error":"lease_rejected","reason":"tier_too_low"}`:             {tool.CodeLeaseRejected, "tier_too_low"},
		`{"error":"idempotency_conflict"}`:                               {tool.CodeConflict, "idempotency_conflict"},
		`{"error":"tool not found in plugin: AID.XX"}`:                   {tool.CodeNotFound, "not_found"},
		`{"error":"missing aid"}`:                                        {tool.CodeProtocol, "parse_error"},
		`{"error":"invalid JSON"}`:                                       {tool.CodeProtocol, "parse_error"},
		`{"error":"access_denied: not for you"}`:                         {tool.CodeAccessDenied, ""},
		`{"error":"quota_exceeded: enough"}`:                             {tool.CodeQuotaExceeded, ""},
	} {
		_, err := invoke(r, call("refuse", args), tool.Discard)
		if e := tool.AsError(err); e == nil || e.Code != want.code || e.Reason != want.reason {
			t.Errorf("%s: %+v", args, err)
		}
	}
	_, err := invoke(r, call("refuse", `{"error":"lease_required","tier":2}`), tool.Discard)
	kit.Equal(t, string(tool.AsError(err).Details), `{"aid":"AID.PROBE.REFUSE.v1","tier":2}`)
	for token, reason := range map[string]string{
		"expired": "expired", "gone": "not_found", "used": "already_consumed", "other": "tool_mismatch", "low": "tier_too_low",
	} {
		c := call("echo", `{}`)
		c.Lease = token
		if _, err := invoke(r, c, tool.Discard); tool.AsError(err) == nil || tool.AsError(err).Reason != reason {
			t.Errorf("%s: %v", token, err)
		}
	}
}

// contract(machina): | `aid` | string | yes | Action ID of the tool to invoke |
// contract(machina): | `idempotency_key` | string | no | Dedup key (cached 60s, max 1024 entries) |
// contract(machina): | `_lease_token` | string | no | Single-use permission token (when `MACHINA_LEASE_ENFORCE=1`) |
func TestLeasesAndKeysArePassedThrough(t *testing.T) {
	dir := t.TempDir()
	record := filepath.Join(dir, "lines")
	r := probe(t, machina.Options{Options: spawn.Options{Env: map[string]string{"RECORD": record}, Walls: walls.Options{Write: []string{dir}}}})
	c := call("echo", `{"q":"ü"}`)
	c.Key, c.Lease = "req-abc-123", "tok_1"
	for hit := range 2 {
		result, err := invoke(r, c, tool.Discard)
		if err != nil || (result.Trace.Details["idempotent_hit"] == true) != (hit == 1) {
			t.Errorf("%v, %v", result, err)
		}
	}
	lines := recorded(t, record)
	key, _ := lines[0]["idempotency_key"].(string)
	if len(key) != 32 || lines[1]["idempotency_key"] != key {
		t.Errorf("the same call has the key %q, then %q", key, lines[1]["idempotency_key"])
	}
	want := map[string]any{"aid": "AID.PROBE.ECHO.v1", "input_json": `{"q":"ü"}`, "idempotency_key": key, "_lease_token": "tok_1"}
	kit.Equal(t, cmp.Diff(want, lines[0]), "")
}

// The key space of a toolhost is its process: to the toolhost, all callers share their keys.
func TestIdempotencyKeysAreSeparatePerCaller(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		dir := t.TempDir()
		record := filepath.Join(dir, "lines")
		r := probe(t, machina.Options{Mode: mode, Sessions: 1, Options: spawn.Options{Env: map[string]string{"RECORD": record}, Walls: walls.Options{Write: []string{dir}}}})
		calls := []tool.Call{
			{Tool: "echo", Key: "k", Caller: tool.Principal{ID: "ada"}},
			{Tool: "echo", Key: "k", Caller: tool.Principal{ID: "bob"}},
			{Tool: "echo", Key: "k", Caller: tool.Principal{ID: "ada"}, Session: "s"},
			{Tool: "echo", Key: "sk", Caller: tool.Principal{ID: "ada"}}, // no concatenation of the parts collides
			{Tool: "slow", Key: "k", Caller: tool.Principal{ID: "ada"}},
			{Tool: "echo", Key: "k2", Caller: tool.Principal{ID: "ada"}},
		}
		for i := range calls {
			c := &calls[i]
			c.Args = fmt.Appendf(nil, `{"call":%d}`, i)
			result, err := invoke(r, c, tool.Discard)
			if err != nil || string(result.Output) != string(c.Args) || result.Trace.Details["idempotent_hit"] != nil {
				t.Errorf("call %d got the outcome of another: %v, %v", i, result, err)
			}
		}
		again := calls[1]
		again.Caller.Door = "nats" // it is one caller, whatever the door
		kit.Equal(t, (kit.Must(invoke(r, &again, tool.Discard))(t).Trace.Details["idempotent_hit"] == true), (mode == "serve"))
		seen := map[any]bool{}
		for _, line := range recorded(t, record) {
			seen[line["idempotency_key"]] = true
		}
		kit.Equal(t, len(seen), len(calls), seen)
	})
}

func recorded(t *testing.T, path string) (lines []map[string]any) {
	t.Helper()
	f := kit.Must(os.Open(path))(t)
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 20<<20)
	for in.Scan() {
		var m map[string]any
		kit.OK(t, json.Unmarshal(in.Bytes(), &m))
		lines = append(lines, m)
	}
	return lines
}

func TestARequestLargerThanAToolhostTakesIsNotSent(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		r := probe(t, machina.Options{Mode: mode})
		_, err := invoke(r, call("echo", `{"s":"`+strings.Repeat("x", 11<<20)+`"}`), tool.Discard)
		kit.Refused(t, err, tool.CodeInvalidInput, "")
		kit.Check(t, kit.Err(invoke(r, call("echo", `{}`), tool.Discard)))
	})
}

// A guarantee holds whether the source or, for one call, a stage asks for it. Without one the walls of the source apply.
func TestGuaranteesHold(t *testing.T) {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	args := fmt.Sprintf(`{"port":%d}`, l.Addr().(*net.TCPAddr).Port)
	all := tool.Guarantees{NoNetwork: true, NoFilesystemWrite: true, NoSubprocess: true}
	modes(t, func(t *testing.T, mode string) {
		for name, c := range map[string]struct {
			source, call tool.Guarantees
			off          bool
			could        string
			checks       int
		}{
			"nothing is asked for":    {could: `{"could": ["write", "run"]}`, checks: 1},
			"the walls are off":       {off: true, could: `{"could": ["write", "connect", "run"]}`},
			"the source asks":         {source: all, could: `{"could": []}`, checks: 3},
			"the call asks":           {call: all, could: `{"could": []}`, checks: 3},
			"and without other walls": {call: all, off: true, could: `{"could": []}`, checks: 3},
		} {
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				r := probe(t, machina.Options{Mode: mode, Plugin: dir, Options: spawn.Options{Guarantees: c.source, Walls: walls.Options{Off: c.off, Write: []string{dir}}}})
				one := call("try", args)
				one.Spec = &tool.Spec{Name: "try", Guarantees: c.call}
				result := kit.Must(r.Invoke(t.Context(), one, tool.Discard))(t)
				checks, _ := result.Trace.Details["capability_checks"].([]walls.Check)
				if string(result.Output) != c.could || len(checks) != c.checks {
					t.Errorf("%s, %v", result.Output, checks)
				}
				if level := result.Trace.Details["enforcement_level"]; (level == "none") != (c.checks == 0) {
					t.Errorf("enforcement_level is %v", level)
				}
			})
		}
	})
}

func TestStderrBecomesLogEvents(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		var got tooltest.Collect
		r := probe(t, machina.Options{Mode: mode})
		kit.Must(invoke(r, call("log", `{"wait":0.3}`), &got))(t)
		kit.Equal(t, cmp.Diff([]string{"a line on stderr"}, got.Logs()), "")
		enough := errors.New("enough")
		_, err := invoke(r, call("log", `{"wait":600}`), tool.SinkFunc(func(tool.Event) error { return enough }))
		if !errors.Is(err, enough) {
			t.Errorf("a sink that wants no more: %v", err)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]machina.Options{
		"needs a command": {},
		"serve or run":    {Command: []string{"x"}, Mode: "walk"},
		"negative":        {Command: []string{"x"}, Sessions: -1},
		"environment":     {Command: []string{"x"}, Options: spawn.Options{Env: map[string]string{"A=B": ""}}},
		"0, 1, 2 or 3":    {Command: []string{"x"}, Tiers: map[string]int{"AID": 4}},
		"needs an aid":    {Command: []string{"x"}, Tools: []machina.ToolOption{{Name: "a"}}},
		"two tools":       {Command: []string{"x"}, Tools: []machina.ToolOption{{AID: "A"}, {AID: "A"}}},
	} {
		kit.Refused(t, kit.Err(machina.New(t.Context(), "", o, nil)), tool.CodeInvalidInput, want, want)
	}
}

// The same toolhost in a container: warm sessions and single runs.
func TestAToolhostRunsInAContainer(t *testing.T) {
	modes(t, func(t *testing.T, mode string) {
		in := spawn.Options{Dir: "/", Timeout: config.Duration(time.Minute), Container: container.Options{Image: "/", Runtime: "sandbox"}}
		r, err := invoke(probe(t, machina.Options{Mode: mode, Options: in}), call("echo", `{"a":1.50}`), tool.Discard)
		if err != nil || !r.OK || r.Trace.Details["enforcement_level"] != "enforced" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
