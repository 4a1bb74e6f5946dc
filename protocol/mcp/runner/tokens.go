package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"toolpost/config"
	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/bounded"
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

	Key *oauth.ProofKey `json:"dpop_key,omitzero"` // that the tokens are bound to, or nil

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
	bound  bool                     // tokens must be bound to a key
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
	if t.bound != (t.cached.Key != nil) { // of a login with another config
		rest := *t.cached
		rest.Access, rest.Refresh = "", ""
		return &rest
	}
	return t.cached
}

// save writes the file atomically, readable only by its owner.
func (t *tokenStore) save(ctx context.Context, next *storedTokens) error {
	return t.change(ctx, func(*storedTokens) error { return t.store(next) })
}

// change runs do with the tokens as they are in the file, which no other program changes meanwhile.
func (t *tokenStore) change(ctx context.Context, do func(now *storedTokens) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return config.Locked(ctx, t.path, func() error {
		t.cached = nil // two writes can have the same time
		return do(t.load())
	})
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

// Token implements credentials.
func (t *tokenStore) Token(ctx context.Context) (oauth.Access, error) {
	now := t.read()
	if now.Refresh == "" || now.Expiry.IsZero() || time.Until(now.Expiry) > renewBefore {
		return oauth.Access{Token: now.Access, Key: now.Key}, nil
	}
	return t.after(ctx, now.Access)
}

// Replace implements credentials. Without a refresh token, and for more rights, it takes a login.
func (t *tokenStore) Replace(ctx context.Context, refused oauth.Access, resp *http.Response) (oauth.Access, error) {
	now := t.read()
	switch {
	case now.Access != refused.Token: // replaced meanwhile, by a login or a renewal
		return oauth.Access{Token: now.Access, Key: now.Key}, nil
	case now.Refresh == "" || resp.StatusCode == http.StatusForbidden:
		return oauth.Access{}, nil
	}
	return t.after(ctx, now.Access)
}

// after returns the token after one. One program gets it: a refresh token that is used twice may end all tokens of the login.
func (t *tokenStore) after(ctx context.Context, last string) (next oauth.Access, err error) {
	err = t.change(ctx, func(now *storedTokens) (err error) {
		switch {
		case now.Access != last:
			next = oauth.Access{Token: now.Access, Key: now.Key}
		case now.Refresh != "":
			next, err = t.renew(ctx, now)
		}
		return err
	})
	return next, err
}

// renew asks the authorization server for another token. The library could do it too, except that every such request
// must name the resource that the token is for.
func (t *tokenStore) renew(ctx context.Context, now *storedTokens) (oauth.Access, error) {
	c := &oauth.Client{Server: oauth.Server{Token: now.TokenURL}, ID: now.ClientID, Secret: now.ClientSecret, HTTP: t.client}
	if !now.InHeader {
		c.Methods = []string{"client_secret_post"}
	}
	if now.Key != nil {
		c.HTTP = now.Key.Proving(t.client)
	}
	ctx = context.WithoutCancel(ctx) // the answer is stored even if no call waits for it: the refresh token may count no longer
	got, err := c.Renew(ctx, now.Refresh, cmp.Or(now.Resource, now.Server))
	if e := tool.AsError(err); e != nil && e.Reason == oauth.Ended {
		return oauth.Access{}, nil
	}
	if err == nil && now.Key != nil {
		err = now.Key.CheckType(got.Type)
	}
	if err != nil {
		return oauth.Access{}, err
	}
	next := *now
	next.Access, next.Refresh, next.Expiry = got.Access, got.Refresh, time.Time{}
	if got.Lasts > 0 {
		next.Expiry = time.Now().Add(got.Lasts)
	}
	return oauth.Access{Token: next.Access, Key: next.Key}, t.store(&next)
}

// storeRefusal stores the refusal of a call, so that the next login can answer it.
func (t *tokenStore) storeRefusal(resp *http.Response) error {
	err := t.change(resp.Request.Context(), func(now *storedTokens) error {
		next := *now
		next.Server, next.Status, next.Challenge = t.server, resp.StatusCode, resp.Header.Values("Www-Authenticate")
		_, refused, _ := strings.Cut(resp.Request.Header.Get("Authorization"), " ")
		if resp.StatusCode == http.StatusUnauthorized && next.Access == refused { // not one that another program got meanwhile
			next.Access, next.Refresh = "", "" // no longer valid
		}
		return t.store(&next)
	})
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
