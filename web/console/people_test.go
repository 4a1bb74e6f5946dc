package console

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/ask"
	"toolpost/identity"
	"toolpost/internal/idp"
	"toolpost/internal/kit"
	"toolpost/web"
)

// A lobby is a desk whose people come from a provider.
type lobby struct {
	*desk
	*idp.Provider
}

// provided is the entry of a config for a provider.
func provided(t *testing.T, p *idp.Provider, name string) identity.Provider {
	t.Helper()
	entry := identity.Provider{
		Issuer: p.Issuer, ClientID: "toolpost", Name: name, Scopes: identity.Names{"openid", "email", "offline_access"},
		Roles: config.Ordered[identity.Names]{
			{Name: "engineers", Value: identity.Names{"writer"}}, {Name: "staff", Value: identity.Names{"reader"}},
		},
	}
	kit.OK(t, entry.Validate())
	return entry
}

func newLobby(t *testing.T) *lobby {
	t.Helper()
	l := &lobby{Provider: idp.Start(t)}
	l.desk = newDesk(t, provided(t, l.Provider, "Acme SSO"))
	l.register(l.Provider, l.url, "acme-sso")
	return l
}

// register makes a console known to a provider, and three people.
func (d *desk) register(p *idp.Provider, address, key string) {
	p.Client(idp.Client{ID: "toolpost", Redirects: []string{address + "/v1/signin/" + key + "/callback"},
		LogoutURL: address + "/v1/signin/" + key + "/logout"})
	p.SetUser(idp.User{Sub: "ada", Email: "ada@acme.example", EmailVerified: true, Groups: []string{"staff", "engineers"}})
	p.SetUser(idp.User{Sub: "bob", Email: "ada@acme.example", Groups: []string{"staff"}}) // not verified
	p.SetUser(idp.User{Sub: "eve", Email: "eve@acme.example", EmailVerified: true, Groups: []string{"guests"}})
}

// attemptURL begins a sign-in, as the page does, and returns the address to which the browser goes.
func (c *client) attemptURL(key, back string) string {
	c.t.Helper()
	body, _ := json.Marshal(map[string]string{"path": "/", "return": back})
	status, said := c.ask("POST", "/v1/signin/"+key, string(body), web.ConsoleHeader, "1")
	kit.MustEqual(c.t, status, 200, said)
	var to struct{ URL string }
	kit.OK(c.t, json.Unmarshal([]byte(said), &to))
	return to.URL
}

// answerURL signs in at the provider, and returns the address to which it sends the browser, which is not opened.
func (c *client) answerURL(p *idp.Provider, address, sub string) *url.URL {
	c.t.Helper()
	at := http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), c.url) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp := p.Login(&at, address, sub)
	_ = resp.Body.Close()
	return kit.Must(resp.Location())(c.t)
}

// visit opens an address of the console without following redirects, and returns the status, the text and the next address.
func (c *client) visit(to *url.URL) (int, string, string) {
	c.t.Helper()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp := kit.Must(c.Get(to.String()))(c.t)
	defer resp.Body.Close()
	return resp.StatusCode, string(kit.Must(io.ReadAll(resp.Body))(c.t)), resp.Header.Get("Location")
}

// enter signs a person in.
func (l *lobby) enter(sub string) *client {
	l.desk.t.Helper()
	c := l.client()
	status, said, to := c.visit(c.answerURL(l.Provider, c.attemptURL("acme-sso", "#/calls/7?x=1"), sub))
	kit.MustEqual(l.desk.t, status, 303, said)
	kit.Equal(l.desk.t, to, "/#/calls/7?x=1")
	return c
}

func TestAPersonSignsInWithAProvider(t *testing.T) {
	l := newLobby(t)
	c := l.enter("ada")
	c.want(200, `{"caller":"ada@acme.example","roles":["writer"],"operator":false`, "GET", "/v1/session", "")
	l.enter("bob").want(200, `{"caller":"bob","roles":["reader"],`, "GET", "/v1/session", "")
	l.client().want(200, `{"providers":[{"key":"acme-sso","name":"Acme SSO","issuer":"`+l.Issuer+`","client_id":"toolpost","scopes":[`,
		"GET", "/v1/signin", "")
	log := l.log.String()
	kit.Contains(t, log, "caller=ada@acme.example with=acme-sso")
	for _, token := range l.Issued() {
		if strings.Contains(log, token) {
			t.Errorf("the log has %.20s…", token)
		}
	}
	c.want(200, `{"name":"Acme SSO","url":"`+l.Issuer+`/end_session?client_id=toolpost"}`, "DELETE", "/v1/session", "", web.ConsoleHeader, "1")
	c.want(401, "", "GET", "/v1/look", "")
	kit.Eventually(t, "the refresh token is revoked", func() bool {
		for _, r := range l.Requests() {
			if r.Path == "/revoke" && r.Status == 200 {
				return true
			}
		}
		return false
	})
}

// Each is refused with a word that says why, and no session begins.
func TestSignInIsRefused(t *testing.T) {
	shared := newLobby(t)
	for name, one := range map[string]struct {
		sub    string
		set    idp.Settings
		change func(l *lobby, c *client, answer *url.URL) *url.URL
		status int
		says   string
	}{
		"denied":            {sub: "ada", set: idp.Settings{Deny: true}, status: 403, says: "Acme SSO did not sign you in: refused by the provider: access_denied"},
		"no group":          {sub: "eve", status: 403, says: `has a role here: "eve@acme.example" is in ["guests"];`},
		"no groups":         {sub: "ada", set: idp.Settings{Claims: map[string]any{"groups": nil}}, status: 403, says: "names no groups of \"ada@acme.example\" in the claim groups;"},
		"another audience":  {sub: "ada", set: idp.Settings{Claims: map[string]any{"aud": "other"}}, status: 403, says: "for another audience"},
		"another client":    {sub: "ada", set: idp.Settings{Claims: map[string]any{"aud": []string{"toolpost", "x"}, "azp": "x"}}, status: 403, says: "for another client"},
		"another issuer":    {sub: "ada", set: idp.Settings{Claims: map[string]any{"iss": "https://evil.example"}}, status: 403, says: "of another issuer"},
		"another nonce":     {sub: "ada", set: idp.Settings{Claims: map[string]any{"nonce": "x"}}, status: 403, says: "not asked for by this browser"},
		"no nonce":          {sub: "ada", set: idp.Settings{Claims: map[string]any{"nonce": nil}}, status: 403, says: "not asked for by this browser"},
		"no expiry":         {sub: "ada", set: idp.Settings{Claims: map[string]any{"exp": nil}}, status: 403, says: "does not say when it expires"},
		"a logout token":    {sub: "ada", set: idp.Settings{Claims: map[string]any{"events": map[string]any{}}}, status: 403, says: "no ID token"},
		"expired":           {sub: "ada", set: idp.Settings{Skew: -time.Hour}, status: 403, says: "it has expired: the clock of the provider is 1h0m"},
		"expired, rightly":  {sub: "ada", set: idp.Settings{Claims: map[string]any{"exp": 1}}, status: 403, says: "it has expired<"},
		"a clock ahead":     {sub: "ada", set: idp.Settings{Skew: time.Hour}, status: 403, says: "the clock of the provider is "},
		"a clock too small": {sub: "ada", set: idp.Settings{Skew: 20 * time.Second}, status: 303},
		"an owner":          {sub: "owner", status: 403, says: "no caller can be called \"owner\""},
		"a mail address":    {sub: "eve@acme.example", status: 403, says: "its sub looks like one"},
		"an unknown key": {sub: "ada", status: 503, says: "no key of the issuer has signed it", set: idp.Settings{Metadata: map[string]any{
			"jwks_uri": "http://127.0.0.1:1/keys"}}},
		"down after the login": {sub: "ada", status: 503, says: "Acme SSO cannot be reached now", change: func(l *lobby, _ *client, to *url.URL) *url.URL {
			l.Set(idp.Settings{Down: "500"})
			return to
		}},
		"a code that was used": {sub: "ada", status: 403, says: "invalid_grant", change: func(l *lobby, c *client, to *url.URL) *url.URL {
			other := c.answerURL(l.Provider, c.attemptURL("acme-sso", ""), "ada")
			return with(other, "code", to.Query().Get("code"))
		}},
		"an answer that was used": {sub: "ada", status: 403, says: "has not begun to sign in", change: func(_ *lobby, c *client, to *url.URL) *url.URL {
			c.visit(to)
			return to
		}},
		"an answer that was used, with its cookie": {sub: "ada", status: 403, says: "invalid_grant", change: func(_ *lobby, c *client, to *url.URL) *url.URL {
			kept := c.Jar.Cookies(to)
			c.visit(to)
			c.Jar.SetCookies(to, kept)
			return to
		}},
		"a second answer, with its cookie": {sub: "ada", status: 403, says: "was used before", change: func(l *lobby, c *client, _ *url.URL) *url.URL {
			address := c.attemptURL("acme-sso", "")
			first, second := c.answerURL(l.Provider, address, "ada"), c.answerURL(l.Provider, address, "ada")
			kept := c.Jar.Cookies(first)
			c.visit(first)
			c.Jar.SetCookies(first, kept)
			return second
		}},
		"another browser": {sub: "ada", status: 403, says: "has not begun to sign in", change: func(l *lobby, c *client, to *url.URL) *url.URL {
			c.Jar = l.client().Jar
			return to
		}},
		"a forged answer": {sub: "ada", status: 403, says: "does not belong to the sign-in", change: func(l *lobby, c *client, _ *url.URL) *url.URL {
			other := l.client()
			return other.answerURL(l.Provider, other.attemptURL("acme-sso", ""), "bob")
		}},
		"no state": {sub: "ada", status: 403, says: "does not belong to the sign-in", change: func(_ *lobby, _ *client, to *url.URL) *url.URL {
			return with(to, "state", "")
		}},
		"the issuer of another":   {sub: "ada", set: idp.Settings{ResponseIssuer: "https://evil.example"}, status: 403, says: "from another provider"},
		"the issuer with a slash": {sub: "ada", set: idp.Settings{ResponseIssuer: shared.Issuer + "/"}, status: 403, says: "the slash at the end must be the same"},
		"a token with a slash":    {sub: "ada", set: idp.Settings{Claims: map[string]any{"iss": shared.Issuer + "/"}}, status: 403, says: "the slash at the end must be the same"},
		"no issuer":               {sub: "ada", set: idp.Settings{ResponseIssuer: "-"}, status: 403, says: "from another provider"},
		"too late": {sub: "ada", status: 403, says: "longer than ten minutes", change: func(l *lobby, _ *client, to *url.URL) *url.URL {
			l.clock.Add(int64(attemptTime))
			return to
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := shared
			if one.set.Metadata != nil { // a console reads it once
				l = newLobby(t)
			}
			l.clock.Store(0)
			l.SetUser(idp.User{Sub: "owner", Groups: []string{"staff"}})
			l.SetUser(idp.User{Sub: "eve@acme.example", Groups: []string{"staff"}})
			l.Set(one.set)
			c := l.client()
			answer := c.answerURL(l.Provider, c.attemptURL("acme-sso", ""), one.sub)
			if one.change != nil {
				answer = one.change(l, c, answer)
				if name == "an answer that was used" || strings.HasSuffix(name, "its cookie") {
					c.Jar = onlyAttempt(c, answer)
				}
			}
			status, said, _ := c.visit(answer)
			kit.Equal(t, status, one.status, said)
			kit.Contains(t, strings.ReplaceAll(said, "&#34;", `"`), one.says)
			if one.status != 303 {
				c.want(401, "", "GET", "/v1/session", "")
			}
		})
	}
}

// onlyAttempt returns the cookies of a client without its session.
func onlyAttempt(c *client, at *url.URL) http.CookieJar {
	jar := c.desk.client().Jar
	for _, one := range c.Jar.Cookies(at) {
		if strings.Contains(one.Name, "signin") {
			jar.SetCookies(at, []*http.Cookie{one})
		}
	}
	return jar
}

func with(u *url.URL, name, value string) *url.URL {
	copied, q := *u, u.Query()
	q.Set(name, value)
	copied.RawQuery = q.Encode()
	return &copied
}

// counted counts marks.
type counted struct {
	ask.Marks
	n int
}

func (c *counted) Mark(ctx context.Context, question, who [32]byte, ttl time.Duration) (bool, error) {
	c.n++
	return c.Marks.Mark(ctx, question, who, ttl)
}

// There are only so many marks, and no code of a link, answer or sign-in can be used while there is no room for another.
func TestStrangersLeaveNoMark(t *testing.T) {
	l := newLobby(t)
	marks := &counted{Marks: l.o.Marks}
	l.o.Marks = marks
	for _, change := range []map[string]string{
		{"state": "wrong"}, {"state": ""}, {"iss": "https://evil.example"}, {"error": "access_denied"}, {"code": "made-up"}, {},
	} {
		c := l.client()
		answer := c.answerURL(l.Provider, c.attemptURL("acme-sso", ""), map[bool]string{true: "eve", false: "ada"}[len(change) == 0])
		for name, value := range change {
			answer = with(answer, name, value)
		}
		status, said, _ := c.visit(answer)
		kit.Equal(t, status, 403, change, said)
	}
	kit.Equal(t, marks.n, 0, "marks")
	l.enter("ada")
	kit.Equal(t, marks.n, 1, "marks")
}

// An answer of one provider at the address of the other: a provider could otherwise be given the code of the other.
func TestAnswersOfTwoProvidersAreNotMixedUp(t *testing.T) {
	good, evil := idp.Start(t), idp.Start(t)
	both := []identity.Provider{provided(t, good, "Good"), provided(t, evil, "Evil")}
	both[0].Prefix, both[1].Prefix = "good:", "evil:"
	d := newDesk(t, both...)
	for key, p := range map[string]*idp.Provider{"good": good, "evil": evil} {
		d.register(p, d.url, key)
	}
	evil.Set(idp.Settings{ResponseIssuer: "-", Metadata: map[string]any{"authorization_response_iss_parameter_supported": nil}})
	c := d.client()
	answer := c.answerURL(good, c.attemptURL("good", ""), "ada")
	began := c.attemptURL("evil", "") // the person begins with the evil one, which leads the browser to the good one
	state := kit.Must(url.Parse(began))(t).Query().Get("state")
	moved := with(answer, "state", state)
	moved.Path = "/v1/signin/evil/callback"
	status, said, _ := c.visit(moved)
	kit.Equal(t, status, 403)
	kit.Contains(t, said, "from another provider")
	kit.Equal(t, evil.Count("authorization_code", 400)+evil.Count("authorization_code", 200), 0, "codes that the evil one was sent")
	c = d.client()
	answer = c.answerURL(good, c.attemptURL("good", ""), "ada")
	answer.Path = "/v1/signin/evil/callback"
	_, said, _ = c.visit(answer)
	kit.Contains(t, said, "from another provider")
}

func TestSignInLeadsToNoOtherHost(t *testing.T) {
	l := newLobby(t)
	c := l.client()
	for _, body := range []string{
		`{"path": "//evil.example/", "return": ""}`, `{"path": "/\\evil.example/", "return": ""}`, `{"path": "https://evil.example/", "return": ""}`,
		`{"path": "/", "return": "https://evil.example"}`, `{"path": "/", "return": "//evil.example"}`, `{"path": "evil/", "return": ""}`,
		`{"path": "/", "return": "#/\r\nSet-Cookie: x=1"}`, `{"path": "/%2f/", "return": ""}`, `{"path": "/a", "return": ""}`, `{}`,
		`{"path": "/@evil.example/..//", "return": ""}`,
	} {
		c.want(400, "", "POST", "/v1/signin/acme-sso", body, web.ConsoleHeader, "1")
	}
	for _, foreign := range [][]string{
		{}, {web.ConsoleHeader, "1", "Sec-Fetch-Site", "cross-site"}, {web.ConsoleHeader, "1", "Origin", "http://friend.example"},
	} {
		c.want(403, "", "POST", "/v1/signin/acme-sso", `{"path": "/", "return": ""}`, foreign...)
	}
	c.want(404, "no such provider", "POST", "/v1/signin/other", `{}`, web.ConsoleHeader, "1")
}

// A neighbour under the same domain can set cookies without the prefix: it could have a person finish its own sign-in.
func TestAttemptOverTLSNeedsItsPrefix(t *testing.T) {
	l := newLobby(t)
	c, secure := l.client(), "https"+strings.TrimPrefix(l.url, "http")
	r := kit.Must(http.NewRequestWithContext(t.Context(), "POST", l.url+"/v1/signin/acme-sso", strings.NewReader(`{"path": "/", "return": ""}`)))(t)
	r.Header.Set(web.ConsoleHeader, "1")
	r.Header.Set("Origin", secure)
	resp := kit.Must(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	var to struct{ URL string }
	kit.OK(t, json.NewDecoder(resp.Body).Decode(&to))
	kept := resp.Cookies()[0]
	kit.Equal(t, strings.HasPrefix(kept.Name, "__Host-toolpost-signin-") && kept.Secure && kept.HttpOnly, true, kept)
	kit.Equal(t, kept.SameSite, http.SameSiteLaxMode)
	at := kit.Must(url.Parse(to.URL))(t)
	kit.Equal(t, at.Query().Get("redirect_uri"), secure+"/v1/signin/acme-sso/callback")
	answer := "/v1/signin/acme-sso/callback?iss=" + url.QueryEscape(l.Issuer) + "&code=x&state=" + at.Query().Get("state")
	c.want(403, "has not begun", "GET", answer, "", "Cookie", strings.TrimPrefix(kept.Name, "__Host-")+"="+kept.Value)
	c.want(403, "invalid_grant", "GET", answer, "", "Cookie", kept.Name+"="+kept.Value)
}

func TestSignInWithAProviderThatIsDown(t *testing.T) {
	l := newLobby(t)
	l.Set(idp.Settings{Down: "refuse"})
	c := l.client()
	c.want(503, "Acme SSO cannot be reached now: try again later, or sign in with a link or a token", "POST", "/v1/signin/acme-sso",
		`{"path": "/", "return": ""}`, web.ConsoleHeader, "1")
	status, said := c.signIn(`{"token":"` + ownersToken + `"}`)
	kit.Equal(t, status, 200, said)
	c.want(200, `"operator":true`, "GET", "/v1/session", "")
}

func TestASessionIsRenewedUntilTheProviderSaysNo(t *testing.T) {
	t.Parallel()
	l := newLobby(t)
	l.Set(idp.Settings{IDLifetime: 3 * time.Second})
	c := l.enter("ada")
	c.until(200, "", "/v1/session")
	kit.Eventually(t, "the token is renewed", func() bool {
		c.want(200, `"roles":["writer"]`, "GET", "/v1/session", "")
		return l.Count("refresh_token", 200) > 1
	})
	l.SetUser(idp.User{Sub: "ada", Email: "ada@acme.example", EmailVerified: true, Groups: []string{"staff"}})
	c.until(200, `"roles":["reader"]`, "/v1/session")
	l.SetUser(idp.User{Sub: "ada", Email: "ada@acme.example", EmailVerified: true, Groups: []string{"guests"}})
	c.until(401, "the session is over", "/v1/session")

	c = l.enter("bob")
	l.Revoke("bob")
	c.until(401, "the session is over", "/v1/session")
}

func TestASessionOutlivesARateLimit(t *testing.T) {
	t.Parallel()
	l := newLobby(t)
	l.Set(idp.Settings{IDLifetime: 4 * time.Second})
	c := l.enter("ada")
	l.Set(idp.Settings{IDLifetime: 4 * time.Second, Down: "limit"})
	kit.Eventually(t, "the provider has limited a renewal", func() bool {
		c.want(200, `"roles":["writer"]`, "GET", "/v1/session", "")
		return l.Count("refresh_token", 429) > 0
	})
}

func TestASessionOutlivesARefreshWithoutAnIDToken(t *testing.T) {
	l := newLobby(t)
	l.Set(idp.Settings{IDLifetime: time.Hour})
	c := l.enter("ada")
	l.Set(idp.Settings{IDLifetime: time.Hour, NoOtherID: true})
	l.clock.Store(int64(50 * time.Minute))
	for range 3 {
		c.want(200, `"ada@acme.example"`, "GET", "/v1/look", "")
	}
	kit.Equal(t, l.Count("refresh_token", 200), 1, "refreshes before the token ends")
	l.Set(idp.Settings{IDLifetime: time.Hour})
	l.clock.Store(int64(61 * time.Minute))
	c.want(200, `"ada@acme.example"`, "GET", "/v1/look", "")
	kit.Equal(t, l.Count("refresh_token", 200), 2, "refreshes, each with the refresh token that was given last")

	c = l.enter("bob")
	l.Set(idp.Settings{NoOtherID: true})
	l.clock.Store(int64(4 * time.Hour))
	c.want(401, "the session is over", "GET", "/v1/look", "")
}

// The refresh token was used while no key of the provider could be had: the one that came for it is kept.
func TestARefreshTokenOutlivesKeysThatAreAway(t *testing.T) {
	l := newLobby(t)
	l.Set(idp.Settings{IDLifetime: time.Hour})
	c := l.enter("ada")
	l.Rotate("ES256", true) // the new key is asked for after ten seconds, and the first refresh is before that
	l.clock.Store(int64(50 * time.Minute))
	c.want(200, "", "GET", "/v1/look", "")
	l.clock.Store(int64(51 * time.Minute))
	c.want(200, "", "GET", "/v1/look", "")
	kit.Equal(t, l.Count("refresh_token", 200), 2, "refreshes")
	kit.Equal(t, l.Count("refresh_token", 400), 0, "refused ones")
}

func TestKeysOfAProviderRotate(t *testing.T) {
	t.Parallel()
	l := newLobby(t)
	l.Set(idp.Settings{IDLifetime: 20 * time.Second})
	c := l.enter("ada")
	l.Rotate("ES256", true)
	kit.Eventually(t, "the new key is known", func() bool { // it is asked for after ten seconds
		c.want(200, `"ada@acme.example"`, "GET", "/v1/look", "") // the session outlives that
		other := l.client()
		status, _, _ := other.visit(other.answerURL(l.Provider, other.attemptURL("acme-sso", ""), "bob"))
		return status == 303
	})
}

func TestASessionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	l := newLobby(t)
	l.Set(idp.Settings{IDLifetime: 2 * time.Second, NoRefresh: true})
	c := l.enter("ada")
	c.want(200, "", "GET", "/v1/session", "")
	c.until(401, "the session is over", "/v1/session")

	l.Set(idp.Settings{IDLifetime: 2 * time.Second})
	c = l.enter("ada")
	l.Set(idp.Settings{Down: "500"})
	c.until(401, "", "/v1/session")
}

// A stream ends with its session, and not before.
func TestStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	l := newLobby(t)
	for why, end := range map[string]func(c *client){
		"logged out by the provider": func(*client) { kit.Equal(t, l.LogOut("ada")["toolpost"], 200) },
		"signed out":                 func(c *client) { c.want(200, "", "DELETE", "/v1/session", "", web.ConsoleHeader, "1") },
	} {
		c := l.enter("ada")
		r := kit.Must(http.NewRequestWithContext(t.Context(), "POST", c.url+"/v1/follow", nil))(t)
		r.Header.Set(web.ConsoleHeader, "1")
		resp := kit.Must(c.Do(r))(t)
		kit.MustEqual(t, resp.StatusCode, 200)
		ended := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, resp.Body); _ = resp.Body.Close(); close(ended) }()
		before := l.asked.Load()
		kit.Eventually(t, "the session is asked for again", func() bool { return l.asked.Load() > before+1 })
		select {
		case <-ended:
			t.Errorf("%s: the stream ended before", why)
		default:
		}
		end(c)
		kit.Eventually(t, why, func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		})
	}
}

func TestAnotherServerFinishesASignIn(t *testing.T) {
	l := newLobby(t)
	c := l.client()
	answer := c.answerURL(l.Provider, c.attemptURL("acme-sso", ""), "ada")
	first := l.Console.sessions
	l.Console.sessions = map[digest]*session{} // a server with the same keys and marks has not seen this browser
	status, said, _ := c.visit(answer)
	kit.Equal(t, status, 303, said)
	kit.Equal(t, len(first), 0)
}

func TestBackChannelLogoutEndsSessions(t *testing.T) {
	l := newLobby(t)
	ada, bob := l.enter("ada"), l.enter("bob")
	logout := func(status int, says string, claims map[string]any) {
		t.Helper()
		all := map[string]any{"aud": "toolpost", "sub": "ada", "jti": "one", "events": map[string]any{
			"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}
		for name, v := range claims {
			all[name] = v
		}
		form := url.Values{"logout_token": {l.Sign("logout+jwt", all)}}.Encode()
		l.client().want(status, says, "POST", "/v1/signin/acme-sso/logout", form, "Content-Type", "application/x-www-form-urlencoded")
	}
	for says, claims := range map[string]map[string]any{
		"another audience":      {"aud": "other"},
		"another issuer":        {"iss": "https://evil.example"},
		"no logout token":       {"events": map[string]any{"other": map[string]any{}}},
		"which session ends":    {"sub": nil},
		"it has expired":        {"exp": 1},
		"it is no logout token": {"nonce": "x"},
		"does not say which":    {"jti": nil},
	} {
		logout(400, says, claims)
	}
	l.client().want(400, "logout_token", "POST", "/v1/signin/acme-sso/logout", "")
	l.client().want(400, "no such provider", "POST", "/v1/signin/other/logout", "")
	ada.want(200, "", "GET", "/v1/look", "")
	logout(200, "", nil)
	kit.Contains(t, l.log.String(), "sessions=1 callers=[ada@acme.example]")
	ada.want(401, "the session is over", "GET", "/v1/look", "")
	bob.want(200, "", "GET", "/v1/look", "")
	ada = l.enter("ada")
	logout(400, "used before", nil)
	ada.want(200, "", "GET", "/v1/look", "")
	kit.Equal(t, l.LogOut("ada")["toolpost"], 200)
	ada.want(401, "the session is over", "GET", "/v1/look", "")
}

// A session can also begin with an ID token itself, such as that of toolpost login.
func TestBackChannelLogoutEndsSessionsByToken(t *testing.T) {
	l := newLobby(t)
	begun := func(sub, sid string) *client {
		c := l.client()
		id := l.Sign("JWT", map[string]any{"aud": "toolpost", "sub": sub, "sid": sid, "groups": []string{"staff"}})
		status, said := c.signIn(`{"token":"` + id + `"}`)
		kit.MustEqual(t, status, 200, said)
		c.want(200, `"`+sub+`"`, "GET", "/v1/look", "")
		return c
	}
	logout := func(id string, whom map[string]any) {
		claims := map[string]any{"aud": "toolpost", "jti": id, "events": map[string]any{
			"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}
		maps.Copy(claims, whom)
		form := url.Values{"logout_token": {l.Sign("logout+jwt", claims)}}.Encode()
		l.client().want(200, "", "POST", "/v1/signin/acme-sso/logout", form, "Content-Type", "application/x-www-form-urlencoded")
	}
	here, there, ada := begun("bob", "here"), begun("bob", "there"), begun("ada", "other")
	status, said := l.client().signIn(`{"token":"` + ownersToken + `"}`)
	kit.Equal(t, status, 200, said)
	logout("one", map[string]any{"sid": "here"})
	here.want(401, "the session is over", "GET", "/v1/look", "")
	there.want(200, "", "GET", "/v1/look", "")
	logout("two", map[string]any{"sub": "bob"})
	there.want(401, "the session is over", "GET", "/v1/look", "")
	ada.want(200, "", "GET", "/v1/look", "")
}

// An ID token of the provider is also a bearer token: toolpost login has one.
func TestAnIDTokenIsABearerToken(t *testing.T) {
	l := newLobby(t)
	bearer := func(claims map[string]any) []string {
		all := map[string]any{"aud": "toolpost", "sub": "bob", "groups": []string{"staff"}}
		for name, v := range claims {
			all[name] = v
		}
		return []string{"Authorization", "Bearer " + l.Sign("JWT", all)}
	}
	c := l.client()
	c.want(200, `"bob"`, "GET", "/v1/look", "", bearer(nil)...)
	for _, claims := range []map[string]any{
		{"aud": "other"}, {"iss": "https://evil.example"}, {"groups": []string{"guests"}}, {"exp": 1}, {"azp": "other"},
		{"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}},
	} {
		c.want(401, "", "GET", "/v1/look", "", bearer(claims)...)
	}
}
