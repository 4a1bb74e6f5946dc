package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// A Client is this program as one server knows it.
type Client struct {
	Server
	ID, Secret string
	Scopes     []string
	Params     map[string]string // that the server wants in addition, when a person is sent to it
	HTTP       *http.Client
}

// A Token is what a server grants.
type Token struct {
	Access  string
	ID      string        // the ID token of OpenID Connect; empty if there is none
	Refresh string        // empty if there is none
	Lasts   time.Duration // 0 if the server does not say
	Scopes  []string      // nil if the server does not say
	Type    string        // Bearer or DPoP, or another of an exchange
	Issued  string        // the kind of token, if it is the outcome of an exchange (RFC 8693)
}

// A Refused is the error that a server answers with.
type Refused struct{ Code string }

// Final reports whether the grant is over, so that it can be forgotten. All other refusals may end: a limit is over, a client's secret is
// put right. GitHub and Slack have codes of their own.
func (r *Refused) Final() bool {
	return slices.Contains([]string{"invalid_grant", "bad_refresh_token", "invalid_refresh_token"}, r.Code)
}

// Error implements error.
func (r *Refused) Error() string {
	return "refused by the provider: " + cmp.Or(clip(r.Code), "no reason")
}

// The codes that a server answers while a person has not decided at another device yet.
const (
	Pending  = "authorization_pending"
	SlowDown = "slow_down"
)

// AuthorizeURL returns the address at which a person decides. The server sends the browser back to redirect, with the state.
func (c *Client) AuthorizeURL(state, verifier, redirect string) (string, error) {
	u, err := url.Parse(c.Authorize)
	if err != nil || c.Authorize == "" {
		return "", tool.Errorf(tool.CodeUnsupported, "the provider has no page where a person can agree")
	}
	q := u.Query()
	for name, value := range c.Params {
		q.Set(name, value)
	}
	q.Set("response_type", "code")
	q.Set("client_id", c.ID)
	q.Set("redirect_uri", redirect)
	q.Set("state", state)
	q.Set("code_challenge", oauth2.S256ChallengeFromVerifier(verifier))
	q.Set("code_challenge_method", "S256")
	c.scope(q)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// Union joins lists of scopes without duplicates.
func Union(lists ...[]string) (all []string) {
	for _, one := range slices.Concat(lists...) {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

func (c *Client) scope(form url.Values) {
	if len(c.Scopes) > 0 {
		form.Set("scope", strings.Join(c.Scopes, " "))
	}
}

// Exchange gets the token for a code that the browser brought.
func (c *Client) Exchange(ctx context.Context, code, verifier, redirect string) (Token, error) {
	return c.token(ctx, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier}, "redirect_uri": {redirect},
	})
}

// Ended is the reason of the error that a grant is over, so that it can be forgotten.
const Ended = "grant_ended"

// Renew gets another token, for a resource if that is not empty. Its refresh token is the one to use next time: the server may replace it,
// and accept the previous one no longer. A grant that is over is an error with the reason Ended; after any other it can be tried again.
func (c *Client) Renew(ctx context.Context, refresh, resource string) (Token, error) {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}}
	if resource != "" {
		form.Set("resource", resource)
	}
	t, err := c.token(ctx, form)
	t.Refresh = cmp.Or(t.Refresh, refresh)
	switch no, is := errors.AsType[*Refused](err); {
	case is && no.Final():
		err = tool.Errorf(tool.CodeAccessDenied, "the grant is over: %w", no).Because(Ended)
	case is:
		err = tool.Errorf(tool.CodeUnavailable, "the token cannot be renewed now: %w", no)
	}
	return t, err
}

// Machine gets a token of the client itself.
func (c *Client) Machine(ctx context.Context) (Token, error) {
	return c.Grant(ctx, url.Values{"grant_type": {"client_credentials"}})
}

// Grant gets a token for another grant: the form has its type and whatever else belongs to it.
func (c *Client) Grant(ctx context.Context, form url.Values) (Token, error) {
	c.scope(form)
	return c.token(ctx, form)
}

// A Device is what a person needs at another device, and what this program needs to ask whether the person has decided.
type Device struct {
	Code     string          `json:"device_code"`
	User     string          `json:"user_code"`
	Address  string          `json:"verification_uri"`
	Complete string          `json:"verification_uri_complete"`
	Lasts    json.RawMessage `json:"expires_in"`
	Every    json.RawMessage `json:"interval"`
}

// StartDevice asks for a code that a person types at another device.
func (c *Client) StartDevice(ctx context.Context) (d Device, err error) {
	if c.Device == "" {
		return d, tool.Errorf(tool.CodeUnsupported, "the provider has no codes for devices; use a browser")
	}
	form := url.Values{}
	c.scope(form)
	body, err := c.post(ctx, c.Device, form)
	if err == nil {
		err = strictjson.Unmarshal(body, &d)
	}
	if err == nil && (d.Code == "" || d.User == "" || !Safe(d.Address)) {
		err = tool.Errorf(tool.CodeProtocol, "the provider gave no code for a device")
	}
	return d, err
}

const grantDevice = "urn:ietf:params:oauth:grant-type:device_code"

// PollDevice asks once whether the person has decided; the error Refused has the code Pending or SlowDown if not.
func (c *Client) PollDevice(ctx context.Context, code string) (Token, error) {
	return c.token(ctx, url.Values{"grant_type": {grantDevice}, "device_code": {code}})
}

// Forget revokes a token (RFC 7009). A server without an endpoint for that is left alone.
func (c *Client) Forget(ctx context.Context, token, kind string) error {
	if c.Revoke == "" || token == "" {
		return nil
	}
	_, err := c.post(ctx, c.Revoke, url.Values{"token": {token}, "token_type_hint": {kind}})
	return err
}

// Enrol registers this program with a server that lets clients do so (RFC 7591), and returns its id and its secret.
func (c *Client) Enrol(ctx context.Context, redirects []string) (id, secret string, err error) {
	if c.Register == "" {
		return "", "", tool.Errorf(tool.CodeInvalidInput, "the provider registers no clients: register one there, and give its client_id")
	}
	grants := []string{"authorization_code", "refresh_token"}
	if c.Device != "" {
		grants = append(grants, grantDevice)
	}
	made, err := oauthex.RegisterClient(ctx, c.Register, &oauthex.ClientRegistrationMetadata{
		ClientName: "Toolpost", RedirectURIs: redirects, ResponseTypes: []string{"code"}, GrantTypes: grants, TokenEndpointAuthMethod: "none",
	}, c.HTTP)
	if err != nil {
		return "", "", tool.Errorf(tool.CodeAccessDenied, "the provider does not register this program: %s", clip(err.Error()))
	}
	return made.ClientID, made.ClientSecret, nil
}

const typeForm = "application/x-www-form-urlencoded"

// token reads the answer of the token endpoint.
func (c *Client) token(ctx context.Context, form url.Values) (t Token, err error) {
	body, err := c.post(ctx, c.Token, form)
	if err != nil {
		return t, err
	}
	var got struct {
		Access  string          `json:"access_token"`
		ID      string          `json:"id_token"`
		Refresh string          `json:"refresh_token"`
		Expires json.RawMessage `json:"expires_in"`
		Scope   string          `json:"scope"`
		Type    string          `json:"token_type"`
		Issued  string          `json:"issued_token_type"`
	}
	if err := strictjson.Unmarshal(body, &got); err != nil || got.Access == "" {
		return t, tool.Errorf(tool.CodeProtocol, "the provider gave no token")
	}
	t = Token{
		Access: got.Access, ID: got.ID, Refresh: got.Refresh, Lasts: Seconds(got.Expires, 0), Type: got.Type, Issued: got.Issued,
	}
	if got.Scope != "" {
		t.Scopes = strings.FieldsFunc(got.Scope, func(r rune) bool { return r == ' ' || r == ',' })
	}
	return t, nil
}

// Seconds reads a duration, a number that some servers send as a string, with a fraction or with an exponent.
func Seconds(text json.RawMessage, otherwise time.Duration) time.Duration {
	n, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if err == nil && n > 0 && n <= math.MaxInt32 { // neither holds for NaN
		return time.Duration(n * float64(time.Second))
	}
	return otherwise
}

// post sends a form. An answer with an error is a Refused; anything else that is no success is worth another try.
func (c *Client) post(ctx context.Context, to string, form url.Values) ([]byte, error) {
	inHeader := c.Secret != "" && !slices.Contains(c.Methods, "client_secret_post")
	if !inHeader && c.ID != "" {
		form.Set("client_id", c.ID)
		if c.Secret != "" {
			form.Set("client_secret", c.Secret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the provider has no such endpoint")
	}
	req.Header.Set("Content-Type", typeForm)
	req.Header.Set("Accept", "application/json")
	if inHeader {
		req.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret))
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the provider at %s cannot be reached: %w", req.URL.Host, withoutURL(err))
	}
	defer resp.Body.Close()
	body, err := bounded.ReadDocument(resp.Body, maxAnswer)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the answer of the provider at %s cannot be read: %w", req.URL.Host, err)
	}
	var said struct {
		Error string `json:"error"`
	}
	if strictjson.Unmarshal(body, &said) == nil && said.Error != "" && resp.StatusCode < 500 && said.Error != "temporarily_unavailable" {
		return nil, &Refused{said.Error}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, tool.Errorf(tool.CodeUnavailable, "the provider at %s answered %s", req.URL.Host, clip(resp.Status))
	}
	return body, nil
}
