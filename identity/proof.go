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

// A proof is a word for what somebody has shown, and what is needed to ask again: the digest of a token, the claims
// that an issuer has signed, the name in a certificate and when that ends, the user of a process. None of it lets
// anybody in by itself. To keep the credentials themselves was the other way; but a program that made a link for
// somebody has them no more, and what is not kept cannot be stolen.
const (
	digestProof = "token:"
	claimsProof = "claims:"
	nameProof   = "certificate:"
	uidProof    = "user:"
)

// digest is that of the token that was shown, now or before.
func (shown Credentials) digest() (sum [sha256.Size]byte) {
	if text, ok := strings.CutPrefix(shown.Proof, digestProof); ok {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != len(sum) {
			return sha256.Sum256(nil) // nobody's: the empty token is none
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

// byProof admits somebody who was admitted before, if what was shown then would let in now, with the rights of now.
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

// byName knows a caller by a name of a certificate that was verified before and has not ended.
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
