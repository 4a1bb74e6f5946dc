package store_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/lease"
	"toolpost/store"
	"toolpost/tool"
)

func reason(err error) string {
	if err == nil {
		return ""
	}
	if e := tool.AsError(err); e.Code == tool.CodeLeaseRejected {
		return e.Reason
	}
	return err.Error()
}

func issue(t *testing.T, l *store.Leases, name string, tier int) string {
	t.Helper()
	token, err := l.Issue(t.Context(), "", name, tier, 0)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestALeaseFitsOneToolUpToItsTierOnce(t *testing.T) {
	l := &store.Leases{}
	one, any := issue(t, l, "rm", 2), issue(t, l, "*", 1)
	for _, c := range []struct {
		token, name string
		tier        int
		want        string
	}{
		{"tok_unknown", "rm", 1, "not_found"},
		{"../../etc/passwd", "rm", 1, "not_found"},
		{one, "ls", 1, "tool_mismatch"},
		{one, "rm", 3, "tier_too_low"},
		{one, "rm", 2, ""}, // the mismatches have not used it up
		{one, "rm", 2, "already_consumed"},
		{any, "rm", 2, "tier_too_low"},
		{any, "whatever", 1, ""},
		{any, "whatever", 1, "already_consumed"},
	} {
		if got := reason(l.Consume(t.Context(), c.token, "ada", c.name, c.tier)); got != c.want {
			t.Errorf("%s for %s of tier %d: %q, want %q", c.token, c.name, c.tier, got, c.want)
		}
	}
	counts, err := l.GC(t.Context())
	if want := (lease.Counts{Issued: 2, Consumed: 2, Rejected: 7}); err != nil || counts != want {
		t.Errorf("%+v, %v", counts, err)
	}
}

func TestLeaseIsUsableOnlyByItsCaller(t *testing.T) {
	l := &store.Leases{}
	unknown := l.Consume(t.Context(), "tok_unknown", "eve", "rm", 1)
	token, err := l.Issue(t.Context(), "ada", "rm", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // while it can be used, and after it was
		for _, caller := range []string{"eve", ""} {
			if err := l.Consume(t.Context(), token, caller, "rm", 1); reason(err) != "not_found" || err.Error() != unknown.Error() {
				t.Errorf("%q has the lease of ada: %v", caller, err)
			}
		}
		if got := reason(l.Consume(t.Context(), token, "ada", "rm", 1)); got != "" && got != "already_consumed" {
			t.Error(got)
		}
	}
	if _, err := l.Issue(t.Context(), "a\x00", "rm", 1, 0); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Error(err)
	}
}

func TestALeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &store.Leases{}
		token := issue(t, l, "rm", 1)
		time.Sleep(time.Minute)
		if got := reason(l.Consume(t.Context(), token, "ada", "rm", 1)); got != "expired" {
			t.Error(got)
		}
		if counts, _ := l.GC(t.Context()); counts.Active != 0 {
			t.Errorf("%+v", counts)
		}
		time.Sleep(time.Hour)
		issue(t, l, "rm", 1)
		if got := reason(l.Consume(t.Context(), token, "ada", "rm", 1)); got != "not_found" {
			t.Error(got)
		}
		if counts, _ := l.GC(t.Context()); counts.Active != 1 || counts.Issued != 2 {
			t.Errorf("%+v", counts)
		}
	})
}

func TestLeasesInMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &store.Leases{}
		for tool.CodeOf(leaseError(t, l)) != tool.CodeQuotaExceeded {
		}
		if counts, _ := l.GC(t.Context()); counts.Issued != 10_000 {
			t.Errorf("%+v", counts)
		}
		time.Sleep(time.Hour)
		issue(t, l, "rm", 1)
	})
}

func leaseError(t *testing.T, l *store.Leases) error {
	_, err := l.Issue(t.Context(), "", "rm", 1, 0)
	return err
}

func TestALeaseLastsFromOneTo300Seconds(t *testing.T) {
	l := &store.Leases{}
	for ttl, ok := range map[time.Duration]bool{
		0: true, time.Second: true, 300 * time.Second: true,
		-1: false, 999 * time.Millisecond: false, 301 * time.Second: false,
	} {
		if _, err := l.Issue(t.Context(), "", "rm", 1, ttl); (err == nil) != ok || err != nil && tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%v: %v", ttl, err)
		}
	}
	for _, tier := range []int{-1, 4} {
		if _, err := l.Issue(t.Context(), "", "rm", tier, 0); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("tier %d: %v", tier, err)
		}
	}
	if _, err := l.Issue(t.Context(), "", "", 1, 0); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Errorf("no tool: %v", err)
	}
}

// Of many consumers, exactly one gets the lease.
func TestExactlyOneConsumerWins(t *testing.T) {
	l := &store.Leases{}
	var won, lost atomic.Int64
	var wg sync.WaitGroup
	const leases, racers = 100, 8
	for range leases {
		token := issue(t, l, "rm", 1)
		for range racers {
			wg.Go(func() {
				switch got := reason(l.Consume(t.Context(), token, "ada", "rm", 1)); got {
				case "":
					won.Add(1)
				case "already_consumed":
					lost.Add(1)
				default:
					t.Error(got)
				}
			})
		}
	}
	wg.Wait()
	if won.Load() != leases || lost.Load() != leases*(racers-1) {
		t.Errorf("%d won and %d lost", won.Load(), lost.Load())
	}
}
