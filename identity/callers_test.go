package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// parsed parses the callers of a config, as a node does.
func parsed(t testing.TB, text string, env Env) (*Callers, error) {
	t.Helper()
	cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte(text)))(t)
	var o Options
	if err := cfg.Callers.Decode(&o); err != nil {
		return nil, err
	}
	return New(o, env)
}

func of(t testing.TB, text string, env Env) *Callers {
	t.Helper()
	return kit.Must(parsed(t, text, env))(t)
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// shown describes a caller: its name, its roles and its tools.
func shown(p tool.Principal, err error) string {
	switch {
	case err != nil:
		return "refused"
	case p.Rights == nil:
		return p.ID
	case p.Rights.Tools == nil:
		return fmt.Sprintf("%s %v *", p.ID, p.Roles())
	}
	return fmt.Sprintf("%s %v %s", p.ID, p.Roles(), p.Rights.Tools)
}

const people = `
callers:
  roles:
    reader: {tools: ["read*", "list*", files.grepCode]}
    shell: {tools: execShell}
    admin: {}
  list:
    ci: {roles: [reader, shell], tools: [writeFile], tokens: [%s], certificates: ["CN=ci,O=acme", "spiffe://acme/ci"]}
    alice: {roles: admin, certificates: [alice.acme.org, alice@acme.org]}
    carol: {tools: "*", tokens: [%s]}
`

func acme() string {
	return fmt.Sprintf(people, digest("a token of ci"), strings.ToUpper(digest("a token of carol")))
}

func TestACallerHasTheRightsOfItsRolesAndItsOwn(t *testing.T) {
	owner := kit.Must(StaticToken("the token of the owner"))(t)
	c := of(t, acme(), Env{Owner: owner})
	for token, want := range map[string]string{
		"a token of ci":          "ci [reader shell] writeFile, read*, list*, files.grepCode, execShell",
		"a token of carol":       "carol [] *",
		"the token of the owner": "owner",
		"a token of ci ":         "refused", digest("a token of ci"): "refused", "": "refused", "ci": "refused",
		"tp_" + strings.Repeat("x", 43): "refused",
	} {
		kit.Equal(t, shown(c.Admit(t.Context(), Credentials{Door: "http", Token: token})), want, token)
	}
	c = of(t, acme()+"  owner: false\n", Env{Owner: owner})
	if got := shown(c.Admit(t.Context(), Credentials{Token: "the token of the owner"})); got != "refused" || c.HasOwner() {
		t.Errorf("the owner, who should be nobody: %s", got)
	}
	kit.Equal(t, shown(of(t, "", Env{Owner: owner}).Admit(t.Context(), Credentials{Token: "the token of the owner"})),
		"owner", "without the section")
}

func TestInvalidCallersAreErrorsWithTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		`{list: {ci: {roles: [admin]}}}`:                                                     `"ci" has the role "admin", which callers.roles does not have; there are none`,
		`{roles: {a: {}}, list: {ci: {roles: b}}}`:                                           `there are a`,
		`{roles: {a: {tools: []}}}`:                                                          `"a" may use no tool`,
		`{roles: {a: {tool: x}}}`:                                                            `unknown field "tool"`,
		`{roles: {a: {tools: [""]}}}`:                                                        `a pattern is empty`,
		`{lists: {}}`:                                                                        `did you mean "list"?`,
		`{list: {ci: {}}}`:                                                                   `"ci" has neither roles nor tools`,
		`{list: {ci: }}`:                                                                     `"ci" has neither roles nor tools`,
		`{list: {ci: {roles: []}}}`:                                                          `roles is an empty list`,
		`{list: {ci: {tools: "*", tokens: []}}}`:                                             `tokens is an empty list`,
		`{list: {ci: {tools: "*", tokens: [hunter2]}}}`:                                      `a SHA-256 in 64 hexadecimal digits`,
		`{list: {ci: {tools: "*", tokens: [abcd]}}}`:                                         `a SHA-256 in 64 hexadecimal digits`,
		`{list: {ci: {tools: "*", certificates: [""]}}}`:                                     `empty name`,
		`{list: {ci: {tools: "*", users: ["no such user here"]}}}`:                           `this machine has no user "no such user here"`,
		`{list: {ci: {tools: "*", users: [-1]}}}`:                                            `this machine has no user`,
		`{list: {owner: {tools: "*"}}}`:                                                      `no caller can be called "owner"`,
		`{list: {local: {tools: "*", users: [0]}}}`:                                          `no caller can be called "local"`,
		`{list: {agent/Reader: {tools: "*"}}}`:                                               `no agent is called "agent/Reader": its name is in lower case`,
		`{list: {agent/~x: {tools: "*"}}}`:                                                   `no caller can be called "agent/~x"`,
		`{roles: {ops: {}, x: {}}, list: {ops: {roles: x}}}`:                                 `"ops" is the name of a role`,
		`{list: {"a\nb": {tools: "*"}}}`:                                                     `the name of a caller`,
		`{list: {a: {tools: x, users: [7]}, b: {tools: x, users: ["7"]}}}`:                   `"a" and "b" show the same`,
		`{list: {a: {tools: x, certificates: [z]}, b: {tools: x, certificates: [z]}}}`:       `"a" and "b" show the same`,
		`{jwt: [{audience: x}]}`:                                                             `an issuer has no name`,
		`{jwt: [{issuer: "https://i"}]}`:                                                     `has no audience`,
		`{jwt: [{issuer: "https://i", audience: [""]}]}`:                                     `has no audience`,
		`{jwt: [{issuer: "https://i", audience: x}]}`:                                        `they could use nothing`,
		`{jwt: [{issuer: "https://i", audience: x, roles: {always: a}}]}`:                    `has the role "a"`,
		`{jwt: [{issuer: "https://i", audience: x, roles: {claim: g, map: {ops: a}}}]}`:      `has the role "a"`,
		`{jwt: [{issuer: "https://i", audience: x, roles: {map: {ops: a}}}]}`:                `no claim to look up`,
		`{jwt: [{issuer: "https://i", audience: x, algorithms: []}]}`:                        `algorithms is an empty list`,
		`{jwt: [{issuer: "https://i", audience: x, algorithms: HS256}]}`:                     `signed with "HS256" are not taken`,
		`{jwt: [{issuer: "https://i", audience: x, algorithms: [RS256, none]}]}`:             `signed with "none" are not taken`,
		`{jwt: [{issuer: "http://id.example.org", audience: x}]}`:                            `over https, or over http from this machine`,
		`{jwt: [{issuer: "x", audience: x}]}`:                                                `is not a URL`,
		`{jwt: [{issuer: "x", audience: x, jwks: "http://10.0.0.1/keys"}]}`:                  `over https, or over http from this machine`,
		`{jwt: [{issuer: "x", audience: x, jwks: "http://localhost.example.org/keys"}]}`:     `over https, or over http from this machine`,
		`{jwt: [{issuer: "x", audience: x, jwks: "file:///keys"}]}`:                          `is not a URL`,
		`{roles: {r: {}}, jwt: [&i {issuer: "https://i", audience: x, roles: {always: r}}]}`: `anchor`,
		`{roles: {r: {}}, jwt: [{issuer: "https://i", audience: x, roles: {always: r}}, {issuer: "https://j", audience: x, roles: {always: r}}]}`:                             `give each a prefix of its own`,
		`{roles: {r: {}}, jwt: [{issuer: "https://i", prefix: "a", audience: x, roles: {always: r}}, {issuer: "https://j", prefix: "a:b", audience: x, roles: {always: r}}]}`: `one of the prefixes "a" and "a:b" begins with the other`,
		`{roles: {r: {}}, jwt: [{issuer: "https://i", prefix: "a:b", audience: x, roles: {always: r}}, {issuer: "https://j", prefix: "a", audience: x, roles: {always: r}}]}`: `could have the same names`,
		`{list: {a: {tools: x}}, jwt: [{issuer: x, audience: y, jwks: keys.json}, {issuer: "http://[::1]:80", prefix: "b:", audience: [y, z]}]}`:                              `give each a prefix of its own`,
		`{list: {ci: {tools: x, users: [0]}}, jwt: [{issuer: x, audience: y, jwks: keys.json}]}`:                                                                              `"ci" can also be a caller of the issuer x, whose prefix is ""`,
		`{list: {"a:ci": {tools: x, certificates: [CN=ci]}}, jwt: [{issuer: x, prefix: "a:", audience: y, jwks: keys.json}]}`:                                                 `the caller "a:ci" has tokens, certificates or users`,
		`{roles: {r: {}}, jwt: [{issuer: "https://i", audience: x, roles: {always: r}}, {issuer: "https://i", prefix: p, audience: x, roles: {always: r}}]}`:                  `is there twice`,
	} {
		cfg, err := config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte("callers: "+text))
		if err == nil {
			var o Options
			err = cfg.Callers.Decode(&o)
		}
		if tool.CodeOf(err) != tool.CodeInvalidInput || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), config.FileName+":1") {
			t.Errorf("%s:\n%v, want %q", text, err, want)
		}
	}
	for _, text := range []string{
		"", "{}", "{owner: true}", "{roles: {a: }}", `{list: {ci: {tools: [a, b], users: [0, "1"]}}}`,
		`{roles: {r: {}}, jwt: {}}`, `{list: {a: {tools: x}}, jwt: [{issuer: x, audience: y, jwks: "http://127.0.0.1:1/keys"}]}`,
		`{list: {a: {tools: x}}, jwt: [{issuer: x, prefix: "a:", audience: y, jwks: keys.json}, {issuer: "http://[::1]:80", prefix: "b:", audience: [y, z]}]}`,
		`{list: {"a:b": {tools: x}, ci: {tools: x, users: [0]}}, jwt: [{issuer: x, prefix: "a:", audience: y, jwks: keys.json}]}`,
	} {
		if _, err := parsed(t, "callers: "+text, Env{}); (err != nil) != strings.Contains(text, "jwt: {}") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// certificate returns a client's certificate, as a door passes it on after checking its signature.
func certificate(t testing.TB, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), Subject: pkix.Name{CommonName: "nobody"}}
	change(template)
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := kit.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	return kit.Must(x509.ParseCertificate(der))(t)
}

func TestCertificateIdentifiesItsCaller(t *testing.T) {
	c := of(t, acme(), Env{})
	service := kit.Must(url.Parse("spiffe://acme/ci"))(t)
	for _, x := range []struct {
		want   string
		change func(*x509.Certificate)
	}{
		{"ci", func(x *x509.Certificate) { x.Subject = pkix.Name{CommonName: "ci", Organization: []string{"acme"}} }},
		{"ci", func(x *x509.Certificate) { x.URIs = []*url.URL{service} }},
		{"alice", func(x *x509.Certificate) { x.DNSNames = []string{"other.acme.org", "alice.acme.org"} }},
		{"alice", func(x *x509.Certificate) { x.EmailAddresses = []string{"alice@acme.org"} }},
		{"refused", func(*x509.Certificate) {}},
		{"refused", func(x *x509.Certificate) { x.Subject = pkix.Name{CommonName: "ci"} }},
		{"refused", func(x *x509.Certificate) { x.Subject = pkix.Name{CommonName: "ci,O=acme"} }},
		{"refused", func(x *x509.Certificate) { x.Subject = pkix.Name{CommonName: "spiffe://acme/ci"} }},
		{"refused", func(x *x509.Certificate) { x.Subject = pkix.Name{CommonName: "alice.acme.org"} }},
		{"refused", func(x *x509.Certificate) { x.DNSNames = []string{"CN=ci,O=acme"} }},
		{"refused", func(x *x509.Certificate) { x.DNSNames = []string{"spiffe://acme/ci"} }},
		{"refused", func(x *x509.Certificate) { x.DNSNames = []string{"alice@acme.org"} }},
		{"refused", func(x *x509.Certificate) { x.EmailAddresses = []string{"CN=ci,O=acme"} }},
		{"refused", func(x *x509.Certificate) { x.EmailAddresses = []string{"alice.acme.org"} }},
		{"refused", func(x *x509.Certificate) { x.URIs = []*url.URL{{Path: "alice.acme.org"}} }},
		{"refused", func(x *x509.Certificate) { x.DNSNames = []string{"ALICE.acme.org", "alice.acme.org."} }},
	} {
		cert := certificate(t, x.change)
		p, err := c.Admit(t.Context(), Credentials{Door: "nats", Certificate: cert})
		if got, _, _ := strings.Cut(shown(p, err), " "); got != x.want || err == nil && (p.Rights == nil || p.Door != "nats") {
			t.Errorf("%v %v %v %v: %s", cert.Subject, cert.DNSNames, cert.EmailAddresses, cert.URIs, got)
		}
		if err != nil && tool.AsError(err).Reason != Reason {
			t.Error(err)
		}
		kit.Fails(t, kit.Err(c.Admit(t.Context(), Credentials{Certificate: cert, Token: "wrong"})),
			"", "a certificate made up for a wrong token")
	}
}

// An operator is recognised by its credentials, not by its id or door.
func TestOperatorIsKnownByItsCredentials(t *testing.T) {
	owner := kit.Must(StaticToken("the-owners-own-token"))(t)
	c := of(t, "callers: {list: {guest: {tools: x}, ada: {tools: x, tokens: ["+digest("adas-own-token-here")+"]}}}", Env{Owner: owner})
	for _, door := range []string{"cli", "http", "nats", "namel3ss", "unheard-of"} {
		for what, x := range map[string]struct {
			shown Credentials
			want  bool
		}{
			"the owner's token": {Credentials{Token: "the-owners-own-token"}, true},
			"our own user":      {Credentials{Peer: Self()}, true},
			"a caller's token":  {Credentials{Token: "adas-own-token-here"}, false},
			"nothing":           {Credentials{Anonymous: "guest"}, false},
		} {
			x.shown.Door = door
			if p, err := c.Admit(t.Context(), x.shown); err != nil || p.Operator() != x.want || p.Door != door {
				t.Errorf("%s at %s: %+v, %v", what, door, p, err)
			}
		}
		for _, id := range []string{Local, Owner} {
			if (tool.Principal{ID: id, Door: door}).Operator() {
				t.Errorf("whoever is called %s at %s is an operator", id, door)
			}
		}
	}
}

func TestAPeerIsTheUserOfItsProcess(t *testing.T) {
	me := uint32(os.Getuid())
	peer := func(c *Callers, uid uint32) string {
		return shown(c.Admit(t.Context(), Credentials{Door: "cli", Peer: &Peer{UID: uid}}))
	}
	c := of(t, acme(), Env{})
	kit.Equal(t, peer(c, me), "local", "who runs this program, where no users are named")
	kit.Equal(t, peer(c, me+1), "refused", "somebody else")
	names := fmt.Sprint(me)
	if u, err := user.Current(); err == nil {
		names = u.Username
	}
	c = of(t, fmt.Sprintf("callers: {list: {dora: {tools: 'read*', users: [%d, %q]}, emil: {tools: x, users: [%d]}}}", me, names, me+2), Env{})
	for uid, want := range map[uint32]string{me: "dora [] read*", me + 2: "emil [] x", me + 1: "refused"} {
		kit.Equal(t, peer(c, uid), want, "user %d", uid)
	}
	c = of(t, fmt.Sprintf("callers: {list: {emil: {tools: x, users: [%d]}}}", me+2), Env{})
	kit.Equal(t, peer(c, me), "refused", "who runs this program, where others are named")
	kit.Equal(t, shown(c.Admit(t.Context(), Credentials{})), "refused", "who shows nothing")
}

// tokenStore is a store of tokens.
type tokenStore struct {
	mu    sync.Mutex
	rows  map[string]Grant
	err   error
	asked int
}

func (s *tokenStore) find(_ context.Context, digest string) (Grant, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	g, ok := s.rows[digest]
	return g, ok, s.err
}

func (s *tokenStore) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func issuedToken(n int) string { return fmt.Sprintf("tp_%043d", n) }

func TestTokenNarrowsItsCallersRights(t *testing.T) {
	for _, x := range []struct {
		grant Grant
		want  string
	}{
		{Grant{Caller: "ci", Listed: true}, "ci [reader shell] writeFile, read*, list*, files.grepCode, execShell"},
		{Grant{Caller: "ci", Listed: true, Roles: []string{"reader"}}, "ci [reader] read*, list*, files.grepCode"},
		{Grant{Caller: "ci", Listed: true, Roles: []string{"admin"}}, "ci [] writeFile, read*, list*, files.grepCode, execShell"},
		{Grant{Caller: "ci", Listed: true, Tools: tool.Patterns{"readFile", "deleteFile", "list*"}}, "ci [reader shell] list*, readFile"},
		{Grant{Caller: "ci", Listed: true, Tools: tool.Patterns{"*"}}, "ci [reader shell] writeFile, read*, list*, files.grepCode, execShell"},
		{Grant{Caller: "ci", Listed: true, Tools: tool.Patterns{"deleteFile"}}, "refused"},
		{Grant{Caller: "ci", Listed: true, Tools: tool.Patterns{"*File"}}, "ci [reader shell] writeFile"},
		{Grant{Caller: "ci", Listed: false, Tools: tool.Patterns{"*"}}, "ci [reader shell] writeFile, read*, list*, files.grepCode, execShell"},
		{Grant{Caller: "alice", Listed: true, Tools: tool.Patterns{"readFile"}}, "alice [admin] readFile"},
		{Grant{Caller: "alice", Listed: true, Roles: []string{"reader"}}, "alice [] read*, list*, files.grepCode"},
		{Grant{Caller: "dan", Roles: []string{"reader"}, Tools: tool.Patterns{"x"}}, "dan [reader] x, read*, list*, files.grepCode"},
		{Grant{Caller: "dan", Roles: []string{"admin"}}, "dan [admin] *"},
		{Grant{Caller: "dan"}, "refused"},
		{Grant{Caller: "agent/~x", Roles: []string{"admin"}}, "refused"}, // agents that name themselves have such names
		{Grant{Caller: "dan", Roles: []string{"no longer there"}}, "refused"},
		{Grant{Caller: "dan", Listed: true, Roles: []string{"admin"}, Tools: tool.Patterns{"*"}}, "refused"}, // no longer listed
	} {
		b := &tokenStore{rows: map[string]Grant{digest(issuedToken(1)): x.grant}}
		c := of(t, acme(), Env{Tokens: b.find})
		kit.Equal(t, shown(c.Admit(t.Context(), Credentials{Token: issuedToken(1)})), x.want, x.grant)
		known, err := c.CheckToken(x.grant.Caller, x.grant.Roles, x.grant.Tools)
		if x.grant.Caller != "dan" && !tool.SelfNamed(x.grant.Caller) && (!known || (err == nil) != (x.want != "refused")) {
			t.Errorf("%+v would be issued: %v, %v", x.grant, known, err)
		}
	}
	c := of(t, acme(), Env{})
	for _, id := range []string{"", Owner, Local, "a\x00", "agent/~x"} {
		kit.Refused(t, kit.Err(c.CheckToken(id, nil, tool.Patterns{"*"})), tool.CodeInvalidInput, "", id)
	}
}

func TestRightsOfATokenAreNeverWider(t *testing.T) {
	patterns := tool.Patterns{"*", "read*", "*File", "read?", "readFile", "re*le", "r??d", "?", "a*", "files.*", "f*.read", "*.read", "*.files.read", "readfile", "read", "reads"}
	var refs []tool.Ref
	for _, name := range []string{"readFile", "read", "reads", "readX", "xFile", "File", "files.read", "rile", "reale", "a", "ad", "r.d", "road", ""} {
		refs = append(refs, tool.Ref{Source: "files", Name: name}, tool.Ref{Source: "x", Name: name})
	}
	for _, a := range patterns {
		for _, b := range patterns {
			left := common(tool.Patterns{a}, tool.Patterns{b})
			for _, ref := range refs {
				if left.Match(ref) && !(a.Match(ref) && b.Match(ref)) {
					t.Errorf("%q within %q is %v, which matches %v", a, b, left, ref)
				}
			}
			if a.Covers(b) {
				for _, ref := range refs {
					if b.Match(ref) && !a.Match(ref) {
						t.Errorf("%q is said to cover %q, but for %v", a, b, ref)
					}
				}
			}
		}
	}
}

func TestTokenCacheExpires(t *testing.T) {
	b, clock := &tokenStore{rows: map[string]Grant{digest(issuedToken(1)): {Caller: "dan", Tools: tool.Patterns{"x"}}}}, newClock()
	c := of(t, acme(), Env{Tokens: b.find, now: clock.now})
	admit := func(n int) string { return shown(c.Admit(t.Context(), Credentials{Token: issuedToken(n)})) }
	for range 10 {
		if a, b := admit(1), admit(2); a != "dan [] x" || b != "refused" {
			t.Errorf("%s, %s", a, b)
		}
	}
	kit.Equal(t, b.asked, 2, "questions to the store")
	b.change(func() {
		b.rows = map[string]Grant{digest(issuedToken(2)): {Caller: "eve", Tools: tool.Patterns{"y"}, Expires: clock.now().Add(time.Second)}}
	})
	clock.wait(fresh)
	if a, b := admit(1), admit(2); a != "refused" || b != "eve [] y" {
		t.Errorf("after a change: %s, %s", a, b)
	}
	clock.wait(time.Second - fresh - time.Millisecond)
	kit.Equal(t, admit(2), "eve [] y", "just before its end")
	clock.wait(time.Millisecond)
	kit.Equal(t, admit(2), "refused", "at its end")
	b.change(func() { b.err = tool.Errorf(tool.CodeUnavailable, "the store cannot read /srv/toolpost.db") })
	clock.wait(fresh)
	_, err := c.Admit(t.Context(), Credentials{Token: issuedToken(2)})
	if tool.CodeOf(err) != tool.CodeUnavailable || strings.Contains(err.Error(), "/srv/toolpost.db") {
		t.Errorf("without its store: %v", err)
	}
	if _, err := c.Admit(t.Context(), Credentials{Token: "a token of ci"}); err != nil {
		t.Errorf("one that the config lists, without the store: %v", err)
	}
}

func TestGuessedTokensDoNotFillTheCache(t *testing.T) {
	b := &tokenStore{rows: map[string]Grant{}}
	c := of(t, acme(), Env{Tokens: b.find})
	for n := range 3*maxCached + 10 {
		kit.MustEqual(t, shown(c.Admit(t.Context(), Credentials{Token: issuedToken(n)})), "refused")
	}
	if n := len(c.issued.unknown) + len(c.issued.known); n > 2*maxCached {
		t.Errorf("%d are remembered", n)
	}
	before := b.asked
	for _, token := range []string{"tp_", "tp_x", issuedToken(1) + "x", "xp_" + issuedToken(1)[3:], strings.Repeat("tp_", 1<<20)} {
		kit.Equal(t, shown(c.Admit(t.Context(), Credentials{Token: token})), "refused")
	}
	kit.Equal(t, b.asked, before, "the store was asked for what it cannot have")
}

func TestEveryRefusedTokenGetsTheSameError(t *testing.T) {
	b := &tokenStore{rows: map[string]Grant{digest(issuedToken(1)): {Caller: "dan"}, digest(issuedToken(2)): {Caller: "dan", Tools: tool.Patterns{"*"}, Expires: time.Now().Add(-time.Hour)}}}
	owner := kit.Must(StaticToken("the token of the owner"))(t)
	c := of(t, acme(), Env{Tokens: b.find, Owner: owner})
	for _, token := range []string{"", "wrong", issuedToken(1), issuedToken(2), issuedToken(3), "a.b.c", strings.Repeat("x", maxToken+1)} {
		_, err := c.Admit(t.Context(), Credentials{Token: token})
		var e *tool.Error
		if !errors.As(err, &e) || e.Message != tool.AsError(WrongToken()).Message || e.Reason != Reason || e.Code != tool.CodeAccessDenied {
			t.Errorf("%.20q: %v", token, err)
		}
	}
}

// A caller that an issuer could also name cannot be anonymous: the two would have each other's data.
func TestCallerOfAnIssuerCannotBeAnonymous(t *testing.T) {
	c := of(t, `{callers: {roles: {a: {tools: "*"}}, jwt: [{issuer: "https://i", audience: x, prefix: "acme:", roles: {always: a}}],
		list: {"acme:bob": {tools: "*"}, guest: {tools: "*"}}}}`, Env{})
	for name, want := range map[string]string{"guest": "guest [] *", "acme:bob": "refused", "nobody": "refused"} {
		kit.Equal(t, shown(c.Admit(t.Context(), Credentials{Door: "http", Anonymous: name})), want, name)
	}
}
