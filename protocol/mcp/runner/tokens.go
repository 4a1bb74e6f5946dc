package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// TokenFile returns the file with the tokens of a source that a person logged in to: in the state folder, readable only
// by the owner of this installation. To remove the file is to log out.
func TokenFile(src config.Source) string {
	return src.StateDir("mcp", src.Name+".json")
}

// storedTokens are the result of a login, and what the next login needs to know.
type storedTokens struct {
	Server   string `json:"server"` // the tokens are for this address and no other
	Resource string `json:"resource,omitzero"`

	// The client that got the tokens; it is valid nowhere else.
	TokenURL     string `json:"token_url,omitzero"`
	ClientID     string `json:"client_id,omitzero"`
	ClientSecret string `json:"client_secret,omitzero"`
	InHeader     bool   `json:"in_header,omitzero"` // the client sends its secret in a header

	Access  string    `json:"access_token,omitzero"`
	Refresh string    `json:"refresh_token,omitzero"`
	Expiry  time.Time `json:"expiry,omitzero"`
	Scopes  []string  `json:"scopes,omitzero"`

	// The refusal of a later call, which the next login answers.
	Status    int      `json:"status,omitzero"`
	Challenge []string `json:"challenge,omitzero"`
}

func newStoredTokens(server string, c *oauth2.Config, t *oauth2.Token) *storedTokens {
	stored := &storedTokens{
		Server: server, TokenURL: c.Endpoint.TokenURL, ClientID: c.ClientID, ClientSecret: c.ClientSecret,
		InHeader: c.Endpoint.AuthStyle == oauth2.AuthStyleInHeader, Scopes: c.Scopes,
		Access: t.AccessToken, Refresh: t.RefreshToken, Expiry: t.Expiry,
	}
	if granted, ok := t.Extra("scope").(string); ok && granted != "" {
		stored.Scopes = strings.Fields(granted)
	}
	return stored
}

// A tokenStore holds the tokens of one source. The file is authoritative: a login in another process changes it.
type tokenStore struct {
	path   string
	server string
	client *http.Client
	redact func(name, value string) // registers a secret to be redacted, or nil

	mu      sync.Mutex
	modTime time.Time // modification time of the file that cached was read from
	cached  *storedTokens
}

// maxTokenFile bounds the file. It is ours, so a large one is a mistake.
const maxTokenFile = 1 << 20

// read returns the tokens in the file; they are empty if there is none, or if it is for another server.
func (t *tokenStore) read() *storedTokens {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.load()
}

func (t *tokenStore) load() *storedTokens {
	info, err := os.Stat(t.path)
	if err != nil {
		t.cached = nil
		return &storedTokens{}
	}
	if t.cached == nil || !info.ModTime().Equal(t.modTime) {
		var found storedTokens
		if f, err := os.Open(t.path); err == nil {
			body, err := bounded.ReadDocument(f, maxTokenFile)
			_ = f.Close()
			if err != nil || strictjson.Unmarshal(body, &found) != nil {
				found = storedTokens{}
			}
			t.redactTokens(&found)
		}
		t.cached, t.modTime = &found, info.ModTime()
	}
	if t.cached.Server != t.server {
		return &storedTokens{}
	}
	return t.cached
}

// save writes the file atomically, readable only by its owner.
func (t *tokenStore) save(next *storedTokens) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.store(next)
}

// redactTokens has tokens redacted, in case a server repeats what it was sent.
func (t *tokenStore) redactTokens(found *storedTokens) {
	if t.redact == nil {
		return
	}
	for _, one := range []string{found.Access, found.Refresh, found.ClientSecret} {
		if one != "" {
			t.redact("a token of "+strings.TrimSuffix(filepath.Base(t.path), ".json"), one)
		}
	}
}

func (t *tokenStore) store(next *storedTokens) error {
	t.redactTokens(next)
	body, err := json.MarshalIndent(next, "", "  ") //nolint:gosec // to keep secrets is what it is for
	if err == nil {
		err = config.WritePrivate(t.path, append(body, '\n'))
	}
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the tokens for %s cannot be kept: %w", next.Server, err)
	}
	t.cached = nil
	return nil
}

// renewBefore is how long before its expiry a token is renewed: it must still be valid when it arrives.
const renewBefore = 30 * time.Second

// token returns a token that should be valid, or "" if there is none.
func (t *tokenStore) token(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.load()
	if now.Refresh == "" || now.Expiry.IsZero() || time.Until(now.Expiry) > renewBefore {
		return now.Access, nil
	}
	return t.renew(ctx, now)
}

// replaceToken returns another token after one was refused, or "" if that takes a login.
func (t *tokenStore) replaceToken(ctx context.Context, refused string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.load()
	switch {
	case now.Access != refused: // replaced meanwhile, by a login or a renewal
		return now.Access, nil
	case now.Refresh == "":
		return "", nil
	}
	return t.renew(ctx, now)
}

// renew asks the authorization server for another token. The library could do it too, except that every such request
// must name the resource that the token is for.
func (t *tokenStore) renew(ctx context.Context, now *storedTokens) (string, error) {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {now.Refresh}, "resource": {cmp.Or(now.Resource, now.Server)}}
	if !now.InHeader {
		form.Set("client_id", now.ClientID)
		if now.ClientSecret != "" {
			form.Set("client_secret", now.ClientSecret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, now.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "the token cannot be renewed: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if now.InHeader {
		req.SetBasicAuth(url.QueryEscape(now.ClientID), url.QueryEscape(now.ClientSecret))
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "the authorization server cannot be reached: %w", withoutURL(err))
	}
	defer resp.Body.Close()
	body, err := bounded.ReadDocument(resp.Body, maxTokenFile)
	var got struct {
		Access  string          `json:"access_token"`
		Refresh string          `json:"refresh_token"`
		Expires json.RawMessage `json:"expires_in"` // a number; some servers send a string
	}
	if err == nil {
		err = strictjson.Unmarshal(body, &got)
	}
	if resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnauthorized {
		return "", nil // the refresh token is no longer good
	}
	if err != nil || resp.StatusCode != http.StatusOK || got.Access == "" {
		return "", tool.Errorf(tool.CodeUnavailable, "the authorization server did not renew the token: %s",
			jsonrpc.Clip(resp.Status))
	}
	next := *now
	next.Access, next.Expiry = got.Access, time.Time{}
	if got.Refresh != "" {
		next.Refresh = got.Refresh
	}
	if s, err := strconv.ParseInt(strings.Trim(string(got.Expires), `"`), 10, 32); err == nil && s > 0 {
		next.Expiry = time.Now().Add(time.Duration(s) * time.Second)
	}
	return next.Access, t.store(&next)
}

// storeRefusal stores the refusal of a call, so that the next login can answer it.
func (t *tokenStore) storeRefusal(resp *http.Response) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := *t.load()
	next.Server, next.Status, next.Challenge = t.server, resp.StatusCode, resp.Header.Values("Www-Authenticate")
	if resp.StatusCode == http.StatusUnauthorized {
		next.Access, next.Refresh = "", "" // no longer valid
	}
	if err := t.store(&next); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
