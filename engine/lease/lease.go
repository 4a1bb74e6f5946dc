// Package lease is the stage that lets a tool of a high tier run only with a lease: a permission for one
// call, issued beforehand, that the call uses up.
package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Leases consumes leases.
type Leases interface {
	// Consume uses up the lease for one call of the tool by the caller, at once and for good. The tool is named in the
	// form of its Ref. If several processes try, exactly one succeeds. An error of code lease_rejected has a Reason:
	// expired, revoked, not_found, already_consumed, tool_mismatch, tier_too_low. The lease of another caller is
	// not_found, like one that never existed.
	Consume(ctx context.Context, token, caller, tool string, tier int) error
}

// A Stage requires leases.
type Stage struct {
	From    int    // the lowest tier that requires a lease; 0 means none does
	Consume Leases // required if From is not 0
	Tiers   Tiers
}

// Tiers returns the tier of the lease that a tool needs; nil means the tool's own.
type Tiers func(*tool.Spec) int

// Of calls t, or returns the tool's own tier if t is nil.
func (t Tiers) Of(spec *tool.Spec) int {
	if t == nil {
		return spec.Tier
	}
	return t(spec)
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{
		Name: "limits.lease_tier", Options: 0,
		Doc: "tools of this tier and above need a lease for every call; 0: none do; default: 0",
	}
}

// From returns the tier from which a config requires leases, or other if that is stricter; 0 requires none.
func From(cfg *config.Config, other int) (tier int, err error) {
	err = cfg.Section(Section().Name).Decode(&tier)
	if tier == 0 || other == 0 {
		return max(tier, other), err
	}
	return min(tier, other), err
}

// For is an engine.Stage. It returns nil for tools whose tier needs no lease. It runs behind idempotency and quota, so
// that replays and refused calls use up no lease.
func (s Stage) For(spec *tool.Spec) tool.Middleware {
	if s.From <= 0 || spec != nil && s.Tiers.Of(spec) < s.From {
		return nil
	}
	return tool.First(func(ctx context.Context, c *tool.Call) error { return s.pass(ctx, c, spec) })
}

func (s Stage) pass(ctx context.Context, c *tool.Call, spec *tool.Spec) error {
	switch {
	case spec == nil: // its danger is unknown
		return tool.Errorf(tool.CodeInternal, "%s was not resolved before its lease was asked for", c.Tool)
	case c.Lease == "":
		e := tool.Errorf(tool.CodeLeaseRequired,
			"%s is a tool of tier %d and needs a lease; issue one for it and call again with the token", spec.Name,
			s.Tiers.Of(spec))
		e.Details, _ = strictjson.Marshal(map[string]any{"tier": s.Tiers.Of(spec), "tool": spec.Name})
		return tool.BeforeRun(e)
	}
	tier := s.Tiers.Of(spec)
	if c.Memo != nil && c.Memo.Leased > tier { // another definition of the tool did not run, and this one runs in its place
		return nil
	}
	err := s.Consume.Consume(ctx, c.Lease, c.Caller.ID, spec.Ref().String(), tier)
	if err == nil && c.Memo != nil {
		c.Memo.Leased = tier + 1
	}
	var e *tool.Error
	if err != nil && !errors.As(err, &e) {
		return tool.Errorf(tool.CodeInternal, "%s was not run: its lease could not be checked: %w", spec.Name, err)
	}
	return tool.BeforeRun(err)
}

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
	Caller  string    `json:"caller,omitempty"` // empty means any caller that has it
	Tool    string    `json:"tool"`             // "*" means any
	Tier    int       `json:"tier"`
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	State   string    `json:"state"`
}

// TokenPrefix distinguishes the token of a lease from its id.
const TokenPrefix = "tok_"

// IDLength is how much of the digest of a token names a lease for people.
const IDLength = 16

// ID returns the id of the lease with the given token, or text itself if it is an id.
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

// Counts are the number of leases that can be used now, and what this process has done with leases so far.
type Counts struct {
	Active   int `json:"active"`
	Issued   int `json:"issued"`
	Consumed int `json:"consumed"`
	Rejected int `json:"rejected"`
}
