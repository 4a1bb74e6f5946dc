package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"toolpost/identity"
	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// How long a person may take to sign in with a provider, and how long one request to the provider may take.
const (
	attemptTime = 10 * time.Minute
	askTime     = 10 * time.Second
)

// providers is GET /v1/signin.
func (c *Console) providers(w http.ResponseWriter, _ *http.Request, _ tool.Principal) {
	body, _ := strictjson.Marshal(c.o.Callers().Offered()) // strings
	web.Reply(w, http.StatusOK, body)
}

// An attempt is a sign-in that a browser has begun. The browser keeps it, sealed, while its person is at the provider, so that
// another server with the same key can finish it.
type attempt struct {
	Provider string `json:"provider"` // its key
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Redirect string `json:"redirect"`
	Base     string `json:"base"`   // path of the page
	Return   string `json:"return"` // what the page shows then, from the #
	TLS      bool   `json:"tls"`
	Until    int64  `json:"until"` // in Unix milliseconds
}

func attemptCookie(r *http.Request, value string, age int, overTLS bool) *http.Cookie {
	c := cookie(r, value, age, overTLS) //nolint:gosec // it has all of them
	// Strict would keep it from the answer, to which the provider sends the browser.
	c.Name, c.SameSite = strings.Replace(c.Name, "toolpost-", "toolpost-signin-", 1), http.SameSiteLaxMode
	return c
}

const sealPurpose = "key that seals attempts to sign in to the console"

// begin is POST /v1/signin/{provider}: it returns the address of the provider's page. A page of ours asks for it, so no other can
// begin a sign-in; and browsers send the origin with a POST, which shows whether a proxy in front of us speaks TLS.
func (c *Console) beginSignIn(s *web.Server) func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
		var from struct {
			Path   string `json:"path"`
			Return string `json:"return"`
		}
		p := c.o.Callers().Provider(r.PathValue("provider"))
		if err := ours(r); err != nil {
			web.Refuse(w, r, nil, http.StatusForbidden, tool.AsError(err))
			return
		}
		if p == nil {
			web.Refuse(w, r, nil, http.StatusNotFound, tool.Errorf(tool.CodeNotFound, "there is no such provider"))
			return
		}
		body, status, bad := s.ReadBody(w, r)
		if err := strictjson.Unmarshal(body, &from); bad == nil && (err != nil || !ownPath(from.Path) || !ownView(from.Return)) {
			status, bad = http.StatusBadRequest, tool.Errorf(tool.CodeInvalidInput, `send {"path": "/", "return": "#/..."}`)
		}
		if bad != nil {
			web.Refuse(w, r, nil, status, bad)
			return
		}
		address, sealed, err := c.attempt(r, p, from.Path, from.Return)
		if err != nil {
			c.o.Log.Warn("a sign-in cannot begin", "provider", p.Name, "error", err)
			e := tool.Errorf(tool.CodeUnavailable, "%s cannot be reached now: try again later, or sign in with a link or a token", p.Name)
			web.Refuse(w, r, nil, http.StatusServiceUnavailable, e.Because("provider"))
			return
		}
		http.SetCookie(w, attemptCookie(r, sealed, int(attemptTime/time.Second), overTLS(r)))
		reply, _ := strictjson.Marshal(map[string]string{"url": address})
		web.Reply(w, http.StatusOK, reply)
	}
}

// ownPath reports whether a text is the path of a page of this host, which ends with a slash. A browser takes two slashes, or a
// backslash, for the beginning of another host.
func ownPath(path string) bool {
	u, err := url.Parse(path)
	return err == nil && len(path) <= 1000 && strings.HasPrefix(path, "/") && strings.HasSuffix(path, "/") && u.Path == path && u.Host == "" &&
		!strings.Contains(path, "//") && !strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == '\\' || r > '~' })
}

// ownView reports whether a text names a view of the page, as the part of its address from the # does.
func ownView(text string) bool {
	return text == "" || strings.HasPrefix(text, "#/") && len(text) <= 2000 &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// attempt returns the address of the provider's page, and the sealed attempt.
func (c *Console) attempt(r *http.Request, p *identity.Provider, path, view string) (address, sealed string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	client, err := c.o.Callers().Client(ctx, p)
	if err != nil {
		return "", "", err
	}
	a := attempt{
		Provider: p.Key(), State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Base: path, Return: view,
		TLS: overTLS(r), Until: c.o.now().Add(attemptTime).UnixMilli(),
	}
	scheme := map[bool]string{true: "https://", false: "http://"}[a.TLS]
	a.Redirect = scheme + r.Host + path + "v1/signin/" + a.Provider + "/callback"
	client.Params = map[string]string{"nonce": a.Nonce}
	if address, err = client.AuthorizeURL(a.State, a.Verifier, a.Redirect); err != nil {
		return "", "", err
	}
	sealed, err = c.o.Keys.SealText(sealPurpose, a)
	return address, sealed, err
}

// attemptOf returns the attempt of a browser.
func (c *Console) attemptOf(r *http.Request) (a attempt, err error) {
	lost := refused("this browser has not begun to sign in, or it took longer than ten minutes")
	for _, isTLS := range []bool{true, false} {
		kept, err := r.Cookie(attemptCookie(r, "", 0, isTLS).Name)
		if err != nil {
			continue
		}
		ok, err := c.o.Keys.OpenText(sealPurpose, kept.Value, &a)
		// A neighbour under the same domain can set the cookie without the prefix, but not with what belongs into the other.
		if !ok || a.TLS != isTLS || !c.o.now().Before(time.UnixMilli(a.Until)) {
			return attempt{}, cmp.Or(err, lost)
		}
		return a, nil
	}
	return a, lost
}

// once refuses what was used before, in any program that shares the marks.
func (c *Console) once(ctx context.Context, purpose, id string, ttl time.Duration) error {
	first, err := c.o.Keys.Once(ctx, c.o.Marks, purpose, id, ttl)
	if err == nil && !first {
		err = refused("this answer was used before")
	}
	return err
}

func refused(why string) error {
	return tool.Errorf(tool.CodeAccessDenied, "%s", why).Because("sign_in")
}

// finishSignIn is GET /v1/signin/{provider}/callback, to which the provider sends the browser.
func (c *Console) finishSignIn(door string) func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
		a, err := c.attemptOf(r)
		http.SetCookie(w, attemptCookie(r, "", -1, a.TLS))
		var who identity.Person
		var g *granted
		if err == nil {
			who, g, err = c.person(r, a)
		}
		if err == nil { // the gate knows a config that is being loaded
			_, err = c.o.Gate(r.Context(), identity.Credentials{Door: door, Proof: who.Proof})
		}
		w.Header().Set("Referrer-Policy", "no-referrer")
		if err != nil {
			e := tool.AsError(err)
			c.o.Log.Info("a sign-in was refused", "provider", r.PathValue("provider"), "from", peer(r), "why", e.Message)
			web.Notice(w, web.StatusOf(e.Code), "You are not signed in", e.Message, cmp.Or(a.Base, "/"), "Back to the console")
			return
		}
		value, _ := c.begin(who.Principal, cookie(r, "", 0, a.TLS).Name, g)
		http.SetCookie(w, cookie(r, value, int(longest/time.Second), a.TLS))
		c.o.Log.Info("signed in to the console", "caller", who.ID, "with", g.provider, "from", peer(r))
		w.Header().Set("Location", a.Base+a.Return)
		w.WriteHeader(http.StatusSeeOther)
	}
}

// person returns who has signed in, by the answer of the provider that the attempt is about. That uses the attempt up. Nothing else does:
// strangers could fill the marks with codes that they make up, and no other person could sign in.
func (c *Console) person(r *http.Request, a attempt) (who identity.Person, g *granted, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*askTime)
	defer cancel()
	callers, q := c.o.Callers(), r.URL.Query()
	p := callers.Provider(a.Provider)
	switch {
	case p == nil || r.PathValue("provider") != a.Provider:
		return who, nil, refused("this answer is from another provider than the one that this browser asked")
	case subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(a.State)) != 1:
		return who, nil, refused("this answer does not belong to the sign-in that this browser began last; begin again")
	}
	client, err := callers.Client(ctx, p)
	if err != nil {
		return who, nil, unreachable(p, err)
	}
	says, named := q.Get("iss"), q.Has("iss")
	if err := p.Slash(says); err != nil {
		return who, nil, refused(err.Error())
	}
	switch { // RFC 9207
	case named && says != p.Issuer, !named && client.NamesItself:
		return who, nil, refused("this answer is from another provider than the one that this browser asked")
	case q.Has("error"):
		return who, nil, refused(p.Name + " did not sign you in: " + (&oauth.Refused{Code: q.Get("error")}).Error())
	}
	token, err := client.Exchange(ctx, q.Get("code"), a.Verifier, a.Redirect)
	if err != nil {
		return who, nil, unreachable(p, err)
	}
	if who, err = callers.SignedIn(ctx, p, token.ID, a.Nonce); err != nil {
		return who, nil, err
	}
	return who, c.grantedTo(who, p, token.Refresh), c.once(ctx, "attempt to sign in", a.State, attemptTime)
}

// unreachable is the error of a request to a provider, for the person.
func unreachable(p *identity.Provider, err error) error {
	if _, ok := errors.AsType[*oauth.Refused](err); ok {
		return refused("the answer of " + p.Name + " was " + err.Error())
	}
	return tool.Errorf(tool.CodeUnavailable, "%s cannot be reached now; try again later, or sign in with a link or a token: %w", p.Name, err)
}

// A granted is what a session of a person has beside the proof. It is in memory alone.
type granted struct {
	provider, sub, sid string
	turn               chan struct{} // held while renewing

	// guarded by Console.mu
	refresh      string // empty if the token cannot be renewed
	due, expires time.Time
}

// grantedTo returns what the session of a person begins with; without a refresh token it ends with the ID token.
func (c *Console) grantedTo(who identity.Person, p *identity.Provider, refresh string) *granted {
	g := &granted{provider: p.Key(), sub: who.Sub, sid: who.Sid, turn: make(chan struct{}, 1)}
	g.renewed(c.o.now(), who.Until, refresh)
	return g
}

// renewed notes another token. It is renewed when a quarter of its time is left.
func (g *granted) renewed(now, expires time.Time, refresh string) {
	g.expires, g.due, g.refresh = expires, now.Add(expires.Sub(now)*3/4), cmp.Or(refresh, g.refresh)
}

// proof returns the proof of a session, after it was renewed if that is due; "" if the provider has ended the session. Requests
// that come meanwhile go on with the old token while it is valid.
func (c *Console) proof(ctx context.Context, s *session, key digest) string {
	proof, due, expired := c.state(s)
	if !due {
		return proof
	}
	select {
	case s.granted.turn <- struct{}{}:
	default:
		if !expired {
			return proof
		}
		select {
		case s.granted.turn <- struct{}{}:
		case <-ctx.Done():
			return proof
		}
	}
	defer func() { <-s.granted.turn }()
	if proof, due, _ = c.state(s); !due { // another request has done it
		return proof
	}
	who, refresh, err := c.renew(ctx, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case tool.CodeOf(err) == tool.CodeAccessDenied: // a group was taken away, the account was closed, the session revoked
		c.o.Log.Info("a session has ended", "caller", s.caller, "with", s.granted.provider, "why", tool.AsError(err).Message)
		delete(c.sessions, key)
		return ""
	case err != nil: // the session ends with its token if the provider does not come back
		c.o.Log.Warn("a session cannot be renewed", "caller", s.caller, "with", s.granted.provider, "error", err)
		s.granted.due, s.granted.refresh = c.o.now().Add(askTime), cmp.Or(refresh, s.granted.refresh)
	case who.Proof == "": // the old ID token is valid to its end, when the provider is asked once more
		s.granted.due, s.granted.refresh = s.granted.expires, cmp.Or(refresh, s.granted.refresh)
	default:
		s.proof = who.Proof
		s.granted.renewed(c.o.now(), who.Until, refresh)
	}
	return s.proof
}

// state returns the proof of a session, whether it is due to be renewed, and whether it has expired.
func (c *Console) state(s *session) (proof string, due, expired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, now := s.granted, c.o.now()
	if g == nil || g.refresh == "" {
		return s.proof, false, false
	}
	return s.proof, !now.Before(g.due), !now.Before(g.expires)
}

// renew gets another token for the person of a session. It does not end with the request: a refresh token that was used must not
// be lost. A provider need not send another ID token (OpenID Connect Core, 12.2): the person is then empty.
func (c *Console) renew(ctx context.Context, s *session) (who identity.Person, refresh string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	callers := c.o.Callers()
	p := callers.Provider(s.granted.provider)
	if p == nil {
		return who, "", refused("the provider is not in the config any more")
	}
	client, err := callers.Client(ctx, p)
	if err != nil {
		return who, "", err
	}
	token, err := client.Renew(ctx, c.refreshOf(s.granted), "")
	if err != nil {
		return who, "", err
	}
	if _, _, expired := c.state(s); token.ID == "" && !expired {
		return who, token.Refresh, nil
	}
	if who, err = callers.SignedIn(ctx, p, token.ID, ""); err == nil && (who.Sub != s.granted.sub || who.ID != s.caller) {
		err = refused("the provider gave the token of another account")
	}
	return who, token.Refresh, err
}

func (c *Console) refreshOf(g *granted) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return g.refresh
}

// end ends the sessions for which a condition holds, and returns their callers.
func (c *Console) end(holds func(*granted) bool) (of []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.sessions {
		if s.granted != nil && holds(s.granted) {
			delete(c.sessions, key)
			of = append(of, s.caller)
		}
	}
	return of
}

// backChannel is POST /v1/signin/{provider}/logout, by which a provider says that a session has ended.
func (c *Console) backChannel(s *web.Server) func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
		of, err := c.loggedOut(s, w, r)
		if err != nil {
			e := tool.AsError(err)
			c.o.Log.Info("a logout was refused", "provider", r.PathValue("provider"), "from", peer(r), "why", e.Message)
			web.Refuse(w, r, nil, http.StatusBadRequest, e)
			return
		}
		c.o.Log.Info("a provider has ended sessions", "provider", r.PathValue("provider"), "sessions", len(of), "callers", of)
		w.WriteHeader(http.StatusOK)
	}
}

func (c *Console) loggedOut(s *web.Server, w http.ResponseWriter, r *http.Request) ([]string, error) {
	callers := c.o.Callers()
	p := callers.Provider(r.PathValue("provider"))
	if p == nil {
		return nil, refused("there is no such provider")
	}
	body, _, bad := s.ReadBodyWithin(w, r, maxCode)
	if bad != nil {
		return nil, bad
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || len(form["logout_token"]) != 1 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "send the form field logout_token")
	}
	out, err := callers.LoggedOut(r.Context(), p, form.Get("logout_token"))
	if err != nil {
		return nil, tool.Errorf(tool.CodeAccessDenied, "the logout token is refused: %w", err).Because("sign_in")
	}
	ttl := min(out.Until.Sub(c.o.now())+time.Minute, longest) // the token is not valid for longer
	if err := c.once(r.Context(), "logout token", p.Issuer+" "+out.ID, ttl); err != nil {
		return nil, err
	}
	return c.end(func(g *granted) bool {
		switch {
		case g.provider != p.Key() || out.Sub != "" && g.sub != out.Sub:
			return false
		case out.Sid != "" && g.sid != "":
			return g.sid == out.Sid
		}
		return out.Sub != ""
	}), nil
}

// A farewell is the answer to a sign-out of a person: the provider's session goes on until it is ended there.
type farewell struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// leave gives up what a provider granted to a session, and names the page that ends its own session; nil if it has none. The
// address has no ID token in it, which some providers would take in place of a question to the person: it is a credential here.
func (c *Console) leave(ctx context.Context, g *granted) *farewell {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	callers := c.o.Callers()
	p := callers.Provider(g.provider)
	if p == nil {
		return nil
	}
	client, err := callers.Client(ctx, p)
	if err == nil {
		err = client.Forget(ctx, c.refreshOf(g), "refresh_token")
	}
	if err != nil {
		c.o.Log.Warn("a refresh token cannot be revoked", "with", g.provider, "error", err)
	}
	if client == nil || client.EndSession == "" {
		return nil
	}
	u, err := url.Parse(client.EndSession)
	if err != nil {
		return nil
	}
	q := u.Query()
	q.Set("client_id", p.ClientID)
	u.RawQuery = q.Encode()
	return &farewell{p.Name, u.String()}
}
