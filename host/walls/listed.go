package walls

import "net/netip"

// CheckHosts refuses a list that has something else than hosts, as they are written in a list of the network.
func CheckHosts(list []string) error {
	for _, text := range list {
		if _, err := parseHost(text); err != nil {
			return err
		}
	}
	return nil
}

// Listed reports whether a list of hosts has a host, a name or an address, at a port.
func Listed(list []string, name string, port uint16) bool {
	asked := newHost(name, port)
	if addr, err := netip.ParseAddr(name); err == nil && addr.Zone() != "" {
		return false
	}
	for _, text := range list {
		if h, err := parseHost(text); err == nil && h.covers(asked) {
			return true
		}
	}
	return false
}
