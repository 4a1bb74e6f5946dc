package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a source whose tools all run the same function.
type fake struct {
	specs  []*tool.Spec
	err    error
	run    tool.HandlerFunc
	broken map[string]error
	closed atomic.Bool
}

func (f *fake) Tools(context.Context) ([]*tool.Spec, error) { return f.specs, f.err }
func (f *fake) Unavailable(name string) error               { return f.broken[name] }
func (f *fake) Close(context.Context) error                 { f.closed.Store(true); return nil }
func (f *fake) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if f.closed.Load() {
		return nil, errors.New("called after Close")
	}
	return f.run(ctx, c, out)
}

func echo(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: c.Args}, nil
}

func source(run tool.HandlerFunc, names ...string) *fake {
	f := &fake{run: run}
	for _, name := range names {
		f.specs = append(f.specs, &tool.Spec{Name: name})
	}
	return f
}

func start(t *testing.T, o engine.Options, bindings ...engine.Binding) *engine.Engine {
	t.Helper()
	e := engine.New(o)
	e.Replace(t.Context(), bindings)
	t.Cleanup(func() {
		kit.Check(t, e.Close(context.Background()))
	})
	return e
}

func bind(name string, r tool.Runner) engine.Binding {
	return engine.Binding{Name: name, Protocol: "fake", Runner: r}
}

func call(t *testing.T, h tool.Handler, name, args string) (*tool.Result, *tool.Error) {
	t.Helper()
	r, err := h.Invoke(t.Context(), &tool.Call{Tool: name, Args: json.RawMessage(args)}, tool.Discard)
	if (r == nil) == (err == nil) {
		t.Fatalf("result %v and error %v", r, err)
	}
	var e *tool.Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%T is no *tool.Error: %v", err, err)
	}
	return r, e
}

func listing(e *engine.Engine) map[string]string {
	names := map[string]string{}
	for spec, err := range e.Specs(context.Background(), tool.Principal{}) {
		key := spec.Name
		if key == "" {
			key = "source " + spec.Source
		}
		names[key] = spec.Source
		if err != nil {
			names[key] += ": " + err.Error()
		}
	}
	return names
}

func TestACallReachesItsSourceAndIsTraced(t *testing.T) {
	e := start(t, engine.Options{}, bind("one", source(echo, "a")), bind("two", source(echo, "b")))
	r, _ := call(t, e, "b", `{"n":1.50}`)
	kit.Equal(t, string(r.Output), `{"n":1.50}`)
	tr := r.Trace
	if tr.ID == "" || tr.Call == "" || tr.Tool != "b" || tr.Source != "two" || tr.Protocol != "fake" || tr.Start.IsZero() {
		t.Errorf("trace %+v", tr)
	}
}

// A tool's tier is declared by its source, or follows from its effects; a tool that declares nothing is not safe. Every
// reader of the tool sees the same number.
func TestATierIsSettledWhenAToolIsPublished(t *testing.T) {
	var ran int
	f := source(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		ran = c.Spec.Tier
		return &tool.Result{OK: true}, nil
	})
	f.specs = []*tool.Spec{
		{Name: "says nothing"}, {Name: "says little", Effects: tool.Effects{Idempotent: true}},
		{Name: "declared safe", TierFrom: tool.TierTool, Effects: tool.Effects{Destructive: true}},
		{Name: "out of bounds", Tier: -1}, {Name: "reads", Effects: tool.Effects{Reads: true}}, {Name: "shell", Effects: tool.Effects{Exec: true}}, {Name: "declared", Tier: 1, Effects: tool.Effects{Destructive: true}},
	}
	e := start(t, engine.Options{}, bind("one", f))
	for name, want := range map[string]struct {
		tier int
		from tool.TierFrom
	}{
		"says nothing": {1, tool.TierDefault}, "says little": {1, tool.TierDefault}, "reads": {0, tool.TierEffects},
		"shell": {2, tool.TierEffects}, "declared": {1, tool.TierTool}, "declared safe": {0, tool.TierTool},
		"out of bounds": {3, tool.TierTool},
	} {
		spec, err := e.Lookup(t.Context(), tool.Principal{}, name)
		if err != nil || spec.Tier != want.tier || spec.TierFrom != want.from {
			t.Errorf("%s: tier %d from %q, want %v, %v", name, spec.Tier, spec.TierFrom, want, err)
		}
		if _, err := call(t, e, name, `{}`); err != nil || ran != want.tier {
			t.Errorf("%s ran with tier %d, want %d, %v", name, ran, want.tier, err)
		}
	}
}

func TestIdsOfTheDoorAreKept(t *testing.T) {
	e := start(t, engine.Options{}, bind("one", source(echo, "a")))
	r, err := e.Invoke(t.Context(), &tool.Call{ID: "my-call", Trace: "my-trace", Tool: "a"}, tool.Discard)
	if err != nil || r.Trace.Call != "my-call" || r.Trace.ID != "my-trace" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestUnknownToolIsNotFound(t *testing.T) {
	e := start(t, engine.Options{}, bind("one", source(echo, "a")))
	if _, err := call(t, e, "nope", `{}`); err.Code != tool.CodeNotFound || !strings.Contains(err.Message, `"nope"`) {
		t.Errorf("%v", err)
	}
	kit.Refused(t, kit.Err(e.Lookup(t.Context(), tool.Principal{}, "nope")), tool.CodeNotFound, "")
}

func TestNamesAliasesAndClashes(t *testing.T) {
	own := func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		out, _ := json.Marshal([]string{c.Spec.Source, c.Tool, c.Spec.Name})
		return &tool.Result{OK: true, Output: out}, nil
	}
	first := source(own, "read")
	first.specs[0].Aliases = []string{"file.read"}
	second := source(own, "read", "file.read", "other")
	e := start(t, engine.Options{}, bind("files", first), bind("evil", second))
	for name, want := range map[string]string{
		"read":           `["files","read","read"]`, // the first source keeps the name
		"files.read":     `["files","read","read"]`,
		"evil.read":      `["evil","read","read"]`,  // its runner gets its own name
		"file.read":      `["files","read","read"]`, // an alias cannot be taken over either
		"evil.file.read": `["evil","file.read","file.read"]`,
		"other":          `["evil","other","other"]`,
	} {
		if r, err := call(t, e, name, ``); err != nil || string(r.Output) != want {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	want := map[string]string{"read": "files", "evil.read": "evil", "evil.file.read": "evil", "other": "evil"}
	kit.Equal(t, cmp.Diff(want, listing(e)), "")
}

func TestArgumentsAreStrictJSONObjects(t *testing.T) {
	ran := false
	e := start(t, engine.Options{}, bind("one", source(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		ran = true
		return echo(ctx, c, out)
	}, "a")))
	for name, args := range map[string]string{
		"duplicate key": `{"a":1,"a":2}`, "not JSON": `{`, "array": `[]`, "string": `"x"`, "null": `null`,
		"invalid UTF-8": "{\"a\":\"\xff\"}", "two documents": `{}{}`, "too deep": strings.Repeat(`{"a":`, 300) + `1` + strings.Repeat(`}`, 300),
	} {
		if _, err := call(t, e, "a", args); err == nil || err.Code != tool.CodeInvalidInput || ran {
			t.Errorf("%s: %v (ran: %v)", name, err, ran)
		}
	}
	if r, err := call(t, e, "a", ``); err != nil || string(r.Output) != `{}` {
		t.Errorf("no arguments are an empty object: %v, %v", r, err)
	}
}

const person = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["name"],
 "properties":{"name":{"$ref":"#/$defs/name"},"age":{"type":"integer","minimum":0}},"$defs":{"name":{"type":"string","minLength":1}}}`

func TestArgumentsAreValidatedAgainstTheSchema(t *testing.T) {
	src := source(echo, "greet")
	src.specs[0].Input = json.RawMessage(person)
	e := start(t, engine.Options{}, bind("one", src))
	if _, err := call(t, e, "greet", `{"name":"Ada","age":36}`); err != nil {
		t.Error(err)
	}
	for args, want := range map[string]string{
		`{}`:                       "name",
		`{"name":""}`:              "/name: shorter than 1 character",
		`{"name":"A","age":1.5}`:   "/age: got number, want integer",
		`{"name":"A","age":-1}`:    "/age: -1 is less than the minimum 0",
		`{"name":"A","age":"old"}`: "/age: got string, want integer",
	} {
		_, err := call(t, e, "greet", args)
		if err == nil || err.Code != tool.CodeInvalidInput || !strings.Contains(err.Message, want) || !strings.Contains(string(err.Details), `"faults":[{"at":`) {
			t.Errorf("%s: %v %s", args, err, err.Details)
		}
	}
	spec, _ := e.Lookup(t.Context(), tool.Principal{}, "greet")
	kit.Equal(t, string(spec.Input), person, "the schema was not passed through untouched")
}

func TestOutputIsValidated(t *testing.T) {
	out := `{"name":7}`
	src := source(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: json.RawMessage(out)}, nil
	}, "who")
	src.specs[0].Output = json.RawMessage(person)
	e := start(t, engine.Options{}, bind("one", src))
	if _, err := call(t, e, "who", ``); err == nil || err.Code != tool.CodeProtocol || !strings.Contains(err.Message, "the output of who: /name") {
		t.Error(err)
	}
	out = `{"name":"Ada"}`
	if _, err := call(t, e, "who", ``); err != nil {
		t.Error(err)
	}
}

func TestAToolsFailureNeedsNoOutput(t *testing.T) {
	src := source(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return tool.Failed("ValueError", "no"), nil
	}, "a")
	src.specs[0].Output = json.RawMessage(person)
	e := start(t, engine.Options{}, bind("one", src))
	if r, err := call(t, e, "a", ``); err != nil || r.OK || r.Failure.Reason != "ValueError" {
		t.Errorf("%v, %v", r, err)
	}
}

func TestSchemaReferencesAreNeverFetched(t *testing.T) {
	src := source(echo, "file", "net", "fine")
	src.specs[0].Input = json.RawMessage(`{"$ref":"file:///etc/passwd"}`)
	src.specs[1].Input = json.RawMessage(`{"$ref":"http://127.0.0.1:1/schema.json"}`)
	e := start(t, engine.Options{}, bind("one", src))
	for _, name := range []string{"file", "net"} {
		if _, err := call(t, e, name, ``); err == nil || err.Code != tool.CodeUnavailable || !strings.Contains(err.Message, "$defs") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := call(t, e, "fine", ``); err != nil {
		t.Error(err)
	}
}

func TestOneDeadSourceNeverHidesTheOthers(t *testing.T) {
	alive, flaky := source(echo, "a"), source(echo, "f")
	alive.specs = append(alive.specs, &tool.Spec{Name: "half"})
	alive.broken = map[string]error{"half": tool.Errorf(tool.CodeUnavailable, "it has no entry")}
	dead := engine.Binding{Name: "dead", Protocol: "fake", Err: errors.New("python3 is missing")}
	e := start(t, engine.Options{}, dead, bind("alive", alive), bind("flaky", flaky))
	if _, err := call(t, e, "a", ``); err != nil {
		t.Error(err)
	}
	if _, err := call(t, e, "half", ``); err == nil || err.Code != tool.CodeUnavailable || !strings.Contains(err.Message, "it has no entry") {
		t.Error(err)
	}

	alive.broken = nil
	if _, err := call(t, e, "half", ``); err != nil {
		t.Errorf("it is mended, but: %v", err)
	}
	alive.broken = map[string]error{"half": tool.Errorf(tool.CodeUnavailable, "it has no entry")}

	e.Replace(t.Context(), []engine.Binding{dead, bind("alive", alive), {Name: "flaky", Protocol: "fake", Err: errors.New("it died")}})
	want := map[string]string{
		"a": "alive", "half": "alive: unavailable: it has no entry",
		"source dead": "dead: python3 is missing", // its tools are unknown
		"f":           "flaky: it died",           // known from when it lived
	}
	kit.Equal(t, cmp.Diff(want, listing(e)), "")
	if _, err := call(t, e, "f", ``); err == nil || err.Code != tool.CodeUnavailable || !strings.Contains(err.Message, "f is unavailable: it died") {
		t.Error(err)
	}
	for name, code := range map[string]tool.Code{"dead.any": tool.CodeUnavailable, "dead": tool.CodeNotFound,
		"alive.any": tool.CodeNotFound, "any": tool.CodeNotFound} {
		if _, err := call(t, e, name, ``); err == nil || err.Code != code ||
			strings.Contains(err.Message, "python3 is missing") != (code == tool.CodeUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e.Replace(t.Context(), []engine.Binding{bind("alive", alive), bind("flaky", source(echo, "f"))})
	if _, err := call(t, e, "f", ``); err != nil {
		t.Errorf("it came back, but: %v", err)
	}
}

func TestAPanicIsAnInternalErrorAndTheNextCallIsUnharmed(t *testing.T) {
	var log strings.Builder
	e := start(t, engine.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, bind("one", source(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		if string(c.Args) == `{"panic":true}` {
			panic("the secret detail")
		}
		return &tool.Result{OK: true}, nil
	}, "a")))
	_, err := call(t, e, "a", `{"panic":true}`)
	if err == nil || err.Code != tool.CodeInternal || strings.Contains(err.Error(), "secret") || !strings.Contains(log.String(), "the secret detail") {
		t.Errorf("%v; log: %s", err, log.String())
	}
	if _, err := call(t, e, "a", ``); err != nil {
		t.Error(err)
	}
}

func TestRunnerWithoutAResultIsAnInternalError(t *testing.T) {
	e := start(t, engine.Options{}, bind("one", source(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, nil }, "a")))
	if _, err := call(t, e, "a", ``); err == nil || err.Code != tool.CodeInternal {
		t.Error(err)
	}
}

func untilDone(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := source(untilDone, "slow", "standard")
		src.specs[0].Timeout = 3 * time.Second
		e := engine.New(engine.Options{Timeout: 7 * time.Second})
		e.Replace(t.Context(), []engine.Binding{bind("one", src)})
		for name, want := range map[string]time.Duration{"slow": 3 * time.Second, "standard": 7 * time.Second} {
			begin := time.Now()
			_, err := call(t, e, name, ``)
			if err == nil || err.Code != tool.CodeTimeout || !strings.Contains(err.Message, fmt.Sprintf("%s ran longer than its %v", name, want)) {
				t.Errorf("%s: %v", name, err)
			}
			kit.Equal(t, time.Since(begin), want, "%s took", name)
		}
		kit.Check(t, e.Close(t.Context()))
	})
}

func TestCancel(t *testing.T) {
	e := start(t, engine.Options{}, bind("one", source(untilDone, "a")))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	kit.Refused(t, kit.Err(e.Invoke(ctx, &tool.Call{Tool: "a"}, tool.Discard)), tool.CodeCancelled, "")
}

func TestEventsAreNumberedAndNoneComesLate(t *testing.T) {
	var late func() error
	e := start(t, engine.Options{}, bind("one", source(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					_ = out.Emit(tool.LogEvent("info", "x"))
				}
			})
		}
		wg.Wait()
		late = func() error { return out.Emit(tool.LogEvent("info", "late")) }
		return &tool.Result{OK: true}, nil
	}, "a")))
	var got []uint64
	sink := tool.SinkFunc(func(ev tool.Event) error { // not safe for concurrent use, on purpose
		if ev.Time.IsZero() {
			t.Error("an event without a time")
		}
		got = append(got, ev.Seq)
		return nil
	})
	kit.Must(e.Invoke(t.Context(), &tool.Call{Tool: "a"}, sink))(t)
	kit.Fails(t, late(), "", "an event after the end was taken")
	kit.MustEqual(t, len(got), 800, "events")
	for i, seq := range got {
		kit.MustEqual(t, seq, uint64(i+1), "event %d has number", i)
	}
}

func TestReplaceKeepsCallsInFlight(t *testing.T) {
	entered, finish := make(chan struct{}), make(chan struct{})
	old := source(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		close(entered)
		<-finish
		return &tool.Result{OK: true, Output: json.RawMessage(`"old"`)}, nil
	}, "a")
	e := start(t, engine.Options{}, bind("one", old))
	got := make(chan string, 1)
	go func() {
		r, err := e.Invoke(context.Background(), &tool.Call{Tool: "a"}, tool.Discard)
		got <- fmt.Sprintf("%s %v", r.Output, err)
	}()
	<-entered
	e.Replace(t.Context(), []engine.Binding{bind("one", source(echo, "a"))})
	if r, err := call(t, e, "a", `{"new":1}`); err != nil || string(r.Output) != `{"new":1}` {
		t.Errorf("a new call goes to the new source: %v, %v", r, err)
	}
	if old.closed.Load() {
		t.Error("the old source was closed under its call")
	}
	close(finish)
	kit.Equal(t, <-got, `"old" <nil>`)
	kit.Eventually(t, "the old source is closed", old.closed.Load)
}

func TestAnUnchangedRunnerStaysBound(t *testing.T) {
	src := source(echo, "a")
	e := start(t, engine.Options{}, bind("one", src))
	e.Replace(t.Context(), []engine.Binding{bind("one", src), bind("two", source(echo, "b"))})
	if _, err := call(t, e, "a", ``); err != nil || src.closed.Load() {
		t.Errorf("%v, closed %v", err, src.closed.Load())
	}
}

func TestReloadUnderLoadDropsNoCall(t *testing.T) {
	e := start(t, engine.Options{}, bind("one", source(echo, "a")))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var calls atomic.Int64
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := e.Invoke(context.Background(), &tool.Call{Tool: "a"}, tool.Discard); err != nil {
					t.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for i := 0; i < 200 || calls.Load() < 1000; i++ {
		e.Replace(t.Context(), []engine.Binding{bind("one", source(echo, "a"))})
	}
	close(stop)
	wg.Wait()
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	entered := make(chan struct{})
	e := engine.New(engine.Options{})
	e.Replace(t.Context(), []engine.Binding{bind("one", source(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		close(entered)
		return untilDone(ctx, c, out)
	}, "a"))})
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = e.Invoke(running, &tool.Call{Tool: "a"}, tool.Discard)
	}()
	<-entered
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if err := e.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	kit.Refused(t, kit.Err(e.Invoke(t.Context(), &tool.Call{Tool: "a"}, tool.Discard)),
		tool.CodeNotFound, "", "a call after Close")
	cancel()
	<-ended
	kit.Check(t, e.Close(context.Background()))
}

// The further lines of a source's error quote the config, which can have secrets in it: they are for operators.
func TestErrorsOfSourcesQuoteNothingToCallers(t *testing.T) {
	e := start(t, engine.Options{}, engine.Binding{Name: "dead", Protocol: "p", Err: errors.New("conf:3: bad\n  3 | token: hunter2")})
	for _, operator := range []bool{false, true} {
		p := tool.Principal{ID: "x", Operates: operator}
		var said []string
		for _, name := range []string{"dead.any", "any"} {
			_, err := e.Invoke(t.Context(), &tool.Call{Tool: name, Caller: p}, tool.Discard)
			said = append(said, err.Error())
		}
		for _, err := range e.Specs(t.Context(), p) {
			said = append(said, err.Error())
		}
		for _, text := range said {
			kit.Equal(t, strings.Contains(text, "hunter2"), operator, "operator %v: %s", operator, text)
		}
	}
}
