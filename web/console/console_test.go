package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/web"
)

const ownersToken = "an-owner-token-0123456789"

// A desk is a console on a real front, with the callers of a config.
type desk struct {
	*Console
	t       *testing.T
	url     string
	clock   atomic.Int64 // hours and minutes that have passed, in nanoseconds
	revoked atomic.Bool  // the issued token is revoked
	roles   atomic.Value // of that token
	asked   atomic.Int64 // how often a request was admitted or not
	log     journal
}

type journal struct {
	mu sync.Mutex
	strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Builder.Write(b)
}

const issuedToken = identity.TokenPrefix + "0123456789012345678901234567890123456789012"

func newDesk(t *testing.T, providers ...identity.Provider) *desk {
	d := &desk{t: t}
	d.roles.Store([]string{"reader"})
	owner := kit.Must(identity.StaticToken(ownersToken))(t)
	all := tool.Patterns{"*"}
	callers, err := identity.New(identity.Options{Roles: map[string]identity.Role{"reader": {Tools: all}, "writer": {Tools: all}}},
		identity.Env{Owner: owner, Providers: providers, Tokens: func(context.Context, string) (identity.Grant, bool, error) {
			return identity.Grant{Caller: "ada", Roles: d.roles.Load().([]string)}, !d.revoked.Load(), nil
		}})
	kit.OK(t, err)
	d.Console = New(Options{
		Gate: callers.Admit, Callers: func() *identity.Callers { return callers }, Version: "1.2.3", Log: slog.New(slog.NewTextHandler(&d.log, nil)),
		now: func() time.Time { return time.Now().Add(time.Duration(d.clock.Load())) },
	})
	door := d.On(web.Door{Name: "http", Hint: "look elsewhere", Routes: func(*web.Server, tool.Handler, tool.Catalog) []web.Route {
		return []web.Route{
			{Method: "POST", Path: "/v1/change", Serve: func(w http.ResponseWriter, r *http.Request, p tool.Principal) {
				web.Reply(w, 200, []byte(`"`+p.ID+" at "+p.Door+r.Header.Get(web.ConsoleHeader)+`"`))
			}},
			{Method: "POST", Path: "/v1/follow", Lasts: func(*http.Request, tool.Principal) bool { return true },
				Serve: func(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
					w.WriteHeader(200)
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}},
			{Method: "GET", Path: "/v1/look", Serve: func(w http.ResponseWriter, _ *http.Request, p tool.Principal) {
				web.Reply(w, 200, []byte(`"`+p.ID+`"`))
			}},
		}
	}})
	other := web.Door{Name: "other", Routes: func(*web.Server, tool.Handler, tool.Catalog) []web.Route {
		return []web.Route{{Method: "GET", Path: "/other", Serve: func(w http.ResponseWriter, _ *http.Request, p tool.Principal) {
			web.Reply(w, 200, []byte(`"`+p.ID+`"`))
		}}}
	}}
	ready := make(chan string, 1)
	front := web.New(web.Options{
		Listen: "127.0.0.1:0", Gate: func(ctx context.Context, shown identity.Credentials) (tool.Principal, error) {
			d.asked.Add(1)
			return callers.Admit(ctx, shown)
		}, Origins: []string{"http://friend.example"},
		Ready: func(addr string) { ready <- addr },
	}, door, other)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- front.Serve(ctx, nil, nil) }()
	t.Cleanup(func() { stop(); <-ended })
	d.url = "http://" + <-ready
	return d
}

// A client is a browser without a page: it keeps cookies.
type client struct {
	*desk
	http.Client
}

func (d *desk) client() *client {
	jar, _ := cookiejar.New(nil)
	return &client{d, http.Client{Jar: jar}}
}

// ask sends a request with headers by name and value, and returns the status and the body.
func (c *client) ask(method, path, body string, headers ...string) (int, string) {
	c.t.Helper()
	r := kit.Must(http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body)))(c.t)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp := kit.Must(c.Do(r))(c.t)
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func (c *client) signIn(body string) (int, string) {
	c.t.Helper()
	return c.ask("POST", "/v1/session", body, web.ConsoleHeader, "1")
}

func (c *client) want(status int, part, method, path, body string, headers ...string) {
	c.t.Helper()
	if got, said := c.ask(method, path, body, headers...); got != status || !strings.Contains(said, part) {
		c.t.Errorf("%s %s %q: %d %s, want %d with %q", method, path, headers, got, said, status, part)
	}
}

// until polls for an answer: the gate caches a token for a moment.
func (c *client) until(status int, part, path string) {
	c.t.Helper()
	kit.Until(c.t, func() error {
		if got, said := c.ask("GET", path, ""); got != status || !strings.Contains(said, part) {
			return fmt.Errorf("%s stays %d %s", path, got, said)
		}
		return nil
	})
}

func (d *desk) code(p tool.Principal) string {
	d.t.Helper()
	code, _, err := d.Link(p)
	kit.OK(d.t, err)
	b, _ := json.Marshal(map[string]string{"code": code})
	return string(b)
}

func (d *desk) ada() tool.Principal {
	d.t.Helper()
	return kit.Must(d.o.Gate(d.t.Context(), identity.Credentials{Token: issuedToken}))(d.t)
}

func TestALinkSignsInOnceAndWithinAMinute(t *testing.T) {
	d := newDesk(t)
	code, c := d.code(d.ada()), d.client()
	if status, said := c.signIn(code); status != 200 || !strings.Contains(said, `{"caller":"ada","roles":["reader"],"operator":false,"version":"1.2.3","by":"cookie","expires":"`) {
		t.Fatalf("%d %s", status, said)
	}
	c.want(200, `"ada"`, "GET", "/v1/look", "")
	c.want(200, `"ada at http"`, "POST", "/v1/change", "", web.ConsoleHeader, "1")
	if status, said := d.client().signIn(code); status != 401 || !strings.Contains(said, "was used before") {
		t.Errorf("a second time: %d %s", status, said)
	}
	late := d.code(d.ada())
	d.clock.Add(int64(LinkTTL))
	if status, said := d.client().signIn(late); status != 401 || !strings.Contains(said, "more than a minute old") {
		t.Errorf("too late: %d %s", status, said)
	}
	if status, said := d.client().signIn(`{"code":"` + strings.Repeat("A", 200) + `"}`); status != 401 || !strings.Contains(said, "not made by this server") {
		t.Errorf("made up: %d %s", status, said)
	}
	if _, _, err := d.Link(tool.Principal{ID: "guest"}); tool.CodeOf(err) != tool.CodeUnsupported {
		t.Errorf("who shows nothing: %v", err)
	}
	if log := d.log.String(); !strings.Contains(log, "caller=ada") || strings.Contains(log, code[10:30]) {
		t.Errorf("the log: %s", log)
	}
}

func TestATokenSignsInAndSigningOutEndsIt(t *testing.T) {
	d := newDesk(t)
	c := d.client()
	c.want(401, "unauthenticated", "GET", "/v1/session", "")
	if status, said := c.signIn(`{"token":"` + ownersToken + `"}`); status != 200 || !strings.Contains(said, `"caller":"owner","roles":[],"operator":true`) {
		t.Fatalf("%d %s", status, said)
	}
	at, _ := url.Parse(d.url)
	stolen := c.Jar.Cookies(at)[0]
	c.want(200, `"by":"cookie"`, "GET", "/v1/session", "")
	c.want(204, "", "DELETE", "/v1/session", "", web.ConsoleHeader, "1")
	if left := c.Jar.Cookies(at); len(left) > 0 {
		t.Errorf("the cookie stays: %v", left)
	}
	c.want(401, "the session is over", "GET", "/v1/look", "", "Cookie", stolen.String())
	c.want(200, `"by":"other"`, "GET", "/v1/session", "", "Authorization", "Bearer "+ownersToken)
	if log := d.log.String(); strings.Contains(log, ownersToken) || strings.Contains(log, stolen.Value) {
		t.Errorf("the log: %s", log)
	}
}

func TestSessionFollowsItsTokensRights(t *testing.T) {
	d := newDesk(t)
	c := d.client()
	c.signIn(d.code(d.ada()))
	d.roles.Store([]string{"writer"})
	c.until(200, `"roles":["writer"]`, "/v1/session")
	d.revoked.Store(true)
	c.until(401, "unauthenticated", "/v1/look")
	if status, _ := d.client().signIn(`{"token":"` + issuedToken + `"}`); status != 401 {
		t.Errorf("signing in with it: %d", status)
	}
}

func TestASessionEndsWhenItIsIdleAndAfterAWeek(t *testing.T) {
	d := newDesk(t)
	c := d.client()
	c.signIn(d.code(d.ada()))
	for range int(longest/idle)*2 - 1 { // it is used every six hours
		d.clock.Add(int64(idle / 2))
		c.want(200, `"ada"`, "GET", "/v1/look", "")
	}
	d.clock.Add(int64(idle / 2))
	c.want(401, "the session is over", "GET", "/v1/look", "")
	c = d.client()
	c.signIn(d.code(d.ada()))
	d.clock.Add(int64(idle) + 1)
	c.want(401, "the session is over", "GET", "/v1/look", "")
}

// What a foreign page can make a browser send, with its cookie for us.
func TestACookieCountsForOurOwnPageAlone(t *testing.T) {
	d := newDesk(t)
	c := d.client()
	c.signIn(d.code(d.ada()))
	own := d.url
	for _, forged := range [][]string{
		{},                             // a form
		{"Content-Type", "text/plain"}, // likewise
		{web.ConsoleHeader, "1", "Sec-Fetch-Site", "cross-site"},
		{web.ConsoleHeader, "1", "Sec-Fetch-Site", "same-site"}, // another port of this machine
		{web.ConsoleHeader, "1", "Origin", "http://evil.example"},
		{web.ConsoleHeader, "1", "Origin", "http://friend.example"}, // may call us, but only with a token
		{web.ConsoleHeader, "1", "Origin", "http://127.0.0.1:1"},
		{web.ConsoleHeader, "1", "Origin", "null"},
	} {
		c.want(403, "access_denied", "POST", "/v1/change", "{}", forged...)
		c.want(403, "access_denied", "DELETE", "/v1/session", "", forged...)
	}
	for _, forged := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://friend.example"},
	} {
		c.want(403, "access_denied", "GET", "/v1/look", "", forged...)
	}
	c.want(200, `"ada`, "POST", "/v1/change", "", web.ConsoleHeader, "1", "Origin", own, "Sec-Fetch-Site", "same-origin")
	c.want(200, `"ada`, "GET", "/v1/look", "", "Sec-Fetch-Site", "none")
	c.want(401, "", "GET", "/other", "") // no other door accepts cookies
	for _, foreign := range [][]string{{}, {web.ConsoleHeader, "1", "Sec-Fetch-Site", "cross-site"}, {web.ConsoleHeader, "1", "Origin", "http://friend.example"}} {
		if status, said := d.client().ask("POST", "/v1/session", d.code(d.ada()), foreign...); status != 403 {
			t.Errorf("a foreign page signs somebody in: %q: %d %s", foreign, status, said)
		}
	}
}

// A neighbour under the same domain can set any cookie but one with the prefix. If such a cookie counted over TLS, it
// could sign a user in as itself, and see what they then do.
func TestOnlyPrefixedCookieCountsOverTLS(t *testing.T) {
	d := newDesk(t)
	signedIn := func(headers ...string) *http.Cookie {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", d.url+"/v1/session", strings.NewReader(d.code(d.ada())))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp := kit.Must(http.DefaultClient.Do(r))(t)
		resp.Body.Close()
		if resp.StatusCode != 200 || len(resp.Cookies()) != 1 {
			t.Fatal(resp.Status)
		}
		return resp.Cookies()[0]
	}
	c, secure := d.client(), "https"+strings.TrimPrefix(d.url, "http")
	plain, sealed := signedIn(web.ConsoleHeader, "1"), signedIn(web.ConsoleHeader, "1", "Origin", secure)
	for _, one := range []*http.Cookie{plain, sealed} {
		if isSealed := one == sealed; one.Secure != isSealed || strings.HasPrefix(one.Name, "__Host-") != isSealed ||
			!one.HttpOnly || one.SameSite != http.SameSiteStrictMode || one.Path != "/" || one.Domain != "" {
			t.Errorf("%+v", one)
		}
	}
	pair := func(name, value string) string { return name + "=" + value }
	c.want(200, `"ada`, "POST", "/v1/change", "", web.ConsoleHeader, "1", "Origin", secure, "Cookie", pair(sealed.Name, sealed.Value))
	c.want(401, "", "POST", "/v1/change", "", web.ConsoleHeader, "1", "Origin", secure, "Cookie", pair(plain.Name, plain.Value))
	c.want(401, "", "GET", "/v1/look", "", "Cookie", pair(plain.Name, sealed.Value)) // the secret of one cookie under the name of the other
	c.want(401, "", "GET", "/v1/look", "", "Cookie", pair(sealed.Name, plain.Value))
	c.want(200, `"ada`, "GET", "/v1/look", "", "Cookie", pair(plain.Name, plain.Value))
}

func TestARightTokenPassesWhileOthersGuess(t *testing.T) {
	const wrong, right = `{"token":"a-wrong-token-0123456789"}`, `{"token":"` + ownersToken + `"}`
	d := newDesk(t)
	c := d.client()
	for range mostFailures {
		if status, _ := c.signIn(wrong); status != 401 {
			t.Fatal(status)
		}
	}
	for range 3 {
		if status, said := c.signIn(wrong); status != 429 || !strings.Contains(said, "retry_after_ms") {
			t.Errorf("a wrong token: %d %s", status, said)
		}
		for _, good := range []string{right, d.code(d.ada())} {
			if status, said := d.client().signIn(good); status != 200 {
				t.Errorf("%.9s: %d %s", good, status, said)
			}
		}
	}
	d.clock.Add(int64(time.Minute))
	if status, said := c.signIn(wrong); status != 401 {
		t.Errorf("a minute later: %d %s", status, said)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	d := newDesk(t)
	first := d.client()
	first.signIn(d.code(d.ada()))
	for range mostOf {
		d.clock.Add(1)
		d.begin(d.ada(), "toolpost-80", nil)
	}
	kit.Equal(t, len(d.sessions), mostOf, "sessions of one caller")
	first.want(401, "over", "GET", "/v1/look", "")
	for i := range most {
		d.begin(tool.Principal{ID: string(rune('a'+i%26)) + time.Duration(i).String(), Proof: "user:1"}, "toolpost-80", nil)
	}
	kit.Equal(t, len(d.sessions), most, "sessions")
	for i := range mostAddresses + 1 {
		d.failed(&http.Request{RemoteAddr: time.Duration(i).String()})
	}
	if len(d.failures) > mostAddresses {
		t.Errorf("%d addresses", len(d.failures))
	}
}

func TestBadBodiesAreRefused(t *testing.T) {
	d := newDesk(t)
	for body, status := range map[string]int{
		``: 400, `{}`: 400, `[]`: 400, `{"code":"x","token":"y"}`: 400, `{"code":1}`: 400, `{"token":"x","token":"y"}`: 400,
		`{"code":"` + strings.Repeat("A", 64<<10) + `"}`: 413,
	} {
		if got, said := d.client().signIn(body); got != status {
			t.Errorf("%.40s: %d %s", body, got, said)
		}
	}
	// A body of undeclared length could be as long as that of any call.
	r, _ := http.NewRequestWithContext(t.Context(), "POST", d.url+"/v1/session", io.MultiReader(strings.NewReader(d.code(d.ada()))))
	r.Header.Set(web.ConsoleHeader, "1")
	resp := kit.Must(http.DefaultClient.Do(r))(t)
	resp.Body.Close()
	kit.Equal(t, resp.StatusCode, 413, "of unknown length: %s", resp.Status)
}

// isClosed checks the headers that isolate a page: what it may load, who may frame it, which referrer it sends. The
// policy is repeated here, so that it is not widened without a second thought.
func isClosed(t *testing.T, path string, h http.Header) {
	t.Helper()
	got := map[string]string{}
	for directive := range strings.SplitSeq(h.Get("Content-Security-Policy"), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), " ")
		got[name] = value
	}
	want := map[string]string{
		"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' blob: data:",
		"media-src": "'self' blob:", "connect-src": "'self'", "base-uri": "'none'", "form-action": "'none'",
		"frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "svelte-trusted-html",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s may do %v", path, got)
	}
	for name, want := range map[string]string{
		"X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff",
		"Permissions-Policy": "camera=(), geolocation=(), microphone=()",
	} {
		kit.Equal(t, h.Get(name), want, path, name)
	}
}

func TestThePageNeedsNoCallerAndLoadsNothingElse(t *testing.T) {
	c := newDesk(t).client()
	for path, f := range bundle() {
		if path == index {
			path = ""
		}
		r, _ := http.NewRequestWithContext(t.Context(), "GET", c.url+"/"+path, nil)
		r.Header.Set("Accept", "text/html")
		resp := kit.Must(c.Do(r))(t)
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != 200 || string(body) != string(f.plain) || h.Get("Content-Type") != f.kind {
			t.Errorf("/%s: %d %v", path, resp.StatusCode, h)
		}
		isClosed(t, "/"+path, h)
		kit.Equal(t, strings.Contains(h.Get("Cache-Control"), "immutable"),
			strings.HasPrefix(path, "assets/"), "/%s is kept", path)
		c.want(304, "", "GET", "/"+path, "", "Accept", "text/html", "If-None-Match", h.Get("ETag"))
		c.want(405, "", "POST", "/"+path, "")
	}
	c.want(404, "look elsewhere", "GET", "/", "") // a program
	c.want(404, "", "GET", "/assets/", "")
	c.want(404, "", "GET", "/assets/../console.go", "")
	c.want(421, "", "GET", "/", "", "Accept", "text/html", "Host", "evil.example")
}
