package walls

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"toolpost/tool"
)

// A host is one that tools may reach.
type host struct {
	name string     // lower case, without a dot at its end; empty: there is an address
	addr netip.Addr // of a host that is named by its address
	port uint16     // 0: those of HTTP, 80 and 443
}

// parseHost reads name, name:port, address, address:port or [address]:port.
func parseHost(text string) (host, error) {
	bad := func(why string) (host, error) {
		return host{}, tool.Errorf(tool.CodeInvalidInput, "network: %q %s; a host is written like api.example.com, api.example.com:8443 or 10.0.0.7:80", text, why)
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return host{addr: addr.Unmap()}, nil
	}
	name, port := text, ""
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		var err error
		if name, port, err = net.SplitHostPort(text); err != nil {
			return bad("is no host")
		}
	}
	var h host
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return bad("has a port that is none")
		}
		h.port = uint16(n)
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		h.addr = addr.Unmap()
		return h, nil
	}
	if h.name = strings.ToLower(strings.TrimSuffix(name, ".")); !isName(h.name) {
		return bad("is no name of a host")
	}
	return h, nil
}

// isName reports whether a text can be the name of a host.
func isName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// An egress is the way out of a room to the hosts that are named, and to no others.
type egress struct{ hosts []host }

func newEgress(hosts []host) *egress { return &egress{hosts} }

// serve gives the function that takes the connections of one room.
func (e *egress) serve(*Watch) func(net.Conn) { return func(c net.Conn) { _ = c.Close() } }

// proxyVariables tell programs where the way out is.
func proxyVariables() []string { return nil }
