package machine_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/config"
	"toolpost/identity/machine"
	"toolpost/identity/oauth"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A lab has a server that takes tokens, its authorization server, and an identity provider. Each answers as it should unless a
// test sets something else: "" removes a member.
type lab struct {
	t        *testing.T
	server   *httptest.Server // /mcp, and its metadata
	issuer   *httptest.Server
	idp      *httptest.Server
	key      *ecdsa.PrivateKey // signs all that the lab issues
	resource map[string]any    // members of the metadata about the server
	metadata map[string]any    // of both other servers
	answer   map[string]any    // of the issuer's token endpoint
	jag      map[string]any    // claims of the identity provider's assertion
	typ      string            // of it

	forPerson func(context.Context) (string, error) // Config.Person
	handle    http.HandlerFunc                      // in place of the issuer's token endpoint

	mu    sync.Mutex
	asked []url.Values // requests for tokens, at the issuer and at the identity provider
	auth  []string     // their header Authorization
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, key: kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t), typ: oauth.TypeIDJAG}
	l.server, l.issuer, l.idp = httptest.NewServer(nil), httptest.NewServer(nil), httptest.NewServer(nil)
	for _, s := range []*httptest.Server{l.server, l.issuer, l.idp} {
		t.Cleanup(s.Close)
	}
	l.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]any{"resource": l.server.URL + "/mcp", "authorization_servers": []string{l.issuer.URL}}, l.resource)
	})
	l.issuer.Config.Handler = l.provider(l.issuer, func(w http.ResponseWriter, r *http.Request) {
		if l.handle != nil {
			l.handle(w, r)
			return
		}
		reply(w, 200, map[string]any{"access_token": "opaque", "token_type": "Bearer", "expires_in": 3600}, l.answer)
	})
	l.idp.Config.Handler = l.provider(l.idp, func(w http.ResponseWriter, r *http.Request) {
		claims := map[string]any{
			"iss": l.idp.URL, "sub": "ada", "aud": r.Form.Get("audience"), "resource": r.Form.Get("resource"), "client_id": "us", "exp": in(time.Minute),
		}
		reply(w, 200, map[string]any{
			"access_token": l.jwt(l.typ, claims, l.jag), "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag", "token_type": "N_A",
		}, nil)
	})
	return l
}

// provider answers with the metadata of an authorization server, and notes requests for tokens.
func (l *lab) provider(s *httptest.Server, token http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/token" {
			reply(w, 200, map[string]any{"issuer": s.URL, "token_endpoint": s.URL + "/token"}, l.metadata)
			return
		}
		_ = r.ParseForm()
		l.mu.Lock()
		l.asked, l.auth = append(l.asked, r.PostForm), append(l.auth, r.Header.Get("Authorization"))
		l.mu.Unlock()
		token(w, r)
	}
}

// reply writes an object with some members replaced.
func reply(w http.ResponseWriter, status int, members, other map[string]any) {
	maps.Copy(members, other)
	maps.DeleteFunc(members, func(_ string, v any) bool { return v == "" })
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(members)
}

func in(d time.Duration) int64 { return time.Now().Add(d).Unix() }

// jwt signs claims, some of which are replaced.
func (l *lab) jwt(typ string, claims, other map[string]any) string {
	l.t.Helper()
	maps.Copy(claims, other)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == "" })
	opts := &jose.SignerOptions{}
	if typ != "" {
		opts = opts.WithType(jose.ContentType(typ))
	}
	signer := kit.Must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: l.key}, opts))(l.t)
	return kit.Must(oauth.Sign(signer, claims))(l.t)
}

// workload returns the token of a workload, for the issuer unless claims say something else.
func (l *lab) workload(other map[string]any) string {
	return l.jwt("", map[string]any{"iss": "https://cluster.example", "sub": "pod", "aud": l.issuer.URL, "exp": in(time.Minute)}, other)
}

// person returns the ID token of a person.
func (l *lab) person(other map[string]any) string {
	return l.jwt("JWT", map[string]any{"iss": l.idp.URL, "sub": "ada", "aud": "desk", "exp": in(time.Minute)}, other)
}

func (l *lab) pem() string {
	der := kit.Must(x509.MarshalPKCS8PrivateKey(l.key))(l.t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// secrets are the values of secrets by name.
type secrets map[string]string

func (s secrets) Secret(name string) (string, error) { return s[name], nil }

// options are a source's fields about tokens, as a config has them.
type options struct {
	ClientID     string   `yaml:"client_id"`
	ClientSecret string   `yaml:"client_secret"`
	Issuer       string   `yaml:"issuer"`
	Scopes       []string `yaml:"scopes"`
	DPoP         bool     `yaml:"dpop"`
	machine.Options
}

// open reads fields, in which IDP and ISSUER stand for the addresses, and returns the tokens that they describe.
func (l *lab) open(fields string, values secrets) (*machine.Tokens, error) {
	l.t.Helper()
	fields = strings.NewReplacer("IDP", l.idp.URL, "ISSUER", l.issuer.URL).Replace(fields)
	text := "sources:\n  - {name: up, protocol: mcp, " + fields + "}\n"
	cfg := kit.Must(config.Parse(filepath.Join(l.t.TempDir(), config.FileName), []byte(text)))(l.t)
	src := cfg.Sources[0]
	src.Secrets = values
	var o options
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	client := machine.Client{ID: o.ClientID, Secret: o.ClientSecret, Issuer: o.Issuer, Scopes: o.Scopes, Bound: o.DPoP}
	if err := o.Options.Check(client); err != nil {
		return nil, err
	}
	return machine.New(machine.Config{
		Options: o.Options, Client: client, Source: src, Server: l.server.URL + "/mcp", Shown: "the server", Person: l.forPerson,
	})
}

// refusal is an answer of the server to a request without a good token.
func refusal(status int, challenge string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Www-Authenticate": {challenge}}, Body: http.NoBody}
}

// first returns the first token of a config.
func (l *lab) first(fields string, values secrets) (oauth.Access, error) {
	l.t.Helper()
	tokens, err := l.open(fields, values)
	kit.OK(l.t, err)
	none, err := tokens.Token(l.t.Context())
	if err != nil || none != (oauth.Access{}) {
		l.t.Fatalf("there is a token before the server has said where it comes from: %v", err)
	}
	return tokens.Replace(l.t.Context(), none, refusal(http.StatusUnauthorized, "Bearer"))
}

// refused checks that there is no token, for a reason that shows no secret, after some requests for tokens.
func (l *lab) refused(fields string, values secrets, says string, requests int) {
	l.t.Helper()
	got, err := l.first(fields, values)
	kit.Fails(l.t, err, says)
	kit.Equal(l.t, got, oauth.Access{})
	l.mu.Lock()
	defer l.mu.Unlock()
	kit.Equal(l.t, len(l.asked), requests, "requests for tokens")
	for name, value := range values {
		if strings.Contains(tool.AsError(err).Error(), value) {
			l.t.Errorf("the error shows %s: %v", name, err)
		}
	}
}
