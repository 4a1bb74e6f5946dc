package machine

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// The names of grants and of what authenticates a client, in requests (RFC 7523).
const (
	typeJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer" //nolint:gosec // no credential
	typeAssertion = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// request gets a token of the authorization server.
func (t *Tokens) request(ctx context.Context, at *resource, scopes []string) (next token, err error) {
	if next.who, err = t.who(ctx); err != nil {
		return next, err
	}
	form := url.Values{"resource": {at.name}}
	client := &oauth.Client{Server: at.Server, ID: t.c.ID, Scopes: scopes, HTTP: t.own}
	if client.Secret, err = secretOf(t.c.Source, t.c.Secret); err != nil {
		return next, err
	}
	if err := cmp.Or(t.setGrant(ctx, form, at, scopes), t.authenticate(form, at.Server)); err != nil {
		return next, err
	}
	got, err := client.Grant(ctx, form)
	if err != nil {
		return next, err
	}
	t.hide(got.Access)
	if err := cmp.Or(t.key.CheckType(got.Type), t.checkAudience(got.Access, at.name)); err != nil {
		return next, err
	}
	next.Access, next.given = oauth.Access{Token: got.Access, Key: t.key}, time.Now()
	if got.Lasts > 0 {
		next.expiry = next.given.Add(got.Lasts)
		next.renew = next.expiry.Add(-min(renewBefore, got.Lasts/4))
	}
	return next, nil
}

// setGrant writes what the token is requested for.
func (t *Tokens) setGrant(ctx context.Context, form url.Values, at *resource, scopes []string) (err error) {
	var assertion string
	switch t.c.Grant {
	case grantClient:
		form.Set("grant_type", grantClient)
		if t.c.Audience != "" {
			form.Set("audience", t.c.Audience)
		}
		return nil
	case grantJWTBearer:
		assertion, err = t.assertion(at.Server)
	default:
		assertion, err = t.exchange(ctx, at, scopes)
	}
	form.Set("grant_type", typeJWTBearer)
	form.Set("assertion", assertion)
	return err
}

// hide has a secret redacted, in case a server repeats it.
func (t *Tokens) hide(text string) {
	if t.c.Source.Redact != nil {
		t.c.Source.Redact("a token of "+t.c.Source.Name, text)
	}
}

// checkAudience refuses a token for another server: this one could use it there.
func (t *Tokens) checkAudience(access, name string) error {
	if jwt, ok := oauth.ReadJWT(access); ok && jwt.Claims["aud"] != nil && !jwt.Names("aud", name, t.c.Server, t.c.Audience) {
		return tool.Errorf(tool.CodeAccessDenied, "the authorization server gave a token for %s, not for %s; if that is meant, say so in oauth.audience",
			jsonrpc.Clip(strings.Join(jwt.List("aud"), ", ")), t.c.Shown).Because("audience")
	}
	return nil
}

// assertion returns the token of this workload if it may be sent to the authorization server: one for another audience, such
// as the API of a cluster, could be used there by any server that gets it.
func (t *Tokens) assertion(at oauth.Server) (string, error) {
	text, err := t.c.Assertion.read(t.c.Source, "assertion")
	if err != nil {
		return "", err
	}
	t.hide(text)
	jwt, ok := oauth.ReadJWT(text)
	audience := []string{at.Issuer, at.Token}
	if t.c.Assertion.Audience != "" {
		audience = []string{t.c.Assertion.Audience}
	}
	var says string
	switch {
	case !ok:
		says = "it is not a JSON Web Token"
	case jwt.Expired():
		says = "it has expired"
	case !jwt.Names("aud", audience...):
		says = "it is for " + jsonrpc.Clip(strings.Join(jwt.List("aud"), ", ")) + ", not for " + jsonrpc.Clip(audience[0])
	default:
		return text, nil
	}
	return "", tool.Errorf(tool.CodeAccessDenied, "oauth.assertion was not sent: %s", says).Because("assertion")
}

// authenticate shows the authorization server which client we are, if that takes more than a secret.
func (t *Tokens) authenticate(form url.Values, at oauth.Server) (err error) {
	var assertion string
	switch {
	case t.c.Key.set():
		assertion, err = t.sign(at)
	case t.c.Grant == grantClient && t.c.Assertion.set():
		assertion, err = t.assertion(at)
	default:
		return nil
	}
	if err == nil && len(at.Methods) > 0 && !slices.Contains(at.Methods, "private_key_jwt") {
		err = tool.Errorf(tool.CodeUnsupported, "the authorization server %s takes no key or assertion of a client; it takes %s", at.Issuer,
			jsonrpc.Clip(strings.Join(at.Methods, ", ")))
	}
	form.Set("client_assertion_type", typeAssertion)
	form.Set("client_assertion", assertion)
	return err
}

// signedFor is how long the signed name of a client is valid. Each is used once.
const signedFor = time.Minute

// sign returns our name, signed for one authorization server alone (RFC 7523).
func (t *Tokens) sign(at oauth.Server) (string, error) {
	text, err := t.c.Key.read(t.c.Source, "key")
	if err != nil {
		return "", err
	}
	private, algorithm, err := parseKey(text)
	if err != nil {
		return "", tool.Errorf(tool.CodeInvalidInput, "oauth.key: %w", err)
	}
	if len(at.Algorithms) > 0 && !slices.Contains(at.Algorithms, string(algorithm)) {
		return "", tool.Errorf(tool.CodeUnsupported, "the authorization server %s takes signatures of %s, and oauth.key makes %s", at.Issuer,
			jsonrpc.Clip(strings.Join(at.Algorithms, ", ")), algorithm)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: private, KeyID: t.c.KeyID}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", tool.Errorf(tool.CodeInvalidInput, "oauth.key cannot sign")
	}
	now := time.Now()
	return oauth.Sign(signer, map[string]any{
		"iss": t.c.ID, "sub": t.c.ID, "aud": at.Issuer, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(signedFor).Unix(),
	})
}

const minRSA = 2048 // bits

// parseKey reads a private key. Its errors say nothing of the text.
func parseKey(text string) (crypto.Signer, jose.SignatureAlgorithm, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, "", errors.New("it is not in PEM")
	}
	var key any
	for _, parse := range []func([]byte) (any, error){
		x509.ParsePKCS8PrivateKey,
		func(b []byte) (any, error) { return x509.ParseECPrivateKey(b) },
		func(b []byte) (any, error) { return x509.ParsePKCS1PrivateKey(b) },
	} {
		if one, err := parse(block.Bytes); err == nil {
			key = one
			break
		}
	}
	switch key := key.(type) {
	case *rsa.PrivateKey:
		if key.N.BitLen() >= minRSA {
			return key, jose.RS256, nil
		}
	case ed25519.PrivateKey:
		return key, jose.EdDSA, nil
	case *ecdsa.PrivateKey:
		switch key.Curve {
		case elliptic.P256():
			return key, jose.ES256, nil
		case elliptic.P384():
			return key, jose.ES384, nil
		}
	}
	return nil, "", errors.New("it is not a private key of P-256, P-384, Ed25519, or RSA of 2048 bits or more")
}
