package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/internal/kit"
	"toolpost/tool"
)

const toolsURL = "https://tools.example.org/mcp"

// A holder holds the key that tokens are bound to.
type holder struct {
	*issuerTest
	pen, issuer pen
}

func newHolder(t *testing.T) *holder {
	t.Helper()
	h := &holder{newIssuerTest(t, nil), ecPen(t, ""), ecPen(t, "e")}
	h.house.publish(h.issuer)
	return h
}

func (h *holder) thumbprint(t *testing.T) string {
	t.Helper()
	sum := kit.Must((&jose.JSONWebKey{Key: h.pen.public}).Thumbprint(crypto.SHA256))(t)
	return base64.RawURLEncoding.EncodeToString(sum)
}

func (h *holder) token(t *testing.T, changes map[string]any) string {
	t.Helper()
	all := map[string]any{"cnf": map[string]any{"jkt": h.thumbprint(t)}}
	maps.Copy(all, changes)
	return h.issuer.sign(t, h.claims(all))
}

// prove returns a proof for a token, with some claims changed; nil removes one.
func (h *holder) prove(t *testing.T, token string, changes map[string]any, opts *jose.SignerOptions) string {
	t.Helper()
	sum := sha256.Sum256([]byte(token))
	claims := map[string]any{
		"jti": fmt.Sprint(time.Now().UnixNano()), "htm": "POST", "htu": toolsURL, "iat": h.clock.in(0),
		"ath": base64.RawURLEncoding.EncodeToString(sum[:]),
	}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	if opts == nil {
		opts = (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt")
	}
	signer := kit.Must(jose.NewSigner(jose.SigningKey{Algorithm: h.pen.algorithm, Key: h.pen.private}, opts))(t)
	signed := kit.Must(signer.Sign(kit.Must(json.Marshal(claims))(t)))(t)
	return kit.Must(signed.CompactSerialize())(t)
}

// show shows a token with a proof at the address of toolsURL.
func (h *holder) show(t *testing.T, token string, proofs ...string) (tool.Principal, error) {
	t.Helper()
	return h.callers.Admit(t.Context(), Credentials{
		Door: "http", Token: token, DPoP: NewPossession(proofs, "POST", "tools.example.org", "/mcp", true, ""),
	})
}

func TestBoundTokenNeedsAProof(t *testing.T) {
	h := newHolder(t)
	token := h.token(t, nil)
	p, err := h.show(t, token, h.prove(t, token, nil, nil))
	kit.OK(t, err)
	kit.Equal(t, p.ID, "acme:bob")
	h.refuses(t, token) // as a bearer token
	plain := h.issuer.sign(t, h.claims(nil))
	h.lets(t, plain)
	kit.Fails(t, kit.Err(h.show(t, plain, h.prove(t, plain, nil, nil))), "", "a token that is not bound")
	for name, cnf := range map[string]any{
		"a certificate": map[string]any{"x5t#S256": "AAAA"}, "two ways": map[string]any{"jkt": h.thumbprint(t), "x5t#S256": "AAAA"},
		"nothing": map[string]any{}, "a text": h.thumbprint(t), "null": []any{}, "another key": map[string]any{"jkt": "AAAA"},
	} {
		other := h.token(t, map[string]any{"cnf": cnf})
		kit.Fails(t, kit.Err(h.show(t, other, h.prove(t, other, nil, nil))), "", name)
		h.refuses(t, other)
	}
}

func TestProofsThatAreNotForTheRequestAreRefused(t *testing.T) {
	h := newHolder(t)
	token, other := h.token(t, nil), h.token(t, map[string]any{"sub": "carol"})
	for name, changes := range map[string]map[string]any{
		"another method": {"htm": "GET"}, "another path": {"htu": "https://tools.example.org/v1/tools"},
		"another host": {"htu": "https://other.example.org/mcp"}, "no TLS": {"htu": "http://tools.example.org/mcp"},
		"another port": {"htu": "https://tools.example.org:8443/mcp"}, "a user": {"htu": "https://a@tools.example.org/mcp"},
		"no address": {"htu": nil}, "empty address": {"htu": ""}, "several": {"htu": toolsURL + " " + toolsURL},
		"no method": {"htm": nil}, "another token": {"ath": h.hash(other)}, "no token": {"ath": nil}, "no id": {"jti": nil}, "an empty id": {"jti": ""},
		"an id that is no text": {"jti": 7}, "no time": {"iat": nil}, "a time that is none": {"iat": "now"},
		"too old": {"iat": h.clock.in(-proofAge - 2*time.Second)}, "not valid yet": {"iat": h.clock.in(leeway + 2*time.Second)},
	} {
		kit.Fails(t, kit.Err(h.show(t, token, h.prove(t, token, changes, nil))), "", name)
	}
	for name, changes := range map[string]map[string]any{
		"a query": {"htu": toolsURL + "?a=b#c"}, "the usual port": {"htu": "HTTPS://Tools.example.org:443/mcp"},
		"a clock behind": {"iat": h.clock.in(-proofAge + 2*time.Second)}, "a clock ahead": {"iat": h.clock.in(leeway - 2*time.Second)},
	} {
		kit.Check(t, kit.Err(h.show(t, token, h.prove(t, token, changes, nil))), name)
	}
}

func (h *holder) hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func TestProofsThatAreNotSignedAsTheyMustBeAreRefused(t *testing.T) {
	h := newHolder(t)
	token := h.token(t, nil)
	good := h.prove(t, token, nil, nil)
	parts := strings.Split(good, ".")
	private := (&jose.SignerOptions{}).WithType("dpop+jwt").WithHeader("jwk", jose.JSONWebKey{Key: h.pen.private})
	stranger := newHolder(t)
	for name, proofs := range map[string][]string{
		"none": {}, "two": {good, h.prove(t, token, nil, nil)}, "empty": {""}, "no JWT": {"a.b.c"},
		"another type":             {h.prove(t, token, nil, (&jose.SignerOptions{EmbedJWK: true}).WithType("JWT"))},
		"no type":                  {h.prove(t, token, nil, &jose.SignerOptions{EmbedJWK: true})},
		"no key":                   {h.prove(t, token, nil, (&jose.SignerOptions{}).WithType("dpop+jwt"))},
		"private key":              {h.prove(t, token, nil, private)},
		"another key":              {stranger.prove(t, token, nil, nil)},
		"a claim that was changed": {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"jti":"x"}`)) + "." + parts[2]},
		"not signed":               {parts[0] + "." + parts[1] + "."},
		"too long":                 {h.prove(t, token, map[string]any{"more": strings.Repeat("x", maxProof)}, nil)},
	} {
		kit.Fails(t, kit.Err(h.show(t, token, proofs...)), "", name)
	}
}

// A proof is good once, also while several requests show it, and across a reload of the config.
func TestProofIsGoodOnce(t *testing.T) {
	h := newHolder(t)
	token := h.token(t, nil)
	kit.OK(t, kit.Err(h.show(t, token, h.prove(t, token, nil, nil))))
	h.clock.wait(proofAge) // so that the proof is older than others that are remembered
	proof := h.prove(t, token, map[string]any{"iat": h.clock.in(leeway - time.Second)}, nil)
	var work sync.WaitGroup
	var good atomic.Int64
	for range 32 {
		work.Go(func() {
			if _, err := h.show(t, token, proof); err == nil {
				good.Add(1)
			}
		})
	}
	work.Wait()
	kit.Equal(t, good.Load(), 1, "requests with one proof")
	h.callers = h.made(t, nil, h.callers)
	for range 20 { // for as long as it would be accepted otherwise, with others in between
		h.clock.wait((proofAge + leeway) / 20)
		kit.Fails(t, kit.Err(h.show(t, token, proof)), "")
		kit.Check(t, kit.Err(h.show(t, token, h.prove(t, token, nil, nil))))
	}
}

func TestProofsAreForgottenWithTime(t *testing.T) {
	p, now := &proofs{}, time.Now()
	for n := range 10 {
		kit.OK(t, p.once(fmt.Sprint(n), now))
		now = now.Add(proofAge)
	}
	if kept := len(p.now) + len(p.older); kept > 4 {
		t.Errorf("%d proofs are remembered", kept)
	}
}

// A proxy that ends TLS passes requests on without it, and perhaps to another name.
func TestProofBehindAProxy(t *testing.T) {
	by := NewPossession([]string{"p"}, "POST", "127.0.0.1:8700", "/mcp", false, toolsURL)
	for _, address := range []string{"http://127.0.0.1:8700/mcp", "https://127.0.0.1:8700/mcp", toolsURL} {
		if !strings.Contains(" "+by.URLs+" ", " "+address+" ") {
			t.Errorf("%s is not in %s", address, by.URLs)
		}
	}
}

// Other things that an issuer signs are not tokens for us. An identity assertion is told apart, so that a client learns what to do.
func TestOnlyAccessTokensAreAccepted(t *testing.T) {
	var log kit.Buffer
	h := newHolder(t)
	h.callers.env.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	typed := func(typ string) string {
		signer := kit.Must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: h.issuer.private.(*ecdsa.PrivateKey)},
			(&jose.SignerOptions{}).WithType(jose.ContentType(typ)).WithHeader("kid", "e")))(t)
		signed := kit.Must(signer.Sign(kit.Must(json.Marshal(h.claims(nil)))(t)))(t)
		return kit.Must(signed.CompactSerialize())(t)
	}
	for _, typ := range []string{"JWT", "at+jwt", "AT+JWT", "application/at+jwt"} {
		h.lets(t, typed(typ))
	}
	for _, typ := range []string{"dpop+jwt", "logout+jwt", "secevent+jwt", "JOSE", "application/"} {
		h.refuses(t, typed(typ))
	}
	_, err := h.admit(t, typed("oauth-id-jag+jwt"))
	kit.Fails(t, err, "exchange it")
	kit.Equal(t, tool.CodeOf(err), tool.CodeAccessDenied)
	kit.Equal(t, tool.AsError(err).Reason, Reason)
}

// Other tokens than those of issuers are not bound to a key, and cannot be shown as if they were.
func TestOwnTokensAreBearerTokens(t *testing.T) {
	digest := Digest{sha256.Sum256([]byte("listed"))}
	h := newHolder(t)
	h.callers = h.made(t, func(o *Options) {
		o.List = map[string]Caller{"ci": {Tokens: []Digest{digest}, Tools: tool.Patterns{"*"}}}
	}, nil)
	h.lets(t, "listed")
	kit.Fails(t, kit.Err(h.show(t, "listed", h.prove(t, "listed", nil, nil))), "")
}
