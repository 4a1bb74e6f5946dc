package console

import (
	"crypto/rand"
	"crypto/sha256"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// How long a session lasts without a request, and in total; and how many sessions there may be, of all callers and of
// one. They are in memory and end with the program: so signing out needs no list of ended sessions, and a stolen disk
// has none.
const (
	idle    = 12 * time.Hour
	longest = 7 * 24 * time.Hour
	most    = 1000
	mostOf  = 50
)

// digest is the digest of a cookie's name and secret. Only it is kept.
type digest [sha256.Size]byte

func digestOf(name, secret string) digest { return sha256.Sum256([]byte(name + "=" + secret)) }

// A session is a signed-in caller: by which proof, and since when.
type session struct {
	proof, caller string
	began, seen   time.Time
	granted       *granted // by the provider whose ID token a person has; nil for other callers
}

// ends returns when a session ends at the latest. A token that cannot be renewed ends it.
func (s *session) ends() time.Time {
	end := s.began.Add(longest)
	if g := s.granted; g != nil && g.refresh == "" && g.expires.Before(end) {
		end = g.expires
	}
	return end
}

func (s *session) over(now time.Time) bool { return now.Sub(s.seen) > idle || !now.Before(s.ends()) }

// begin makes a session and returns the secret of its cookie, which is valid under this name alone. If there are too
// many, it ends the one that was idle longest.
func (c *Console) begin(p tool.Principal, name string, g *granted) (secret string, s *session) {
	secret = rand.Text() + rand.Text()
	now := c.o.now()
	s = &session{p.Proof, p.ID, now, now, g}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, one := range c.sessions {
		if one.over(now) {
			delete(c.sessions, key)
		}
	}
	c.makeRoom(mostOf, func(one *session) bool { return one.caller == p.ID })
	c.makeRoom(most, func(*session) bool { return true })
	c.sessions[digestOf(name, secret)] = s
	return secret, s
}

// makeRoom ends the session that was idle longest if there are limit sessions of a kind.
func (c *Console) makeRoom(limit int, counts func(*session) bool) {
	var n int
	var oldest digest
	var seen time.Time
	for key, one := range c.sessions {
		if !counts(one) {
			continue
		}
		if n++; n == 1 || one.seen.Before(seen) {
			oldest, seen = key, one.seen
		}
	}
	if n >= limit {
		delete(c.sessions, oldest)
	}
}

// of returns the session of a request's cookie, or nil if it has none or that is over.
func (c *Console) of(r *http.Request) (s *session, key digest, shown bool) {
	cookie, shown := cookieOf(r)
	if !shown {
		return nil, key, false
	}
	key = digestOf(cookie.Name, cookie.Value)
	now := c.o.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	s = c.sessions[key]
	if s == nil || s.over(now) {
		delete(c.sessions, key)
		return nil, key, true
	}
	s.seen = now
	return s, key, true
}

// proofOf is the Session of a web.Door: the gate is asked with the proof, so the current rights apply, and a revoked
// token admits no caller.
func (c *Console) proofOf(r *http.Request) (string, error) {
	s, key, shown := c.of(r)
	over := tool.Errorf(tool.CodeAccessDenied, "the session is over: sign in again").Because(identity.Reason)
	switch {
	case !shown:
		return "", nil
	case s == nil:
		return "", over
	}
	if err := ours(r); err != nil {
		return "", err
	}
	proof := c.proof(r.Context(), s, key)
	if proof == "" {
		return "", over
	}
	r.Header.Del(web.ConsoleHeader) // it has been checked; doors refuse unknown headers of a call
	return proof, nil
}

// ours refuses a request that a foreign page may have made a browser send, with the browser's cookie for us. Cookies
// ignore ports: another program at this machine's name is the same site, so SameSite does not keep it out.
func ours(r *http.Request) error {
	foreign := tool.Errorf(tool.CodeAccessDenied,
		"a cookie counts for pages of this server alone: send a token").Because(web.Forged)
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return foreign
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return foreign
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get(web.ConsoleHeader) == "" {
		return tool.Errorf(tool.CodeAccessDenied,
			"with a cookie, %s needs the header %s: 1, which forms cannot send", r.Method, web.ConsoleHeader).Because(web.Forged)
	}
	return nil
}

// cookieName returns the name of our cookie. It includes the port, so that servers on one machine do not share it.
func cookieName(r *http.Request) string {
	port := "80"
	if _, p, err := net.SplitHostPort(r.Host); err == nil {
		port = p
	}
	return "toolpost-" + port
}

// hostPrefix is the prefix of cookies that only this host can have set, over TLS.
const hostPrefix = "__Host-"

// overTLS reports whether a request came over TLS. A proxy in front of us may terminate it: the origin, which browsers
// send with every request that may change something, shows that.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(strings.ToLower(r.Header.Get("Origin")), "https://")
}

// cookieOf returns our cookie. Over TLS only one that no other site can have set is valid: with any other, a neighbour
// under the same domain, or a server that answers for this host without TLS, could sign a user in as themselves.
func cookieOf(r *http.Request) (*http.Cookie, bool) {
	names := []string{hostPrefix + cookieName(r), cookieName(r)}
	if overTLS(r) {
		names = names[:1]
	}
	for _, name := range names {
		if c, err := r.Cookie(name); err == nil {
			return c, true
		}
	}
	return nil, false
}

// cookie makes our cookie.
func cookie(r *http.Request, value string, age int, overTLS bool) *http.Cookie {
	c := &http.Cookie{ //nolint:gosec // without TLS browsers would drop a Secure one
		Name: cookieName(r), Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: overTLS,
	}
	if c.Secure {
		c.Name = hostPrefix + c.Name
	}
	return c
}

// A Session is the body of the routes: the signed-in caller.
type Session struct {
	Caller   string    `json:"caller"`
	Roles    []string  `json:"roles"`
	Operator bool      `json:"operator"`
	Version  string    `json:"version"`
	By       string    `json:"by"`               // cookie, or other
	Expires  time.Time `json:"expires,omitzero"` // of a cookie's session, at the latest
}

func (c *Console) about(w http.ResponseWriter, p tool.Principal, s *session) {
	is := Session{
		Caller: p.ID, Roles: append([]string{}, p.Roles()...), Operator: p.Operator(), Version: c.o.Version, By: "other",
	}
	if s != nil {
		c.mu.Lock()
		is.By, is.Expires = "cookie", s.ends()
		c.mu.Unlock()
	}
	body, _ := strictjson.Marshal(is) // strings and a time
	web.Reply(w, http.StatusOK, body)
}

// show is GET /v1/session.
func (c *Console) show(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	var s *session
	if r.Header.Get("Authorization") == "" {
		s, _, _ = c.of(r)
	}
	c.about(w, p, s)
}

// signOut is DELETE /v1/session. It needs no caller: a client that has the cookie may always drop it. The answer to a person
// whose provider has a page for that names it.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
	s, key, shown := c.of(r)
	if shown {
		if err := ours(r); err != nil {
			web.Refuse(w, r, nil, http.StatusForbidden, tool.AsError(err))
			return
		}
		c.mu.Lock()
		delete(c.sessions, key)
		c.mu.Unlock()
	}
	http.SetCookie(w, cookie(r, "", -1, overTLS(r)))
	if s != nil && s.granted != nil {
		if then := c.leave(r.Context(), s.granted); then != nil {
			body, _ := strictjson.Marshal(then) // strings
			web.Reply(w, http.StatusOK, body)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// signIn is POST /v1/session: with the code of a link or with a token. Requests from other pages are refused, so that a
// page cannot sign a user in as another caller unnoticed.
func (c *Console) signIn(s *web.Server, door string) func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
		p, status, err := c.identify(s, w, r, door)
		if err != nil {
			e := tool.AsError(err)
			if e.Code == tool.CodeQuotaExceeded {
				w.Header().Set("Retry-After", "60")
			}
			web.Refuse(w, r, nil, status, e)
			return
		}
		name := cookie(r, "", 0, overTLS(r)).Name
		var g *granted
		if who, by := c.o.Callers().PersonOf(p); by != nil { // so that the provider can end the session
			g = c.grantedTo(who, by, "")
		}
		value, session := c.begin(p, name, g)
		http.SetCookie(w, cookie(r, value, int(longest/time.Second), overTLS(r)))
		c.o.Log.Info("signed in to the console", "caller", p.ID, "from", peer(r))
		c.about(w, p, session)
	}
}

// identify returns the caller that signs in. The status belongs to the error.
func (c *Console) identify(
	s *web.Server, w http.ResponseWriter, r *http.Request, door string,
) (tool.Principal, int, error) {
	var by struct {
		Code  string `json:"code"`
		Token string `json:"token"`
	}
	switch err := ours(r); {
	case err != nil:
		return tool.Principal{}, http.StatusForbidden, err
	case r.ContentLength < 0 || r.ContentLength > maxCode+1<<10:
		return tool.Principal{}, http.StatusRequestEntityTooLarge, tool.Errorf(tool.CodeInvalidInput, "the body is too large")
	}
	body, status, bad := s.ReadBody(w, r)
	if bad != nil {
		return tool.Principal{}, status, bad
	}
	err := strictjson.Unmarshal(body, &by)
	if err != nil || (by.Code == "") == (by.Token == "") {
		return tool.Principal{}, http.StatusBadRequest,
			tool.Errorf(tool.CodeInvalidInput, `send {"code": ...} of a link, or {"token": ...}`)
	}
	shown := identity.Credentials{Door: door, Token: by.Token}
	var of link
	if by.Code != "" {
		of, err = c.use(r.Context(), by.Code)
		shown.Proof = of.Proof
	}
	var p tool.Principal
	if err == nil {
		p, err = c.o.Gate(r.Context(), shown)
	}
	if err == nil && by.Code != "" && p.ID != of.Caller {
		err = errLink("was made for another caller")
	}
	switch code := tool.CodeOf(err); {
	case err == nil:
		return p, 0, nil
	case code == tool.CodeAccessDenied && by.Token != "" && c.failed(r):
		return p, http.StatusTooManyRequests, tool.Errorf(tool.CodeQuotaExceeded, "the token is wrong or no longer valid, "+
			"as were too many before it: wait a minute").Because("attempts").RetryAfter(time.Minute)
	case code == tool.CodeAccessDenied:
		return p, http.StatusUnauthorized, err
	default:
		return p, web.StatusOf(code), err
	}
}

// The maximum number of failed attempts of one address in a minute, and of addresses that are remembered.
const (
	mostFailures  = 10
	mostAddresses = 10_000
)

// failures counts the failed attempts of one address since a time.
type failures struct {
	n     int
	since time.Time
}

// failed counts a wrong token, and reports whether there were too many. A right one always passes: clients that share
// an address, as behind a proxy, must not keep each other out.
func (c *Console) failed(r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, from := c.o.now(), peer(r)
	f := c.failures[from]
	if f == nil && len(c.failures) >= mostAddresses {
		clear(c.failures) // counting does not stop an attacker with so many addresses
	}
	if f == nil || now.Sub(f.since) >= time.Minute {
		f = &failures{since: now}
		c.failures[from] = f
	}
	f.n++
	return f.n > mostFailures
}

// peer returns the address of a request without its port.
func peer(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}
