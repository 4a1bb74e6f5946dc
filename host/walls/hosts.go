package walls

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"toolpost/host/sandbox"
	"toolpost/tool"
)

// Network states which hosts tools can reach: one of the words none, loopback and all, or a list of hosts, each a name or
// an address, with a port or for the ports of HTTP alone.
type Network []string

// UnmarshalText reads a single word.
func (n *Network) UnmarshalText(text []byte) error {
	*n = Network{string(text)}
	return nil
}

// Expected completes the error "expected …" of the config.
func (Network) Expected() string { return "none, loopback, all, or a list of hosts" }

// kind returns the network of the sandbox, and its hosts if it has some.
func (n Network) kind() (sandbox.Network, []host, error) {
	words := []sandbox.Network{sandbox.NetworkNone, sandbox.NetworkLoopback, sandbox.NetworkAll}
	if len(n) == 0 {
		return sandbox.NetworkNone, nil, nil
	}
	for _, k := range words {
		if len(n) == 1 && n[0] == k.String() {
			return k, nil, nil
		}
		if slices.Contains(n, k.String()) {
			return 0, nil, tool.Errorf(tool.CodeInvalidInput, "network is %s alone, or a list of hosts, not both", k)
		}
	}
	var hosts []host
	for _, text := range n {
		h, err := parseHost(text)
		if err != nil {
			return 0, nil, err
		}
		hosts = append(hosts, h)
	}
	return sandbox.NetworkEgress, hosts, nil
}

// String returns the words of the config.
func (n Network) String() string {
	if len(n) == 0 {
		return sandbox.NetworkNone.String()
	}
	return strings.Join(n, ", ")
}

// A host is one that tools may reach, or that a tool asks for.
type host struct {
	name string     // lower case, without a trailing dot; empty if there is an address
	wild bool       // matches every name below this one, but not the name itself
	addr netip.Addr // of a host that is named by its address
	port uint16     // 0 means those of HTTP, 80 and 443
}

// parseHost parses name, *.name or address, each alone or with a port, as in name:port and [address]:port.
func parseHost(text string) (host, error) {
	bad := func(why string) (host, error) {
		return host{}, tool.Errorf(tool.CodeInvalidInput,
			"network: %q %s; a host is written like api.example.com, *.example.com, api.example.com:8443 or "+
				"10.0.0.7:80", text, why)
	}
	if strings.Contains(text, "://") {
		return bad("is a URL")
	}
	name, port := text, uint16(0)
	if _, err := netip.ParseAddr(text); err != nil && strings.ContainsRune(text, ':') {
		var digits string
		if name, digits, err = net.SplitHostPort(text); err != nil {
			return bad("is not a host")
		}
		if port, err = parsePort(digits); err != nil {
			return bad("has an invalid port")
		}
	}
	h := newHost(name, port)
	h.name, h.wild = strings.CutPrefix(h.name, "*.")
	switch labels := strings.Split(h.name, "."); {
	case h.addr.Zone() != "":
		return bad("is an address of one interface")
	case h.addr.IsValid():
	case !isName(h.name):
		return bad("is not a valid host name")
	case isNumber(labels[len(labels)-1]):
		return bad("is a number, which some programs read as an address")
	}
	return h, nil
}

// newHost distinguishes an address from a name. Any text is accepted as a name: the list of hosts decides whether it can
// be reached.
func newHost(name string, port uint16) host {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		return host{addr: addr.Unmap(), port: port}
	}
	return host{name: name, port: port}
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return uint16(n), err
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

// isNumber reports whether the last label of a name makes the C library parse the whole as an IPv4 address.
func isNumber(label string) bool {
	hex, isHex := strings.CutPrefix(label, "0x")
	return strings.Trim(label, "0123456789") == "" || isHex && strings.Trim(hex, "0123456789abcdef") == ""
}

// covers reports whether the entry h of the list allows a tool to reach t.
func (h host) covers(t host) bool {
	switch {
	case t.port == 0 || h.port != t.port && (h.port != 0 || t.port != 80 && t.port != 443):
		return false
	case t.addr.IsValid() || h.addr.IsValid():
		return h.addr == t.addr
	case h.wild:
		return strings.HasSuffix(t.name, "."+h.name)
	}
	return h.name == t.name
}

// String returns the host as people write it, in one short line whatever a tool has sent.
func (h host) String() string {
	name := h.name
	switch {
	case h.addr.IsValid():
		name = h.addr.String()
	case !isName(name):
		name = strconv.QuoteToASCII(name[:min(len(name), 100)])
	}
	return net.JoinHostPort(name, strconv.Itoa(int(h.port)))
}

// bare returns the name or the address.
func (h host) bare() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// entry returns the entry of the list that would allow the host.
func (h host) entry() string {
	if h.port == 80 || h.port == 443 {
		return strings.Trim(strings.TrimSuffix(h.String(), ":"+strconv.Itoa(int(h.port))), "[]")
	}
	return h.String()
}

// reserved lists the addresses that are not on the Internet: this machine, its neighbours, the metadata services of
// clouds, and those that belong to no host. Of IPv6 that includes everything outside 2000::/3.
func reserved() []string {
	return []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
		"240.0.0.0/4",
		"168.63.129.16/32", // a cloud's own, although it looks public
		"2001::/23", "2001:db8::/32", "3fff::/20",
	}
}

// isPublic reports whether an address is on the Internet. An address that embeds an IPv4 address is judged by that.
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if b := a.As16(); a.Is6() {
		switch {
		case netip.MustParsePrefix("64:ff9b::/96").Contains(a): // NAT64
			a = netip.AddrFrom4([4]byte(b[12:]))
		case netip.MustParsePrefix("2002::/16").Contains(a): // 6to4
			a = netip.AddrFrom4([4]byte(b[2:6]))
		case b[0]>>5 != 1 || a.Zone() != "":
			return false
		}
	}
	return !slices.ContainsFunc(reserved(), func(p string) bool { return netip.MustParsePrefix(p).Contains(a) })
}
