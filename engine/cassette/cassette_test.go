package cassette_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolpost/engine/cassette"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func env() cassette.Env {
	same := func(doc json.RawMessage) json.RawMessage { return doc }
	return cassette.Env{Args: same, Clean: same, Bytes: func(b []byte) []byte { return b }}
}

// record makes calls through the stage of a recorder, several at once.
func record(t *testing.T, path string, calls int) *cassette.Recorder {
	t.Helper()
	r := kit.Must(cassette.Create(path, "test"))(t)
	r.In(env())
	h := r.For(&tool.Spec{Name: "echo", Source: "one", Input: json.RawMessage(`{"type":"object"}`)})(
		tool.HandlerFunc(func(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			return &tool.Result{OK: true, Output: c.Args}, out.Emit(tool.LogEvent("info", "hello"))
		}))
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			c := &tool.Call{Tool: "echo", Args: fmt.Appendf(nil, `{"n":%d}`, i)}
			kit.Check(t, kit.Err(h.Invoke(t.Context(), c, tool.Discard)))
		})
	}
	wg.Wait()
	return r
}

func read(text string) (*cassette.Tape, error) { return cassette.Read(strings.NewReader(text)) }

func TestCassetteIsReadableWhereverItIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	record(t, path, 20) // and is killed, without a Close
	whole := kit.Must(os.ReadFile(path))(t)
	if tape, err := read(string(whole)); err != nil || len(tape.Calls) != 20 || len(tape.Tools) != 1 {
		t.Fatalf("%+v, %v", tape, err)
	}
	lines := 0
	for cut := 1; cut <= len(whole); cut++ { // wherever a write was cut
		tape, err := read(string(whole[:cut]))
		if whole[cut-1] == '\n' {
			lines++
		}
		switch {
		case lines == 0 && err == nil:
			t.Fatalf("%d bytes are a cassette", cut)
		case lines > 0 && (err != nil || len(tape.Calls) != max(lines-2, 0)):
			t.Fatalf("%d bytes with %d lines: %d calls, %v", cut, lines, len(tape.Calls), err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v, %v", info.Mode(), err)
	}
	kit.Refused(t, kit.Err(cassette.Create(path, "test")), tool.CodeConflict, "", "a cassette is written over")
}

func TestInvalidCassetteErrorNamesTheLine(t *testing.T) {
	const head, one = `{"cassette":{"version":1,"made":"2026-11-16T00:00:00Z"}}`, `{"tool":{"name":"a","source":"s","protocol":"p","tier":0}}`
	call := func(more string) string {
		return `{"call":{"source":"s","tool":"a","at":"2026-11-16T00:00:00Z","ms":1` + more + `}}`
	}
	for name, c := range map[string]struct{ text, says string }{
		"empty":            {"", "empty"},
		"half a line":      {head, "empty"},
		"no JSON":          {"hello\n", "line 1"},
		"another document": {"{}\n", "no cassette"},
		"a later version":  {`{"cassette":{"version":2,"made":"2026-11-16T00:00:00Z"}}` + "\n", "version 2"},
		"an unknown line":  {head + "\n{\"song\":1}\n", "line 2"},
		"an empty line":    {head + "\n\n", "line 2"},
		"two heads":        {head + "\n" + head + "\n", "neither a tool nor a call"},
		"a nameless tool":  {head + "\n{\"tool\":{\"name\":\"\",\"source\":\"s\",\"protocol\":\"p\",\"tier\":0}}\n", "a name"},
		"an unknown tool":  {head + "\n" + call(`,"result":{"ok":true}`) + "\n", "s.a"},
		"no outcome":       {head + "\n" + one + "\n" + call("") + "\n", "either a result or an error"},
		"two outcomes":     {head + "\n" + one + "\n" + call(`,"result":{"ok":true},"error":{"code":"crash","message":"x"}`) + "\n", "either"},
		"doubled keys":     {head + "\n" + one + "\n" + call(`,"ms":2,"result":{"ok":true}`) + "\n", "line 3"},
		"invalid UTF-8":    {head + "\n" + one + "\n" + call(`,"run":"`+"\xff"+`","result":{"ok":true}`) + "\n", "line 3"},
		"too deep":         {head + "\n" + one + "\n" + call(`,"result":{"ok":true,"output":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`) + "\n", "line 3"},
		"too long":         {head + "\n" + strings.Repeat("x", 65<<20), "longer than"},
	} {
		if tape, err := read(c.text); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", name, tape, err)
		}
	}
}

func TestADiskThatIsFullIsToldAtTheEnd(t *testing.T) {
	r, err := cassette.Create("/dev/full", "test")
	if err == nil {
		_, err = r.Close()
	}
	kit.Fails(t, err, "", "nobody is told")
}

func TestUnansweredCallsAreNotRecorded(t *testing.T) {
	r := kit.Must(cassette.Create(filepath.Join(t.TempDir(), "run.jsonl"), "test"))(t)
	r.In(env())
	ctx, cancel := context.WithCancel(t.Context())
	h := r.For(&tool.Spec{Name: "echo", Source: "one"})(tool.HandlerFunc(
		func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
			if ctx.Err() != nil {
				return nil, tool.Ended(ctx)
			}
			return &tool.Result{OK: true}, nil
		}))
	_, _ = h.Invoke(ctx, &tool.Call{DryRun: true}, tool.Discard)
	cancel()
	_, _ = h.Invoke(ctx, &tool.Call{}, tool.Discard)
	if n, err := r.Close(); n != 0 || err != nil {
		t.Errorf("%d calls, %v", n, err)
	}
	if r.For(nil) != nil || r.For(&tool.Spec{Name: "audit.log", Source: "toolpost"}) != nil {
		t.Error("own tools are recorded")
	}
}

// A replay has other approvers, or none: of a call that was approved, the cassette has the outcome.
func TestApprovedCallIsRecordedAsOneCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	r := kit.Must(cassette.Create(path, "test"))(t)
	e := env()
	e.Args = func(doc json.RawMessage) json.RawMessage {
		return bytes.ReplaceAll(doc, []byte("hunter2"), []byte("[redacted]"))
	}
	r.In(e)
	h := r.For(&tool.Spec{Name: "login", Source: "one"})(tool.HandlerFunc(
		func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
			switch c.Resume {
			case "":
				return &tool.Result{Ask: &tool.Ask{ID: "apr_1", Kind: tool.AskApproval}}, nil
			case "apr_1":
				c.Record.Approval = tool.Approval{ID: "apr_1", By: "bob"}
				return &tool.Result{Ask: &tool.Ask{ID: "q", Message: "Password?"}}, nil
			}
			return &tool.Result{OK: true}, nil
		}))
	for _, c := range []tool.Call{
		{}, {Resume: "apr_1", Answers: json.RawMessage(`{"approve":true}`)},
		{Resume: "q", Answers: json.RawMessage(`{"password":"hunter2"}`)},
	} {
		c.Record = &tool.Record{}
		kit.Must(h.Invoke(t.Context(), &c, tool.Discard))(t)
	}
	kit.Must(r.Close())(t)
	text := kit.Must(os.ReadFile(path))(t)
	tape, err := read(string(text))
	if err != nil || len(tape.Calls) != 2 || tape.Calls[0].Resumed || tape.Calls[0].Answers != nil || !tape.Calls[1].Resumed ||
		strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "apr_1") {
		t.Errorf("%s, %v", text, err)
	}
}
