package identity

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
)

// A proof describes the credentials that a caller has shown, with what is needed to check them again: the digest of a
// token, the claims that an issuer has signed, the name in a certificate and when it expires, the user of a process.
// None of it admits a caller by itself. The alternative was to keep the credentials themselves; but a program that made
// a link for a caller no longer has them, and what is not kept cannot be stolen.
const (
	digestProof = "token:"
	claimsProof = "claims:"
	nameProof   = "certificate:"
	uidProof    = "user:"
)

// digest returns the digest of the token that was shown, now or before.
func (shown Credentials) digest() (sum [sha256.Size]byte) {
	if text, ok := strings.CutPrefix(shown.Proof, digestProof); ok {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != len(sum) {
			return sha256.Sum256(nil) // matches no caller: an empty token is not valid
		}
		return [sha256.Size]byte(b)
	}
	return sha256.Sum256(append(make([]byte, 0, 128), shown.Token...)) // 128: room for most, without an allocation
}

func (shown Credentials) tokenProof() string {
	sum := shown.digest()
	b := append(make([]byte, 0, len(digestProof)+2*len(sum)), digestProof...)
	return string(hex.AppendEncode(b, sum[:]))
}

func userProof(uid uint32) string { return uidProof + strconv.FormatUint(uint64(uid), 10) }

func certificateProof(cert *x509.Certificate, name string) string {
	return nameProof + strconv.FormatInt(cert.NotAfter.Unix(), 10) + ":" + name
}

// byProof admits a caller that was admitted before, if its credentials would be accepted now, with its present rights.
func (c *Callers) byProof(ctx context.Context, shown Credentials) (tool.Principal, error) {
	kind, text, _ := strings.Cut(shown.Proof, ":")
	var p tool.Principal
	var err error
	switch kind + ":" {
	case digestProof:
		if p, ok := c.byDigest(ctx, shown); ok {
			return p, nil
		}
		p, err = c.byIssued(ctx, shown)
	case claimsProof:
		p, err = c.byClaims(text)
	case nameProof:
		p, err = c.byName(text)
	case uidProof:
		uid, bad := strconv.ParseUint(text, 10, 32)
		if bad != nil {
			return c.refuse(shown, bad)
		}
		return c.byPeer(Credentials{Door: shown.Door, Peer: &Peer{UID: uint32(uid)}})
	default:
		err = fmt.Errorf("%.20q is no kind of proof", kind)
	}
	p.Proof = shown.Proof
	return c.found(shown, p, err)
}

// byName authenticates a caller by a name in a certificate that was verified before and has not expired.
func (c *Callers) byName(text string) (tool.Principal, error) {
	end, name, _ := strings.Cut(text, ":")
	seconds, err := strconv.ParseInt(end, 10, 64)
	caller, known := c.known[name]
	switch {
	case err != nil || !known:
		return tool.Principal{}, errors.New("the certificate belongs to no caller any more")
	case c.env.now().After(time.Unix(seconds, 0)):
		return tool.Principal{}, errors.New("the certificate has expired")
	}
	return tool.Principal{ID: caller, Rights: c.rights[caller]}, nil
}
