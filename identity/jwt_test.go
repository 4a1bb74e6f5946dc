package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// A house is an issuer that publishes its keys over HTTP.
type house struct {
	*httptest.Server
	asked atomic.Int64 // number of requests

	mu   sync.Mutex
	keys []jose.JSONWebKey
	down bool
	raw  string // in place of the keys
}

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

// ServeHTTP implements http.Handler.
func (h *house) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.down:
		http.Error(w, "gone to lunch", http.StatusServiceUnavailable)
	case r.URL.Path == "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": h.URL, "jwks_uri": h.URL + "/keys"})
	case r.URL.Path == "/other/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": h.URL, "jwks_uri": h.URL + "/keys"})
	case r.URL.Path == "/away":
		_, port, _ := net.SplitHostPort(r.Host) // 0.0.0.0 reaches this machine, but is not a loopback address
		http.Redirect(w, r, "http://0.0.0.0:"+port+"/keys", http.StatusFound)
	case r.URL.Path != "/keys":
		http.NotFound(w, r)
	default:
		h.asked.Add(1)
		if h.raw != "" {
			_, _ = w.Write([]byte(h.raw))
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: h.keys})
	}
}

func (h *house) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// publish publishes the public halves of these keys, and no others.
func (h *house) publish(pens ...pen) {
	h.change(func() {
		h.keys = nil
		for _, p := range pens {
			h.keys = append(h.keys, jose.JSONWebKey{Key: p.public, KeyID: p.kid, Use: "sig"})
		}
	})
}

// A pen signs tokens.
type pen struct {
	kid             string
	algorithm       jose.SignatureAlgorithm
	private, public any
}

// rsaKey is shared by all tests: making it takes a long time.
var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

func rsaPen(t testing.TB, kid string) pen {
	t.Helper()
	key := kit.Must(rsaKey())(t)
	return pen{kid, jose.RS256, key, &key.PublicKey}
}

func ecPen(t testing.TB, kid string) pen {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	return pen{kid, jose.ES256, key, &key.PublicKey}
}

func edPen(t testing.TB, kid string) pen {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	kit.OK(t, err)
	return pen{kid, jose.EdDSA, private, public}
}

func (p pen) sign(t testing.TB, claims any) string {
	t.Helper()
	payload := kit.Must(json.Marshal(claims))(t)
	return p.signBytes(t, payload)
}

func (p pen) signBytes(t testing.TB, payload []byte) string {
	t.Helper()
	o := (&jose.SignerOptions{}).WithType("JWT")
	if p.kid != "" {
		o = o.WithHeader("kid", p.kid)
	}
	signer := kit.Must(jose.NewSigner(jose.SigningKey{Algorithm: p.algorithm, Key: p.private}, o))(t)
	signed := kit.Must(signer.Sign(payload))(t)
	return kit.Must(signed.CompactSerialize())(t)
}

// A clock moves only when a test moves it.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Now().UnixNano())
	return c
}

func (c *clock) now() time.Time           { return time.Unix(0, c.at.Load()) }
func (c *clock) wait(d time.Duration)     { c.at.Add(int64(d)) }
func (c *clock) in(d time.Duration) int64 { return c.now().Add(d).Unix() }

// issuerTest is a config with one issuer, with helpers.
type issuerTest struct {
	house   *house
	clock   *clock
	callers *Callers
}

func newIssuerTest(t testing.TB, change func(*Options)) *issuerTest {
	t.Helper()
	d := &issuerTest{house: newHouse(t), clock: newClock()}
	d.callers = d.made(t, change, nil)
	return d
}

func (d *issuerTest) made(t testing.TB, change func(*Options), before *Callers) *Callers {
	t.Helper()
	o := Options{
		Roles: map[string]Role{"reader": {Tools: tool.Patterns{"read*"}}, "admin": {}},
		List:  map[string]Caller{"acme:alice": {Tools: tool.Patterns{"writeFile"}}},
		JWT: []Issuer{{
			Issuer: d.house.URL, Audience: Names{"toolpost", "tools"}, JWKS: d.house.URL + "/keys", Prefix: "acme:",
			Roles: ClaimRoles{Claim: "groups", Map: map[string]Names{"ops": {"admin"}, "dev": {"reader"}}},
		}},
	}
	if change != nil {
		change(&o)
	}
	for i := range o.JWT {
		kit.OK(t, o.JWT[i].Validate())
	}
	return kit.Must(New(o, Env{now: d.clock.now, Before: before}))(t)
}

// claims returns valid claims, with some changes; nil removes one.
func (d *issuerTest) claims(changes map[string]any) map[string]any {
	all := map[string]any{"iss": d.house.URL, "aud": "toolpost", "sub": "bob", "exp": d.clock.in(time.Hour), "groups": []string{"dev"}}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func (d *issuerTest) admit(t testing.TB, token string) (tool.Principal, error) {
	t.Helper()
	return d.callers.Admit(t.Context(), Credentials{Door: "http", Token: token})
}

func (d *issuerTest) lets(t testing.TB, token string) {
	t.Helper()
	if p, err := d.admit(t, token); err != nil {
		t.Errorf("refused: %v, %v", p, err)
	}
}

// refuses expects the one error text that reveals nothing to outsiders.
func (d *issuerTest) refuses(t testing.TB, token string) {
	t.Helper()
	p, err := d.admit(t, token)
	if err == nil || p.ID != "" || p.Rights != nil {
		t.Errorf("let in as %+v, %v", p, err)
		return
	}
	e := tool.AsError(err)
	if e.Code != tool.CodeAccessDenied || e.Reason != Reason || e.Message != tool.AsError(WrongToken()).Message {
		t.Errorf("told: %v %q", err, e.Reason)
	}
}

func TestJWTClaimsGiveCallerAndRoles(t *testing.T) {
	d := newIssuerTest(t, nil)
	r, e, o := rsaPen(t, "r"), ecPen(t, "e"), edPen(t, "o")
	d.house.publish(r, e, o)
	for _, c := range []struct {
		pen     pen
		changes map[string]any
		id      string
		roles   string
		tools   string // "*" means all
	}{
		{r, nil, "acme:bob", "reader", "read*"},
		{e, nil, "acme:bob", "reader", "read*"},
		{o, map[string]any{"groups": "dev"}, "acme:bob", "reader", "read*"},
		{o, map[string]any{"aud": []string{"others", "tools"}}, "acme:bob", "reader", "read*"},
		{o, map[string]any{"nbf": d.clock.in(10 * time.Second), "iat": d.clock.in(0)}, "acme:bob", "reader", "read*"},
		{o, map[string]any{"groups": []any{"dev", 7, "ops", "nobody"}}, "acme:bob", "reader admin", "*"},
		{o, map[string]any{"sub": "alice"}, "acme:alice", "reader", "read*, writeFile"},
		{o, map[string]any{"sub": "alice", "groups": nil}, "acme:alice", "", "writeFile"},
		{o, map[string]any{"sub": "local"}, "acme:local", "reader", "read*"},
	} {
		p, err := d.admit(t, c.pen.sign(t, d.claims(c.changes)))
		if err != nil {
			t.Errorf("%v: %v", c.changes, err)
			continue
		}
		tools := p.Rights.Tools.String()
		if p.Rights.Tools == nil {
			tools = "*"
		}
		if p.ID != c.id || p.Door != "http" || strings.Join(p.Roles(), " ") != c.roles || tools != c.tools {
			t.Errorf("%v: %+v, %v, %s", c.changes, p, p.Roles(), tools)
		}
	}
	for _, nobody := range []map[string]any{
		{"groups": nil}, {"groups": []string{"admin"}}, {"groups": "ops dev"}, {"groups": map[string]any{"ops": true}},
		{"sub": nil}, {"sub": ""}, {"sub": 7}, {"sub": "a\nb"}, {"sub": strings.Repeat("x", 300)},
	} {
		d.refuses(t, o.sign(t, d.claims(nobody)))
	}
}

func TestRolesFromNestedClaimsAndDefaults(t *testing.T) {
	p := edPen(t, "k")
	for _, c := range []struct {
		roles  ClaimRoles
		claims map[string]any
		want   string
	}{
		{ClaimRoles{Claim: "realm_access.roles"}, map[string]any{"realm_access": map[string]any{"roles": []string{"reader", "other"}}}, "reader"},
		{ClaimRoles{Claim: "scope"}, map[string]any{"scope": "openid reader admin"}, "reader admin"},
		{ClaimRoles{Claim: "groups", Always: Names{"reader"}}, nil, "reader"},
		{ClaimRoles{Always: Names{"reader"}}, nil, "reader"},
	} {
		d := newIssuerTest(t, func(o *Options) { o.JWT[0].Roles = c.roles })
		d.house.publish(p)
		who, err := d.admit(t, p.sign(t, d.claims(c.claims)))
		if err != nil || strings.Join(who.Roles(), " ") != c.want {
			t.Errorf("%+v: %v, %v", c.roles, who.Roles(), err)
		}
	}
	d := newIssuerTest(t, func(o *Options) { o.JWT[0].Prefix = "" })
	d.house.publish(p)
	for _, taken := range []string{Owner, Local} { // these callers may do more than others
		d.refuses(t, p.sign(t, d.claims(map[string]any{"sub": taken})))
	}
	d.lets(t, p.sign(t, d.claims(nil)))
}

// bad lists tokens that must be refused. Each is one step away from a valid one.
func (d *issuerTest) bad(t testing.TB, r, o pen) map[string]string {
	t.Helper()
	good := o.sign(t, d.claims(nil))
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	encode := base64.RawURLEncoding.EncodeToString
	der := kit.Must(x509.MarshalPKIXPublicKey(r.public))(t)
	stranger := edPen(t, o.kid)
	strong := r
	strong.algorithm = jose.RS512
	unknown := o
	unknown.kid = "unknown"
	bad := map[string]string{
		"none":                      encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + body + ".",
		"none with a signature":     encode([]byte(`{"alg":"none","kid":"o"}`)) + "." + body + "." + signature,
		"HS256 with the public key": hs256(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), r.kid, body),
		"HS256 with its bytes":      hs256(der, r.kid, body),
		"an algorithm not listed":   strong.sign(t, d.claims(nil)),
		"wrong audience":            o.sign(t, d.claims(map[string]any{"aud": "others"})),
		"wrong audiences":           o.sign(t, d.claims(map[string]any{"aud": []string{"others", "Toolpost"}})),
		"audience of a wrong type":  o.sign(t, d.claims(map[string]any{"aud": map[string]any{"toolpost": true}})),
		"no audience":               o.sign(t, d.claims(map[string]any{"aud": nil})),
		"wrong issuer":              o.sign(t, d.claims(map[string]any{"iss": "https://id.example.org"})),
		"issuer with a slash":       o.sign(t, d.claims(map[string]any{"iss": d.house.URL + "/"})),
		"no issuer":                 o.sign(t, d.claims(map[string]any{"iss": nil})),
		"expired":                   o.sign(t, d.claims(map[string]any{"exp": d.clock.in(-time.Second)})),
		"expires now":               o.sign(t, d.claims(map[string]any{"exp": d.clock.now().Unix()})),
		"never expires":             o.sign(t, d.claims(map[string]any{"exp": nil})),
		"expires as text":           o.sign(t, d.claims(map[string]any{"exp": "2999-01-01"})),
		"not yet valid":             o.sign(t, d.claims(map[string]any{"nbf": d.clock.in(time.Minute)})),
		"valid from some text":      o.sign(t, d.claims(map[string]any{"nbf": "now"})),
		"unknown kid":               unknown.sign(t, d.claims(nil)),
		"another's key, same kid":   stranger.sign(t, d.claims(nil)),
		"claims changed":            head + "." + encode([]byte(strings.Replace(decode(t, body), "bob", "eve", 1))) + "." + signature,
		"truncated":                 good[:len(good)-10],
		"no signature":              head + "." + body + ".",
		"two dots only":             "..",
		"three dots":                good + ".x",
		"blank before":              " " + good,
		"1 MiB":                     head + "." + strings.Repeat("A", 1<<20) + "." + signature,
		"claims are a list":         o.signBytes(t, []byte(`["`+d.house.URL+`"]`)),
		"claims twice":              o.signBytes(t, []byte(`{"iss":"`+d.house.URL+`","iss":"`+d.house.URL+`"}`)),
		"claims too deep":           o.signBytes(t, []byte(strings.Repeat("[", 5000))),
		"no claims":                 o.signBytes(t, nil),
		"empty":                     "",
	}
	return bad
}

func hs256(secret []byte, kid, body string) string {
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"` + kid + `","typ":"JWT"}`))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(head + "." + body))
	return head + "." + body + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func decode(t testing.TB, part string) string {
	t.Helper()
	return string(kit.Must(base64.RawURLEncoding.DecodeString(part))(t))
}

func TestBadJWTIsRefusedWithoutAReason(t *testing.T) {
	d := newIssuerTest(t, nil)
	r, o := rsaPen(t, "r"), edPen(t, "o")
	d.house.publish(r, o)
	d.lets(t, r.sign(t, d.claims(nil)))
	d.lets(t, o.sign(t, d.claims(nil)))
	for name, token := range d.bad(t, r, o) {
		t.Run(name, func(t *testing.T) { d.refuses(t, token) })
	}
}

func TestUnsuitableSigningKeysAreIgnored(t *testing.T) {
	d := newIssuerTest(t, nil)
	secret := pen{"s", jose.HS256, []byte(strings.Repeat("k", 32)), []byte(strings.Repeat("k", 32))}
	key := kit.Must(rsa.GenerateKey(rand.Reader, 1024))(t)
	weak := pen{"w", jose.RS256, key, &key.PublicKey}
	whole, other, good, bound := edPen(t, "p"), edPen(t, "e"), edPen(t, "g"), rsaPen(t, "b")
	d.house.change(func() {
		d.house.keys = []jose.JSONWebKey{
			{Key: secret.public, KeyID: secret.kid}, {Key: weak.public, KeyID: weak.kid}, {Key: whole.private, KeyID: whole.kid},
			{Key: other.public, KeyID: other.kid, Use: "enc"}, {Key: good.public, KeyID: good.kid, Algorithm: "EdDSA"},
			{Key: bound.public, KeyID: bound.kid, Algorithm: "PS256"},
		}
	})
	for _, p := range []pen{secret, weak, whole, other, bound} {
		d.refuses(t, p.sign(t, d.claims(nil)))
	}
	d.lets(t, good.sign(t, d.claims(nil)))
	withoutKeyID := good
	withoutKeyID.kid = ""
	d.lets(t, withoutKeyID.sign(t, d.claims(nil)))
}

func TestUnknownKeyReloadsTheKeysAtALimitedRate(t *testing.T) {
	d := newIssuerTest(t, nil)
	old, next := edPen(t, "1"), edPen(t, "2")
	d.house.publish(old)
	d.lets(t, old.sign(t, d.claims(nil)))
	kit.Equal(t, d.house.asked.Load(), 1, "times asked")
	d.house.publish(next)
	for range 50 { // too soon after the last load
		d.refuses(t, next.sign(t, d.claims(nil)))
	}
	kit.Equal(t, d.house.asked.Load(), 1, "questions for a key that is not known")
	d.clock.wait(keysPause)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { d.lets(t, next.sign(t, d.claims(nil))) })
	}
	wg.Wait()
	kit.Equal(t, d.house.asked.Load(), 2, "questions by many at once")
	d.refuses(t, old.sign(t, d.claims(nil))) // it is withdrawn
	d.house.publish(old, next)
	d.clock.wait(keysAge) // and loaded again after a while, in any case
	d.lets(t, next.sign(t, d.claims(nil)))
	d.lets(t, old.sign(t, d.claims(nil)))
	kit.Equal(t, d.house.asked.Load(), 3, "times asked")
}

func TestWhileTheIssuerIsDownItsLastKeysCount(t *testing.T) {
	d := newIssuerTest(t, nil)
	p, unknown := edPen(t, "1"), edPen(t, "2")
	d.house.publish(p)
	d.lets(t, p.sign(t, d.claims(nil)))
	for _, broken := range []func(){
		func() { d.house.down = true },
		func() { d.house.down, d.house.raw = false, "<html>" },
		func() { d.house.raw = `{"keys":[` + strings.Repeat(" ", keysSize) + `]}` },
		func() { d.house.raw = `{"keys":[` + strings.Repeat(`{},`, maxKeys) + `{}]}` },
		func() { d.house.raw = `{}` },
		func() { d.house.raw = `{"keys":[],"keys":[]}` },
	} {
		d.house.change(broken)
		d.clock.wait(keysAge)
		d.lets(t, p.sign(t, d.claims(nil)))
		d.refuses(t, unknown.sign(t, d.claims(nil)))
	}
	d.callers = d.made(t, func(o *Options) { o.Roles["more"] = Role{} }, d.callers) // a config that was read again
	d.lets(t, p.sign(t, d.claims(nil)))
	d.house.change(func() { d.house.raw = "" })
	d.house.publish(unknown)
	d.clock.wait(keysPause)
	d.lets(t, unknown.sign(t, d.claims(nil)))
}

func TestKeysComeFromDiscoveryOrAFile(t *testing.T) {
	p := edPen(t, "1")
	d := newIssuerTest(t, func(o *Options) { o.JWT[0].JWKS = "" })
	d.house.publish(p)
	d.lets(t, p.sign(t, d.claims(nil)))
	other := d.house.URL + "/other"
	d.callers = d.made(t, func(o *Options) { o.JWT[0].JWKS, o.JWT[0].Issuer = "", other }, nil)
	d.refuses(t, p.sign(t, d.claims(map[string]any{"iss": other}))) // its configuration is of another issuer
	d.callers = d.made(t, func(o *Options) { o.JWT[0].JWKS = d.house.URL + "/away" }, nil)
	d.refuses(t, p.sign(t, d.claims(nil))) // redirected to an address that an attacker could answer

	file := filepath.Join(t.TempDir(), "keys.json")
	b := kit.Must(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.public, KeyID: p.kid}}}))(t)
	kit.OK(t, os.WriteFile(file, b, 0o600))
	d.callers = d.made(t, func(o *Options) { o.JWT[0].JWKS = file }, nil)
	d.lets(t, p.sign(t, d.claims(nil)))
}

func TestNoTokenIsLogged(t *testing.T) {
	d := newIssuerTest(t, nil)
	r, o := rsaPen(t, "r"), edPen(t, "o")
	d.house.publish(r, o)
	var text strings.Builder
	d.callers.env.Log = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tokens := slices.Collect(maps.Values(d.bad(t, r, o)))
	for _, token := range append(tokens, "tp_"+strings.Repeat("x", 43), "a secret of mine", o.sign(t, d.claims(nil))) {
		_, _ = d.admit(t, token)
		for part := range strings.SplitSeq(token, ".") {
			if len(part) > 8 && strings.Contains(text.String(), part) {
				t.Errorf("%.40s is in the log", part)
			}
		}
	}
	kit.Contains(t, text.String(), "it has expired", "nobody could find out why")
}

func FuzzJWT(f *testing.F) {
	d := newIssuerTest(f, nil)
	r, o := rsaPen(f, "r"), edPen(f, "o")
	d.house.publish(r, o)
	for _, token := range d.bad(f, r, o) {
		if len(token) < 4096 {
			f.Add(token)
		}
	}
	f.Fuzz(func(t *testing.T, token string) {
		kit.Fails(t, kit.Err(d.admit(t, token)), "", "%q is let in", token)
	})
}

func FuzzKeys(f *testing.F) {
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: edPen(f, "a").public, KeyID: "a"}, {Key: rsaPen(f, "b").public}, {Key: edPen(f, "c").private}}})
	kit.OK(f, err)
	f.Add(b)
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AAAA"},{"kty":"RSA","n":"AQAB","e":"AQAB"},{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := parseKeys(b)
		if err != nil {
			return
		}
		for _, key := range keys {
			if !key.IsPublic() {
				t.Errorf("a key that is not public: %T", key.Key)
			}
		}
	})
}

// A name that an issuer can give cannot belong to a caller that is known in another way: they would have each other's
// sessions.
func TestNamesOfAnIssuerAreReserved(t *testing.T) {
	d := newIssuerTest(t, nil)
	p := edPen(t, "k")
	d.house.publish(p)
	d.lets(t, p.sign(t, d.claims(map[string]any{"sub": "alice"})))
	kit.Refused(t, kit.Err(d.callers.CheckToken("acme:alice", nil, tool.Patterns{"*"})), tool.CodeInvalidInput, "choose another name", "a token for a name of the issuer's")
	kit.Check(t, kit.Err(d.callers.CheckToken("acme", nil, tool.Patterns{"*"})), "a token for another name")
	b := &tokenStore{rows: map[string]Grant{digest(issuedToken(1)): {Caller: "acme:bob", Tools: tool.Patterns{"x"}}, digest(issuedToken(2)): {Caller: "acm", Tools: tool.Patterns{"x"}}}}
	c, err := New(Options{JWT: d.callers.o.JWT, Roles: d.callers.o.Roles}, Env{Tokens: b.find, now: d.clock.now})
	kit.OK(t, err)
	kit.Fails(t, kit.Err(c.Admit(t.Context(), Credentials{Token: issuedToken(1)})),
		"", "a token that was issued before there was the issuer lets in")
	kit.Equal(t, kit.Must(c.Admit(t.Context(), Credentials{Token: issuedToken(2)}))(t).ID, "acm")
	if c.Apart("acme:") == nil || c.Apart("local") != nil {
		t.Error("what is apart from the names of the issuer?")
	}
}

// If a config names callers and roles in one list, as for approvers, a caller with the name of a role would have that
// role.
func TestCallerCannotBearTheNameOfAnotherRole(t *testing.T) {
	d := newIssuerTest(t, func(o *Options) { o.JWT[0].Prefix, o.List = "", nil })
	p := edPen(t, "k")
	d.house.publish(p)
	d.refuses(t, p.sign(t, d.claims(map[string]any{"sub": "admin"})))
	d.lets(t, p.sign(t, d.claims(map[string]any{"sub": "admin", "groups": []string{"ops"}})))
	d.lets(t, p.sign(t, d.claims(map[string]any{"sub": "adm"})))
	b := &tokenStore{rows: map[string]Grant{
		digest(issuedToken(1)): {Caller: "admin", Roles: []string{"reader"}}, digest(issuedToken(2)): {Caller: "admin", Roles: []string{"admin"}},
	}}
	c := kit.Must(New(Options{Roles: d.callers.o.Roles}, Env{Tokens: b.find, now: d.clock.now}))(t)
	kit.Fails(t, kit.Err(c.Admit(t.Context(), Credentials{Token: issuedToken(1)})),
		"", "a token that was issued before there was the role lets in")
	kit.Equal(t, kit.Must(c.Admit(t.Context(), Credentials{Token: issuedToken(2)}))(t).ID, "admin")
	kit.Refused(t, kit.Err(c.CheckToken("admin", []string{"reader"}, nil)),
		tool.CodeInvalidInput, "", "a token for somebody who is called as a role")
}
