package namel3ss

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolpost/host/forks"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func newLogs(out tool.Sink) (*logs, context.Context) {
	ctx, stop := context.WithCancelCause(context.Background())
	return &logs{ctx: ctx, stop: stop, events: tool.NewRelay(out, stop), redact: strings.NewReplacer()}, ctx
}

func TestNothingIsEmittedAfterTheSinkSaidNo(t *testing.T) {
	no := errors.New("no more")
	events := 0
	l, ctx := newLogs(tool.SinkFunc(func(tool.Event) error { events++; return no }))
	l.read("stdout", strings.NewReader("one\ntwo\nthree\n"))
	l.close()
	if events != 1 || !errors.Is(context.Cause(ctx), no) {
		t.Errorf("%d events, cause %v", events, context.Cause(ctx))
	}
}

func TestNothingIsEmittedAfterTheEndOfTheCall(t *testing.T) {
	for name, end := range map[string]func(*logs){
		"cancelled": func(l *logs) { l.stop(context.Canceled) }, "closed": func(l *logs) { l.close() },
	} {
		var got tooltest.Collect
		l, _ := newLogs(&got)
		l.read("stdout", strings.NewReader("one\n"))
		end(l)
		l.read("stdout", strings.NewReader("two\n"))
		kit.Equal(t, fmt.Sprint(got.Logs()), "[one]", name, got.Logs())
	}
}

func TestSlowCallerLosesNoEventsOfAnEndedTool(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := kit.Must(forks.NewPipes(ctx, 1))(t)
	defer p.Close()
	p.Patience = time.Millisecond
	_, _ = p.W[0].WriteString("late\n")
	p.Drain()
	time.Sleep(20 * p.Patience) // the caller is busy with an earlier event
	var got tooltest.Collect
	l, _ := newLogs(&got)
	l.read("stdout", p.Reader(0)) // its end never comes: another process holds the pipe
	kit.Equal(t, fmt.Sprint(got.Logs()), "[late]", got.Logs())
	cancel()
	_, _ = p.W[0].WriteString("too late\n")
	l.read("stdout", p.Reader(0))
	kit.Equal(t, fmt.Sprint(got.Logs()), "[late]", "after the end of the call: %v", got.Logs())
}

func TestAFloodIsCutAndTheLastEventSaysSo(t *testing.T) {
	events, last := 0, tool.Event{}
	l, _ := newLogs(tool.SinkFunc(func(e tool.Event) error { events, last = events+1, e; return nil }))
	l.read("stderr", strings.NewReader(strings.Repeat("\n", 1<<18)+"the end\n"))
	l.close()
	if most := maxLog/lineCost + 1; events > most {
		t.Errorf("%d events, %d at the most", events, most)
	}
	kit.Contains(t, string(last.Data), "more lines were left out", "the last event is %s", last.Data)
	kit.Equal(t, l.last(), "the end", "the end of stderr is")
}
