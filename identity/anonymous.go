package identity

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"toolpost/tool"
)

// Anonymous is what the config of a door says about those who show no credentials. The zero value lets none of them in.
//
// Clients that know nothing of credentials exist, and some drop those of a URL. They get in where somebody has said as
// whom; there is no caller that everybody is by default, and no setting for all doors at once.
type Anonymous struct {
	Name     string `yaml:"anonymous" doc:"the caller, of callers.list, that whoever shows no credentials is; nobody comes in without them where it is left out"`
	Anywhere bool   `yaml:"anonymous_anywhere" doc:"allow anonymous on addresses that others than this machine can reach, too"`
}

// String says who comes in, for people.
func (a Anonymous) String() string {
	switch {
	case a.Name == "":
		return "nobody comes in without credentials"
	case a.Anywhere:
		return "whoever shows no credentials is the caller " + a.Name + ", wherever they come from"
	}
	return "whoever on this machine shows no credentials is the caller " + a.Name
}

// Check finds what cannot be meant, as far as the letters of an address tell. Names of hosts are looked up when the
// door opens: CheckOn has the last word.
func (a Anonymous) Check(listen string, isCaller func(name string) bool) error {
	switch {
	case a.Name == "" && a.Anywhere:
		return tool.Errorf(tool.CodeInvalidInput, "anonymous_anywhere says where callers may be anonymous, and nothing says who "+
			"they are; add `anonymous: NAME`, or leave it out")
	case a.Name == "":
		return nil
	case !isCaller(a.Name):
		return tool.Errorf(tool.CodeInvalidInput, "anonymous: %.100q is no caller of this config; add it to callers, such as "+
			"`callers: {list: {%.100s: {tools: \"read*\"}}}`", a.Name, a.Name)
	case strings.HasPrefix(listen, "unix:"):
		return nil
	}
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (ip != nil || host == "") {
		return a.CheckOn(&net.TCPAddr{IP: ip})
	}
	return nil
}

// CheckOn refuses an address that others than this machine can reach, unless the config says so twice.
func (a Anonymous) CheckOn(addr net.Addr) error {
	if a.Name == "" || a.Anywhere {
		return nil
	}
	switch at := addr.(type) {
	case *net.UnixAddr:
		return nil
	case *net.TCPAddr:
		if at.IP.IsLoopback() {
			return nil
		}
	}
	return tool.Errorf(tool.CodeInvalidInput, "anonymous: whoever reaches this machine would be the caller %q; listen on "+
		"127.0.0.1 or a Unix socket, or add `anonymous_anywhere: true` if that is meant", a.Name)
}

// Of gives the caller that an HTTP request is of when it shows nothing; empty: nobody. A request that shows something
// is never anonymous, whether or not it helps: who presents a wrong token is to be told. Neither is one of a page in a
// browser, which would be anybody's page, nor one that a proxy has passed on, since then nobody knows from where.
func (a Anonymous) Of(r *http.Request) string {
	shows := has(r.Header, "Authorization") || r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	if shows || fromPage(r.Header) || !a.Anywhere && passedOn(r.Header) {
		return ""
	}
	return a.Name
}

// fromPage reports whether a browser sent a request, or may have. Sec-Fetch-Mode is no sign: Node sends it.
func fromPage(h http.Header) bool {
	return has(h, "Origin", "Referer", "Cookie", "Sec-Fetch-Site", "Sec-Fetch-Dest") ||
		strings.HasPrefix(h.Get("User-Agent"), "Mozilla/")
}

func passedOn(h http.Header) bool { return has(h, "Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via") }

func has(h http.Header, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return len(h.Values(name)) > 0 })
}

// anonymous lets in who shows nothing, with the rights that the config gives the caller now.
func (c *Callers) anonymous(shown Credentials) (tool.Principal, error) {
	rights := c.rights[shown.Anonymous]
	if !c.Lists(shown.Anonymous) {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied,
			"the config does not have the anonymous caller of this door any more; show credentials").Because(Reason)
	}
	return tool.Principal{ID: shown.Anonymous, Door: shown.Door, Rights: rights}, nil
}
