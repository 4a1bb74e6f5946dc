// Package identity authenticates callers at a door by their credentials: a token, a certificate, the user of their
// process. Doors use it and know nothing else of callers.
package identity

import (
	"context"
	"crypto/x509"
	"os"
	"syscall"
	"time"

	"toolpost/tool"
)

// Credentials are what a client presents at a door. A door fills in what it has.
type Credentials struct {
	Door        string            // the name of the door
	Token       string            // a bearer token, or the password of a NATS user
	DPoP        *Possession       // what the token is shown with if its scheme is DPoP; nil for a bearer token
	Certificate *x509.Certificate // of a client, already verified against the door's authorities; nil if none
	// the process at the other end of a Unix socket, or the one that runs this program; nil if unknown
	Peer      *Peer
	Anonymous string // the door's caller for requests without credentials; empty if none
	// Proof is that of a Principal that was admitted before, for a door that has kept it in a safe place, such as a
	// session of its own. It must never come from a peer. Empty if none.
	Proof string
}

// Again returns the credentials with which a gate checks a caller that it has admitted before.
func Again(p tool.Principal) Credentials {
	return Credentials{Door: p.Door, Proof: p.Proof, Anonymous: p.ID}
}

// A Peer is a process of this machine, as the kernel reports it.
type Peer struct {
	UID uint32
	GID uint32
	PID int32
}

// Self returns the current process.
func Self() *Peer {
	return &Peer{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())}
}

// A Gate authenticates a caller by its credentials. Its error is shown to the caller. It is called for every request,
// and again and again while a connection lives: an admitted caller may have been removed since.
type Gate func(ctx context.Context, shown Credentials) (tool.Principal, error)

// The callers that no config lists: the holder of the owner's token, and the user that runs this program. They may issue
// what others may not, so no other caller gets these names.
const (
	Owner = "owner"
	Local = "local"
)

// Reason is the reason of every error of a gate.
const Reason = "unauthenticated"

// WrongToken returns the error for every token that is not accepted. Outsiders must not learn whether it never existed,
// has expired or was revoked.
func WrongToken() error {
	return tool.Errorf(tool.CodeAccessDenied,
		"the bearer token is wrong or no longer valid; `toolpost token issue` makes one for a caller; "+
			"%s", TokenHint).Because(Reason)
}

// Bounds limit how many connections a door takes at the same time.
type Bounds struct {
	All       int
	Strangers int // of them, connections that have not authenticated for a while
	Each      int // of them, connections of one caller
}

// PerCaller counts what each caller has at the same time. A caller that has nothing takes no memory. Its user
// guards it with a lock.
type PerCaller[N int | int64] map[string]N

// Add changes the count of a caller.
func (p PerCaller[N]) Add(caller string, n N) {
	if p[caller] += n; p[caller] <= 0 {
		delete(p, caller)
	}
}

// Patience is how long an unauthenticated connection is tolerated while there is room: a client that opens many
// connections at once needs a moment for each.
const Patience = 2 * time.Second

// DefaultBounds follow from how many descriptors this process may have. A door gets an eighth of them: with three full
// doors most are left, for tools, files and the store. One caller may have half of a door's connections, unauthenticated
// clients a quarter.
func DefaultBounds() Bounds {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		limit.Cur = 1024 // the default of most systems
	}
	return boundsOf(limit.Cur)
}

func boundsOf(descriptors uint64) Bounds {
	all := int(max(8, min(descriptors/8, 8192)))
	return Bounds{All: all, Strangers: all / 4, Each: all / 2}
}
