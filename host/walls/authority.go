package walls

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour // longer than any instance: its key is in memory alone, and ends with it
	maxLeaves     = 256                       // hosts with a certificate; a * covers any number of them
)

// An authority issues the certificates with which the proxy of one instance ends TLS. Its key is never outside of our memory,
// and only the programs of the instance trust it.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	dir    string // has nothing but the bundle
	bundle string // the certificates that the room trusts: those of the system, and this one

	mu     sync.Mutex
	leaves map[string]*tls.Config
}

// authority returns the authority of the instance, or nil if the proxy ends no TLS.
func (in *Injector) authority() (*authority, error) {
	if len(in.intercepts()) == 0 {
		return nil, nil
	}
	in.own.Do(func() { in.ca, in.failed = newAuthority() })
	if in.ca == nil && in.failed == nil {
		in.failed = fmt.Errorf("the instance has ended")
	}
	return in.ca, in.failed
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, leaves: map[string]*tls.Config{}}
	der, err := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "the proxy of this room"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, a.write()
}

// sign issues a certificate; the first one is the authority's own.
func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(authorityLife)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	return x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
}

// write makes the bundle. Rooms see the file and cannot change it; it has no secret.
func (a *authority) write() error {
	roots, err := systemRoots()
	if err == nil {
		a.dir, err = os.MkdirTemp("", "toolpost-room-*")
	}
	if err != nil {
		return err
	}
	a.bundle = filepath.Join(a.dir, "trusted.pem")
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	err = os.WriteFile(a.bundle, bytes.Join([][]byte{roots, own}, []byte("\n")), 0o444)
	if err == nil {
		err = os.Chmod(a.dir, 0o755) //nolint:gosec // programs may run as another user
	}
	return err
}

// systemRoots returns the certificates that this machine trusts; empty if it has no file of them.
func systemRoots() ([]byte, error) {
	if path := os.Getenv("SSL_CERT_FILE"); path != "" {
		return os.ReadFile(path)
	}
	for _, path := range []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
	} {
		if roots, err := os.ReadFile(path); err == nil {
			return roots, nil
		}
	}
	return nil, nil
}

// config returns how the proxy ends TLS for a host. It speaks HTTP/1.1 only: in HTTP/2 one connection could be for several
// hosts.
func (a *authority) config(t host) (*tls.Config, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := t.bare()
	if c := a.leaves[name]; c != nil {
		return c, nil
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name[:min(len(name), 64)]}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{name},
	}
	if t.addr.IsValid() {
		template.DNSNames, template.IPAddresses = nil, []net.IP{t.addr.AsSlice()}
	}
	der, err := a.sign(template, key)
	if err != nil {
		return nil, err
	}
	a.leaves[name] = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
	}
	return a.leaves[name], nil
}
