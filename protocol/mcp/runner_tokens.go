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

// TokenFile returns the file with the tokens of a source that a person logged in to: in the state folder, readable only
// by the owner of this installation. To remove the file is to log out.
func TokenFile(src config.Source) string {
	return src.StateDir("mcp", src.Name+".json")
}

// keys are the result of a login, and what the next login needs to know.
type keys struct {
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

// A keyring holds the tokens of one source. The file is authoritative: a login in another process changes it.
type keyring struct {
	path   string
	server string
	client *http.Client
	hush   func(name, value string) // registers a secret to be redacted, or nil

	mu   sync.Mutex
	seen time.Time // modification time of the file that kept was read from
	kept *keys
}

// maxKeys bounds the file. It is ours, so a large one is a mistake.
const maxKeys = 1 << 20

// read returns the keys in the file; they are empty if there is none, or if it is for another server.
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

// keep writes the file atomically, readable only by its owner.
func (k *keyring) keep(next *keys) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.store(next)
}

// hide has tokens redacted, in case a server repeats what it was sent.
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

// writePrivate writes a file atomically, readable only by its owner.
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

// early is how long before its expiry a token is renewed: it must still be valid when it arrives.
const early = 30 * time.Second

// token returns a token that should be valid, or "" if there is none.
func (k *keyring) token(ctx context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.load()
	if now.Refresh == "" || now.Expiry.IsZero() || time.Until(now.Expiry) > early {
		return now.Access, nil
	}
	return k.renew(ctx, now)
}

// again returns another token after one was refused, or "" if that takes a login.
func (k *keyring) again(ctx context.Context, refused string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.load()
	switch {
	case now.Access != refused: // replaced meanwhile, by a login or a renewal
		return now.Access, nil
	case now.Refresh == "":
		return "", nil
	}
	return k.renew(ctx, now)
}

// renew asks the authorization server for another token. The library could do it too, except that every such request
// must name the resource that the token is for.
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
	return next.Access, k.store(&next)
}

// refused stores the refusal of a call, so that the next login can answer it.
func (k *keyring) refused(resp *http.Response) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.load()
	next.Server, next.Status, next.Challenge = k.server, resp.StatusCode, resp.Header.Values("Www-Authenticate")
	if resp.StatusCode == http.StatusUnauthorized {
		next.Access, next.Refresh = "", "" // no longer valid
	}
	if err := k.store(&next); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
