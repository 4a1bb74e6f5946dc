// Package certs makes and reads the certificates with which the hubs of a fleet prove that they belong to it.
package certs

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
	"os"
	"time"

	"toolpost/tool"
)

// ServerName is the name in the certificates of hubs. The authority of a fleet certifies nothing but its hubs, so the
// names of machines, which change, say nothing more.
const ServerName = "hub.toolpost"

// Certificates hold for a long time, and from long before they were made: a wrong clock must not break the fleet.
const (
	validBefore = 2 * 365 * 24 * time.Hour
	validFor    = 30 * 365 * 24 * time.Hour
)

// An Authority makes the certificates of hubs.
type Authority struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// New makes the authority of a new fleet.
func New() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	made, err := Certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: "Toolpost fleet"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, &key.PublicKey, key)
	return &Authority{made, key}, err
}

// Certify signs a certificate; without a parent it signs itself.
func Certify(template, parent *x509.Certificate, of *ecdsa.PublicKey, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
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

// Server makes the certificate of a hub's server, and sends the authority's with it: a node that joins knows only the
// digest of that one.
func (a *Authority) Server() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	made, err := Certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: ServerName}, DNSNames: []string{ServerName}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.Certificate, &key.PublicKey, a.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{made.Raw, a.Certificate.Raw}, PrivateKey: key}, nil
}

// Files are the certificate of a hub that its operator made.
type Files struct {
	Cert string `yaml:"cert" kind:"path" doc:"PEM file with the hub's certificate, for the host of advertise, and its intermediates; it is read again for each connection"`
	Key  string `yaml:"key" kind:"path" doc:"PEM file with its private key"`
	CA   string `yaml:"ca" kind:"path" doc:"PEM file with the authority, the only one that nodes of the fleet trust"`
}

// Authority reads the certificate of the authority.
func (f Files) Authority() (*x509.Certificate, error) {
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.tls.ca cannot be read: %w", err)
	}
	ca, err := Parse(string(text))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.tls.ca %s cannot be used: %w", f.CA, err)
	}
	return ca, nil
}

// Server reads the certificate of a hub on a host, and sends the authority's with it, as the fleet's own does.
func (f Files) Server(host string, ca *x509.Certificate) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.tls.cert %s and its key cannot be used: %w", f.Cert, err)
	}
	if err := Certified(pair.Certificate, ca, host); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "fleet.tls.cert %s is not one that nodes would accept for %s, the host of fleet.advertise: %w", f.Cert, host, err)
	}
	pair.Certificate = append(pair.Certificate, ca.Raw)
	return &pair, nil
}

// Certified reports why a chain of certificates is not one of an authority for a name.
func Certified(chain [][]byte, ca *x509.Certificate, name string) error {
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

// Encode returns the certificate and the key as text.
func (a *Authority) Encode() (certificate, key string, err error) {
	der, err := x509.MarshalECPrivateKey(a.Key)
	text := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return text("CERTIFICATE", a.Certificate.Raw), text("EC PRIVATE KEY", der), err
}

// Decode reads an authority from its texts.
func Decode(certificate, key string) (*Authority, error) {
	c, err := Parse(certificate)
	block, _ := pem.Decode([]byte(key))
	if block == nil {
		return nil, errors.Join(err, errors.New("it has no key"))
	}
	if err != nil {
		return nil, err
	}
	k, err := x509.ParseECPrivateKey(block.Bytes)
	return &Authority{c, k}, err
}

// Parse reads a certificate.
func Parse(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("it has no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}
