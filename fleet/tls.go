package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
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
		a, err := n.pass.authority()
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

// authority reads the authority in the pass of a hub.
func (p *Pass) authority() (*certs.Authority, error) {
	a, err := certs.Decode(p.CA, p.CAKey)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the fleet's authority in the pass of this hub cannot be read: %w; join again", err)
	}
	return a, nil
}

// trust is the TLS config of a member: it speaks to hubs of its own fleet alone.
func (p *Pass) trust() (*tls.Config, error) {
	ca, err := certs.Parse(p.CA)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the pass of this node cannot be read: %w; join the fleet again", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: certs.ServerName}
	if p.Named {
		c.ServerName = "" // the client fills in the host
	}
	return c, nil
}

// trust is the TLS config of a node that joins: it knows the digest of the authority's certificate, which the hub sends. A hub whose
// certificate is its operator's proves that it has the name by which the invitation calls it.
func (i Invitation) trust(hub string) *tls.Config {
	host, _, _ := net.SplitHostPort(hub)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: certs.ServerName,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies, against the one authority that the invitation names
		VerifyConnection: func(state tls.ConnectionState) error {
			at := slices.IndexFunc(state.PeerCertificates, func(c *x509.Certificate) bool { return fingerprint(c.Raw) == i.ca })
			if at < 0 {
				return errForeign
			}
			var chain [][]byte
			for _, c := range state.PeerCertificates {
				chain = append(chain, c.Raw)
			}
			if certs.Certified(chain, state.PeerCertificates[at], certs.ServerName) == nil {
				return nil
			}
			return certs.Certified(chain, state.PeerCertificates[at], host)
		},
	}
}

// errForeign means that a server does not belong to the fleet of an invitation.
var errForeign = tool.Errorf(tool.CodeAccessDenied, "the hub there belongs to another fleet than this token; ask for a token of its fleet")
