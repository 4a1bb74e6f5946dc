// Package oauth is a client of authorization servers: it finds their endpoints, sends people to them, and gets, renews and
// revokes tokens. It keeps nothing. Requests stay away from addresses that only this machine can reach, and what a server
// answers is read within bounds; of its errors, only the code is repeated, since the rest may contain what we sent.
package oauth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// A Server is an authorization server: its endpoints, and what it says that it does. An empty endpoint is one that it does not have.
type Server struct {
	Issuer    string `json:"issuer"`
	Authorize string `json:"authorization_endpoint"`
	Token     string `json:"token_endpoint"`
	Device    string `json:"device_authorization_endpoint"`
	Revoke    string `json:"revocation_endpoint"`
	Register  string `json:"registration_endpoint"`
	// EndSession is a page that ends a person's session with the provider.
	EndSession string `json:"end_session_endpoint"`

	// Methods are the ways in which a client can send its secret to the token endpoint.
	Methods []string `json:"token_endpoint_auth_methods_supported"`
	// Algorithms are those of the signatures by which clients authenticate; empty if the server does not say.
	Algorithms []string `json:"token_endpoint_auth_signing_alg_values_supported"`
	// NamesItself is set if each answer in the browser has the issuer (RFC 9207).
	NamesItself bool `json:"authorization_response_iss_parameter_supported"`
}

// maxAnswer bounds what a server answers, in bytes.
const maxAnswer = 1 << 20

// Discover reads what a server publishes about itself, at the addresses of OpenID Connect and RFC 8414.
func Discover(ctx context.Context, c *http.Client, issuer string) (s Server, err error) {
	u, err := url.Parse(issuer)
	if err != nil || !Safe(issuer) {
		return s, tool.Errorf(tool.CodeInvalidInput, "the issuer %q is not an https address", issuer)
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	origin := u.Scheme + "://" + u.Host
	for _, at := range []string{
		origin + path + "/.well-known/openid-configuration", origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path,
	} {
		if s, err = published(ctx, c, at); err == nil {
			break
		}
	}
	if err != nil {
		return s, tool.Errorf(tool.CodeUnavailable, "%s does not say how it is used: %w", issuer, err)
	}
	if strings.TrimSuffix(s.Issuer, "/") != strings.TrimSuffix(issuer, "/") {
		return Server{}, tool.Errorf(tool.CodeAccessDenied, "%s says that it is another issuer", issuer).Because("issuer")
	}
	for _, endpoint := range []string{s.Authorize, s.Token, s.Device, s.Revoke, s.Register, s.EndSession} {
		if endpoint != "" && !Safe(endpoint) {
			return Server{}, tool.Errorf(tool.CodeAccessDenied, "%s names an endpoint that is not an https address", issuer)
		}
	}
	return s, nil
}

// How long it is remembered what a server publishes, and that it did not answer: everyone can begin to sign in, and would otherwise make
// us send a request each time.
const (
	serverAge  = time.Minute
	failureAge = 2 * time.Second
	findTime   = 10 * time.Second
)

// Servers are those of which a program remembers what they publish. The zero value is ready to use.
type Servers struct{ known sync.Map } // of *foundServer, by issuer

type foundServer struct {
	mu sync.Mutex
	Server
	err   error
	until time.Time
}

// Find returns what a server publishes, or did so a short while ago.
func (s *Servers) Find(ctx context.Context, c *http.Client, issuer string) (Server, error) {
	known, _ := s.known.LoadOrStore(issuer, &foundServer{})
	f := known.(*foundServer)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !time.Now().Before(f.until) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTime) // others wait for the same answer
		defer cancel()
		age := serverAge
		if f.Server, f.err = Discover(ctx, c, issuer); f.err != nil {
			age = failureAge
		}
		f.until = time.Now().Add(age)
	}
	return f.Server, f.err
}

// published reads one of the documents.
func published(ctx context.Context, c *http.Client, at string) (s Server, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return s, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return s, withoutURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, errors.New(clip(resp.Status))
	}
	body, err := bounded.ReadDocument(resp.Body, maxAnswer)
	if err == nil {
		err = strictjson.Unmarshal(body, &s)
	}
	return s, err
}

// Safe reports whether an address is one to which a secret can be sent: https, or on this machine.
func Safe(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && Loopback(u)
}

// Loopback reports whether an address is on this machine.
func Loopback(u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// withoutURL returns why a request failed, without its address, which may contain a secret.
func withoutURL(err error) error {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		return sent.Err
	}
	return err
}

// clip returns a short text of a server, without anything that a terminal would obey.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
	return text[:min(len(text), 60)]
}
