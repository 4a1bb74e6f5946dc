package idp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"toolpost/internal/idp"
	"toolpost/internal/kit"
)

// signedIn signs ada in with a code, as a program does that has a secret.
func signedIn(t *testing.T, p *idp.Provider, o *oauth2.Config) *oauth2.Token {
	t.Helper()
	verifier := oauth2.GenerateVerifier()
	resp := p.Login(&http.Client{}, o.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)), "ada")
	_ = resp.Body.Close()
	q := resp.Request.URL.Query()
	kit.MustEqual(t, q.Get("state")+q.Get("iss")+q.Get("error"), "state"+p.Issuer)
	token, err := o.Exchange(t.Context(), q.Get("code"), oauth2.VerifierOption(verifier))
	kit.OK(t, err)
	kit.Fails(t, kit.Err(o.Exchange(t.Context(), q.Get("code"), oauth2.VerifierOption(verifier))), "invalid_grant")
	return token
}

func newProvider(t *testing.T) (*idp.Provider, *oauth2.Config) {
	t.Helper()
	back := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(back.Close)
	p := idp.Start(t)
	p.SetUser(idp.User{Sub: "ada", Email: "ada@example.com", EmailVerified: true, Groups: []string{"engineers"}})
	p.SetUser(idp.User{Sub: "robot"})
	return p, &oauth2.Config{
		ClientID:     p.Client(idp.Client{ID: "app", Secret: "s3cret", Redirects: []string{back.URL}}),
		ClientSecret: "s3cret", RedirectURL: back.URL, Scopes: []string{"openid", "offline_access"},
		Endpoint: oauth2.Endpoint{
			AuthURL: p.Issuer + "/authorize", TokenURL: p.Issuer + "/oauth/token", DeviceAuthURL: p.Issuer + "/device_authorization",
		},
	}
}

func whoami(t *testing.T, p *idp.Provider, token *oauth2.Token) (int, string) {
	t.Helper()
	r := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, p.API, nil))(t)
	token.SetAuthHeader(r)
	resp := kit.Must(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	return resp.StatusCode, string(kit.Must(io.ReadAll(resp.Body))(t))
}

func TestProviderSignsInRefreshesAndRevokes(t *testing.T) {
	p, o := newProvider(t)
	token := signedIn(t, p, o)
	status, who := whoami(t, p, token)
	kit.Equal(t, status, 200)
	kit.Contains(t, who, `"sub":"ada"`)
	old := token.RefreshToken
	again := kit.Must(o.TokenSource(t.Context(), &oauth2.Token{RefreshToken: old}).Token())(t)
	kit.Equal(t, again.RefreshToken != old, true, "the refresh token rotates")
	kit.Fails(t, kit.Err(o.TokenSource(t.Context(), &oauth2.Token{RefreshToken: old}).Token()), "invalid_grant")
	kit.Equal(t, p.Count("refresh_token", 200), 1)
	p.Revoke("ada")
	status, _ = whoami(t, p, again)
	kit.Equal(t, status, 401)
	kit.Contains(t, strings.Join(p.Issued(), "\n"), again.AccessToken)
}

func TestProviderHasDevicesAndExchange(t *testing.T) {
	p, o := newProvider(t)
	p.Client(idp.Client{ID: "app", Secret: "s3cret", JWTAccess: true})
	code := kit.Must(o.DeviceAuth(t.Context()))(t)
	p.Approve(code.UserCode, "ada")
	token := kit.Must(o.DeviceAccessToken(t.Context(), code))(t)
	id, _ := token.Extra("id_token").(string)
	kit.Equal(t, strings.Count(id, "."), 2, "an ID token")
	resp := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, o.Endpoint.TokenURL, strings.NewReader(url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {token.AccessToken},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "resource": {"https://api.example"},
		"actor_token": {id}, "actor_token_type": {"urn:ietf:params:oauth:token-type:id_token"},
	}.Encode())))(t)
	resp.SetBasicAuth("app", "s3cret")
	resp.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := kit.Must(http.DefaultClient.Do(resp))(t)
	defer answer.Body.Close()
	var out struct {
		AccessToken string `json:"access_token"`
	}
	kit.OK(t, json.Unmarshal(kit.Must(io.ReadAll(answer.Body))(t), &out))
	kit.Equal(t, strings.Count(out.AccessToken, "."), 2, "a JWT")
}

func TestProviderHasFaults(t *testing.T) {
	p, o := newProvider(t)
	token := signedIn(t, p, o)
	for down, says := range map[string]string{"500": "500", "refuse": "EOF", "answer": "EOF"} {
		p.Set(idp.Settings{Down: down})
		_, err := o.TokenSource(t.Context(), &oauth2.Token{RefreshToken: token.RefreshToken}).Token()
		if err == nil || !strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", down, err)
		}
	}
	p.Set(idp.Settings{})
	p.Rotate("ES256", true)
	kit.Equal(t, strings.Count(p.Sign("logout+jwt", map[string]any{"aud": "app"}), "."), 2)
}
