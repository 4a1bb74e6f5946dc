package storetest

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/lease"
	"toolpost/store"
	"toolpost/tool"
)

// A lease of a caller is nobody else's: to them it is one that never was, and it stays what it is.
func leasesOfCallers(t *testing.T, k Kind) {
	mine, others := k.two(t)
	l, other := mine.Leases(), others.Leases()
	issue := func(caller string) string { return must[string](t)(l.Issue(t.Context(), caller, "rm", 1, time.Minute)) }
	unknown := other.Consume(t.Context(), "tok_nosuch", "eve", "rm", 1)
	adas, anybodys, used := issue("ada"), issue(""), issue("ada")
	works(t, other.Consume(t.Context(), used, "ada", "rm", 1))
	for _, token := range []string{adas, used} {
		for _, caller := range []string{"eve", "", "Ada", "ada ", "%", "ada\x00", strings.Repeat("a", 5000)} {
			err := other.Consume(t.Context(), token, caller, "rm", 1)
			holds(t, reason(err) == "not_found" && err.Error() == unknown.Error(), "%.20q has the lease of ada: %v",
				caller, err)
		}
		gives(t, other.Revoke(t.Context(), "eve", token), tool.CodeNotFound, "eve revokes the lease of ada")
	}
	for caller, token := range map[string]string{"ada": adas, strings.Repeat("b", 5000): anybodys} {
		works(t, other.Consume(t.Context(), token, caller, "rm", 1), "%.20q", caller)
	}
	for _, bad := range []string{"a\x00", "\xff", strings.Repeat("a", 5000)} {
		gives(t, errOf(l.Issue(t.Context(), bad, "rm", 1, time.Minute)), tool.CodeInvalidInput, "%.20q", bad)
	}
	found := must[lease.Lease](t)(l.Find(t.Context(), adas))
	holds(t, found.Caller == "ada" && found.State == "used", "%+v", found)
	fought(t, l, other, issue("ada"))
}

// fought lets two callers try one lease at once: its own one has it, whoever comes first.
func fought(t *testing.T, l, other *store.LeaseTable, token string) {
	t.Helper()
	var won, lost atomic.Int64
	together(16, func(i int) {
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
	holds(t, won.Load() == 1 && lost.Load() == 15, "%d won and %d lost", won.Load(), lost.Load())
}
