package identity

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"toolpost/tool"
)

// Anonymous is the config of a door for requests without credentials. The zero value admits none of them.
//
// Some clients know nothing of credentials, and some drop those of a URL. They are admitted only as a caller that the
// config names; there is no default caller, and no setting for all doors at once.
type Anonymous struct {
	Name     string `yaml:"anonymous" doc:"the caller from callers.list that requests without credentials count as; default: they are refused"`
	Anywhere bool   `yaml:"anonymous_anywhere" doc:"allow anonymous callers even on an address that other machines can reach"`
}

// String describes for people what the setting admits.
func (a Anonymous) String() string {
	switch {
	case a.Name == "":
		return "callers without credentials are refused"
	case a.Anywhere:
		return "callers without credentials, from any address, are the caller " + a.Name
	}
	return "callers on this machine without credentials are the caller " + a.Name
}

// Check refuses senseless settings, as far as the text of an address shows. Host names are looked up when the door
// opens: CheckOn decides.
func (a Anonymous) Check(listen string, isCaller func(name string) bool) error {
	switch {
	case a.Name == "" && a.Anywhere:
		return tool.Errorf(tool.CodeInvalidInput,
			"anonymous_anywhere says where callers may be anonymous, and nothing says who "+
				"they are; add `anonymous: NAME`, or leave it out")
	case a.Name == "":
		return nil
	case a.Name == Owner || a.Name == Local:
		return tool.Errorf(tool.CodeInvalidInput,
			"anonymous: %q is not a caller of this config and cannot be one; name another, such as "+
				"guest with `callers: {list: {guest: {tools: \"read*\"}}}`", a.Name)
	case !isCaller(a.Name):
		return tool.Errorf(tool.CodeInvalidInput,
			"anonymous: %.100q is not a caller of this config; add it to callers, such as "+
				"`callers: {list: {%.100s: {tools: \"read*\"}}}`", a.Name, a.Name)
	case strings.HasPrefix(listen, "unix:"):
		return nil
	}
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (ip != nil || host == "") {
		return a.checkIP(ip, listen)
	}
	return nil
}

// CheckOn refuses an address that other machines can reach, unless the config allows it explicitly.
func (a Anonymous) CheckOn(addr net.Addr) error {
	if a.Name == "" || a.Anywhere {
		return nil
	}
	switch at := addr.(type) {
	case *net.UnixAddr:
		return nil
	case *net.TCPAddr:
		return a.checkIP(at.IP, at.String())
	}
	return a.tooOpen(fmt.Sprint(addr))
}

func (a Anonymous) checkIP(ip net.IP, listen string) error {
	if a.Anywhere || ip.IsLoopback() {
		return nil
	}
	return a.tooOpen(listen)
}

// tooOpen names the address, because a flag may have replaced the one in the config.
func (a Anonymous) tooOpen(listen string) error {
	return tool.Errorf(tool.CodeInvalidInput, "anonymous: anyone who can reach %s would be the caller %q; listen on "+
		"127.0.0.1 or a Unix socket, or add `anonymous_anywhere: true` if that is meant", listen, a.Name)
}

// Of returns the caller of an HTTP request without credentials, or "". A request with credentials is never anonymous,
// even if they are wrong: a client with a wrong token must learn that. Nor is a request from a browser, which could come
// from any page, nor one that a proxy has passed on, because its origin is unknown.
func (a Anonymous) Of(r *http.Request) string {
	shows := first(r.Header, "Authorization") != "" || r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	if shows || a.sign(r.Header) != "" {
		return ""
	}
	return a.Name
}

// WhyNot returns why a request is not anonymous at a door that admits anonymous ones: the beginning of a sentence, or
// "". Without it, an operator with a proxy in front would be asked for a token and never learn why.
func (a Anonymous) WhyNot(h http.Header) string {
	if name := a.sign(h); a.Name != "" && name != "" {
		return "a request with the header " + name + " is never anonymous; "
	}
	return ""
}

// sign returns the header that shows a browser, or a proxy if the origin of a request matters.
func (a Anonymous) sign(h http.Header) string {
	name := fromPage(h)
	if name == "" && !a.Anywhere {
		name = first(h, "Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via")
	}
	return name
}

// fromPage returns the header that shows that a browser sent a request, or may have. Sec-Fetch-Mode proves nothing: Node
// sends it.
func fromPage(h http.Header) string {
	if strings.HasPrefix(h.Get("User-Agent"), "Mozilla/") {
		return "User-Agent: Mozilla/..."
	}
	return first(h, "Origin", "Referer", "Cookie", "Sec-Fetch-Site", "Sec-Fetch-Dest")
}

// first returns the first of some headers that is present, empty or not.
func first(h http.Header, names ...string) string {
	if i := slices.IndexFunc(names, func(name string) bool { return len(h.Values(name)) > 0 }); i >= 0 {
		return names[i]
	}
	return ""
}

// anonymous admits a request without credentials, with the present rights of its caller in the config.
func (c *Callers) anonymous(shown Credentials) (tool.Principal, error) {
	rights := c.rights[shown.Anonymous]
	if !c.Lists(shown.Anonymous) {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied,
			"the config no longer has the anonymous caller of this door; show credentials").Because(Reason)
	}
	return tool.Principal{ID: shown.Anonymous, Door: shown.Door, Rights: rights}, nil
}
