package narratoria_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/sandbox"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/narratoria"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// doorEnv makes this test program a door in front of the reference tools, so that the runner can run it.
const doorEnv = "NARRATORIA_TEST_DOOR"

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	name := os.Getenv(doorEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := (narratoria.Door{Tool: name, In: os.Stdin, Out: os.Stdout}).Serve(ctx, tooltest.Reference{}, tooltest.Reference{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve returns a door's answer, after the independent checker has compared it with the contract.
func serve(t *testing.T, h tool.Handler, stdin, requestID string) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	door := narratoria.Door{Tool: "torch", In: strings.NewReader(stdin), Out: &out, Caller: tool.Principal{ID: "me", Door: "narratoria"}}
	kit.OK(t, door.Serve(t.Context(), h, tooltest.Reference{}))
	return checked(t, out.Bytes(), requestID)
}

func checked(t *testing.T, ndjson []byte, requestID string) []map[string]any {
	t.Helper()
	cmd := exec.Command("python3", filepath.Join("testdata", "check.py"))
	if requestID != "" {
		cmd.Args = append(cmd.Args, requestID)
	}
	cmd.Stdin = bytes.NewReader(ndjson)
	b, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("the checker says: %s\n%s", exit.Stderr, ndjson)
	} else if err != nil {
		t.Fatal(err)
	}
	var events []map[string]any
	kit.OK(t, json.Unmarshal(b, &events))
	for _, e := range events {
		for _, name := range []string{"version", "timestamp", "requestId"} { // checked
			delete(e, name)
		}
	}
	return events
}

func wantLines(t *testing.T, got []map[string]any, want ...string) {
	t.Helper()
	var have []string
	for _, e := range got {
		b, _ := json.Marshal(e)
		have = append(have, string(b))
	}
	kit.Equal(t, cmp.Diff(want, have), "", "lines (- wanted, + got)")
}

// emits is a tool that emits these events and ends with this outcome.
func emits(r *tool.Result, err error, events ...tool.Event) tool.Handler {
	return tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		for _, e := range events {
			if err := out.Emit(e); err != nil {
				return nil, err
			}
		}
		return r, err
	})
}

func TestDoorTellsEveryKindOfEvent(t *testing.T) {
	h := emits(&tool.Result{OK: true, Summary: "lit", Output: []byte("{\n\"n\": 1.50}")}, nil,
		tool.NewEvent(tool.KindLog, tool.Log{Level: "warn", Message: "m\n", Fields: []byte(`{"a":1}`)}),
		tool.NewEvent(tool.KindProgress, tool.Progress{Progress: 1, Total: 4, Message: "quarter"}),
		tool.NewEvent(tool.KindOutput, tool.Output{Stream: "stdout", Text: "piece"}),
		tool.Event{Kind: tool.KindStatePatch, Data: []byte(`{"a":null}`)},
		tool.NewEvent(tool.KindAsset, tool.Asset{AssetID: "a", MediaType: "image/png", Path: "/a", SHA256: "x", Size: 3}),
		tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: "e", Payload: []byte(`{}`)}),
		tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: "c", Message: "m"}),
	)
	wantLines(t, serve(t, h, "", ""),
		`{"fields":{"a":1},"level":"warn","message":"m\n","type":"log"}`,
		`{"fields":{"progress":1,"total":4},"level":"info","message":"quarter","type":"log"}`,
		`{"fields":{"stream":"stdout"},"level":"info","message":"piece","type":"log"}`,
		`{"patch":{"a":null},"type":"state_patch"}`,
		`{"assetId":"a","kind":"file","mediaType":"image/png","path":"/a","type":"asset"}`,
		`{"event":"e","payload":{},"type":"ui_event"}`,
		`{"errorCode":"c","errorMessage":"m","type":"error"}`,
		`{"ok":true,"output":{"n":1.5},"summary":"lit","type":"done"}`)
}

func TestDoorNeverSendsAnEventThatBreaksTheContract(t *testing.T) {
	h := emits(&tool.Result{OK: true}, nil,
		tool.NewEvent(tool.KindLog, tool.Log{Level: "loud", Message: "m"}),
		tool.Event{Kind: tool.KindStatePatch, Data: []byte(`[1]`)},
		tool.NewEvent(tool.KindAsset, tool.Asset{AssetID: "a", MediaType: "picture", Path: "/a"}),
		tool.Event{Kind: "dance", Data: []byte(`{}`)},
		tool.Event{Kind: tool.KindError, Data: []byte(`{"errorCode":"c","errorMessage":"m","type":"done","version":"1"}`)},
		tool.Event{Kind: tool.KindUIEvent, Data: []byte("{\"event\":\"\xff\"}")},
		tool.Event{Kind: tool.KindOutput, Data: []byte(`{"text":7}`)},
		tool.Event{Kind: tool.KindProgress, Data: []byte(`nonsense`)},
	)
	got := serve(t, h, "", "")
	kit.MustEqual(t, len(got), 9, got)
	wantLines(t, got[4:5], `{"errorCode":"c","errorMessage":"m","type":"error"}`)
	for _, e := range append(got[:4:4], got[5:8]...) {
		if e["type"] != "log" || e["level"] != "warn" || !strings.Contains(fmt.Sprint(e["message"]), "is left out") {
			t.Errorf("got %v", e)
		}
	}
}

func TestDoorEndsWithExactlyOneDone(t *testing.T) {
	for name, c := range map[string]struct {
		handler tool.Handler
		want    []string
	}{
		"a result that is no object": {emits(&tool.Result{OK: true, Output: []byte(`[1]`)}, nil), []string{
			`{"ok":true,"output":{"value":[1]},"type":"done"}`}},
		"no output": {emits(&tool.Result{OK: true}, nil), []string{`{"ok":true,"type":"done"}`}},
		"a failure of the tool": {emits(&tool.Result{Summary: "s", Failure: &tool.Error{Code: tool.CodeToolError, Reason: "ValueError", Message: "m", Details: []byte(`1`)}}, nil), []string{
			`{"details":{"value":1},"errorCode":"ValueError","errorMessage":"m","type":"error"}`,
			`{"ok":false,"summary":"s","type":"done"}`}},
		"a failure without a word": {emits(&tool.Result{}, nil), []string{
			`{"errorCode":"tool_error","errorMessage":"the tool failed and did not say why","type":"error"}`,
			`{"ok":false,"type":"done"}`}},
		"a refusal": {emits(nil, tool.Errorf(tool.CodeLeaseRejected, "no").Because("expired")), []string{
			`{"details":{"reason":"expired"},"errorCode":"lease_rejected","errorMessage":"no","type":"error"}`,
			`{"ok":false,"summary":"no","type":"done"}`}},
		"an error with bytes that are not text": {emits(nil, errors.New("bad \xff")), []string{
			`{"errorCode":"internal","errorMessage":"bad �","type":"error"}`,
			`{"ok":false,"summary":"bad �","type":"done"}`}},
		"a failure that the tool has told of": {emits(&tool.Result{Failure: &tool.Error{Reason: "wet", Message: "the wood is wet"}}, nil,
			tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: "wet", Message: "the wood is wet"}), tool.LogEvent("info", "m")), []string{
			`{"errorCode":"wet","errorMessage":"the wood is wet","type":"error"}`,
			`{"level":"info","message":"m","type":"log"}`, `{"ok":false,"type":"done"}`}},
		"a failure that the tool has told of, and summed up": {emits(&tool.Result{Summary: "no fire", Failure: &tool.Error{Reason: "wet", Message: "no fire"}}, nil,
			tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: "wet", Message: "the wood is wet"})), []string{
			`{"errorCode":"wet","errorMessage":"the wood is wet","type":"error"}`, `{"ok":false,"summary":"no fire","type":"done"}`}},
		"a failure of another kind than the tool has told of": {emits(&tool.Result{Failure: &tool.Error{Reason: "wet", Message: "m"}}, nil,
			tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: "dark", Message: "m"})), []string{
			`{"errorCode":"dark","errorMessage":"m","type":"error"}`,
			`{"errorCode":"wet","errorMessage":"m","type":"error"}`, `{"ok":false,"type":"done"}`}},
		"progress that a log event has told": {emits(&tool.Result{OK: true}, nil,
			tool.NewEvent(tool.KindLog, tool.Log{Level: "info", Message: "half", Fields: []byte(`{"progress":1,"total":2}`)}),
			tool.NewEvent(tool.KindProgress, tool.Progress{Progress: 1, Total: 2, Message: "half"}),
			tool.NewEvent(tool.KindProgress, tool.Progress{Progress: 2, Total: 2, Message: "half"})), []string{
			`{"fields":{"progress":1,"total":2},"level":"info","message":"half","type":"log"}`,
			`{"fields":{"progress":2,"total":2},"level":"info","message":"half","type":"log"}`, `{"ok":true,"type":"done"}`}},
		"a question": {emits(&tool.Result{Ask: &tool.Ask{ID: "q", Message: "sure?"}}, nil), []string{
			`{"event":"ask","payload":{"id":"q","message":"sure?"},"type":"ui_event"}`,
			`{"ok":true,"summary":"it asks: sure?","type":"done"}`}},
	} {
		t.Run(name, func(t *testing.T) { wantLines(t, serve(t, c.handler, "", ""), c.want...) })
	}
}

func TestDoorHasAWordForEveryCode(t *testing.T) {
	for _, code := range tool.Codes() {
		var out bytes.Buffer
		door := narratoria.Door{Tool: "torch", Out: &out}
		kit.OK(t, door.Serve(t.Context(), emits(nil, tool.Errorf(code, "m")), nil))
		kit.Contains(t, out.String(), `"errorCode":"`+string(code)+`","errorMessage":"m"`, code)
	}
}

func TestDoorReadsTheRequest(t *testing.T) {
	var call *tool.Call
	h := tool.HandlerFunc(func(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		call = c
		return &tool.Result{OK: true}, out.Emit(tool.LogEvent("info", "m"))
	})
	for stdin, want := range map[string]string{
		"": `{}`,
		`{"requestId":"r-1","tool":"other","operation":"o","input":{"a":1.50}}` + "\n": `{"a":1.50}`,
		`{"requestId":"r-1","a":1.50,"b":[]}`:                                          `{"a":1.50,"b":[]}`,
	} {
		id := ""
		if strings.Contains(stdin, "r-1") {
			id = "r-1"
		}
		serve(t, h, stdin, id) // the checker verifies that the id is repeated
		if call.Tool != "torch" || string(call.Args) != want || call.Caller.ID != "me" {
			t.Errorf("%s: got %+v", stdin, call)
		}
	}
}

func TestDoorAnswersABadRequestAndKeepsTheProtocolIntact(t *testing.T) {
	h := emits(nil, errors.New("must not be called"))
	deep := strings.Repeat(`{"a":`, 1000) + `1` + strings.Repeat(`}`, 1000)
	for name, stdin := range map[string]string{
		"garbage": "hello", "array": "[]", "half": `{"input":`, "duplicate": `{"a":1,"a":2}`, "UTF-8": "{\"a\":\"\xff\"}",
		"input": `{"input":7}`, "id": `{"requestId":7}`, "deep": deep, "two": `{}{}`, "large": `{"a":"` + strings.Repeat("x", 9<<20) + `"}`,
	} {
		got := serve(t, h, stdin, "")
		if len(got) != 2 || got[0]["errorCode"] != "invalid_input" || got[1]["ok"] != false {
			t.Errorf("%s: got %v", name, got)
		}
	}
	serve(t, h, `{"requestId":"r-1","input":7}`, "r-1")
}

func TestDoorThatIsCancelledSaysSo(t *testing.T) {
	tooltest.NoLeaks(t)
	ctx, cancel := context.WithCancel(t.Context())
	never, stillOpen := io.Pipe()
	cancel()
	var out bytes.Buffer
	door := narratoria.Door{Tool: "torch", In: never, Out: &out}
	kit.OK(t, door.Serve(ctx, tooltest.Reference{}, tooltest.Reference{}))
	stillOpen.Close() // releases the reader
	if got := checked(t, out.Bytes(), ""); got[0]["errorCode"] != "cancelled" {
		t.Errorf("got %v", got)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestDoorStopsTheCallWhenItsOutputCloses(t *testing.T) {
	door := narratoria.Door{Tool: "flood", Out: broken{}}
	if err := door.Serve(t.Context(), tooltest.Reference{}, tooltest.Reference{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

// throughDoor runs the reference tools as Narratoria tools: our runner in front of our door.
func throughDoor(t testing.TB) standard {
	exe := kit.Must(os.Executable())(t)
	s := standard{}
	for _, spec := range tooltest.Specs() {
		env := map[string]string{doorEnv: spec.Name, "GORACE": "atexit_sleep_ms=0"} // otherwise every call takes a second under the race detector
		s[spec.Name] = newRunner(t, narratoria.Options{Tool: spec.Name, Command: []string{exe}, Options: spawn.Options{Env: env}})
	}
	return s
}

// A crash behind a door is a failure that the door reports: the stream stays intact.
func TestDoorConforms(t *testing.T) {
	tooltest.Run(t, tooltest.Subject{New: func(t testing.TB) tool.Handler { return throughDoor(t) }, Without: tooltest.Crash})
}

// A runner reads a door's account of a call as that call.
func TestDoorAndRunnerAreInverse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.png")
	kit.OK(t, os.WriteFile(file, nil, 0o600))
	events := []tool.Event{
		tool.NewEvent(tool.KindLog, tool.Log{Level: "debug", Message: "é\u2028\"", Fields: []byte(`{"a":1.50}`)}),
		{Kind: tool.KindStatePatch, Data: []byte(`{"a":{"b":null}}`)},
		tool.NewEvent(tool.KindAsset, tool.Asset{AssetID: "a", Kind: "image", MediaType: "image/png", Path: file, Metadata: []byte(`{"w":1}`)}),
		tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: "mood", Payload: []byte(`{"choices":["a"]}`)}),
		tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: "c", Message: "m", Details: []byte(`{"d":1}`)}),
	}
	for name, want := range map[string]*tool.Result{
		"success": {OK: true, Summary: "s", Output: []byte(`{"n":1.50}`)},
		"failure": {Summary: "s", Output: []byte(`{"n":1}`), Failure: &tool.Error{Code: tool.CodeToolError, Reason: "wet", Message: "s", Details: []byte(`{"x":1}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			kit.OK(t, (narratoria.Door{Tool: "torch", Out: &out}).Serve(t.Context(), emits(want, nil, events...), nil))
			got := say(t, narratoria.Options{Options: spawn.Options{Walls: walls.Options{Read: []string{dir}}}}, script{Bytes: out.Bytes()})
			if got.err != nil {
				t.Fatal(got.err)
			}
			got.result.Trace = tool.Trace{}
			kit.Equal(t, cmp.Diff(want, got.result), "")
			expected := events
			if !want.OK { // a failure is reported by one more error event
				expected = append(expected[:len(expected):len(expected)],
					tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: "wet", Message: "s", Details: []byte(`{"x":1}`)}))
			}
			for i := range got.events {
				got.events[i].Time, got.events[i].File = expected[i].Time, nil
			}
			kit.Equal(t, cmp.Diff(expected, got.events), "")
		})
	}
}
