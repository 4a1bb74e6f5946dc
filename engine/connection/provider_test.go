package connection_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/engine/connection"
	"toolpost/identity/oauth"
	"toolpost/internal/idp"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

const returnTo = "http://127.0.0.1:1/callback"

// agree lets a caller sign in at a provider, and returns what the browser comes back with.
func (p *program) agree(t *testing.T, at *idp.Provider, who string) connection.End {
	t.Helper()
	begun := kit.Must(p.Start(t.Context(), caller(who), connection.Begin{Name: "git", Redirect: returnTo}))(t)
	browser := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), returnTo) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp := at.Login(browser, begun.URL, who)
	_ = resp.Body.Close()
	back := kit.Must(resp.Location())(t).Query()
	return connection.End{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss")}
}

// whoami asks the provider's API with the caller's token, and returns the status of the answer.
func (p *program) whoami(t *testing.T, at *idp.Provider, who string) int {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, at.API, nil))(t)
	req.Header.Set("Authorization", "Bearer "+p.value(t, who))
	resp := kit.Must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestConnectionsWithAnOpenIDProvider(t *testing.T) {
	at := idp.Start(t)
	at.Client(idp.Client{ID: "c", Redirects: []string{returnTo}})
	path := filepath.Join(t.TempDir(), "store.db")
	text := fmt.Sprintf("connections: [{name: git, issuer: %q, client_id: c, scopes: [openid, offline_access], hosts: [api.example]}]\n"+
		"sources: [{name: issues, protocol: mcp, command: [x], connections: [git]}]\n", at.Issuer)
	var programs []*program
	var rows *store.ConnectionTable
	for range 2 {
		db := kit.Must(sqlite.Open(path, store.Options{}))(t)
		t.Cleanup(func() { kit.Check(t, db.Close()) })
		rows = db.Connections()
		programs = append(programs, started(t, rows, "k", "", text))
	}
	one := programs[0]
	finish := func(who string) {
		t.Helper()
		at.SetUser(idp.User{Sub: who})
		_, done, err := one.Finish(t.Context(), caller(who), one.agree(t, at, who))
		kit.OK(t, err)
		kit.Equal(t, done, true)
	}

	// The tokens of 64 callers expire at the same time: each is renewed once, and no call fails.
	const callers = 64
	at.Set(idp.Settings{AccessLifetime: 5 * time.Second})
	for i := range callers {
		finish(fmt.Sprint("caller", i))
	}
	at.Set(idp.Settings{})
	kit.Eventually(t, "the last token has expired", func() bool {
		return time.Now().After(kit.Must(rows.Find(t.Context(), fmt.Sprint("caller", callers-1), "git"))(t).Expires)
	})
	var all sync.WaitGroup
	for i := range 3 * callers {
		all.Go(func() {
			kit.Equal(t, programs[i/callers%2].whoami(t, at, fmt.Sprint("caller", i%callers)), http.StatusOK)
		})
	}
	all.Wait()
	kit.Equal(t, at.Count("refresh_token", http.StatusOK), callers, "renewals")

	// The answer of a renewal is lost, and with it the refresh token: its caller is asked to connect again, and can.
	at.Set(idp.Settings{AccessLifetime: 3 * time.Second})
	finish("ada")
	at.Set(idp.Settings{Down: "answer"})
	kit.Eventually(t, "the token has expired", func() bool { return kit.Err(one.call(t, tool.Call{Caller: caller("ada")})) != nil })
	at.Set(idp.Settings{})
	one.At(func() time.Time { return time.Now().Add(6 * time.Second) })
	kit.Refused(t, kit.Err(one.call(t, tool.Call{Caller: caller("ada")})), tool.CodeAccessDenied, "no longer accepts ada's connection git; connect again")
	one.At(time.Now)
	finish("ada")
	kit.Equal(t, one.whoami(t, at, "ada"), http.StatusOK)

	// A person who denies it, a person at another device, and a connection that is removed.
	at.Set(idp.Settings{Deny: true})
	kit.Equal(t, one.agree(t, at, "ada").Code, "")
	at.Set(idp.Settings{})
	begun := kit.Must(one.Start(t.Context(), caller("bob"), connection.Begin{Name: "git", Device: true}))(t)
	at.SetUser(idp.User{Sub: "bob"})
	at.Approve(begun.Code, "bob")
	_, done, err := one.Finish(t.Context(), caller("bob"), connection.End{State: begun.State})
	kit.OK(t, err)
	kit.Equal(t, done, true)
	value := one.value(t, "bob")
	why, err := one.Remove(t.Context(), "bob", "git")
	kit.OK(t, err)
	kit.Check(t, why)
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, at.API, nil))(t)
	req.Header.Set("Authorization", "Bearer "+value)
	resp := kit.Must(http.DefaultClient.Do(req))(t)
	_ = resp.Body.Close()
	kit.Equal(t, resp.StatusCode, http.StatusUnauthorized, "the token was revoked")
}

func TestIDTokenOfAPersonIsAKey(t *testing.T) {
	at := idp.Start(t)
	at.Client(idp.Client{ID: "c", Redirects: []string{returnTo}})
	config := func(issuer string) string {
		return fmt.Sprintf("connections: [{name: git, issuer: %q, client_id: c, scopes: [openid, offline_access], value: id_token, hosts: [idp.example]}]\n"+
			"sources: [{name: issues, protocol: mcp, command: [x], connections: [git]}]\n", issuer)
	}
	one := started(t, new(store.Connections), "k", "", config(at.Issuer))
	at.SetUser(idp.User{Sub: "ada"})
	_, _, err := one.Finish(t.Context(), caller("ada"), one.agree(t, at, "ada"))
	kit.OK(t, err)
	id, _ := oauth.ReadJWT(one.value(t, "ada"))
	kit.Equal(t, id.Text("sub")+strings.Join(id.List("aud"), ","), "adac")
	kit.Equal(t, at.Count("refresh_token", http.StatusOK), 0)
	one.At(func() time.Time { return time.Now().Add(id.Left() - time.Second) }) // by what it says, not by the access token
	again, _ := oauth.ReadJWT(one.value(t, "ada"))
	kit.Equal(t, again.Text("sub"), "ada")
	kit.Equal(t, at.Count("refresh_token", http.StatusOK), 1)

	// A provider that gives none.
	p := newProvider(t, 3600)
	other := started(t, new(store.Connections), "k", "", config(p.URL))
	begun := kit.Must(other.Start(t.Context(), caller("ada"), connection.Begin{Name: "git", Redirect: returnTo}))(t)
	_, done, err := other.Finish(t.Context(), caller("ada"), connection.End{State: begun.State, Code: "code-ada", Issuer: p.URL})
	kit.Refused(t, err, tool.CodeAccessDenied, "gave no ID token")
	kit.Equal(t, done, false)
}
