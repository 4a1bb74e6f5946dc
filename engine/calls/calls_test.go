package calls_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"toolpost/config"
	"toolpost/engine/calls"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/tool"
)

var (
	ada      = tool.Principal{ID: "ada", Door: "http"}
	bob      = tool.Principal{ID: "bob", Door: "nats"}
	eve      = tool.Principal{ID: "eve", Door: "http"}
	operator = tool.Principal{ID: "owner", Door: "cli", Operates: true}
	echo     = &tool.Spec{Name: "echo", Source: "one", Protocol: "command", Walls: "no network"}
)

// silent logs nothing.
var silent = slog.New(slog.DiscardHandler)

// limited returns a log with limits.
func limited(o calls.Options, env calls.Env) *calls.Log {
	c := calls.New(env)
	c.Limit(o)
	return c
}

// chain returns the stage around a tool, with resolve between them. A call is copied on the way, as telemetry does.
func chain(c *calls.Log, spec *tool.Spec, run tool.HandlerFunc) tool.Handler {
	return logging(c, silent, spec, run)
}

func logging(c *calls.Log, log *slog.Logger, spec *tool.Spec, run tool.HandlerFunc) tool.Handler {
	return c.Stage(log)(nil)(tool.HandlerFunc(func(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
		found := *call
		if err := call.Watch.By.Admit(&found); err != nil {
			return nil, err
		}
		if found.Spec = spec; spec != nil {
			call.Watch.By.Found(spec)
		}
		return run(ctx, &found, out)
	}))
}

func says(output string) tool.HandlerFunc {
	return func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: json.RawMessage(output)}, nil
	}
}

func invoke(t testing.TB, h tool.Handler, call tool.Call) {
	t.Helper()
	_, _ = h.Invoke(t.Context(), &call, tool.Discard)
}

func TestCallIsKeptWithItsEventsAndSteps(t *testing.T) {
	c := calls.New(calls.Env{})
	defer c.Watching()()
	h := chain(c, echo, func(_ context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
		step := call.Watch.By.Enter("runner")
		defer call.Watch.By.Leave(step)
		ev := tool.LogEvent("warn", "blocked")
		ev.Blocked = &tool.Blocked{Capability: "network", Target: "example.org:443", By: "engine"}
		_ = out.Emit(ev)
		_ = out.Emit(ev)
		if now, ok := c.Find(ada, "", "c1"); !ok || !now.Running() || len(now.Events) != 2 || len(now.Stages) != 1 {
			t.Errorf("while it runs: %+v, %v", now, ok)
		}
		return nil, tool.Errorf(tool.CodeCrash, "it fell over")
	})
	invoke(t, h, tool.Call{ID: "c1", Tool: "one.echo", Args: json.RawMessage(`{"a":1}`), Session: "s", Parent: "p", Caller: ada})
	got, ok := c.Find(ada, "", "c1")
	if !ok || got.Running() || got.Tool != "echo" || got.Source != "one" || got.Session != "s" || got.Parent != "p" ||
		string(got.Args) != `{"a":1}` || !strings.Contains(string(got.Error), "it fell over") || len(got.Events) != 2 ||
		got.End.Outcome != tool.OutcomeError || got.End.Code != tool.CodeCrash || got.Record.Asked != "one.echo" {
		t.Errorf("%+v", got)
	}
	if len(got.Blocked) != 1 || got.Blocked[0].Target != "example.org:443" || got.Spec.Walls != "no network" {
		t.Errorf("%+v", got.Blocked)
	}
	if len(got.Stages) != 1 || got.Stages[0].Kind != "run" || got.Stages[0].Name != "runner" {
		t.Errorf("%+v", got.Stages)
	}
}

func TestCallsAreVisibleOnlyToCallerAndOperator(t *testing.T) {
	c := calls.New(calls.Env{})
	invoke(t, chain(c, echo, says(`"x"`)), tool.Call{ID: "c1", Tool: "echo", Caller: ada})
	invoke(t, chain(c, echo, says(`"x"`)), tool.Call{ID: "c2", Tool: "echo", Parent: "c1", Caller: ada})
	for who, sees := range map[*tool.Principal]bool{&ada: true, &operator: true, &eve: false, {ID: "own"}: false} {
		f := calls.Filter{Who: *who, Events: true}
		call, found := c.Find(*who, "", "c1")
		now, last := c.Now(f)
		next := c.Next(f, last-4, 100).Lines
		if found != sees || (len(now) == 4) != sees || (len(next) == 4) != sees || found && len(c.Children(&call)) != 1 ||
			!sees && len(now)+len(next) > 0 {
			t.Errorf("%s: found %v, %d now, %d next", who.ID, found, len(now), len(next))
		}
	}
	if _, found := c.Find(operator, "eve", "c1"); found {
		t.Error("it is not eve's")
	}
}

func TestOwnReadOnlyToolsAreNotKept(t *testing.T) {
	c := calls.New(calls.Env{})
	looks := &tool.Spec{Name: "showCall", Source: config.OwnSource, Effects: tool.Effects{Reads: true}}
	does := &tool.Spec{Name: "cancelCall", Source: config.OwnSource}
	invoke(t, chain(c, looks, says(`{}`)), tool.Call{ID: "c1", Caller: ada})
	invoke(t, chain(c, does, says(`{}`)), tool.Call{ID: "c2", Caller: ada})
	if lines, _ := c.Now(calls.Filter{Who: ada}); len(lines) != 2 || lines[0].Begin.Call != "c2" {
		t.Errorf("%+v", lines)
	}
}

// What a call learns to be secret on its way is removed from the arguments that are kept already, also while it runs.
func TestSecretThatACallLearnsIsKeptNoLonger(t *testing.T) {
	const canary = "canary-of-ada"
	c := calls.New(calls.Env{})
	seen := func(id string) string {
		call, _ := c.Find(operator, "", id)
		return fmt.Sprintf("%+v %s", call, call.Args)
	}
	h := chain(c, echo, func(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		kit.Equal(t, strings.Contains(seen("c1"), canary), true, "nothing is known yet")
		secret.Of(c).Add("key", canary)
		c.Watch.By.Learned()
		if text := seen("c1"); strings.Contains(text, canary) || !strings.Contains(text, `"key":"[secret key]"`) {
			t.Errorf("while it runs: %s", text)
		}
		ev := tool.LogEvent("warn", "blocked")
		ev.Blocked = &tool.Blocked{Capability: "filesystem_write", Target: "/tmp/" + canary}
		return &tool.Result{OK: true}, out.Emit(ev)
	})
	notes := tool.Notes{Memo: &tool.Memo{Secrets: new(secret.Redactor)}}
	invoke(t, h, tool.Call{ID: "c1", Args: json.RawMessage(`{"key":"` + canary + `"}`), Caller: ada, Notes: notes})
	if text := seen("c1"); strings.Contains(text, canary) {
		t.Errorf("afterwards: %s", text)
	}
}

func TestASecretIsNeverKept(t *testing.T) {
	const canary = "canary-1f0c6f2b9d"
	var r secret.Redactor
	r.Add("KEY", canary)
	redactByName := func(doc json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(doc), "lease-token", "[redacted]"))
	}
	var c *calls.Log
	c = calls.New(calls.Env{Redactor: &r, RedactByName: func(doc json.RawMessage) json.RawMessage {
		c.Known(0) // it needs the lock, which every call waits for
		return redactByName(doc)
	}})
	// The redact stage runs inside. It is left out here: the test is about what it does not see, arguments and walls.
	h := chain(c, echo, func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		ev := tool.LogEvent("warn", "blocked")
		ev.Blocked = &tool.Blocked{Capability: "filesystem_write", Target: "/tmp/" + canary}
		return &tool.Result{OK: true}, out.Emit(ev)
	})
	invoke(t, h, tool.Call{ID: "c1", Args: json.RawMessage(`{"key":"` + canary + `","t":"lease-token"}`), Caller: ada})
	issue := &tool.Spec{Name: "issueLease", Source: config.OwnSource}
	invoke(t, chain(c, issue, says(`{"lease":"lease-token"}`)), tool.Call{ID: "c2", Caller: ada})
	for _, id := range []string{"c1", "c2"} {
		call, _ := c.Find(operator, "", id)
		text := fmt.Sprintf("%+v %s %s", call, call.Args, call.Output)
		if strings.Contains(text, canary) || strings.Contains(text, "lease-token") || !strings.Contains(text, "[") {
			t.Errorf("%s: %s", id, text)
		}
	}
	// What is too long to look for secrets is not in a line, although its beginning is short.
	invoke(t, h, tool.Call{ID: "c3", Args: json.RawMessage(`{"t":"lease-token","a":"` + strings.Repeat("a", 17<<10) + `"}`), Caller: ada})
	lines, _ := c.Now(calls.Filter{Who: ada})
	if text := fmt.Sprintf("%+v %+v", *lines[0].Begin, *lines[4].Begin); strings.Contains(text, canary) || strings.Contains(text, "lease-token") ||
		lines[0].Begin.Brief == "" || lines[4].Begin.Brief != "" {
		t.Errorf("the lines are %s", text)
	}
}

func TestALineSaysHowACallEnded(t *testing.T) {
	c := calls.New(calls.Env{})
	failing := func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return nil, tool.Errorf(tool.CodeNotFound, "no such file")
	}
	_, _ = chain(c, echo, failing).Invoke(t.Context(), &tool.Call{ID: "c1", Caller: ada}, tool.Discard)
	done := func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Summary: "done " + strings.Repeat("é", 500)}, nil
	}
	invoke(t, chain(c, echo, done), tool.Call{ID: "c2", Args: json.RawMessage(`{"path":"a"}`), Caller: ada})
	lines, _ := c.Now(calls.Filter{Who: ada})
	kit.Equal(t, lines[1].End.Message, "no such file")
	kit.Equal(t, lines[2].Begin.Brief, `{"path":"a"}`)
	if said := lines[3].End.Message; !strings.HasPrefix(said, "done é") || len(said) > 600 {
		t.Errorf("it says %q", said)
	}
}

// Whatever is called, no more is kept than the limits allow, and every cut is reported.
func TestKeptCallsAreBounded(t *testing.T) {
	o := calls.Options{Calls: 50, Bytes: 1 << 20}
	c := limited(o, calls.Env{})
	rnd := rand.New(rand.NewPCG(1, 2))
	var sent []int
	for i := range 200 {
		size, events := rnd.IntN(1<<rnd.IntN(18)), rnd.IntN(1<<rnd.IntN(8))
		sent = append(sent, size)
		h := chain(c, echo, func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
			for range events {
				if err := out.Emit(tool.LogEvent("info", strings.Repeat("e", size/8))); err != nil {
					return nil, err
				}
				if kept := c.Bytes(); kept > o.Bytes+(256<<10) {
					t.Fatalf("%d bytes are kept while a call runs", kept)
				}
			}
			return &tool.Result{OK: true, Output: json.RawMessage(`"` + strings.Repeat("o", size) + `"`)}, nil
		})
		invoke(t, h, tool.Call{ID: fmt.Sprint(i), Args: json.RawMessage(`{"a":"` + strings.Repeat("a", size) + `"}`), Caller: ada})
		if c.Bytes() > o.Bytes {
			t.Fatalf("%d bytes are kept", c.Bytes())
		}
		check(t, c, i, sent[i])
	}
	if lines, _ := c.Now(calls.Filter{Who: ada}); len(lines) > 2*o.Calls || len(lines) == 0 {
		t.Errorf("%d lines of calls are kept", len(lines))
	}
}

// Running calls are never dropped; if they alone exceed the limit, less is kept of each.
func TestCallsThatRunAreBoundedTogether(t *testing.T) {
	o := calls.Options{Calls: 50, Bytes: 1 << 20}
	c := limited(o, calls.Env{})
	args := json.RawMessage(`{"a":"` + strings.Repeat("a", 60<<10) + `"}`)
	const most = 100 // at once, each within the one before: each would keep 180 KiB
	var h tool.Handler
	h = chain(c, echo, func(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
		for range 12 {
			if err := out.Emit(tool.LogEvent("info", strings.Repeat("e", 10<<10))); err != nil {
				return nil, err
			}
		}
		n := len(call.ID)
		if kept := c.Bytes(); kept > o.Bytes+n*(16<<10) { // the size of a call without its data
			t.Errorf("%d calls run, and %d bytes are kept", n, kept)
		}
		if n == most {
			return &tool.Result{OK: true}, nil
		}
		return h.Invoke(ctx, &tool.Call{ID: call.ID + "x", Args: args, Caller: ada}, tool.Discard)
	})
	invoke(t, h, tool.Call{ID: "x", Args: args, Caller: ada})
	if c.Bytes() > o.Bytes {
		t.Errorf("%d bytes are kept afterwards", c.Bytes())
	}
}

// check checks what is kept of a call whose arguments and output had a size.
func check(t *testing.T, c *calls.Log, i, size int) {
	t.Helper()
	call, ok := c.Find(ada, "", fmt.Sprint(i))
	if !ok {
		t.Fatalf("call %d is not kept", i)
	}
	for _, doc := range []json.RawMessage{call.Args, call.Output} {
		if !json.Valid(doc) {
			t.Errorf("not JSON: %.100s", doc)
		}
	}
	cut := 0
	for _, one := range call.Cut {
		if one.Kept >= one.Bytes {
			t.Errorf("%+v", one)
		}
		cut++
	}
	if want := size+2 > 64<<10; (cut == 2) != want && size+8 <= 64<<10 {
		t.Errorf("%d bytes: %+v", size, call.Cut)
	}
	for _, ev := range call.Events {
		if !json.Valid(ev.Data) || len(ev.Data) > 32<<10 {
			t.Errorf("event of %d bytes: %.50s", len(ev.Data), ev.Data)
		}
	}
}

// A storm of large calls leaves no more on the heap than the limits allow: nothing keeps the requests alive.
func TestAStormLeavesLittleBehind(t *testing.T) {
	c := limited(calls.Options{Calls: 500, Bytes: 4 << 20}, calls.Env{})
	h := chain(c, echo, says(`"`+strings.Repeat("o", 5000)+`"`))
	before := heap()
	var callers sync.WaitGroup
	for g := range 8 {
		callers.Go(func() {
			for i := range 1250 {
				// The arguments are a small part of a large request, as in JSON-RPC.
				request := make([]byte, 32<<10)
				args := request[:copy(request, `{"a":1234567890}`)]
				_, _ = h.Invoke(t.Context(), &tool.Call{ID: fmt.Sprint(g, "-", i), Args: args, Caller: ada}, tool.Discard)
			}
		})
	}
	callers.Wait()
	if grew := heap() - before; grew > 3*(4<<20) {
		t.Errorf("the heap grew by %d bytes", grew)
	}
	if lines, _ := c.Now(calls.Filter{Who: ada}); len(lines) == 0 || len(lines) > 1000 {
		t.Errorf("%d lines", len(lines))
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A follower sees every line once, in order, wherever it continues; a follower that is too slow learns how many it
// missed.
func TestAFollowerGoesOnBehindTheLastLine(t *testing.T) {
	c := limited(calls.Options{Calls: 10}, calls.Env{}) // 80 lines
	talks := chain(c, echo, func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		return nil, errors.Join(out.Emit(tool.LogEvent("info", "hello")), errors.New("no"))
	})
	f := calls.Filter{Who: ada, Events: true}
	_, at := c.Now(f)
	first := at
	for i := range 4 {
		invoke(t, talks, tool.Call{ID: fmt.Sprint(i), Caller: ada})
	}
	var seen []string
	for {
		p := c.Next(f, at, 5)
		if p.Last == at {
			break
		}
		for _, l := range p.Lines {
			if l.Seq <= at || l.Seq > p.Last || p.Missed != 0 {
				t.Errorf("line %d behind %d, %d missed", l.Seq, at, p.Missed)
			}
			switch {
			case l.Begin != nil:
				seen = append(seen, "+"+l.Begin.Call)
			case l.Event != nil:
				seen = append(seen, "."+l.Event.Call)
			case l.End != nil:
				seen = append(seen, "-"+l.End.Call)
			}
		}
		at = p.Last
	}
	kit.Equal(t, strings.Join(seen, " "), "+0 .0 -0 +1 .1 -1 +2 .2 -2 +3 .3 -3")
	for i := range 100 {
		invoke(t, talks, tool.Call{ID: fmt.Sprint(i), Caller: ada})
	}
	p := c.Next(f, first, 10_000)
	if int64(len(p.Lines))+p.Missed != 104*3 || p.Last != first+104*3 || len(p.Lines) != 30 {
		t.Errorf("%d lines and %d missed, %d in all", len(p.Lines), p.Missed, p.Last-first)
	}
	if c.Known(first-1) || c.Known(p.Last+1) || !c.Known(first) || !c.Known(p.Last) {
		t.Error("a line of another program is taken for one of this")
	}
}

func TestOffKeepsNothing(t *testing.T) {
	c := limited(calls.Options{Off: true}, calls.Env{})
	h := chain(c, echo, func(_ context.Context, call *tool.Call, _ tool.Sink) (*tool.Result, error) {
		if call.Watch.Steps || call.Watch.By.Enter("runner") >= 0 {
			t.Error("watched")
		}
		return &tool.Result{OK: true}, nil
	})
	invoke(t, h, tool.Call{ID: "c1", Caller: ada})
	if _, found := c.Find(ada, "", "c1"); found {
		t.Error("kept")
	}
}
