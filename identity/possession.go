package identity

import (
	"crypto"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// A Possession is what a client shows with a token of the scheme DPoP (RFC 9449): a proof that it holds the key that the token is
// bound to, signed for one request.
type Possession struct {
	Proof  string // empty unless there is exactly one
	Method string
	URLs   string // the addresses that the request may have been sent to, with blanks between them
}

// ProofAlgorithms returns the algorithms by which proofs may be signed.
func ProofAlgorithms() []string { return []string{"ES256", "ES384", "EdDSA", "RS256", "PS256"} }

// Limits on proofs.
const (
	proofAge  = time.Minute // how old one may be
	maxProof  = 8 << 10     // bytes
	maxProofs = 1 << 19     // in the time that they are remembered
)

// checkBound refuses a token that is bound to a key unless the client proves to hold that key: otherwise a token that was
// stolen could be used. A token that is not bound cannot have the scheme DPoP, which would promise more than there is.
func (c *Callers) checkBound(shown Credentials, claims map[string]any) error {
	cnf, isBound := claims["cnf"]
	if !isBound && shown.DPoP == nil {
		return nil
	}
	by, _ := cnf.(map[string]any)
	key, _ := by["jkt"].(string)
	switch {
	case !isBound:
		return errors.New("it is not bound to a key, and has the scheme DPoP")
	case shown.DPoP == nil:
		return errors.New("it is bound to a key, and has no proof of it")
	case key == "" || len(by) != 1:
		return errors.New("it is bound in a way that is not supported")
	}
	return c.proofs.check(shown.DPoP, shown.Token, key, c.env.now())
}

// proofs checks proofs of possession, and remembers those of the last minutes: each is good for one request.
type proofs struct {
	mu         sync.Mutex
	now, older map[[sha256.Size]byte]struct{}
	began      time.Time // of now
}

// check checks a proof for a token that is bound to a key, which is named by its thumbprint.
func (p *proofs) check(by *Possession, token, key string, now time.Time) error {
	if by.Proof == "" || len(by.Proof) > maxProof {
		return errors.New("it has no proof, or more than one")
	}
	var algorithms []jose.SignatureAlgorithm
	for _, name := range ProofAlgorithms() {
		algorithms = append(algorithms, jose.SignatureAlgorithm(name))
	}
	signed, err := jose.ParseSignedCompact(by.Proof, algorithms)
	if err != nil {
		return fmt.Errorf("its proof is not signed as it must be: %w", err)
	}
	head := signed.Signatures[0].Header
	if head.ExtraHeaders[jose.HeaderType] != "dpop+jwt" || head.JSONWebKey == nil || !usable(*head.JSONWebKey) {
		return errors.New("its proof has another type, or no public key")
	}
	thumb, err := head.JSONWebKey.Thumbprint(crypto.SHA256)
	if err != nil || subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(thumb)), []byte(key)) != 1 {
		return errors.New("its proof is of another key than it is bound to")
	}
	payload, err := signed.Verify(head.JSONWebKey)
	if err != nil {
		return errors.New("its proof was not signed by the key in it")
	}
	claims, err := readClaims(payload)
	if err == nil {
		err = by.matches(claims, token, now)
	}
	if err != nil {
		return err
	}
	return p.once(key+" "+claims["jti"].(string), now)
}

// matches checks that a proof is for this request and this token, and new.
func (by *Possession) matches(claims map[string]any, token string, now time.Time) error {
	made, err := moment(claims, "iat")
	age := now.Sub(time.UnixMilli(int64(made * 1000)))
	jti, _ := claims["jti"].(string)
	to, _ := claims["htu"].(string)
	sum := sha256.Sum256([]byte(token))
	switch {
	case err != nil || age > proofAge || age < -leeway:
		return errors.New("its proof is too old, or not valid yet")
	case jti == "":
		return errors.New("its proof has no id")
	case claims["htm"] != by.Method || !slices.Contains(strings.Fields(by.URLs), canonical(to)):
		return errors.New("its proof is for another request")
	case claims["ath"] != base64.RawURLEncoding.EncodeToString(sum[:]):
		return errors.New("its proof is for another token")
	}
	return nil
}

// canonical returns an address as it is compared: without its query, its fragment, and the usual port.
func canonical(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User != nil {
		return ""
	}
	host := strings.ToLower(u.Host)
	switch scheme := strings.ToLower(u.Scheme); {
	case scheme == "https":
		return "https://" + strings.TrimSuffix(host, ":443") + u.EscapedPath()
	case scheme == "http":
		return "http://" + strings.TrimSuffix(host, ":80") + u.EscapedPath()
	}
	return ""
}

// NewPossession returns what a request shows. Its address is that of the request; a proxy in front of us may have taken TLS off.
// public is the address by which clients know it, or empty if that is the same.
func NewPossession(header []string, method, host, path string, encrypted bool, public string) *Possession {
	p := &Possession{Method: method, URLs: canonical("https://" + host + path)}
	if !encrypted {
		p.URLs += " " + canonical("http://"+host+path)
	}
	if public != "" {
		p.URLs += " " + canonical(public)
	}
	if len(header) == 1 {
		p.Proof = header[0]
	}
	return p
}

// once refuses a proof that was used before. Only proofs that are otherwise good get here, so strangers cannot fill the memory.
func (p *proofs) once(id string, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil || now.Sub(p.began) > proofAge+leeway {
		if now.Sub(p.began) > 2*(proofAge+leeway) {
			p.now = nil
		}
		p.older, p.now, p.began = p.now, map[[sha256.Size]byte]struct{}{}, now
	}
	sum := sha256.Sum256([]byte(id))
	_, isNow := p.now[sum]
	_, isOlder := p.older[sum]
	switch {
	case isNow || isOlder:
		return errors.New("its proof was used before")
	case len(p.now) >= maxProofs:
		return errors.New("too many proofs at a time")
	}
	p.now[sum] = struct{}{}
	return nil
}
