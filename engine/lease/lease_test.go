package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"toolpost/engine/lease"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
)

var _ lease.Leases = (*store.Leases)(nil)

// port answers every Consume with err and keeps the requests.
type port struct {
	err   error
	asked []any
}

func (p *port) Consume(_ context.Context, token, caller, name string, tier int) error {
	p.asked = append(p.asked, token, caller, name, tier)
	return p.err
}

func run(t *testing.T, from int, p lease.Leases, token string, spec *tool.Spec) (ran bool, err error) {
	t.Helper()
	var h tool.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		ran = true
		return &tool.Result{OK: true}, nil
	})
	if stage := (lease.Stage{From: from, Consume: p}).For(spec); stage != nil {
		h = stage(h)
	}
	_, err = h.Invoke(t.Context(), &tool.Call{Tool: "alias", Lease: token, Spec: spec, Caller: tool.Principal{ID: "ada", Door: "http"}}, tool.Discard)
	return ran, err
}

func TestATierBelowTheGateNeedsNoLease(t *testing.T) {
	for _, c := range []struct{ from, tier int }{{0, 0}, {0, 3}, {1, 0}, {2, 1}, {3, 2}} {
		p := &port{}
		if ran, err := run(t, c.from, p, "", &tool.Spec{Name: "rm", Tier: c.tier}); !ran || err != nil || p.asked != nil {
			t.Errorf("from %d, tier %d: %v, %v, %v", c.from, c.tier, ran, err, p.asked)
		}
	}
}

func TestWithoutALeaseTheToolDoesNotRun(t *testing.T) {
	ran, err := run(t, 1, &port{}, "", &tool.Spec{Name: "rm", Tier: 2})
	e := tool.AsError(err)
	if ran || e == nil || e.Code != tool.CodeLeaseRequired || string(e.Details) != `{"tier":2,"tool":"rm"}` {
		t.Errorf("%v, %+v", ran, e)
	}
}

func TestLeaseIsConsumedForCallerAndQualifiedTool(t *testing.T) {
	for _, spec := range []*tool.Spec{{Name: "rm", Source: "s", Tier: 3}, {Name: "s.rm", Own: "rm", Source: "s", Tier: 3}} {
		p := &port{}
		if ran, err := run(t, 2, p, "tok", spec); !ran || err != nil {
			t.Errorf("%v, %v", ran, err)
		}
		kit.EqualSlices(t, p.asked, []any{"tok", "ada", "s.rm", 3}, "asked")
	}
}

func TestARejectedLeaseKeepsTheToolFromRunning(t *testing.T) {
	for _, reason := range []string{"expired", "not_found", "already_consumed", "tool_mismatch", "tier_too_low"} {
		p := &port{err: (&tool.Error{Code: tool.CodeLeaseRejected}).Because(reason)}
		ran, err := run(t, 1, p, "tok", &tool.Spec{Name: "rm", Tier: 1})
		if e := tool.AsError(err); ran || e == nil || e.Code != tool.CodeLeaseRejected || e.Reason != reason {
			t.Errorf("%s: %v, %v", reason, ran, err)
		}
	}
	ran, err := run(t, 1, &port{err: errors.New("disk full")}, "tok", &tool.Spec{Name: "rm", Tier: 1})
	if ran || tool.CodeOf(err) != tool.CodeInternal || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("a store that fails: %v, %v", ran, err)
	}
	if ran, err := run(t, 1, &port{}, "tok", nil); ran || tool.CodeOf(err) != tool.CodeInternal {
		t.Errorf("a tool that nobody knows: %v, %v", ran, err)
	}
}

func TestOneLeaseIsOneCall(t *testing.T) {
	leases := &store.Leases{}
	spec := &tool.Spec{Name: "rm", Source: "s", Tier: 1}
	others := kit.Must(leases.Issue(t.Context(), "bob", "s.rm", 1, 0))(t)
	if ran, err := run(t, 1, leases, others, spec); ran || tool.AsError(err).Reason != "not_found" {
		t.Errorf("the lease of another caller: %v, %v", ran, err)
	}
	token := kit.Must(leases.Issue(t.Context(), "ada", "s.rm", 1, 0))(t)
	if ran, err := run(t, 1, leases, token, spec); !ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	ran, err := run(t, 1, leases, token, spec)
	if e := tool.AsError(err); ran || e == nil || e.Reason != "already_consumed" {
		t.Errorf("%v, %v", ran, err)
	}
}
