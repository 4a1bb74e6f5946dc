package narratoria_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/host/container"
	"toolpost/host/secret"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/narratoria"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// hangGuard only keeps a broken test from hanging; nothing is measured with it.
const hangGuard = 3 * time.Minute

// python returns options that run one of the programs in testdata.
func python(script string, args ...string) narratoria.Options {
	path, err := filepath.Abs(filepath.Join("testdata", script))
	if err != nil {
		panic(err)
	}
	return narratoria.Options{Tool: "torch", Options: spawn.Options{Dir: filepath.Dir(path)}, Command: append([]string{tooltest.Python(), path}, args...)}
}

func newRunner(t testing.TB, o narratoria.Options) *narratoria.Runner {
	t.Helper()
	return kit.Must(narratoria.New(o.Dir, o))(t)
}

// An outcome is the complete outcome of a call.
type outcome struct {
	result *tool.Result
	err    error
	events []tool.Event
}

func invoke(t testing.TB, o narratoria.Options, args string) outcome {
	t.Helper()
	ctx := kit.Context(t)
	var sink tooltest.Collect
	r, err := newRunner(t, o).Invoke(ctx, &tool.Call{ID: "request-1", Tool: o.Tool, Args: json.RawMessage(args)}, &sink)
	return outcome{r, err, sink.Events()}
}

// A script is the instructions for say.py.
type script struct {
	Lines  []string `json:"lines,omitempty"`
	Bytes  []byte   `json:"bytes,omitempty"`
	End    *string  `json:"end,omitempty"`
	Stderr string   `json:"stderr,omitempty"`
	Exit   int      `json:"exit,omitempty"`
}

func say(t testing.TB, o narratoria.Options, s script) outcome {
	t.Helper()
	o.Tool, o.Command = "torch", python("say.py").Command
	args := kit.Must(json.Marshal(s))(t)
	return invoke(t, o, string(args))
}

func lines(l ...string) script { return script{Lines: l} }

const (
	doneOK = `{"version":"0","type":"done","ok":true,"summary":"Torch lit."}`
	hello  = `{"version":"0","type":"log","level":"info","message":"hello"}`
)

// wantEvents compares the kinds and the data of events.
func wantEvents(t testing.TB, got []tool.Event, want ...string) {
	t.Helper()
	var have []string
	for _, e := range got {
		have = append(have, string(e.Kind)+" "+string(e.Data))
	}
	kit.Equal(t, cmp.Diff(want, have), "", "events (- wanted, + got)")
}

func wantOK(t testing.TB, got outcome) {
	t.Helper()
	if got.err != nil || !got.result.OK {
		t.Fatalf("got %+v, %v", got.result, got.err)
	}
}

// wantError expects a *tool.Error of that code whose message contains all of these words.
func wantError(t testing.TB, got outcome, code tool.Code, words ...string) {
	t.Helper()
	if got.err == nil {
		t.Fatalf("got a result: %+v", got.result)
	}
	var e *tool.Error
	if !errors.As(got.err, &e) || e.Code != code {
		t.Errorf("got %v; want code %s", got.err, code)
	}
	for _, w := range words {
		if !strings.Contains(got.err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, got.err)
		}
	}
}

// contract(narratoria): A compliant minimal tool emits NDJSON events to stdout
// contract(narratoria): Tools MUST write output to stdout using NDJSON (one JSON object per line).
// contract(narratoria): `ok: true` indicates successful logical completion.
// contract(narratoria): Exit code 0: protocol intact. `done.ok` determines logical success.
func TestMinimalToolOfSection9(t *testing.T) {
	tooltest.NoLeaks(t)
	got := invoke(t, python("torch.py"), `{}`)
	wantOK(t, got)
	wantEvents(t, got.events, `log {"level":"info","message":"Starting"}`, `state_patch {"flags":{"torchLit":true}}`)
	if got.result.Summary != "Torch lit." || string(got.result.Output) != `{"ok":true,"summary":"Torch lit."}` {
		t.Errorf("got %+v", got.result)
	}
	details := got.result.Trace.Details
	if layers, _ := details["enforcement"].([]string); len(layers) == 0 {
		t.Errorf("the trace names no walls: %v", details)
	}
	delete(details, "enforcement")
	want := map[string]any{"requestId": "request-1", "exit_code": 0, "exit": "exit status 0", "events": 2, "assets": 0, "enforcement_level": "enforced"}
	kit.Equal(t, cmp.Diff(want, details), "")
}

// contract(narratoria): Every JSON object emitted by a tool MUST include: version, type
// contract(narratoria): `version`: string. For this spec, MUST equal "0".
// contract(narratoria): The protocol `version` string in the event envelope MUST remain "0"
func TestVersionMustEqualZero(t *testing.T) {
	wantError(t, say(t, narratoria.Options{}, lines(hello, `{"version":"1","type":"done","ok":true}`)),
		tool.CodeProtocol, "torch", "line 2", `version is "1"`)
	wantError(t, say(t, narratoria.Options{}, lines(`{"type":"done","ok":true}`)), tool.CodeProtocol, "line 1", "version is missing")
}

// contract(narratoria): If `type` is unknown, Narratoria MUST treat it as a protocol error and terminate processing for the invocation.
func TestUnknownTypeMustBeAProtocolErrorAndTerminateProcessing(t *testing.T) {
	tooltest.NoLeaks(t)
	got := say(t, narratoria.Options{}, lines(hello, `{"version":"0","type":"dance"}`, hello, doneOK))
	wantError(t, got, tool.CodeProtocol, "line 2", `unknown event type "dance"`)
	wantEvents(t, got.events, `log {"level":"info","message":"hello"}`)
}

// contract(narratoria): Each output line MUST represent a complete, valid JSON object.
func TestOutputMustBeOneJSONObjectPerLine(t *testing.T) {
	for name, line := range map[string]string{"garbage": "Hello, world", "array": `[1]`, "two": hello + hello} {
		t.Run(name, func(t *testing.T) {
			wantError(t, say(t, narratoria.Options{}, lines(hello, line, doneOK)), tool.CodeProtocol, "line 2")
		})
	}
}

// contract(narratoria): Blank lines are skipped.
func TestBlankLinesAreSkipped(t *testing.T) {
	got := say(t, narratoria.Options{}, lines("", hello, "   ", "\t\r", doneOK, "", " "))
	wantOK(t, got)
	wantEvents(t, got.events, `log {"level":"info","message":"hello"}`)
	if _, after := got.result.Trace.Details["events_after_done"]; after {
		t.Error("blank lines after done are counted as events")
	}
	end := " \t" // without a line end
	wantOK(t, say(t, narratoria.Options{}, script{Lines: []string{doneOK}, End: &end}))
	wantError(t, say(t, narratoria.Options{}, lines("", "", "garbage")), tool.CodeProtocol, "line 3") // they still count as lines
}

// contract(narratoria): All stdout content MUST be UTF-8 encoded text with Unix-style newlines (\n).
func TestOutputMustBeUTF8(t *testing.T) {
	got := say(t, narratoria.Options{}, script{Lines: []string{hello}, Bytes: []byte("{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"\xff\"}\n")})
	wantError(t, got, tool.CodeProtocol, "line 2", "UTF-8")
}

func TestAProtocolErrorQuotesTheLineSafelyAndBriefly(t *testing.T) {
	got := say(t, narratoria.Options{}, lines("\x1b[31m"+strings.Repeat("x", 10_000)))
	wantError(t, got, tool.CodeProtocol, `\x1b[31mxxx`)
	if strings.Contains(got.err.Error(), "\x1b") || len(got.err.Error()) > 1000 {
		t.Errorf("not safe or not brief: %q", got.err)
	}
}

// contract(narratoria): Additional fields MAY be included and MUST be ignored unless otherwise specified.
// contract(narratoria): ignore unknown fields within known event types
// contract(narratoria): `requestId`: string. Opaque identifier provided by Narratoria.
func TestAdditionalFieldsMustBeIgnored(t *testing.T) {
	got := say(t, narratoria.Options{}, lines(
		`{"version":"0","type":"log","level":"info","message":"m","x":1,"patch":7,"ok":"no","requestId":"other","nested":{"type":"done"}}`,
		`{"version":"0","type":"done","ok":true,"future":[1,2]}`))
	wantOK(t, got)
	wantEvents(t, got.events, `log {"level":"info","message":"m"}`)
}

// contract(narratoria): MUST NOT treat log events as errors.
func TestLogEventsMustNotBeErrors(t *testing.T) {
	got := say(t, narratoria.Options{}, lines(`{"version":"0","type":"log","level":"error","message":"bad","fields":{"n":1.50}}`, doneOK))
	wantOK(t, got)
	wantEvents(t, got.events, `log {"level":"error","message":"bad","fields":{"n":1.50}}`)
}

// contract(narratoria): "level": "debug" | "info" | "warn" | "error"
func TestLogLevelsAreDebugInfoWarnError(t *testing.T) {
	level := func(l string) string { return `{"version":"0","type":"log","level":"` + l + `","message":"m"}` }
	wantOK(t, say(t, narratoria.Options{}, lines(level("debug"), level("info"), level("warn"), level("error"), doneOK)))
	wantError(t, say(t, narratoria.Options{}, lines(level("fatal"), doneOK)), tool.CodeProtocol, "line 1", `level is "fatal"`)
}

// contract(narratoria): `patch` MUST be a JSON object.
func TestPatchMustBeAnObject(t *testing.T) {
	wantError(t, say(t, narratoria.Options{}, lines(`{"version":"0","type":"state_patch","patch":[1]}`, doneOK)),
		tool.CodeProtocol, "patch must be a JSON object")
	got := say(t, narratoria.Options{}, lines(`{"version":"0","type":"state_patch","patch":{"a":{"b":null},"n":10000000000000000000000.10}}`, doneOK))
	wantOK(t, got)
	wantEvents(t, got.events, `state_patch {"a":{"b":null},"n":10000000000000000000000.10}`)
}

// assetLine describes a file as an asset.
func assetLine(id, mediaType, path string) string {
	b, _ := json.Marshal(map[string]any{"version": "0", "type": "asset", "assetId": id, "kind": "image", "mediaType": mediaType, "path": path})
	return string(b)
}

// contract(narratoria): `assetId` MUST be unique within the tool invocation.
// contract(narratoria): `mediaType` MUST be a valid MIME type string.
// contract(narratoria): `path` MUST refer to a file readable by Narratoria.
// contract(narratoria): Narrratoria MUST validate that asset files exist and are readable before registering them.
// contract(narratoria): MUST NOT require tools to use specific output directories in Spec 001.
func TestAssetsAreCheckedAndABadOneDoesNotEndTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "a.png"), filepath.Join(dir, "fifo")
	kit.OK(t, errors.Join(os.WriteFile(file, []byte("png"), 0o600), syscall.Mkfifo(fifo, 0o600)))
	bad := map[string]struct{ line, words string }{
		"assetId must be unique":          {assetLine("good", "image/png", file), "used before"},
		"assetId must be there":           {`{"version":"0","type":"asset","kind":"k","mediaType":"image/png","path":"/x"}`, "assetId is missing"},
		"assetId must not be empty":       {assetLine("", "image/png", file), "assetId is empty"},
		"assetId must be a string":        {`{"version":"0","type":"asset","assetId":7,"kind":"k","mediaType":"image/png","path":"/x"}`, "not number"},
		"assetId has a bound":             {assetLine(strings.Repeat("x", 300), "image/png", file), "longer than"},
		"mediaType must be a MIME type":   {assetLine("b", "picture", file), "not a MIME type"},
		"path must exist":                 {assetLine("b", "image/png", file+".not"), "no such file"},
		"path must be there":              {assetLine("b", "image/png", ""), "path is empty"},
		"a FIFO is not a file":            {assetLine("b", "image/png", fifo), "not a regular file"},
		"a folder is not a file":          {assetLine("b", "image/png", dir), "not a regular file"},
		"a device is not a file":          {assetLine("b", "image/png", "/dev/zero"), "not a regular file"},
		"a file of the kernel is none":    {assetLine("b", "image/png", "/proc/1/status"), "not a regular file"},
		"a path with a NUL is not a file": {assetLine("b", "image/png", "a\x00b"), "invalid argument"},
		"metadata is an object":           {`{"version":"0","type":"asset","assetId":"b","mediaType":"image/png","path":"/x","metadata":1}`, "metadata must be"},
	}
	for name, b := range bad {
		t.Run(name, func(t *testing.T) {
			got := say(t, narratoria.Options{Options: spawn.Options{Walls: walls.Options{Read: []string{dir}}}}, lines(assetLine("good", "image/png", file), b.line, hello, doneOK))
			wantOK(t, got)
			if len(got.events) != 3 || got.events[0].Kind != tool.KindAsset || got.events[1].Kind != tool.KindError || got.events[2].Kind != tool.KindLog {
				t.Fatalf("got %v", got.events)
			}
			var e tool.ErrorEvent
			if err := json.Unmarshal(got.events[1].Data, &e); err != nil || e.Code != "invalid_asset" || !strings.Contains(e.Message, b.words) {
				t.Errorf("got %+v, %v", e, err)
			}
			if got.result.Trace.Details["assets"] != 1 {
				t.Errorf("trace: %v", got.result.Trace.Details)
			}
		})
	}
}

func TestPathMustBeReadable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret") // root could read it, but not a tool that root runs
	kit.OK(t, os.WriteFile(file, nil, 0o200))
	got := say(t, narratoria.Options{Options: spawn.Options{Walls: walls.Options{Read: []string{dir}}}}, lines(assetLine("a", "image/png", file), doneOK))
	wantOK(t, got)
	if len(got.events) != 1 || !strings.Contains(string(got.events[0].Data), "permission denied") {
		t.Errorf("got %v", got.events)
	}
}

// contract(narratoria): `path` MUST be an absolute path or a path resolvable by Narratoria's current working directory.
// contract(narratoria): `metadata` MAY include arbitrary details (width, height, framerate, camera data, etc.).
// contract(narratoria): degrade gracefully on unknown MIME types or unknown `ui_event` names
func TestAssetPathsMayBeRelativeToTheToolsFolder(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "a.x"), nil, 0o600))
	line := `{"version":"0","type":"asset","assetId":"a","kind":"model","mediaType":"model/never-heard-of","path":"a.x","metadata":{"w":1.0}}`
	got := say(t, narratoria.Options{Options: spawn.Options{Dir: dir}}, lines(line, doneOK))
	wantOK(t, got)
	wantEvents(t, got.events,
		`asset {"assetId":"a","kind":"model","mediaType":"model/never-heard-of","path":"`+filepath.Join(dir, "a.x")+`","metadata":{"w":1.0}}`)
}

// contract(narratoria): `event` MUST be a string identifying an action known to Narratoria.
// contract(narratoria): `payload` MAY be omitted or MAY contain arbitrary event parameters.
// contract(narratoria): Narratoria MUST: Dispatch supported events to their handlers.
// contract(narratoria): the `narrative_choice` event MUST be supported
func TestUIEventsPassThroughUntouched(t *testing.T) {
	got := say(t, narratoria.Options{}, lines(
		`{"version":"0","type":"ui_event","event":"never_heard_of","payload":{"a":[1.0]}}`,
		`{"version":"0","type":"ui_event","event":"bare"}`,
		`{"version":"0","type":"ui_event","event":"narrative_choice","payload":{"choices":["north",{"id":"s","label":"south","hint":"cold"}]}}`,
		doneOK))
	wantOK(t, got)
	if got.result.Ask != nil {
		t.Errorf("choices are a question: %+v", got.result.Ask)
	}
	wantEvents(t, got.events,
		`ui_event {"event":"never_heard_of","payload":{"a":[1.0]}}`,
		`ui_event {"event":"bare"}`,
		`ui_event {"event":"narrative_choice","payload":{"choices":["north",{"id":"s","label":"south","hint":"cold"}]}}`)
}

func TestAMalformedNarrativeChoiceDegrades(t *testing.T) {
	got := say(t, narratoria.Options{}, lines(`{"version":"0","type":"ui_event","event":"narrative_choice","payload":{"choices":[7]}}`, doneOK))
	wantOK(t, got)
	wantEvents(t, got.events,
		`ui_event {"event":"narrative_choice","payload":{"choices":[7]}}`)
}

// contract(narratoria): Error events MUST NOT terminate the invocation by themselves.
// contract(narratoria): Surface error information in logs and UI (as appropriate).
// contract(narratoria): Continue to process events until `done` or process exit.
func TestErrorEventsMustNotTerminateTheInvocation(t *testing.T) {
	fault := `{"version":"0","type":"error","errorCode":"wet","errorMessage":"too wet","details":{"n":1}}`
	got := say(t, narratoria.Options{}, lines(fault, hello, doneOK))
	wantOK(t, got)
	wantEvents(t, got.events, `error {"errorCode":"wet","errorMessage":"too wet","details":{"n":1}}`, `log {"level":"info","message":"hello"}`)
}

// contract(narratoria): `ok: false` indicates controlled logical failure.
func TestDoneNotOKIsAControlledFailure(t *testing.T) {
	first := `{"version":"0","type":"error","errorCode":"dark","errorMessage":"too dark"}`
	last := `{"version":"0","type":"error","errorCode":"wet","errorMessage":"too wet","details":{"n":1}}`
	for name, c := range map[string]struct {
		script script
		want   tool.Error
	}{
		"with all":   {lines(first, last, `{"version":"0","type":"done","ok":false,"summary":"no light"}`), tool.Error{Reason: "wet", Message: "no light", Details: []byte(`{"n":1}`)}},
		"no summary": {lines(first, `{"version":"0","type":"done","ok":false}`), tool.Error{Reason: "dark", Message: "too dark"}},
		"nothing":    {lines(`{"version":"0","type":"done","ok":false}`), tool.Error{Message: "torch failed and did not say why"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := say(t, narratoria.Options{}, c.script)
			if got.err != nil || got.result.OK {
				t.Fatalf("got %+v, %v", got.result, got.err)
			}
			c.want.Code = tool.CodeToolError
			kit.Equal(t, cmp.Diff(&c.want, got.result.Failure), "")
		})
	}
}

func TestDoneMayCarryTheOutput(t *testing.T) {
	for line, want := range map[string]string{
		`{"version":"0","type":"done","ok":true,"summary":"s","output":{"n":1.50}}`: `{"n":1.50}`,
		`{"version":"0","type":"done","ok":true,"summary":"s","output":null}`:       `{"ok":true,"summary":"s"}`,
		`{"version":"0","type":"done","ok":true}`:                                   `{"ok":true}`,
	} {
		got := say(t, narratoria.Options{}, lines(line))
		wantOK(t, got)
		kit.Equal(t, string(got.result.Output), want, line)
	}
}

// A result that is not an object would be lost silently.
func TestTheOutputOfDoneMustBeAnObject(t *testing.T) {
	for output, kind := range map[string]string{`[1]`: "array", `"text"`: "string", `7`: "number", `true`: "boolean"} {
		line := `{"version":"0","type":"done","ok":true,"summary":"s","output":` + output + `}`
		wantError(t, say(t, narratoria.Options{}, lines(hello, line)), tool.CodeProtocol, "line 2: output must be a JSON object, not "+kind)
		got := say(t, narratoria.Options{Lenient: true}, lines(line)) // existing tools do not know the rule
		wantOK(t, got)
		wantEvents(t, got.events, `log {"level":"warn","message":"line 1: output must be a JSON object, not `+kind+`; it is left out"}`)
		kit.Equal(t, string(got.result.Output), `{"ok":true,"summary":"s"}`)
	}
}

// contract(narratoria): `fields: {progress, total}` on a log event is progress as well.
func TestProgressInTheFieldsOfALogEventIsProgress(t *testing.T) {
	log := func(fields string) string {
		return `{"version":"0","type":"log","level":"info","message":"half \u00fc","fields":` + fields + `}`
	}
	for fields, want := range map[string]string{
		`{"progress":1,"total":2,"x":"y"}`:  `{"progress":1,"total":2,"message":"half \u00fc"}`,
		`{"progress":0.50}`:                 `{"progress":0.50,"message":"half \u00fc"}`,
		`{"progress":3,"total":null}`:       `{"progress":3,"message":"half \u00fc"}`,
		`{"progress":3,"total":"many"}`:     `{"progress":3,"message":"half \u00fc"}`,
		`{"progress":"50%","total":100}`:    "",
		`{"progress":true}`:                 "",
		`{"progress":1e999}`:                "",
		`{"total":2}`:                       "",
		`{"step":{"progress":1,"total":2}}`: "",
	} {
		got := say(t, narratoria.Options{}, lines(log(fields), doneOK))
		wantOK(t, got)
		all := []string{`log {"level":"info","message":"half \u00fc","fields":` + fields + `}`}
		if want != "" {
			all = append(all, "progress "+want)
		}
		wantEvents(t, got.events, all...)
	}
}

// contract(narratoria): not require any event types other than `done` for correctness
func TestNoOtherEventThanDoneIsRequired(t *testing.T) {
	wantOK(t, say(t, narratoria.Options{}, lines(`{"version":"0","type":"done","ok":true}`)))
}

// contract(narratoria): Stop accepting further events from the tool after processing `done`.
// contract(narratoria): Each invocation MUST end with exactly one `done` event OR a premature process termination.
func TestEventsAfterDoneMustNotBeAcceptedAndAreCounted(t *testing.T) {
	got := say(t, narratoria.Options{}, lines(hello, doneOK, hello, `garbage`, `{"version":"0","type":"done","ok":false}`))
	wantOK(t, got)
	wantEvents(t, got.events, `log {"level":"info","message":"hello"}`)
	kit.Equal(t, got.result.Trace.Details["events_after_done"], 3, "events_after_done")
}

func TestMissingDoneIsAFailureAlsoWithExitZero(t *testing.T) {
	wantError(t, say(t, narratoria.Options{}, lines(hello)), tool.CodeProtocol, "without a done event")
	wantError(t, say(t, narratoria.Options{}, script{Stderr: "oh dear\n"}), tool.CodeProtocol, "without a done event", "oh dear")
}

// contract(narratoria): Treat missing `done` plus a non-zero exit code as a protocol-level failure.
func TestMissingDonePlusNonZeroExitMustBeAProtocolLevelFailure(t *testing.T) {
	got := say(t, narratoria.Options{}, script{Lines: []string{hello}, Exit: 3, Stderr: "out of oil\n"})
	wantError(t, got, tool.CodeProtocol, "exit status 3", "out of oil")
	var e *tool.Error
	if errors.As(got.err, &e); !strings.Contains(string(e.Details), `"exit_code":3`) || e.Reason != "exit_status" {
		t.Errorf("reason %q, details: %s", e.Reason, e.Details)
	}
}

// contract(narratoria): Exit code != 0: protocol-level failure, regardless of any emitted events.
func TestNonZeroExitBeatsDone(t *testing.T) {
	wantError(t, say(t, narratoria.Options{}, script{Lines: []string{doneOK}, Exit: 3}), tool.CodeProtocol, "said done", "exit status 3")
}

func TestALastLineWithoutNewlineCountsWhenItIsComplete(t *testing.T) {
	none := ""
	wantOK(t, say(t, narratoria.Options{}, script{Lines: []string{hello, doneOK}, End: &none}))
	wantError(t, say(t, narratoria.Options{}, script{Lines: []string{hello, doneOK[:20]}, End: &none}), tool.CodeProtocol, "middle of line 2")
	wantError(t, say(t, narratoria.Options{}, script{Lines: []string{hello, doneOK[:20]}, End: &none, Exit: 1}),
		tool.CodeProtocol, "middle of line 2", "exit status 1")
}

// contract(narratoria): `timestamp`: string. ISO-8601 datetime.
func TestTimestampsBecomeTheTimeOfTheEvent(t *testing.T) {
	got := say(t, narratoria.Options{}, lines(
		`{"version":"0","type":"log","level":"info","message":"m","timestamp":"2026-01-24T10:00:00Z"}`, hello, doneOK))
	wantOK(t, got)
	if at := got.events[0].Time; !at.Equal(time.Date(2026, 1, 24, 10, 0, 0, 0, time.UTC)) {
		t.Errorf("got %v", at)
	}
	if at := got.events[1].Time; !at.IsZero() {
		t.Errorf("an event without a timestamp has %v", at)
	}
}

// contract(narratoria): Tools MAY write additional human-readable diagnostics to stderr without restriction.
func TestStderrIsFreeAndBecomesLogEvents(t *testing.T) {
	got := say(t, narratoria.Options{}, script{Lines: []string{doneOK}, Stderr: "{not json\nsecond\n"})
	wantOK(t, got)
	wantEvents(t, got.events,
		`log {"level":"info","message":"{not json","fields":{"stream":"stderr"}}`, `log {"level":"info","message":"second","fields":{"stream":"stderr"}}`)
}

func TestLenientRecordsAndSkipsBadLines(t *testing.T) {
	got := say(t, narratoria.Options{Lenient: true}, lines(
		`{"type":"log","level":"info","message":"no version"}`, `garbage`, `{"version":"0","type":"dance"}`, `{}`, `[1]`,
		`{"version":"7","type":"log","level":"info","message":"m"}`, `{"type":"done","ok":true}`))
	wantOK(t, got)
	if len(got.events) != 6 || string(got.events[0].Data) != `{"level":"info","message":"no version"}` {
		t.Fatalf("got %v", got.events)
	}
	for _, e := range got.events[1:] {
		if e.Kind != tool.KindLog || !strings.Contains(string(e.Data), `"level":"warn","message":"skipped line `) {
			t.Errorf("got %s", e.Data)
		}
	}
	kit.Equal(t, got.result.Trace.Details["bad_lines"], 5, "bad_lines")
}

func TestLenientStillNeedsDone(t *testing.T) {
	wantError(t, say(t, narratoria.Options{Lenient: true}, lines(hello)), tool.CodeProtocol, "without a done event")
}

func TestErrorsNameTheExceededLimit(t *testing.T) {
	tooltest.NoLeaks(t)
	long := `{"version":"0","type":"log","level":"info","message":"` + strings.Repeat("x", 2000) + `"}`
	for _, lenient := range []bool{false, true} {
		wantError(t, say(t, narratoria.Options{MaxLine: 1000, Lenient: lenient}, lines(hello, long, doneOK)), tool.CodeProtocol, "line 2", "1000")
		wantError(t, say(t, narratoria.Options{MaxOutput: 3000, Lenient: lenient}, lines(long, long, doneOK)), tool.CodeProtocol, "3000")
	}
}

type seen struct {
	Raw   string
	Argv  []string
	Env   map[string]string
	Cwd   string
	Alone bool
}

func mirror(t *testing.T, o narratoria.Options, args string) seen {
	t.Helper()
	o.Tool, o.Command = "torch", python("mirror.py", "one", "two").Command
	got := invoke(t, o, args)
	wantOK(t, got)
	var s seen
	kit.OK(t, json.Unmarshal(got.result.Output, &s))
	return s
}

// contract(narratoria): Narratoria MAY supply arguments and/or JSON input via stdin.
// contract(narratoria): Narratoria MAY send structured input to the tool via stdin in JSON format: requestId, tool, operation, input
func TestTheRequestIsSentOnOneLineAndStdinIsClosed(t *testing.T) {
	s := mirror(t, narratoria.Options{Operation: "light"}, "{\"who\":\n\"me\"}")
	kit.Equal(t, s.Raw, `{"requestId":"request-1","tool":"torch","operation":"light","input":{"who": "me"},"who":"me"}`+"\n")
	if d := cmp.Diff([]string{"one", "two"}, s.Argv); d != "" || !s.Alone {
		t.Errorf("argv %v, in a session of its own: %v", s.Argv, s.Alone)
	}
}

func TestToolGetsOnlyUsualAndConfiguredVariables(t *testing.T) {
	for name, value := range map[string]string{"LANG": "C.UTF-8", "TMPDIR": os.TempDir(), "SECRET": "mine", "PASSED": "on"} {
		t.Setenv(name, value)
	}
	s := mirror(t, narratoria.Options{Options: spawn.Options{Env: map[string]string{"EXTRA": "1", "LANG": "C"}, PassEnv: []string{"PASSED", "NOT_THERE"}}}, `{}`)
	want := map[string]string{"PATH": os.Getenv("PATH"), "TMPDIR": os.TempDir(), "LANG": "C", "EXTRA": "1", "PASSED": "on"}
	for _, added := range []string{"TOOLPOST_TREE", "LC_CTYPE"} { // the process package's marker, and a variable that Python sets by itself
		delete(s.Env, added)
	}
	for name := range s.Env {
		if strings.HasPrefix(name, "PYENV_") { // set by a python3 that is a shim
			delete(s.Env, name)
		}
	}
	if _, secret := s.Env["SECRET"]; secret {
		t.Error("our own environment was passed on")
	}
	for name, value := range want {
		if s.Env[name] != value && name != "PATH" {
			t.Errorf("%s is %q; want %q", name, s.Env[name], value)
		}
	}
}

func TestDeadlineAndCancelAreDistinguished(t *testing.T) {
	tooltest.NoLeaks(t)
	r := newRunner(t, python("hostile.py", "ignores_sigterm"))
	for code, end := range map[tool.Code]func(context.CancelCauseFunc){
		tool.CodeCancelled: func(c context.CancelCauseFunc) { c(nil) },
		tool.CodeTimeout:   func(c context.CancelCauseFunc) { c(tool.Errorf(tool.CodeTimeout, "too slow")) },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := r.Invoke(ctx, &tool.Call{Tool: "torch"}, tool.SinkFunc(func(tool.Event) error { end(cancel); return nil }))
		cancel(nil)
		wantError(t, outcome{err: err}, code, "torch was ended")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Invoke(ctx, &tool.Call{Tool: "torch"}, tool.Discard)
	wantError(t, outcome{err: err}, tool.CodeCancelled)
}

func TestASinkErrorFromStderrStopsTheCallToo(t *testing.T) {
	tooltest.NoLeaks(t)
	gone := errors.New("gone")
	ctx := kit.Context(t)
	r := newRunner(t, python("hostile.py", "mutters_and_stays"))
	_, err := r.Invoke(ctx, &tool.Call{Tool: "torch"}, tool.SinkFunc(func(tool.Event) error { return gone }))
	if !errors.Is(err, gone) || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
	}
}

func TestTheSinkIsUsedByOneGoroutineAtATime(t *testing.T) {
	tooltest.NoLeaks(t)
	var inside atomic.Int32
	var met atomic.Bool
	var got int
	sink := tool.SinkFunc(func(tool.Event) error {
		if inside.Add(1) > 1 {
			met.Store(true)
		}
		runtime.Gosched()
		got++
		inside.Add(-1)
		return nil
	})
	kit.Must(newRunner(t, python("hostile.py", "talks_on_both")).Invoke(t.Context(), &tool.Call{Tool: "torch"}, sink))(t)
	if met.Load() || got != 4000 {
		t.Errorf("two at a time: %v; %d events", met.Load(), got)
	}
}

func TestGuaranteesHold(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "ran")
	script := "touch '" + file + "' && echo 'wrote'\necho '" + doneOK + "'\n"
	o := narratoria.Options{Tool: "torch", Command: []string{"sh", "-c", script}, Lenient: true}
	o.Walls.Write = []string{dir}
	for name, spec := range map[string]*tool.Spec{"by its source": nil, "by policy": {Name: "torch", Guarantees: tool.Guarantees{NoFilesystemWrite: true}}} {
		t.Run(name, func(t *testing.T) {
			o := o
			if spec == nil {
				o.Guarantees.NoFilesystemWrite = true
			}
			var sink tooltest.Collect
			result := kit.Must(newRunner(t, o).Invoke(t.Context(), &tool.Call{Tool: "torch", Spec: spec}, &sink))(t)
			kit.Fails(t, kit.Err(os.Stat(file)), "", "the tool wrote a file")
			checks, _ := result.Trace.Details["capability_checks"].([]walls.Check)
			if len(checks) != 1 || checks[0].Capability != "filesystem_write" || checks[0].Target != file || checks[0].Allowed {
				t.Errorf("what it tried is not in the trace: %v", checks)
			}
			if !slices.ContainsFunc(sink.Events(), func(e tool.Event) bool { return strings.Contains(string(e.Data), `"type":"capability_check"`) }) {
				t.Errorf("what it tried is not among the events: %v", sink.Events())
			}
		})
	}
	wantOK(t, invoke(t, o, `{}`))
	kit.Check(t, kit.Err(os.Stat(file)), "without the guarantee it may write there")
}

// A tool can read its folder, and nothing else that its source does not grant.
func TestTheDefaultWalls(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Setenv("TOOLPOST_TEST_SECRET", "canary-5d1c")
	base, outside := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		filepath.Join(base, "mine"): "mine", filepath.Join(base, ".toolpost", "token"): "canary-5d1c", filepath.Join(outside, "theirs"): "canary-5d1c",
	} {
		kit.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)))
	}
	script := `cat mine .toolpost/token ` + outside + `/theirs /proc/1/environ /proc/$PPID/environ; touch new; env; echo '` + doneOK + `'`
	got := invoke(t, narratoria.Options{Tool: "torch", Command: []string{"sh", "-c", script}, Options: spawn.Options{Dir: base}, Lenient: true}, `{}`)
	wantOK(t, got)
	all, _ := json.Marshal(got.events)
	if strings.Contains(string(all), "canary") || !strings.Contains(string(all), "mine") {
		t.Errorf("%s", all)
	}
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(base, "new"))), "", "it wrote into its folder")
	// An asset is opened with the tool's rights, not with those of the host, which can read everything.
	stolen := say(t, narratoria.Options{Options: spawn.Options{Walls: walls.Options{Read: []string{base}}}}, lines(
		assetLine("a", "text/plain", filepath.Join(outside, "theirs")), assetLine("b", "text/plain", "/etc/shadow"), assetLine("c", "text/plain", "/proc/self/environ"), doneOK))
	for _, e := range stolen.events {
		kit.Equal(t, e.Kind, tool.KindError, e.Data)
	}
}

// A file in a tool's private /tmp can be an asset, even after the tool is gone.
func TestAnAssetInThePrivateTmp(t *testing.T) {
	tooltest.NoLeaks(t)
	file := fmt.Sprintf("/tmp/torch-%d.txt", os.Getpid()) // a name that the host's /tmp does not have
	script := "printf torch > " + file + "; ln -s /etc/passwd /tmp/link; echo '" + assetLine("a", "text/plain", file) +
		"'; echo '" + doneOK + "'"
	var content string
	_, err := newRunner(t, narratoria.Options{Tool: "torch", Command: []string{"sh", "-c", script}}).Invoke(t.Context(), &tool.Call{Tool: "torch"}, tool.SinkFunc(func(e tool.Event) error {
		if e.File == nil {
			t.Errorf("%s %s", e.Kind, e.Data)
			return nil
		}
		b, err := io.ReadAll(e.File)
		content = string(b)
		return err
	}))
	if err != nil || content != "torch" {
		t.Errorf("%q, %v", content, err)
	}
	kit.Fails(t, kit.Err(os.Stat(file)), "", "it is in the host's /tmp")
}

func TestAToolThatCannotBeStartedExplainsItself(t *testing.T) {
	for name, o := range map[string]narratoria.Options{
		"program": {Tool: "torch", Command: []string{"./not-there"}, Options: spawn.Options{Dir: t.TempDir()}},
		"on PATH": {Tool: "torch", Command: []string{"surely-no-such-program"}},
		"folder":  {Tool: "torch", Command: []string{"true"}, Options: spawn.Options{Dir: filepath.Join(t.TempDir(), "gone")}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, o)
			kit.Refused(t, r.Unavailable("torch"), tool.CodeUnavailable, "", "Unavailable says")
			wantError(t, invoke(t, o, `{}`), tool.CodeUnavailable)
		})
	}
	kit.Check(t, newRunner(t, python("torch.py")).Unavailable("torch"))
}

func TestAProgramWithASlashIsFoundFromItsFolder(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho '" + doneOK + "'\n"
	kit.OK(t, os.WriteFile(filepath.Join(dir, "torch.sh"), []byte(script), 0o700))
	wantOK(t, invoke(t, narratoria.Options{Tool: "torch", Command: []string{"./torch.sh"}, Options: spawn.Options{Dir: dir}}, `{}`))
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]narratoria.Options{
		"no tool":           {Command: []string{"true"}},
		"no command":        {Tool: "t"},
		"empty command":     {Tool: "t", Command: []string{""}},
		"negative":          {Tool: "t", Command: []string{"true"}, MaxLine: -1},
		"tier":              {Tool: "t", Command: []string{"true"}, Tier: new(4)},
		"name with equals":  {Tool: "t", Command: []string{"true"}, Options: spawn.Options{Env: map[string]string{"A=B": "c"}}},
		"name that is void": {Tool: "t", Command: []string{"true"}, Options: spawn.Options{Env: map[string]string{"": "c"}}},
	} {
		kit.Refused(t, kit.Err(narratoria.New(".", o)), tool.CodeInvalidInput, "", name)
	}
}

func TestASourceInTheConfigBecomesItsOneTool(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.CopyFS(filepath.Join(dir, "tools"), os.DirFS("testdata")))
	cfg := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(`
sources:
  - name: torch
    protocol: narratoria
    command: [python3, torch.py]
    dir: tools
    description: Lights it.
    input: {type: object, properties: {n: {maximum: 1.50}}}
    effects: {writes: true}
    tier: 1
    timeout: 3s
    guarantees: {}
    lenient: true
`)))(t)
	r := kit.Must(narratoria.Open(t.Context(), cfg.Sources[0], slog.New(slog.DiscardHandler)))(t)
	specs, err := r.(tool.Source).Tools(t.Context())
	want := []*tool.Spec{{
		Name: "torch", Description: "Lights it.", Input: []byte(`{"type":"object","properties":{"n":{"maximum":1.50}}}`),
		Effects: tool.Effects{Writes: true}, Tier: 1, TierFrom: tool.TierConfig, Timeout: 3 * time.Second,
		Walls: "reads " + filepath.Join(dir, "tools") + "; changes nothing; network none; 512 MiB; 128 processes",
		Held:  tool.Guarantees{NoNetwork: true, NoEnvWrite: true, Sandbox: true}, Room: specs[0].Room,
	}}
	if d := cmp.Diff(want, specs); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	got, err := r.Invoke(t.Context(), &tool.Call{Tool: "torch"}, tool.Discard)
	if err != nil || !got.OK {
		t.Errorf("got %+v, %v", got, err)
	}
	kit.Check(t, r.Close(t.Context()))
}

// standard routes each of the standard tools to its own runner.
type standard map[string]*narratoria.Runner

func (s standard) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	r := s[c.Tool]
	if r == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool %s", c.Tool)
	}
	return r.Invoke(ctx, c, out)
}

func newStandard(t testing.TB, o narratoria.Options) standard {
	s := standard{}
	for _, spec := range tooltest.Specs() {
		o.Tool = spec.Name
		s[spec.Name] = newRunner(t, o)
	}
	return s
}

// contract(narratoria): Narratoria MUST process each JSON object line-by-line as received.
func TestRunnerConforms(t *testing.T) {
	tooltest.Run(t, tooltest.Subject{New: func(t testing.TB) tool.Handler {
		return newStandard(t, narratoria.Options{Command: python("standard.py").Command})
	}, Died: tool.CodeProtocol})
}

func TestOnlyDeclaredSecretsReachATool(t *testing.T) {
	tooltest.NoLeaks(t)
	kept := tooltest.Vault{"KEY_A": "value-of-a", "KEY_B": "value-of-b", "KEY_C": "value-of-c"}
	o := narratoria.Options{Tool: "torch", Lenient: true, Command: []string{"sh", "-c", `env | grep -o value-of-.; cat <&"$KEY_B_FD"; echo; echo '` + doneOK + `'`}}
	o.Grant = secret.Grant{Secrets: []string{"KEY_A"}, SecretFiles: []string{"KEY_B"}, Vault: kept}
	got := invoke(t, o, `{}`)
	wantOK(t, got)
	said, _ := json.Marshal(got.events)
	if !strings.Contains(string(said), "value-of-a") || !strings.Contains(string(said), "value-of-b") || strings.Contains(string(said), "value-of-c") {
		t.Errorf("%s", said)
	}
	o.Secrets = []string{"NONE"}
	wantError(t, invoke(t, o, `{}`), tool.CodeUnavailable, "NONE")
}

// A tool's container is its own: its files are looked up there.
func TestAToolRunsInAContainer(t *testing.T) {
	tooltest.NoLeaks(t)
	o := narratoria.Options{Options: spawn.Options{Container: container.Options{Image: "/", Runtime: "sandbox"}}}
	got := say(t, o, lines(hello, assetLine("a", "text/plain", "/etc/passwd"), doneOK))
	wantOK(t, got)
	if d := got.result.Trace.Details; d["enforcement_level"] != "enforced" {
		t.Errorf("trace %v", d)
	}
	o.Container.Image = "/etc"
	wantError(t, say(t, o, lines(doneOK)), tool.CodeUnavailable, "was not found in /etc")
	o.Container.Image, o.Guarantees = "/", tool.Guarantees{NoSubprocess: true}
	wantError(t, say(t, o, lines(doneOK)), tool.CodeUnsupported, "no_subprocess cannot be enforced by a container")
}
