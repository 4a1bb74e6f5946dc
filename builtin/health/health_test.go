package health_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"toolpost/builtin/health"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/engine/telemetry"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

func TestHealthToolsAreForOperators(t *testing.T) {
	var fails error
	tools := health.New(health.Options{
		Sources: func(_ context.Context, p tool.Principal) []health.Source {
			return []health.Source{{Name: "of " + p.ID, Protocol: "rest", State: health.StateFailed, Since: time.Unix(0, 0).UTC(), Error: "no answer"}}
		},
		Metrics: func(w io.Writer) error {
			_, _ = io.WriteString(w, "calls 1\n")
			return fails
		},
	})
	for name, want := range map[string]string{
		"listSources": `{"sources":[{"name":"of owner","protocol":"rest","state":"failed","since":"1970-01-01T00:00:00Z","tools":0,"error":"no answer"}]}`,
		"readMetrics": `{"text":"calls 1\n"}`,
	} {
		r, err := tools.Invoke(t.Context(), &tool.Call{Tool: name, Caller: tool.Principal{ID: "owner", Operates: true}}, tool.Discard)
		if err != nil || string(r.Output) != want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		// Neither a name nor a door makes a caller an operator.
		_, err = tools.Invoke(t.Context(), &tool.Call{Tool: name, Caller: tool.Principal{ID: "owner", Door: "cli"}}, tool.Discard)
		kit.Refused(t, err, tool.CodeAccessDenied, name)
	}
	fails = errors.New("no metrics")
	if _, err := tools.Invoke(t.Context(), &tool.Call{Tool: "readMetrics", Caller: tool.Principal{Operates: true}}, tool.Discard); err == nil {
		t.Error("half a text was given for the whole")
	}
}

func TestLoadCoversTheTimeSinceTheLastReport(t *testing.T) {
	tooltest.NoLeaks(t)
	all := calls.New(calls.Env{})
	measure := kit.Must(telemetry.New(telemetry.Options{}, telemetry.Env{
		Lookup: func(context.Context, tool.Principal, string) (*tool.Spec, error) { return nil, errors.New("none") },
	}))(t)
	hold, began := make(chan struct{}), make(chan struct{})
	h := measure.For(nil)(all.Stage(slog.New(slog.DiscardHandler))(nil)(tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		if c.Tool == "slow" {
			began <- struct{}{}
			<-hold
		}
		return &tool.Result{OK: c.Tool != "fails", Trace: tool.Trace{Tool: c.Tool, Source: "src"}}, nil
	})))
	invoke := func(id, name string) {
		_, _ = h.Invoke(t.Context(), &tool.Call{ID: id, Tool: name, Caller: tool.Principal{ID: "ada"}}, tool.Discard)
	}
	invoke("0", "quick")
	tools := health.New(health.Options{
		Started: time.Now(), Calls: all, Counts: measure.Counts, Followers: follow.New(),
		Sources: func(context.Context, tool.Principal) []health.Source {
			return []health.Source{{Name: "src", State: health.StateOpen, Workers: &tool.Workers{Alive: 2, Busy: 1}}}
		},
	})
	var loads []health.Load
	var said []string
	out := tool.SinkFunc(func(ev tool.Event) error {
		var log tool.Log
		var l health.Load
		err := errors.Join(strictjson.Unmarshal(ev.Data, &log), strictjson.Unmarshal(log.Fields, &l))
		loads, said = append(loads, l), append(said, log.Message)
		if len(loads) == 1 {
			go invoke("1", "slow")
			<-began
			invoke("2", "quick")
			invoke("3", "quick")
			invoke("4", "fails")
		}
		return err
	})
	call := &tool.Call{Tool: "watchLoad", Args: []byte(`{"interval_ms":200,"count":2}`), Caller: tool.Principal{Operates: true}}
	r, err := tools.Invoke(t.Context(), call, out)
	close(hold)
	if err != nil || string(r.Output) != `{"seen":2}` || len(loads) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if l := loads[0]; l.InFlight != 0 || l.Window != 0 || l.All.Total != 1 || l.All.Calls != 0 || len(l.Tools) != 0 || len(l.Sources) != 1 {
		t.Errorf("the first: %+v", l)
	}
	l := loads[1]
	if l.InFlight != 1 || len(l.Calls) != 1 || l.Calls[0].Tool != "slow" || l.Window < 0.1 || l.All.Calls != 3 || l.All.Bad != 1 || l.All.Rate <= 0 {
		t.Errorf("the second: %+v", l)
	}
	if len(l.Tools) != 2 || l.Tools[0].Tool != "quick" || l.Tools[0].Calls != 2 || l.Tools[0].Total != 3 || l.Tools[0].P95 < l.Tools[0].P50 || l.Tools[1].Bad != 1 {
		t.Errorf("its tools: %+v", l.Tools)
	}
	if !strings.HasPrefix(said[1], "in flight 1, calls/s ") || !strings.HasSuffix(said[1], "workers 1/2 busy, sources 1 (0 failed)") {
		t.Error(said[1])
	}
	if _, err := tools.Invoke(t.Context(), &tool.Call{Tool: "watchLoad", Caller: tool.Principal{ID: "ada"}}, out); tool.CodeOf(err) != tool.CodeAccessDenied {
		t.Error(err)
	}
}
