package openapi

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"toolpost/host/walls"
	"toolpost/wire/regex"
)

var serverVariable = regex.Lazy(`\{([^{}]*)\}`)

// serverOf returns the server of an operation: the config's, or the first of the nearest level that names one. The
// levels are, from near to far, the operation, its path and the document.
func (d *document) serverOf(o *Options, levels ...object) (*url.URL, error) {
	if o.Server != "" {
		return parseServer(o.Server)
	}
	for _, level := range levels {
		if list, ok := level["servers"].([]any); ok && len(list) > 0 {
			return d.server(list[0], o)
		}
	}
	return d.server(object{"url": "/"}, o)
}

func (d *document) server(v any, o *Options) (*url.URL, error) {
	about, err := d.object(v, "the server")
	if err != nil {
		return nil, err
	}
	filled, err := fillServer(about, o.Variables)
	if err != nil {
		return nil, err
	}
	if d.from != nil {
		ref, err := url.Parse(filled)
		if err != nil {
			return nil, fmt.Errorf("its server %q is not a URL", clip(filled, 200))
		}
		filled = d.from.ResolveReference(ref).String()
	} else if !strings.Contains(filled, "://") {
		return nil, fmt.Errorf("its server is %q, without a host: say which with `server` in the config", clip(filled, 200))
	}
	u, err := parseServer(filled)
	if err == nil && d.from != nil && u.Host != d.from.Host && isInner(u.Hostname()) {
		err = fmt.Errorf("a document from %s names the inner address %s: if it is right, put it into `server` in the config",
			d.from.Host, u.Host)
	}
	return u, err
}

// fillServer replaces variables by the config's values, or by their defaults.
func fillServer(about object, given map[string]string) (string, error) {
	variables, _ := about["variables"].(object)
	var failed error
	filled := serverVariable().ReplaceAllStringFunc(text(about, "url"), func(in string) string {
		name := in[1 : len(in)-1]
		v, _ := variables[name].(object)
		value, ok := given[name]
		if !ok {
			if value, ok = v["default"].(string); !ok {
				failed = fmt.Errorf("its server has the variable %s without a default: give it a value with `variables`",
					clip(name, 100))
			}
		}
		if list, limited := v["enum"].([]any); limited && ok && !slices.Contains(list, any(value)) {
			failed = fmt.Errorf("its server's variable %s cannot be %q", clip(name, 100), clip(value, 100))
		}
		return value
	})
	return filled, failed
}

func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return nil, fmt.Errorf("%q is not the address of a server: it begins with https:// or http:// and has a host",
			clip(text, 200))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the address of the server at %s has a user, a query or a fragment", clip(u.Host, 200))
	}
	for step := range strings.SplitSeq(u.Path, "/") {
		if step == ".." || step == "." {
			return nil, fmt.Errorf("the path of the server at %s has . or .. as a step", clip(u.Host, 200))
		}
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

// isLiteral reports whether a host is an address by itself, so that its author means that place.
func isLiteral(host string) bool {
	_, err := netip.ParseAddr(host)
	host = strings.ToLower(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isInner reports whether a host is written as this machine, or as an address that is not public.
func isInner(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return !walls.Public(ip)
	}
	return isLiteral(host)
}

// originOf returns the part of a URL that a request must not leave.
func originOf(u *url.URL) string { return u.Scheme + "://" + strings.ToLower(walls.Address(u)) }
