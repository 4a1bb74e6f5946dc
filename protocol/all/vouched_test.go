package all_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/config"
	"toolpost/identity/oauth"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A company has an identity provider, and an MCP server with an authorization server that takes the provider's word for people.
type company struct {
	t          testing.TB
	mcp        *remoteServer
	idp, gives *httptest.Server
	front      *httptest.Server // of the MCP server: it wants a token

	mu    sync.Mutex
	asked []string // whose ID tokens were shown
}

func newCompany(t testing.TB) *company {
	t.Helper()
	c := &company{t: t, mcp: newRemoteServer(t)}
	provider := func(grant func(r *http.Request) map[string]any) *httptest.Server {
		var s *httptest.Server
		s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			said := map[string]any{"issuer": s.URL, "token_endpoint": s.URL + "/token"}
			if r.URL.Path == "/token" {
				_ = r.ParseForm()
				said = grant(r)
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(said)
		}))
		t.Cleanup(s.Close)
		return s
	}
	c.idp = provider(func(r *http.Request) map[string]any {
		id, _ := oauth.ReadJWT(r.Form.Get("subject_token"))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked = append(c.asked, id.Text("sub"))
		jag := c.jwt(oauth.TypeIDJAG, map[string]any{"iss": c.idp.URL, "sub": id.Text("sub"), "aud": r.Form.Get("audience")})
		return map[string]any{"access_token": jag, "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag", "token_type": "N_A"}
	})
	c.gives = provider(func(r *http.Request) map[string]any {
		jag, _ := oauth.ReadJWT(r.Form.Get("assertion"))
		return map[string]any{"access_token": "mcp-" + jag.Text("sub"), "token_type": "Bearer", "expires_in": 3600}
	})
	c.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Authorization")
		switch {
		case strings.Contains(r.URL.Path, "well-known"):
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"resource": c.front.URL + "/mcp", "authorization_servers": []string{c.gives.URL}})
		case said != "own" && !strings.HasPrefix(said, "Bearer mcp-"):
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("WWW-Authenticate", "Bearer resource_metadata="+c.front.URL+"/.well-known/oauth-protected-resource/mcp")
			w.WriteHeader(http.StatusUnauthorized)
		default:
			c.mcp.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(c.front.Close)
	return c
}

// jwt signs claims. Those who are asked check nothing of it in this test.
func (c *company) jwt(typ jose.ContentType, claims map[string]any) string {
	claims["exp"] = time.Now().Add(time.Hour).Unix()
	key := jose.SigningKey{Algorithm: jose.HS256, Key: make([]byte, 32)}
	return kit.Must(oauth.Sign(kit.Must(jose.NewSigner(key, (&jose.SignerOptions{}).WithType(typ)))(c.t), claims))(c.t)
}

func (c *company) open(fields string, hosts ...string) (tool.Runner, error) {
	text := fmt.Sprintf("sources: [{name: up, protocol: mcp, url: %q, headers: {Authorization: own}, oauth: {grant: id_jag, client_id: us, "+
		"idp: {issuer: %q, client_id: desk, connection: work}}%s}]", c.front.URL+"/mcp", c.idp.URL, fields)
	cfg := kit.Must(config.Parse(filepath.Join(c.t.TempDir(), "toolpost.yaml"), []byte(text)))(c.t)
	src := cfg.Sources[0]
	if len(src.Connections) > 0 {
		src.Credentials = []*tool.Credential{{Connection: "work", Hosts: hosts}}
	}
	return protocol(c.t, "mcp").OpenSource(c.t.Context(), src, slog.New(slog.DiscardHandler))
}

// call makes a call of a caller who has signed in as a person, and returns the hosts that got the ID token.
func (c *company) call(r tool.Runner, caller, person, n string) (used []string) {
	c.t.Helper()
	id := c.jwt("JWT", map[string]any{"iss": c.idp.URL, "aud": "desk", "sub": person})
	call := &tool.Call{Tool: "ask", Caller: tool.Principal{ID: caller}, Args: json.RawMessage(`{"n":"` + n + `"}`)}
	var mu sync.Mutex
	call.Credentials = []*tool.Credential{{
		Connection: "work", Value: func(context.Context) (string, error) { return id, nil },
		Used: func(host string) {
			mu.Lock()
			defer mu.Unlock()
			used = append(used, host)
		},
	}}
	kit.Must(r.Invoke(kit.Context(c.t), call, tool.Discard))(c.t)
	mu.Lock()
	defer mu.Unlock()
	return used
}

// The identity provider vouches for the person of each caller: each call has a token of that person, and the MCP server never gets an
// ID token.
func TestIdentityProviderVouchesForThePersonOfEachCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	c := newCompany(t)
	idp := c.idp.Listener.Addr().String()
	_, err := c.open("", idp)
	kit.Refused(t, err, tool.CodeInvalidInput, "idp.connection is not one of its connections")
	_, err = c.open(", connections: [work]", "api.example.com")
	kit.Refused(t, err, tool.CodeInvalidInput, "its connections send no key with POST to "+idp)
	r := kit.Must(c.open(", connections: [work]", idp))(t)
	defer func() { kit.OK(t, r.Close(kit.Context(t))) }()
	kit.Must(r.(tool.Source).Tools(t.Context()))(t)
	for n, who := range []struct{ caller, person string }{{"one", "ada"}, {"two", "bob"}, {"one", "ada"}, {"one", "eve"}} {
		used := c.call(r, who.caller, who.person, fmt.Sprint(n))
		kit.Equal(t, used[0], idp)
		c.mcp.mu.Lock()
		kit.Equal(t, c.mcp.calls[fmt.Sprint(n)], "mcp-"+who.person, "the last one has connected another account")
		c.mcp.mu.Unlock()
	}
	kit.EqualSlices(t, c.asked, []string{"ada", "bob", "eve"})
}
