// Package member says what a store keeps of a fleet, in which several machines are one Toolpost: its members, and the
// tickets that nodes join with.
package member

import (
	"context"
	"time"
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
	Address string // of a hub, for other nodes, as HOST:PORT
	Joined  time.Time
	Evicted time.Time // zero while it belongs to the fleet
}

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
