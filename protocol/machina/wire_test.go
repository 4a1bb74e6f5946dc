package machina

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/host/process"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// contract(machina): | `input_json` | string | JSON-encoded tool input |
// contract(machina): {"aid": "AID.XX.YY.v1", "inputs": {"key": "value"}}
// contract(machina): Note: Python dispatch uses `"inputs"` (dict), while C++ toolhost expects `"input_json"` (string).
func TestInputIsAStringOrAnObject(t *testing.T) {
	for line, want := range map[string]string{
		`{"input_json":"{\"query\": \"test\"}"}`:                      `{"query": "test"}`,
		`{"input_json":"{\"s\":\"a\\\\n\\u00fc\\ud83d\\ude00\\/\"}"}`: `{"s":"a\\n\u00fc\ud83d\ude00\/"}`,
		`{"input_json":"{}\u0020\u000a"}`:                             "{} \n",
		`{"aid":"AID.XX.YY.v1","inputs":{"key":"value"}}`:             `{"key":"value"}`,
		`{"input_json":"{\"a\":1}","inputs":{"b":2}}`:                 `{"a":1}`,
		`{"input_json":""}`:                                           `{}`,
		`{}`:                                                          `{}`,
	} {
		req, err := newRequestReader().read([]byte(line))
		if err != nil || string(req.args) != want {
			t.Errorf("%s: %q, %v", line, req.args, err)
		}
	}
	for _, value := range []string{"null", "7", "true", "[1]", `{"key":"value"}`, `"{}"`} {
		for member, fits := range map[string]string{"input_json": "string", "inputs": "object"} {
			for _, extra := range []string{"", `,"input_json":"{}"`, `,"inputs":{"other":1}`} {
				line := `{"` + member + `":` + value + extra + `}`
				if strictjson.KindOf([]byte(value)) == fits || strings.Contains(extra, member) {
					continue
				}
				if req, err := newRequestReader().read([]byte(line)); err == nil || err.Error() != "invalid "+member || req.args != nil {
					t.Errorf("%s: %q, %v", line, req.args, err)
				}
			}
		}
	}
}

// contract(machina): | `status` | `StepStatus` enum | `"status"` | `OK` / `INVALID_PICK` / `TOOL_ERROR` / `BREAKER_TRIP` |
// contract(machina): | `output_json` | `std::string` | `"output_json"` | Tool output as JSON string |
// contract(machina): | `error` | `std::string` | `"error"` | Error description (empty on success) |
// contract(machina): "ok": true,
// contract(machina): "status": "OK",
func TestReplyEncoding(t *testing.T) {
	r := reply{ok: true, status: statusOK, output: []byte(`{"result": "..."}`), state: nothingChanged}
	kit.Equal(t, string(r.append(nil)), `{"ok":true,"status":"OK","output_json":"{\"result\": \"...\"}","error":"","ds_state":{"delta":true,"slots":{},"removed_slots":[]}}`)
	odd := reply{status: statusToolError, output: []byte("\"\x01\xff\""), err: "two\nlines \xff \"quoted\"", hit: true, state: `{"slots":{}}`}
	b := odd.append(nil)
	if err := strictjson.Check(b); err != nil || bytes.ContainsRune(b, '\n') {
		t.Errorf("%s: %v", b, err)
	}
	var got struct {
		Output string `json:"output_json"`
		Error  string `json:"error"`
		Hit    bool   `json:"idempotent_hit"`
	}
	if err := json.Unmarshal(b, &got); err != nil || got.Output != "\"\x01\uFFFD\"" || got.Error != "two\nlines \uFFFD \"quoted\"" || !got.Hit {
		t.Errorf("%+v, %v", got, err)
	}
}

// contract(machina): "type": "timeout|crash|parse_error|not_found|exception",
// contract(machina): "detail": "human-readable description"
// contract(machina): | `exception` | Python-side exception |
func TestToolhostExitsAreClassified(t *testing.T) {
	ok, no := []byte(`{"ok":true,"status":"OK"}`), []byte(`{"ok":false,"error":"no"}`)
	for name, c := range map[string]struct {
		p    process.Printout
		code tool.Code
		typ  string
	}{
		"answered":          {process.Printout{Doc: ok}, "", ""},
		"exit 1":            {process.Printout{Doc: ok, Exit: process.Exit{Code: 1}}, tool.CodeCrash, "crash"},
		"killed":            {process.Printout{Exit: process.Exit{Code: -1, Signal: 9}}, tool.CodeCrash, "crash"},
		"usage":             {process.Printout{Exit: process.Exit{Code: 2}}, tool.CodeCrash, "crash"},
		"plugin missing":    {process.Printout{Doc: no, Exit: process.Exit{Code: 3}}, tool.CodeUnavailable, "not_found"},
		"unknown aid":       {process.Printout{Doc: no, Exit: process.Exit{Code: 4}}, tool.CodeNotFound, "not_found"},
		"3, and no word":    {process.Printout{Last: "a stack trace", Exit: process.Exit{Code: 3}}, tool.CodeCrash, "crash"},
		"4, and no word":    {process.Printout{Doc: []byte(" \n"), Exit: process.Exit{Code: 4}}, tool.CodeCrash, "crash"},
		"4, and no refusal": {process.Printout{Doc: []byte("{}"), Exit: process.Exit{Code: 4}}, tool.CodeCrash, "crash"},
		"bad JSON":          {process.Printout{Exit: process.Exit{Code: 5}}, tool.CodeCrash, "crash"},
		"nothing":           {process.Printout{Doc: []byte(" \n")}, tool.CodeProtocol, "empty_output"},
		"too long":          {process.Printout{Err: &bounded.LimitError{What: "the document", Max: maxReply}}, tool.CodeProtocol, "parse_error"},
		"our own exception": {process.Printout{Err: errors.New("EIO")}, tool.CodeInternal, "exception"},
	} {
		err := judge(&c.p, "AID.XX")
		if c.code == "" {
			kit.Check(t, err, name)
			continue
		}
		if e := tool.AsError(err); e == nil || e.Code != c.code || e.Reason != c.typ {
			t.Errorf("%s: %+v", name, err)
		}
	}
	for _, typ := range []string{typeTimeout, typeCrash, typeParseError, typeNotFound, typeException, typeEmptyOutput, typeToolError} {
		e := structured(typ, "AID.XX.YY.v1", "why %d", 7)
		if e.Reason != typ || string(e.Details) != `{"aid":"AID.XX.YY.v1","detail":"why 7","error":true,"type":"`+typ+`"}` {
			t.Errorf("%+v", e)
		}
	}
}

func TestTheConfigOfASource(t *testing.T) {
	text := `sources:
  - name: th
    protocol: machina
    command: [./machina_toolhost, -v]
    plugin: ./probe.so
    mode: run
    tools: [{aid: AID.MEMORY.QUERY.v1, name: query, title: Query, description: Asks., input: {type: object}, output: {type: object}, effects: {reads: true}, tier: 1}]
    tiers: {AID.MEMORY.QUERY.v1: 2}
    sessions: 3
    timeout: 5s
    max_reply: 1000
    dir: sub
    env: {A: b}
    pass_env: [LANG]
    guarantees: {no_network: true}
`
	dir := t.TempDir()
	cfg := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))(t)
	opened := kit.Must(Open(t.Context(), cfg.Sources[0], nil))(t)
	r := opened.(*Runner)
	if r.host.Argv[0] != filepath.Join(dir, "sub/machina_toolhost") || r.host.Dir != filepath.Join(dir, "sub") || r.o.Sessions != 3 || r.o.MaxReply != 1000 {
		t.Errorf("%+v", r.o)
	}
	want := &tool.Spec{
		Name: "query", Title: "Query", Description: "Asks.", Aliases: []string{"AID.MEMORY.QUERY.v1"}, Tier: 2, TierFrom: tool.TierConfig, Timeout: 5 * time.Second,
		Effects: tool.Effects{Reads: true}, Guarantees: tool.Guarantees{NoNetwork: true},
		Input: r.specs[0].Input, Output: r.specs[0].Output, Walls: "reads " + r.host.Dir + "; changes nothing; network none; 512 MiB; 128 processes",
		Held: tool.Guarantees{NoNetwork: true, NoEnvWrite: true, Sandbox: true}, Room: r.specs[0].Room,
	}
	if !reflect.DeepEqual(r.specs[0], want) || string(want.Input) != `{"type":"object"}` {
		t.Errorf("%+v", r.specs[0])
	}
	kit.Check(t, r.Close(t.Context()))
}

func TestTheTimeoutOfTheEnvironment(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 30 * time.Second, "7": 7 * time.Second, "0.5": time.Second / 2, "x": 30 * time.Second, "-1": 30 * time.Second, "NaN": 30 * time.Second, "1e300": 30 * time.Second} {
		t.Setenv("MACHINA_TOOLHOST_TIMEOUT", value)
		kit.Equal(t, time.Duration(Options{}.withDefaults().Timeout), want, value)
	}
}

func FuzzQuoted(f *testing.F) {
	for _, seed := range []string{``, `{"a":"b\\c"}`, "\x00\x1f\x7f\xff", "ü日🔧\u2028", `\u0041\ud83d`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		quoted := strictjson.AppendString(nil, text)
		var s string
		if err := strictjson.Unmarshal(quoted, &s); err != nil || s != strings.ToValidUTF8(string(text), "\uFFFD") && s != string(bytes.ToValidUTF8(text, []byte("\uFFFD"))) {
			t.Errorf("%q became %s: %v", text, quoted, err)
		}
		if got := unquoted(quoted); string(got) != s {
			t.Errorf("%s became %q, not %q", quoted, got, s)
		}
		if strictjson.Check(text) == nil && strictjson.KindOf(text) == "string" {
			trimmed := bytes.TrimSpace(text)
			if err := strictjson.Unmarshal(trimmed, &s); err != nil || string(unquoted(trimmed)) != s {
				t.Errorf("%s: %q, not %q", text, unquoted(trimmed), s)
			}
		}
	})
}
