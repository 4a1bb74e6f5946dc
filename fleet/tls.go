package fleet

import (
	"crypto/tls"
	"sync/atomic"

	"toolpost/fleet/certs"
	"toolpost/tool"
)

// A getCertificate returns what a server shows to a client.
type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// always shows one certificate.
func always(c *tls.Certificate) getCertificate {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c, nil }
}

// certificate returns what the server of a hub shows: a certificate of its operator, or one that the fleet's authority makes now.
func (n *Node) certificate() (getCertificate, error) {
	if !n.pass.Named && n.env.TLS != (certs.Files{}) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "this fleet makes its own certificates, since fleet.tls was not set at `toolpost fleet init`: "+
			"remove it, or found a new fleet")
	}
	if !n.pass.Named {
		a, err := n.pass.Authority()
		if err != nil {
			return nil, err
		}
		made, err := a.Server()
		return always(&made), err
	}
	if n.env.TLS == (certs.Files{}) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the hubs of this fleet have certificates of their operator: set fleet.tls and fleet.advertise")
	}
	ca, err := certs.Parse(n.pass.CA)
	if err != nil {
		return nil, err
	}
	host, _ := n.env.advertised()
	var last atomic.Pointer[tls.Certificate]
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := n.env.TLS.Server(host, ca)
		if err == nil {
			last.Store(pair)
		} else if last.Load() != nil { // it is being replaced, most likely
			n.env.Log.Warn("the certificate of this hub cannot be used; the earlier one stays", "error", err)
			return last.Load(), nil
		}
		return pair, err
	}
	_, err = read(nil)
	return read, err
}
