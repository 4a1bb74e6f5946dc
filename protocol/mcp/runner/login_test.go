package runner_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A guarded is a server that accepts only the newest token, and the authorization server that issues them. Each token
// is good for a number of requests.
type guarded struct {
	*httptest.Server
	good    int64
	given   atomic.Int64 // tokens
	uses    atomic.Int64 // of the newest
	refresh atomic.Int64
	noMore  atomic.Bool // refresh tokens are refused
	bad     atomic.Value
}

func newGuarded(t *testing.T, good int64) *guarded {
	g := &guarded{good: good}
	mux := http.NewServeMux()
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"resource": g.URL + "/mcp", "authorization_servers": []string{g.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize", "token_endpoint": g.URL + "/token",
			"registration_endpoint": g.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
			"response_types_supported": []string{"code"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		answer(w, map[string]any{"client_id": "c1", "client_secret": "cs", "token_endpoint_auth_method": "client_secret_post"})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?code=x&state="+q.Get("state"), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("resource") != g.URL+"/mcp" || r.FormValue("client_id") != "c1" {
			g.bad.Store(r.Form.Encode())
		}
		if r.FormValue("grant_type") == "refresh_token" {
			g.refresh.Add(1)
			if g.noMore.Load() {
				w.WriteHeader(http.StatusBadRequest)
				answer(w, map[string]string{"error": "invalid_grant"})
				return
			}
		}
		g.uses.Store(0)
		answer(w, map[string]any{
			"access_token": fmt.Sprint("token-", g.given.Add(1)), "refresh_token": "r", "token_type": "Bearer", "expires_in": 3600,
		})
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != fmt.Sprint("Bearer token-", g.given.Load()) || g.uses.Add(1) > g.good {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		result := map[string]any{"resultType": "complete"}
		switch m.Method {
		case "server/discover":
			result["supportedVersions"], result["capabilities"] = []string{"2026-07-28"}, map[string]any{"tools": map[string]any{}}
		case "tools/list":
			result["tools"] = []any{map[string]any{"name": "t", "inputSchema": map[string]any{"type": "object"}}}
		default:
			result["content"] = []any{map[string]any{"type": "text", "text": "in"}}
		}
		answer(w, map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	})
	return g
}

func TestLoginsAreKeptAndRenewed(t *testing.T) {
	tooltest.NoLeaks(t)
	defer http.DefaultClient.CloseIdleConnections()
	g := newGuarded(t, 4)
	src := sourceOf(t, t.TempDir(), fmt.Sprintf("url: %q", g.URL+"/mcp"), nil)
	var redactor secret.Redactor
	src.Redact = redactor.Add
	r := kit.Must(runner.Open(t.Context(), src, discard()))(t)
	defer r.Close(t.Context())
	if _, err := r.(tool.Source).Tools(t.Context()); err == nil || tool.AsError(err).Reason != runner.ReasonLogin ||
		!strings.Contains(err.Error(), "toolpost mcp login") {
		t.Fatalf("got %v", err)
	}
	login := func() {
		t.Helper()
		err := runner.Login(t.Context(), src, func(link string) {
			go func() {
				for _, one := range []string{strings.Replace(link, "state=", "state=x", 1), link} { // the first belongs to no login
					resp, err := http.Get(one)
					if err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				}
			}()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	login()
	info, err := os.Stat(runner.TokenFile(src))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the tokens lie in a file of mode %v, %v", info.Mode(), err)
	}
	for n := range 10 { // more than one token is good for
		res, err := r.Invoke(t.Context(), &tool.Call{Tool: "t"}, tool.Discard)
		if err != nil || string(res.Output) != `"in"` {
			t.Fatalf("call %d: %+v, %v", n, res, err)
		}
	}
	for n := range g.given.Load() {
		if text := fmt.Sprint("token-", n+1, " was sent"); redactor.String(text) == text {
			t.Errorf("%q is not redacted", text)
		}
	}
	if g.refresh.Load() < 2 || g.given.Load() != 1+g.refresh.Load() {
		t.Errorf("%d tokens were given, %d of them without a person", g.given.Load(), g.refresh.Load())
	}
	if bad := g.bad.Load(); bad != nil {
		t.Errorf("a request for a token does not say what for: %v", bad)
	}
	g.noMore.Store(true)
	var last error
	for range 6 {
		_, last = r.Invoke(t.Context(), &tool.Call{Tool: "t"}, tool.Discard)
	}
	if last == nil || tool.AsError(last).Reason != runner.ReasonLogin || strings.Contains(last.Error(), "token-") {
		t.Errorf("got %v", last)
	}
	login() // as another process does it; the open runner uses the new tokens
	kit.Check(t, kit.Err(r.Invoke(t.Context(), &tool.Call{Tool: "t"}, tool.Discard)), "after another login")
	// The tokens are for this server only.
	other := newGuarded(t, 4)
	other.given.Store(g.given.Load())
	moved := sourceOf(t, src.Dir, fmt.Sprintf("url: %q", other.URL+"/mcp"), nil)
	r2 := kit.Must(runner.Open(t.Context(), moved, discard()))(t)
	defer r2.Close(t.Context())
	if _, err := r2.(tool.Source).Tools(t.Context()); tool.AsError(err).Reason != runner.ReasonLogin {
		t.Errorf("another server gets our token: %v", err)
	}
}

// A login sends its secrets to the server of the config, and to no other that this one names.
func TestLoginSendsItsSecretsOnlyToTheConfiguredServer(t *testing.T) {
	tooltest.NoLeaks(t)
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "" || r.Method != http.MethodGet {
			stolen.Add(1)
		}
	}))
	defer thief.Close()
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	}))
	defer moved.Close()
	src := sourceOf(t, t.TempDir(), "url: '"+moved.URL+"', headers: {X-Key: 'k-${secret:KEY}'}", secretsOf{"KEY": "hush"})
	if err := runner.Login(t.Context(), src, func(string) { t.Error("it shows a link") }); err == nil || stolen.Load() > 0 {
		t.Errorf("%v, and the thief got %d requests", err, stolen.Load())
	}
}

// A client's secret is sent only to the authorization server at which it was registered, whichever one is named.
func TestASecretOfAClientIsForItsIssuerAlone(t *testing.T) {
	tooltest.NoLeaks(t)
	g := newGuarded(t, 4)
	for issuer, says := range map[string]string{"https://login.example.org": "issuer", g.URL: ""} {
		src := sourceOf(t, t.TempDir(), fmt.Sprintf("url: %q, oauth: {client_id: c1, client_secret: KEY, issuer: %q}", g.URL+"/mcp", issuer),
			secretsOf{"KEY": "hush"})
		err := runner.Login(t.Context(), src, func(link string) {
			go func() {
				if resp, err := g.Client().Get(link); err == nil {
					_ = resp.Body.Close()
				}
			}()
		})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", issuer, err)
		}
	}
	kit.Equal(t, g.given.Load(), 1, "tokens given")
}

func TestALoginWithoutRegistrationNamesTheOptionThatHelps(t *testing.T) {
	tooltest.NoLeaks(t)
	defer http.DefaultClient.CloseIdleConnections()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	src := sourceOf(t, t.TempDir(), fmt.Sprintf("url: %q", server.URL+"/mcp"), nil)
	err := runner.Login(t.Context(), src, func(link string) { t.Errorf("it leads to %s", link) })
	if err == nil || !strings.Contains(err.Error(), "`oauth: {client_id: ID}` of the source") ||
		!strings.Contains(err.Error(), "--header \"Authorization: Bearer TOKEN\"") {
		t.Errorf("got %v", err)
	}
}

// A config that wants bound tokens uses no others: neither those of an earlier login, nor what a server gives in their place.
func TestLoginWithoutBoundTokensIsRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	defer http.DefaultClient.CloseIdleConnections()
	g := newGuarded(t, 4)
	dir := t.TempDir()
	login := func(fields string) (config.Source, error) {
		src := sourceOf(t, dir, fmt.Sprintf("url: %q%s", g.URL+"/mcp", fields), nil)
		return src, runner.Login(t.Context(), src, func(link string) {
			go func() {
				if resp, err := http.Get(link); err == nil {
					_ = resp.Body.Close()
				}
			}()
		})
	}
	_, err := login("")
	kit.OK(t, err)
	src, err := login(", oauth: {dpop: true}")
	kit.Fails(t, err, `of type "Bearer", not DPoP`)
	r := kit.Must(runner.Open(t.Context(), src, discard()))(t)
	defer r.Close(t.Context())
	if _, err := r.(tool.Source).Tools(t.Context()); tool.AsError(err).Reason != runner.ReasonLogin {
		t.Errorf("tokens of the login before are used: %v", err)
	}
	_, err = login(", oauth: {grant: jwt_bearer, assertion: {file: token}}")
	kit.Fails(t, err, "needs no login")
}

// What a grant starts from is hidden from every tool.
func TestKeysOfAGrantAreOffLimits(t *testing.T) {
	src := sourceOf(t, "/etc/toolpost", "url: 'https://mcp.example.com/mcp', oauth: {client_id: us, grant: id_jag, key: {file: robot.pem}, "+
		"idp: {issuer: 'https://idp.example.com', client_id: desk, subject: {file: /run/id-token}}}", nil)
	claim := kit.Must(runner.Claim(src))(t)
	kit.EqualSlices(t, claim.Keeps[:2], []string{"/etc/toolpost/robot.pem", "/run/id-token"})
	both := sourceOf(t, "/etc/toolpost", "url: 'https://mcp.example.com/mcp', headers: {authorization: x}, "+
		"oauth: {grant: jwt_bearer, assertion: {file: t}}", nil)
	kit.Fails(t, kit.Err(runner.Claim(both)), "leave one out")
}
