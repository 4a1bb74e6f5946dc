package web

import (
	"net"
	"net/netip"
	"strings"
)

// hosts are the Host headers that are ours. A page in a browser can make its own name point to this machine (DNS
// rebinding) and would then be of our origin; but it cannot send another Host.
type hosts struct {
	names    map[string]bool
	literals bool // an address in place of a name will do, whichever
}

// hostsOf lists them for a front at an address. One that listens on every address of the machine answers to every
// address: nobody can make an address point elsewhere, as a name can be, and which addresses the machine has changes,
// and is not even known to it behind a router.
func hostsOf(addr net.Addr, listen string, configured []string) *hosts {
	if addr.Network() == "unix" {
		return nil // no page in a browser comes this way
	}
	h := &hosts{map[string]bool{addr.String(): true, strings.ToLower(listen): true}, isEverywhere(addr.String())}
	_, port, _ := net.SplitHostPort(addr.String())
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		h.names[host+":"+port] = true
		h.names[host] = port == "80" // where clients leave it out
	}
	for _, host := range configured {
		host = strings.ToLower(host)
		h.names[host] = true // without a port: as a proxy in front of us passes it on
		if _, _, err := net.SplitHostPort(host); err != nil {
			h.names[host+":"+port] = true
		}
	}
	return h
}

// have reports whether a Host header is one of ours; nil has them all.
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

// isEverywhere reports whether an address stands for all of the machine.
func isEverywhere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip, bad := netip.ParseAddr(host)
	return err == nil && (host == "" || bad == nil && ip.IsUnspecified())
}

// Addresses lists where a front is found that listens on an address: there, and where that stands for all addresses of
// the machine, at each of them, this machine's own first.
func Addresses(addr string) []string {
	if !isEverywhere(addr) {
		return []string{addr}
	}
	host, port, _ := net.SplitHostPort(addr)
	own, _ := net.InterfaceAddrs() // without them the loopback address is all that is told
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
