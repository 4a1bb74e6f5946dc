// Package login gets tokens for a person on the command line: with the code that a provider gives to a device without a browser.
package login

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"toolpost/cmd/toolpost/contexts"
	"toolpost/identity"
	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	longest   = 15 * time.Minute // that a person may take, if the provider does not say
	interval  = 5 * time.Second  // between two questions, if the provider does not say
	slower    = 5 * time.Second  // RFC 8628, 3.5
	askTime   = 20 * time.Second // for one request
	ahead     = 10 * time.Second // before a token expires, it is renewed
	endedHint = "run `toolpost login`"
)

// Choose returns the provider with a name or key, or the only one.
func Choose(offers identity.Offers, name string) (identity.Offered, error) {
	var names []string
	for _, one := range offers.Providers {
		if one.Name == name || one.Key == name || name == "" && len(offers.Providers) == 1 {
			return one, nil
		}
		names = append(names, one.Key)
	}
	switch {
	case names == nil:
		return identity.Offered{}, tool.Errorf(tool.CodeUnsupported, "no provider is configured at the server, so people cannot sign in there; "+
			"use a token: `toolpost context add`")
	case name == "":
		return identity.Offered{}, tool.Errorf(tool.CodeInvalidInput, "the server has several providers; choose one with --provider: %s",
			strings.Join(names, ", "))
	}
	return identity.Offered{}, tool.Errorf(tool.CodeNotFound, "the server has no provider %q; there are %s", name, strings.Join(names, ", "))
}

// client returns the client of a provider. It has no secret: everyone can read this program.
func client(ctx context.Context, l *contexts.Login) (*oauth.Client, error) {
	c := &oauth.Client{ID: l.ClientID, Scopes: l.Scopes, HTTP: oauth.HTTPClient(l.Issuer)}
	server, err := oauth.Discover(ctx, c.HTTP, l.Issuer)
	c.Server = server
	return c, err
}

// By signs a person in with a provider. It shows the address to open and the code to type there, and waits.
func By(ctx context.Context, at identity.Offered, show func(address, code string)) (*contexts.Login, error) {
	l := &contexts.Login{Provider: at.Name, Issuer: at.Issuer, ClientID: at.ClientID, Scopes: at.Scopes}
	c, err := client(ctx, l)
	if err != nil {
		return nil, err
	}
	if c.Device == "" {
		return nil, tool.Errorf(tool.CodeUnsupported, "%s gives no codes to programs (it has no device_authorization_endpoint): sign in to the "+
			"console in a browser, issue a token there, and store it with `toolpost context add`", at.Name)
	}
	device, err := c.StartDevice(ctx)
	if err != nil {
		return nil, explained(at.Name, err)
	}
	address := device.Address
	if oauth.Safe(device.Complete) {
		address = device.Complete
	}
	show(address, device.User)
	ctx, cancel := context.WithTimeout(ctx, min(oauth.Seconds(device.Lasts, longest), longest))
	defer cancel()
	for every := oauth.Seconds(device.Every, interval); ; {
		if !tool.Sleep(ctx, every) {
			return nil, tool.Errorf(tool.CodeTimeout, "the code was not used in time; "+endedHint+" again")
		}
		token, err := c.PollDevice(ctx, device.Code)
		no, refused := errors.AsType[*oauth.Refused](err)
		switch {
		case err == nil:
			return loginOf(token, l)
		case refused && no.Code == oauth.SlowDown:
			every += slower
		case refused && no.Code == oauth.Pending, tool.CodeOf(err) == tool.CodeUnavailable && ctx.Err() == nil: // it may come back
		default:
			return nil, explained(at.Name, err)
		}
	}
}

// explained says what to do about a provider's refusal.
func explained(name string, err error) error {
	no, refused := errors.AsType[*oauth.Refused](err)
	switch {
	case !refused:
		return err
	case no.Code == "invalid_client" || no.Code == "unauthorized_client":
		return tool.Errorf(tool.CodeAccessDenied, "%s: %w; an administrator has to register the client as a public one, "+
			"without a secret, and allow it the device code flow", name, err)
	case no.Code == "access_denied":
		return tool.Errorf(tool.CodeAccessDenied, "%s: the login was denied (access_denied)", name)
	}
	return tool.Errorf(tool.CodeAccessDenied, "%s: %w", name, err)
}

// loginOf adds tokens to a login. Of the ID token only the end is read: the server checks it.
func loginOf(token oauth.Token, l *contexts.Login) (*contexts.Login, error) {
	_, rest, _ := strings.Cut(token.ID, ".")
	middle, _, _ := strings.Cut(rest, ".")
	var claims struct {
		Expires float64 `json:"exp"`
	}
	b, err := base64.RawURLEncoding.DecodeString(middle)
	if err != nil || strictjson.Unmarshal(b, &claims) != nil || claims.Expires == 0 {
		return nil, tool.Errorf(tool.CodeProtocol, "%s gave no ID token; the scopes of the provider in the server's config must contain openid", l.Provider)
	}
	l.ID, l.Refresh, l.Expires = token.ID, cmp.Or(token.Refresh, l.Refresh), int64(claims.Expires)
	return l, nil
}

// Token returns the ID token of a context's login. If it is about to expire, one program renews it, and the others wait.
func Token(ctx context.Context, name string, l *contexts.Login) (token string, err error) {
	if left(l) > ahead {
		return l.ID, nil
	}
	err = contexts.Change(ctx, func(known *contexts.Contexts) (bool, error) {
		one := known.Contexts[name]
		if l = one.Login; l == nil {
			return false, tool.Errorf(tool.CodeAccessDenied, "you are logged out; "+endedHint)
		}
		changed, err := renew(ctx, l)
		token = l.ID
		return changed, err
	})
	return token, err
}

func left(l *contexts.Login) time.Duration { return time.Until(time.Unix(l.Expires, 0)) }

// renew renews a login if need be. Its tokens are forgotten if the provider refuses. A provider need not send another ID token
// (OpenID Connect Core, 12.2): the old one is then valid to its end.
func renew(ctx context.Context, l *contexts.Login) (changed bool, err error) {
	over := func(why string) error {
		return tool.Errorf(tool.CodeAccessDenied, "your login with %s has ended%s; "+endedHint, l.Provider, why).Because("login")
	}
	switch still := left(l); {
	case still > ahead, l.Refresh == "" && still > 0:
		return false, nil
	case l.Refresh == "":
		return false, over("")
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := client(ctx, l)
	var token oauth.Token
	if err == nil {
		token, err = c.Renew(ctx, l.Refresh, "")
	}
	switch e := tool.AsError(err); {
	case e != nil && e.Reason == oauth.Ended:
		l.Refresh, l.ID, l.Expires = "", "", 0
		return true, over(" (" + err.Error() + ")")
	case err != nil && left(l) > 0:
		return false, nil
	case err != nil:
		return false, tool.Errorf(e.Code, "your login with %s: %w", l.Provider, err)
	}
	l.Refresh = token.Refresh // also if there is no ID token: the old refresh token may count no longer
	switch {
	case token.ID != "":
		_, err = loginOf(token, l)
	case left(l) <= 0:
		err = over(" (it renews no ID tokens)")
	}
	return true, err
}
