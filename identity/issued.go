package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
)

// A Grant is what a token was issued with.
type Grant struct {
	Caller  string        `json:"caller"`
	Roles   []string      `json:"roles"`
	Tools   tool.Patterns `json:"tools"`            // beside those of the roles
	Listed  bool          `json:"listed"`           // it counts only while the config lists the caller
	Expires time.Time     `json:"expires,omitzero"` // zero: never
}

// A Token is one token as operators see it. The token itself is not kept.
type Token struct {
	ID string `json:"id"` // the start of its digest
	Grant
	Note   string    `json:"note,omitempty"`
	Issued time.Time `json:"issued"`
	State  string    `json:"state"`
}

// The states of a token.
const (
	Live    = "live"
	Revoked = "revoked"
	Expired = "expired"
)

// MaxTokenTTL is the longest that a token lasts which ends at all.
const MaxTokenTTL = 10 * 365 * 24 * time.Hour

// tokenIDLength is how much of the digest of a token names it.
const tokenIDLength = 16

// TokenPrefix starts every token that is issued, and tells it from its id.
const TokenPrefix = "tp_"

// TokenID gives the id of the token that somebody means who has the token, or the id itself.
func TokenID(text string) string {
	if !strings.HasPrefix(text, TokenPrefix) {
		return text
	}
	return digestOf(text)[:tokenIDLength]
}

func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Tokens finds what a token was issued with, by its SHA-256 in hexadecimal digits; false: there is no such token, or
// it is over.
type Tokens func(ctx context.Context, digest string) (Grant, bool, error)

// wellFormed reports whether a token can be one that was issued: nothing else is worth a look into the store.
func wellFormed(token string) bool {
	return strings.HasPrefix(token, TokenPrefix) && len(token) == len(TokenPrefix)+43
}

// What is remembered of tokens, and how many of them. Who revokes one waits for no more than that.
const (
	fresh     = 500 * time.Millisecond
	maxCached = 4096
)

// issued remembers for a moment what the store said of tokens, also of those that it does not have.
type issued struct {
	tokens Tokens
	now    func() time.Time

	mu      sync.Mutex
	known   map[string]answer
	unknown map[string]answer // apart, so that guessing many tokens does not push out good ones
}

type answer struct {
	grant Grant
	ok    bool
	asked time.Time
}

func (i *issued) find(ctx context.Context, token string) (Grant, bool, error) {
	if i.tokens == nil {
		return Grant{}, false, nil
	}
	digest := digestOf(token)
	a, ok := i.remembered(digest)
	if !ok {
		a.asked = i.now() // before the question: the answer may be as old as that
		var err error
		if a.grant, a.ok, err = i.tokens(ctx, digest); err != nil {
			return Grant{}, false, err
		}
		i.remember(digest, a)
	}
	over := !a.grant.Expires.IsZero() && !i.now().Before(a.grant.Expires)
	return a.grant, a.ok && !over, nil
}

func (i *issued) remembered(digest string) (answer, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, all := range []map[string]answer{i.known, i.unknown} {
		if a, ok := all[digest]; ok && i.now().Sub(a.asked) < fresh {
			return a, true
		}
	}
	return answer{}, false
}

func (i *issued) remember(digest string, a answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.known, digest)
	delete(i.unknown, digest)
	all := i.unknown
	if a.ok {
		all = i.known
	}
	if len(all) >= maxCached {
		clear(all) // each would be forgotten in a moment anyway
	}
	all[digest] = a
}
