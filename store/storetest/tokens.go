package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/lease"
	"toolpost/identity"
	"toolpost/store"
	"toolpost/tool"
)

// lookup finds a token as a gate does: by the digest of the token shown.
func lookup(t *testing.T, k *store.TokenTable, token string) (identity.Token, bool) {
	t.Helper()
	sum := sha256.Sum256([]byte(token))
	found, ok, err := k.Lookup(t.Context(), hex.EncodeToString(sum[:]))
	works(t, err)
	return found, ok
}

func tokenLife(t *testing.T, k Kind) {
	db, otherDB := k.two(t)
	tokens, other := db.Tokens(), otherDB.Tokens()
	ci := identity.Token{
		Grant: identity.Grant{
			Caller: "ci", Roles: []string{"reader"}, Tools: tool.Patterns{"read*", "files.*"}, Listed: true,
		},
		Note: "the nightly build",
	}
	first := must[string](t)(tokens.Issue(t.Context(), ci, time.Hour))
	second := must[string](t)(tokens.Issue(t.Context(), identity.Token{Grant: identity.Grant{Caller: "ci"}}, 0))
	holds(t, first != second && strings.HasPrefix(first, "tp_") && len(first) == len("tp_")+43, "%q, %q", first, second)
	got, ok := lookup(t, other, first)
	holds(t, ok && got.ID == identity.TokenID(first) && !got.Issued.IsZero() && got.Expires.After(got.Issued), "%v %+v",
		ok, got)
	got.ID, got.Issued, got.Expires = "", time.Time{}, time.Time{}
	want := ci
	want.State = "live"
	equal(t, got, want)
	plain, ok := lookup(t, other, second)
	holds(t, ok && plain.Expires.IsZero() && plain.State == "live" && !plain.Listed &&
		len(plain.Roles)+len(plain.Tools) == 0, "for ever: %v %+v", ok, plain)
	for _, unknown := range []string{"", "tp_", first[:20], first + "x", identity.TokenID(first)} {
		found, ok := lookup(t, other, unknown)
		holds(t, !ok, "%q: %+v", unknown, found)
	}
	works(t, other.Revoke(t.Context(), identity.TokenID(first)))
	got, _ = lookup(t, tokens, first)
	equal(t, got.State, "revoked", "revoked elsewhere")
	got, _ = lookup(t, tokens, second)
	equal(t, got.State, "live", "another token of the same caller")
	revokedAgain(t, tokens, first)
	short := must[string](t)(tokens.Issue(t.Context(), identity.Token{Grant: identity.Grant{Caller: "ci"}},
		time.Second))
	until(t, func() bool { got, _ := lookup(t, other, short); return got.State == "expired" })
	revokedAgain(t, tokens, short)
	works(t, tokens.Revoke(t.Context(), second))
	listedTokens(t, other, first, second, short)
}

// revokedAgain tries to revoke tokens that are over, and tokens that never existed.
func revokedAgain(t *testing.T, tokens *store.TokenTable, over string) {
	t.Helper()
	id := identity.TokenID(over)
	for id, want := range map[string]tool.Code{
		over: tool.CodeConflict, id: tool.CodeConflict, id[:8]: tool.CodeNotFound, "tp_nosuch": tool.CodeNotFound,
		"a\x00": tool.CodeNotFound, "": tool.CodeNotFound,
	} {
		gives(t, tokens.Revoke(t.Context(), id), want, "%.8q", id)
	}
}

func listedTokens(t *testing.T, tokens *store.TokenTable, secrets ...string) {
	t.Helper()
	list := must[[]identity.Token](t)(tokens.List(t.Context(), 0))
	states := map[string]int{}
	for _, x := range list {
		states[x.State]++
		for _, secret := range secrets {
			holds(t, !strings.Contains(fmt.Sprintf("%+v", x), secret), "a listing has a token")
		}
	}
	equal(t, states, map[string]int{"revoked": 2, "expired": 1})
	one := must[[]identity.Token](t)(tokens.List(t.Context(), 1))
	holds(t, len(one) == 1 && one[0].ID == list[0].ID, "the newest: %+v", one)
	equal(t, must[identity.Token](t)(tokens.Find(t.Context(), secrets[0])).ID, identity.TokenID(secrets[0]))
	ci := identity.Grant{Caller: "ci"}
	for name, bad := range map[string]struct {
		token identity.Token
		ttl   time.Duration
	}{
		"nobody":    {identity.Token{}, 0},
		"hostile":   {identity.Token{Grant: identity.Grant{Caller: "a\x00b"}}, 0},
		"long name": {identity.Token{Grant: identity.Grant{Caller: strings.Repeat("x", 2000)}}, 0},
		"long note": {identity.Token{Grant: ci, Note: strings.Repeat("x", 2000)}, 0},
		"roles":     {identity.Token{Grant: identity.Grant{Caller: "ci", Roles: make([]string, 100)}}, 0},
		"short":     {identity.Token{Grant: ci}, time.Millisecond},
		"past":      {identity.Token{Grant: ci}, -time.Hour},
		"far":       {identity.Token{Grant: ci}, 2 * identity.MaxTokenTTL},
	} {
		gives(t, errOf(tokens.Issue(t.Context(), bad.token, bad.ttl)), tool.CodeInvalidInput, "%s", name)
	}
}

// A lease of a caller is not visible to others: for them it does not exist, and it stays as it is.
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

// fought lets two callers try one lease at once: its own caller gets it, even if the other comes first.
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
