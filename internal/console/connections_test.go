package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/browser"
	"toolpost/internal/idp"
	"toolpost/internal/kit"
	"toolpost/internal/leaks"
	"toolpost/internal/served"
)

const whoDocument = `{"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {"/api/whoami": {"get": {
"operationId": "whoami", "responses": {"200": {"description": "ok"}}}}}}`

// accountsAreConnected connects an account with a provider on another site, and a key, and lets a tool use them.
func accountsAreConnected(t *testing.T, w world) {
	provider := idp.StartOn(t, "localhost")
	provider.SetUser(idp.User{Sub: "ada"})
	dir, host := t.TempDir(), strings.TrimPrefix(provider.Issuer, "http://")
	kit.OK(t, os.WriteFile(filepath.Join(dir, "who.json"), []byte(whoDocument), 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), fmt.Appendf(nil, `
connections:
  - {name: account, issuer: %q, client_id: toolpost, scopes: [openid, offline_access], hosts: [%q]}
  - {name: key, key: pasted, hosts: [api.example]}
sources: [{name: who, protocol: openapi, document: who.json, server: %q, private: true, connections: [account, key]}]
doors: {http: {}}
`, provider.Issuer, host, provider.Issuer), 0o600))
	s := served.Start(t, w.bin, dir)
	provider.Client(idp.Client{ID: "toolpost", Redirects: []string{s.URL() + "/v1/connections/callback/account"}})
	asked, err := s.Raw(t.Context(), "whoami", `{}`)
	kit.OK(t, err)
	asked = strings.ReplaceAll(asked, `\u0026`, "&")
	link := asked[strings.Index(asked, "/#/connections?")+1:]
	link = link[:strings.IndexAny(link, `",`)]

	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.SignIn(s, link) // as the tool's caller is asked to
	p.WaitText("A tool wants to use account")
	agree := func(button, says string) {
		t.Helper()
		p.Click("button", button)
		p.WaitFor("button", "Sign in")
		p.Type("textbox", "User", "ada")
		p.Click("button", "Sign in")
		p.WaitFor("heading", "Connections")
		p.WaitText(says)
		p.Wait("location.hash === '#/connections'") // and the code is in no address
	}
	agree("Connect", "account is connected.")
	p.Type("textbox", "Key for key", "canary-key-0123456789")
	p.Click("button", "Save")
	p.WaitText("key is connected.")
	p.Wait("document.querySelector('[data-connection=account]').textContent.includes('Connect again')")
	said, err := s.Raw(t.Context(), "whoami", `{}`)
	if err != nil || !strings.Contains(said, `"sub":"ada"`) {
		t.Fatalf("%s, %v", said, err)
	}
	log, err := s.Raw(t.Context(), "audit.log", `{"tool":"whoami"}`)
	if err != nil || !strings.Contains(log, "account "+host) {
		t.Errorf("the record does not say what was used: %s, %v", log, err)
	}
	leaks.Files(t, dir, append(provider.Issued(), "canary-key-0123456789")...)

	provider.Set(idp.Settings{Deny: true})
	agree("Connect again", "access was not granted")
	p.Click("button", "Remove")
	p.WaitDialog("Remove this connection?")
	p.Eval("document.querySelector('dialog[open] button.danger').click()", nil)
	p.WaitText("account is forgotten.")
	p.WaitText("not connected")
}
