package console

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"toolpost/internal/browser"
	"toolpost/internal/idp"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// personIsRefused signs in while the provider has faults, and with answers that do not belong to the browser.
func personIsRefused(t *testing.T, w world) {
	down, other := withProvider(t, w)
	down.Set(idp.Settings{Down: "refuse"})
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals, "status of 503", "status of 400")
	p.Open(other.URL() + "/#/tools")
	p.Click("button", "Sign in with Acme SSO")
	p.WaitText("Acme SSO cannot be reached now")
	provider, s := withProvider(t, w)
	claim := func(name string, value any) idp.Settings {
		return idp.Settings{Claims: map[string]any{name: value}}
	}
	for says, set := range map[string]idp.Settings{
		"for another audience": claim("aud", "other"), "of another issuer": claim("iss", "https://evil.example"),
		"not asked for by this browser": claim("nonce", "x"), "it has expired": {Skew: -time.Hour},
		"the clock of the provider is ": {Skew: time.Hour},
		"from another provider":         {ResponseIssuer: "https://evil.example"},
	} {
		provider.Set(set)
		signInOn(p, s)
		p.WaitText(says)
		isSignedOut(p)
	}
	provider.Set(idp.Settings{})
	p.Open(answerOfAnother(t, provider, s)) // without an attempt of this browser, and with one
	p.WaitText("has not begun to sign in")
	p.Open(s.URL() + "/#/tools")
	p.Click("button", "Sign in with Acme SSO")
	p.WaitFor("textbox", "User")
	p.Open(answerOfAnother(t, provider, s))
	p.WaitText("does not belong to the sign-in")
	isSignedOut(p)
	p.Wait(`fetch('v1/signin/acme-sso', {method: 'POST', headers: {'Toolpost-Console': '1'},
		body: JSON.stringify({path: '//evil.example/', return: ''})}).then((r) => r.status === 400)`)
}

// signInOn signs ada in on a page that may show anything.
func signInOn(p *browser.Page, s *served.Server) {
	p.Open(s.URL() + "/#/tools")
	p.Click("button", "Sign in with Acme SSO")
	p.Type("textbox", "User", "ada")
	p.Click("button", "Sign in")
}

// isSignedOut goes from the page that says so to the console, which asks to sign in.
func isSignedOut(p *browser.Page) {
	p.Click("link", "Back to the console")
	p.WaitFor("button", "Sign in with Acme SSO")
	p.Wait("fetch('v1/session').then((r) => r.status === 401)")
}

// answerOfAnother returns the address to which the provider sends the browser of another person.
func answerOfAnother(t *testing.T, provider *idp.Provider, s *served.Server) string {
	t.Helper()
	c := &http.Client{Jar: kit.Must(cookiejar.New(nil))(t)}
	defer c.CloseIdleConnections()
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), s.URL()) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	body := strings.NewReader(`{"path": "/", "return": ""}`)
	r := kit.Must(http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/v1/signin/acme-sso", body))(t)
	r.Header.Set("Toolpost-Console", "1")
	resp := kit.Must(c.Do(r))(t)
	defer resp.Body.Close()
	var to struct{ URL string }
	kit.OK(t, json.NewDecoder(resp.Body).Decode(&to))
	answer := provider.Login(c, to.URL, "ada")
	_ = answer.Body.Close()
	at := kit.Must(answer.Location())(t)
	kit.Equal(t, at.Query().Get("code") != "", true, at.Path)
	return at.String()
}

// personOutlivesOtherKeys signs in after the provider has another key, and is signed out when the provider revokes what
// it granted.
func personOutlivesOtherKeys(t *testing.T, w world) {
	provider, s := withProvider(t, w)
	p := enter(t, w, s)
	p.WaitText("ada@acme.example")
	p.Click("button", "Sign out")
	provider.Rotate("ES256", true)
	provider.Set(idp.Settings{IDLifetime: 20 * time.Second})
	kit.Eventually(t, "the new key is known", func() bool { // it is asked for after ten seconds
		signInOn(p, s)
		p.Wait("['ada@acme.example', 'no key of the issuer'].some((t) => document.body.innerText.includes(t))")
		return strings.Contains(p.Text(), "ada@acme.example")
	})
	provider.Revoke("ada")
	isOut(p)
}
