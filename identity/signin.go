package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/identity/oauth"
	"toolpost/tool"
)

// SignIn is the identity section of a config. The zero value has no providers.
type SignIn struct {
	OIDC []Provider `yaml:"oidc" doc:"OpenID providers with which people sign in: to the console, and with toolpost login"`
}

// A Provider is an OpenID provider: an issuer of tokens to which a browser can be sent.
type Provider struct {
	Issuer       string                `yaml:"issuer" doc:"the provider's URL, as in the claim iss"`
	ClientID     string                `yaml:"client_id" doc:"the id of Toolpost at the provider; tokens must be for it"`
	ClientSecret string                `yaml:"client_secret" doc:"name of the secret that the provider gave to Toolpost; default: none, as for a public client, which toolpost login needs"`
	Scopes       Names                 `yaml:"scopes" schema:"default=[\"openid\",\"email\",\"profile\"]" doc:"what is asked for; must contain openid. With offline_access, many providers give tokens that can be renewed"`
	Caller       string                `yaml:"caller" doc:"the claim that names the caller; default: email if the provider has verified it, otherwise sub"`
	Groups       string                `yaml:"groups" schema:"default=groups" doc:"the claim with the groups of a person; a dot reaches into an object, as in realm_access.roles"`
	Prefix       string                `yaml:"prefix" doc:"prepended to the caller's name; no other caller's name may start with it"`
	Roles        config.Ordered[Names] `yaml:"roles" doc:"the roles for each group, in order: the first group that a person is in counts. A person in none of them is refused"`
	Name         string                `yaml:"name" doc:"what the button says; default: the host of the issuer"`
}

// Section describes the section to the config.
func Section() config.Part {
	return config.Part{Name: "identity", Doc: "where people sign in", Options: SignIn{}}
}

// Validate refuses providers that cannot be told apart. The config calls it.
func (s *SignIn) Validate() error {
	for i := range s.OIDC {
		for j := range s.OIDC[:i] {
			if s.OIDC[i].Key() == s.OIDC[j].Key() {
				return fmt.Errorf("two providers are called %q; give each a name of its own", s.OIDC[i].Key())
			}
		}
	}
	return nil
}

// Validate refuses senseless options, and sets the defaults. The config calls it.
func (p *Provider) Validate() error {
	u, err := url.Parse(p.Issuer)
	switch {
	case p.Issuer == "" || err != nil || !oauth.Safe(p.Issuer):
		return fmt.Errorf("the issuer of a provider is an https address, as the claim iss of its tokens has it, not %.200q", p.Issuer)
	case p.ClientID == "":
		return fmt.Errorf("the provider %s has no client_id: register Toolpost there, and say `client_id: ...`", p.Issuer)
	case len(p.Roles) == 0:
		return fmt.Errorf("the provider %s gives no roles, so everyone would be refused; say which group has which, such as "+
			"`roles: {engineers: [deploy]}`", p.Issuer)
	case p.Scopes != nil && !slices.Contains(p.Scopes, "openid"):
		return fmt.Errorf("the scopes of the provider %s do not contain openid, without which it says nothing about people", p.Issuer)
	}
	if p.Scopes == nil {
		p.Scopes = Names{"openid", "email", "profile"}
	}
	p.Groups, p.Name = cmp.Or(p.Groups, "groups"), cmp.Or(p.Name, u.Host)
	if strings.Trim(p.Key(), "-.") == "" {
		return fmt.Errorf("the name %q of a provider has no letters or digits", p.Name)
	}
	return nil
}

// Key returns the name as it is in addresses, such as that to which the provider sends browsers back.
func (p *Provider) Key() string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(p.Name))
}

// Slash returns an error if an issuer differs from that of the config by a slash at the end alone, and otherwise nil.
func (p *Provider) Slash(issuer string) error {
	if issuer == p.Issuer || strings.TrimSuffix(issuer, "/") != strings.TrimSuffix(p.Issuer, "/") {
		return nil
	}
	return fmt.Errorf("the provider is %s, and `issuer` in the config is %s: the slash at the end must be the same", issuer, p.Issuer)
}

// asIssuer returns the issuer of the provider's tokens.
func (p *Provider) asIssuer() Issuer {
	by := ClaimRoles{Claim: p.Groups, Map: map[string]Names{}}
	for _, one := range p.Roles {
		by.Map[one.Name] = one.Value
	}
	return Issuer{Issuer: p.Issuer, Audience: Names{p.ClientID}, Caller: p.Caller, Prefix: p.Prefix, Roles: by, provider: p}
}

// nameOf returns the name of the person that claims describe.
func (p *Provider) nameOf(claims map[string]any) (string, error) {
	sub, _ := claims["sub"].(string)
	email, _ := claims["email"].(string)
	word, said := claims["email_verified"]
	verified := word == true || word == "true" // some providers say it as a text
	switch {
	case p.Caller == "email" && said && !verified:
		return "", errors.New("the provider has not verified the email address of the account")
	case p.Caller != "":
		name, _ := claim(claims, p.Caller).(string)
		return name, nil
	case email != "" && verified:
		return email, nil
	case strings.Contains(sub, "@"): // it could be the verified address of another person
		return "", errors.New("the account has no verified email address, and its sub looks like one; name the claim with `caller`")
	}
	return sub, nil
}

// rolesOf returns the roles of the first group of the config that a person is in. The name is for the error.
func (p *Provider) rolesOf(name string, claims map[string]any) ([]string, error) {
	groups := oauth.Texts(claim(claims, p.Groups))
	for _, one := range p.Roles {
		if slices.Contains(groups, one.Name) {
			return one.Value, nil
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("none of the groups of the account has a role here: the provider names no groups of %.100q in the claim %s; "+
			"an administrator can make it put them into the ID token", name, p.Groups)
	}
	return nil, fmt.Errorf("none of the groups of the account has a role here: %.100q is in %.500q; "+
		"an administrator can add one to `identity` in the config", name, groups[:min(len(groups), 20)])
}

// check refuses claims that are not those of an ID token for us: OpenID Connect Core, 3.1.3.7.
func (p *Provider) check(claims map[string]any, now time.Time) error {
	issued, err := moment(claims, "iat")
	by, named := claims["azp"]
	switch _, isLogout := claims["events"]; {
	case err != nil:
		return err
	case isLogout:
		return errors.New("it is no ID token")
	case named && by != p.ClientID, !named && len(oauth.Texts(claims["aud"])) > 1:
		return errors.New("it was made for another client")
	case issued > float64(now.Add(leeway).Unix()):
		return fmt.Errorf("it is from the future: the clock of the provider is %v ahead of ours",
			time.Unix(int64(issued), 0).Sub(now).Round(time.Second))
	}
	return nil
}

// Provider returns the provider with a key, or nil if there is none.
func (c *Callers) Provider(key string) *Provider {
	for _, p := range c.providers {
		if p.Key() == key {
			return p
		}
	}
	return nil
}

// An Offered is what every visitor may read of a provider, at GET /v1/signin. It has no secrets.
type Offered struct {
	Key      string   `json:"key"` // in addresses
	Name     string   `json:"name"`
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"client_id"`
	Scopes   []string `json:"scopes"`
}

// Offers are the providers of a server.
type Offers struct {
	Providers []Offered `json:"providers"`
}

// Offered returns the providers with which people sign in, for those who have not.
func (c *Callers) Offered() Offers {
	all := Offers{Providers: []Offered{}}
	for _, p := range c.providers {
		all.Providers = append(all.Providers, Offered{p.Key(), p.Name, p.Issuer, p.ClientID, p.Scopes})
	}
	return all
}

// Client returns the client of a provider: it asks the provider for its endpoints.
func (c *Callers) Client(ctx context.Context, p *Provider) (*oauth.Client, error) {
	if c.issuers[p.Issuer] == nil { // the config has changed
		return nil, tool.Errorf(tool.CodeNotFound, "the provider %s is not in the config any more", p.Name)
	}
	client := &oauth.Client{ID: p.ClientID, Scopes: p.Scopes, HTTP: oauth.HTTPClient(p.Issuer)}
	if p.ClientSecret != "" {
		if c.env.Secrets == nil {
			return nil, tool.Errorf(tool.CodeInternal, "the secret %s of the provider %s has no value here", p.ClientSecret, p.Name)
		}
		var err error
		if client.Secret, err = c.env.Secrets.Secret(p.ClientSecret); err != nil {
			return nil, err
		}
	}
	var err error
	client.Server, err = c.servers.Find(ctx, client.HTTP, p.Issuer)
	return client, err
}

// A Person is a caller who has signed in with a provider.
type Person struct {
	tool.Principal
	Sub, Sid string    // of the provider: the account, and its session there
	Until    time.Time // when the token expires
}

// SignedIn returns the person of an ID token that a provider gave us, with a nonce of ours; "" if a token was renewed. The person
// has asked for it, so the error says what is wrong.
func (c *Callers) SignedIn(ctx context.Context, p *Provider, token, nonce string) (who Person, err error) {
	claims, err := c.claimsOf(ctx, p, token)
	if err == nil && nonce != "" && claims["nonce"] != nonce {
		err = errors.New("it was not asked for by this browser")
	}
	if err == nil {
		err = c.issuers[p.Issuer].check(claims)
	}
	if issued, bad := moment(claims, "iat"); errors.Is(err, errExpired) && bad == nil && issued > 0 {
		if behind := c.env.now().Sub(time.Unix(int64(issued), 0)); behind > leeway { // it was given to us just now
			err = fmt.Errorf("%w: the clock of the provider is %v behind ours", err, behind.Round(time.Second))
		}
	}
	if err == nil {
		who.Principal, err = c.byJWT(ctx, Credentials{Token: token})
	}
	if errors.Is(err, errNoKey) {
		return Person{}, tool.Errorf(tool.CodeUnavailable, "the token of %s cannot be checked: %w; try again in ten seconds", p.Name, err).Because("sign_in")
	}
	if err != nil {
		return Person{}, tool.Errorf(tool.CodeAccessDenied, "the token of %s is refused: %w", p.Name, err).Because("sign_in")
	}
	return personOf(who.Principal, claims), nil
}

// PersonOf returns the person of a caller who was admitted by an ID token, and the provider that signed it; nil if there is none.
func (c *Callers) PersonOf(p tool.Principal) (Person, *Provider) {
	payload, isClaims := strings.CutPrefix(p.Proof, claimsProof)
	claims, err := readClaims([]byte(payload))
	if !isClaims || err != nil {
		return Person{}, nil
	}
	from, _ := claims["iss"].(string)
	i := c.issuers[from]
	if i == nil || i.provider == nil {
		return Person{}, nil
	}
	return personOf(p, claims), i.provider
}

func personOf(p tool.Principal, claims map[string]any) Person {
	who := Person{Principal: p}
	who.Sub, _ = claims["sub"].(string)
	who.Sid, _ = claims["sid"].(string)
	end, _ := moment(claims, "exp")
	who.Until = time.UnixMilli(int64(end * 1000))
	return who
}

// claimsOf returns what a provider has signed.
func (c *Callers) claimsOf(ctx context.Context, p *Provider, token string, types ...string) (map[string]any, error) {
	i := c.issuers[p.Issuer]
	from, err := issuerOf(token)
	if err != nil {
		return nil, err
	}
	if i == nil || i.provider == nil || from != p.Issuer {
		return nil, cmp.Or(p.Slash(from), errors.New("it is of another issuer"))
	}
	payload, err := i.verify(ctx, token, types...)
	if err != nil {
		return nil, err
	}
	return readClaims(payload)
}

// logoutEvent is what a logout token is about.
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// A Logout says which sessions of a provider have ended: one, or all of an account.
type Logout struct {
	Sub, Sid string
	ID       string // of the token
	Until    time.Time
}

// LoggedOut checks a logout token: OpenID Connect Back-Channel Logout 1.0, 2.6. That it is used once, the caller checks.
func (c *Callers) LoggedOut(ctx context.Context, p *Provider, token string) (out Logout, err error) {
	claims, err := c.claimsOf(ctx, p, token, "logout+jwt")
	if err == nil {
		err = c.issuers[p.Issuer].valid(claims)
	}
	if err != nil {
		return out, err
	}
	events, _ := claims["events"].(map[string]any)
	_, ends := events[logoutEvent].(map[string]any)
	_, hasNonce := claims["nonce"]
	out.Sub, _ = claims["sub"].(string)
	out.Sid, _ = claims["sid"].(string)
	out.ID, _ = claims["jti"].(string)
	end, _ := moment(claims, "exp")
	out.Until = time.UnixMilli(int64(end * 1000))
	switch {
	case !ends || hasNonce:
		return Logout{}, errors.New("it is no logout token")
	case out.ID == "" || out.Sub == "" && out.Sid == "":
		return Logout{}, errors.New("it does not say which session ends")
	}
	return out, nil
}
