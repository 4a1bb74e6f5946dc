package job_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	jobtools "toolpost/builtin/job"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/ask"
	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/job"
	"toolpost/engine/lease"
	"toolpost/engine/persist"
	"toolpost/engine/policy"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ jobtools.Jobs    = (*job.Queue)(nil)
	_ jobtools.AllJobs = (*job.Queue)(nil)
)

var ada = tool.Principal{ID: "ada", Door: "http", Rights: &tool.Rights{Roles: []string{"dev"}}}

// A shop is a source whose tools count how often they ran, and wait when a test wants them to.
type shop struct {
	mu    sync.Mutex
	ran   map[string]int // by the argument n
	calls []*tool.Call
	hold  chan struct{} // if not nil, tools named wait... wait for it, or until they are cancelled
	safe  bool          // waitOnce declares that it may run twice after all
}

func (s *shop) Tools(context.Context) ([]*tool.Spec, error) {
	in := json.RawMessage(`{"type":"object","properties":{"n":{"type":"string"}},"additionalProperties":false}`)
	return []*tool.Spec{
		{Name: "once", Input: in, Effects: tool.Effects{Writes: true}},
		{Name: "again", Input: in, Effects: tool.Effects{Writes: true, Idempotent: true}},
		{Name: "waitOnce", Input: in, Effects: tool.Effects{Writes: true, Idempotent: s.safe}},
		{Name: "waitAgain", Input: in, Effects: tool.Effects{Reads: true}},
		{Name: "fails", Input: in}, {Name: "asks", Input: in}, {Name: "talks", Input: in},
		{Name: "danger", Input: in, Effects: tool.Effects{Destructive: true}},
	}, nil
}
func (s *shop) Close(context.Context) error { return nil }

func (s *shop) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	var args struct{ N string }
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.ran[args.N]++
	s.calls = append(s.calls, c)
	hold := s.hold
	s.mu.Unlock()
	if err := out.Emit(tool.LogEvent("info", "begun "+args.N)); err != nil {
		return nil, err
	}
	switch c.Tool {
	case "fails":
		failed := tool.Failed("NoLuck", "not today")
		failed.Content = &tool.Content{Blocks: []json.RawMessage{json.RawMessage(`{"type":"text","text":"not today"}`)}, Meta: json.RawMessage(`{"k":1}`)}
		if args.N == "large" {
			failed.Content.Blocks = append(failed.Content.Blocks, json.RawMessage(`"`+strings.Repeat("x", 17<<20)+`"`))
		}
		return failed, nil
	case "asks":
		if args.N == "twice" && c.Answers == nil || args.N == "several" && c.Answers == nil {
			return &tool.Result{Ask: severalThings(args.N)}, nil
		}
		if c.Answers == nil || args.N == "twice" && c.Resume != "again" {
			return &tool.Result{Ask: &tool.Ask{ID: "again", Message: "sure?", Schema: json.RawMessage(`{"type":"boolean"}`)}}, nil
		}
		if args.N != "held" {
			return &tool.Result{OK: true, Output: json.RawMessage(`{"answers":` + string(c.Answers) + `,"resume":"` + c.Resume + `"}`)}, nil
		}
	case "talks":
		lines, text := 12, "a line"
		if args.N == "large" {
			lines, text = 3, strings.Repeat("x", 5<<20)
		}
		for range lines {
			if err := out.Emit(tool.LogEvent("info", text)); err != nil {
				return nil, err
			}
		}
	}
	if (strings.HasPrefix(c.Tool, "wait") || args.N == "held") && hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &tool.Result{OK: true, Output: json.RawMessage(`{"n":"` + args.N + `"}`)}, nil
}

func (s *shop) times(n string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[n]
}

// A program is an engine with a queue, over a store that it may share.
type program struct {
	*engine.Engine
	t     *testing.T
	queue *job.Queue
	jobs  *store.JobTable
	stop  func() // ends Run, and waits
}

// open makes a program that does not run jobs yet.
func open(t *testing.T, path string, s *shop, o job.Options) *program {
	t.Helper()
	db := kit.Must(sqlite.Open(path, store.Options{}))(t)
	p := &program{t: t, jobs: db.Jobs(), stop: func() {}}
	var rules policy.Options
	kit.OK(t, config.DecodeYAML("policy.yaml", []byte("rules: [{name: no-evil, effect: deny, when: 'has(args.n) && args.n == \"evil\"', reason: no evil here}]"), &rules))
	judge := kit.Must(policy.New(rules, policy.Env{Dir: "/w"}))(t)
	questions := ask.New(ask.Options{
		Marks: db.Outcomes(), Keys: secret.NewKeyed(func() ([]byte, error) { return []byte("shared by programs"), nil }),
	})
	p.Engine = engine.New(engine.Options{
		Audit:  audit.New(audit.Options{Log: db.Audit()}),
		Policy: func() *policy.Policy { return judge },
		Stages: map[string]engine.Stage{
			"idempotency": idempotency.New(idempotency.Options{}).For,
			"answers":     questions.Answers,
			"ask":         questions.Carry,
			"lease":       lease.Stage{From: 3, Consume: db.Leases()}.For,
		},
	})
	o.Handler, o.Lookup = p.Engine, p.Lookup
	o.Callers, o.Operators, o.Bell = p.jobs, p.jobs, db
	if f, ok := o.Ledger.(*fullDisk); ok {
		f.JobTable = p.jobs
	} else {
		o.Ledger = p.jobs
	}
	o.Own = func(s *tool.Spec) bool { return jobtools.New(p.queue, p.queue).Has(&tool.Call{Tool: s.Name}) }
	if o.Known == nil {
		o.Known = func(string) (*tool.Rights, bool) { return nil, false }
	}
	if o.Admit == nil {
		o.Admit = func(context.Context, tool.Principal) error { return nil }
	}
	o.Tools = cmp.Or(o.Tools, job.Tools(p.Engine))
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	p.queue = job.New(o)
	p.Replace(t.Context(), []engine.Binding{
		{Name: "toolpost", Protocol: "builtin", Runner: jobtools.New(p.queue, p.queue)},
		{Name: "shop", Protocol: "fake", Runner: s},
	})
	t.Cleanup(func() {
		p.stop()
		kit.Check(t, errors.Join(p.Close(context.Background()), db.Close()))
	})
	return p
}

// run runs jobs until the test ends, or stop is called.
func (p *program) run() *program {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.queue.Run(ctx) })
	p.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	return p
}

func fresh() *shop { return &shop{ran: map[string]int{}} }

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "store.db") }

// A seen is a job as its caller sees it.
type seen struct {
	Job, Tool, State string
	Stopping         bool
	Waiting          string
	Attempts         int
	Result           *tool.Stored
	Error            *tool.Error
}

func (p *program) ask(c *tool.Call, out tool.Sink) (s seen, text string, err error) {
	ctx := kit.Context(p.t)
	r, err := p.Invoke(ctx, c, out)
	if err != nil {
		return s, "", err
	}
	if !r.OK {
		p.t.Fatalf("%s: %+v", c.Tool, r)
	}
	return s, string(r.Output), json.Unmarshal(r.Output, &s)
}

func (p *program) tool(who tool.Principal, name, args string) (seen, string, error) {
	s, text, err := p.ask(&tool.Call{Tool: name, Args: json.RawMessage(args), Caller: who}, tool.Discard)
	if err == nil {
		_ = json.Unmarshal([]byte(text), &s)
	}
	return s, text, err
}

// start starts a job of ada.
func (p *program) start(name, n string) string {
	p.t.Helper()
	s, _, err := p.tool(ada, "startJob", `{"tool":"`+name+`","arguments":{"n":"`+n+`"}}`)
	if err != nil || s.Job == "" || s.State != job.Queued {
		p.t.Fatalf("%s: %+v, %v", name, s, err)
	}
	return s.Job
}

func (p *program) show(id string) seen {
	p.t.Helper()
	s, text, err := p.tool(ada, "showJob", `{"job":"`+id+`"}`)
	kit.OK(p.t, err)
	kit.OK(p.t, json.Unmarshal([]byte(text), &s))
	return s
}

// until waits until a job is in a state; "" means any final state.
func (p *program) until(id, state string) seen {
	p.t.Helper()
	var s seen
	kit.Until(p.t, func() error {
		s = p.show(id)
		if s.State == state || state == "" && s.State != job.Queued && s.State != job.Running {
			return nil
		}
		return fmt.Errorf("job %s is not %q: %+v", id, state, s)
	})
	return s
}

func TestAJobRunsAsItsCallerAndItsOutcomeAndEventsAreKept(t *testing.T) {
	s := fresh()
	p := open(t, file(t), s, job.Options{}).run()
	for name, want := range map[string]string{"once": job.Done, "fails": job.Failed, "asks": job.Asked} {
		id := p.start(name, name)
		got := p.until(id, "")
		if got.State != want || got.Attempts != 1 || got.Result == nil || got.Error != nil || s.times(name) != 1 {
			t.Errorf("%s: %+v, ran %d times", name, got, s.times(name))
		}
		var events []string
		after, _, err := p.ask(&tool.Call{Tool: "watchJob", Args: json.RawMessage(`{"job":"` + id + `"}`), Caller: ada},
			tool.SinkFunc(func(ev tool.Event) error { events = append(events, string(ev.Data)); return nil }))
		if err != nil || len(events) != 1 || !strings.Contains(events[0], "begun "+name) || after.State != want {
			t.Errorf("%s: %v, %+v, %v", name, events, after, err)
		}
	}
	for _, c := range s.calls {
		if c.Caller.ID != "ada" || c.Caller.Door != "http" || !slices.Equal(c.Caller.Roles(), []string{"dev"}) || c.Caller.Rights.Tools != nil || c.ID == "" || c.DryRun {
			t.Errorf("%+v as %+v", c, c.Caller.Rights)
		}
	}
	if s := p.show(p.start("again", "x")); s.Result != nil && s.State != job.Done {
		t.Errorf("%+v", s)
	}
	_, text, err := p.tool(ada, "listJobs", `{"state":"failed","limit":5}`)
	if err != nil || strings.Count(text, `"job"`) != 1 || !strings.Contains(text, "fails") || strings.Contains(text, "NoLuck") {
		t.Errorf("%s, %v", text, err)
	}
}

// The content of an MCP server is kept with the outcome, unless it is too large; the outcome is kept all the same.
func TestContentIsKeptWithAJob(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{}).run()
	for n, want := range map[string]int{"small": 1, "large": 0} {
		got := p.until(p.start("fails", n), "").Result
		if got.Failure.Message != "not today" || (want > 0) != (got.Content != nil) {
			t.Fatalf("%s: %+v", n, got)
		}
		if want > 0 && (len(got.Content.Blocks) != want || string(got.Content.Meta) != `{"k":1}`) {
			t.Errorf("%s: %+v", n, got.Content)
		}
	}
}

func TestRightsOfACallerAreKeptWithAJob(t *testing.T) {
	s := fresh()
	p := open(t, file(t), s, job.Options{})
	narrow := tool.Principal{ID: "ada", Door: "nats", Rights: &tool.Rights{Tools: tool.Patterns{"startJob", "on*"}}}
	some, _, err := p.tool(narrow, "startJob", `{"tool":"once","arguments":{"n":"a"}}`)
	kit.OK(t, err)
	if _, _, err := p.tool(narrow, "startJob", `{"tool":"again"}`); tool.CodeOf(err) != tool.CodeNotFound {
		t.Errorf("a tool that is not its own: %v", err)
	}
	p.run()
	if got := p.until(some.Job, ""); got.State != job.Done {
		t.Errorf("%+v", got)
	}
	if got := s.calls[0].Caller; got.Rights == nil || got.Rights.Tools.String() != "startJob, on*" || got.Door != "nats" {
		t.Errorf("%+v", got)
	}
}

func TestOnlyOperatorsJobRunsAsOperator(t *testing.T) {
	for _, operates := range []bool{true, false} {
		s := fresh()
		p := open(t, file(t), s, job.Options{}).run()
		got, _, err := p.tool(tool.Principal{ID: "local", Door: "cli", Operates: operates}, "startJob", `{"tool":"once","arguments":{"n":"a"}}`)
		kit.OK(t, err)
		kit.Eventually(t, "the job runs", func() bool { return s.times("a") > 0 })
		s.mu.Lock()
		defer s.mu.Unlock()
		if c := s.calls[0]; c.ID != got.Job || c.Caller.Operator() != operates {
			t.Errorf("%+v, for an operator: %v", c.Caller, operates)
		}
	}
}

func TestJobOfARevokedCallerIsRefused(t *testing.T) {
	type list map[string]*tool.Rights
	all := &tool.Rights{Roles: []string{"dev", "ops"}}
	for name, c := range map[string]struct {
		now    list
		admit  error
		code   tool.Code
		reason string
	}{
		"still there":        {now: list{"ada": all}},
		"not on the list":    {now: list{"eve": all}, code: tool.CodeAccessDenied, reason: "caller_gone"},
		"without the tool":   {now: list{"ada": {Tools: tool.Patterns{"again"}}}, code: tool.CodeNotFound},
		"without a token":    {now: list{"ada": all}, admit: tool.Errorf(tool.CodeAccessDenied, "no token").Because("revoked"), code: tool.CodeAccessDenied, reason: "revoked"},
		"with another right": {now: list{"ada": {Tools: tool.Patterns{"once"}}}},
	} {
		s, now := fresh(), list{"ada": all}
		p := open(t, file(t), s, job.Options{
			Known: func(id string) (*tool.Rights, bool) { r, ok := now[id]; return r, ok },
			Admit: func(context.Context, tool.Principal) error { return c.admit },
		})
		id := p.start("once", "a")
		now = c.now
		p.run()
		got := p.until(id, "")
		if c.code == "" && (got.State != job.Done || s.times("a") != 1) {
			t.Errorf("%s: %+v", name, got)
		}
		if c.code != "" && (got.State != job.Failed || got.Error.Code != c.code || got.Error.Reason != c.reason || s.times("a") != 0) {
			t.Errorf("%s: %+v, ran %d times", name, got, s.times("a"))
		}
		if name == "with another right" && (len(s.calls[0].Caller.Roles()) != 0 || s.calls[0].Caller.Rights.Tools != nil) {
			t.Errorf("%s: %+v", name, s.calls[0].Caller.Rights)
		}
		p.stop()
	}
}

func TestACallThatWouldBeRefusedIsRefusedAtOnce(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{PerCaller: 2, Most: 3})
	for args, want := range map[string]tool.Code{
		`{"tool":"nosuch"}`:                                    tool.CodeNotFound,
		`{"tool":"once","arguments":{"n":7}}`:                  tool.CodeInvalidInput,
		`{"tool":"once","arguments":{"m":"a"}}`:                tool.CodeInvalidInput,
		`{"tool":"once","arguments":[]}`:                       tool.CodeInvalidInput,
		`{"tool":"startJob","arguments":{"tool":"once"}}`:      tool.CodeInvalidInput,
		`{"tool":"toolpost.watchJob","arguments":{"job":"x"}}`: tool.CodeInvalidInput,
		`{"tool":"once","tool":"again"}`:                       tool.CodeInvalidInput,
		`{"tool":"once","arguments":{"n":"evil"}}`:             tool.CodeAccessDenied,
		`{"arguments":{}}`:                                     tool.CodeInvalidInput,
	} {
		if _, text, err := p.tool(ada, "startJob", args); tool.CodeOf(err) != want {
			t.Errorf("%.80s: %s, %v", args, text, err)
		}
	}
	if _, err := p.queue.Start(t.Context(), &tool.Call{Tool: "once", Args: make([]byte, 8<<20+1), Caller: ada}); tool.AsError(err).Reason != "too_large" {
		t.Errorf("arguments that are too large: %v", err)
	}
	p.start("once", "1")
	p.start("once", "2")
	if _, _, err := p.tool(ada, "startJob", `{"tool":"once"}`); tool.CodeOf(err) != tool.CodeQuotaExceeded || !strings.Contains(err.Error(), `2 jobs of "ada" wait`) {
		t.Errorf("one too many of a caller: %v", err)
	}
	bob := tool.Principal{ID: "bob"}
	if _, _, err := p.tool(bob, "startJob", `{"tool":"once"}`); err != nil {
		t.Error(err)
	}
	if _, _, err := p.tool(bob, "startJob", `{"tool":"once"}`); tool.CodeOf(err) != tool.CodeQuotaExceeded || !strings.Contains(err.Error(), "3 jobs wait") {
		t.Errorf("one too many in all: %v", err)
	}
	for name, args := range map[string]string{
		"listJobs": `{"state":"strange"}`, "showJob": `{}`, "cancelJob": `{"job":7}`, "watchJob": `{"job":"x","after":-1}`,
	} {
		if _, _, err := p.tool(ada, name, args); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%s %s: %v", name, args, err)
		}
	}
}

func TestTheSameKeyStartsOneJob(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{})
	ids := map[string]bool{}
	for range 3 {
		s, _, err := p.ask(&tool.Call{Tool: "startJob", Args: json.RawMessage(`{"tool":"once"}`), Caller: ada, Key: "k"}, tool.Discard)
		kit.OK(t, err)
		ids[s.Job] = true
	}
	if len(ids) != 1 {
		t.Errorf("%d jobs", len(ids))
	}
}

func TestJobIsVisibleOnlyToItsCaller(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{})
	id := p.start("once", "a")
	for _, who := range []tool.Principal{{ID: "eve"}, {}, {ID: "ada\x00"}, {ID: "%"}} {
		for _, name := range []string{"showJob", "cancelJob", "watchJob"} {
			_, _, err := p.tool(who, name, `{"job":"`+id+`"}`)
			_, _, none := p.tool(who, name, `{"job":"`+tool.NewID()+`"}`)
			if tool.CodeOf(err) != tool.CodeNotFound || shape(err) != shape(none) {
				t.Errorf("%s as %q: %v, and of none: %v", name, who.ID, err, none)
			}
		}
		if _, text, err := p.tool(who, "listJobs", `{}`); err != nil || text != `{"jobs":[]}` {
			t.Errorf("the list of %q: %s, %v", who.ID, text, err)
		}
	}
	if got := p.show(id); got.State != job.Queued {
		t.Errorf("%+v", got)
	}
}

// shape returns an error's text without the id that it is about.
func shape(err error) string {
	before, _, _ := strings.Cut(err.Error(), `"`)
	_, after, _ := strings.Cut(err.Error(), `";`)
	return before + after
}

func TestAJobIsCancelledWhereverItRuns(t *testing.T) {
	path, s := file(t), fresh()
	s.hold = make(chan struct{})
	other := open(t, path, s, job.Options{})
	waits := other.start("once", "never")
	if got, _, err := other.tool(ada, "cancelJob", `{"job":"`+waits+`"}`); err != nil || got.State != job.Cancelled || got.Error.Code != tool.CodeCancelled {
		t.Errorf("%+v, %v", got, err)
	}
	p := open(t, path, s, job.Options{}).run()
	runs := other.start("waitOnce", "runs")
	p.until(runs, job.Running)
	if got, _, err := other.tool(ada, "cancelJob", `{"job":"`+runs+`"}`); err != nil || !got.Stopping && got.State != job.Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
	if got := p.until(runs, ""); got.State != job.Cancelled || got.Error.Message != "the job was cancelled" {
		t.Errorf("%+v", got)
	}
	if _, _, err := other.tool(ada, "cancelJob", `{"job":"`+runs+`"}`); err != nil {
		t.Errorf("a second time: %v", err)
	}
	done := other.start("once", "done")
	p.until(done, job.Done)
	if _, _, err := other.tool(ada, "cancelJob", `{"job":"`+done+`"}`); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("one that has ended: %v", err)
	}
	kit.Equal(t, s.times("never"), 0, "a job ran that was cancelled before")
}

func TestWatcherSeesEachEventOnce(t *testing.T) {
	path, s := file(t), fresh()
	s.hold = make(chan struct{})
	p := open(t, path, s, job.Options{}).run()
	id := p.start("waitAgain", "a")
	watcher := open(t, path, s, job.Options{})
	var release sync.Once
	events := 0
	got, _, err := watcher.ask(&tool.Call{Tool: "watchJob", Args: json.RawMessage(`{"job":"` + id + `"}`), Caller: ada, Session: "s"}, tool.SinkFunc(func(tool.Event) error {
		events++
		release.Do(func() { close(s.hold) }) // it ends only after the watcher has seen an event of it
		return nil
	}))
	if err != nil || got.State != job.Done || events != 1 {
		t.Errorf("%+v, %d events, %v", got, events, err)
	}
	if _, _, err := watcher.ask(&tool.Call{Tool: "watchJob", Args: json.RawMessage(`{"job":"` + id + `","after":1}`), Caller: ada},
		tool.SinkFunc(func(tool.Event) error { events++; return nil })); err != nil || events != 1 {
		t.Errorf("%d events, %v", events, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := watcher.queue.Watch(ctx, ada, watcher.start("once", "b"), 0, false, tool.Discard); !errors.Is(err, context.Canceled) && tool.CodeOf(err) != tool.CodeCancelled {
		t.Errorf("who does not want to watch any more: %v", err)
	}
}

func TestEventsAreBounded(t *testing.T) {
	path := file(t)
	p := open(t, path, fresh(), job.Options{})
	many, large := p.start("talks", "a"), p.start("talks", "large")
	raw(t, path, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9990)
		INSERT INTO job_event (job, seq, event) SELECT ?, i, '{"seq":1,"time":"2026-11-15T00:00:00Z","kind":"log","data":{}}' FROM n`, many)
	raw(t, path, `UPDATE job SET began_at = 1 WHERE id = ?`, many) // in an attempt before
	p.run()
	for id, want := range map[string]int{many: 10, large: 3} { // one, one of five mebibytes, and the one that reports the cut
		if got := p.until(id, ""); got.State != job.Done {
			t.Fatalf("%+v", got)
		}
		count, last, after := 0, "", int64(0)
		if id == many {
			after = 9990
		}
		_, err := p.queue.Watch(t.Context(), ada, id, after, false, tool.SinkFunc(func(ev tool.Event) error { count++; last = string(ev.Data); return nil }))
		if err != nil || count != want || !strings.Contains(last, "the rest is left out") {
			t.Errorf("%d events, not %d, the last %.200s, %v", count, want, last, err)
		}
	}
}

func TestTwoProgramsThatShareAStoreRunEachJobOnce(t *testing.T) {
	path, s := file(t), fresh()
	a, b := open(t, path, s, job.Options{}), open(t, path, s, job.Options{})
	var ids []string
	for n := range 60 {
		ids = append(ids, a.start("once", fmt.Sprint(n)))
	}
	a.run()
	b.run()
	for n, id := range ids {
		if got := a.until(id, ""); got.State != job.Done || got.Attempts != 1 || s.times(fmt.Sprint(n)) != 1 {
			t.Errorf("%+v, ran %d times", got, s.times(fmt.Sprint(n)))
		}
	}
}

func TestShutdownRequeuesOrLosesRunningJobs(t *testing.T) {
	path, s := file(t), fresh()
	s.hold = make(chan struct{})
	p := open(t, path, s, job.Options{Drain: 50 * time.Millisecond}).run()
	again, once, waits := p.start("waitAgain", "again"), p.start("waitOnce", "once"), ""
	p.until(again, job.Running)
	p.until(once, job.Running)
	p.stop()
	waits = p.start("again", "later")
	if got := p.show(again); got.State != job.Queued || got.Attempts != 0 {
		t.Errorf("one that may run again: %+v", got)
	}
	if got := p.show(once); got.State != job.Lost || got.Error.Reason != "job_lost" || !strings.Contains(got.Error.Message, "shut down") {
		t.Errorf("one that may not: %+v", got)
	}
	if _, err := p.queue.Watch(t.Context(), ada, waits, 0, false, tool.Discard); tool.CodeOf(err) != tool.CodeUnavailable {
		t.Errorf("who watches at a shutdown: %v", err)
	}
	close(s.hold)
	next := open(t, path, s, job.Options{}).run()
	for _, id := range []string{again, waits} {
		if got := next.until(id, ""); got.State != job.Done || got.Attempts != 1 {
			t.Errorf("%+v", got)
		}
	}
	if s.times("once") != 1 || s.times("again") != 2 {
		t.Errorf("ran %d and %d times", s.times("once"), s.times("again"))
	}
}

// A stock says which tools a program has, whatever is on its shelf.
type stock struct {
	tool.Changes
	has sync.Map // definitions by name
}

func (s *stock) Has(name string) (string, bool) {
	digest, ok := s.has.Load(name)
	if !ok {
		return "", false
	}
	return digest.(string), true
}

func (s *stock) put(name, digest string) {
	s.has.Store(name, digest)
	s.Tell()
}

func TestAJobWaitsForAProgramThatHasItsTool(t *testing.T) {
	path, s, a, b := file(t), fresh(), new(stock), new(stock)
	b.put("shop.once", "v2")
	p := open(t, path, s, job.Options{Tools: a, Patience: time.Minute}).run()
	other := open(t, path, s, job.Options{Tools: b, Patience: time.Minute})
	var ids []string
	for n := range 20 {
		ids = append(ids, other.start("once", fmt.Sprint(n)))
	}
	unwanted := p.start("again", "b")
	a.put("shop.fails", "v1")
	p.until(p.start("fails", "c"), job.Failed) // the jobs before it are not in its way
	for want, at := range map[string]*program{"waiting for a program that has once": p, "": other} {
		if got := at.show(ids[0]); got.State != job.Queued || got.Waiting != want {
			t.Errorf("%+v", got)
		}
	}
	a.put("shop.once", "v1") // that of an update
	_, _, err := p.tool(ada, "cancelJob", `{"job":"`+unwanted+`"}`)
	kit.OK(t, err)
	other.run()
	for n, id := range ids {
		if got := p.until(id, ""); got.State != job.Done || s.times(fmt.Sprint(n)) != 1 {
			t.Errorf("%+v", got)
		}
	}
	if got := p.show(unwanted); got.State != job.Cancelled || s.times("b") != 0 {
		t.Errorf("%+v", got)
	}
}

// A process that ends with its client runs only its own jobs, and leaves them to one that serves.
func TestProcessOfAClientRunsItsOwnJobsIfNoServerDoes(t *testing.T) {
	path, s := file(t), fresh()
	agent := open(t, path, s, job.Options{Process: "a", Patience: 100 * time.Millisecond}).run()
	idle := open(t, path, s, job.Options{}) // does not run jobs
	theirs := idle.start("once", "theirs")
	if got := agent.until(agent.start("once", "own"), ""); got.State != job.Done || s.times("own") != 1 {
		t.Errorf("its own job: %+v", got)
	}
	if got := agent.show(theirs); got.State != job.Queued || got.Waiting != "" {
		t.Errorf("the job of another process: %+v", got)
	}
	patient := open(t, path, s, job.Options{Process: "b", Patience: time.Hour}).run()
	left := patient.start("once", "left")
	patient.stop()
	idle.run()
	for _, id := range []string{left, theirs} {
		if got := idle.until(id, ""); got.State != job.Done {
			t.Errorf("a job that a server is to run: %+v", got)
		}
	}
}

func TestJobsThatRunHaveTimeToEndAtAShutdown(t *testing.T) {
	s := fresh()
	s.hold = make(chan struct{})
	p := open(t, file(t), s, job.Options{Drain: time.Minute}).run()
	id := p.start("waitOnce", "a")
	p.until(id, job.Running)
	time.AfterFunc(20*time.Millisecond, func() { close(s.hold) })
	p.stop()
	if got := p.show(id); got.State != job.Done {
		t.Errorf("%+v", got)
	}
}

// raw changes the database directly.
func raw(t *testing.T, path, statement string, args ...any) {
	t.Helper()
	kit.Must(kit.SQLite(t, path).ExecContext(t.Context(), statement, args...))(t)
}

// count queries the database directly.
func count(t *testing.T, path, query string) (n int) {
	t.Helper()
	kit.OK(t, kit.SQLite(t, path).QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// abandon makes a job look as if its process were gone.
func abandon(t *testing.T, path string, id string, attempts, stop int) {
	t.Helper()
	raw(t, path, `UPDATE job SET state = 'running', attempts = ?, stop = ?, seen_at = 0, began_at = 0, owner = 'nowhere/1/1#x' WHERE id = ?`, attempts, stop, id)
}

func TestJobsOfADeadProcessAreRetriedOrLost(t *testing.T) {
	path, s := file(t), fresh()
	p := open(t, path, s, job.Options{})
	for _, c := range []struct {
		tool           string
		attempts, stop int
		state          string
		runs           int
	}{
		{"again", 1, 0, job.Done, 1},
		{"again", 2, 0, job.Done, 1},
		{"again", 3, 0, job.Lost, 0},
		{"again", 1, 1, job.Cancelled, 0},
		{"once", 1, 0, job.Lost, 0},
		{"once", 1, 1, job.Lost, 0},
	} {
		n := fmt.Sprint(c.tool, c.attempts, c.stop)
		id := p.start(c.tool, n)
		abandon(t, path, id, c.attempts, c.stop)
		one := open(t, path, s, job.Options{}).run()
		got := one.until(id, "")
		if got.State != c.state || s.times(n) != c.runs {
			t.Errorf("%+v: %+v, ran %d times", c, got, s.times(n))
		}
		if c.state == job.Lost && (got.Error == nil || got.Error.Reason != "job_lost") {
			t.Errorf("%+v: %+v", c, got.Error)
		}
		if c.runs == 1 && got.Attempts != c.attempts+1 {
			t.Errorf("%+v: %d attempts", c, got.Attempts)
		}
		one.stop()
	}
}

func TestToolThatBecameUnsafeIsNotRerun(t *testing.T) {
	path, s := file(t), fresh()
	s.safe = true
	p := open(t, path, s, job.Options{})
	id := p.start("waitOnce", "a")
	abandon(t, path, id, 1, 0)
	changed := fresh()
	if got := open(t, path, changed, job.Options{Patience: 1}).run().until(id, ""); got.State != job.Lost || changed.times("a") != 0 {
		t.Errorf("%+v, ran %d times", got, changed.times("a"))
	}
}

func TestFormerOwnerCannotSettleAJob(t *testing.T) {
	path, s := file(t), fresh()
	s.hold = make(chan struct{})
	p := open(t, path, s, job.Options{}).run()
	id := p.start("waitAgain", "a")
	p.until(id, job.Running)
	raw(t, path, `UPDATE job SET owner = 'elsewhere', seen_at = seen_at + 1000000000000 WHERE id = ?`, id)
	close(s.hold)
	p.stop()
	if got := p.show(id); got.State != job.Running || got.Result != nil {
		t.Errorf("%+v", got)
	}
}

// A run of a job that was taken for dead, and the next one, may be of the same program.
func TestAJobThatBeginsAgainBesideItsEarlierRunCanBeStopped(t *testing.T) {
	path, s := file(t), fresh()
	first := make(chan struct{})
	s.hold = first
	p := open(t, path, s, job.Options{}).run()
	id := p.start("waitAgain", "a")
	kit.Eventually(t, "it runs", func() bool { return s.times("a") == 1 })
	s.mu.Lock()
	s.hold = make(chan struct{})
	s.mu.Unlock()
	raw(t, path, `UPDATE job SET state = 'queued', owner = '' WHERE id = ?`, id)
	p.start("once", "b") // wakes the program
	kit.Eventually(t, "it runs again", func() bool { return s.times("a") == 2 })
	close(first)
	kit.Eventually(t, "the first run ends", func() bool {
		return count(t, path, `SELECT COUNT(*) FROM audit WHERE detail LIKE '%"call":"`+id+`"%'`) == 1 // and not the call that made the job
	})
	_, _, err := p.tool(ada, "cancelJob", `{"job":"`+id+`"}`)
	kit.OK(t, err)
	p.until(id, job.Cancelled)
}

// A fullDisk is a store that cannot take events and outcomes for a while.
type fullDisk struct {
	*store.JobTable
	refuses atomic.Int64
	forged  bool // no record is taken
	settled func(id string)
}

func (f *fullDisk) full() error {
	if f.refuses.Add(-1) >= 0 {
		return tool.Errorf(tool.CodeUnavailable, "there is no room").Because(persist.Full)
	}
	return nil
}

func (f *fullDisk) Append(ctx context.Context, x *job.Job, after int, events [][]byte) error {
	if err := f.full(); err != nil {
		return err
	}
	return f.JobTable.Append(ctx, x, after, events)
}

func (f *fullDisk) Settle(
	ctx context.Context, x *job.Job, state string, outcome []byte, r *tool.Record,
) error {
	if err := f.full(); err != nil {
		return err
	}
	if f.forged && r != nil {
		return tool.Errorf(tool.CodeUnavailable, "the log is forged")
	}
	err := f.JobTable.Settle(ctx, x, state, outcome, r)
	if err == nil && f.settled != nil {
		f.settled(x.ID)
	}
	return err
}

// The answer to a job's question may begin it again before the program that stored the question goes on.
func TestAJobThatIsBegunAgainAtOnceCanBeStopped(t *testing.T) {
	s, disk := fresh(), &fullDisk{}
	s.hold = make(chan struct{})
	p := open(t, file(t), s, job.Options{Ledger: disk})
	disk.settled = func(id string) {
		if s.times("held") == 1 {
			_, _, err := p.tool(ada, "answerJob", `{"job":"`+id+`","answers":true}`)
			kit.Check(t, err)
			kit.Eventually(t, "it runs again", func() bool { return s.times("held") == 2 })
		}
	}
	p.run()
	id := p.start("asks", "held")
	kit.Eventually(t, "it is asked and answered", func() bool { return s.times("held") == 2 })
	_, _, err := p.tool(ada, "cancelJob", `{"job":"`+id+`"}`)
	kit.OK(t, err)
	p.until(id, job.Cancelled)
}

func TestJobWithoutARecordHasFailed(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{Ledger: &fullDisk{forged: true}}).run()
	got := p.until(p.start("once", "a"), job.Failed)
	kit.Contains(t, got.Error.Message, "once ran, but its record is not on disk")
}

func TestOutcomeIsSavedOnceTheDiskHasRoom(t *testing.T) {
	s, disk := fresh(), &fullDisk{}
	disk.refuses.Store(4)
	p := open(t, file(t), s, job.Options{Ledger: disk}).run()
	id := p.start("once", "a")
	if got := p.until(id, ""); got.State != job.Done || got.Attempts != 1 || s.times("a") != 1 {
		t.Errorf("%+v, ran %d times", got, s.times("a"))
	}
	events := 0
	if _, err := p.queue.Watch(t.Context(), ada, id, 0, false, tool.SinkFunc(func(tool.Event) error { events++; return nil })); err != nil || events != 1 {
		t.Errorf("%d events, %v", events, err)
	}
}

func TestALeaseIsForgottenWhenItsJobBegins(t *testing.T) {
	path, s := file(t), fresh()
	p := open(t, path, s, job.Options{})
	db := kit.Must(sqlite.Open(path, store.Options{}))(t)
	defer db.Close()
	token := kit.Must(db.Leases().Issue(t.Context(), "", "shop.danger", 3, lease.MaxTTL))(t)
	with, text, err := p.tool(ada, "startJob", `{"tool":"danger","arguments":{"n":"a"},"lease":"`+token+`"}`)
	if err != nil || strings.Contains(text, token) {
		t.Fatalf("%s, %v", text, err)
	}
	without := p.start("danger", "b")
	for _, name := range []string{"showJob", "listJobs"} {
		args := map[string]string{"showJob": `{"job":"` + with.Job + `"}`, "listJobs": `{}`}[name]
		if _, text, err := p.tool(ada, name, args); err != nil || strings.Contains(text, token) {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
	if kept := count(t, path, `SELECT COUNT(*) FROM job WHERE lease <> ''`); kept != 1 {
		t.Errorf("%d leases wait", kept)
	}
	p.run()
	if got := p.until(with.Job, ""); got.State != job.Done {
		t.Errorf("%+v", got)
	}
	if got := p.until(without, ""); got.State != job.Failed || got.Error.Code != tool.CodeLeaseRequired || s.times("b") != 0 {
		t.Errorf("%+v", got)
	}
	if left := count(t, path, `SELECT COUNT(*) FROM job WHERE lease <> '' OR call <> ''`); left != 0 {
		t.Errorf("of %d jobs the call or the lease is kept", left)
	}
}

func TestJobsAreForgottenSomeTimeAfterTheirEnd(t *testing.T) {
	path := file(t)
	p := open(t, path, fresh(), job.Options{}).run()
	id := p.start("again", "a")
	p.until(id, job.Done)
	p.stop()
	next := open(t, path, fresh(), job.Options{Keep: time.Nanosecond}).run()
	kit.Eventually(t, "the job is forgotten", func() bool {
		_, _, err := next.tool(ada, "showJob", `{"job":"`+id+`"}`)
		return tool.CodeOf(err) == tool.CodeNotFound
	})
}
