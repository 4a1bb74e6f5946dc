package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/identity/machine"
	"toolpost/identity/oauth"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/jsonrpc"
)

// OAuth describes us to the authorization server of an upstream. All of it may be left out: then we register ourselves,
// if the server allows it.
type OAuth struct {
	ClientID       string   `yaml:"client_id" doc:"id of a client that you registered; default: a client is registered at login"`
	ClientSecret   string   `yaml:"client_secret" doc:"name of the secret that holds this client's password, if it has one"`
	Issuer         string   `yaml:"issuer" doc:"the authorization server that this client belongs to; a login that leads elsewhere is refused, and the client secret is not sent there"`
	ClientMetadata string   `yaml:"client_metadata" doc:"https URL of a document that describes the client, for servers that accept one instead of a registration"`
	Scopes         []string `yaml:"scopes" doc:"scopes to request in addition to those that the server names"`
	Redirect       string   `yaml:"redirect" doc:"loopback URL for the browser to return to, such as http://127.0.0.1:8123/callback, if the client was registered with one; default: any free port"`
	DPoP           bool     `yaml:"dpop" doc:"have tokens bound to a key of ours (DPoP), so that a stolen token is of no use; the server must support it"`

	machine.Options
}

// Login asks a person to let us use an upstream server over HTTP. It shows a link, waits until the browser returns to a
// loopback address, and stores the tokens in TokenFile. A Toolpost that is already running uses them from its next
// request on. show is called once, with the link.
func Login(ctx context.Context, src config.Source, show func(link string)) error {
	o, err := sourceOptions(src)
	if err == nil && o.URL == "" {
		err = tool.Errorf(tool.CodeInvalidInput, "%s is started here and needs no login: give its secrets in `secrets` "+
			"or `env`", src.Name)
	}
	if err == nil && o.OAuth.Grant != "" {
		err = tool.Errorf(tool.CodeInvalidInput, "%s needs no login: it gets its tokens by oauth.grant", src.Name)
	}
	if err != nil {
		return err
	}
	tokens := &tokenStore{path: TokenFile(src), server: o.URL, client: oauth.HTTPClient(o.URL), bound: o.OAuth.DPoP}
	challenge, err := o.challenge(ctx, src.Secrets, tokens) //nolint:bodyclose // it has none
	if err != nil {
		return err
	}
	callback, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(o.OAuth.listen(), "127.0.0.1:0"))
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "no address for the browser to come back to: %w", err)
	}
	defer callback.Close()
	config, err := o.OAuth.handler(src.Secrets, callback.Addr().String(), tokens)
	if err != nil {
		return err
	}
	var key *oauth.ProofKey // each login has its own
	if o.OAuth.DPoP {
		if key, err = oauth.NewProofKey(); err != nil {
			return err
		}
		config.Client = key.Proving(config.Client)
	}
	resource := ""
	config.AuthorizationCodeFetcher = func(
		ctx context.Context, args *auth.AuthorizationArgs,
	) (*auth.AuthorizationResult, error) {
		if u, err := url.Parse(args.URL); err == nil {
			resource = u.Query().Get("resource")
		}
		answer, err := oauth.AwaitBrowser(ctx, callback, args.URL, show)
		return &auth.AuthorizationResult{Code: answer.Code, State: answer.State, Iss: answer.Issuer}, err
	}
	config.NewTokenSource = func(ctx context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
		if key != nil {
			if err := key.CheckType(t.Type()); err != nil {
				return nil, err
			}
		}
		next := newStoredTokens(o.URL, c, t)
		next.Resource, next.Key = resource, key
		return oauth2.StaticTokenSource(t), tokens.save(ctx, next)
	}
	handler, err := auth.NewAuthorizationCodeHandler(config)
	if err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "oauth: %w", err)
	}
	if err := handler.Authorize(ctx, challenge.Request, challenge); err != nil {
		if ctx.Err() != nil {
			return tool.Ended(ctx)
		}
		hint := ""
		if o.OAuth.ClientID == "" && strings.Contains(err.Error(), "register") {
			hint = "; if the server takes a token instead of a login, give it with `toolpost mcp add --replace --header " +
				"\"Authorization: Bearer TOKEN\"`; if it registers no clients, name one in `oauth: {client_id: ID}` of the source"
		}
		return tool.Errorf(tool.CodeAccessDenied, "the login at %s failed: %s%s", o.shown(), jsonrpc.Clip(err.Error()), hint)
	}
	return nil
}

// listen returns the address that the browser returns to, if the config sets one.
func (o OAuth) listen() string {
	u, err := url.Parse(o.Redirect)
	if err != nil {
		return ""
	}
	return u.Host
}

func (o OAuth) check() error {
	u, err := url.Parse(o.Redirect)
	if o.Redirect != "" &&
		(err != nil || u.Scheme != "http" || u.Port() == "" || !net.ParseIP(u.Hostname()).IsLoopback()) {
		return tool.Errorf(tool.CodeInvalidInput,
			"oauth.redirect must be a loopback address with a port, such as http://127.0.0.1:8123/callback, not %q", o.Redirect)
	}
	if (o.ClientSecret != "" || o.Issuer != "" && o.Grant == "") && o.ClientID == "" {
		return tool.Errorf(tool.CodeInvalidInput,
			"oauth.client_secret and oauth.issuer need the oauth.client_id that they belong to")
	}
	if o.Grant != "" && (o.ClientMetadata != "" || o.Redirect != "") {
		return tool.Errorf(tool.CodeInvalidInput, "oauth.client_metadata and oauth.redirect are for a login, and oauth.grant needs none")
	}
	return o.Options.Check(o.client())
}

func (o OAuth) client() machine.Client {
	return machine.Client{ID: o.ClientID, Secret: o.ClientSecret, Issuer: o.Issuer, Scopes: o.Scopes, Bound: o.DPoP}
}

// handler returns the config of the SDK's handler. A client from the config takes precedence, then a metadata document,
// then a registration.
func (o OAuth) handler(secrets secret.Source, addr string, tokens *tokenStore) (*auth.AuthorizationCodeHandlerConfig, error) {
	had := tokens.read()
	redirect := cmp.Or(o.Redirect, "http://"+addr+"/callback")
	c := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: redirect, RequestRefreshToken: true, AcceptUnadvertisedIss: true, Client: tokens.client,
		// Request earlier scopes again: a token with one more scope must not lose the others.
		ScopeFilter: func(found []string) []string { return oauth.Union(had.Scopes, o.Scopes, found) },
	}
	switch {
	case o.ClientID != "":
		c.PreregisteredClient = &oauthex.ClientCredentials{ClientID: o.ClientID, Issuer: o.Issuer}
		if o.ClientSecret != "" {
			value, err := secretOf(secrets, o.ClientSecret)
			if err != nil {
				return nil, err
			}
			c.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: value}
		}
		return c, nil
	case o.ClientMetadata != "":
		c.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: o.ClientMetadata}
	}
	registration := &oauthex.ClientRegistrationMetadata{
		ClientName: "Toolpost", RedirectURIs: []string{redirect}, ResponseTypes: []string{"code"},
		GrantTypes: []string{"authorization_code", "refresh_token"},
	}
	c.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: registration}
	return c, nil
}

// challenge returns the refusal that a login answers: that of an earlier call, or else that of a first request. A
// server that accepts the first request may still refuse calls: if it says so itself, the login goes on.
func (o *SourceOptions) challenge(ctx context.Context, secrets secret.Source, tokens *tokenStore) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, oauth.RequestTime)
	defer cancel()
	hello := &serverInfo{modern: true, version: mcp.ModernVersion}
	body := jsonrpc.EncodeRequest(1, mcp.MethodDiscover, hello.encode(&query{}, 0))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL, bytes.NewReader(body))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", o.shown(), err)
	}
	headers, err := o.headers(secrets)
	if err != nil {
		return nil, err
	}
	req.Header = headers
	setModern(req.Header, mcp.MethodDiscover, "")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, "+web.TypeStream)
	if had := tokens.read(); had.Status != 0 {
		return &http.Response{
			StatusCode: had.Status, Header: http.Header{"Www-Authenticate": had.Challenge}, Request: req, Body: http.NoBody,
		}, nil
	}
	resp, err := tokens.client.Do(req)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be reached: %w", o.shown(), withoutURL(err))
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal)
	// The SDK does the rest: it finds the authorization server by the header, or by the well-known paths.
	return &http.Response{
		StatusCode: http.StatusUnauthorized, Header: resp.Header, Request: req, Body: http.NoBody,
	}, nil
}

// withoutURL returns why a request failed, without the address, which may hold a secret; the caller names the server.
func withoutURL(err error) error {
	if asked := (*url.Error)(nil); errors.As(err, &asked) {
		return asked.Err
	}
	return err
}
