package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// serverName is the name in the certificates of hubs. The authority of a fleet certifies nothing but its hubs, so the
// names of machines, which change, say nothing more.
const serverName = "hub.toolpost"

// Certificates hold for a long time, and from long before they were made: a wrong clock must not break the fleet.
const (
	validBefore = 2 * 365 * 24 * time.Hour
	validFor    = 30 * 365 * 24 * time.Hour
)

// An authority makes the certificates of hubs.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newAuthority makes the authority of a new fleet.
func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	made, err := certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: "Toolpost fleet"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, &key.PublicKey, key)
	return &authority{made, key}, err
}

// certify signs a certificate; without a parent it signs itself.
func certify(template, parent *x509.Certificate, of *ecdsa.PublicKey, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-validBefore), time.Now().Add(validFor)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, of, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// server makes the certificate of a hub's server, and sends the authority's with it: a node that joins knows only the
// digest of that one.
func (a *authority) server() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	made, err := certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{made.Raw, a.certificate.Raw}, PrivateKey: key}, nil
}

// Files are the certificate of a hub that its operator made.
type Files struct {
	Cert string `yaml:"cert" kind:"path" doc:"PEM file with the hub's certificate, for the host of advertise, and its intermediates; it is read again for each connection"`
	Key  string `yaml:"key" kind:"path" doc:"PEM file with its private key"`
	CA   string `yaml:"ca" kind:"path" doc:"PEM file with the authority, the only one that nodes of the fleet trust"`
}

// authority reads the certificate of the authority.
func (f Files) authority() (*x509.Certificate, error) {
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.tls.ca cannot be read: %w", err)
	}
	ca, err := parseCertificate(string(text))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.tls.ca %s cannot be used: %w", f.CA, err)
	}
	return ca, nil
}

// server reads the certificate of a hub on a host, and sends the authority's with it, as the fleet's own does.
func (f Files) server(host string, ca *x509.Certificate) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.tls.cert %s and its key cannot be used: %w", f.Cert, err)
	}
	if err := certified(pair.Certificate, ca, host); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.tls.cert %s is not one that nodes would accept for %s, the host of fleet.advertise: %w", f.Cert, host, err)
	}
	pair.Certificate = append(pair.Certificate, ca.Raw)
	return &pair, nil
}

// certified reports why a chain of certificates is not one of an authority for a name.
func certified(chain [][]byte, ca *x509.Certificate, name string) error {
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return err
	}
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), DNSName: name}
	o.Roots.AddCert(ca)
	for _, der := range chain[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			o.Intermediates.AddCert(c)
		}
	}
	_, err = leaf.Verify(o)
	return err
}

// A getCertificate returns what a server shows to a client.
type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// always shows one certificate.
func always(c *tls.Certificate) getCertificate {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c, nil }
}

// certificate returns what the server of a hub shows: a certificate of its operator, or one that the fleet's authority makes now.
func (n *Node) certificate() (getCertificate, error) {
	if !n.pass.Named && n.env.TLS != (Files{}) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "this fleet makes its own certificates, since fleet.tls was not set at `toolpost fleet init`: "+
			"remove it, or found a new fleet")
	}
	if !n.pass.Named {
		a, err := n.pass.authority()
		if err != nil {
			return nil, err
		}
		made, err := a.server()
		return always(&made), err
	}
	if n.env.TLS == (Files{}) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the hubs of this fleet have certificates of their operator: set fleet.tls and fleet.advertise")
	}
	ca, err := parseCertificate(n.pass.CA)
	if err != nil {
		return nil, err
	}
	host, _ := n.env.advertised()
	var last atomic.Pointer[tls.Certificate]
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := n.env.TLS.server(host, ca)
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

// encode returns the certificate and the key as text.
func (a *authority) encode() (certificate, key string, err error) {
	der, err := x509.MarshalECPrivateKey(a.key)
	text := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return text("CERTIFICATE", a.certificate.Raw), text("EC PRIVATE KEY", der), err
}

// authority reads the authority in the pass of a hub.
func (p *Pass) authority() (*authority, error) {
	certificate, err := parseCertificate(p.CA)
	block, _ := pem.Decode([]byte(p.CAKey))
	if block == nil {
		err = errors.Join(err, errors.New("it has no key"))
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the fleet's authority in the pass of this hub cannot be read: %w; join again", err)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	return &authority{certificate, key}, err
}

func parseCertificate(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("it has no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// trust is the TLS config of a member: it speaks to hubs of its own fleet alone.
func (p *Pass) trust() (*tls.Config, error) {
	ca, err := parseCertificate(p.CA)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the pass of this node cannot be read: %w; join the fleet again", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: serverName}
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
		MinVersion: tls.VersionTLS13, ServerName: serverName,
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
			if certified(chain, state.PeerCertificates[at], serverName) == nil {
				return nil
			}
			return certified(chain, state.PeerCertificates[at], host)
		},
	}
}

// errForeign means that a server does not belong to the fleet of an invitation.
var errForeign = tool.Errorf(tool.CodeAccessDenied, "the hub there belongs to another fleet than this token; ask for a token of its fleet")
