package login_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"toolpost/cmd/toolpost/contexts"
	"toolpost/cmd/toolpost/login"
	"toolpost/config"
	"toolpost/identity"
	"toolpost/internal/idp"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// loggedIn signs ada in, and keeps the login in the context work.
func loggedIn(t *testing.T) *idp.Provider {
	t.Helper()
	p := idp.Start(t) // before HOME changes, in which the go command keeps what it has built
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	p.Client(idp.Client{ID: "toolpost"})
	p.SetUser(idp.User{Sub: "ada"})
	l, err := login.By(t.Context(), identity.Offered{
		Name: "Acme", Issuer: p.Issuer, ClientID: "toolpost", Scopes: []string{"openid", "offline_access"},
	}, func(_, code string) { p.Approve(code, "ada") })
	kit.OK(t, err)
	keep(t, l)
	return p
}

func keep(t *testing.T, l *contexts.Login) {
	t.Helper()
	kit.OK(t, contexts.Change(t.Context(), func(known *contexts.Contexts) (bool, error) {
		known.Contexts["work"] = contexts.Server{URL: "https://tools.example.org", Login: l}
		return true, nil
	}))
}

func kept(t *testing.T) *contexts.Login {
	t.Helper()
	return kit.Must(contexts.Read())(t).Contexts["work"].Login
}

func TestOneProgramRenewsALogin(t *testing.T) {
	p := loggedIn(t)
	old := kept(t)
	old.Expires = time.Now().Unix()
	keep(t, old)
	var work sync.WaitGroup
	for range 32 {
		work.Go(func() {
			token, err := login.Token(t.Context(), "work", old)
			kit.Check(t, err)
			kit.Equal(t, token != old.ID && token != "", true, "another token")
		})
	}
	work.Wait()
	kit.Equal(t, p.Count("refresh_token", 200), 1, "refreshes")
	kit.Equal(t, p.Count("refresh_token", 400), 0, "refused ones")
	now := kept(t)
	kit.Equal(t, now.Refresh != old.Refresh && now.Refresh != "", true, "the refresh token that was given last is kept")
	info := kit.Must(os.Stat(config.ContextsFile()))(t)
	kit.Equal(t, info.Mode().Perm(), 0o600)
}

func TestALoginThatCannotBeRenewed(t *testing.T) {
	p := loggedIn(t)
	l := kept(t)
	l.Expires = time.Now().Add(5 * time.Second).Unix()
	keep(t, l)
	p.Set(idp.Settings{Down: "500"})
	kit.Equal(t, kit.Must(login.Token(t.Context(), "work", l))(t), l.ID, "it is still valid while the provider is down")
	l.Expires = 1
	keep(t, l)
	kit.Refused(t, kit.Err(login.Token(t.Context(), "work", l)), tool.CodeUnavailable, "")
	kit.Equal(t, kept(t).Refresh, l.Refresh, "the refresh token outlives a provider that is down")
	p.Set(idp.Settings{Down: "limit"})
	kit.Refused(t, kit.Err(login.Token(t.Context(), "work", l)), tool.CodeUnavailable, "slow_down")
	kit.Equal(t, kept(t).Refresh, l.Refresh, "the refresh token outlives a rate limit")
	p.Set(idp.Settings{})
	p.Revoke("ada")
	kit.Refused(t, kit.Err(login.Token(t.Context(), "work", l)), tool.CodeAccessDenied, "your login with Acme has ended")
	kit.Equal(t, kept(t).Refresh, "", "the refresh token that was refused")
	kit.Refused(t, kit.Err(login.Token(t.Context(), "work", l)), tool.CodeAccessDenied, "run `toolpost login`")
}

func TestALoginOutlivesARefreshWithoutAnIDToken(t *testing.T) {
	p := loggedIn(t)
	p.Set(idp.Settings{NoOtherID: true})
	old := kept(t)
	old.Expires = time.Now().Add(5 * time.Second).Unix()
	keep(t, old)
	kit.Equal(t, kit.Must(login.Token(t.Context(), "work", old))(t), old.ID, "it is still valid")
	now := kept(t)
	kit.Equal(t, now.Refresh != old.Refresh && now.Refresh != "", true, "the refresh token that was given last is kept")
	now.Expires = 1
	keep(t, now)
	kit.Refused(t, kit.Err(login.Token(t.Context(), "work", now)), tool.CodeAccessDenied, "it renews no ID tokens")
	p.Set(idp.Settings{})
	token := kit.Must(login.Token(t.Context(), "work", now))(t)
	kit.Equal(t, token != old.ID && token != "", true, "another token, with the refresh token that was given last")
	kit.Equal(t, p.Count("refresh_token", 400), 0, "refused refreshes")
}

func TestChooseAProvider(t *testing.T) {
	two := identity.Offers{Providers: []identity.Offered{{Key: "acme-sso", Name: "Acme SSO"}, {Key: "other", Name: "Other"}}}
	for _, name := range []string{"Acme SSO", "acme-sso"} {
		kit.Equal(t, kit.Must(login.Choose(two, name))(t).Key, "acme-sso")
	}
	kit.Refused(t, kit.Err(login.Choose(two, "")), tool.CodeInvalidInput, "several providers; choose one with --provider: acme-sso, other")
	kit.Refused(t, kit.Err(login.Choose(two, "third")), tool.CodeNotFound, `no provider "third"`)
	kit.Refused(t, kit.Err(login.Choose(identity.Offers{}, "")), tool.CodeUnsupported, "toolpost context add")
}

func TestLoginReplacesOnlyItsOwnContext(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	const address = "https://tools.example.org"
	for _, one := range []struct {
		there contexts.Server
		says  string
	}{
		{contexts.Server{URL: address + "/", CA: "ca.pem"}, ""}, // as a logout leaves it
		{contexts.Server{URL: address, Token: "tp_kept"}, "is there for"},
		{contexts.Server{URL: address + "/other"}, "is there for"},
	} {
		kit.OK(t, contexts.Change(t.Context(), func(known *contexts.Contexts) (bool, error) {
			known.Contexts["tools.example.org"] = one.there
			return true, nil
		}))
		found, err := login.Find("", address, "")
		if one.says != "" {
			kit.Refused(t, err, tool.CodeConflict, one.says)
			continue
		}
		kit.OK(t, err)
		kit.Equal(t, found.Name, "tools.example.org")
		kit.Equal(t, found.CA, "ca.pem")
	}
}
