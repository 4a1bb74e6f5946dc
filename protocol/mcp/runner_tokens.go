package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
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
	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// TokenFile is where the tokens of a source lie that a person logged in to: in the state folder, for the owner of this
// installation alone. Whoever removes the file has logged out.
func TokenFile(src config.Source) string {
	return src.StateDir("mcp", src.Name+".json")
}

// keys are what a login brought, and what the next one has to know.
type keys struct {
	Server   string `json:"server"` // the tokens are for this address and no other
	Resource string `json:"resource,omitzero"`

	// The client that got the tokens; it can do nothing elsewhere.
	TokenURL     string `json:"token_url,omitzero"`
	ClientID     string `json:"client_id,omitzero"`
	ClientSecret string `json:"client_secret,omitzero"`
	InHeader     bool   `json:"in_header,omitzero"` // where the client shows its secret

	Access  string    `json:"access_token,omitzero"`
	Refresh string    `json:"refresh_token,omitzero"`
	Expiry  time.Time `json:"expiry,omitzero"`
	Scopes  []string  `json:"scopes,omitzero"`

	// The refusal that a call came to since: the next login answers it.
	Status    int      `json:"status,omitzero"`
	Challenge []string `json:"challenge,omitzero"`
}

func newKeys(server string, c *oauth2.Config, t *oauth2.Token) *keys {
	k := &keys{
		Server: server, TokenURL: c.Endpoint.TokenURL, ClientID: c.ClientID, ClientSecret: c.ClientSecret,
		InHeader: c.Endpoint.AuthStyle == oauth2.AuthStyleInHeader, Scopes: c.Scopes,
		Access: t.AccessToken, Refresh: t.RefreshToken, Expiry: t.Expiry,
	}
	if granted, ok := t.Extra("scope").(string); ok && granted != "" {
		k.Scopes = strings.Fields(granted)
	}
	return k
}

// A keyring keeps the tokens of one source. The file is the truth: a login in another process changes it.
type keyring struct {
	path   string
	server string
	client *http.Client
	hush   func(name, value string) // nil: there is nobody who redacts

	mu   sync.Mutex
	seen time.Time // when the file was changed that kept is from
	kept *keys
}

// maxKeys bounds the file. It is ours, and a large one is a mistake.
const maxKeys = 1 << 20

// read gives what the file has; empty keys: there is none, or it is for another server.
func (k *keyring) read() *keys {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.load()
}

func (k *keyring) load() *keys {
	info, err := os.Stat(k.path)
	if err != nil {
		k.kept = nil
		return &keys{}
	}
	if k.kept == nil || !info.ModTime().Equal(k.seen) {
		var found keys
		if f, err := os.Open(k.path); err == nil {
			body, err := process.ReadDocument(f, maxKeys)
			_ = f.Close()
			if err != nil || strictjson.Unmarshal(body, &found) != nil {
				found = keys{}
			}
			k.hide(&found)
		}
		k.kept, k.seen = &found, info.ModTime()
	}
	if k.kept.Server != k.server {
		return &keys{}
	}
	return k.kept
}

// keep writes the file, as a whole and for its owner alone.
func (k *keyring) keep(next *keys) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.store(next)
}

// hide has tokens redacted: a server that repeats what it was sent shows them to nobody.
func (k *keyring) hide(found *keys) {
	if k.hush == nil {
		return
	}
	for _, one := range []string{found.Access, found.Refresh, found.ClientSecret} {
		if one != "" {
			k.hush("a token of "+strings.TrimSuffix(filepath.Base(k.path), ".json"), one)
		}
	}
}

func (k *keyring) store(next *keys) error {
	k.hide(next)
	body, err := json.MarshalIndent(next, "", "  ") //nolint:gosec // to keep secrets is what it is for
	if err == nil {
		err = writePrivate(k.path, append(body, '\n'))
	}
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the tokens for %s cannot be kept: %w", next.Server, err)
	}
	k.kept = nil
	return nil
}

// writePrivate puts a file into its place that only its owner can read, never half of it.
func writePrivate(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	next := ".new-" + rand.Text()
	if err := root.WriteFile(next, text, 0o600); err != nil {
		return errors.Join(err, root.Remove(next))
	}
	if err := root.Rename(next, filepath.Base(path)); err != nil {
		return errors.Join(err, root.Remove(next))
	}
	return nil
}

// early is how long before its end a token is renewed: it has to be good when it arrives.
const early = 30 * time.Second

// token gives a token that should be good; "": there is none.
func (k *keyring) token(ctx context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.load()
	if now.Refresh == "" || now.Expiry.IsZero() || time.Until(now.Expiry) > early {
		return now.Access, nil
	}
	return k.renew(ctx, now)
}

// again gives another token after one was refused; "": only a person can bring one.
func (k *keyring) again(ctx context.Context, refused string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.load()
	switch {
	case now.Access != refused: // somebody has brought one meanwhile
		return now.Access, nil
	case now.Refresh == "":
		return "", nil
	}
	return k.renew(ctx, now)
}

// renew asks the authorization server for another token. The library would do it too, but for the resource that the
// token is to be good for, which every request for one has to name.
func (k *keyring) renew(ctx context.Context, now *keys) (string, error) {
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
	resp, err := k.client.Do(req)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "the authorization server cannot be reached: %w", withoutURL(err))
	}
	defer resp.Body.Close()
	body, err := process.ReadDocument(resp.Body, maxKeys)
	var got struct {
		Access  string          `json:"access_token"`
		Refresh string          `json:"refresh_token"`
		Expires json.RawMessage `json:"expires_in"` // a number; some write it as a string
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
	return next.Access, k.store(&next)
}

// refused notes the refusal that a call came to, so that the next login can answer it.
func (k *keyring) refused(resp *http.Response) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.load()
	next.Server, next.Status, next.Challenge = k.server, resp.StatusCode, resp.Header.Values("Www-Authenticate")
	if resp.StatusCode == http.StatusUnauthorized {
		next.Access, next.Refresh = "", "" // they are of no use any more
	}
	if err := k.store(&next); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
