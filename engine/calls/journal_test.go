package calls_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/slogtest"

	"toolpost/config"
	"toolpost/engine/calls"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func TestJournalKeepsLogEventsAndOutcomes(t *testing.T) {
	j := calls.New(calls.Env{})
	var log bytes.Buffer
	debug := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := logging(j, debug, &tool.Spec{Name: "greet", Source: "greeter"}, func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		ours := tool.LogEvent("warn", "its record waits") // a stage says this
		ours.Ours = true
		for _, ev := range []tool.Event{
			ours, tool.LogEvent("warn", "hot"), tool.NewEvent(tool.KindProgress, tool.Progress{Progress: 1}),
			tool.NewEvent(tool.KindLog, tool.Log{Level: "SHOUT", Message: strings.Repeat("ä", 4000), Fields: []byte(`{"a":1}`)}),
			tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: "E1", Message: "broken"}),
		} {
			if err := out.Emit(ev); err != nil {
				return nil, err
			}
		}
		return &tool.Result{OK: true, Summary: "greeted", Trace: tool.Trace{Tool: "greet"}}, nil
	})
	c := &tool.Call{ID: "c1", Tool: "say.hello", Run: "r1", Session: "s1", Caller: tool.Principal{ID: "ada", Door: "http"}}
	events := 0
	count := tool.SinkFunc(func(tool.Event) error { events++; return nil })
	if _, err := h.Invoke(t.Context(), c, count); err != nil || events != 5 {
		t.Fatal(events, err)
	}
	refuse := logging(j, debug, nil, func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return nil, tool.Errorf(tool.CodeAccessDenied, "no")
	})
	if _, err := refuse.Invoke(t.Context(), c, count); err == nil {
		t.Fatal("it was not refused")
	}
	lines, missed := j.Journal(0, 100)
	if len(lines) != 5 || missed != 0 || j.JournalEnd() != 5 {
		t.Fatalf("%d lines, %d missed: %+v", len(lines), missed, lines)
	}
	for i, want := range []calls.JournalLine{
		{From: calls.FromTool, Level: "warn", Message: "hot", Tool: "greet"},
		{From: calls.FromTool, Level: "info", Message: strings.Repeat("ä", 1000) + "…", Tool: "greet"},
		{From: calls.FromTool, Level: "error", Message: "E1: broken", Tool: "greet"},
		{From: calls.FromCall, Level: "info", Message: "greeted", Tool: "greet", Outcome: tool.OutcomeOK},
		{From: calls.FromCall, Level: "warn", Message: "no", Tool: "say.hello", Outcome: tool.OutcomeRefused},
	} {
		l := lines[i]
		if l.From != want.From || l.Level != want.Level || l.Message != want.Message || l.Tool != want.Tool || l.Outcome != want.Outcome ||
			l.Seq != int64(i+1) || l.Caller != "ada" || l.Door != "http" || l.Run != "r1" || l.Session != "s1" || l.Call != "c1" || l.Time.IsZero() {
			t.Errorf("%d: %+v, want %+v", i, l, want)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "level=DEBUG msg=call tool=greet caller=ada door=http outcome=ok ms=") ||
		!strings.Contains(text, "code=access_denied run=r1 about=no\n") {
		t.Error(text)
	}
}

func TestDryRunIsALineOfItsOwnKind(t *testing.T) {
	j := calls.New(calls.Env{})
	h := chain(j, &tool.Spec{Name: "greet"}, func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: []byte(`{"dry_run":true}`)}, nil
	})
	kit.OK(t, kit.Err(h.Invoke(t.Context(), &tool.Call{Tool: "greet", DryRun: true}, tool.Discard)))
	if lines, _ := j.Journal(0, 1); len(lines) != 1 || lines[0].Message != "only judged" {
		t.Errorf("%+v", lines)
	}
}

func TestACallThatPanicsHasALine(t *testing.T) {
	j := calls.New(calls.Env{})
	h := chain(j, &tool.Spec{Name: "a"}, func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { panic("!") })
	func() {
		defer func() { _ = recover() }()
		_, _ = h.Invoke(t.Context(), &tool.Call{Tool: "a"}, tool.Discard)
	}()
	if lines, _ := j.Journal(0, 9); len(lines) != 1 || lines[0].Outcome != tool.OutcomeError || lines[0].Level != "error" {
		t.Errorf("%+v", lines)
	}
}

// Otherwise a tool that returns these lines as events would make each of them anew, for ever.
func TestJournalSkipsEventsOfOwnTools(t *testing.T) {
	j := calls.New(calls.Env{})
	h := chain(j, &tool.Spec{Name: "watchLogs", Source: config.OwnSource}, func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true}, out.Emit(tool.LogEvent("info", "a line"))
	})
	kit.OK(t, kit.Err(h.Invoke(t.Context(), &tool.Call{Tool: "watchLogs"}, tool.Discard)))
	if lines, _ := j.Journal(0, 9); len(lines) != 1 || lines[0].From != calls.FromCall {
		t.Errorf("%+v", lines)
	}
}

func TestSlowReaderLearnsHowMuchItMissed(t *testing.T) {
	j := calls.New(calls.Env{})
	log := slog.New(j.Handler(slog.DiscardHandler))
	const many = 4200
	for range many {
		log.Info("line")
	}
	lines, missed := j.Journal(10, 1<<20)
	if len(lines) != 4096 || missed != many-4096-10 || lines[0].Seq != 11+missed || lines[len(lines)-1].Seq != many {
		t.Errorf("%d lines, %d missed", len(lines), missed)
	}
	if some, missed := j.Journal(many-2, 1); len(some) != 1 || some[0].Seq != many-1 || missed != 0 {
		t.Errorf("%+v, %d", some, missed)
	}
	if none, missed := j.Journal(many, 1); len(none) != 0 || missed != 0 {
		t.Errorf("%+v, %d", none, missed)
	}
	if none, _ := j.Journal(many+7, 1); len(none) != 0 { // of another process, or made up
		t.Errorf("%+v", none)
	}
	huge := chain(j, &tool.Spec{Name: "a"}, func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		err := out.Emit(tool.NewEvent(tool.KindLog, tool.Log{Message: "m", Fields: strictjson.Quote(strings.Repeat("x", 3900))}))
		return nil, errors.Join(err, errors.New("over"))
	})
	for range 2500 {
		_, _ = huge.Invoke(t.Context(), &tool.Call{Tool: "a"}, tool.Discard)
	}
	if lines, _ := j.Journal(0, 1<<20); len(lines) > 2500 { // 4 MiB of lines of about 2 KiB on average
		t.Errorf("%d lines are kept", len(lines))
	}
	name := strings.Repeat("x", 1900) // callers choose these
	for range 2500 {
		_, _ = huge.Invoke(t.Context(), &tool.Call{Tool: name, ID: name, Session: name, Run: name}, tool.Discard)
	}
	if lines, _ := j.Journal(0, 1<<20); len(lines) > 600 { // of about 8 KiB
		t.Errorf("%d lines with long names are kept", len(lines))
	}
}

func TestTheProgramsOwnLogIsKeptAndWrittenAsBefore(t *testing.T) {
	j := calls.New(calls.Env{})
	var text bytes.Buffer
	h := j.Handler(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
	log := slog.New(h).With("door", "http").WithGroup("g").With("a", 1)
	log.Debug("nothing")
	log.Info("kept", "b", 2)
	log.Error("both", "error", errors.New("why"))
	lines, _ := j.Journal(0, 9)
	if len(lines) != 2 || lines[0].Message != "kept" || string(lines[0].Fields) != `{"door":"http","g":{"a":1,"b":2}}` ||
		lines[1].Level != "error" || string(lines[1].Fields) != `{"door":"http","g":{"a":1,"error":"why"}}` {
		t.Errorf("%+v", lines)
	}
	if strings.Count(text.String(), "\n") != 1 || !strings.Contains(text.String(), `"msg":"both","door":"http","g":{"a":1,"error":"why"}`) {
		t.Error(text.String())
	}
	// The handler behind it writes the same as without it.
	text.Reset()
	err := slogtest.TestHandler(j.Handler(slog.NewJSONHandler(&text, nil)), func() (all []map[string]any) {
		for line := range bytes.Lines(text.Bytes()) {
			var m map[string]any
			kit.OK(t, strictjson.Unmarshal(line, &m))
			all = append(all, m)
		}
		return all
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLongNamesCountAndAreCopied(t *testing.T) {
	j := calls.New(calls.Env{})
	h := chain(j, nil, says(`"x"`))
	long := strings.Repeat("x", 1990)
	for i := range 8000 {
		id := strconv.Itoa(i)
		c := &tool.Call{ID: id + long, Tool: "tool" + id, Session: "s" + long, Run: "r" + id, Caller: tool.Principal{ID: "c" + id}}
		_, _ = h.Invoke(t.Context(), c, tool.Discard)
	}
	lines, missed := j.Journal(0, 1<<20)
	if len(lines) == 0 || len(lines) > 1050 || missed != int64(8000-len(lines)) { // 4 MiB of lines of about 4 KiB
		t.Fatalf("%d lines are kept, %d were missed", len(lines), missed)
	}
	for _, l := range lines {
		id := strconv.FormatInt(l.Seq-1, 10)
		if l.Call != id+long || l.Tool != "tool"+id || l.Session != "s"+long || l.Run != "r"+id || l.Caller != "c"+id {
			t.Fatalf("%+v", l)
		}
	}
}

// A call costs two allocations: its entry, and its names. What others can look at later costs one more.
func TestCallAllocatesLittle(t *testing.T) {
	for off, most := range map[bool]float64{true: 2, false: 3} {
		j := limited(calls.Options{Off: off}, calls.Env{})
		done := &tool.Result{OK: true, Output: []byte(`"hello"`)}
		h := j.Stage(silent)(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return done, nil
		}))
		c := &tool.Call{ID: "c1", Tool: "greet", Args: []byte(`{"a":1}`), Caller: tool.Principal{ID: "ada"}}
		call := func() { _, _ = h.Invoke(t.Context(), c, tool.Discard) }
		for range 10000 { // until every place was used once
			call()
		}
		if n := testing.AllocsPerRun(1000, call); n > most {
			t.Errorf("off %v: %v allocations for a call", off, n)
		}
	}
}

func BenchmarkACallWithALine(b *testing.B) {
	j := calls.New(calls.Env{})
	h := chain(j, &tool.Spec{Name: "a"}, func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true}, nil
	})
	var callers atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		c := &tool.Call{ID: strconv.FormatInt(callers.Add(1), 10), Tool: "a", Caller: ada}
		for p.Next() {
			_, _ = h.Invoke(context.Background(), c, tool.Discard)
		}
	})
}
