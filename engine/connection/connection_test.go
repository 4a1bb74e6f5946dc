package connection_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/ask"
	"toolpost/engine/connection"
	"toolpost/host/secret"
	"toolpost/identity/oauth"
	"toolpost/internal/connectiontest"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
)

// A provider grants tokens that last for a while, and each refresh token once.
type provider struct {
	*httptest.Server
	lasts    int
	mu       sync.Mutex
	granted  int
	alive    map[string]string // the refresh tokens that are good, and whose each is
	renewals map[string]int    // by person
	newest   map[string]string // the access tokens, by person
	grace    bool              // a refresh token that was used is good for others, too
	away     func() bool       // called for each request of a token; if it says so, the request is not answered
	revoked  []string
	issuer   string // that it says it is; empty means its address
	nameless bool   // its answers do not say who gives them
	fails    atomic.Bool
	asked    atomic.Int32 // for tokens
	pending  atomic.Int32 // how often a device is to ask again
	during   func()       // called while a token is renewed
	refuses  string       // the error that it answers, with a status
	status   int
}

func newProvider(t *testing.T, lasts int) *provider {
	p := &provider{lasts: lasts, alive: map[string]string{}, renewals: map[string]int{}, newest: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": p.named(), "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"device_authorization_endpoint": p.URL + "/device", "revocation_endpoint": p.URL + "/revoke", "registration_endpoint": p.URL + "/register",
			"authorization_response_iss_parameter_supported": !p.nameless,
		})
	})
	mux.HandleFunc("/token", p.token)
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), `"urn:ietf:params:oauth:grant-type:device_code"`) {
			t.Errorf("a client was registered that is not for devices: %s", body)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{"client_id": "registered"}`)
	})
	mux.HandleFunc("/device", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("client_id") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"error": "invalid_client"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"device_code": "dev", "user_code": "ABCD", "verification_uri": "%s/go", "expires_in": 60, "interval": 1}`, p.URL)
	})
	mux.HandleFunc("/revoke", func(_ http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.revoked = append(p.revoked, r.FormValue("token"))
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) named() string {
	if p.issuer != "" {
		return p.issuer
	}
	return p.URL
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.asked.Add(1)
	if p.fails.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	p.mu.Lock()
	away := p.away
	p.mu.Unlock()
	if away != nil && away() {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	if p.refuses != "" {
		defer p.mu.Unlock()
		w.WriteHeader(p.status)
		_, _ = fmt.Fprintf(w, `{"error": %q}`, p.refuses)
		return
	}
	who := "machine"
	_, _, basic := r.BasicAuth()
	switch r.FormValue("grant_type") {
	case "authorization_code":
		who = strings.TrimPrefix(r.FormValue("code"), "code-")
		if r.FormValue("code_verifier") == "" {
			who = ""
		}
	case "refresh_token":
		who = p.alive[r.FormValue("refresh_token")]
		if !p.grace {
			delete(p.alive, r.FormValue("refresh_token"))
		}
		p.renewals[who]++
	case "urn:ietf:params:oauth:grant-type:device_code":
		if who = "device"; p.pending.Add(-1) >= 0 {
			p.mu.Unlock()
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, `{"error": "authorization_pending"}`)
			return
		}
	}
	if r.FormValue("client_id") == "" && !basic {
		who = ""
	}
	if who == "" {
		p.mu.Unlock()
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error": "invalid_grant", "error_description": %q}`, r.Form.Encode())
		return
	}
	p.granted++
	refresh := fmt.Sprintf("refresh-%s-%d", who, p.granted)
	p.alive[refresh], p.newest[who] = who, fmt.Sprintf("access-%s-%d", who, p.granted)
	answer := fmt.Sprintf(`{"access_token": %q, "refresh_token": %q, "expires_in": %d, "token_type": "Bearer"}`,
		p.newest[who], refresh, p.lasts)
	during := p.during
	p.mu.Unlock()
	if during != nil {
		during()
	}
	_, _ = fmt.Fprint(w, answer)
}

func (p *provider) refuse(code string, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses, p.status = code, status
}

func (p *provider) count(who string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewals[who]
}

// A program is one that shares a store with others.
type program struct {
	*connection.Connections
	redactor secret.Redactor
	needs    []string // the connections of the source issues
}

func key(text string) *secret.Keyed {
	return secret.NewKeyed(func() ([]byte, error) { return []byte(text), nil })
}

// started returns a program with a config; console is the address of its console, or "".
func started(t *testing.T, s connection.Store, seal, console, text string) *program {
	t.Helper()
	p := &program{}
	p.Connections = connection.New(connection.Env{
		Store: s, Keys: key(seal), Marks: ask.NewMemory(), Redactor: &p.redactor, Console: func() string { return console }, Log: slog.New(slog.DiscardHandler),
		Shared: func(p tool.Principal) bool { return p.ID == "guest" },
	})
	path := filepath.Join(t.TempDir(), "toolpost.yaml")
	kit.OK(t, os.WriteFile(path, []byte(text), 0o600))
	cfg := kit.Must(config.Load(path))(t)
	kit.Must(p.Read(cfg))(t)()
	p.needs = cfg.Sources[0].Connections
	t.Cleanup(p.Close)
	return p
}

func oauthConfig(p *provider, more string) string {
	return fmt.Sprintf("connections: [{name: git, issuer: %q, %s hosts: [api.example]}]\n"+
		"sources: [{name: issues, protocol: mcp, command: [x], connections: [git]}]\n", p.URL, more)
}

const pastedConfig = `
connections: [{name: api, key: pasted, hosts: [api.example], env: API_KEY}]
sources: [{name: issues, protocol: mcp, command: [x], connections: [api]}, {name: other, protocol: mcp, command: [x]}]
`

func caller(id string) tool.Principal { return tool.Principal{ID: id, Door: "http"} }

// paste keeps a key.
func (p *program) paste(t *testing.T, who tool.Principal, b connection.Begin, key string) error {
	_, err := p.Paste(t.Context(), who, b, key)
	return err
}

// connect lets a caller agree.
func (p *program) connect(t *testing.T, who string) {
	t.Helper()
	begun := kit.Must(p.Start(t.Context(), caller(who), connection.Begin{Name: "git", Redirect: "http://127.0.0.1:1/callback"}))(t)
	issuer := kit.Must(url.Parse(begun.URL))(t)
	_, done, err := p.Finish(t.Context(), caller(who), connection.End{
		State: begun.State, Code: "code-" + who, Issuer: issuer.Scheme + "://" + issuer.Host,
	})
	kit.OK(t, err)
	kit.Equal(t, done, true)
}

// call runs a call of the tool of a source; its outcome is the values of its credentials.
func (p *program) call(t *testing.T, c tool.Call) (*tool.Result, error) {
	t.Helper()
	if c.Spec == nil {
		c.Spec = &tool.Spec{Name: "list", Source: "issues", Connections: p.needs}
	}
	c.Tool, c.Memo = c.Spec.Name, &tool.Memo{Secrets: new(secret.Redactor)}
	h := tool.Handler(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		text := "no credentials"
		for _, one := range c.Credentials {
			value, err := one.Value(ctx)
			if err != nil {
				return nil, err
			}
			one.Used("api.example")
			text = value
		}
		return &tool.Result{OK: true, Summary: text}, nil
	}))
	if m := p.For(c.Spec); m != nil {
		h = m(h)
	}
	return h.Invoke(t.Context(), &c, tool.Discard)
}

func (p *program) value(t *testing.T, who string) string {
	t.Helper()
	r, err := p.call(t, tool.Call{Caller: caller(who)})
	kit.OK(t, err)
	return r.Summary
}

// A node says itself what its tools use. It gets what the config of the hub lends to it, and nothing else.
func TestToolOfAnotherNodeGetsOnlyWhatIsLentToItsSource(t *testing.T) {
	p := newProvider(t, 3600)
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c, remote: [far],"))
	one.connect(t, "ada")
	spec := tool.Spec{Name: "list", Source: "near", Connections: []string{"git"}, Elsewhere: tool.Elsewhere{Digest: "d"}}
	run := func(spec tool.Spec) error {
		return kit.Err(one.call(t, tool.Call{Caller: caller("ada"), Notes: tool.Notes{}, Tool: spec.Name, Spec: &spec}))
	}
	kit.Refused(t, run(spec), tool.CodeAccessDenied, "`remote: [near]`")
	spec.Connections = []string{"git", "other"}
	spec.Source = "far"
	kit.Refused(t, run(spec), tool.CodeAccessDenied, "other, which the config of this node does not have")
	spec.Connections = []string{"git"}
	kit.OK(t, run(spec))
}

// The node of a tool uses the keys that the hub has sent with the call, for the hosts that both name, and no others.
func TestCallOfAHubUsesTheKeysThatItBrings(t *testing.T) {
	one := started(t, new(store.Connections), "k", "", pastedConfig)
	kit.OK(t, one.paste(t, caller("ada"), connection.Begin{Name: "api"}, "key-of-this-node"))
	call := func(keys ...*tool.Credential) (*tool.Record, error) {
		c := tool.Call{Caller: caller("ada"), FromHub: true, Notes: tool.Notes{Record: &tool.Record{}, Credentials: keys}}
		r, err := one.call(t, c)
		if err == nil {
			kit.Equal(t, r.Summary, "key-of-the-hub")
		}
		return c.Record, err
	}
	key := &tool.Credential{
		Connection: "api", Hosts: []string{"api.example"}, Value: func(context.Context) (string, error) { return "key-of-the-hub", nil },
	}
	kit.EqualSlices(t, kit.Must(call(key))(t).Connections, []string{"api api.example"})
	wider := *key
	wider.Hosts = []string{"*.example"}
	other := *key
	other.Connection = "git"
	for want, keys := range map[string][]*tool.Credential{
		"which its hub has not sent": {&other}, "other hosts, methods or paths": {&wider}, "api, which its hub": nil,
	} {
		_, err := call(keys...)
		kit.Refused(t, err, tool.CodeAccessDenied, want)
		kit.Equal(t, tool.NotRun(err), true)
	}
}

func TestConnectionGivesEachCallerItsOwnValue(t *testing.T) {
	p := newProvider(t, 3600)
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c,"))
	one.connect(t, "ada")
	one.connect(t, "bob")
	kit.Equal(t, one.value(t, "ada"), "access-ada-1")
	kit.Equal(t, one.value(t, "bob"), "access-bob-2")
	kit.Equal(t, one.redactor.Idle(), true, "what a caller chooses is hidden in its own calls alone")
	var noted tool.Record
	_, err := one.call(t, tool.Call{Caller: caller("ada"), Notes: tool.Notes{Record: &noted}})
	kit.OK(t, err)
	kit.Equal(t, strings.Join(noted.Connections, ";"), "git api.example")
	if one.For(&tool.Spec{Name: "x", Source: "other"}) != nil {
		t.Error("a source without connections has the stage")
	}
}

func TestCallWithoutConnectionAsksItsCaller(t *testing.T) {
	p := newProvider(t, 3600)
	one := started(t, new(store.Connections), "k", "http://127.0.0.1:8700", oauthConfig(p, "client_id: c,"))
	r, err := one.call(t, tool.Call{Caller: caller("ada")})
	kit.OK(t, err)
	if r.Ask == nil || r.Ask.Kind != tool.AskConnection || len(r.Ask.Needs) != 1 || !strings.Contains(r.Ask.Message, "connections add git") {
		t.Fatalf("%+v", r.Ask)
	}
	var params struct{ URL string }
	kit.OK(t, json.Unmarshal(r.Ask.Needs[0].Params, &params))
	_, query, _ := strings.Cut(params.URL, "#/connections?")
	link := kit.Must(url.ParseQuery(query))(t).Get("link")
	_, err = one.Start(t.Context(), caller("eve"), connection.Begin{Link: link, Redirect: "http://127.0.0.1:1/callback"})
	kit.Refused(t, err, tool.CodeAccessDenied, "for another caller")
	begun := kit.Must(one.Start(t.Context(), caller("ada"), connection.Begin{Link: link, Redirect: "http://127.0.0.1:1/callback"}))(t)
	kit.Equal(t, begun.Name, "git")

	// The same call goes on when the caller has agreed.
	went := make(chan string, 1)
	go func() {
		c := tool.Call{Caller: caller("ada"), Resume: r.Ask.ID, Answers: json.RawMessage(`{"git":{"action":"accept"}}`)}
		if r, err := one.call(t, c); err == nil {
			went <- r.Summary
		}
	}()
	one.connect(t, "ada")
	kit.Equal(t, kit.Receive(t, "the outcome", went), "access-ada-1")
}

// A command on the machine is the caller local's: the advice for another caller must not connect local.
func TestAdvisedCommandConnectsTheCallerThatLacksIt(t *testing.T) {
	for who, want := range map[string]string{
		"local": "`toolpost connections add api --key-stdin`", "agent/x": "`toolpost connections add api --key-stdin --caller agent/x`",
		"ada": "`toolpost connections add api --key-stdin --server http://h:1 --token TOKEN`",
	} {
		one := started(t, new(store.Connections), "k", "http://h:1", pastedConfig)
		kit.Contains(t, kit.Must(one.call(t, tool.Call{Caller: caller(who)}))(t).Ask.Message, want, who)
		kit.Contains(t, kit.Err(one.call(t, tool.Call{Caller: caller(who), Background: true})).Error(), want, who)
		_, err := one.Start(t.Context(), caller(who), connection.Begin{Name: "api"})
		kit.Contains(t, err.Error(), want, who)
	}
}

func TestFewCallsOfACallerWait(t *testing.T) {
	p := newProvider(t, 3600)
	one := started(t, new(store.Connections), "k", "http://127.0.0.1:8700", oauthConfig(p, "client_id: c,"))
	const calls, wait = 50, 8
	ended := make(chan string, calls)
	for range calls {
		go func() {
			r, err := one.call(t, tool.Call{Caller: caller("ada"), Resume: "con_x"})
			switch {
			case err != nil:
				ended <- err.Error()
			case r.Ask != nil:
				ended <- "asked"
			default:
				ended <- r.Summary
			}
		}()
	}
	for range calls - wait {
		kit.Equal(t, kit.Receive(t, "a call beyond those that wait", ended), "asked")
	}
	one.connect(t, "ada")
	for range wait {
		kit.Equal(t, kit.Receive(t, "a call that waited", ended), "access-ada-1")
	}
	kit.Equal(t, one.Waiting(), 0, "callers whose calls wait")
}

func TestDeclinedOrUnseenLinkEndsTheCall(t *testing.T) {
	p := newProvider(t, 3600)
	one := started(t, new(store.Connections), "k", "http://127.0.0.1:8700", oauthConfig(p, "client_id: c,"))
	r := kit.Must(one.call(t, tool.Call{Caller: caller("ada")}))(t)
	again := tool.Call{Caller: caller("ada"), Resume: r.Ask.ID, Answers: json.RawMessage(`{"git":{"action":"decline"}}`)}
	kit.Refused(t, kit.Err(one.call(t, again)), tool.CodeCancelled, "declined")
	again.Answers = json.RawMessage(`{"git":{"error":{"code":-1}}}`)
	kit.Refused(t, kit.Err(one.call(t, again)), tool.CodeAccessDenied, "cannot show a link")
	for name, c := range map[string]tool.Call{
		"a job": {Background: true}, "a plan": {Parent: "p"}, "an answer to the tool": {Resume: "question"},
	} {
		c.Caller = caller("ada")
		err := kit.Err(one.call(t, c))
		if e := tool.AsError(err); e == nil || e.Reason != connection.Missing || !tool.NotRun(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSharedCallersHaveNoConnections(t *testing.T) {
	one := started(t, new(store.Connections), "k", "", pastedConfig)
	for _, who := range []string{"guest", tool.SelfPrefix + "claude", ""} {
		kit.Equal(t, tool.AsError(kit.Err(one.call(t, tool.Call{Caller: caller(who)}))).Reason, connection.SharedName)
		kit.Refused(t, one.paste(t, caller(who), connection.Begin{Name: "api"}, "canary-key"), tool.CodeAccessDenied, "")
	}
	operator := tool.Principal{ID: "local", Operates: true}
	kit.Refused(t, one.paste(t, caller("ada"), connection.Begin{Name: "api", Caller: "agent/claude"}, "canary-key"), tool.CodeAccessDenied, "only operators")
	kit.Refused(t, one.paste(t, operator, connection.Begin{Name: "api", Caller: "ada"}, "canary-key"), tool.CodeAccessDenied, "only for agents")
	kit.Refused(t, one.paste(t, operator, connection.Begin{Name: "api", Caller: tool.SelfPrefix + "x"}, "canary-key"), tool.CodeAccessDenied, "calls itself")
	kit.OK(t, one.paste(t, operator, connection.Begin{Name: "api", Caller: "agent/claude"}, "canary-key"))
	kit.Equal(t, one.value(t, "agent/claude"), "canary-key")
	for _, bad := range []string{"short", "two\nlines-of-key", " space-before"} {
		kit.Refused(t, one.paste(t, caller("ada"), connection.Begin{Name: "api"}, bad), tool.CodeInvalidInput, "in one line")
	}
}

func TestRowOfAnotherCallerDoesNotOpen(t *testing.T) {
	rows := new(store.Connections)
	one := started(t, rows, "k", "", pastedConfig)
	kit.OK(t, one.paste(t, caller("ada"), connection.Begin{Name: "api"}, "canary-key"))
	r := kit.Must(rows.Find(t.Context(), "ada", "api"))(t)
	if strings.Contains(string(r.Sealed), "canary") {
		t.Error("the row is not sealed")
	}
	r.Caller = "eve"
	kit.Must(rows.Put(t.Context(), r))(t)
	kit.Refused(t, kit.Err(one.call(t, tool.Call{Caller: caller("eve")})), tool.CodeAccessDenied, "connect again")
	lost := started(t, rows, "another", "", pastedConfig)
	kit.Refused(t, kit.Err(lost.call(t, tool.Call{Caller: caller("ada")})), tool.CodeAccessDenied, "sealed with another key")
	kit.OK(t, lost.paste(t, caller("ada"), connection.Begin{Name: "api"}, "another-key"))
	kit.Equal(t, lost.value(t, "ada"), "another-key")
}

func TestTokensAreNotForAnotherProvider(t *testing.T) {
	was, is, rows := newProvider(t, 60), newProvider(t, 60), new(store.Connections)
	one := started(t, rows, "k", "", oauthConfig(was, "client_id: c,"))
	one.connect(t, "ada")
	begun := kit.Must(one.Start(t.Context(), caller("ada"), connection.Begin{Name: "git", Redirect: returnTo}))(t)
	for name, text := range map[string]string{
		"issuer": oauthConfig(is, "client_id: c,"), "client": oauthConfig(was, "client_id: d,"),
		"token endpoint": oauthConfig(was, fmt.Sprintf("client_id: c, authorize: %q, token: %q,", was.URL+"/authorize", is.URL+"/token")),
	} {
		t.Run(name, func(t *testing.T) {
			two := started(t, rows, "k", "", text)
			kit.Refused(t, kit.Err(two.call(t, tool.Call{Caller: caller("ada")})), tool.CodeAccessDenied, "not connected yet")
			two.At(func() time.Time { return time.Now().Add(90 * time.Second) })
			kit.Refused(t, kit.Err(two.call(t, tool.Call{Caller: caller("ada")})), tool.CodeAccessDenied, "not connected yet")
			kit.Equal(t, kit.Must(two.List(t.Context(), "ada", true))(t)[0].State, connection.NotConnected)
			kit.Equal(t, kit.Must(two.All(t.Context()))(t)[0].State, connection.NotConnected)
			_, _, err := two.Finish(t.Context(), caller("ada"), connection.End{State: begun.State, Code: "code-ada", Issuer: was.URL})
			kit.Refused(t, err, tool.CodeConflict, "begin again")
		})
	}
	kit.Equal(t, one.value(t, "ada"), "access-ada-1")
	two := started(t, rows, "k", "", oauthConfig(is, "client_id: c,"))
	why, err := two.Remove(t.Context(), "ada", "git")
	kit.OK(t, err)
	kit.Refused(t, why, tool.CodeUnsupported, "revoke it there")
	kit.Equal(t, is.count("")+is.granted+len(is.revoked), 0, "requests with tokens of the other provider")
}

func TestPastedKeyIsNotForOtherHosts(t *testing.T) {
	rows := new(store.Connections)
	one := started(t, rows, "k", "", strings.Replace(pastedConfig, "[api.example]", "[api.example, b.example]", 1))
	kit.OK(t, one.paste(t, caller("ada"), connection.Begin{Name: "api"}, "canary-key"))
	turned := started(t, rows, "k", "", strings.Replace(pastedConfig, "[api.example]", "[b.example, api.example]", 1))
	kit.Equal(t, turned.value(t, "ada"), "canary-key")
	other := started(t, rows, "k", "", strings.Replace(pastedConfig, "[api.example]", "[api.example, c.example]", 1))
	kit.Refused(t, kit.Err(other.call(t, tool.Call{Caller: caller("ada")})), tool.CodeAccessDenied, "not given yet")
}

func TestTokenOfEachCallerIsRenewedOnce(t *testing.T) {
	p, rows := newProvider(t, 2), new(store.Connections)
	text := oauthConfig(p, "client_id: c,")
	programs := []*program{started(t, rows, "k", "", text), started(t, rows, "k", "", text)}
	const callers, each = 64, 4
	for i := range callers {
		programs[0].connect(t, fmt.Sprint("caller", i))
	}
	p.during = func() { time.Sleep(5 * time.Millisecond) } // time for another program to do the same
	p.mu.Lock()
	p.lasts = 3600
	p.mu.Unlock()
	kit.Eventually(t, "the token has expired", func() bool { // all of them have expired
		r := kit.Must(rows.Find(t.Context(), fmt.Sprint("caller", callers-1), "git"))(t)
		return time.Now().After(r.Expires)
	})
	var wg sync.WaitGroup
	for i := range callers * each {
		who := fmt.Sprint("caller", i%callers)
		wg.Go(func() {
			r, err := programs[i/callers%2].call(t, tool.Call{Caller: caller(who)})
			if err != nil || !strings.HasPrefix(r.Summary, "access-"+who+"-") {
				t.Errorf("%s: %v, %v", who, r, err)
			}
		})
	}
	wg.Wait()
	for i := range callers {
		kit.Equal(t, p.count(fmt.Sprint("caller", i)), 1, "renewals of a caller")
	}
}

func TestRefreshTokenIsStoredBeforeItsAccessTokenIsUsed(t *testing.T) {
	p, rows := newProvider(t, 1), &failing{Store: new(store.Connections)}
	one := started(t, rows, "k", "", oauthConfig(p, "client_id: c,"))
	one.connect(t, "ada")
	kit.Eventually(t, "the token has expired", func() bool { return time.Now().After(kit.Must(rows.Find(t.Context(), "ada", "git"))(t).Expires) })
	p.during = func() { rows.fails.Store(2) } // the next writes fail
	p.mu.Lock()
	p.lasts = 3600
	p.mu.Unlock()
	kit.Equal(t, one.value(t, "ada"), "access-ada-2")
	kit.Equal(t, rows.fails.Load(), int32(0), "failures that were not waited for")
	again := started(t, rows, "k", "", oauthConfig(p, "client_id: c,")) // the refresh token that it kept is the current one
	kit.Equal(t, again.value(t, "ada"), "access-ada-2")
	kit.Equal(t, p.count("ada"), 1)
}

// failing is a store that fails a few times.
type failing struct {
	connection.Store
	fails atomic.Int32
}

func (f *failing) Put(ctx context.Context, r connection.Row) (bool, error) {
	if f.fails.Load() > 0 {
		f.fails.Add(-1)
		return false, tool.Errorf(tool.CodeUnavailable, "the store is away")
	}
	return f.Store.Put(ctx, r)
}

func TestRefusedRefreshAsksToConnectAgain(t *testing.T) {
	p, rows := newProvider(t, 1), new(store.Connections)
	one := started(t, rows, "k", "", oauthConfig(p, "client_id: c,"))
	one.connect(t, "ada")
	p.mu.Lock()
	p.alive = map[string]string{} // as after a renewal whose answer was lost with a program that was killed
	p.mu.Unlock()
	kit.Eventually(t, "the token has expired", func() bool { return time.Now().After(kit.Must(rows.Find(t.Context(), "ada", "git"))(t).Expires) })
	err := kit.Err(one.call(t, tool.Call{Caller: caller("ada")}))
	kit.Refused(t, err, tool.CodeAccessDenied, "no longer accepts ada's connection git; connect again: run `toolpost connections add git --server URL --token TOKEN`")
	if strings.Contains(err.Error(), "refresh-ada") {
		t.Errorf("the error has what was sent: %v", err)
	}
	kit.Equal(t, kit.Must(one.List(t.Context(), "ada", true))(t)[0].State, connection.Lost)
	one.connect(t, "ada")
	kit.Equal(t, one.value(t, "ada")[:11], "access-ada-")
}

func TestRefusalThatMayEndKeepsTheConnection(t *testing.T) {
	for code, status := range map[string]int{
		"rate_limit_exceeded": http.StatusTooManyRequests, "invalid_client": http.StatusUnauthorized,
		oauth.SlowDown: http.StatusBadRequest, "temporarily_unavailable": http.StatusBadRequest,
	} {
		t.Run(code, func(t *testing.T) {
			p := newProvider(t, 60)
			one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c,"))
			one.connect(t, "ada")
			one.At(func() time.Time { return time.Now().Add(90 * time.Second) })
			p.refuse(code, status)
			kit.Refused(t, kit.Err(one.call(t, tool.Call{Caller: caller("ada")})), tool.CodeUnavailable, "")
			p.refuse("", 0)
			one.At(func() time.Time { return time.Now().Add(96 * time.Second) })
			kit.Equal(t, one.value(t, "ada"), "access-ada-2")
		})
	}
}

func TestRenewedTokenOfARemovedConnectionIsRevoked(t *testing.T) {
	p := newProvider(t, 60)
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c,"))
	one.connect(t, "ada")
	one.At(func() time.Time { return time.Now().Add(90 * time.Second) })
	p.during = func() { kit.Check(t, kit.Err(one.Remove(t.Context(), "ada", "git"))) }
	kit.Refused(t, kit.Err(one.call(t, tool.Call{Caller: caller("ada")})), tool.CodeAccessDenied, "has not connected git")
	one.Close()
	kit.Equal(t, strings.Join(p.revoked, " "), "refresh-ada-1 access-ada-1 refresh-ada-2 access-ada-2")
}

func TestRenewedTokenIsNotRevokedIfTheStoreLostItsAnswer(t *testing.T) {
	p, rows := newProvider(t, 60), &forgetful{Store: new(store.Connections)}
	one := started(t, rows, "k", "", oauthConfig(p, "client_id: c,"))
	one.connect(t, "ada")
	p.during = func() { rows.loses.Store(true) }
	one.At(func() time.Time { return time.Now().Add(45 * time.Second) })
	kit.Equal(t, one.value(t, "ada"), "access-ada-1")
	one.Close()
	kit.Equal(t, one.value(t, "ada"), "access-ada-2")
	kit.Equal(t, len(p.revoked), 0, "tokens that were revoked")
}

// forgetful is a store whose answer to a write is lost once.
type forgetful struct {
	connection.Store
	loses atomic.Bool
}

func (f *forgetful) Put(ctx context.Context, r connection.Row) (bool, error) {
	ok, err := f.Store.Put(ctx, r)
	if f.loses.CompareAndSwap(true, false) {
		return false, tool.Errorf(tool.CodeUnavailable, "the store is away")
	}
	return ok, err
}

func TestTokenIsUsedWhileItsProviderIsDown(t *testing.T) {
	p := newProvider(t, 60)
	now := time.Now()
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c,"))
	one.connect(t, "ada")
	one.At(func() time.Time { return now.Add(45 * time.Second) }) // due, and valid
	p.fails.Store(true)
	kit.Equal(t, one.value(t, "ada"), "access-ada-1")
	one.Close() // its renewal has failed
	one.At(func() time.Time { return now.Add(90 * time.Second) })
	kit.Refused(t, kit.Err(one.call(t, tool.Call{Caller: caller("ada")})), tool.CodeUnavailable, "answered 503")
	p.fails.Store(false)
	one.At(func() time.Time { return now.Add(96 * time.Second) })
	kit.Equal(t, one.value(t, "ada"), "access-ada-2")
}

func TestProviderThatIsDownIsAskedOnceInAWhile(t *testing.T) {
	p, now := newProvider(t, 60), time.Now()
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c,"))
	one.connect(t, "ada")
	p.fails.Store(true)
	p.asked.Store(0)
	for n, at := range []time.Duration{45, 46, 90, 91} { // due and valid, then over
		one.At(func() time.Time { return now.Add(at * time.Second) })
		for range 10 {
			_, err := one.call(t, tool.Call{Caller: caller("ada")})
			kit.Equal(t, err == nil, n < 2, err)
			one.Close() // the renewal has ended
		}
		kit.Equal(t, p.asked.Load(), int32(n/2+1), "requests")
	}
}

func TestStateIsForOneCallerOnceAndForAWhile(t *testing.T) {
	p := newProvider(t, 3600)
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c,"))
	begin := func() connection.End {
		begun := kit.Must(one.Start(t.Context(), caller("ada"), connection.Begin{Name: "git", Redirect: "http://127.0.0.1:1/callback"}))(t)
		return connection.End{State: begun.State, Code: "code-ada", Issuer: p.URL}
	}
	finish := func(who string, e connection.End) error {
		_, _, err := one.Finish(t.Context(), caller(who), e)
		return err
	}
	kit.Refused(t, finish("eve", begin()), tool.CodeAccessDenied, "for another caller")
	other := begin()
	other.Issuer = "https://evil.example"
	kit.Refused(t, finish("ada", other), tool.CodeAccessDenied, "not from the provider")
	other.Issuer = "" // the server says that it names itself
	kit.Refused(t, finish("ada", other), tool.CodeAccessDenied, "not from the provider")
	forged := begin()
	forged.State = forged.State[:len(forged.State)-2] + "AA"
	kit.Refused(t, finish("ada", forged), tool.CodeInvalidInput, "not made by this server")
	once := begin()
	kit.OK(t, finish("ada", once))
	kit.Refused(t, finish("ada", once), tool.CodeConflict, "used before")
	late := begin()
	one.At(func() time.Time { return time.Now().Add(11 * time.Minute) })
	kit.Refused(t, finish("ada", late), tool.CodeInvalidInput, "too old")
	one.At(time.Now)
	for _, to := range []string{"https://evil.example" + connection.CallbackPath + "git", "http://127.0.0.1@evil.example/", "javascript:x", ""} {
		_, err := one.Start(t.Context(), caller("ada"), connection.Begin{Name: "git", Redirect: to})
		kit.Refused(t, err, tool.CodeInvalidInput, "cannot be sent to")
	}
}

// A provider whose answers do not name it is told from others by the address at which the browser came back.
func TestAnswerAtTheAddressOfAnotherConnectionIsRefused(t *testing.T) {
	p := newProvider(t, 3600)
	p.nameless = true
	one := started(t, new(store.Connections), "k", "https://tools.example", oauthConfig(p, "client_id: c,"))
	at := "https://tools.example" + connection.CallbackPath
	for _, to := range []string{at, at + "evil", at + "git/"} {
		_, err := one.Start(t.Context(), caller("ada"), connection.Begin{Name: "git", Redirect: to})
		kit.Refused(t, err, tool.CodeInvalidInput, "cannot be sent to")
	}
	begun := kit.Must(one.Start(t.Context(), caller("ada"), connection.Begin{Name: "git", Redirect: at + "git"}))(t)
	e := connection.End{State: begun.State, Code: "code-ada"}
	for _, e.At = range []string{"", "evil"} {
		_, _, err := one.Finish(t.Context(), caller("ada"), e)
		kit.Refused(t, err, tool.CodeAccessDenied, "not from the provider")
	}
	e.At = "git"
	_, done, err := one.Finish(t.Context(), caller("ada"), e)
	kit.OK(t, err)
	kit.Equal(t, done, true)
}

// A link says whose key is asked for: what stands beside it in an address is not believed.
func TestKeyIsPastedForTheCallerOfALink(t *testing.T) {
	one := started(t, new(store.Connections), "k", "https://tools.example", pastedConfig)
	operator := tool.Principal{ID: "local", Operates: true}
	asked := kit.Must(one.call(t, tool.Call{Caller: caller("agent/claude")}))(t).Ask
	var shown struct{ URL string }
	kit.OK(t, json.Unmarshal(asked.Needs[0].Params, &shown))
	link := kit.Must(url.Parse(strings.TrimPrefix(shown.URL, "https://tools.example/#")))(t).Query().Get("link")
	wrong := connection.Begin{Name: "other", Caller: "agent/evil", Link: link}
	kit.Refused(t, one.paste(t, caller("eve"), wrong, "canary-key"), tool.CodeAccessDenied, "for another caller")
	kit.OK(t, one.paste(t, operator, wrong, "canary-key"))
	kit.Equal(t, one.value(t, "agent/claude"), "canary-key")
	wrong.Link = "forged"
	kit.Refused(t, one.paste(t, operator, wrong, "canary-key"), tool.CodeInvalidInput, "not made by this server")
}

func TestServerThatSaysItIsAnotherIsRefused(t *testing.T) {
	p := newProvider(t, 3600)
	p.issuer = "https://other.example"
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c,"))
	_, err := one.Start(t.Context(), caller("ada"), connection.Begin{Name: "git", Redirect: "http://127.0.0.1:1/callback"})
	kit.Refused(t, err, tool.CodeAccessDenied, "another issuer")
}

func TestDeviceRegistrationAndMachine(t *testing.T) {
	p := newProvider(t, 3600)
	p.pending.Store(1)
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, ""))
	begun := kit.Must(one.Start(t.Context(), caller("ada"), connection.Begin{Name: "git", Device: true}))(t)
	kit.Equal(t, begun.Code+" "+begun.Every.String(), "ABCD 1s")
	for _, want := range []bool{false, true} {
		_, done, err := one.Finish(t.Context(), caller("ada"), connection.End{State: begun.State})
		kit.OK(t, err)
		kit.Equal(t, done, want)
	}
	kit.Equal(t, one.value(t, "ada"), "access-device-1")
	one.connect(t, "bob") // with a client that was registered
	why, err := one.Remove(t.Context(), "bob", "git")
	kit.OK(t, err)
	kit.OK(t, why)
	kit.Equal(t, strings.Join(p.revoked, " "), "refresh-bob-2 access-bob-2")
	kit.Refused(t, kit.Err(one.call(t, tool.Call{Caller: caller("bob")})), tool.CodeAccessDenied, "not connected")

	text := oauthConfig(p, "client_id: c, client_secret: S, grant: client_credentials,")
	robot := started(t, new(store.Connections), "k", "", text)
	robot.Secrets(secrets{"S": "password"})
	kit.Equal(t, robot.value(t, "ada"), "access-machine-3")
	kit.Equal(t, robot.value(t, "bob"), "access-machine-3")
	_, err = robot.Start(t.Context(), caller("ada"), connection.Begin{Name: "git"})
	kit.Refused(t, err, tool.CodeInvalidInput, "needs no person")
	robot.At(func() time.Time { return time.Now().Add(2 * time.Hour) })
	for _, code := range []string{"invalid_client", "invalid_grant"} {
		p.refuse(code, http.StatusUnauthorized)
		err = kit.Err(robot.call(t, tool.Call{Caller: caller("ada")}))
		kit.Refused(t, err, tool.CodeAccessDenied, "no token to the client of the connection git (refused by the provider: invalid_client)")
	}
	p.refuse("", 0)
	robot.At(func() time.Time { return time.Now().Add(3 * time.Hour) })
	kit.Equal(t, robot.value(t, "ada"), "access-machine-4")
}

type secrets map[string]string

func (s secrets) Secret(name string) (string, error) { return s[name], nil }

func TestRowsInMemory(t *testing.T) {
	rows := new(store.Connections)
	connectiontest.Run(t, rows, rows)
}

func TestMistakesInTheSectionAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"connections: [{name: a, key: pasted}]":                                                 "names no hosts",
		"connections: [{name: a, key: pasted, hosts: ['https://x']}]":                           "is a URL",
		"connections: [{name: a, issuer: 'https://x.example', hosts: [x], value: id_token}]":    "needs the scope openid",
		"connections: [{name: a, hosts: [x]}]":                                                  "where its key comes from",
		"connections: [{name: a, issuer: 'http://x.example', hosts: [x]}]":                      "not an https address",
		"connections: [{name: a, key: sk-canary7, hosts: [x]}]":                                 "do not belong in the config",
		"connections: [{name: a, preset: githb, client_id: c}]":                                 `unknown preset "githb"; there are atlassian, github`,
		"connections: [{name: a, preset: gitlb, client_id: c}]":                                 `did you mean "gitlab"?`,
		"connections: [{name: a, key: 'sk-canary7 x', hots: [x]}]":                              `unknown field "hots"`,
		"connections: [{name: a, key: pasted, issuer: 'https://x', hosts: [x]}]":                "is pasted, or it comes",
		"connections: [{name: a, key: pasted, hosts: [x], header: 'X: y'}]":                     "with {key} in it",
		"connections: [{name: a, key: pasted, hosts: [x], expose: true}]":                       "needs env",
		"connections: [{name: a, key: pasted, hosts: [x], paths: [x]}]":                         "does not begin with /",
		"connections: [{name: a, key: pasted, hosts: [x]}, {name: a, key: pasted, hosts: [x]}]": "two connections",
		"connections: [{name: a, issuer: 'https://x', grant: client_credentials, hosts: [x]}]":  "needs a client_id",
		"connections: [{name: a, key: pasted, hosts: [x], env: K}, {name: b, key: pasted, hosts: [x], env: K}]\n" +
			"sources: [{name: s, protocol: mcp, command: [x], connections: [a, b]}]": "which both have env K",
		"sources:\n- {name: s, protocol: mcp, command: [x], connections: [githab]}\n" + githubLine: ":2:56: source \"s\" uses the connection \"githab\"",
	} {
		path := filepath.Join(t.TempDir(), "toolpost.yaml")
		kit.OK(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		cfg := kit.Must(config.Load(path))(t)
		_, err := connection.New(connection.Env{}).Read(cfg)
		kit.Fails(t, err, want, text)
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error has the key: %v", err)
		}
	}
}

const githubLine = "connections: [{name: github, preset: github, client_id: x}]"

func TestPresetsNeedOnlyAClient(t *testing.T) {
	for name, want := range map[string]string{
		"github": "https://github.com/login/oauth https://github.com/login/oauth/authorize https://github.com/login/oauth/access_token " +
			"https://github.com/login/device/code  [api.github.com]",
		"gitlab": "https://gitlab.com     [gitlab.com]",
		"google": "https://accounts.google.com     [*.googleapis.com]",
		"microsoft": "https://login.microsoftonline.com/common/v2.0 https://login.microsoftonline.com/common/oauth2/v2.0/authorize " +
			"https://login.microsoftonline.com/common/oauth2/v2.0/token https://login.microsoftonline.com/common/oauth2/v2.0/devicecode  " +
			"[graph.microsoft.com]",
		"slack": "https://slack.com https://slack.com/oauth/v2_user/authorize https://slack.com/api/oauth.v2.user.access   [slack.com]",
		"atlassian": "https://auth.atlassian.com https://auth.atlassian.com/authorize https://auth.atlassian.com/oauth/token   " +
			"[api.atlassian.com]",
		"notion": "https://api.notion.com https://api.notion.com/v1/oauth/authorize https://api.notion.com/v1/oauth/token   [api.notion.com]",
		"linear": "https://linear.app https://linear.app/oauth/authorize https://api.linear.app/oauth/token  " +
			"https://api.linear.app/oauth/revoke [api.linear.app]",
		"sentry": "https://sentry.io https://sentry.io/oauth/authorize/ https://sentry.io/oauth/token/   [sentry.io]",
	} {
		o := connection.Options{Name: "x", Preset: name, ClientID: "c"}
		kit.OK(t, o.Validate())
		kit.Equal(t, fmt.Sprint(strings.Join([]string{o.Issuer, o.Authorize, o.Token, o.Device, o.Revoke}, " "), " ", o.Hosts), want)
	}
	known := connection.Options{Name: "x", Issuer: "https://github.com/login/oauth", ClientID: "c"}
	kit.OK(t, known.Validate())
	kit.Equal(t, known.Preset+" "+known.Hosts[0], "github api.github.com")
}

func TestErrorsNameTheConnection(t *testing.T) {
	p := newProvider(t, 60)
	one := started(t, new(store.Connections), "k", "", oauthConfig(p, "client_id: c,"))
	one.connect(t, "ada")
	one.At(func() time.Time { return time.Now().Add(90 * time.Second) })
	kit.Equal(t, kit.Must(one.List(t.Context(), "ada", true))(t)[0].Expires.IsZero(), true, "an expired token that is renewed has no end")
	p.fails.Store(true)
	kit.Refused(t, kit.Err(one.call(t, tool.Call{Caller: caller("ada")})), tool.CodeUnavailable, "the connection git could not be renewed; try again")
	kit.Refused(t, kit.Err(one.Remove(t.Context(), "ada", "nope")), tool.CodeNotFound, `the config has no connection "nope"`)
}
