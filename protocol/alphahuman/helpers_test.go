package alphahuman

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// doorEnv makes this test program a skill in front of the reference tools, so that the runner can run it.
const doorEnv = "ALPHAHUMAN_TEST_DOOR"

// patience only guards against a hang.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if os.Getenv(doorEnv) == "" {
		tooltest.DirectPython()
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d := &Door{In: os.Stdin, Out: os.Stdout, Log: os.Stderr}
	var h interface {
		tool.Handler
		tool.Catalog
	} = tooltest.Reference{}
	if os.Getenv(doorEnv) == "patches" {
		h = shelf{"patch": patches}
	}
	if err := d.Serve(ctx, h, h); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patches is a tool that changes the state of its session by its arguments.
func patches(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true}, out.Emit(tool.Event{Kind: tool.KindStatePatch, Data: bytes.Clone(c.Args)})
}

// records keeps what is logged.
type records struct{ kit.Buffer }

func (r *records) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open makes a runner that is closed at the end of the test, and checks that it leaves nothing behind.
func open(t testing.TB, o Options) (*Runner, *records) {
	t.Helper()
	log := &records{}
	if o.Data == "" {
		o.Data = t.TempDir()
	}
	if o.Grace == 0 {
		o.Grace = config.Duration(300 * time.Millisecond)
	}
	for _, value := range o.Env { // folders that a test shares with its skill
		if filepath.IsAbs(value) {
			o.Walls.Write = append(o.Walls.Write, filepath.Dir(value))
		}
	}
	r := kit.Must(NewRunner(".", o, log.logger()))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		kit.Check(t, r.Close(ctx))
	})
	return r, log
}

// hostile opens the hostile skill in one of its modes.
func hostile(t testing.TB, mode string, o Options) (*Runner, *records) {
	t.Helper()
	o.Skill = "testdata/hostile"
	env := map[string]string{"MODE": mode}
	for name, value := range o.Env {
		env[name] = value
	}
	o.Env = env
	return open(t, o)
}

func call(t testing.TB, h tool.Handler, name, args string) (*tool.Result, error) {
	t.Helper()
	return callWithin(t, h, name, args, patience)
}

func callWithin(t testing.TB, h tool.Handler, name, args string, d time.Duration) (*tool.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return h.Invoke(ctx, &tool.Call{ID: tool.NewID(), Tool: name, Args: json.RawMessage(args)}, tool.Discard)
}

// says makes a call and expects this output.
func says(t testing.TB, h tool.Handler, name, args, want string) {
	t.Helper()
	r, err := call(t, h, name, args)
	switch {
	case err != nil:
		t.Errorf("%s %s: %v", name, args, err)
	case !r.OK || string(r.Output) != want:
		t.Errorf("%s %s: got %+v with output %s, want %s", name, args, r, r.Output, want)
	}
}

// refused expects an error of that class whose message contains these words.
func refused(t testing.TB, err error, code tool.Code, words ...string) {
	t.Helper()
	if tool.CodeOf(err) != code {
		t.Errorf("want an error of class %s, got %v", code, err)
		return
	}
	for _, w := range words {
		kit.Contains(t, err.Error(), w, "%q does not say", err)
	}
}

// copySkill copies a skill of testdata into a folder of its own.
func copySkill(t testing.TB, from, into string) {
	t.Helper()
	kit.OK(t, os.CopyFS(into, os.DirFS(filepath.Join("testdata", from))))
}
