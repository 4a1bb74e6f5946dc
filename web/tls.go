package web

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"toolpost/tool"
)

// TLSFiles names the files of the door's certificate and of the authorities for client certificates. The files are read
// again when they change.
type TLSFiles struct {
	Cert     string `yaml:"cert" kind:"path" doc:"PEM file with the certificate and its intermediates"`
	Key      string `yaml:"key" kind:"path" doc:"PEM file with the certificate's private key"`
	ClientCA string `yaml:"client_ca" kind:"path" doc:"PEM file with the authorities of client certificates; default: clients are not asked for one"`
}

// on reports whether the door speaks TLS.
func (f TLSFiles) on() bool { return f != TLSFiles{} }

// certificates holds the TLS config for handshakes, according to the current files.
type certificates struct {
	files TLSFiles
	log   *slog.Logger

	mu    sync.Mutex
	seen  [3]stamp
	now   *tls.Config
	roots []*x509.Certificate
}

// newCertificates reads the files of a front; it returns nil if it has none. Mistakes in them are reported now, and not
// to the first peer.
func newCertificates(o Options) (*certificates, error) {
	switch {
	case !o.TLS.on():
		return nil, nil
	case strings.HasPrefix(o.Listen, UnixPrefix):
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"the HTTP door listens on a Unix socket, where nothing goes over a wire: leave tls out")
	case o.TLS.Cert == "" || o.TLS.Key == "":
		return nil, tool.Errorf(tool.CodeInvalidInput, "tls of the HTTP door needs both a cert and a key")
	}
	c := &certificates{files: o.TLS, log: o.Log, seen: o.TLS.stamps()}
	return c, c.load()
}

// config returns the config for the listener: each handshake uses the files as they are then.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { now, _ := c.current(); return now, nil },
	}
}

// client returns the certificate that a peer has shown, if one of our current authorities has signed it. A connection
// may be older than the files, and may outlive the certificate.
func (c *certificates) client(state *tls.ConnectionState) *x509.Certificate {
	if c == nil || state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	leaf := state.VerifiedChains[0][0]
	if time.Now().After(leaf.NotAfter) {
		return nil
	}
	_, roots := c.current()
	for _, chain := range state.VerifiedChains {
		if slices.ContainsFunc(roots, chain[len(chain)-1].Equal) {
			return leaf
		}
	}
	return nil
}

// current checks whether the files have changed. If they cannot be used, perhaps because they are being written, the
// earlier ones stay.
func (c *certificates) current() (*tls.Config, []*x509.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.files.stamps(); now != c.seen {
		c.seen = now
		if err := c.load(); err != nil {
			c.log.Warn("the HTTP door's certificates have changed and cannot be used; the earlier ones stay", "error", err)
		}
	}
	return c.now, c.roots
}

func (c *certificates) load() error {
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return tool.Errorf(tool.CodeInvalidInput,
			"the HTTP door's certificate %s with the key %s cannot be used: %w", c.files.Cert, c.files.Key, err)
	}
	now := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"},
	}
	var roots []*x509.Certificate
	if c.files.ClientCA != "" {
		if roots, err = ReadCertificates(c.files.ClientCA); err != nil {
			return err
		}
		now.ClientCAs, now.ClientAuth = PoolOf(roots), tls.VerifyClientCertIfGiven
		now.SessionTicketsDisabled = true // every connection shows its certificate; none is remembered
	}
	c.now, c.roots = now, roots
	return nil
}

// ReadCertificates reads the authorities in a PEM file.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the authorities cannot be read: %w", err)
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s has a certificate that cannot be read: %w", path, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s has no certificate in PEM", path)
	}
	return certs, nil
}

// PoolOf makes a pool of authorities.
func PoolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	return pool
}

// A stamp identifies the version of a file that was read.
type stamp struct {
	size, changed int64
	inode         uint64
}

func (f TLSFiles) stamps() (s [3]stamp) {
	for i, path := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(path); err == nil {
			s[i] = stamp{info.Size(), info.ModTime().UnixNano(), info.Sys().(*syscall.Stat_t).Ino}
		}
	}
	return s
}
