// Package idp starts OpenID providers for tests, each in a process of its own, which tests control over a second port: its users,
// how long tokens live, and what goes wrong.
//
// A provider has the authorization code flow (with PKCE), device codes, refresh tokens that rotate, client credentials, token
// exchange, userinfo, revocation, end_session and back-channel logout. Its login form has one field, the subject of a user; there
// are no passwords. Login and Approve fill in its forms without a browser.
package idp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
)

// A User is a person who can sign in, and the claims of the ID tokens.
type User struct {
	Sub           string         `json:"sub"`
	Email         string         `json:"email"`
	EmailVerified bool           `json:"email_verified"`
	Name          string         `json:"name"`
	Groups        []string       `json:"groups"`
	Claims        map[string]any `json:"claims"` // further ones
}

// A Client is a program that people sign in to. It has all grants.
type Client struct {
	ID          string   `json:"id"`
	Secret      string   `json:"secret"` // empty for a public client, which must use PKCE
	Redirects   []string `json:"redirects"`
	AfterLogout []string `json:"after_logout"` // addresses to which end_session may send a browser
	LogoutURL   string   `json:"logout_url"`   // for back-channel logout
	// JWTAccess: its access tokens are JWTs, whose audience is the parameter resource of the token request. Without it they
	// are opaque, and cannot be exchanged.
	JWTAccess    bool `json:"jwt_access"`
	CannotDevice bool `json:"cannot_device"` // it may not use device codes
}

// Settings say how a provider behaves. The zero value is a provider without faults whose tokens live for five minutes.
type Settings struct {
	AccessLifetime  time.Duration  `json:"access_lifetime"`
	IDLifetime      time.Duration  `json:"id_lifetime"`
	RefreshLifetime time.Duration  `json:"refresh_lifetime"` // zero: five hours
	Skew            time.Duration  `json:"skew"`             // by which the provider's clock is ahead in the JWTs that it signs
	Claims          map[string]any `json:"claims"`           // replace claims of ID tokens, such as aud, iss and nonce; nil removes one
	AccessClaims    map[string]any `json:"access_claims"`    // the same for access tokens that are JWTs
	Metadata        map[string]any `json:"metadata"`         // replace fields of the discovery document; nil removes one
	ResponseIssuer  string         `json:"response_issuer"`  // the parameter `iss` of responses; empty: the issuer; "-": none
	Deny            bool           `json:"deny"`             // people deny what they are asked
	StaysValid      bool           `json:"stays_valid"`      // a refresh token does not rotate
	NoRefresh       bool           `json:"no_refresh"`       // there are no refresh tokens in token responses
	NoOtherID       bool           `json:"no_other_id"`      // there are no ID tokens in the responses to refresh tokens
	Slow            time.Duration  `json:"slow"`             // before the token endpoint answers
	// Down: "refuse" closes connections without an answer, "500" answers with that status, "limit" answers token requests with
	// slow_down, and "answer" does what a token request asks and closes the connection instead of answering it.
	Down string `json:"down"`
}

// A Request is one that the provider has answered.
type Request struct {
	Path   string `json:"path"`
	Grant  string `json:"grant"` // of a token request, such as refresh_token
	Client string `json:"client"`
	Sub    string `json:"sub"` // of a login, an approval, or a call of the API
	Status int    `json:"status"`
	Error  string `json:"error"` // of OAuth
}

// A Provider is a running provider.
type Provider struct {
	Issuer string
	// API is a resource that answers GET with {"sub": …, "token_id": …} to requests with a live access token, and 401 otherwise.
	API string

	control string
	t       testing.TB
}

// Start starts a provider at 127.0.0.1, which ends with the test. It has no users and no clients.
func Start(t testing.TB) *Provider {
	t.Helper()
	return StartOn(t, "127.0.0.1")
}

// StartOn is Start with another name of this machine in the issuer: for browsers, localhost and 127.0.0.1 are two sites.
func StartOn(t testing.TB, host string) *Provider {
	t.Helper()
	file := kit.Must(program())(t)
	cmd := exec.CommandContext(context.Background(), fmt.Sprint("/proc/self/fd/", file.Fd()), host) // it ends with its input
	cmd.Stderr = os.Stderr
	in := kit.Must(cmd.StdinPipe())(t)
	out := kit.Must(cmd.StdoutPipe())(t)
	kit.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		kit.Check(t, cmd.Wait(), "the provider")
	})
	var at struct{ Issuer, Control string }
	kit.OK(t, json.Unmarshal(kit.Must(bufio.NewReader(out).ReadBytes('\n'))(t), &at))
	return &Provider{Issuer: at.Issuer, API: at.Issuer + "/api/whoami", control: at.Control, t: t}
}

// program builds the provider's program, once for all tests of a test binary. They start it by an open file, since other test
// binaries may build it again in the same place, and replace it.
var program = sync.OnceValues(func() (*os.File, error) {
	mod, err := exec.CommandContext(context.Background(), "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(filepath.Dir(string(mod)), "build", "tests")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "idp.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "idp")
	build := exec.CommandContext(context.Background(), "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", path,
		"toolpost/internal/idp/provider")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return os.Open(path)
})

// Set replaces the settings.
func (p *Provider) Set(s Settings) { p.order("/settings", s, nil) }

// SetUser adds or replaces a user.
func (p *Provider) SetUser(u User) { p.order("/users", u, nil) }

// Client adds or replaces a client, and returns its id.
func (p *Provider) Client(c Client) string {
	p.order("/clients", c, nil)
	return c.ID
}

// Rotate makes another key, for RS256 or ES256, and signs with it. With withdraw, the earlier ones are published no longer.
func (p *Provider) Rotate(algorithm string, withdraw bool) {
	p.order("/rotate", map[string]any{"algorithm": algorithm, "withdraw": withdraw}, nil)
}

// Sign signs claims as the provider does, with the type of the token in its header; iss, iat and exp are added if they are missing.
func (p *Provider) Sign(typ string, claims map[string]any) (token string) {
	p.order("/sign", map[string]any{"typ": typ, "claims": claims}, &token)
	return token
}

// LogOut ends all sessions of a user, and tells the clients with a LogoutURL. It returns the status of each answer, by client.
func (p *Provider) LogOut(sub string) (answers map[string]int) {
	p.order("/logout", map[string]string{"sub": sub}, &answers)
	return answers
}

// ApprovePending approves the device codes that wait, without their user codes, and returns how many there are.
func (p *Provider) ApprovePending(sub string) (n int) {
	p.order("/approve", map[string]string{"sub": sub}, &n)
	return n
}

// Revoke withdraws the refresh and access tokens of a user, and tells no client.
func (p *Provider) Revoke(sub string) { p.order("/revoke", map[string]string{"sub": sub}, nil) }

// Requests returns what the provider has answered, in its order.
func (p *Provider) Requests() (all []Request) {
	p.order("/requests", nil, &all)
	return all
}

// Count returns how many token requests with a grant had a status.
func (p *Provider) Count(grant string, status int) (n int) {
	for _, r := range p.Requests() {
		if r.Grant == grant && r.Status == status {
			n++
		}
	}
	return n
}

// Issued returns all tokens and codes that the provider has given out: a test can look for them in logs and files.
func (p *Provider) Issued() (all []string) {
	p.order("/issued", nil, &all)
	return all
}

func (p *Provider) order(path string, body, answer any) {
	p.t.Helper()
	b := kit.Must(json.Marshal(body))(p.t)
	resp := kit.Must(http.Post(p.control+path, "application/json", bytes.NewReader(b)))(p.t)
	defer resp.Body.Close()
	text := kit.Must(io.ReadAll(resp.Body))(p.t)
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("the provider's %s: %s: %s", path, resp.Status, text)
	}
	if answer != nil {
		kit.OK(p.t, json.Unmarshal(text, answer))
	}
}

// Login opens an address that leads to the provider's login form, signs in as a user, and follows all redirects. Its client keeps
// cookies, so its session with the page that it returns to lasts.
func (p *Provider) Login(c *http.Client, address, sub string) *http.Response {
	p.t.Helper()
	if c.Jar == nil {
		c.Jar = kit.Must(cookiejar.New(nil))(p.t)
	}
	resp := kit.Must(c.Get(address))(p.t)
	_ = resp.Body.Close()
	form := resp.Request.URL
	if !strings.HasPrefix(form.String(), p.Issuer+"/login") {
		p.t.Fatalf("%s leads to %s, and not to the login form: %s", address, form, resp.Status)
	}
	return kit.Must(c.PostForm(p.Issuer+"/login", url.Values{"id": form.Query()["id"], "sub": {sub}}))(p.t)
}

// Approve signs in as a user and approves a device code, as it was shown; or denies it, if the settings say so.
func (p *Provider) Approve(userCode, sub string) {
	p.t.Helper()
	resp := kit.Must(http.PostForm(p.Issuer+"/device", url.Values{"user_code": {userCode}, "sub": {sub}}))(p.t)
	text := kit.Must(io.ReadAll(resp.Body))(p.t)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("the code %s cannot be approved: %s: %s", userCode, resp.Status, text)
	}
}
