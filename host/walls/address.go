package walls

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// Public reports whether an address is on the Internet, and not of this machine, its network or a cloud's own.
func Public(a netip.Addr) bool { return isPublic(a) }

// Address returns the host and port of a URL.
func Address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// IsProxy reports whether an address is that of the proxy in the environment.
func IsProxy(addr string) bool {
	for _, scheme := range []string{"http", "https"} {
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "example.com"}})
		if err == nil && proxy != nil && Address(proxy) == addr {
			return true
		}
	}
	return false
}
