package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read parses rules as in a config.
func read(text string) ([]Rule, error) {
	var o struct {
		Quotas []Rule `yaml:"quotas"`
	}
	if err := config.DecodeYAML("toolpost.yaml", []byte(text), &o); err != nil {
		return nil, err
	}
	return o.Quotas, check(o.Quotas, []string{"cli", "http"}, []string{"s", "files"})
}

func rules(t testing.TB, texts ...string) []Rule {
	t.Helper()
	return kit.Must(read("quotas: [" + strings.Join(texts, ", ") + "]"))(t)
}

// A clock stands still until it is moved.
type clock struct{ now time.Time }

func (c *clock) read() time.Time       { return c.now }
func (c *clock) move(by time.Duration) { c.now = c.now.Add(by) }

func newClock() *clock { return &clock{time.Unix(1_000_000, 0)} }

func limited(t testing.TB, c *clock, texts ...string) *Quotas {
	t.Helper()
	q := New(Options{Now: c.read})
	q.Replace(rules(t, texts...))
	return q
}

func spec(name string) *tool.Spec { return &tool.Spec{Name: name, Source: "s"} }

var done = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true}, nil
})

// try makes one call of the tool through the present quotas.
func try(q *Quotas, s *tool.Spec, c tool.Call, next tool.Handler) *tool.Error {
	h := next
	if stage := q.For(s); stage != nil {
		h = stage(next)
	}
	c.Tool, c.Spec = s.Name, s
	_, err := h.Invoke(context.Background(), &c, tool.Discard)
	return tool.AsError(err)
}

func by(id string) tool.Call { return tool.Call{Caller: tool.Principal{ID: id, Door: "http"}} }

// free is how many calls passes counts at most, if nothing limits them.
const free = 100

// passes counts the calls that pass before one is refused.
func passes(t testing.TB, q *Quotas, s *tool.Spec, c tool.Call) (n int, refused *tool.Error) {
	t.Helper()
	for ; n < free; n++ {
		if refused = try(q, s, c, done); refused != nil {
			kit.MustEqual(t, refused.Code, tool.CodeQuotaExceeded, refused)
			return n, refused
		}
	}
	return n, nil
}

func count(t testing.TB, q *Quotas, s *tool.Spec, c tool.Call, want int) {
	t.Helper()
	if n, _ := passes(t, q, s, c); n != want {
		t.Errorf("%d calls of %s by %q passed, not %d", n, s.Name, c.Caller.ID, want)
	}
}

func retryAfter(t testing.TB, e *tool.Error) (rule string, wait time.Duration) {
	t.Helper()
	var d struct {
		Rule string `json:"rule"`
		MS   int64  `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(e.Details, &d); err != nil || d.MS <= 0 {
		t.Fatalf("%s: %v", e.Details, err)
	}
	return d.Rule, time.Duration(d.MS) * time.Millisecond
}

func TestARefusalNamesTheRuleAndSaysWhenToTryAgain(t *testing.T) {
	running := make(chan struct{})
	release := make(chan struct{})
	for name, c := range map[string]struct {
		rule, reason, message string
		wait                  time.Duration
	}{
		"rate": {`{name: r, per: caller, rate: 100/m, burst: 2, reason: be gentle}`, "rate",
			`a was not run: quota "r" allows 100 calls a minute, 2 of them at once, for each caller; try again in 600ms (be gentle)`, 600 * time.Millisecond},
		"a whole rate": {`{name: r, rate: 1/d}`, "rate", `a was not run: quota "r" allows 1 call a day for all together; try again in 24h0m0s`, 24 * time.Hour},
		"units": {`{name: u, per: [caller, tool], units: 7/h, cost: {a: 3}}`, "units",
			`a was not run: quota "u" allows 7 units an hour for each caller and tool, and this call costs 3; try again in 17m8.572s`, 17*time.Minute + 8572*time.Millisecond},
		"the longest": {`{name: r, rate: 1/s}, {name: u, units: 1/m}, {name: v, rate: 3/m, burst: 1}`, "units",
			`a was not run: quota "u" allows 1 unit a minute for all together, and this call costs 1; try again in 1m0s`, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			clk := newClock()
			q := limited(t, clk, c.rule)
			_, e := passes(t, q, spec("a"), by("ada"))
			if e.Reason != c.reason || e.Message != c.message {
				t.Errorf("%s: %s", e.Reason, e.Message)
			}
			_, wait := retryAfter(t, e)
			kit.Equal(t, wait, c.wait, "wait")
			clk.move(wait - time.Millisecond)
			if try(q, spec("a"), by("ada"), done) == nil {
				t.Error("it passes before the time that was named")
			}
			clk.move(time.Millisecond)
			if e := try(q, spec("a"), by("ada"), done); e != nil {
				t.Errorf("it does not pass at the time that was named: %v", e)
			}
		})
	}
	q := limited(t, newClock(), `{name: c, per: caller, concurrency: 1}`)
	first := make(chan *tool.Error)
	go func() {
		first <- try(q, spec("a"), by("ada"), tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			close(running)
			<-release
			return &tool.Result{OK: true}, nil
		}))
	}()
	<-running
	e := try(q, spec("a"), by("ada"), done)
	const message = `a was not run: quota "c" allows 1 call at the same time for each caller, and as many are running; try again in 1s`
	if e == nil || e.Reason != "concurrency" || e.Message != message {
		t.Errorf("%v", e)
	}
	if e := try(q, spec("a"), by("bob"), done); e != nil {
		t.Errorf("somebody else: %v", e)
	}
	close(release)
	if e := <-first; e != nil {
		t.Error(e)
	}
	if e := try(q, spec("a"), by("ada"), done); e != nil {
		t.Errorf("after it ended: %v", e)
	}
}

func TestRuleCountsPerNamedDimension(t *testing.T) {
	code := spec("code")
	code.Input = json.RawMessage(`{"properties":{"codebaseId":{}}}`)
	call := func(caller, door, session, args string) tool.Call {
		return tool.Call{Caller: tool.Principal{ID: caller, Door: door}, Session: session, Args: json.RawMessage(args)}
	}
	base := call("ada", "http", "1", `{"codebase_id":"x"}`)
	for _, c := range []struct {
		per   string
		tool  *tool.Spec
		call  tool.Call
		apart bool
	}{
		{"[]", spec("b"), call("bob", "cli", "2", ""), false},
		{"caller", spec("b"), call("ada", "cli", "2", ""), false},
		{"caller", spec("a"), call("bob", "http", "1", ""), true},
		{"tool", spec("a"), call("bob", "cli", "2", ""), false},
		{"tool", spec("b"), base, true},
		{"source", spec("b"), call("bob", "cli", "2", ""), false},
		{"source", &tool.Spec{Name: "a", Source: "files"}, base, true},
		{"door", spec("b"), call("bob", "http", "2", ""), false},
		{"door", spec("a"), call("ada", "cli", "1", ""), true},
		{"session", spec("b"), call("bob", "cli", "1", ""), false},
		{"session", spec("a"), call("ada", "http", "2", ""), true},
		{"codebase", spec("b"), call("bob", "cli", "2", `{"codebaseId":"x"}`), false},
		{"codebase", spec("b"), call("bob", "cli", "2", `{"codebase_id":"\u0078"}`), false},
		{"codebase", spec("b"), call("bob", "cli", "2", `{"codebase_id":"x","codebaseId":"y"}`), false},
		{"codebase", spec("a"), call("ada", "http", "1", `{"codebase_id":"y"}`), true},
		{"codebase", spec("a"), call("ada", "http", "1", `{}`), true},
		{"codebase", code, base, true}, // it does not know codebase_id: no codebase is named
		{"[caller, session]", spec("b"), call("ada", "cli", "1", ""), false},
		{"[caller, session]", spec("b"), call("ada", "cli", "2", ""), true},
		{"[caller, session]", spec("b"), call("ad", "cli", "a1", ""), true},
	} {
		q := limited(t, newClock(), fmt.Sprintf("{name: r, per: %s, rate: 3/h}", c.per))
		count(t, q, spec("a"), base, 3)
		want := 0
		if c.apart {
			want = 3
		}
		if n, _ := passes(t, q, c.tool, c.call); n != want {
			t.Errorf("per %s: %d calls of %s.%s by %+v %s %s passed, not %d", c.per, n, c.tool.Source, c.tool.Name, c.call.Caller, c.call.Session, c.call.Args, want)
		}
	}
}

func TestCallsWithoutACodebaseAreCountedTogether(t *testing.T) {
	q := limited(t, newClock(), "{name: r, per: codebase, rate: 4/h}")
	for _, args := range []string{``, `{}`, `{"codebase_id":5}`, `{"codebase_id":""}`} {
		if e := try(q, spec("a"), tool.Call{Args: json.RawMessage(args)}, done); e != nil {
			t.Error(e)
		}
	}
	count(t, q, spec("a"), tool.Call{Args: json.RawMessage(`[]`)}, 0)
}

func TestRuleAppliesToMatchingCalls(t *testing.T) {
	named := &tool.Spec{Name: "readFile", Source: "files", Aliases: []string{"file.read"}}
	for rule, hit := range map[string]bool{
		"tools: readFile": true, "tools: files.readFile": true, "tools: file.read": true, "tools: 'read*'": true, "tools: 'r??dFile'": true,
		"tools: [x, 'files.*']": true, "tools: read": false, "tools: '*file'": false, "sources: files": true, "sources: s": false,
		"callers: ada": true, "callers: 'a*'": true, "callers: [bob, 'c*']": false, "doors: http": true, "doors: cli": false,
		"tools: readFile, callers: bob": false, "tools: 'a.*'": false, "callers: '?'": false,
	} {
		q := limited(t, newClock(), "{name: r, rate: 1/h, "+rule+"}")
		n, _ := passes(t, q, named, by("ada"))
		kit.Equal(t, (n == 1), hit, "%s: %d calls passed", rule, n)
	}
}

func TestCostDependsOnTheTool(t *testing.T) {
	alias := &tool.Spec{Name: "x", Source: "s", Aliases: []string{"free", "dear"}}
	for _, c := range []struct {
		cost string
		tool *tool.Spec
		want int
	}{
		{"{}", spec("a"), 10}, {"{a: 5}", spec("a"), 2}, {"{s.a: 5}", spec("a"), 2}, {"{b: 5}", spec("a"), 10},
		{"{b: 5, default: 3}", spec("a"), 3}, {"{a: 0, default: 3}", spec("a"), free}, {"{free: 0, dear: 5}", alias, 2},
		{"{default: 5}", spec("default"), 2}, {"{a: 10}", spec("a"), 1},
	} {
		q := limited(t, newClock(), "{name: u, units: 10/h, cost: "+c.cost+"}")
		if n, _ := passes(t, q, c.tool, by("ada")); n != c.want {
			t.Errorf("%s: %d calls of %s passed, not %d", c.cost, n, c.tool.Name, c.want)
		}
	}
}

func TestRefusedCallIsNotCountedByOtherRules(t *testing.T) {
	q := limited(t, newClock(), "{name: all, rate: 5/h}", "{name: one, per: caller, rate: 2/h}")
	count(t, q, spec("a"), by("ada"), 2)
	count(t, q, spec("a"), by("ada"), 0)
	count(t, q, spec("a"), by("bob"), 2)
	count(t, q, spec("a"), by("eve"), 1)
}

func TestWithoutRulesThereIsNoStage(t *testing.T) {
	q := New(Options{})
	if q.For(spec("a")) != nil {
		t.Error("a stage, and no rule")
	}
	q.Replace(rules(t, "{name: r, tools: b, rate: 1/h}"))
	if q.For(spec("a")) != nil || q.For(spec("b")) == nil {
		t.Error("a rule is for the tools that it names")
	}
}

func TestClockGoingBackDoesNotChangeTheQuota(t *testing.T) {
	clk := newClock()
	q := limited(t, clk, "{name: r, rate: 2/s}")
	if e := try(q, spec("a"), by("ada"), done); e != nil {
		t.Fatal(e)
	}
	clk.move(-time.Hour)
	count(t, q, spec("a"), by("ada"), 1)
	clk.move(time.Hour)
	count(t, q, spec("a"), by("ada"), 0)
	clk.move(time.Second / 2)
	count(t, q, spec("a"), by("ada"), 1)
}

func TestTheLargestNumbersAreCountedExactly(t *testing.T) {
	clk := newClock()
	q := limited(t, clk, "{name: r, units: 100000000/d, cost: {a: 100000000, b: 1}}", "{name: s, rate: 100000000/s, burst: 100000000}")
	count(t, q, spec("a"), by("ada"), 1)
	clk.move(24*time.Hour - time.Microsecond)
	count(t, q, spec("a"), by("ada"), 0)
	clk.move(time.Microsecond)
	count(t, q, spec("a"), by("ada"), 1)
	count(t, q, spec("b"), by("ada"), 0)
	clk.move(863 * time.Microsecond) // a unit is 864 long
	count(t, q, spec("b"), by("ada"), 0)
	clk.move(time.Microsecond)
	count(t, q, spec("b"), by("ada"), 1)
	clk.move(200 * 365 * 24 * time.Hour)
	count(t, q, spec("a"), by("ada"), 1)
}

func TestConcurrentCallsRespectTheRate(t *testing.T) {
	q := limited(t, newClock(), "{name: r, per: caller, rate: 1000/h, burst: 500}", "{name: u, units: 700/h, cost: {default: 1}}")
	var passed [2]atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for range 50 {
				who := i % 2
				if try(q, spec("a"), by(fmt.Sprint(who)), done) == nil {
					passed[who].Add(1)
				}
			}
		})
	}
	all.Wait()
	a, b := passed[0].Load(), passed[1].Load()
	if a > 500 || b > 500 || a+b != 700 {
		t.Errorf("%d and %d passed", a, b)
	}
}

func TestConcurrentCallsRespectTheConcurrencyLimit(t *testing.T) {
	q := limited(t, newClock(), "{name: c, per: caller, concurrency: 8}")
	const callers, most = 64, 8
	var refused, all sync.WaitGroup
	var passed, running, peak atomic.Int64
	refused.Add(callers - most)
	release := make(chan struct{})
	next := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		if n := running.Add(1); n > peak.Load() {
			peak.Store(n)
		}
		defer running.Add(-1)
		<-release
		return &tool.Result{OK: true}, nil
	})
	for range callers {
		all.Go(func() {
			if try(q, spec("a"), by("ada"), next) != nil {
				refused.Done()
				return
			}
			passed.Add(1)
		})
	}
	refused.Wait()
	close(release)
	all.Wait()
	if passed.Load() != most || peak.Load() > most {
		t.Errorf("%d passed, %d at once", passed.Load(), peak.Load())
	}
	for range 20 {
		if e := try(q, spec("a"), by("ada"), done); e != nil {
			t.Fatalf("a slot is lost: %v", e)
		}
	}
}

func TestEveryOutcomeReleasesTheSlot(t *testing.T) {
	q := limited(t, newClock(), "{name: c, concurrency: 1}")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	ends := map[string]tool.HandlerFunc{
		"a result":  done,
		"a failure": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return tool.Failed("", "no"), nil },
		"an error":  func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, errors.New("no") },
		"cancelled": func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) { return nil, ctx.Err() },
		"a panic":   func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { panic("no") },
		"Goexit":    func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { runtime.Goexit(); return nil, nil },
	}
	for name, end := range ends {
		ran := false
		var ended sync.WaitGroup
		ended.Go(func() {
			defer func() { _ = recover() }()
			h := q.For(spec("a"))(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				ran = true
				return end(ctx, c, out)
			}))
			_, _ = h.Invoke(cancelled, &tool.Call{Tool: "a"}, tool.Discard)
		})
		ended.Wait()
		if !ran {
			t.Errorf("before %s: there is no slot", name)
		}
	}
	if e := try(q, spec("a"), tool.Call{}, done); e != nil {
		t.Error(e)
	}
}

func TestAReloadKeepsTheCountsOfRulesThatStayTheSame(t *testing.T) {
	const same, other = "{name: a, per: caller, rate: 5/h, concurrency: 2, tools: ['x*'], cost: {x: 2}, units: 100/h}", "{name: b, rate: 7/h, tools: y}"
	q := limited(t, newClock(), same, other)
	inside := q.of(spec("x1"))
	held := inside.claims(&tool.Call{}, nil)
	if _, wait, _ := q.enter(held); wait > 0 {
		t.Fatal(wait)
	}
	count(t, q, spec("x1"), by("ada"), 5)
	count(t, q, spec("y"), by("ada"), 7)
	q.Replace(rules(t, "{name: b, rate: 8/h, tools: y}", "{name: z, rate: 9/h, tools: z}", same)) // in another order
	count(t, q, spec("x1"), by("ada"), 0)
	count(t, q, spec("y"), by("ada"), 8)
	count(t, q, spec("z"), by("ada"), 9)
	again := q.of(spec("x1")).claims(&tool.Call{}, nil)
	if again[0].limiter != held[0].limiter || held[0].entry.running != 1 {
		t.Error("the call that runs is not counted any more")
	}
	q.Replace(rules(t, other))
	q.leave(held) // a removed rule is no problem
	if q.For(spec("x1")) != nil {
		t.Error("a rule that is gone limits")
	}
	q.Replace(nil)
	if q.For(spec("y")) != nil {
		t.Error("rules that are gone limit")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	clk := newClock()
	q := New(Options{Now: clk.read, Keys: 1000})
	q.Replace(rules(t, "{name: r, per: session, rate: 1/d}", "{name: c, per: caller, rate: 3/d}"))
	count(t, q, spec("a"), by("ada"), 1) // the empty session is used up
	held := q.of(spec("a")).claims(&tool.Call{Session: "held"}, nil)
	if _, wait, _ := q.enter(held); wait > 0 {
		t.Fatal(wait)
	}
	for i := range 20_000 {
		c := by(fmt.Sprint("eve", i))
		c.Session = fmt.Sprint(i)
		if e := try(q, spec("a"), c, done); e != nil {
			t.Fatal(e)
		}
		for _, l := range q.limiters {
			if n := len(l.entries); n > 502 || n != l.used.Len() {
				t.Fatalf("rule %s counts %d keys, %d in order", l.Name, n, l.used.Len())
			}
		}
	}
	kit.Equal(t, q.limiters[0].entries[held[0].key], held[0].entry, "a call that runs was forgotten")
	q.leave(held)
	last := by("last")
	last.Session = "19999"
	count(t, q, spec("a"), last, 0) // used a moment ago: still known
	clk.move(25 * time.Hour)
	for i := range 1000 {
		c := by("")
		c.Session = fmt.Sprint("later", i)
		_ = try(q, spec("a"), c, done)
		clk.move(25 * time.Hour)
	}
	for _, l := range q.limiters {
		if len(l.entries) > 2 {
			t.Errorf("rule %s remembers %d keys of which nothing is missing", l.Name, len(l.entries))
		}
	}
}

// A bank gives what is asked for, until others have it all.
type bank struct{ empty bool }

func (b *bank) Draw(_ context.Context, d Draw) (Share, error) {
	if b.empty {
		return Share{Wait: time.Second}, nil
	}
	return Share{Held: d.Want}, nil
}

func TestAConcurrencyThatWasTakenAwayIsNotUsed(t *testing.T) {
	c, b := newClock(), &bank{}
	q := New(Options{Now: c.read, Shared: b})
	q.Replace(rules(t, `{name: c, concurrency: 2}`))
	inner := func() *tool.Error { return try(q, spec("t"), by("ada"), done) }
	try(q, spec("t"), by("ada"), tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		if err := inner(); err != nil {
			t.Error(err)
		}
		b.empty = true // the store was away for so long that this program counts as gone
		c.move(spendFor + validFor)
		if err := inner(); err == nil || err.Code != tool.CodeQuotaExceeded {
			t.Errorf("a second call runs: %v", err)
		}
		return &tool.Result{OK: true}, nil
	}))
}
