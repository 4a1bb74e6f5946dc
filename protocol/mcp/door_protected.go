package mcp

import (
	"net/http"
	"net/url"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// wellKnown is where clients look for what protects a resource (RFC 9728); behind it stands the path of the resource.
const wellKnown = "/.well-known/oauth-protected-resource"

// protection tells clients where callers get their tokens, so that one who comes without can send its user there.
// It says so only where there is such a place: the owner's token, and those that we issue, are not to be had by OAuth,
// and a client that is sent there anyway would look for a way in vain.
type protection struct {
	resource string // the URL by which clients know the door; "": the one that they used
	issuers  func() []string
}

func (p protection) servers() []string {
	if p.issuers == nil {
		return nil
	}
	return p.issuers()
}

// origin is where the client thinks that it is. The host is one of ours: the front has looked.
func (p protection) origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// originOf is the beginning of a URL, up to its path.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil { // CheckURL has read it
		return address
	}
	return u.Scheme + "://" + u.Host
}

// CheckURL finds what cannot be the URL of a door.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	good := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.Fragment == "" && u.RawQuery == ""
	if address != "" && !good {
		return tool.Errorf(tool.CodeInvalidInput,
			"url: %.200q is not the URL of a door, such as https://tools.example.org%s", address, Path)
	}
	return nil
}

func (p protection) at(r *http.Request) string {
	if p.resource != "" {
		return p.resource
	}
	return p.origin(r) + Path
}

// challenge is what the answer to a stranger says beside the usual.
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

// serve gives the document.
func (p protection) serve(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
	servers := p.servers()
	if len(servers) == 0 {
		web.Refuse(w, r, nil, http.StatusNotFound, tool.Errorf(tool.CodeNotFound, "tokens for this server are not "+
			"issued by OAuth: ask its owner for one; to accept those of an issuer, add it to callers.jwt"))
		return
	}
	body, _ := strictjson.Marshal(map[string]any{ // strings
		"resource": p.at(r), "authorization_servers": servers, "bearer_methods_supported": []string{"header"},
		"resource_name": "Toolpost",
	})
	web.Reply(w, http.StatusOK, body)
}
