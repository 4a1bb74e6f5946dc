package token_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/builtin/token"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// fakeTokens notes its requests.
type fakeTokens struct {
	issued  []identity.Token
	ttl     time.Duration
	revoked []string
}

func (f *fakeTokens) Issue(_ context.Context, t identity.Token, ttl time.Duration) (string, error) {
	f.issued, f.ttl = append(f.issued, t), ttl
	return "tp_secret", nil
}

func (f *fakeTokens) Find(_ context.Context, id string) (identity.Token, error) {
	return identity.Token{ID: id, Grant: identity.Grant{Caller: "ci"}, State: identity.Live}, nil
}

func (f *fakeTokens) List(ctx context.Context, most int) ([]identity.Token, error) {
	one, err := f.Find(ctx, strconv.Itoa(most))
	return []identity.Token{one}, err
}

func (f *fakeTokens) Revoke(_ context.Context, id string) error {
	f.revoked = append(f.revoked, id)
	return nil
}

func TestATokenIsIssuedAndRevokedAsAsked(t *testing.T) {
	b := &fakeTokens{}
	r := token.New(b)
	cli, id := tool.Principal{ID: "local", Door: "cli", Operates: true}, identity.TokenID("tp_secret")
	issued, err := r.Invoke(t.Context(), &tool.Call{
		Tool: "token.issue", Caller: cli, Args: []byte(`{"caller":"ci","roles":["reader"],"tools":["read*"],"ttl_ms":60000,"note":"x"}`),
	}, tool.Discard)
	if err != nil || !issued.OK || !strings.HasPrefix(string(issued.Output), `{"token":"tp_secret","id":"`+id+`","caller":"ci",`) || strings.Contains(issued.Summary, "tp_") {
		t.Errorf("%+v, %v", issued, err)
	}
	kit.Check(t, kit.Err(r.Invoke(t.Context(), &tool.Call{Tool: "token.revoke", Caller: cli, Args: []byte(`{"id":"` + id + `"}`)}, tool.Discard)))
	listed, err := r.Invoke(t.Context(), &tool.Call{Tool: "token.list", Caller: cli, Args: []byte(`{"limit":7}`)}, tool.Discard)
	if err != nil || !strings.HasPrefix(string(listed.Output), `{"tokens":[{"id":"7","caller":"ci",`) {
		t.Errorf("%+v, %v", listed, err)
	}
	grant := identity.Grant{Caller: "ci", Roles: []string{"reader"}, Tools: tool.Patterns{"read*"}}
	want := fakeTokens{[]identity.Token{{Grant: grant, Note: "x"}}, time.Minute, []string{id}}
	kit.Equal(t, cmp.Diff(want, *b, cmp.AllowUnexported(fakeTokens{})), "")
}

func TestTokenToolsRefuseOtherCallersAndBadArguments(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		call tool.Call
		want tool.Code
	}{
		"another door":  {t.Context(), tool.Call{Tool: "token.issue", Args: []byte(`{"caller":"x"}`), Caller: tool.Principal{ID: "local", Door: "http"}}, tool.CodeAccessDenied},
		"another door.": {t.Context(), tool.Call{Tool: "token.revoke", Args: []byte(`{"id":"x"}`), Caller: tool.Principal{ID: "owner", Door: "nats"}}, tool.CodeAccessDenied},
		"a key":         {t.Context(), tool.Call{Tool: "token.issue", Args: []byte(`{"caller":"x"}`), Key: "k"}, tool.CodeInvalidInput},
		"a plan":        {t.Context(), tool.Call{Tool: "token.issue", Args: []byte(`{"caller":"x"}`), Parent: "p"}, tool.CodeInvalidInput},
		"more":          {t.Context(), tool.Call{Tool: "token.issue", Args: []byte(`{"caller":"x","admin":true}`)}, tool.CodeInvalidInput},
		"twice":         {t.Context(), tool.Call{Tool: "token.issue", Args: []byte(`{"caller":"x","caller":"y"}`)}, tool.CodeInvalidInput},
		"empty pattern": {t.Context(), tool.Call{Tool: "token.issue", Args: []byte(`{"caller":"x","tools":[""]}`)}, tool.CodeInvalidInput},
		"half":          {t.Context(), tool.Call{Tool: "token.revoke", Args: []byte(`{"id":`)}, tool.CodeInvalidInput},
		"another list":  {t.Context(), tool.Call{Tool: "token.list", Args: []byte(`{}`), Caller: tool.Principal{ID: "ci", Door: "http"}}, tool.CodeAccessDenied},
		"another tool":  {t.Context(), tool.Call{Tool: "token.steal", Args: []byte(`{}`)}, tool.CodeNotFound},
		"too late":      {ended, tool.Call{Tool: "token.issue", Args: []byte(`{"caller":"x"}`)}, tool.CodeCancelled},
	} {
		b := &fakeTokens{}
		if c.call.Caller.Door == "" {
			c.call.Caller = tool.Principal{ID: "local", Door: "cli", Operates: true}
		}
		if _, err := token.New(b).Invoke(c.ctx, &c.call, tool.Discard); tool.CodeOf(err) != c.want || len(b.issued)+len(b.revoked) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
