package walls

import (
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"toolpost/tool"
)

// CheckHosts refuses a list that has something else than hosts, as they are written in a list of the network.
func CheckHosts(list []string) error {
	for _, text := range list {
		if _, err := parseHost(text); err != nil {
			return err
		}
	}
	return nil
}

// Sends reports whether the value of a credential may be sent with a request, by its hosts, methods and paths. It is sent over TLS,
// or to an address of this machine or its network that is listed with its port.
func Sends(c *tool.Credential, method string, u *url.URL) bool {
	to, err := parseHost(Address(u))
	l, bad := newLink(c)
	return err == nil && bad == nil && l.refuses(request{to, u.Scheme == "https", method, u}) == ""
}

// inPaths reports whether a pattern matches the path, and no server can read another path from it.
func inPaths(patterns []string, u *url.URL) bool {
	plain := u.Path
	odd := strings.Contains(plain, "//") || strings.ContainsAny(plain, `\;%`) || strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
	for part := range strings.SplitSeq(plain, "/") {
		odd = odd || part == "." || part == ".."
	}
	return !odd && slices.ContainsFunc(patterns, func(p string) bool { return tool.Glob(p).Match(plain) })
}

// Header returns the header in which the value of a credential is sent: by default Authorization, as a bearer token.
func Header(c *tool.Credential, value string) (name, text string) {
	name, text, ok := strings.Cut(c.Header, ":")
	if !ok {
		name, text = "Authorization", "Bearer {key}"
	}
	return http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.ReplaceAll(strings.TrimSpace(text), "{key}", value)
}

// Withheld says why a request has none of these keys, as the end of a sentence; "" if it has one, or there are none.
func Withheld(credentials []*tool.Credential, method string, u *url.URL) string {
	var why []string
	for _, c := range credentials {
		to, err := parseHost(Address(u))
		l, bad := newLink(c)
		if err != nil || bad != nil {
			continue
		}
		no := l.refuses(request{to, u.Scheme == "https", method, u})
		if no == "" {
			return ""
		}
		why = append(why, "the key of the connection "+c.Connection+" was not sent with "+method+" to "+Address(u)+", "+no)
	}
	return strings.Join(why, "; ")
}

// Reaches reports whether one of these keys may be sent to the host of an address, with some method and path.
func Reaches(credentials []*tool.Credential, u *url.URL) bool {
	return slices.ContainsFunc(credentials, func(c *tool.Credential) bool { return Sends(&tool.Credential{Hosts: c.Hosts}, "", u) })
}

// Authorize adds the credentials of a call to a request that we make for it: each whose connection names the host. The request
// must not follow redirects then.
func Authorize(req *http.Request, credentials []*tool.Credential) (added bool, err error) {
	for _, c := range credentials {
		if !Sends(c, req.Method, req.URL) {
			continue
		}
		value, err := c.Value(req.Context())
		if err != nil {
			return added, tool.BeforeRun(err)
		}
		name, text := Header(c, value)
		if !httpguts.ValidHeaderFieldValue(text) {
			return added, tool.BeforeRun(tool.Errorf(tool.CodeUnavailable, "the key of the connection %s has characters that a header cannot have", c.Connection))
		}
		req.Header.Set(name, text)
		if to := req.URL.Host; c.Used != nil { // once there is a connection, whose certificate was checked
			*req = *req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { c.Used(to) }}))
		}
		added = true
	}
	return added, nil
}
