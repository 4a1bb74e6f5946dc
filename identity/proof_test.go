package identity

import (
	"context"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// again presents the proof of an admitted caller, and returns who that is now, or "" if it is refused.
func again(t *testing.T, c *Callers, p tool.Principal) string {
	t.Helper()
	if p.Proof == "" {
		t.Fatalf("%q has no proof", p.ID)
	}
	now, err := c.Admit(t.Context(), Credentials{Door: "http", Proof: p.Proof})
	if err == nil && (now.Door != "http" || now.Proof != p.Proof) {
		t.Errorf("%+v", now)
	}
	return now.ID
}

func TestProofLastsAsLongAsItsCredentials(t *testing.T) {
	revoked := false
	clock := time.Now()
	const listed = "tok-0123456789abcdefghij"
	text := `callers: {list: {lily: {tools: "*", tokens: [` + digest(listed) + `]}, ` +
		`carl: {tools: "*", certificates: [carl.example]}, ute: {tools: "*", users: [4711]}}}`
	env := Env{
		Owner: mustOwner(t, "the-owners-token-0123"), now: func() time.Time { return clock },
		Tokens: func(context.Context, string) (Grant, bool, error) {
			return Grant{Caller: "ada", Tools: tool.Patterns{"*"}}, !revoked, nil
		},
	}
	c := of(t, text, env)
	cert := certificate(t, func(x *x509.Certificate) { x.DNSNames = []string{"carl.example"}; x.NotAfter = clock.Add(time.Hour) })
	proofs := map[string]tool.Principal{}
	for name, shown := range map[string]Credentials{
		"owner": {Token: "the-owners-token-0123"}, "lily": {Token: listed}, "ada": {Token: TokenPrefix + strings.Repeat("a", 43)},
		"carl": {Certificate: cert}, "ute": {Peer: &Peer{UID: 4711}},
	} {
		p, err := c.Admit(t.Context(), shown)
		if err != nil || p.ID != name || shown.Token != "" && strings.Contains(p.Proof, shown.Token) {
			t.Fatalf("%s: %+v, %v", name, p, err)
		}
		if proofs[name] = p; again(t, c, p) != name {
			t.Errorf("%s does not come in again", name)
		}
	}
	revoked, clock = true, clock.Add(2*time.Hour)
	without := of(t, "callers: {owner: false}", env)
	for name, p := range proofs {
		if who := again(t, without, p); who != "" {
			t.Errorf("%s comes in as %s where nobody knows it", name, who)
		}
	}
	kit.Equal(t, again(t, c, proofs["carl"]), "", "with a certificate that has ended")
	env.Owner = mustOwner(t, "another-token-of-the-owner")
	kit.Equal(t, again(t, of(t, text, env), proofs["owner"]), "", "with a token of before")
	for _, made := range []string{"token:", "token:zz", "token:" + strings.Repeat("0", 64), "user:", "user:-1", "user:99999999999", "certificate:", "certificate:9999999999:", "claims:", "claims:{}", "claims:[", "x", ":"} {
		kit.Equal(t, again(t, c, tool.Principal{Proof: made}), "", "%q lets in", made)
	}
}

func TestAProofOfClaimsEndsWithThemAndWithTheirIssuer(t *testing.T) {
	d := newIssuerTest(t, nil)
	key := edPen(t, "k1")
	d.house.publish(key)
	token := key.sign(t, d.claims(nil))
	p, err := d.admit(t, token)
	if err != nil || strings.Contains(token, p.Proof) || strings.Contains(p.Proof, token[strings.LastIndexByte(token, '.')+1:]) {
		t.Fatalf("%+v, %v", p, err)
	}
	kit.Equal(t, again(t, d.callers, p), "acme:bob", "who comes in again")
	kit.Equal(t, again(t, d.made(t, func(o *Options) { o.JWT = nil }, nil), p), "", "without the issuer")
	d.clock.wait(2 * time.Hour)
	kit.Equal(t, again(t, d.callers, p), "", "after their end")
}

func TestAProofIsNoToken(t *testing.T) {
	c := of(t, "callers: {}", Env{Owner: mustOwner(t, "the-owners-token-0123")})
	p := kit.Must(c.Admit(t.Context(), Credentials{Token: "the-owners-token-0123"}))(t)
	for _, text := range []string{p.Proof, strings.TrimPrefix(p.Proof, digestProof)} {
		kit.Fails(t, kit.Err(c.Admit(t.Context(), Credentials{Token: text})), "")
	}
}

func mustOwner(t *testing.T, token string) Gate {
	t.Helper()
	return kit.Must(StaticToken(token))(t)
}
