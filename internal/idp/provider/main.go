// Command provider is the OpenID provider of package idp. It prints its addresses as a line of JSON, and ends with its input.
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"

	"toolpost/internal/idp"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(host string) error {
	s, err := newState()
	if err != nil {
		return err
	}
	door, control := httptest.NewUnstartedServer(nil), httptest.NewUnstartedServer(nil)
	_, port, _ := net.SplitHostPort(door.Listener.Addr().String())
	p := &provider{state: s, issuer: "http://" + net.JoinHostPort(host, port)}
	if door.Config.Handler, err = p.routes(); err != nil {
		return err
	}
	door.Config.ErrorLog = log.New(io.Discard, "", 0) // a connection that is closed without an answer is a panic
	control.Config.Handler = p.controls()
	door.Start()
	control.Start()
	line, _ := json.Marshal(map[string]string{"issuer": p.issuer, "control": control.URL})
	fmt.Println(string(line))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A provider answers at two addresses: those who sign in, and the test.
type provider struct {
	*state
	issuer string
	sealer op.Crypto
}

// A marked is a cipher whose texts can be recognised: codes and access tokens.
type marked struct{ op.Crypto }

const mark = "idp_token_"

func (m marked) Encrypt(s string) (string, error) {
	text, err := m.Crypto.Encrypt(s)
	return mark + text, err
}

func (m marked) Decrypt(s string) (string, error) {
	return m.Crypto.Decrypt(strings.TrimPrefix(s, mark))
}

func (p *provider) routes() (http.Handler, error) {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	p.sealer = marked{op.NewAESCrypto(secret)}
	library, err := op.NewProvider(&op.Config{
		CodeMethodS256: true, AuthMethodPost: true, GrantTypeRefreshToken: true, BackChannelLogoutSupported: true,
		BackChannelLogoutSessionSupported: true, DefaultLogoutRedirectURI: "/logged-out",
		DeviceAuthorization: op.DeviceAuthorizationConfig{
			Lifetime: 5 * time.Minute, PollInterval: time.Second, UserFormPath: "/device", UserCode: op.UserCodeBase20,
		},
	}, p.state, op.StaticIssuer(p.issuer), op.WithAllowInsecure(), op.WithCrypto(p.sealer),
		op.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", p.faulty(library))
	mux.HandleFunc("GET /login", form("id"))
	mux.HandleFunc("POST /login", p.login)
	mux.HandleFunc("GET /device", form("user_code"))
	mux.HandleFunc("POST /device", p.approve)
	mux.HandleFunc("GET /api/whoami", p.whoami)
	mux.HandleFunc("GET /logged-out", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "signed out") })
	return p.watched(mux), nil
}

// form shows a form that asks for a user, and keeps a parameter of the address.
func form(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><title>Provider</title><form method="post"><input type="hidden" name=%q value=%q>`+
			`<label>User <input name="sub" autofocus></label> <button>Sign in</button></form>`, name, url.QueryEscape(r.FormValue(name)))
	}
}

// login takes the answer of the form: a person signs in, or denies it.
func (p *provider) login(w http.ResponseWriter, r *http.Request) {
	g, err := find(p.state, p.logins, r.FormValue("id"))
	if err == nil {
		_, err = find(p.state, p.users, r.FormValue("sub"))
	}
	if err != nil {
		http.Error(w, "no such login or user", http.StatusBadRequest)
		return
	}
	if p.now().Deny {
		back := url.Values{"error": {"access_denied"}, "error_description": {"the person said no"}, "state": {g.State}}
		p.redirect(w, r, g.RedirectURI+"?"+back.Encode())
		return
	}
	p.mu.Lock()
	g.sub, g.granted = r.FormValue("sub"), time.Now()
	p.mu.Unlock()
	http.Redirect(w, r, "/authorize/callback?id="+g.id, http.StatusFound)
}

// redirect sends a browser back to a client, and says which issuer does (RFC 9207).
func (p *provider) redirect(w http.ResponseWriter, r *http.Request, to string) {
	u, err := url.Parse(to)
	if err == nil && (u.Query().Has("code") || u.Query().Has("error")) {
		q, says := u.Query(), p.now().ResponseIssuer
		if says == "" {
			says = p.issuer
		}
		if says != "-" {
			q.Set("iss", says)
		}
		u.RawQuery = q.Encode()
		to = u.String()
	}
	http.Redirect(w, r, to, http.StatusFound)
}

// approve takes the answer of the form for a device.
func (p *provider) approve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.users[r.FormValue("sub")]
	for _, d := range p.devices {
		if known && d.userCode == r.FormValue("user_code") {
			d.Subject, d.AuthTime = r.FormValue("sub"), time.Now()
			d.Done, d.Denied = !p.settings.Deny, p.settings.Deny
			fmt.Fprintln(w, "You can close this page.")
			return
		}
	}
	http.Error(w, "no such code or user", http.StatusBadRequest)
}

// approvePending approves all device codes that nothing was decided about, and returns how many.
func (p *provider) approvePending(sub string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.devices {
		if !d.Done && !d.Denied {
			d.Subject, d.AuthTime = sub, time.Now()
			d.Done, d.Denied = !p.settings.Deny, p.settings.Deny
			n++
		}
	}
	return n
}

// whoami is the API: it says whose access token it was sent.
func (p *provider) whoami(w http.ResponseWriter, r *http.Request) {
	text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	id, err := p.sealer.Decrypt(text)
	if claims := claimsOf(text); claims != nil {
		id, err = fmt.Sprint(claims["jti"]), nil
	}
	id, _, _ = strings.Cut(id, ":")
	t, missing := p.live(id)
	if err != nil || missing != nil {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		http.Error(w, `{"error":"invalid_token"}`, http.StatusUnauthorized)
		return
	}
	said(w, t.sub)
	answer(w, map[string]string{"sub": t.sub, "token_id": id})
}

// controls are the routes of the test.
func (p *provider) controls() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/settings", change(p, func(s idp.Settings) { p.settings = s }))
	mux.HandleFunc("/users", change(p, func(u idp.User) { p.users[u.Sub] = u }))
	mux.HandleFunc("/clients", change(p, func(c idp.Client) { p.clients[c.ID] = c }))
	mux.HandleFunc("/rotate", order(func(r struct {
		Algorithm string
		Withdraw  bool
	}) (any, error) {
		k, err := newKey(r.Algorithm)
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.Withdraw {
			p.keys = nil
		}
		p.keys = append(p.keys, k)
		return nil, err
	}))
	mux.HandleFunc("/sign", order(func(r struct {
		Typ    string
		Claims map[string]any
	}) (any, error) {
		return p.signed(r.Typ, r.Claims)
	}))
	mux.HandleFunc("/approve", order(func(u idp.User) (any, error) { return p.approvePending(u.Sub), nil }))
	mux.HandleFunc("/revoke", order(func(u idp.User) (any, error) { p.forget(u.Sub); return nil, nil }))
	mux.HandleFunc("/logout", order(func(u idp.User) (any, error) { return p.logOut(u.Sub) }))
	mux.HandleFunc("/requests", order(func(any) (any, error) { p.mu.Lock(); defer p.mu.Unlock(); return p.requests, nil }))
	mux.HandleFunc("/issued", order(func(any) (any, error) { p.mu.Lock(); defer p.mu.Unlock(); return p.issued, nil }))
	return mux
}

func change[V any](p *provider, do func(V)) http.HandlerFunc {
	return order(func(v V) (any, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		do(v)
		return nil, nil
	})
}

func order[V any](do func(V) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var v V
		err := json.NewDecoder(r.Body).Decode(&v)
		var out any
		if err == nil {
			out, err = do(v)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, out)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
