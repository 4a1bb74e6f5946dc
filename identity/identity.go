// Package identity says who somebody is who comes to a door, by what they show: a token, a certificate, the user of
// their process. Doors ask it and know nothing else of callers.
package identity

import (
	"context"
	"crypto/x509"
	"os"
	"syscall"
	"time"

	"toolpost/tool"
)

// Credentials are what somebody shows at a door. A door fills in what it has.
type Credentials struct {
	Door        string            // where they come in
	Token       string            // a bearer token, or the password of a NATS user
	Certificate *x509.Certificate // of a client, already verified against the door's authorities; nil: none
	// the process at the other end of a Unix socket, or the one that runs this program; nil: unknown
	Peer      *Peer
	Anonymous string // the caller for those without credentials, as the door says; empty: none
	// Proof is that of a Principal who was admitted before, for a door that has kept it in a safe place, such as a
	// session of its own. It is never something that a peer has sent. Empty: none.
	Proof string
}

// Again is what to ask a gate about a caller whom it has admitted before.
func Again(p tool.Principal) Credentials {
	return Credentials{Door: p.Door, Proof: p.Proof, Anonymous: p.ID}
}

// A Peer is a process of this machine, as the kernel tells.
type Peer struct {
	UID uint32
	GID uint32
	PID int32
}

// Self is the process that asks.
func Self() *Peer {
	return &Peer{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())}
}

// A Gate authenticates a caller by its credentials. Its error is what the caller is told. It is asked for every
// request, and again and again while a connection lives: who was admitted may have been shut out since.
type Gate func(ctx context.Context, shown Credentials) (tool.Principal, error)

// The callers that no config lists: who has the owner's token, and who runs this program. What they may issue, others
// may not, so nobody else gets their names.
const (
	Owner = "owner"
	Local = "local"
)

// Reason is the reason of every error of a gate.
const Reason = "unauthenticated"

// WrongToken is what everybody is told whose token does not let in. Whether it never was one, has expired or was
// revoked is not for outsiders.
func WrongToken() error {
	return tool.Errorf(tool.CodeAccessDenied,
		"the bearer token is wrong or no longer valid; `toolpost token issue` makes one for a caller. "+
			"The owner's: %s", TokenHint).Because(Reason)
}

// Bounds say how many connections a door takes at the same time.
type Bounds struct {
	All       int
	Strangers int // of them, those that have not shown for a while who they are
	Each      int // of them, those of one caller
}

// Patience is how long a stranger is left alone while there is room: whoever opens many connections at once, and has
// something to say on each, needs a moment.
const Patience = 2 * time.Second

// DefaultBounds follow from how many descriptors this process may have. A door gets an eighth of them: with three doors
// that are full most are left, for tools, files and the store. Half of a door is for one caller, a quarter for those
// whom nobody knows yet.
func DefaultBounds() Bounds {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		limit.Cur = 1024 // what most systems begin with
	}
	return boundsOf(limit.Cur)
}

func boundsOf(descriptors uint64) Bounds {
	all := int(max(8, min(descriptors/8, 8192)))
	return Bounds{All: all, Strangers: all / 4, Each: all / 2}
}
