// Package member says what a store keeps of a fleet, in which several machines are one Toolpost: its members with their keys, and
// the tickets that nodes join with.
package member

import (
	"context"
	"time"

	"toolpost/tool"
	"toolpost/wire/regex"
)

// A Role is what a node does in its fleet.
type Role string

// The roles.
const (
	Hub    Role = "hub"    // has doors, the engine's chain and the store
	Worker Role = "worker" // has sources, runners and walls
)

// A Member is a node of the fleet, as the store knows it.
type Member struct {
	ID      string // which the fleet chose, and no other node ever has
	Name    string // which its operator chose; no two members have the same
	Role    Role
	Labels  []string
	Key     string // its public nkey: a node proves with it who it is
	Keys    []Key  // all that it has had, the oldest first
	Address string // of a hub, for other nodes, as HOST:PORT
	Joined  time.Time
	Evicted time.Time // zero while it belongs to the fleet
}

// A Key is a public nkey that a node had from a time on, until it got another one or was evicted.
type Key struct {
	Public string
	Since  time.Time
}

// clocks is how far the clock of a hub may be from that of the database, which dates keys, and how long a node may take to learn
// that it has a new one.
const clocks = 5 * time.Minute

// Held reports whether a node of this name had a key at some time between two others.
func Held(all []Member, name, key string, from, to time.Time) bool {
	for _, m := range all {
		for i, k := range m.Keys {
			until := m.Evicted
			if i+1 < len(m.Keys) {
				until = m.Keys[i+1].Since
			}
			if m.Name == name && k.Public == key && !k.Since.After(to.Add(clocks)) && (until.IsZero() || !until.Before(from.Add(-clocks))) {
				return true
			}
		}
	}
	return false
}

// CheckName refuses what cannot be the name of a node: names are shown in lists, and people type them in commands.
func CheckName(name string) error {
	if isName().MatchString(name) {
		return nil
	}
	return tool.Errorf(tool.CodeInvalidInput, "%.100q cannot be the name of a node: use 1 to 100 letters, digits, dots, - and _, a letter or digit "+
		"first; --name chooses one", name)
}

var isName = regex.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// A Ticket lets nodes join. Only the node that gets it has the token; the store has its digest.
type Ticket struct {
	Digest string // the SHA-256 of the token, in hexadecimal digits
	Role   Role
	Labels []string // that every node which joins with it gets
	Uses   int      // how many nodes can still join with it
}

// A Register keeps the members of a fleet, for all its hubs. Errors are *tool.Error.
type Register interface {
	// AddTicket stores a ticket that expires after ttl, by the clock of the database.
	AddTicket(ctx context.Context, t Ticket, ttl time.Duration) error
	// Enrol adds a member with the labels of the ticket, and takes one of the ticket's uses, both or neither. The error is
	// access_denied if there is no such ticket, or it has expired or is used up, without saying which, invalid_input if it is
	// for another role, and conflict if a member that is not evicted has the name.
	Enrol(ctx context.Context, digest string, m Member) (Member, error)
	// Found adds a member without a ticket: the first hub.
	Found(ctx context.Context, m Member) error
	// Members returns all members, evicted ones too, in the order in which they joined.
	Members(ctx context.Context) ([]Member, error)
	// SetKey replaces the key of a member that has the key old. The error is conflict if it has another, or is evicted.
	SetKey(ctx context.Context, id, old, key string) error
	// SetAddress notes the address of a hub.
	SetAddress(ctx context.Context, id, address string) error
	// Evict ends a membership; it is not_found if there is no such member, and nothing if it is evicted already. Its name
	// can be used again.
	Evict(ctx context.Context, id string) error
}

// A Share is the part of the calls of a tool that run by one of its further definitions.
type Share struct {
	Source, Tool string
	Digest       string // of the definition
	Percent      int
}

// Shares keeps the shares of calls, for all hubs of a fleet.
type Shares interface {
	// SetShares replaces the shares of a tool, in percent by the digest of the definition; without any, all its calls run by the
	// definition that counts.
	SetShares(ctx context.Context, source, name string, to map[string]int) error
	// Shares returns all shares, ordered.
	Shares(ctx context.Context) ([]Share, error)
}

// A Store keeps what the hubs of a fleet have in common.
type Store interface {
	Register
	Shares
}
