package storetest

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/lease"
	"toolpost/store"
	"toolpost/tool"
)

// A lease of a caller is nobody else's: to them it is one that never was, and it stays what it is.
func leasesOfCallers(t *testing.T, k Kind) {
	address := k.New(t)
	l, other := k.open(t, address).Leases(), k.open(t, address).Leases()
	issue := func(caller string) string { return must[string](t)(l.Issue(t.Context(), caller, "rm", 1, time.Minute)) }
	unknown := other.Consume(t.Context(), "tok_nosuch", "eve", "rm", 1)
	adas, anybodys, used := issue("ada"), issue(""), issue("ada")
	if err := other.Consume(t.Context(), used, "ada", "rm", 1); err != nil {
		t.Error(err)
	}
	for _, token := range []string{adas, used} {
		for _, caller := range []string{"eve", "", "Ada", "ada ", "%", "ada\x00", strings.Repeat("a", 5000)} {
			if err := other.Consume(t.Context(), token, caller, "rm", 1); reason(err) != "not_found" ||
				err.Error() != unknown.Error() {
				t.Errorf("%.20q has the lease of ada: %v", caller, err)
			}
		}
		if err := other.Revoke(t.Context(), "eve", token); tool.CodeOf(err) != tool.CodeNotFound {
			t.Errorf("eve revokes the lease of ada: %v", err)
		}
	}
	for caller, token := range map[string]string{"ada": adas, strings.Repeat("b", 5000): anybodys} {
		if err := other.Consume(t.Context(), token, caller, "rm", 1); err != nil {
			t.Errorf("%.20q: %v", caller, err)
		}
	}
	for _, bad := range []string{"a\x00", "\xff", strings.Repeat("a", 5000)} {
		if _, err := l.Issue(t.Context(), bad, "rm", 1, time.Minute); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	found := must[lease.Lease](t)(l.Find(t.Context(), adas))
	if found.Caller != "ada" || found.State != "used" {
		t.Errorf("%+v", found)
	}
	fought(t, l, other, issue("ada"))
}

// fought lets two callers try one lease at once: its own one has it, whoever comes first.
func fought(t *testing.T, l, other *store.LeaseTable, token string) {
	t.Helper()
	var wg sync.WaitGroup
	var won, lost atomic.Int64
	for i := range 16 {
		wg.Go(func() {
			caller, leases := "ada", l
			if i%2 == 0 {
				caller, leases = "eve", other
			}
			switch err := leases.Consume(t.Context(), token, caller, "rm", 1); {
			case err == nil && caller == "ada":
				won.Add(1)
			case err == nil || (reason(err) == "not_found") != (caller == "eve"):
				t.Errorf("%s: %v", caller, err)
			default:
				lost.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 15 {
		t.Errorf("%d won and %d lost", won.Load(), lost.Load())
	}
}
