package quota_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/lease"
	"toolpost/engine/quota"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A source has one tool, which changes something and counts how often it ran.
type source struct{ ran int }

func (s *source) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "w", Effects: tool.Effects{Writes: true}}}, nil
}
func (s *source) Close(context.Context) error { return nil }
func (s *source) Invoke(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
	s.ran++
	return &tool.Result{OK: true}, nil
}

// A log keeps records in memory.
type log struct {
	mu    sync.Mutex
	begun int
	rows  []tool.Record
}

func (l *log) Begin(context.Context, *tool.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	return nil
}

func (l *log) Append(_ context.Context, r *tool.Record, _ bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, *r)
	return nil
}

func (l *log) Later(r *tool.Record, _ func(*tool.Record, error)) {
	_ = l.Append(context.Background(), r, false)
}

type leases struct{ used []string }

func (l *leases) Consume(_ context.Context, token, _, _ string, _ int) error {
	l.used = append(l.used, token)
	return nil
}

// A house is an engine with every stage around quotas.
type house struct {
	*engine.Engine
	quotas *quota.Quotas
	source source
	log    log
	leases leases
}

func open(t *testing.T, text string) *house {
	t.Helper()
	var o struct {
		Quotas []quota.Rule `yaml:"quotas"`
	}
	kit.OK(t, config.DecodeYAML("toolpost.yaml", []byte(text), &o))
	q := quota.New(quota.Options{})
	q.Replace(o.Quotas)
	h := &house{quotas: q}
	h.Engine = engine.New(engine.Options{
		Audit: audit.New(audit.Options{Log: &h.log}),
		Stages: map[string]engine.Stage{
			"idempotency": idempotency.New(idempotency.Options{}).For,
			"quota":       q.For,
			"lease":       lease.Stage{From: 1, Consume: &h.leases}.For,
		},
	})
	h.bind(t)
	t.Cleanup(func() {
		kit.Check(t, h.Close(context.Background()))
	})
	return h
}

func (h *house) bind(t *testing.T) {
	h.Replace(t.Context(), []engine.Binding{{Name: "s", Protocol: "fake", Runner: &h.source}})
}

func (h *house) call(t *testing.T, c tool.Call) *tool.Error {
	t.Helper()
	c.Tool = "w"
	_, err := h.Invoke(t.Context(), &c, tool.Discard)
	return tool.AsError(err)
}

func TestACallThatIsRefusedHasItsRecordAndNoEffect(t *testing.T) {
	h := open(t, "quotas: [{name: r, rate: 1/d}]")
	if e := h.call(t, tool.Call{Lease: "one"}); e != nil {
		t.Fatal(e)
	}
	if e := h.call(t, tool.Call{Lease: "two"}); e == nil || e.Code != tool.CodeQuotaExceeded {
		t.Fatal(e)
	}
	if h.source.ran != 1 || h.log.begun != 1 || !slices.Equal(h.leases.used, []string{"one"}) {
		t.Errorf("it ran %d times and began %d times, with %v", h.source.ran, h.log.begun, h.leases.used)
	}
	kit.MustEqual(t, len(h.log.rows), 2, "records")
	r := h.log.rows[1]
	if r.Tool != "w" || r.Outcome != tool.OutcomeRefused || r.Code != tool.CodeQuotaExceeded || r.Reason != "rate" {
		t.Errorf("%+v", r)
	}
}

func TestReplaysAndDryRunsAreFree(t *testing.T) {
	h := open(t, "quotas: [{name: r, rate: 2/d}]")
	for range 5 {
		if e := h.call(t, tool.Call{DryRun: true}); e != nil {
			t.Fatal(e)
		}
	}
	for range 5 {
		if e := h.call(t, tool.Call{Key: "k", Lease: "one"}); e != nil {
			t.Fatal(e)
		}
	}
	if e := h.call(t, tool.Call{Lease: "two"}); e != nil {
		t.Fatal(e)
	}
	if e := h.call(t, tool.Call{Lease: "three"}); e == nil || e.Reason != "rate" {
		t.Fatal(e)
	}
	if e := h.call(t, tool.Call{Key: "k", Lease: "one"}); e != nil {
		t.Errorf("a replay when all is used up: %v", e)
	}
	kit.Equal(t, h.source.ran, 2, "runs")
}

// A refusal is not an outcome: the same key is free for another try.
func TestAKeyWhoseCallWasRefusedCanBeUsedAgain(t *testing.T) {
	h := open(t, "quotas: [{name: r, rate: 1/d}]")
	if e := h.call(t, tool.Call{Lease: "one"}); e != nil {
		t.Fatal(e)
	}
	for range 2 {
		if e := h.call(t, tool.Call{Lease: "two", Key: "k"}); e == nil || e.Code != tool.CodeQuotaExceeded {
			t.Fatal(e)
		}
	}
	h.quotas.Replace(nil)
	h.bind(t)
	if e := h.call(t, tool.Call{Lease: "two", Key: "k"}); e != nil || h.source.ran != 2 {
		t.Errorf("%v; it ran %d times", e, h.source.ran)
	}
}
