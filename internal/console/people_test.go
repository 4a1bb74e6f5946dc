package console

import (
	"strings"
	"testing"
	"time"

	"toolpost/internal/browser"
	"toolpost/internal/idp"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// withProvider starts a provider with one person, and a server whose people come from there. For a browser, the two are different
// sites.
func withProvider(t *testing.T, w world) (*idp.Provider, *served.Server) {
	t.Helper()
	p := idp.StartOn(t, "localhost")
	s := w.serve(t, plain+"callers: {roles: {reader: {}, writer: {}}}\nidentity:\n  oidc:\n    - issuer: "+p.Issuer+
		"\n      client_id: toolpost\n      name: Acme SSO\n      scopes: [openid, email, offline_access]\n"+
		"      roles: {engineers: [writer], staff: [reader]}\n")
	p.Client(idp.Client{ID: "toolpost", Redirects: []string{s.URL() + "/v1/signin/acme-sso/callback"},
		LogoutURL: s.URL() + "/v1/signin/acme-sso/logout"})
	inGroup(p, "engineers")
	return p, s
}

func inGroup(p *idp.Provider, group string) {
	p.SetUser(idp.User{Sub: "ada", Email: "ada@acme.example", EmailVerified: true, Groups: []string{group}})
}

// enter signs in from a view of the console, and returns the page when the provider has sent it back.
func enter(t *testing.T, w world, s *served.Server) *browser.Page {
	t.Helper()
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.Open(s.URL() + "/#/tools")
	p.Click("button", "Sign in with Acme SSO")
	p.Type("textbox", "User", "ada")
	p.Click("button", "Sign in")
	return p
}

func personSignsIn(t *testing.T, w world) {
	idp, s := withProvider(t, w)
	p := enter(t, w, s)
	p.WaitFor("heading", "Tools") // as before the provider
	p.WaitText("ada@acme.example")
	var kept, at string
	p.Eval("document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.documentElement.outerHTML", &kept)
	p.Eval("location.href", &at)
	kit.Equal(t, at, s.URL()+"/#/tools")
	for _, token := range idp.Issued() {
		if strings.Contains(kept, token) || strings.Contains(s.Log(), token) {
			t.Errorf("the page or the log has %.20s…", token)
		}
	}
	p.Click("button", "Sign out")
	p.WaitText("sign out there too")
	p.Click("link", "sign out there too")
	p.WaitText("signed out")
}

func personIsDenied(t *testing.T, w world) {
	idp, s := withProvider(t, w)
	inGroup(idp, "guests")
	p := enter(t, w, s)
	p.WaitText("none of the groups of the account has a role here")
	p.Click("link", "Back to the console")
	inGroup(idp, "staff")
	setDeny(idp)
	p.Click("button", "Sign in with Acme SSO")
	p.Type("textbox", "User", "ada")
	p.Click("button", "Sign in")
	p.WaitText("refused by the provider: access_denied")
}

func setDeny(p *idp.Provider) { p.Set(idp.Settings{Deny: true}) }

func sessionOfAPersonEnds(t *testing.T, w world) {
	provider, s := withProvider(t, w)
	provider.Set(idp.Settings{IDLifetime: 3 * time.Second, NoRefresh: true})
	p := enter(t, w, s)
	isOut(p)

	provider.Set(idp.Settings{IDLifetime: 4 * time.Second})
	p = enter(t, w, s)
	p.WaitText("ada@acme.example")
	p.Wait("fetch('v1/session').then((r) => r.status === 200)")
	kit.Eventually(t, "the session is renewed", func() bool {
		p.Eval("fetch('v1/session').then((r) => r.status)", nil)
		return provider.Count("refresh_token", 200) > 0
	})
	inGroup(provider, "guests")
	isOut(p)

	inGroup(provider, "staff")
	provider.Set(idp.Settings{})
	for _, view := range []string{"overview", "live"} {
		p = enter(t, w, s)
		p.WaitText("ada@acme.example")
		p.Eval("location.hash = '#/"+view+"'", nil)
		p.WaitFor("heading", strings.ToUpper(view[:1])+view[1:])
		kit.Equal(t, provider.LogOut("ada")["toolpost"], 200)
		p.WaitText("You were signed out")
	}
}

// isOut waits until the session of a page has ended, and opens another view, which says so.
func isOut(p *browser.Page) {
	p.Wait("fetch('v1/session').then((r) => r.status === 401)")
	p.Eval("location.hash = '#/audit'", nil)
	p.WaitText("You were signed out")
}

// A person whose role has few tools is told so, and not sent to a machine that is another's.
func rightsOfAPersonAreNamed(t *testing.T, w world) {
	provider := idp.StartOn(t, "localhost")
	s := w.serve(t, plain+"callers: {roles: {look: {tools: 'read*'}}}\nidentity:\n  oidc:\n    - issuer: "+provider.Issuer+
		"\n      client_id: toolpost\n      name: Acme SSO\n      roles: {staff: [look]}\n")
	provider.Client(idp.Client{ID: "toolpost", Redirects: []string{s.URL() + "/v1/signin/acme-sso/callback"},
		LogoutURL: s.URL() + "/v1/signin/acme-sso/logout"})
	inGroup(provider, "staff")
	p := enter(t, w, s)
	for _, view := range []string{"connections", "live", "operate"} {
		p.WaitText("ada@acme.example")
		p.Eval("location.hash = '#/"+view+"'", nil)
		p.WaitText("Your rights do not include this")
	}
	p.Eval("location.hash = '#/overview'", nil)
	p.WaitFor("heading", "Overview")
	kit.Equal(t, provider.LogOut("ada")["toolpost"], 200)
	p.WaitText("You were signed out") // although the view follows nothing
}
