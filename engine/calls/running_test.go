package calls_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"toolpost/engine/calls"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A probe runs calls until they are cancelled, and lets the test emit events for them.
type probe struct {
	began chan tool.Sink
	ended chan error
}

// start runs a call behind the stage, and returns the sink of its tool.
func (p probe) start(ctx context.Context, all *calls.Log, c tool.Call, out tool.Sink) tool.Sink {
	h := chain(all, nil, func(ctx context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		p.began <- out
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	go func() {
		_, err := h.Invoke(ctx, &c, out)
		p.ended <- err
	}()
	return <-p.began
}

func newProbe() probe { return probe{make(chan tool.Sink), make(chan error, 8)} }

func ids(list []calls.Running) string {
	var all []string
	for _, c := range list {
		all = append(all, c.Caller+"/"+c.ID)
	}
	return strings.Join(all, " ")
}

func TestRunningCallIsListedToCallerAndOperators(t *testing.T) {
	all := calls.New(calls.Env{})
	p := newProbe()
	before := time.Now()
	p.start(t.Context(), all, tool.Call{ID: "1", Tool: "slow", Caller: ada, DryRun: true}, tool.Discard)
	p.start(t.Context(), all, tool.Call{ID: "1", Tool: "other", Caller: bob, Parent: "p"}, tool.Discard)
	for who, want := range map[*tool.Principal]string{&ada: "ada/1", &bob: "bob/1", &operator: "ada/1 bob/1", {ID: "eve"}: ""} {
		if got := ids(all.List(*who)); got != want {
			t.Errorf("%s sees %q", who.ID, got)
		}
	}
	one := all.List(ada)[0]
	if one.Since.Before(before) || one.Since.After(time.Now()) || one.Tool != "slow" || one.Door != "http" || !one.DryRun || one.Last != nil {
		t.Errorf("%+v", one)
	}
	if two := all.List(operator)[1]; one.Parent != "" || two.Parent != "p" {
		t.Errorf("the calls that made them: %q, %q", one.Parent, two.Parent)
	}
	kit.OK(t, all.Cancel(ada, "", "1"))
	kit.Refused(t, <-p.ended, tool.CodeCancelled, "by its caller")
	kit.Equal(t, ids(all.List(operator)), "bob/1")
	kit.OK(t, all.Cancel(operator, "", "1"))
	if err := <-p.ended; !strings.Contains(err.Error(), "by owner, who runs this program") {
		t.Error(err)
	}
}

func TestLastSignOfACallIsBounded(t *testing.T) {
	all := calls.New(calls.Env{})
	p := newProbe()
	var passed int
	out := p.start(t.Context(), all, tool.Call{ID: "1", Caller: ada, Tool: strings.Repeat("t", 1000)}, tool.SinkFunc(func(tool.Event) error {
		passed++
		return nil
	}))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	long, _ := json.Marshal(tool.Log{Level: "info", Message: strings.Repeat("é", 5000)})
	for _, c := range []struct {
		ev   tool.Event
		want calls.Sign
	}{
		{tool.Event{Kind: tool.KindProgress, Time: at, Data: json.RawMessage(`{"progress":2,"total":8,"message":"a"}`)}, calls.Sign{Time: at, Message: "a", Progress: 2, Total: 8}},
		{tool.Event{Kind: tool.KindOutput, Time: at, Data: json.RawMessage(`{"text":"not this"}`)}, calls.Sign{Time: at, Message: "a", Progress: 2, Total: 8}},
		{tool.Event{Kind: tool.KindLog, Time: at, Data: json.RawMessage(`{"level":"info","message":"b"}`)}, calls.Sign{Time: at, Message: "b"}},
		{tool.Event{Kind: tool.KindLog, Time: at, Data: long}, calls.Sign{Time: at, Message: strings.Repeat("é", 250)}},
		{tool.Event{Kind: tool.KindLog, Time: at, Data: json.RawMessage(`{`)}, calls.Sign{Time: at}},
	} {
		kit.OK(t, out.Emit(c.ev))
		if got := all.List(ada)[0].Last; got == nil || *got != c.want {
			t.Errorf("%.60s: %+v", c.ev.Data, got)
		}
	}
	if got := all.List(ada)[0].Tool; passed != 5 || len(got) != 500 {
		t.Errorf("%d events passed, a name of %d bytes", passed, len(got))
	}
}

func TestCallIDIsUniquePerCaller(t *testing.T) {
	all := calls.New(calls.Env{})
	p := newProbe()
	twice := func(ctx context.Context) error {
		_, err := chain(all, nil, nil).Invoke(ctx, &tool.Call{ID: "1", Caller: ada}, tool.Discard)
		return err
	}
	// A call that no door registered.
	p.start(t.Context(), all, tool.Call{ID: "1", Caller: ada}, tool.Discard)
	if err := twice(t.Context()); tool.CodeOf(err) != tool.CodeConflict || tool.AsError(err).Reason != "duplicate_call" {
		t.Error(err)
	}
	again, endAgain, _ := all.Begin(t.Context(), ada, "1")
	kit.Refused(t, twice(again), tool.CodeConflict, "")
	endAgain()
	_ = all.Cancel(ada, ada.ID, "1")
	<-p.ended

	// A call that a door registered: the stage continues with the door's entry.
	ctx, end, _ := all.Begin(t.Context(), ada, "1")
	again, _, _ = all.Begin(t.Context(), ada, "1")
	kit.Refused(t, twice(again), tool.CodeConflict, "", "a second call took the place of one that waits at its door")
	kit.Equal(t, ids(all.List(ada)), "", "listed before it runs")
	p.start(ctx, all, tool.Call{ID: "1", Caller: ada}, tool.Discard)
	kit.Refused(t, twice(ctx), tool.CodeConflict, "")
	kit.OK(t, all.Cancel(ada, "", "1"))
	kit.Refused(t, <-p.ended, tool.CodeCancelled, "")

	// The caller may have the answer before the door calls end, and reuse the id.
	_, endNext, _ := all.Begin(t.Context(), ada, "1")
	end()
	kit.Refused(t, twice(t.Context()), tool.CodeConflict, "", "the end of the first let go the id of the second")
	endNext()
	kit.Refused(t, all.Cancel(ada, "", "1"), tool.CodeNotFound, "")
}

func TestACallThatWaitsAtItsDoorCanBeCancelled(t *testing.T) {
	all := calls.New(calls.Env{})
	ctx, end, _ := all.Begin(t.Context(), ada, "1")
	defer end()
	if err := all.Cancel(ada, "", "1"); err != nil || tool.CodeOf(context.Cause(ctx)) != tool.CodeCancelled {
		t.Errorf("%v, %v", err, context.Cause(ctx))
	}
}

func TestOnlyOperatorsCancelCallsOfOtherCallers(t *testing.T) {
	all := calls.New(calls.Env{})
	ctxs := map[string]context.Context{}
	for _, who := range []tool.Principal{ada, bob} {
		for _, id := range []string{"same", who.ID} {
			ctx, end, _ := all.Begin(t.Context(), who, id)
			defer end()
			ctxs[who.ID+"/"+id] = ctx
		}
	}
	for _, c := range []struct {
		who       tool.Principal
		whose, id string
		want      tool.Code
		ends      string
	}{
		{ada, "", "bob", tool.CodeNotFound, ""},
		{ada, "bob", "bob", tool.CodeAccessDenied, ""},
		{ada, "bob", "none", tool.CodeAccessDenied, ""},
		{operator, "", "none", tool.CodeNotFound, ""},
		{operator, "", "same", tool.CodeConflict, ""},
		{operator, "ada", "bob", tool.CodeNotFound, ""},
		{operator, "bob", "same", "", "bob/same"},
		{operator, "", "bob", "", "bob/bob"},
		{ada, "ada", "same", "", "ada/same"},
	} {
		err := all.Cancel(c.who, c.whose, c.id)
		if err == nil != (c.want == "") || err != nil && tool.CodeOf(err) != c.want {
			t.Errorf("%s ends %s of %q: %v", c.who.ID, c.id, c.whose, err)
		}
		for name, ctx := range ctxs {
			if ended := ctx.Err() != nil; ended != (name == c.ends) {
				t.Errorf("%s ends %s of %q: %s has ended: %v", c.who.ID, c.id, c.whose, name, ended)
			}
		}
		delete(ctxs, c.ends)
	}
}
