package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// The bounds of a lease.
const (
	MinTTL     = time.Second
	MaxTTL     = 300 * time.Second
	DefaultTTL = 10 * time.Second
	MaxTier    = 3
)

// A Lease is one lease as operators see it. Its token is not kept.
type Lease struct {
	ID      string    `json:"id"`               // the start of the digest of its token
	Caller  string    `json:"caller,omitempty"` // empty: any caller that has it
	Tool    string    `json:"tool"`             // "*": any
	Tier    int       `json:"tier"`
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	State   string    `json:"state"`
}

// TokenPrefix tells the token of a lease from its id.
const TokenPrefix = "tok_"

// IDLength is how much of the digest of a token names a lease where people read it.
const IDLength = 16

// ID gives the id of the lease that somebody means who has its token, or the id itself.
func ID(text string) string {
	if !strings.HasPrefix(text, TokenPrefix) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:IDLength]
}

// The states of a lease.
const (
	Live    = "live"
	Used    = "used"
	Revoked = "revoked"
	Expired = "expired"
)

// Counts tells how many leases can be used now, and what this process has done with leases so far.
type Counts struct {
	Active   int `json:"active"`
	Issued   int `json:"issued"`
	Consumed int `json:"consumed"`
	Rejected int `json:"rejected"`
}
