package audit_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A log keeps records in memory, and fails on demand.
type log struct {
	mu      sync.Mutex
	full    bool
	begun   []*tool.Record
	records []*tool.Record
	durable map[string]bool
}

var errFull = tool.Errorf(tool.CodeUnavailable, "no room")

func (l *log) Begin(_ context.Context, r *tool.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return errFull
	}
	l.begun = append(l.begun, r)
	return nil
}

func (l *log) Append(ctx context.Context, r *tool.Record, durable bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return errFull
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if l.durable == nil {
		l.durable = map[string]bool{}
	}
	l.records = append(l.records, r)
	l.durable[r.Call] = durable
	return nil
}

func (l *log) Later(r *tool.Record, missed func(*tool.Record, error)) {
	if err := l.Append(context.Background(), r, false); err != nil {
		missed(r, err)
	}
}

func (l *log) setFull(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = full
}

var (
	reads  = &tool.Spec{Name: "readFile", Source: "files", Protocol: "builtin", Effects: tool.Effects{Reads: true}, Guarantees: tool.Guarantees{NoNetwork: true}}
	writes = &tool.Spec{Name: "writeFile", Source: "files", Protocol: "builtin", Effects: tool.Effects{Writes: true}}
)

type touches tool.Touches

func (t touches) Touches(*tool.Call) (tool.Touches, error) { return tool.Touches(t), nil }

// chain returns the trail with a stage between its stages that finds the tool, as in the engine.
func chain(t *audit.Trail, spec *tool.Spec, h tool.Handler) tool.Handler {
	for _, m := range []tool.Middleware{t.Begun(), t.Touching(touches{Reads: []string{"/a"}}), t.Named()} {
		h = m(h)
	}
	return t.Stage(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if spec == nil {
			return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", c.Tool)
		}
		found := *c
		found.Spec = spec
		return h.Invoke(ctx, &found, out)
	}))
}

func gives(r *tool.Result, err error) tool.Handler {
	return tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return r, err })
}

func call(id string) *tool.Call {
	return &tool.Call{
		ID: id, Tool: "alias", Session: "s", Args: []byte(`{"path":"a","n":1,"deep":{"x":[1]}}`), Key: "k", Lease: "tok_secret", Trace: "t", Run: "r",
		Caller: tool.Principal{ID: "ada", Door: "http"},
	}
}

func TestEveryOutcomeHasOneRecord(t *testing.T) {
	for name, c := range map[string]struct {
		spec    *tool.Spec
		result  *tool.Result
		err     error
		outcome tool.Outcome
		code    tool.Code
		durable bool
	}{
		"a success":        {reads, &tool.Result{OK: true, Output: []byte(`"abc"`)}, nil, tool.OutcomeOK, "", false},
		"a change":         {writes, &tool.Result{OK: true}, nil, tool.OutcomeOK, "", true},
		"a tool's failure": {writes, tool.Failed("ValueError", "no"), nil, tool.OutcomeFailed, tool.CodeToolError, true},
		"a question":       {reads, &tool.Result{Ask: &tool.Ask{}}, nil, tool.OutcomeAsked, "", false},
		"a refusal":        {reads, nil, tool.Errorf(tool.CodeAccessDenied, "no"), tool.OutcomeRefused, tool.CodeAccessDenied, false},
		"a crash":          {writes, nil, errors.New("crash"), tool.OutcomeError, tool.CodeInternal, true},
		"an unknown tool":  {nil, nil, nil, tool.OutcomeError, tool.CodeNotFound, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			r, err := chain(audit.New(audit.Options{Log: l}), c.spec, gives(c.result, c.err)).Invoke(t.Context(), call("1"), tool.Discard)
			if r != c.result || c.spec != nil && !errors.Is(err, c.err) {
				t.Errorf("the outcome was changed: %v, %v", r, err)
			}
			if len(l.records) != 1 {
				t.Fatalf("%d records", len(l.records))
			}
			rec := l.records[0]
			if rec.Outcome != c.outcome || rec.Code != c.code || l.durable["1"] != c.durable || rec.Duration <= 0 || rec.Time.IsZero() {
				t.Errorf("%+v, durable %v", rec, l.durable["1"])
			}
			if c.spec != nil && (rec.Tool != c.spec.Name || rec.Asked != "alias" || rec.Source != "files" || rec.Touches.Reads[0] != "/a") {
				t.Errorf("%+v", rec)
			}
			kit.Equal(t, (len(l.begun) == 1), (c.spec == writes), "%d began", len(l.begun))
		})
	}
}

func TestARecordHasShapesAndDigestsAndNoSecrets(t *testing.T) {
	l := &log{}
	kit.Must(chain(audit.New(audit.Options{Log: l}), reads, gives(&tool.Result{OK: true, Output: []byte(`12345`)}, nil)).Invoke(t.Context(), call("1"), tool.Discard))(t)
	r := l.records[0]
	if string(r.Shape) != `{"path":"string","n":"number","deep":{"x":"array"}}` || len(r.Digest) != 64 || r.Args != nil {
		t.Errorf("%s, %s, %s", r.Shape, r.Digest, r.Args)
	}
	if len(r.Lease) != 16 || strings.Contains(r.Lease, "secret") || r.Key != "k" || r.Walls != "no_network" || r.In != 35 || r.Out != 5 || r.Run != "r" || r.Session != "s" {
		t.Errorf("%+v", r)
	}
}

// Arguments are often short: a reader of the log must not be able to guess them by trial.
func TestDigestsOfArgumentsCannotBeGuessed(t *testing.T) {
	digest := func(key func() ([]byte, error)) string {
		l := &log{}
		trail := audit.New(audit.Options{Log: l, Digests: secret.NewKeyed(key)})
		kit.Must(chain(trail, reads, gives(&tool.Result{OK: true}, nil)).Invoke(t.Context(), call("1"), tool.Discard))(t)
		return l.records[0].Digest
	}
	one := func() ([]byte, error) { return []byte("one"), nil }
	other := func() ([]byte, error) { return []byte("other"), nil }
	plain := sha256.Sum256(call("1").Args)
	none, again := digest(nil), digest(nil) // each with a key of its own
	if a := digest(one); a != digest(one) || a == digest(other) || a == none || none == again || a == hex.EncodeToString(plain[:]) {
		t.Errorf("a key gives the same digest each time, another one others, and none is the plain one: %s", a)
	}
	kit.Equal(t, digest(func() ([]byte, error) { return nil, errors.New("no key") }), "", "without a key")
}

func TestValuesAreKeptForTheToolsThatAreNamedWithoutSecrets(t *testing.T) {
	l := &log{}
	c := call("1")
	c.Args = []byte(`{"path":"a","API_Key":"x","pin":"y","list":[{"userPassword":"z"}]}`)
	trail := audit.New(audit.Options{Log: l, Values: tool.Patterns{"readFile"}, Redact: []string{"pin"}})
	kit.Must(chain(trail, reads, gives(&tool.Result{OK: true}, nil)).Invoke(t.Context(), c, tool.Discard))(t)
	kit.Equal(t, string(l.records[0].Args), `{"path":"a","API_Key":"[redacted]","pin":"[redacted]","list":[{"userPassword":"[redacted]"}]}`)
	if _, err := chain(trail, writes, gives(&tool.Result{OK: true}, nil)).Invoke(t.Context(), c, tool.Discard); err != nil || l.records[1].Args != nil {
		t.Errorf("a tool that is not named: %s, %v", l.records[1].Args, err)
	}
}

func TestArgumentsOfAnyKindHaveABoundedShape(t *testing.T) {
	for args, want := range map[string]string{
		``: ``, `7`: `"number"`, `{`: `"object"`, `{"a":1,"a":2}`: `"object"`, `{"` + strings.Repeat("x", 2000) + `":1}`: `"object"`,
		`{"a":{"a":{"a":{"a":{"a":1}}}}}`: `{"a":{"a":{"a":{"a":"object"}}}}`, "{\"\\u0000\":1}": "{\"\\u0000\":\"number\"}",
	} {
		l := &log{}
		c := call("1")
		c.Args = []byte(args)
		_, _ = chain(audit.New(audit.Options{Log: l}), reads, gives(&tool.Result{OK: true}, nil)).Invoke(t.Context(), c, tool.Discard)
		kit.Equal(t, string(l.records[0].Shape), want, args)
	}
}

func TestAPanicIsRecordedAndPassedOn(t *testing.T) {
	l := &log{}
	h := chain(audit.New(audit.Options{Log: l}), writes, tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { panic("worse") }))
	defer func() {
		if recover() != "worse" || len(l.records) != 1 || l.records[0].Outcome != tool.OutcomeError || !l.durable["1"] {
			t.Errorf("%+v", l.records)
		}
	}()
	_, _ = h.Invoke(t.Context(), call("1"), tool.Discard)
}

func TestACallThatWasCancelledIsRecordedToo(t *testing.T) {
	l := &log{}
	ctx, cancel := context.WithCancel(t.Context())
	h := chain(audit.New(audit.Options{Log: l}), reads, tool.HandlerFunc(func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		cancel()
		return nil, ctx.Err()
	}))
	_, _ = h.Invoke(ctx, call("1"), tool.Discard)
	if len(l.records) != 1 || l.records[0].Code != tool.CodeCancelled {
		t.Errorf("%+v", l.records)
	}
}

func TestFullLogAllowsReadsAndRefusesWrites(t *testing.T) {
	l := &log{full: true}
	var said strings.Builder
	trail := audit.New(audit.Options{Log: l, Waiting: 3, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	ran := 0
	tool1 := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		ran++
		return &tool.Result{OK: true}, nil
	})
	read, write := chain(trail, reads, tool1), chain(trail, writes, tool1)
	for _, id := range []string{"1", "2"} {
		kit.Check(t, kit.Err(read.Invoke(t.Context(), call(id), tool.Discard)), "reading")
	}
	_, err := write.Invoke(t.Context(), call("3"), tool.Discard)
	if e := tool.AsError(err); ran != 2 || e == nil || e.Code != tool.CodeUnavailable || e.Reason != "audit_unavailable" || !errors.Is(err, errFull) {
		t.Errorf("it ran %d times: %v", ran, err)
	}
	for _, id := range []string{"4", "5"} { // more than may wait
		_, _ = read.Invoke(t.Context(), call(id), tool.Discard)
	}
	l.setFull(false)
	kit.Check(t, kit.Err(write.Invoke(t.Context(), call("6"), tool.Discard)), "with room again")
	kit.Contains(t, said.String(), `msg="calls whose records waited in memory are recorded now" calls=3`)
	var ids []string
	lost := 0
	for _, r := range l.records {
		ids, lost = append(ids, r.Call), lost+r.Lost
	}
	if strings.Join(ids, " ") != "1 2 3 6" || lost != 2 {
		t.Errorf("%v are there, and %d are said to be lost", ids, lost)
	}
}

// A slow log takes a record only once it may.
type slow struct {
	log
	begun, may chan struct{} // nil: at once
}

func (l *slow) Append(ctx context.Context, r *tool.Record, durable bool) error {
	if l.may != nil {
		l.begun <- struct{}{}
		<-l.may
	}
	return l.log.Append(ctx, r, durable)
}

// The last flush waits for one that runs already: nothing comes after it.
func TestTheLastFlushWritesWhatWaits(t *testing.T) {
	l := &slow{log: log{full: true}}
	trail := audit.New(audit.Options{Log: l})
	read := chain(trail, reads, tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true}, nil
	}))
	for _, id := range []string{"1", "2"} {
		kit.OK(t, kit.Err(read.Invoke(t.Context(), call(id), tool.Discard)))
	}
	l.setFull(false)
	l.begun, l.may = make(chan struct{}, 9), make(chan struct{})
	go trail.Flush(t.Context())
	kit.Receive(t, "a flush", l.begun)
	last := make(chan struct{})
	go func() { trail.Settle(t.Context()); close(last) }()
	select {
	case <-last:
		t.Fatalf("it did not wait: %d records are left", trail.Left())
	case <-time.After(50 * time.Millisecond):
	}
	close(l.may)
	kit.Receive(t, "the end of the last flush", last)
	kit.Equal(t, trail.Left(), 0)
}

// A crowded log reports, on the next write, first that the earlier records could not be added, and then that this one
// could not.
type crowded struct {
	log
	before []func()
}

func (l *crowded) Append(context.Context, *tool.Record, bool) error {
	for _, missed := range l.before {
		missed()
	}
	l.before = nil
	return errFull
}

func (l *crowded) Later(r *tool.Record, missed func(*tool.Record, error)) {
	l.before = append(l.before, func() { missed(r, errFull) })
}

func TestWaitingRecordDoesNotBlockOthers(t *testing.T) {
	l := new(crowded)
	trail := audit.New(audit.Options{Log: l})
	look := chain(trail, &tool.Spec{Name: "look", Effects: tool.Effects{Reads: true}}, gives(&tool.Result{OK: true}, nil))
	refused := chain(trail, &tool.Spec{Name: "no"}, gives(nil, errFull))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = refused.Invoke(t.Context(), call("first"), tool.Discard) // waits from now on
		_, _ = look.Invoke(t.Context(), call("second"), tool.Discard)   // learns later that it has to wait
		_, _ = look.Invoke(t.Context(), call("third"), tool.Discard)    // writes the first one, and reports the second
	}()
	kit.Receive(t, "no call waits for a record that waits for the call", done)
	if n := trail.Left(); n != 2 {
		t.Errorf("%d records wait, not 2", n)
	}
}

func TestUnrecordedChangeIsNotAcknowledged(t *testing.T) {
	l := &log{}
	h := chain(audit.New(audit.Options{Log: l}), writes, tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		l.setFull(true)
		return &tool.Result{OK: true}, nil
	}))
	r, err := h.Invoke(t.Context(), call("1"), tool.Discard)
	if r != nil || tool.CodeOf(err) != tool.CodeUnavailable || !strings.Contains(err.Error(), "writeFile ran, but its record is not on disk") {
		t.Errorf("%v, %v", r, err)
	}
}

func TestJobWritesTheRecordOfItsCall(t *testing.T) {
	for name, c := range map[string]struct {
		parent string
		err    error
		left   bool // to the job
	}{
		"the call of the job": {left: true}, "a call that this one makes": {parent: "1"}, "one that failed": {err: errFull},
	} {
		l := &log{}
		trail := audit.New(audit.Options{Log: l})
		one := call("1")
		one.Parent, one.Handover = c.parent, new(tool.Handover)
		_, _ = chain(trail, writes, gives(&tool.Result{OK: true}, c.err)).Invoke(t.Context(), one, tool.Discard)
		kit.Equal(t, one.Handover.Record != nil, c.left, name, "is left to the job")
		kit.Equal(t, len(l.records) == 0, c.left, name, "is not written")
		if c.left {
			kit.Fails(t, one.Handover.Missed(errFull), "writeFile ran, but its record is not on disk")
			kit.Equal(t, trail.Left(), 1, "records that wait")
		}
	}
}

func TestNilTrailDoesNothing(t *testing.T) {
	var none *audit.Trail
	want := &tool.Result{OK: true}
	if r, err := none.Stage(gives(want, nil)).Invoke(t.Context(), call("1"), tool.Discard); r != want || err != nil {
		t.Error(r, err)
	}
	if none.Named() != nil || none.Begun() != nil || none.Touching(touches{}) != nil {
		t.Error("a stage that does nothing is there")
	}
}

func FuzzShape(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{}`, `[]`, `{"a":{"b":[{}]}}`, `{"a":"\u0000"}`, `{`, "\xff", `{"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		l := &log{}
		c := call("1")
		c.Args = args
		trail := audit.New(audit.Options{Log: l, Values: tool.Patterns{"*"}})
		kit.Must(chain(trail, reads, gives(&tool.Result{OK: true}, nil)).Invoke(t.Context(), c, tool.Discard))(t)
		if r := l.records[0]; len(r.Shape) > 1<<10 || len(r.Args) > 4<<10 {
			t.Errorf("%d bytes of shape, %d of values", len(r.Shape), len(r.Args))
		}
	})
}
