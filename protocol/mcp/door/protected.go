package door

import (
	"net/http"
	"net/url"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// wellKnown is the path of a resource's metadata (RFC 9728); the path of the resource follows it.
const wellKnown = "/.well-known/oauth-protected-resource"

// protection tells clients where to get tokens, so that a client without one can send its user there. It does so only
// if there is an issuer: the owner's token, and those that we issue, cannot be had by OAuth, and a client that is sent
// there would search in vain.
type protection struct {
	resource string // the URL of the door; "" means the one that the client used
	issuers  func() []string
}

func (p protection) servers() []string {
	if p.issuers == nil {
		return nil
	}
	return p.issuers()
}

// origin returns the origin that the client used. The front has checked that the host is ours.
func (p protection) origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// originOf returns the scheme and host of a URL.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil { // CheckURL has parsed it
		return address
	}
	return u.Scheme + "://" + u.Host
}

// CheckURL reports whether an address can be the URL of a door.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	good := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.Fragment == "" && u.RawQuery == ""
	if address != "" && !good {
		return tool.Errorf(tool.CodeInvalidInput,
			"url: %.200q is not the URL of a door, such as https://tools.example.org%s", address, Path)
	}
	return nil
}

func (p protection) resourceURL(r *http.Request) string {
	if p.resource != "" {
		return p.resource
	}
	return p.origin(r) + Path
}

// challenge returns the addition to WWW-Authenticate for a caller without a valid token.
func (p protection) challenge(r *http.Request) string {
	if len(p.servers()) == 0 {
		return ""
	}
	at := p.origin(r)
	if p.resource != "" {
		at = originOf(p.resource)
	}
	return `, resource_metadata="` + at + wellKnown + Path + `"`
}

// serve returns the metadata document.
func (p protection) serve(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
	servers := p.servers()
	if len(servers) == 0 {
		web.Refuse(w, r, nil, http.StatusNotFound, tool.Errorf(tool.CodeNotFound, "tokens for this server are not "+
			"issued by OAuth: ask its owner for one; to accept those of an issuer, add it to callers.jwt"))
		return
	}
	body, _ := strictjson.Marshal(map[string]any{ // strings
		"resource": p.resourceURL(r), "authorization_servers": servers, "bearer_methods_supported": []string{"header"},
		"dpop_signing_alg_values_supported": identity.ProofAlgorithms(), "resource_name": "Toolpost",
	})
	web.Reply(w, http.StatusOK, body)
}
