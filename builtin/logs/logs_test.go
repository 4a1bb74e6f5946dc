package logs_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"toolpost/builtin/define"
	"toolpost/builtin/logs"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

var operator = tool.Principal{ID: "local", Operates: true}

// A bench has a journal with the tool in front of it, and a source whose calls the journal records.
type bench struct {
	journal   *calls.Log
	followers *follow.Followers
	tool      *define.Set
	log       *slog.Logger
}

func newBench() *bench {
	b := &bench{journal: calls.New(calls.Env{}), followers: follow.New()}
	b.log = slog.New(b.journal.Handler(slog.DiscardHandler))
	b.tool = logs.New(logs.Options{Log: b.journal, Followers: b.followers})
	return b
}

// call makes a call that emits some messages and then ends.
func (b *bench) call(c tool.Call, says []string, err error) {
	stage := b.journal.Stage(slog.New(slog.DiscardHandler))(nil)
	run := tool.HandlerFunc(func(_ context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
		call.Watch.By.Found(&tool.Spec{Name: c.Tool})
		for _, text := range says {
			_ = out.Emit(tool.LogEvent("info", text))
		}
		return &tool.Result{OK: true}, err
	})
	_, _ = stage(run).Invoke(context.Background(), &c, tool.Discard)
}

// lines collects the received lines.
type lines struct {
	all  []calls.JournalLine
	wait func()
	last func() // called when the last line has come
	more chan struct{}
}

func (l *lines) Emit(ev tool.Event) error {
	if l.wait != nil {
		l.wait()
	}
	var log tool.Log
	var line calls.JournalLine
	if err := errors.Join(strictjson.Unmarshal(ev.Data, &log), strictjson.Unmarshal(log.Fields, &line)); err != nil {
		return err
	}
	if line.From == "" {
		line.Message = log.Message
	}
	l.all = append(l.all, line)
	if line.Message == "last" {
		l.last()
	}
	if l.more != nil {
		l.more <- struct{}{}
	}
	return nil
}

func (l *lines) said() (all []string) {
	for _, one := range l.all {
		text := one.Message
		if one.From == calls.FromCall {
			text = "end of " + one.Call
		}
		all = append(all, text)
	}
	return all
}

func (b *bench) ask(t *testing.T, args string, out tool.Sink) follow.Watched {
	t.Helper()
	r, err := b.tool.Invoke(t.Context(), &tool.Call{Tool: "watchLogs", Args: []byte(args), Caller: operator}, out)
	if err != nil {
		t.Fatal(err)
	}
	var w follow.Watched
	kit.OK(t, strictjson.Unmarshal(r.Output, &w))
	return w
}

func TestLogLinesAreFiltered(t *testing.T) {
	b := newBench()
	b.log.Info("serving")
	b.log.Warn("careful")
	ada, bob := tool.Principal{ID: "ada"}, tool.Principal{ID: "bob"}
	b.call(tool.Call{ID: "1", Tool: "greet", Caller: ada, Run: "r1"}, []string{"a1", "a2"}, nil)
	b.call(tool.Call{ID: "2", Tool: "greet", Caller: bob, Session: "s"}, []string{"b1"}, tool.Errorf(tool.CodeTimeout, "late"))
	b.call(tool.Call{ID: "3", Tool: "other", Caller: bob}, slices.Repeat([]string{"much"}, 60), tool.Errorf(tool.CodeTimeout, "late"))
	much := append(slices.Repeat([]string{"much"}, 50), "end of 3")
	for args, want := range map[string][]string{
		`{"last":3,"level":"warn"}`:                             {"careful", "end of 2", "end of 3"},
		`{"last":100,"caller":"ada"}`:                           {"a1", "a2", "end of 1"},
		`{"last":100,"run":"r1"}`:                               {"a1", "a2", "end of 1"},
		`{"last":100,"session":"s"}`:                            {"b1", "end of 2"},
		`{"last":2,"tool":"greet"}`:                             {"b1", "end of 2"},
		`{"last":100,"outcome":"ok"}`:                           {"a1", "a2", "end of 1"},
		`{"last":100,"outcome":"error","caller":"bob"}`:         append([]string{"b1", "end of 2"}, much...),
		`{"last":100,"outcome":"refused"}`:                      nil,
		`{"last":100,"tool":"greet","caller":"ada","run":"no"}`: nil,
		`{"last":100,"level":"error","tool":"greet"}`:           {"end of 2"},
		`{"last":0}`: nil,
	} {
		var got lines
		if w := b.ask(t, args, &got); !slices.Equal(got.said(), want) || w.Missed != 0 || w.Next != b.journal.JournalEnd() {
			t.Errorf("%s: %q, want %q; %+v", args, got.said(), want, w)
		}
	}
}

func TestWatchLogsIsForOperators(t *testing.T) {
	_, err := newBench().tool.Invoke(t.Context(), &tool.Call{Tool: "watchLogs", Caller: tool.Principal{ID: "ada"}}, tool.Discard)
	kit.Refused(t, err, tool.CodeAccessDenied, "")
}

func TestFollowerSeesNewLinesUntilShutdown(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench()
	b.log.Info("before")
	got := &lines{more: make(chan struct{})}
	done := make(chan follow.Watched)
	go func() { done <- b.ask(t, `{"last":5,"follow":true}`, got) }()
	<-got.more
	b.log.Info("one")
	<-got.more
	b.call(tool.Call{ID: "1", Tool: "greet"}, []string{"said"}, nil)
	<-got.more
	<-got.more
	b.followers.Close()
	if w := <-done; w.Next != 4 || w.Missed != 0 {
		t.Errorf("%+v", w)
	}
	kit.EqualSlices(t, got.said(), []string{"before", "one", "said", "end of 1"})
	for after, want := range map[string]int{"2": 2, "4": 0, "5": 4} { // 5: of an earlier program
		var got lines
		if b.ask(t, `{"follow":true,"after":`+after+`}`, &got); len(got.all) != want {
			t.Errorf("after %s: %q", after, got.said())
		}
	}
}

// A follower that does not read delays nothing, and learns how much it missed.
func TestSlowFollowerDoesNotBlockLogging(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newBench()
	held, release := make(chan struct{}, 1), make(chan struct{})
	got := &lines{wait: func() {
		select {
		case held <- struct{}{}:
		default:
		}
		<-release
	}}
	done := make(chan follow.Watched)
	go func() { done <- b.ask(t, `{"follow":true,"after":0}`, got) }()
	b.log.Info("first")
	<-held // it has the first line and does not return
	const many = 9000
	for range many {
		b.log.Info("line")
	}
	b.log.Info("last")
	got.last = b.followers.Close
	close(release)
	w := <-done
	last := got.all[len(got.all)-1]
	if w.Missed < many-5000 || last.Message != "last" || int64(len(got.all)-1)+w.Missed != last.Seq {
		t.Errorf("%d lines came, %d were missed, the last is %+v", len(got.all), w.Missed, last)
	}
	if !slices.ContainsFunc(got.all, func(l calls.JournalLine) bool { return strings.Contains(l.Message, "lines are missing") }) {
		t.Error("it was not told")
	}
}
