// Package invite has the lines by which machines join a fleet.
package invite

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"net"
	"slices"
	"strings"

	"toolpost/fleet/certs"
	"toolpost/tool"
)

// A Line is what a node needs to join: tp://HOST:PORT[,HOST:PORT]#TOKEN.
type Line struct {
	Hubs   []string
	secret [16]byte
	ca     [16]byte // the beginning of the digest of the authority's certificate: the node speaks to no other fleet
}

const scheme = "tp://"

// New makes an invitation to the fleet with an authority.
func New(hubs []string, ca []byte) Line {
	l := Line{Hubs: hubs, ca: fingerprint(ca)}
	_, _ = rand.Read(l.secret[:]) // never fails: it ends the program instead
	return l
}

func fingerprint(certificate []byte) (f [16]byte) {
	sum := sha256.Sum256(certificate)
	copy(f[:], sum[:])
	return f
}

// String returns the line.
func (l Line) String() string {
	return scheme + strings.Join(l.Hubs, ",") + "#" + base64.RawURLEncoding.EncodeToString(append(l.secret[:], l.ca[:]...))
}

// Token is what is shown to a hub, which knows its digest.
func (l Line) Token() string { return hex.EncodeToString(l.secret[:]) }

// Digest is that of a token.
func Digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// To reports whether the invitation is to the fleet with an authority.
func (l Line) To(ca []byte) bool { return fingerprint(ca) == l.ca }

// Parse reads a line. No error repeats the token.
func Parse(line string) (l Line, err error) {
	rest, ok := strings.CutPrefix(line, scheme)
	hosts, token, found := strings.Cut(rest, "#")
	if !ok || !found {
		return l, tool.Errorf(tool.CodeInvalidInput, "this is not the line of `toolpost fleet token`, which begins with tp:// "+
			"and has a # before its token; put it in quotes: to some shells the # means something")
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != len(l.secret)+len(l.ca) {
		return l, tool.Errorf(tool.CodeInvalidInput, "the token behind the # is damaged: copy the whole line of `toolpost fleet token`")
	}
	copy(l.secret[:], b)
	copy(l.ca[:], b[len(l.secret):])
	for _, h := range strings.Split(hosts, ",") {
		if host, port, err := net.SplitHostPort(h); err != nil || host == "" || port == "" {
			return l, tool.Errorf(tool.CodeInvalidInput, "%.100q is not the address of a hub: write HOST:PORT", h)
		}
		l.Hubs = append(l.Hubs, h)
	}
	return l, nil
}

// Trust is the TLS config of a node that joins: it knows the digest of the authority's certificate, which the hub sends. A hub whose
// certificate is its operator's proves that it has the name by which the line calls it.
func (l Line) Trust(hub string) *tls.Config {
	host, _, _ := net.SplitHostPort(hub)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: certs.ServerName,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies, against the one authority that the line names
		VerifyConnection: func(state tls.ConnectionState) error {
			at := slices.IndexFunc(state.PeerCertificates, func(c *x509.Certificate) bool { return l.To(c.Raw) })
			if at < 0 {
				return ErrForeign
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

// ErrForeign means that a server does not belong to the fleet of a line.
var ErrForeign = tool.Errorf(tool.CodeAccessDenied, "the hub there belongs to another fleet than this token; ask for a token of its fleet")
