package namel3ss

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"toolpost/host/sandbox"
	"toolpost/host/spawn"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

var update = flag.Bool("update", false, "write the replies of the transcripts anew")

// doorVariable makes the test binary serve the standard tools at this door, as `toolpost as namel3ss` would, instead of
// running tests.
const doorVariable = "NAMEL3SS_TEST_DOOR"

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if os.Getenv(doorVariable) != "" {
		door := &Door{In: os.Stdin, Out: os.Stdout, Log: os.Stderr}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // like the program: a tool that hangs is no deadlock
		defer stop()
		if err := door.Serve(ctx, tooltest.Reference{}, tooltest.Reference{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if root := os.Getenv(hangVariable); root != "" {
		hangFor(root)
	}
	if root := os.Getenv(idleVariable); root != "" {
		idleFor(root)
	}
	tooltest.DirectPython()
	os.Exit(m.Run())
}

// behind is the handler behind the door in the transcripts.
func behind(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	switch c.Tool {
	case "refuse":
		var e tool.Error
		err := strictjson.Unmarshal(c.Args, &e)
		return nil, errors.Join(&e, err)
	case "ask":
		return &tool.Result{Ask: &tool.Ask{ID: "1", Message: "which one?"}}, nil
	case "silent":
		return &tool.Result{OK: true}, nil
	}
	return tooltest.Reference{}.Invoke(ctx, c, out)
}

func serve(t testing.TB, d Door, in string) string {
	t.Helper()
	var out bytes.Buffer
	d.In, d.Out = strings.NewReader(in), &out
	kit.OK(t, d.Serve(t.Context(), tool.HandlerFunc(behind), nil))
	return out.String()
}

func TestDoorTranscripts(t *testing.T) {
	const file = "testdata/door.txtar"
	ar := kit.Must(txtar.ParseFile(file))(t)
	for i := 0; i+1 < len(ar.Files); i += 2 {
		name, _, _ := strings.Cut(ar.Files[i].Name, "/")
		got := serve(t, Door{}, string(ar.Files[i].Data))
		if *update {
			ar.Files[i+1].Data = []byte(got)
		} else if want := string(ar.Files[i+1].Data); got != want {
			t.Errorf("%s:\n got %s want %s", name, got, want)
		}
	}
	if *update {
		kit.OK(t, os.WriteFile(file, txtar.Format(ar), 0o644))
	}
}

func TestDoorCallsItsConfiguredTool(t *testing.T) {
	got := serve(t, Door{Tool: "echo"}, `{"protocol_version":1,"tool":"fail","entry":"a:b","payload":{"a":1}}`)
	kit.Equal(t, got, `{"ok":true,"protocol_version":1,"result":{"a":1}}`+"\n")
}

func TestDoorHandsOnTraceAndCaller(t *testing.T) {
	var got *tool.Call
	h := tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		got = c
		return &tool.Result{OK: true}, nil
	})
	caller := tool.Principal{ID: "me", Door: "namel3ss"}
	d := &Door{In: strings.NewReader(`{"protocol_version":1,"tool":"x","entry":"a:b","payload":{},"trace_id":"the-trace"}`), Out: io.Discard, Caller: caller}
	if err := d.Serve(t.Context(), h, nil); err != nil || got.Trace != "the-trace" || got.Caller != caller {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDoorBoundsTheRequest(t *testing.T) {
	got := serve(t, Door{}, `{"x":"`+strings.Repeat("x", maxDocument))
	kit.Contains(t, got, `"ValueError","message":"the request is longer than 8 MiB"`)
	kit.Contains(t, serve(t, Door{}, `{"x":`+strings.Repeat("[", 1_000_000)), "nested deeper")
}

func TestDoorWritesLogEventsAsLines(t *testing.T) {
	var log bytes.Buffer
	serve(t, Door{Log: &log}, `{"protocol_version":1,"tool":"events","entry":"a:b","payload":{"count":2}}`)
	kit.Equal(t, log.String(), "info: event 1\ninfo: event 2\n")
}

func TestDoorGivesUpOnASilentPeerWhenItsContextEnds(t *testing.T) {
	tooltest.NoLeaks(t)
	r, w, err := os.Pipe()
	kit.OK(t, err)
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	if err := (&Door{In: r, Out: &out}).Serve(ctx, tooltest.Reference{}, nil); err != nil || !strings.Contains(out.String(), `"TimeoutError"`) {
		t.Errorf("%v, %s", err, out.String())
	}
}

func TestDoorTellsWhenItsReplyCannotBeWritten(t *testing.T) {
	d := &Door{In: strings.NewReader("{}"), Out: brokenWriter{}}
	if err := d.Serve(t.Context(), tooltest.Reference{}, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestEveryCodeHasItsOwnWords(t *testing.T) {
	seen := map[words]tool.Code{}
	for _, code := range tool.Codes() {
		w := wordsOf(code)
		if other, taken := seen[w]; taken || w.typ == "" {
			t.Errorf("%s and %s are both %v", code, other, w)
		}
		seen[w] = code
	}
}

// client is the other side of the door, in this process.
type client struct{}

func (client) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	doc, err := strictjson.Marshal(request{ProtocolVersion: protocolVersion, Tool: c.Tool, Entry: "a:b", Payload: c.Args, TraceID: c.Trace})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := (&Door{In: bytes.NewReader(doc), Out: &out}).Serve(ctx, tooltest.Reference{}, tooltest.Reference{}); err != nil {
		return nil, err
	}
	rep, err := parseReply(out.Bytes())
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "%w", err)
	}
	for _, code := range tool.Codes() {
		if w := wordsOf(code); !rep.OK && code != tool.CodeToolError && w == (words{rep.Error.Type, rep.Error.ReasonCode}) {
			return nil, tool.Errorf(code, "%s", rep.Error.Message)
		}
	}
	return (&trace{fields: map[string]any{}}).result(rep), nil
}

func TestDoorConforms(t *testing.T) {
	tooltest.Run(t, tooltest.Subject{
		New:     func(testing.TB) tool.Handler { return client{} },
		Without: tooltest.Events,
	})
}

// Our runner in front of our door: the test binary replaces the Python interpreter. A crash behind the door is an error
// reply, which the runner rightly takes for the tool's own failure.
func TestRunnerAndDoorAreInverses(t *testing.T) {
	self := kit.Must(os.Executable())(t)
	tooltest.Run(t, tooltest.Subject{
		New: func(t testing.TB) tool.Handler {
			r := open(t, "testdata/standard", Options{Mode: modeFresh, Interpreter: self, Options: spawn.Options{Env: map[string]string{doorVariable: "1", "GORACE": "atexit_sleep_ms=0"}}})
			return r
		},
		Without: tooltest.Events | tooltest.Crash,
	})
}

// A host written from the contract alone, in Python, in front of our door.
func TestDoorAnswersAnIndependentHost(t *testing.T) {
	tooltest.NoLeaks(t)
	self := kit.Must(os.Executable())(t)
	for _, c := range []struct{ tool, payload, want string }{
		{"echo", `{"name":"Ada"}`, `{"ok": true, "protocol_version": 1, "result": {"name": "Ada"}}`},
		{"fail", `{"message":"Missing input"}`, `{"error": {"message": "Missing input", "type": "ToolError"}, "ok": false, "protocol_version": 1}`},
		{"crash", `{}`, `"reason_code": "crash"`},
		{"nobody", `{}`, `"type": "LookupError"`},
		{"events", `{"count":3}`, `"ok": true`},
	} {
		cmd := exec.CommandContext(t.Context(), systemPython(t), "testdata/peer_host.py", c.tool, c.payload, self)
		cmd.Env = append(os.Environ(), doorVariable+"=1", "GORACE=atexit_sleep_ms=0") // otherwise each takes a second under the race detector
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: want %s, got %s, %v", c.tool, c.want, out, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"protocol_version":1,"tool":"echo","entry":"a:b","payload":{}}`, `{}`, `[]`, ``, `{"protocol_version":1e0}`, "\xff",
		`{"protocol_version":1,"tool":"a","tool":"b"}`, `{"protocol_version":1,"tool":"t","entry":"e","payload":{"a":[[[]]]},"trace_id":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b, false)
		if err == nil && strictjson.CheckObject(r.payload) != nil {
			t.Fatalf("accepted the payload %q", r.payload)
		}
	})
}
