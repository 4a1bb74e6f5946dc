package lease

import "time"

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
