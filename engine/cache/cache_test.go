package cache_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/audit"
	"toolpost/engine/cache"
	"toolpost/engine/policy"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A source has tools that read and tools that may do more. Each answer is the number of calls so far.
type source struct {
	ran    int
	during func(c *tool.Call, out tool.Sink) *tool.Result // nil, or a nil result, means the number of the run
}

func (s *source) Tools(context.Context) ([]*tool.Spec, error) {
	reads := tool.Effects{Reads: true}
	return []*tool.Spec{
		{Name: "read", Effects: reads, Aliases: []string{"file.read"}}, {Name: "list", Effects: reads},
		{Name: "write", Effects: tool.Effects{Reads: true, Writes: true}}, {Name: "odd"}, // declares nothing
	}, nil
}

func (s *source) Close(context.Context) error { return nil }

func (s *source) Invoke(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	s.ran++
	r := &tool.Result{OK: true, Output: json.RawMessage(fmt.Sprint(s.ran)), Summary: "read", Trace: tool.Trace{Details: map[string]any{"pid": 1}}}
	if s.during != nil {
		if other := s.during(c, out); other != nil {
			return other, nil
		}
	}
	return r, nil
}

// A log keeps records in memory.
type log struct{ rows []tool.Record }

func (l *log) Begin(context.Context, *tool.Record) error { return nil }

func (l *log) Append(_ context.Context, r *tool.Record, _ bool) error {
	l.rows = append(l.rows, *r)
	return nil
}

func (l *log) Later(r *tool.Record, _ func(*tool.Record, error)) {
	_ = l.Append(context.Background(), r, false)
}

// A house is an engine with two sources, and a clock.
type house struct {
	*engine.Engine
	cache *cache.Cache
	a, b  *source
	log   log
	now   time.Time
	rules *policy.Policy
}

func rules(t testing.TB, text string) []cache.Rule {
	t.Helper()
	var o struct {
		Cache []cache.Rule `yaml:"cache"`
	}
	kit.OK(t, config.DecodeYAML("toolpost.yaml", []byte("cache: "+text+"\n"), &o))
	return o.Cache
}

func open(t *testing.T, text string) *house {
	t.Helper()
	h := &house{a: &source{}, b: &source{}, now: time.Now()}
	h.cache = cache.New(cache.Options{Now: func() time.Time { return h.now }})
	h.cache.Replace(rules(t, text))
	h.Engine = engine.New(engine.Options{
		Stages: map[string]engine.Stage{"cache": h.cache.For}, Audit: audit.New(audit.Options{Log: &h.log}), Policy: func() *policy.Policy { return h.rules },
	})
	h.bind(t)
	t.Cleanup(func() {
		kit.Check(t, h.Close(context.Background()))
	})
	return h
}

func (h *house) bind(t *testing.T) {
	h.Replace(t.Context(), []engine.Binding{{Name: "a", Protocol: "fake", Runner: h.a}, {Name: "b", Protocol: "fake", Runner: h.b}})
}

// call returns the answer of a call: a number, with * if it was cached.
func (h *house) call(t *testing.T, name string, change ...func(*tool.Call)) string {
	t.Helper()
	c := tool.Call{Tool: name, Args: json.RawMessage(`{"x":1}`), Caller: tool.Principal{ID: "ada", Door: "http"}}
	for _, f := range change {
		f(&c)
	}
	r, err := h.Invoke(t.Context(), &c, tool.Discard)
	kit.OK(t, err, name)
	if row := h.log.rows[len(h.log.rows)-1]; row.Cached != r.Trace.Cached || row.Call != r.Trace.Call {
		t.Errorf("%s: cached is %v, and recorded as %v", name, r.Trace.Cached, row.Cached)
	}
	if r.Trace.Cached {
		if r.Trace.Details != nil || r.Summary != "read" || !r.OK || r.Trace.Tool == "" || r.Trace.Source == "" || r.Trace.Protocol != "fake" {
			t.Errorf("%s: the cached result is %+v", name, r)
		}
		return string(r.Output) + "*"
	}
	return string(r.Output)
}

// expect makes calls, each written as a name and the answer.
func (h *house) expect(t *testing.T, calls ...string) {
	t.Helper()
	for i, text := range calls {
		name, want, _ := strings.Cut(text, " ")
		if got := h.call(t, name); got != want {
			t.Errorf("call %d: %s gave %s, not %s", i+1, name, got, want)
		}
	}
}

func TestOnlyToolsThatAreNamedAreCached(t *testing.T) {
	h := open(t, "[{tools: [read], ttl: 1m}]")
	h.expect(t, "read 1", "read 1*", "file.read 1*", "a.read 1*", "list 2", "list 3", "read 1*", "b.list 1", "b.list 2")
}

func TestWithoutRulesNothingIsCached(t *testing.T) {
	h := open(t, "[]")
	h.expect(t, "read 1", "read 2", "write 3", "read 4")
}

func TestAResultIsNotGivenAgainWhenItIsTooOld(t *testing.T) {
	h := open(t, "[{tools: [read], ttl: 1m}]")
	h.expect(t, "read 1", "read 1*")
	h.now = h.now.Add(time.Minute - 1)
	h.expect(t, "read 1*")
	h.now = h.now.Add(1)
	h.expect(t, "read 2", "read 2*")
}

func TestACallThatMayChangeTheSourceMakesItsResultsOld(t *testing.T) {
	h := open(t, "[{tools: ['*'], ttl: 1m}]")
	h.expect(t, "read 1", "list 2", "b.read 1", "read 1*", "list 2*", "b.read 1*")
	h.expect(t, "write 3", "read 4", "list 5", "b.read 1*") // invalidates the one source, not the other
	h.expect(t, "odd 6", "read 7", "read 7*")               // a tool that declares nothing may do anything
}

func TestConfiguredToolsInvalidateResults(t *testing.T) {
	h := open(t, "[{tools: [a.read], ttl: 1m, invalidate: [b.*]}, {tools: [b.list], ttl: 1m, invalidate: [b.*]}]")
	h.expect(t, "read 1", "read 1*", "list 2", "read 1*")
	h.expect(t, "b.write 1", "read 3", "read 3*")
	h.expect(t, "b.read 2", "read 4") // also a tool that only reads
	h.expect(t, "b.list 3", "read 5") // and a tool whose own results are kept
	h.expect(t, "b.list 3*", "read 6", "b.list 3*")
}

func TestCallWithSessionOrLeaseIsNotCached(t *testing.T) {
	h := open(t, "[{tools: [read], ttl: 1m}]")
	h.expect(t, "read 1")
	for what, change := range map[string]func(*tool.Call){
		"session": func(c *tool.Call) { c.Session = "s" }, "answers": func(c *tool.Call) { c.Answers = json.RawMessage(`{}`) },
		"resume": func(c *tool.Call) { c.Resume = "q" }, "lease": func(c *tool.Call) { c.Lease = "l" },
		"state": func(c *tool.Call) { c.State = json.RawMessage(`{}`) },
	} {
		for range 2 {
			if got := h.call(t, "read", change); strings.HasSuffix(got, "*") {
				t.Errorf("a call with a %s was answered from memory", what)
			}
		}
	}
	h.expect(t, "read 1*") // and none of them replaced it
}

func TestCallersDoNotSeeEachOthersResults(t *testing.T) {
	h := open(t, "[{tools: [read], ttl: 1m}, {tools: [list], ttl: 1m, shared: true}]")
	bob := func(c *tool.Call) { c.Caller.ID = "bob" }
	nats := func(c *tool.Call) { c.Caller.Door = "nats" }
	other := func(c *tool.Call) { c.Args = json.RawMessage(`{"x":2}`) }
	h.expect(t, "read 1", "list 2")
	for _, step := range []struct {
		tool, want string
		change     func(*tool.Call)
	}{
		{"read", "3", bob}, {"read", "3*", bob}, {"read", "4", nats}, {"read", "5", other}, {"list", "2*", bob}, {"list", "2*", nats}, {"list", "6", other},
	} {
		kit.Equal(t, h.call(t, step.tool, step.change), step.want, step.tool)
	}
	h.expect(t, "read 1*")

	// What a tool answers with the account of its caller is about that account.
	connected := func(id, account string) func(*tool.Call) {
		value := func(context.Context) (string, error) { return account, nil }
		return func(c *tool.Call) {
			c.Caller.ID, c.Credentials = id, []*tool.Credential{{Connection: "github", Value: value}}
		}
	}
	for _, step := range [][3]string{{"bob", "a", "7"}, {"eve", "a", "8"}, {"eve", "a", "8*"}, {"eve", "another", "9"}, {"eve", "a", "8*"}} {
		kit.Equal(t, h.call(t, "list", connected(step[0], step[1])), step[2])
	}
}

func TestPolicyKeepsResultsApart(t *testing.T) {
	h := open(t, "[{tools: [read], ttl: 1m, shared: true}]")
	judge := func(text string) {
		t.Helper()
		var o policy.Options
		kit.OK(t, config.DecodeYAML("toolpost.yaml", []byte(text), &o))
		var err error
		if h.rules, err = policy.New(o, policy.Env{Dir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		h.bind(t)
	}
	bob := func(c *tool.Call) { c.Caller.ID = "bob" }
	judge("rules: [{name: walls, effect: confine, callers: [bob], guarantees: {no_network: true}}]")
	h.expect(t, "read 1", "read 1*")
	if first, second := h.call(t, "read", bob), h.call(t, "read", bob); first != "2" || second != "2*" {
		t.Errorf("behind walls: %s, %s", first, second)
	}
	h.expect(t, "read 1*")
	judge("rules: [{name: no, effect: deny, callers: [bob]}]")
	h.expect(t, "read 3", "read 3*")
	c := tool.Call{Tool: "read", Args: json.RawMessage(`{"x":1}`), Caller: tool.Principal{ID: "bob", Door: "http"}}
	if r, err := h.Invoke(t.Context(), &c, tool.Discard); err == nil {
		t.Errorf("somebody who is denied the tool got %s", r.Output)
	}
}

func TestOnlyCompleteResultsAreCached(t *testing.T) {
	emit := func(k tool.Kind) func(*tool.Call, tool.Sink) *tool.Result {
		return func(_ *tool.Call, out tool.Sink) *tool.Result {
			_ = out.Emit(tool.Event{Kind: k, Data: json.RawMessage(`{}`)})
			return nil
		}
	}
	give := func(r tool.Result) func(*tool.Call, tool.Sink) *tool.Result {
		return func(*tool.Call, tool.Sink) *tool.Result { return &r }
	}
	long := json.RawMessage(`"` + strings.Repeat("x", 100) + `"`)
	for what, test := range map[string]struct {
		during func(*tool.Call, tool.Sink) *tool.Result
		kept   bool
	}{
		"a log": {emit(tool.KindLog), true}, "progress": {emit(tool.KindProgress), true}, "a piece": {emit(tool.KindOutput), true},
		"a patch": {emit(tool.KindStatePatch), false}, "an asset": {emit(tool.KindAsset), false},
		"an event": {emit(tool.KindUIEvent), false}, "an error": {emit(tool.KindError), false},
		"a failure": {give(*tool.Failed("no", "no")), false}, "a question": {give(tool.Result{OK: true, Ask: &tool.Ask{ID: "q"}}), false},
		"too long": {give(tool.Result{OK: true, Output: long, Summary: "read"}), false}, "not too long": {give(tool.Result{OK: true, Output: long[:100], Summary: ""}), true},
	} {
		h := open(t, "[{tools: [read], ttl: 1m, max_bytes: 100}]")
		h.a.during = test.during
		for range 2 {
			_, _ = h.Invoke(t.Context(), &tool.Call{Tool: "read"}, tool.Discard)
		}
		kit.Equal(t, h.a.ran == 1, test.kept, "%s: it ran %d times", what, h.a.ran)
	}
}

func TestAReadDuringAWriteIsNotKept(t *testing.T) {
	h := open(t, "[{tools: [read], ttl: 1m}]")
	h.expect(t, "read 1")
	h.a.during = func(c *tool.Call, _ tool.Sink) *tool.Result {
		if c.Tool == "write" {
			h.expect(t, "read 3", "read 4") // neither the earlier result nor each other's
		}
		return nil
	}
	h.expect(t, "write 2", "read 5", "read 5*")
}

func TestAReadThatAWriteOvertookIsNotKept(t *testing.T) {
	for _, write := range []string{"write", "b.write"} {
		h := open(t, "[{tools: [read], ttl: 1m, invalidate: [b.write]}]")
		h.a.during = func(c *tool.Call, _ tool.Sink) *tool.Result {
			if c.Tool == "read" {
				h.a.during = nil
				h.call(t, write)
			}
			return nil
		}
		if first, second := h.call(t, "read"), h.call(t, "read"); strings.HasSuffix(second, "*") {
			t.Errorf("%s: %s, then %s", write, first, second)
		}
	}
}

func TestAReloadForgetsEverything(t *testing.T) {
	h := open(t, "[{tools: [read], ttl: 1m}]")
	h.expect(t, "read 1", "read 1*")
	h.a = &source{ran: 10}
	h.bind(t)
	h.expect(t, "read 11", "read 11*")
	h.cache.Replace(rules(t, "[{tools: [list], ttl: 1m}]"))
	h.bind(t)
	h.expect(t, "read 12", "read 13", "list 14", "list 14*")
	if s := h.cache.Stats(); s.Entries != 1 || s.Hits != 3 {
		t.Errorf("%+v", s)
	}
}

func TestAWriteThatAReloadOvertookStillCounts(t *testing.T) {
	for _, before := range []string{"[]", "[{tools: [list], ttl: 1m}]"} {
		for _, write := range []string{"write", "b.write"} {
			h := open(t, before)
			during := func(c *tool.Call, _ tool.Sink) *tool.Result {
				if c.Tool == "write" {
					h.cache.Replace(rules(t, "[{tools: [read], ttl: 1m, invalidate: [b.write]}]"))
					h.bind(t)
					h.call(t, "read")
				}
				return nil
			}
			h.a.during, h.b.during = during, during
			h.call(t, write)
			if got := h.call(t, "read"); strings.HasSuffix(got, "*") {
				t.Errorf("%s: a read after %s gave %s", before, write, got)
			}
		}
	}
}

func TestCallerCannotModifyACachedResult(t *testing.T) {
	h := open(t, "[{tools: [read], ttl: 1m}]")
	for range 3 {
		r, err := h.Invoke(t.Context(), &tool.Call{Tool: "read"}, tool.Discard)
		if err != nil || string(r.Output) != "1" {
			t.Fatalf("%s, %v", r.Output, err)
		}
		r.Output[0] = 'x'
	}
}

func TestTheCacheTakesOnlySoMuchMemory(t *testing.T) {
	c := cache.New(cache.Options{Bytes: 100 << 10})
	c.Replace(rules(t, "[{tools: [read], ttl: 1m}]"))
	spec := &tool.Spec{Name: "read", Source: "a", Effects: tool.Effects{Reads: true}}
	ran := map[string]int{}
	h := c.For(spec)(tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		ran[string(c.Args)]++
		return &tool.Result{OK: true, Output: json.RawMessage(`"` + strings.Repeat("x", 10_000) + `"`)}, nil
	}))
	call := func(args string) {
		kit.Must(h.Invoke(t.Context(), &tool.Call{Args: json.RawMessage(args), Spec: spec}, tool.Discard))(t)
	}
	for i := range 100 {
		call(fmt.Sprint(i))
		call("often")
		if s := c.Stats(); s.Bytes > 100<<10 || s.Entries > 9 {
			t.Fatalf("%+v", s)
		}
	}
	kit.Equal(t, ran["often"], 1, "runs of what is used most")
	if call("0"); ran["0"] != 2 {
		t.Errorf("what was not used for longest was run %d times", ran["0"])
	}
}

func TestMistakesInTheRules(t *testing.T) {
	for text, want := range map[string]string{
		"[{ttl: 1m}]": "keeps nothing", "[{tools: [], ttl: 1m}]": "keeps nothing", "[{tools: [read]}]": "no ttl", "[{tools: [read], ttl: 25h}]": "no ttl",
		"[{tools: [read], ttl: 1m, max_bytes: -1}]": "max_bytes", "[{tools: [read], ttl: 1m, max_bytes: 1048577}]": "max_bytes",
		"[{tools: [''], ttl: 1m}]": "empty", "[{tools: read, ttl: 1m, share: true}]": "shared",
	} {
		var o struct {
			Cache []cache.Rule `yaml:"cache"`
		}
		kit.Fails(t, config.DecodeYAML("toolpost.yaml", []byte("cache: "+text+"\n"), &o), want, text)
	}
	cfg, err := config.Parse("toolpost.yaml", []byte("limits: {cache: ["+strings.Repeat("{tools: a, ttl: 1s},", 101)+"]}\n"))
	kit.OK(t, err)
	kit.Refused(t, kit.Err(cache.New(cache.Options{}).Read(cfg)), tool.CodeInvalidInput, "101 caches")
}

func TestWritingToolCannotBeCached(t *testing.T) {
	for text, want := range map[string]string{
		"[{tools: [read, '*'], ttl: 1m}]": "", "[{tools: ['w*'], ttl: 1m}]": "", "[{tools: [elsewhere], ttl: 1m}]": "",
		"[{tools: [write, odd], ttl: 1m}]": "odd, write cannot be cached", "[{tools: [a.write], ttl: 1m}]": "write cannot be cached",
	} {
		h := open(t, text)
		if err := h.cache.Misplaced(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
		if first, second := h.call(t, "write"), h.call(t, "write"); first == second || strings.HasSuffix(second, "*") {
			t.Errorf("%s: %s, then %s", text, first, second)
		}
	}
}
