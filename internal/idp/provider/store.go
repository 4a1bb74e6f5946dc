package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"toolpost/internal/idp"
)

// A state is all that the provider remembers.
type state struct {
	mu       sync.Mutex
	settings idp.Settings
	users    map[string]idp.User
	clients  map[string]idp.Client
	keys     []key             // the last one signs
	logins   map[string]*grant // that people have begun, by id
	codes    map[string]*grant
	refresh  map[string]*grant // by refresh token
	access   map[string]*token // by id
	devices  map[string]*device
	requests []idp.Request
	issued   []string
}

// A token is an access token.
type token struct {
	client, sub string
	scopes      []string
	ends        time.Time
}

// A device is a device code that waits for a person.
type device struct {
	userCode string
	op.DeviceAuthorizationState
}

// A grant is what a person granted to a client.
type grant struct {
	oidc.AuthRequest
	id, client, sub string
	granted         time.Time // zero: not yet
	ends            time.Time // of the refresh token
}

func (g *grant) GetID() string                      { return g.id }
func (g *grant) GetACR() string                     { return "" }
func (g *grant) GetAMR() []string                   { return []string{"pwd"} }
func (g *grant) GetAudience() []string              { return []string{g.client} }
func (g *grant) GetAuthTime() time.Time             { return g.granted }
func (g *grant) GetClientID() string                { return g.client }
func (g *grant) GetNonce() string                   { return g.Nonce }
func (g *grant) GetRedirectURI() string             { return g.RedirectURI }
func (g *grant) GetResponseType() oidc.ResponseType { return g.ResponseType }
func (g *grant) GetResponseMode() oidc.ResponseMode { return g.ResponseMode }
func (g *grant) GetScopes() []string                { return g.Scopes }
func (g *grant) GetState() string                   { return g.State }
func (g *grant) GetSubject() string                 { return g.sub }
func (g *grant) Done() bool                         { return !g.granted.IsZero() }
func (g *grant) SetCurrentScopes(scopes []string)   { g.Scopes = scopes }
func (g *grant) GetCodeChallenge() *oidc.CodeChallenge {
	if g.CodeChallenge == "" {
		return nil
	}
	return &oidc.CodeChallenge{Challenge: g.CodeChallenge, Method: g.CodeChallengeMethod}
}

// A refreshed is a grant that is used again: without the nonce of the first time, and no op.AuthRequest.
type refreshed struct{ op.RefreshTokenRequest }

// A key signs tokens.
type key struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
}

func (k key) ID() string                                  { return k.id }
func (k key) SignatureAlgorithm() jose.SignatureAlgorithm { return k.algorithm }
func (k key) Algorithm() jose.SignatureAlgorithm          { return k.algorithm }
func (k key) Use() string                                 { return "sig" }
func (k key) Key() any                                    { return k.private }

// A public is the other half of a key.
type public struct{ key }

func (k public) Key() any { return k.private.Public() }

func newKey(algorithm string) (k key, err error) {
	k = key{id: rand.Text(), algorithm: jose.SignatureAlgorithm(algorithm)}
	switch k.algorithm {
	case jose.RS256:
		k.private, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		err = errors.New("it signs with RS256 or ES256")
	}
	return k, err
}

func newState() (*state, error) {
	first, err := newKey("RS256")
	return &state{
		users: map[string]idp.User{}, clients: map[string]idp.Client{}, keys: []key{first}, logins: map[string]*grant{},
		codes: map[string]*grant{}, refresh: map[string]*grant{}, access: map[string]*token{}, devices: map[string]*device{},
	}, err
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// find returns an element of a map of the state.
func find[V any](s *state, in map[string]V, id string) (V, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := in[id]
	if !ok {
		return v, errors.New("not found")
	}
	return v, nil
}

func (s *state) CreateAuthRequest(_ context.Context, r *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	if slices.Contains(r.Prompt, oidc.PromptNone) {
		return nil, oidc.ErrLoginRequired()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &grant{AuthRequest: *r, id: rand.Text(), client: r.ClientID}
	s.logins[g.id] = g
	return g, nil
}

func (s *state) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	g, err := find(s, s.logins, id)
	return g, err
}

func (s *state) AuthRequestByCode(_ context.Context, code string) (op.AuthRequest, error) {
	g, err := find(s, s.codes, code)
	return g, err
}

func (s *state) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code] = s.logins[id]
	s.issued = append(s.issued, code)
	return nil
}

// DeleteAuthRequest makes the code useless: it was used.
func (s *state) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logins, id)
	maps.DeleteFunc(s.codes, func(_ string, g *grant) bool { return g.id == id })
	return nil
}

// newAccess makes an access token. The caller holds the lock.
func (s *state) newAccess(r op.TokenRequest) (id string, ends time.Time) {
	t := &token{sub: r.GetSubject(), scopes: r.GetScopes(), ends: time.Now().Add(orDefault(s.settings.AccessLifetime, 5*time.Minute))}
	if by, ok := r.(interface{ GetClientID() string }); ok {
		t.client = by.GetClientID()
	}
	if d, ok := r.(*op.DeviceAuthorizationState); ok { // the code was used
		maps.DeleteFunc(s.devices, func(_ string, one *device) bool { return &one.DeviceAuthorizationState == d })
	}
	id = rand.Text()
	s.access[id] = t
	return id, t.ends
}

func (s *state) CreateAccessToken(_ context.Context, r op.TokenRequest) (string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ends := s.newAccess(r)
	return id, ends, nil
}

func (s *state) CreateAccessAndRefreshTokens(_ context.Context, r op.TokenRequest, current string) (string, string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var g *grant
	switch r := r.(type) {
	case *grant:
		g = r
	case refreshed:
		g = s.refresh[current]
		if g == nil { // it was used a moment ago
			return "", "", time.Time{}, oidc.ErrInvalidGrant()
		}
	case op.IDTokenRequest: // a device, or an exchange
		g = &grant{id: rand.Text(), client: r.GetClientID(), sub: r.GetSubject(), granted: r.GetAuthTime()}
		g.Scopes = r.GetScopes()
	}
	next := "idp_refresh_" + rand.Text()
	if current != "" && s.settings.StaysValid {
		next = current
	}
	delete(s.refresh, current)
	g.ends = time.Now().Add(orDefault(s.settings.RefreshLifetime, 5*time.Hour))
	s.refresh[next] = g
	id, ends := s.newAccess(r)
	return id, next, ends, nil
}

func (s *state) TokenRequestByRefreshToken(_ context.Context, text string) (op.RefreshTokenRequest, error) {
	g, err := find(s, s.refresh, text)
	if err == nil && time.Now().After(g.ends) {
		err = errors.New("the refresh token has expired")
	}
	if err != nil {
		return nil, err
	}
	copied := *g
	return refreshed{&copied}, nil
}

func (s *state) TerminateSession(_ context.Context, sub, _ string) error {
	s.forget(sub)
	return nil
}

// forget withdraws all tokens of a user.
func (s *state) forget(sub string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.refresh, func(_ string, g *grant) bool { return g.sub == sub })
	maps.DeleteFunc(s.access, func(_ string, t *token) bool { return t.sub == sub })
}

func (s *state) RevokeToken(_ context.Context, text, _, client string) *oidc.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.access[text]; t != nil && t.client == client {
		delete(s.access, text)
	}
	if g := s.refresh[text]; g != nil && g.client == client {
		delete(s.refresh, text)
		maps.DeleteFunc(s.access, func(_ string, t *token) bool { return t.sub == g.sub && t.client == client })
	}
	return nil
}

func (s *state) GetRefreshTokenInfo(_ context.Context, _, text string) (sub, id string, err error) {
	g, err := find(s, s.refresh, text)
	if err != nil {
		return "", "", op.ErrInvalidRefreshToken
	}
	return g.sub, text, nil
}

func (s *state) SigningKey(context.Context) (op.SigningKey, error) { return s.key(), nil }

func (s *state) key() key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[len(s.keys)-1]
}

func (s *state) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256}, nil
}

func (s *state) KeySet(context.Context) (all []op.Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		all = append(all, public{k})
	}
	return all, nil
}

func (s *state) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	c, err := find(s, s.clients, id)
	if err != nil {
		return nil, oidc.ErrInvalidClient().WithParent(err)
	}
	return client{c, orDefault(s.now().IDLifetime, 5*time.Minute)}, nil
}

// now returns the present settings.
func (s *state) now() idp.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

func (s *state) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	c, err := find(s, s.clients, id)
	if err != nil || c.Secret == "" || c.Secret != secret {
		return oidc.ErrInvalidClient().WithDescription("wrong client or secret")
	}
	return nil
}

func (s *state) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil // see SetUserinfoFromRequest
}

func (s *state) SetUserinfoFromRequest(_ context.Context, to *oidc.UserInfo, r op.IDTokenRequest, _ []string) error {
	if again, ok := r.(refreshed); ok {
		r = again.RefreshTokenRequest.(*grant)
	}
	if g, ok := r.(*grant); ok {
		to.AppendClaims("sid", g.id)
	}
	return s.describe(to, r.GetSubject())
}

// describe writes the claims of a user.
func (s *state) describe(to *oidc.UserInfo, sub string) error {
	u, err := find(s, s.users, sub)
	to.Subject, to.Email, to.EmailVerified, to.Name = sub, u.Email, oidc.Bool(u.EmailVerified), u.Name
	if u.Groups != nil {
		to.AppendClaims("groups", u.Groups)
	}
	for name, v := range u.Claims {
		to.AppendClaims(name, v)
	}
	return err
}

func (s *state) live(id string) (*token, error) {
	t, err := find(s, s.access, id)
	if err == nil && time.Now().After(t.ends) {
		err = errors.New("the access token has expired")
	}
	return t, err
}

func (s *state) SetUserinfoFromToken(_ context.Context, to *oidc.UserInfo, id, _, _ string) error {
	t, err := s.live(id)
	if err != nil {
		return err
	}
	return s.describe(to, t.sub)
}

func (s *state) SetIntrospectionFromToken(_ context.Context, to *oidc.IntrospectionResponse, id, _, _ string) error {
	t, err := s.live(id)
	if err == nil {
		to.Subject, to.ClientID, to.Scope = t.sub, t.client, t.scopes
	}
	return err
}

func (s *state) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return map[string]any{}, nil
}

func (s *state) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errors.New("no client has keys")
}

func (s *state) ValidateJWTProfileScopes(_ context.Context, _ string, scopes []string) ([]string, error) {
	return scopes, nil
}

func (s *state) Health(context.Context) error { return nil }

func (s *state) ClientCredentials(ctx context.Context, id, secret string) (op.Client, error) {
	if err := s.AuthorizeClientIDSecret(ctx, id, secret); err != nil {
		return nil, err
	}
	return s.GetClientByClientID(ctx, id)
}

func (s *state) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	return &oidc.JWTTokenRequest{Subject: id, Audience: []string{id}, Scopes: scopes}, nil
}

func (s *state) ValidateTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) error {
	if r.GetRequestedTokenType() == "" {
		r.SetRequestedTokenType(oidc.AccessTokenType)
	}
	return nil
}

func (s *state) CreateTokenExchangeRequest(context.Context, op.TokenExchangeRequest) error {
	return nil
}

// GetPrivateClaimsFromTokenExchangeRequest names the actor, with those before it.
func (s *state) GetPrivateClaimsFromTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) (map[string]any, error) {
	claims := map[string]any{}
	if actor := r.GetExchangeActor(); actor != "" {
		act := map[string]any{"sub": actor}
		if before, ok := r.GetExchangeSubjectTokenClaims()["act"]; ok {
			act["act"] = before
		}
		claims["act"] = act
	}
	return claims, nil
}

func (s *state) SetUserinfoFromTokenExchangeRequest(ctx context.Context, to *oidc.UserInfo, r op.TokenExchangeRequest) error {
	claims, _ := s.GetPrivateClaimsFromTokenExchangeRequest(ctx, r)
	for name, v := range claims {
		to.AppendClaims(name, v)
	}
	return s.describe(to, r.GetSubject())
}

func (s *state) StoreDeviceAuthorization(_ context.Context, client, code, userCode string, ends time.Time, scopes []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices[code] = &device{userCode, op.DeviceAuthorizationState{ClientID: client, Scopes: scopes, Expires: ends}}
	s.issued = append(s.issued, code)
	return nil
}

func (s *state) GetDeviceAuthorizatonState(_ context.Context, client, code string) (*op.DeviceAuthorizationState, error) {
	d, err := find(s, s.devices, code)
	if err != nil || d.ClientID != client {
		return nil, errors.New("no such device code")
	}
	return &d.DeviceAuthorizationState, nil
}

// A client is a client for the library.
type client struct {
	idp.Client
	lifetime time.Duration
}

func (c client) GetID() string                                            { return c.ID }
func (c client) RedirectURIs() []string                                   { return c.Redirects }
func (c client) PostLogoutRedirectURIs() []string                         { return c.AfterLogout }
func (c client) LoginURL(id string) string                                { return "/login?id=" + id }
func (c client) IDTokenLifetime() time.Duration                           { return c.lifetime }
func (c client) DevMode() bool                                            { return true }
func (c client) IsScopeAllowed(string) bool                               { return true }
func (c client) IDTokenUserinfoClaimsAssertion() bool                     { return true }
func (c client) ClockSkew() time.Duration                                 { return 0 }
func (c client) RestrictAdditionalIdTokenScopes() func([]string) []string { return keep }
func (c client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return keep
}
func (c client) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}

func (c client) GrantTypes() []oidc.GrantType {
	all := []oidc.GrantType{
		oidc.GrantTypeCode, oidc.GrantTypeRefreshToken, oidc.GrantTypeClientCredentials, oidc.GrantTypeTokenExchange,
	}
	if !c.CannotDevice {
		all = append(all, oidc.GrantTypeDeviceCode)
	}
	return all
}

func (c client) ApplicationType() op.ApplicationType {
	if c.Secret == "" {
		return op.ApplicationTypeNative
	}
	return op.ApplicationTypeWeb
}

func (c client) AuthMethod() oidc.AuthMethod {
	if c.Secret == "" {
		return oidc.AuthMethodNone
	}
	return oidc.AuthMethodBasic
}

func (c client) AccessTokenType() op.AccessTokenType {
	if c.JWTAccess {
		return op.AccessTokenTypeJWT
	}
	return op.AccessTokenTypeBearer
}

func keep(scopes []string) []string { return scopes }
