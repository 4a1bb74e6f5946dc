package openapi

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// A credential satisfies one security scheme.
type credential struct {
	in    string // header, query or cookie
	name  string
	value string
}

// credentials returns the values of the secrets that the config names, by scheme.
func (o *Options) credentials(secrets config.Secrets) (map[string]string, error) {
	values := map[string]string{}
	for scheme, name := range o.Auth {
		if secrets == nil {
			return nil, tool.Errorf(tool.CodeUnavailable, "there is no secret %s, which auth names for %s", name, scheme)
		}
		value, err := secrets.Secret(name)
		if err != nil {
			return nil, err
		}
		if value == "" || !httpguts.ValidHeaderFieldValue(value) {
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"the secret %s is empty, or has characters that a header cannot have", name)
		}
		values[scheme] = value
	}
	return values, nil
}

// schemes returns those of the document, by name.
func (d *document) schemes() object {
	components, _ := d.root["components"].(object)
	list, _ := components["securitySchemes"].(object)
	return list
}

// checkAuth refuses a config with a secret for a scheme that the document does not have: the secret would never be
// sent, without any error.
func (d *document) checkAuth(values map[string]string) error {
	known := slices.Sorted(maps.Keys(d.schemes()))
	for scheme := range values {
		if !slices.Contains(known, scheme) {
			hint := nearest.Hint(scheme, known)
			if hint == "" {
				hint = "; it has " + cmp.Or(strings.Join(known, ", "), "none")
			}
			return tool.Errorf(tool.CodeInvalidInput, "auth: the document has no security scheme %q%s", scheme, hint)
		}
	}
	return nil
}

// security chooses the first of an operation's alternatives for which the config has all secrets. An alternative
// without secrets is the last resort.
func (d *document) security(op object, values map[string]string) ([]credential, error) {
	given, there := op["security"]
	if !there {
		given = d.root["security"]
	}
	ways, _ := given.([]any)
	var first error
	open := len(ways) == 0
	for _, v := range ways {
		way, ok := v.(object)
		if !ok {
			return nil, fmt.Errorf("its security is not a list of objects")
		}
		if len(way) == 0 {
			open = true
			continue
		}
		list, err := d.meet(way, values)
		if err == nil {
			return list, nil
		}
		if first == nil {
			first = err
		}
	}
	if open {
		return nil, nil
	}
	return nil, first
}

// meet returns the credentials for all schemes of one alternative.
func (d *document) meet(way object, values map[string]string) (list []credential, err error) {
	for _, name := range slices.Sorted(maps.Keys(way)) {
		v, there := d.schemes()[name]
		if !there {
			return nil, fmt.Errorf("it names the security scheme %q, which the document does not have", clip(name, 100))
		}
		scheme, err := d.object(v, "the security scheme "+clip(name, 100))
		if err != nil {
			return nil, err
		}
		value, have := values[name]
		if !have {
			return nil, fmt.Errorf("it needs credentials: give the source `auth: {%s: SECRET}`", clip(name, 100))
		}
		c, err := credentialOf(scheme, value)
		if err != nil {
			return nil, fmt.Errorf("the security scheme %s: %w", clip(name, 100), err)
		}
		list = append(list, c)
	}
	return list, nil
}

func credentialOf(scheme object, value string) (credential, error) {
	kind, how := text(scheme, "type"), strings.ToLower(text(scheme, "scheme"))
	switch {
	case kind == "apiKey":
		c := credential{text(scheme, "in"), text(scheme, "name"), value}
		if c.in == inQuery && c.name != "" ||
			(c.in == inHeader || c.in == inCookie) && httpguts.ValidHeaderFieldName(c.name) {
			return c, nil
		}
		return c, fmt.Errorf("its key is in %q under the name %q, which is not possible", clip(c.in, 40), clip(c.name, 100))
	case kind == "http" && how == "basic":
		if !strings.Contains(value, ":") {
			return credential{}, fmt.Errorf("its secret must be USER:PASSWORD")
		}
		return credential{inHeader, "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(value))}, nil
	case kind == "http" && how == "bearer", kind == "oauth2", kind == "openIdConnect":
		return credential{inHeader, "Authorization", "Bearer " + value}, nil
	}
	return credential{}, fmt.Errorf("credentials of the kind %s %s are not supported", clip(kind, 40), clip(how, 40))
}

// mayLearn refuses credentials for a server that only a fetched document names: an attacker who can change the document
// could have them sent anywhere.
func (d *document) mayLearn(u *url.URL, o *Options) error {
	if d.from == nil || o.Server != "" || originOf(u) == originOf(d.from) {
		return nil
	}
	return fmt.Errorf("credentials are for the host that the document comes from, %s, and its server is %s: if that is "+
		"right, put `server: %s` into the config", d.from.Host, u.Host, u)
}

// put adds a credential to a request. It replaces an argument of the same name.
func (c credential) put(r *http.Request) {
	switch c.in {
	case inHeader:
		r.Header.Set(c.name, c.value)
	case inCookie:
		others := without(r.Header.Get("Cookie"), "; ", c.name)
		r.Header.Set("Cookie", joinCookie(others, c.name+"="+escape(c.value, cookieStays)))
	case inQuery:
		rest := without(r.URL.RawQuery, "&", encoded(c.name))
		r.URL.RawQuery = strings.TrimPrefix(rest+"&"+encoded(c.name)+"="+encoded(c.value), "&")
	}
}

// cookieStays are the characters that a cookie's value can have besides the unreserved ones, and that servers do not
// decode.
const cookieStays = "!#$&'()*+/:<=>?@[]^`{|}"

func joinCookie(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// without removes the parts with a name from a list of name=value.
func without(list, between, name string) string {
	parts := slices.DeleteFunc(strings.Split(list, between), func(part string) bool {
		before, _, _ := strings.Cut(part, "=")
		return before == name
	})
	return strings.Join(parts, between)
}
