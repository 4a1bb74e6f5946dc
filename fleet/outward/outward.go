// Package outward finds out under which address other machines reach this one.
package outward

import (
	"context"
	"net"
)

// Address is the address of this machine that others most likely reach: the one from which it would send to them.
func Address() string {
	c, err := new(net.Dialer).DialContext(context.Background(), "udp", "192.0.2.1:9") // nothing is sent
	if err == nil {
		defer c.Close()
		host, _, _ := net.SplitHostPort(c.LocalAddr().String())
		return host
	}
	all, _ := net.InterfaceAddrs() // there is no way out of this network
	for _, a := range all {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	return "127.0.0.1"
}
