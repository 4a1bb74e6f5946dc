package machine

import (
	"context"
	"net/url"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// exchange exchanges a person's ID token, at the identity provider (RFC 8693), for an assertion that their organisation lets us
// use the server for them (ID-JAG). The server's authorization server gives a token for it.
func (t *Tokens) exchange(ctx context.Context, at *resource, scopes []string) (string, error) {
	idp := t.c.IDP
	subject, err := t.subject(ctx)
	if err != nil {
		return "", err
	}
	t.hide(subject)
	person, ok := oauth.ReadJWT(subject)
	var says string
	switch {
	case !ok || !oauth.SameURL(person.Text("iss"), idp.Issuer):
		says = "it is not a token of " + idp.Issuer
	case !person.Names("aud", idp.ClientID):
		says = "it was issued for another client than " + idp.ClientID
	case person.Expired():
		says = "it has expired"
	}
	if says != "" {
		return "", tool.Errorf(tool.CodeAccessDenied, "the ID token of oauth.idp was not sent: %s", says).Because("assertion")
	}
	client := &oauth.Client{ID: idp.ClientID, Scopes: scopes, HTTP: oauth.HTTPClient(idp.Issuer)}
	if client.Secret, err = secretOf(t.c.Source, idp.ClientSecret); err != nil {
		return "", err
	}
	if client.Server, err = oauth.Discover(ctx, client.HTTP, idp.Issuer); err != nil {
		return "", err
	}
	got, err := client.Grant(ctx, url.Values{
		"grant_type": {oauthex.GrantTypeTokenExchange}, "requested_token_type": {oauthex.TokenTypeIDJAG},
		"subject_token": {subject}, "subject_token_type": {oauthex.TokenTypeIDToken}, "audience": {at.Issuer}, "resource": {at.name},
	})
	if err != nil {
		return "", err
	}
	t.hide(got.Access)
	return got.Access, t.checkIDJAG(got, at, person)
}

// subject returns the ID token of the person.
func (t *Tokens) subject(ctx context.Context) (string, error) {
	if t.c.Person != nil {
		return t.c.Person(ctx)
	}
	return t.c.IDP.Subject.read(t.c.Source, "idp.subject")
}

// who returns the person for whom tokens are now; it is empty if that never changes.
func (t *Tokens) who(ctx context.Context) (string, error) {
	if t.c.Person == nil {
		return "", nil
	}
	subject, err := t.c.Person(ctx)
	person, _ := oauth.ReadJWT(subject)
	return person.Text("sub"), err
}

// checkIDJAG checks that an assertion is for this authorization server, this server and us, and that it still names everyone
// who acts for the person. The authorization server checks who has signed it.
func (t *Tokens) checkIDJAG(got oauth.Token, at *resource, person oauth.Unverified) error {
	jag, ok := oauth.ReadJWT(got.Access)
	var says string
	switch {
	case got.Issued != oauthex.TokenTypeIDJAG || !ok || jag.Type != oauth.TypeIDJAG:
		says = "is not an ID-JAG"
	case !oauth.SameURL(jag.Text("iss"), t.c.IDP.Issuer):
		says = "is of another issuer, " + jsonrpc.Clip(jag.Text("iss"))
	case !jag.Names("aud", at.Issuer):
		says = "is for another authorization server, " + jsonrpc.Clip(strings.Join(jag.List("aud"), ", "))
	case jag.Claims["resource"] != nil && !jag.Names("resource", at.name):
		says = "is for another server than " + t.c.Shown
	case jag.Claims["client_id"] != nil && jag.Text("client_id") != t.c.ID:
		says = "is for another client, " + jsonrpc.Clip(jag.Text("client_id"))
	case jag.Expired():
		says = "has expired"
	case !keepsActors(person.Claims["act"], jag.Claims["act"]):
		says = "no longer names everyone who acts for the person"
	default:
		return nil
	}
	return tool.Errorf(tool.CodeAccessDenied, "the assertion that %s gave %s; it was not sent", t.c.IDP.Issuer, says).Because("assertion")
}

// keepsActors reports whether the chain of actors of a token (the claim act of RFC 8693, the last one outermost) is still part
// of the chain in what it was exchanged for.
func keepsActors(before, after any) bool {
	for before != nil && !reflect.DeepEqual(before, after) {
		outer, ok := after.(map[string]any)
		if !ok {
			return false
		}
		after = outer["act"]
	}
	return true
}
