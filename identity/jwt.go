package identity

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// leeway is how far an issuer's clock may be ahead of ours.
const leeway = 30 * time.Second

// An issuer checks the tokens of one issuer.
type issuer struct {
	Issuer
	algorithms []jose.SignatureAlgorithm
	keys       *keyring
	now        func() time.Time
}

func newIssuer(o Issuer, env Env) *issuer {
	i := &issuer{Issuer: o, now: env.now}
	if o.Algorithms == nil {
		i.algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}
	}
	for _, name := range o.Algorithms {
		i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(name))
	}
	if env.Before != nil {
		if before := env.Before.issuers[o.Issuer]; before != nil && before.JWKS == o.JWKS {
			i.keys = before.keys
		}
	}
	if i.keys == nil {
		i.keys = &keyring{
			load: loader(o, env.Dir), log: env.Log.With("issuer", o.Issuer), now: env.now, turn: make(chan struct{}, 1),
		}
	}
	return i
}

// byJWT authenticates a caller by a token of an issuer.
func (c *Callers) byJWT(ctx context.Context, shown Credentials) (tool.Principal, error) {
	from, err := issuerOf(shown.Token)
	if err != nil {
		return tool.Principal{}, err
	}
	i := c.issuers[from]
	if i == nil {
		return tool.Principal{}, fmt.Errorf("no issuer is called %.100q", from)
	}
	payload, err := i.verify(ctx, shown.Token)
	if err != nil {
		return tool.Principal{}, err
	}
	claims, err := readClaims(payload)
	if err != nil {
		return tool.Principal{}, err
	}
	if err := cmp.Or(i.check(claims), c.checkBound(shown, claims)); err != nil {
		return tool.Principal{}, err
	}
	p, err := c.claimed(i, claims)
	p.Proof = claimsProof + string(payload)
	return p, err
}

// byClaims authenticates a caller by claims that an issuer signed before: the issuer must still be accepted, and the
// claims still valid. It does not check whether the key was withdrawn since; the claims expire soon enough.
func (c *Callers) byClaims(payload string) (tool.Principal, error) {
	claims, err := readClaims([]byte(payload))
	if err != nil {
		return tool.Principal{}, err
	}
	from, _ := claims["iss"].(string)
	i := c.issuers[from]
	if i == nil {
		return tool.Principal{}, fmt.Errorf("no issuer is called %.100q any more", from)
	}
	if err := i.check(claims); err != nil {
		return tool.Principal{}, err
	}
	return c.claimed(i, claims)
}

// issuerOf returns the issuer that a token claims. Nothing of it is verified yet.
func issuerOf(token string) (string, error) {
	_, rest, _ := strings.Cut(token, ".")
	middle, _, _ := strings.Cut(rest, ".")
	b, err := base64.RawURLEncoding.DecodeString(middle)
	if err != nil {
		return "", errors.New("its claims are not in base64url")
	}
	claims, err := readClaims(b)
	if err != nil {
		return "", err
	}
	from, _ := claims["iss"].(string)
	return from, nil
}

func readClaims(b []byte) (map[string]any, error) {
	v, err := strictjson.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("its claims are not JSON: %w", err)
	}
	claims, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("its claims are not an object")
	}
	return claims, nil
}

// errNoKey is the error of a token whose key may be so new that we do not know it yet.
var errNoKey = errors.New("no key of the issuer has signed it")

// verify returns what was signed, with an allowed algorithm and a key of the issuer. An unknown key may be a new one, so
// the keys are then loaded again. Its type is that of an access token, or one of types.
func (i *issuer) verify(ctx context.Context, token string, types ...string) (payload []byte, err error) {
	signed, err := jose.ParseSignedCompact(token, i.algorithms)
	if err != nil {
		return nil, fmt.Errorf("it is not signed as it must be: %w", err)
	}
	head := signed.Signatures[0].Header
	if err := checkType(head.ExtraHeaders[jose.HeaderType], types); err != nil {
		return nil, err
	}
	for range 2 {
		keys := i.keys.find(ctx, head.KeyID, head.Algorithm)
		for _, key := range keys {
			if payload, err := signed.Verify(key); err == nil {
				return payload, nil
			}
		}
		if head.KeyID != "" && len(keys) > 0 {
			break
		}
		if err := i.keys.renew(ctx); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w, or its key %.100q is not known", errNoKey, head.KeyID)
}

// errIDJAG is told to the caller, unlike other reasons: it says nothing of our config.
var errIDJAG = errors.New("an identity assertion (ID-JAG) is not a token for this server: exchange it for one at the authorization server " +
	"that its claim aud names")

// checkType refuses tokens that an issuer signed for another purpose, such as an assertion, a proof or the end of a session:
// their claims may look like those of an access token. A token without a type is one.
func checkType(typ any, types []string) error {
	if typ == nil {
		return nil
	}
	text, _ := typ.(string)
	switch kind := strings.TrimPrefix(strings.ToLower(text), "application/"); {
	case kind == "jwt" || kind == "at+jwt" || slices.Contains(types, kind):
		return nil
	case kind == oauth.TypeIDJAG:
		return errIDJAG
	}
	return fmt.Errorf("it has the type %.40q, which is not that of an access token", text)
}

// check checks that a token is from this issuer, for us, valid now, and of the kind by which callers are known.
func (i *issuer) check(claims map[string]any) error {
	if err := i.valid(claims); err != nil || i.provider == nil {
		return err
	}
	return i.provider.check(claims, i.now())
}

// valid checks that a token is from this issuer, for us, and valid now.
func (i *issuer) valid(claims map[string]any) error {
	if claims["iss"] != i.Issuer.Issuer {
		return errors.New("it is of another issuer")
	}
	if !slices.ContainsFunc(oauth.Texts(claims["aud"]), func(aud string) bool { return slices.Contains(i.Audience, aud) }) {
		return errors.New("it is for another audience")
	}
	now := float64(i.now().UnixMilli()) / 1000
	end, errEnd := moment(claims, "exp")
	start, errStart := moment(claims, "nbf")
	switch {
	case errEnd != nil || errStart != nil:
		return errors.Join(errEnd, errStart)
	case end == 0:
		return errors.New("it does not say when it expires")
	case now >= end:
		return errExpired
	case now+leeway.Seconds() < start:
		return errors.New("it is not valid yet")
	}
	return nil
}

var errExpired = errors.New("it has expired")

// moment parses a claim that is a time, in seconds; it returns 0 if the claim is missing.
func moment(claims map[string]any, name string) (seconds float64, err error) {
	v, ok := claims[name]
	if !ok {
		return 0, nil
	}
	n, _ := v.(json.Number)
	if seconds, err = n.Float64(); err != nil {
		return 0, fmt.Errorf("its claim %s is not a time", name)
	}
	return seconds, nil
}

// claimed returns the caller that claims describe: with the roles that follow from them, and with what the config lists
// for its name.
func (c *Callers) claimed(i *issuer, claims map[string]any) (tool.Principal, error) {
	name, err := i.callerOf(claims)
	if err != nil {
		return tool.Principal{}, err
	}
	id := i.Prefix + name
	if err := cmp.Or(CheckID(id), i.checkName(name)); err != nil {
		return tool.Principal{}, err
	}
	roles, err := i.roles(id, claims)
	if err != nil {
		return tool.Principal{}, err
	}
	rights := grant(c.o.Roles, roles, nil)
	if has, ok := c.rights[id]; ok {
		rights = &tool.Rights{Roles: union(rights.Roles, has.Roles), Tools: both(rights.Tools, has.Tools)}
	}
	if err := c.o.unlike(id, rights.Roles); err != nil {
		return tool.Principal{}, err
	}
	if nothing(rights) {
		return tool.Principal{}, fmt.Errorf("its claims and the config give %.100q nothing to use", id)
	}
	return tool.Principal{ID: id, Rights: rights}, nil
}

// checkName refuses a name that would pass for that of an agent of this machine, or that looks like another: people may choose
// their names at an issuer. An issuer whose own prefix is that of agents names agents because the config says so.
func (i *issuer) checkName(name string) error {
	switch {
	case strings.HasPrefix(i.Prefix+name, tool.AgentPrefix) && !strings.HasPrefix(i.Prefix, tool.AgentPrefix):
		return fmt.Errorf("no caller of an issuer can be called %.100q: names with %s are those of agents", name, tool.AgentPrefix)
	case tool.VisibleName(name) != name || strings.TrimSpace(name) != name:
		return fmt.Errorf("the name %.100q has characters that are invisible, or blanks at its ends: it looks like another", name)
	}
	return nil
}

// callerOf returns the name that claims give their caller, without the prefix.
func (i *issuer) callerOf(claims map[string]any) (name string, err error) {
	by := cmp.Or(i.Caller, "sub")
	if i.provider == nil {
		name, _ = claim(claims, by).(string)
	} else if name, err = i.provider.nameOf(claims); err != nil {
		return "", err
	}
	if name == "" {
		return "", fmt.Errorf("it does not name its caller in the claim %s", by)
	}
	return name, nil
}

// roles returns the roles that follow from claims, of the caller with a name.
func (i *issuer) roles(name string, claims map[string]any) ([]string, error) {
	if i.provider != nil {
		return i.provider.rolesOf(name, claims)
	}
	roles := slices.Clone([]string(i.Roles.Always))
	if i.Roles.Claim == "" {
		return roles, nil
	}
	v := claim(claims, i.Roles.Claim)
	values := oauth.Texts(v)
	// these are one text with blanks
	if text, ok := v.(string); ok && (i.Roles.Claim == "scope" || i.Roles.Claim == "scp") {
		values = strings.Fields(text)
	}
	for _, value := range values {
		if i.Roles.Map == nil {
			roles = append(roles, value)
		}
		roles = append(roles, i.Roles.Map[value]...)
	}
	return roles, nil
}

// claim finds a claim by its name, or a nested one by names with dots between them.
func claim(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok {
		return v
	}
	outer, inner, ok := strings.Cut(name, ".")
	if within, isObject := claims[outer].(map[string]any); ok && isObject {
		return claim(within, inner)
	}
	return nil
}

func union(a, b []string) []string {
	out := slices.Clip(a)
	for _, one := range b {
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}
