package machine

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// Tokens are those of one server. They, and the key that they are bound to, are kept in memory only: each process gets its own.
type Tokens struct {
	c      Config
	client *http.Client    // for addresses that the server names
	own    *http.Client    // for the authorization server, which the config may name
	key    *oauth.ProofKey // nil if tokens are not bound to one
	turn   chan struct{}   // held while a token is requested

	mu     sync.Mutex
	now    token
	found  *resource // that the token is for
	scopes []string  // that were requested
	failed error     // why there is no token
	pause  time.Time // until when that holds
}

// A token is one that was granted.
type token struct {
	oauth.Access
	who    string // the person
	given  time.Time
	renew  time.Time // when to get the next one; zero: when it is refused
	expiry time.Time // zero: the server does not say
}

// A resource is what the server says of its tokens: its name in them, and the authorization server that gives them.
type resource struct {
	name string
	oauth.Server
}

const (
	// renewBefore is how long before its expiry a token is renewed: it must still be valid when it arrives.
	renewBefore = 30 * time.Second
	// pauseTime keeps requests that fail from becoming as many requests for tokens: some servers lock such clients out.
	pauseTime = 5 * time.Second
)

// New returns the tokens of a config that was checked. Nothing is sent yet.
func New(c Config) (*Tokens, error) {
	t := &Tokens{c: c, client: oauth.HTTPClient(c.Server), turn: make(chan struct{}, 1)}
	t.own = t.client
	if c.Issuer != "" {
		t.own = oauth.HTTPClient(c.Issuer)
	}
	if !c.Bound {
		return t, nil
	}
	var err error
	if t.key, err = oauth.NewProofKey(); err == nil {
		t.own = t.key.Proving(t.own)
	}
	return t, err
}

// Token returns the token for a request. The first request goes without: its refusal names the authorization server.
func (t *Tokens) Token(ctx context.Context) (oauth.Access, error) {
	t.mu.Lock()
	now, found, scopes := t.now, t.found, t.scopes
	t.mu.Unlock()
	if now.who != "" {
		switch who, err := t.who(ctx); {
		case err != nil:
			return oauth.Access{}, err
		case who != now.who: // another account was connected: nothing is sent in the name of the one before
			got, err := t.next(ctx, now.Access, func(context.Context) (*resource, []string, error) { return found, scopes, nil })
			if err == nil && got.Token == now.Token {
				err = tool.Errorf(tool.CodeUnavailable, "there is no token for %s and the account that is connected now; try again", t.c.Source.Name)
			}
			return got, err
		}
	}
	if found == nil || now.renew.IsZero() || time.Now().Before(now.renew) {
		return now.Access, nil
	}
	return t.next(ctx, now.Access, func(context.Context) (*resource, []string, error) { return found, scopes, nil })
}

// Replace returns the token after one that the server refused, or the same if another one would be refused too.
func (t *Tokens) Replace(ctx context.Context, refused oauth.Access, resp *http.Response) (oauth.Access, error) {
	challenges, err := oauthex.ParseWWWAuthenticate(resp.Header.Values("Www-Authenticate"))
	more := resp.StatusCode == http.StatusForbidden
	t.mu.Lock()
	fresh := !more && refused == t.now.Access && time.Since(t.now.given) < pauseTime
	t.mu.Unlock()
	if err != nil || fresh {
		return refused, nil //nolint:nilerr // the refusal is the error
	}
	return t.next(ctx, refused, func(ctx context.Context) (*resource, []string, error) { return t.discover(ctx, challenges, more) })
}

// next returns the token after last. One request is made at a time; those that waited for it take its token, or its error.
func (t *Tokens) next(
	ctx context.Context, last oauth.Access, where func(context.Context) (*resource, []string, error),
) (oauth.Access, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return oauth.Access{}, tool.Ended(ctx)
	}
	t.mu.Lock()
	now, failed, wait := t.now, t.failed, time.Until(t.pause)
	t.mu.Unlock()
	switch {
	case now.Token != last.Token:
		return now.Access, nil
	case wait > 0:
		return now.outlast(failed)
	}
	at, scopes, err := where(ctx)
	if err == nil && at == nil {
		return last, nil
	}
	var got token
	if err == nil {
		got, err = t.request(ctx, at, scopes)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.now, t.found, t.scopes = got, at, scopes
		return got.Access, nil
	}
	if ctx.Err() != nil {
		return oauth.Access{}, tool.Ended(ctx)
	}
	t.failed, t.pause = t.explain(err), time.Now().Add(pauseTime)
	return now.outlast(t.failed)
}

// outlast returns the token if it is still valid although there is no next one.
func (now token) outlast(failed error) (oauth.Access, error) {
	if time.Now().Before(now.expiry) {
		return now.Access, nil
	}
	return oauth.Access{}, failed
}

// Reason is the reason of an error that another try does not change.
const Reason = "credentials_refused"

func (t *Tokens) explain(err error) error {
	if refused, ok := errors.AsType[*oauth.Refused](err); ok {
		return tool.Errorf(tool.CodeAccessDenied, "there is no token for %s: %w", t.c.Source.Name, refused).Because(Reason)
	}
	return tool.AsError(err)
}

// discover finds the authorization server, and the scopes to request. A server that wants more rights names scopes; if they
// were requested already, there is nothing to request.
func (t *Tokens) discover(ctx context.Context, challenges []oauthex.Challenge, more bool) (*resource, []string, error) {
	document, wanted := "", []string(nil)
	for _, c := range challenges {
		document = cmp.Or(document, c.Params["resource_metadata"])
		wanted = append(wanted, strings.Fields(c.Params["scope"])...)
	}
	t.mu.Lock()
	had := t.scopes
	t.mu.Unlock()
	if more && len(oauth.Union(had, wanted)) == len(had) {
		return nil, nil, nil
	}
	told, err := t.protection(ctx, document)
	if err != nil {
		return nil, nil, err
	}
	issuer := told.AuthorizationServers[0]
	if own := t.c.Issuer; own != "" {
		if !slices.ContainsFunc(told.AuthorizationServers, func(s string) bool { return oauth.SameURL(s, own) }) {
			return nil, nil, tool.Errorf(tool.CodeAccessDenied, "%s takes tokens of %s, and the config names %s: nothing was sent", t.c.Source.Name,
				jsonrpc.Clip(issuer), own).Because("issuer")
		}
		issuer = own
	}
	server, err := oauth.Discover(ctx, t.own, issuer)
	if err == nil && server.Token == "" {
		err = tool.Errorf(tool.CodeUnavailable, "the authorization server %s gives no tokens", jsonrpc.Clip(issuer))
	}
	if err != nil {
		return nil, nil, err
	}
	if len(wanted) == 0 {
		wanted = told.ScopesSupported
	}
	return &resource{told.Resource, server}, oauth.Union(had, t.c.Scopes, wanted), nil
}

// protection returns what the server says of its tokens (RFC 9728). It must say it of itself.
func (t *Tokens) protection(ctx context.Context, document string) (*oauthex.ProtectedResourceMetadata, error) {
	u, err := url.Parse(t.c.Server)
	if err != nil {
		return nil, err
	}
	root := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	const wellKnown = "/.well-known/oauth-protected-resource"
	failed := errors.New("it names none")
	for _, one := range []struct{ at, resource string }{
		{document, t.c.Server}, {root + wellKnown + strings.TrimSuffix(u.EscapedPath(), "/"), t.c.Server}, {root + wellKnown, root},
	} {
		if one.at == "" {
			continue
		}
		found, err := oauthex.GetProtectedResourceMetadata(ctx, one.at, one.resource, t.client)
		if err == nil && len(found.AuthorizationServers) > 0 {
			return found, nil
		}
		failed = cmp.Or(err, failed)
	}
	return nil, tool.Errorf(tool.CodeUnavailable, "%s does not say which authorization server its tokens come from: %s", t.c.Source.Name,
		jsonrpc.Clip(strings.ReplaceAll(failed.Error(), t.c.Server, t.c.Shown)))
}
