package web

import (
	"net"
	"net/netip"
	"strings"
)

// hosts are the Host headers that are ours. A page in a browser can make its own name point to this machine (DNS
// rebinding), which would make it our origin; but it cannot send another Host.
type hosts struct {
	names    map[string]bool
	literals bool // any IP address is accepted in place of a name
}

// hostsOf lists them for a front at an address. A front that listens on every address of the machine accepts every IP
// address as a host: unlike a name, an address cannot be made to point elsewhere. The machine's addresses change, and
// behind a router it does not even know them.
func hostsOf(addr net.Addr, listen string, configured []string) *hosts {
	if addr.Network() == "unix" {
		return nil // no page in a browser comes this way
	}
	h := &hosts{map[string]bool{addr.String(): true, strings.ToLower(listen): true}, isEverywhere(addr.String())}
	_, port, _ := net.SplitHostPort(addr.String())
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		h.names[host+":"+port] = true
		h.names[host] = port == "80" // clients leave out the default port
	}
	for _, host := range configured {
		host = strings.ToLower(host)
		h.names[host] = true // without a port, as a proxy in front of us passes it on
		if _, _, err := net.SplitHostPort(host); err != nil {
			h.names[host+":"+port] = true
		}
	}
	return h
}

// have reports whether a Host header is one of ours; nil accepts all.
func (h *hosts) have(host string) bool {
	if h == nil || h.names[strings.ToLower(host)] {
		return true
	}
	if !h.literals {
		return false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Zone() == "" // a zone is any text; clients that need one do not send it
}

// isEverywhere reports whether an address means all addresses of the machine.
func isEverywhere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip, bad := netip.ParseAddr(host)
	return err == nil && (host == "" || bad == nil && ip.IsUnspecified())
}

// Addresses lists the addresses at which a front that listens on addr is reached: addr itself, or, if that means all
// addresses of the machine, each of them, the loopback address first.
func Addresses(addr string) []string {
	if !isEverywhere(addr) {
		return []string{addr}
	}
	host, port, _ := net.SplitHostPort(addr)
	own, _ := net.InterfaceAddrs() // without them only the loopback address is listed
	list := []string{net.JoinHostPort("127.0.0.1", port)}
	for _, one := range own {
		prefix, err := netip.ParsePrefix(one.String())
		ip := prefix.Addr().Unmap()
		if err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() || !ip.Is4() && host == "0.0.0.0" {
			continue
		}
		list = append(list, net.JoinHostPort(ip.String(), port))
	}
	return list
}
