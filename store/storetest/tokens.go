package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/identity"
	"toolpost/store"
	"toolpost/tool"
)

// lookup finds a token as a gate does: by the digest of what somebody shows.
func lookup(t *testing.T, k *store.TokenTable, token string) (identity.Token, bool) {
	t.Helper()
	sum := sha256.Sum256([]byte(token))
	found, ok, err := k.Lookup(t.Context(), hex.EncodeToString(sum[:]))
	if err != nil {
		t.Fatal(err)
	}
	return found, ok
}

func tokenLife(t *testing.T, k Kind) {
	address := k.New(t)
	tokens, other := k.open(t, address).Tokens(), k.open(t, address).Tokens()
	ci := identity.Token{
		Grant: identity.Grant{
			Caller: "ci", Roles: []string{"reader"}, Tools: tool.Patterns{"read*", "files.*"}, Listed: true,
		},
		Note: "the nightly build",
	}
	first := must[string](t)(tokens.Issue(t.Context(), ci, time.Hour))
	second := must[string](t)(tokens.Issue(t.Context(), identity.Token{Grant: identity.Grant{Caller: "ci"}}, 0))
	if first == second || !strings.HasPrefix(first, "tp_") || len(first) != len("tp_")+43 {
		t.Errorf("%q, %q", first, second)
	}
	got, ok := lookup(t, other, first)
	if !ok || got.ID != identity.TokenID(first) || got.Issued.IsZero() || !got.Expires.After(got.Issued) {
		t.Errorf("%v %+v", ok, got)
	}
	got.ID, got.Issued, got.Expires = "", time.Time{}, time.Time{}
	want := ci
	want.State = "live"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if plain, ok := lookup(t, other, second); !ok || !plain.Expires.IsZero() || plain.State != "live" || plain.Listed ||
		len(plain.Roles)+len(plain.Tools) > 0 {
		t.Errorf("for ever: %v %+v", ok, plain)
	}
	for _, unknown := range []string{"", "tp_", first[:20], first + "x", identity.TokenID(first)} {
		if found, ok := lookup(t, other, unknown); ok {
			t.Errorf("%q: %+v", unknown, found)
		}
	}
	if err := other.Revoke(t.Context(), identity.TokenID(first)); err != nil {
		t.Error(err)
	}
	if got, _ := lookup(t, tokens, first); got.State != "revoked" {
		t.Errorf("revoked elsewhere: %+v", got)
	}
	if got, _ := lookup(t, tokens, second); got.State != "live" {
		t.Errorf("another token of the same caller: %+v", got)
	}
	revokedAgain(t, tokens, first)
	short := must[string](t)(tokens.Issue(t.Context(), identity.Token{Grant: identity.Grant{Caller: "ci"}},
		time.Second))
	for got, _ := lookup(t, other, short); got.State != "expired"; got, _ = lookup(t, other, short) {
		time.Sleep(10 * time.Millisecond)
	}
	revokedAgain(t, tokens, short)
	if err := tokens.Revoke(t.Context(), second); err != nil {
		t.Error(err)
	}
	listedTokens(t, other, first, second, short)
}

// revokedAgain tries to revoke what is over, and what never was.
func revokedAgain(t *testing.T, tokens *store.TokenTable, over string) {
	t.Helper()
	for id, want := range map[string]tool.Code{over: tool.CodeConflict, identity.TokenID(over): tool.CodeConflict,
		identity.TokenID(over)[:8]: tool.CodeNotFound, "tp_nosuch": tool.CodeNotFound, "a\x00": tool.CodeNotFound, "": tool.CodeNotFound} {
		if err := tokens.Revoke(t.Context(), id); tool.CodeOf(err) != want {
			t.Errorf("%.8q: %v", id, err)
		}
	}
}

func listedTokens(t *testing.T, tokens *store.TokenTable, secrets ...string) {
	t.Helper()
	list := must[[]identity.Token](t)(tokens.List(t.Context(), 0))
	states := map[string]int{}
	for _, x := range list {
		states[x.State]++
		for _, secret := range secrets {
			if strings.Contains(fmt.Sprintf("%+v", x), secret) {
				t.Error("a listing has a token")
			}
		}
	}
	if d := cmp.Diff(map[string]int{"revoked": 2, "expired": 1}, states); d != "" {
		t.Error(d)
	}
	if one := must[[]identity.Token](t)(tokens.List(t.Context(), 1)); len(one) != 1 || one[0].ID != list[0].ID {
		t.Errorf("the newest: %+v", one)
	}
	if x := must[identity.Token](t)(tokens.Find(t.Context(), secrets[0])); x.ID != identity.TokenID(secrets[0]) {
		t.Errorf("%+v", x)
	}
	for name, bad := range map[string]struct {
		token identity.Token
		ttl   time.Duration
	}{
		"nobody":    {identity.Token{}, 0},
		"hostile":   {identity.Token{Grant: identity.Grant{Caller: "a\x00b"}}, 0},
		"long name": {identity.Token{Grant: identity.Grant{Caller: strings.Repeat("x", 2000)}}, 0},
		"long note": {identity.Token{Grant: identity.Grant{Caller: "ci"}, Note: strings.Repeat("x", 2000)}, 0},
		"roles":     {identity.Token{Grant: identity.Grant{Caller: "ci", Roles: make([]string, 100)}}, 0},
		"short":     {identity.Token{Grant: identity.Grant{Caller: "ci"}}, time.Millisecond},
		"past":      {identity.Token{Grant: identity.Grant{Caller: "ci"}}, -time.Hour},
		"far":       {identity.Token{Grant: identity.Grant{Caller: "ci"}}, 2 * identity.MaxTokenTTL},
	} {
		if _, err := tokens.Issue(t.Context(), bad.token, bad.ttl); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}
