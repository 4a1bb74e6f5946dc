package worker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/host/backoff"
	"toolpost/host/sandbox"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/jsonrpc"
)

// modeEnv makes this test program one that a supervisor runs, and sets how it behaves.
const modeEnv = "WORKER_TEST_MODE"

// patience only guards against a hang.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if mode, ok := os.LookupEnv(modeEnv); ok {
		program(mode)
		return
	}
	os.Exit(m.Run())
}

// program is a worker: it answers its requests one after the other.
func program(mode string) {
	if _, err := os.Stat(mode); err == nil { // a file that forbids the start
		fmt.Fprintln(os.Stderr, "cannot find my files")
		os.Exit(1)
	}
	if mode == "chats" {
		fmt.Fprintln(os.Stderr, "npm warn")
		fmt.Println("Ok to proceed? (y)")
	}
	in, ready, cancelled := bufio.NewScanner(os.Stdin), false, []string{}
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			os.Exit(9)
		}
		result := m.Params
		switch {
		case m.Method == "hello" && mode == "silent", m.Method == "never", m.Method == "":
			continue
		case m.Method == "hello" && mode == "refuses":
			fmt.Printf(`{"id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
			continue
		case m.Method == "flood":
			fmt.Fprint(os.Stderr, strings.Repeat("é", maxLogLine)+"\n"+strings.Repeat("again\n", 10*logBurst))
		case m.Method == "die":
			fmt.Fprintln(os.Stderr, "my last words")
			os.Exit(3)
		case m.Method == "ask": // and wait for the answer
			fmt.Printf(`{"id":1,"method":"host","params":%s}`+"\n", m.Params)
			in.Scan()
			result = bytes.Clone(in.Bytes())
		case m.Method == "ready":
			ready = true
			continue
		case !ready && m.Method != "hello":
			os.Exit(8)
		case m.Method == "cancel":
			cancelled = append(cancelled, string(m.Params))
			continue
		case m.Method == "cancelled":
			result, _ = json.Marshal(cancelled)
		}
		fmt.Printf(`{"id":%s,"result":%s}`+"\n", m.ID, result)
		if m.Method == "bye" && mode != "stays" {
			return
		}
	}
	if mode == "stays" {
		time.Sleep(patience)
	}
}

// The scope of requests that belong to no call.
type nobody struct{}

func (nobody) Events() *tool.Relay { return nil }

// supervise keeps this test program running, in a mode.
func supervise(t *testing.T, mode string, o Options) *Supervisor {
	t.Helper()
	tooltest.NoLeaks(t)
	self := kit.Must(os.Executable())(t)
	start := spawn.Options{Env: map[string]string{modeEnv: mode}, Walls: walls.Options{Off: true}}
	program := kit.Must(start.Program("/", spawn.Command{Argv: []string{self}, Dir: "/"}))(t)
	o.Find = func() (*spawn.Program, error) { return program, nil }
	o.Name, o.Log, o.Hello, o.MaxLine = "prog", cmp.Or(o.Log, slog.New(slog.DiscardHandler)), "hello", 1<<20
	o.StartTime, o.Grace = cmp.Or(o.StartTime, patience), cmp.Or(o.Grace, 300*time.Millisecond)
	greet := func(ctx context.Context, w *Worker) error {
		_, err := w.Ask(ctx, "hello", nil, nobody{})
		if err == nil {
			err = w.Notify(ctx, "ready", nil)
		}
		return err
	}
	if o.Greet == nil {
		o.Greet = greet
	}
	o.Goodbye = func(ctx context.Context, w *Worker) { _, _ = w.Ask(ctx, "bye", nil, nobody{}) }
	if o.Places == nil {
		o.Places = func() int { return 0 }
	}
	s := New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		kit.Check(t, s.Close(ctx))
	})
	return s
}

func call(ctx context.Context, s *Supervisor, method, params string) (string, error) {
	w, err := s.Get(ctx)
	if err != nil {
		return "", err
	}
	raw, err := w.Call(ctx, method, func(uint64) []byte { return []byte(params) }, nobody{})
	return string(raw), err
}

func refused(t *testing.T, err error, code tool.Code, words ...string) {
	t.Helper()
	kit.Refused(t, err, code, "", "want an error of class %s, got", code)
	for _, w := range words {
		kit.Fails(t, err, w)
	}
}

func TestOneWorkerTakesAllCalls(t *testing.T) {
	s := supervise(t, "fine", Options{})
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			want := fmt.Sprintf(`{"n":%d}`, n)
			kit.Equal(t, kit.Must(call(t.Context(), s, "echo", want))(t), want)
		})
	}
	all.Wait()
}

func TestStandardErrorCannotFloodTheLog(t *testing.T) {
	var log bytes.Buffer
	t.Run("flood", func(t *testing.T) { // at its end the program is gone
		s := supervise(t, "fine", Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		kit.Must(call(t.Context(), s, "flood", `{}`))(t)
	})
	said, left := strings.Count(log.String(), "a line of standard error"), 0
	for _, line := range strings.Split(log.String(), "\n") {
		if _, n, ok := strings.Cut(line, "were left out\" lines="); ok {
			left += kit.Must(strconv.Atoi(n))(t)
		}
		if len(line) > maxLogLine+200 {
			t.Errorf("a line of the log has %d bytes", len(line))
		}
	}
	if all := 10*logBurst + 1; said > all/2 || said+left != all {
		t.Errorf("%d lines are in the log, and %d are said to be left out, of %d", said, left, all)
	}
}

func TestAWorkerTakesNoMoreCallsThanItHasPlaces(t *testing.T) {
	s := supervise(t, "fine", Options{Places: func() int { return 1 }})
	w := kit.Must(s.Get(t.Context()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second call has a place: %v", err)
	}
	second := make(chan error)
	go func() { _, err := call(t.Context(), s, "echo", `{}`); second <- err }()
	w.Release()
	kit.Check(t, <-second)
}

func TestRequestOfAProgramIsServedInItsCallsScope(t *testing.T) {
	var scopes []Scope
	s := supervise(t, "fine", Options{
		Names: func(*jsonrpc.Incoming) uint64 { return 0 },
		Serve: func(_ *Worker, in *jsonrpc.Incoming, s Scope) (json.RawMessage, *jsonrpc.Error) {
			scopes = append(scopes, s) // on one goroutine: that of the caller
			if string(in.Params) == `{"no":1}` {
				return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "no")
			}
			return in.Params, nil
		},
	})
	for params, want := range map[string]string{
		`{"a":1}`:  `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`,
		`{"no":1}`: `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`,
	} {
		kit.Equal(t, kit.Must(call(t.Context(), s, "ask", params))(t), want)
	}
	if len(scopes) != 2 || scopes[0] != Scope(nobody{}) {
		t.Errorf("served in %v", scopes)
	}
}

// The last output of a program may be about one caller. The other pending callers, and later ones, get how it ended and
// nothing of its output.
func TestOutputOfACrashStaysWithItsCaller(t *testing.T) {
	s := supervise(t, "fine", Options{Restart: backoff.Breaker{Failures: 1, First: -1, Open: time.Minute}})
	other := make(chan error)
	go func() {
		_, err := call(t.Context(), s, "never", `{}`)
		other <- err
	}()
	kit.Eventually(t, "the call arrives", func() bool {
		w := s.Current()
		if w == nil {
			return false
		}
		n, _ := w.conn.Pending()
		return n == 1
	})
	_, err := call(t.Context(), s, "die", `{}`)
	_, later := call(t.Context(), s, "echo", `{}`)
	for who, err := range map[string]error{"one": err, "another": <-other, "a later": later} {
		e := tool.AsError(err)
		if !strings.Contains(e.Message, "exit status 3") || strings.Contains(e.Message, "my last words") {
			t.Errorf("%s call is told %v", who, e)
		}
	}
}

func TestCrashFailsTheCallAndTheProgramRestarts(t *testing.T) {
	s := supervise(t, "fine", Options{})
	_, err := call(t.Context(), s, "die", `{}`)
	refused(t, err, tool.CodeCrash, "prog crashed", "exit status 3", "my last words")
	kit.Eventually(t, "it comes back", func() bool { return s.Current() != nil })
}

// After the pause one start is tried, and if it succeeds all is as before.
func TestAnOpenBreakerClosesAfterItsTime(t *testing.T) {
	flag := filepath.Join(t.TempDir(), "flag")
	kit.OK(t, os.WriteFile(flag, nil, 0o600))
	open := 2 * time.Second
	s := supervise(t, flag, Options{Restart: backoff.Breaker{Failures: 2, First: time.Millisecond, Open: open}})
	for range 2 {
		_, err := s.Get(t.Context())
		refused(t, err, tool.CodeCrash, "cannot find my files")
	}
	_, err := s.Get(t.Context())
	refused(t, err, tool.CodeBreakerOpen, "prog failed 2 times in a row", "cannot find my files")
	if wait := tool.AsError(err).Retry(); wait <= 0 || wait > open {
		t.Errorf("to be tried again in %v", wait)
	}
	kit.OK(t, os.Remove(flag))
	kit.Until(t, func() error {
		got, err := call(t.Context(), s, "echo", `{"a":1}`)
		if err == nil {
			kit.Equal(t, got, `{"a":1}`)
		}
		return err
	})
}

func TestAProgramThatDoesNotStartSaysWhy(t *testing.T) {
	_, err := supervise(t, "silent", Options{StartTime: 200 * time.Millisecond}).Get(t.Context())
	refused(t, err, tool.CodeTimeout, "prog did not answer hello within 200ms")
	_, err = supervise(t, "refuses", Options{}).Get(t.Context())
	refused(t, err, tool.CodeProtocol, "prog did not start", "code -32601")

	// It may wait for something that a person would read, on either of its streams.
	s := supervise(t, "chats", Options{Greet: func(ctx context.Context, w *Worker) error {
		for w.babble.Load() == nil || w.child.LastWords() == "" {
			if time.Sleep(time.Millisecond); ctx.Err() != nil {
				return errors.New("it said nothing")
			}
		}
		return context.DeadlineExceeded
	}})
	_, err = s.Get(t.Context())
	refused(t, err, tool.CodeTimeout, "prog did not answer hello within", "the last it wrote to stderr: npm warn",
		"the last it wrote to stdout, which is for messages: Ok to proceed? (y)")

	// No other call is pending while it starts, so its last output is about none.
	s = supervise(t, "fine", Options{Greet: func(ctx context.Context, w *Worker) error {
		var probe sync.WaitGroup
		defer probe.Wait()
		probe.Go(func() { _, _ = w.Ask(ctx, "never", nil, nil) })
		for n := 0; n == 0; n, _ = w.conn.Pending() {
			time.Sleep(time.Millisecond)
		}
		_, err := w.Ask(ctx, "die", nil, nil)
		return err
	}})
	_, err = s.Get(t.Context())
	refused(t, err, tool.CodeCrash, "prog crashed", "my last words")
}

// A program that answers other calls is notified of the abandoned call, and kept. A program that answers nothing is
// replaced.
func TestAnAbandonedCallIsCancelledAndASilentProgramIsReplaced(t *testing.T) {
	s := supervise(t, "fine", Options{Grace: 3 * time.Second, Cancel: func(w *Worker, id uint64) {
		w.Tell("cancel", fmt.Appendf(nil, `{"id":%d}`, id))
	}})
	kit.Must(call(t.Context(), s, "echo", `{}`))(t)
	first := s.Current()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, s, "never", `{}`); !errors.Is(err, jsonrpc.ErrAbandoned) {
		t.Errorf("got %v", err)
	}
	kit.Eventually(t, "it is notified, in the background", func() bool {
		return string(kit.Must(first.Ask(t.Context(), "cancelled", nil, nobody{}))(t)) == `["{\"id\":3}"]`
	})
	ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, _ = call(ctx, s, "never", `{}`)
	if _, err := call(t.Context(), s, "echo", `{}`); err != nil || s.Current() == first {
		t.Errorf("it was not replaced: %v", err)
	}
}

// For programs that do not answer a cancelled call: the place is free at once, and a program that still answers is kept.
func TestAProgramThatAnswersAProbeStays(t *testing.T) {
	s := supervise(t, "fine", Options{
		Places: func() int { return 1 }, Grace: 3 * time.Second,
		Probe: func(ctx context.Context, w *Worker) { _, _ = w.Ask(ctx, "echo", nil, nil) },
	})
	kit.Must(call(t.Context(), s, "echo", `{}`))(t)
	first := s.Current()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := call(ctx, s, "never", `{}`)
		cancel()
		if !errors.Is(err, jsonrpc.ErrAbandoned) {
			t.Errorf("got %v", err)
		}
	}
	judged := func() bool { s.mu.Lock(); defer s.mu.Unlock(); return first.alarm == nil }
	kit.Eventually(t, "it is judged, when its grace is over", judged)
	if _, err := call(t.Context(), s, "echo", `{}`); err != nil || s.Current() != first {
		t.Errorf("it was replaced: %v", err)
	}
}

func TestAProgramWithoutCallsIsEndedUntilThereIsOne(t *testing.T) {
	s := supervise(t, "fine", Options{Idle: 50 * time.Millisecond})
	kit.Must(call(t.Context(), s, "echo", `{}`))(t)
	first := s.Current()
	kit.Receive(t, "it is ended", first.Dead())
	if s.Current() != nil {
		t.Error("another was started for nobody")
	}
	kit.Equal(t, kit.Must(call(t.Context(), s, "echo", `{"a":1}`))(t), `{"a":1}`)
}

func TestCloseEndsAProgramThatStays(t *testing.T) {
	s := supervise(t, "stays", Options{})
	kit.Must(call(t.Context(), s, "echo", `{}`))(t)
	pid := s.Current().Pid()
	kit.Check(t, s.Close(t.Context()))
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("it is still there: %v", err)
	}
	_, err := s.Get(t.Context())
	refused(t, err, tool.CodeUnavailable, "has been shut down")
}
