package walls

import (
	"slices"
	"strings"

	"toolpost/host/sandbox"
	"toolpost/tool"
)

// Network says whom tools can reach: one of the words none, loopback and all, or a list of hosts, each a name or an
// address, with a port or for the ports of HTTP alone.
type Network []string

// UnmarshalText reads a single word.
func (n *Network) UnmarshalText(text []byte) error {
	*n = Network{string(text)}
	return nil
}

// kind returns the network of the sandbox, and the hosts where it has some.
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
