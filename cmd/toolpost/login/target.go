package login

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"toolpost/cmd/toolpost/contexts"
	"toolpost/identity"
	"toolpost/identity/oauth"
	"toolpost/tool"
)

// A Target is the context of a login, which may be new.
type Target struct {
	Name string
	contexts.Server
}

// Find returns the context for a login at a server; its name is empty if the server is known by its address alone.
func Find(name, address, ca string) (t Target, err error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "":
		return t, tool.Errorf(tool.CodeInvalidInput, "name a server: `toolpost login --server URL`, or a context; on the machine of the "+
			"server, its user needs no login")
	case u.Scheme != "https" && !oauth.Loopback(u):
		return t, tool.Errorf(tool.CodeInvalidInput, "%s is not encrypted: others on the way could read the token; use https", u.Redacted())
	}
	known, err := contexts.Read()
	if err != nil {
		return t, err
	}
	found := cmp.Or(name, known.At(address))
	t = Target{cmp.Or(found, u.Host), contexts.Server{URL: address, CA: ca}}
	other, taken := known.Contexts[t.Name]
	same := strings.TrimSuffix(other.URL, "/") == strings.TrimSuffix(address, "/") && other.Token == "" // as logout leaves it
	if taken && found == "" && !same {
		return t, tool.Errorf(tool.CodeConflict, "the context %s is there for %s: `toolpost context add` makes another for this server; name "+
			"that", t.Name, other.URL)
	}
	t.Login, t.CA = other.Login, cmp.Or(ca, other.CA)
	return t, nil
}

// In signs a person in with one of the providers of the server.
func (t Target) In(ctx context.Context, with identity.Offered, show func(address, code string)) (err error) {
	if t.Login, err = By(ctx, with, show); err != nil {
		return err
	}
	return contexts.Change(ctx, func(known *contexts.Contexts) (bool, error) {
		known.Contexts[t.Name] = t.Server
		return true, nil
	})
}

// Out forgets a login, and asks the provider to revoke it; unheard is why the provider was not told.
func (t Target) Out(ctx context.Context) (unheard, err error) {
	err = contexts.Change(ctx, func(known *contexts.Contexts) (bool, error) {
		if t.Login = known.Contexts[t.Name].Login; t.Login == nil {
			return false, tool.Errorf(tool.CodeNotFound, "there is no login for %s", t.URL)
		}
		known.Contexts[t.Name] = contexts.Server{URL: t.URL, CA: t.CA}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, unheard := client(ctx, t.Login)
	if unheard == nil {
		unheard = c.Forget(ctx, t.Login.Refresh, "refresh_token")
	}
	return unheard, nil
}

// Credential returns the token of a login at a server, or "" if there is none. The name is that of its context; it may be empty.
func Credential(ctx context.Context, name, address string) (string, error) {
	known, err := contexts.Read()
	name = cmp.Or(name, known.At(address))
	if err != nil || known.Contexts[name].Login == nil || strings.HasPrefix(address, "unix:") {
		return "", err
	}
	return Token(ctx, name, known.Contexts[name].Login)
}
