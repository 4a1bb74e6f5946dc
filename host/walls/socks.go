package walls

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"syscall"

	"toolpost/tool"
)

// The words of SOCKS5, RFC 1928.
const (
	socksVersion   = 5
	socksConnect   = 1
	socksNoAuth    = 0
	socksNoMethod  = 0xff
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksOK        = 0
	socksDenied    = 2
	socksNoHost    = 4
	socksRefused   = 5
	socksNoCommand = 7
	socksNoAddress = 8
)

// serveSOCKS lets the child say whom it wants to reach.
func (c *connPair) serveSOCKS() {
	var start [2]byte
	if _, err := io.ReadFull(c.in, start[:]); err != nil {
		return
	}
	methods := make([]byte, start[1])
	if _, err := io.ReadFull(c.in, methods); err != nil {
		return
	}
	if !slices.Contains(methods, socksNoAuth) {
		_, _ = c.child.Write([]byte{socksVersion, socksNoMethod})
		c.part()
		return
	}
	_, _ = c.child.Write([]byte{socksVersion, socksNoAuth})
	t, reply, err := c.socksTarget()
	if err != nil {
		return
	}
	var peer *side
	if reply == socksOK {
		peer, err = c.connect(t)
		reply = socksReply(err)
	}
	// from which address of this machine a host was reached is nobody's business
	_, _ = c.child.Write([]byte{socksVersion, reply, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	if reply != socksOK {
		c.part()
		return
	}
	c.tunnel(peer)
}

// socksTarget reads the request. An error says that it does not come.
func (c *connPair) socksTarget() (host, byte, error) {
	var start [4]byte // version, command, nothing, kind of address
	if _, err := io.ReadFull(c.in, start[:]); err != nil {
		return host{}, 0, err
	}
	if start[0] != socksVersion || start[1] != socksConnect {
		return host{}, socksNoCommand, nil
	}
	size := map[byte]int{socksIPv4: 4, socksIPv6: 16}[start[3]]
	if start[3] == socksName {
		n, err := c.in.ReadByte()
		if err != nil {
			return host{}, 0, err
		}
		size = int(n)
	}
	if size == 0 {
		return host{}, socksNoAddress, nil
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(c.in, rest); err != nil {
		return host{}, 0, err
	}
	name := string(rest[:size])
	if addr, ok := netip.AddrFromSlice(rest[:size]); ok && start[3] != socksName {
		name = addr.String()
	}
	return newHost(name, binary.BigEndian.Uint16(rest[size:])), socksOK, nil
}

// socksReply is the reply for a host that was reached, or was not.
func socksReply(err error) byte {
	switch {
	case err == nil:
		return socksOK
	case tool.CodeOf(err) == tool.CodeAccessDenied:
		return socksDenied
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksRefused
	}
	return socksNoHost
}
