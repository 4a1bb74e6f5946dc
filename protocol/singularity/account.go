package singularity

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"toolpost/tool"
)

// An accountKey identifies an account. Connections of one caller do not share an account if their tokens give them different
// rights, so a desk knows the rights of its requests.
type accountKey struct {
	caller, door string
	rights       [sha256.Size]byte
}

func keyOf(p tool.Principal) accountKey {
	k := accountKey{caller: p.ID, door: p.Door}
	if p.Rights != nil {
		roles, tools := slices.Sorted(slices.Values(p.Rights.Roles)), slices.Sorted(slices.Values(p.Rights.Tools))
		k.rights = sha256.Sum256(fmt.Appendf(nil, "%q %t %q", roles, p.Rights.Tools == nil, tools))
	}
	return k
}

// An account is a caller's place on the embedded server.
type account struct {
	key    accountKey
	caller tool.Principal
	nats   *server.Account

	guests int       // connections of the caller; the doorkeeper's lock guards this and empty
	empty  time.Time // since when there are none

	mu   sync.Mutex
	left bool
	desk *desk // of the door, or nil if none is open
}

// leave accepts no more requests. Earlier requests continue with the rights of p, or end at once if why is not nil.
func (a *account) leave(p tool.Principal, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	if a.desk == nil {
		return
	}
	a.desk.caller.Store(&p)
	if why != nil {
		a.desk.end(why)
	}
	a.desk.drain()
}

// gone closes the desk once it has nothing left to do, and reports whether it is closed.
func (a *account) gone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.desk == nil {
		return true
	}
	if !a.desk.quiet() {
		return false
	}
	a.desk.close()
	a.desk = nil
	return true
}

// A vacancy is an unused NATS account. A server cannot remove an account, so an unused one is given to the next caller. It
// rests for a while first: messages of its last connection may still be in transit.
type vacancy struct {
	account *server.Account
	since   time.Time
}

// takeAccount returns a NATS account for a new caller.
func (k *doorkeeper) takeAccount() (*server.Account, error) {
	i := slices.IndexFunc(k.free, func(f vacancy) bool {
		return time.Since(f.since) >= k.rest && f.account.NumLocalConnections() == 0 && f.account.TotalSubs() == 0
	})
	switch {
	case i >= 0:
		a := k.free[i].account
		k.free = slices.Delete(k.free, i, i+1)
		return a, nil
	case k.made >= k.callers:
		return nil, tool.Errorf(tool.CodeUnavailable,
			"%d callers are connected already, or were a moment ago: try again later", k.callers).Because("busy")
	}
	k.made++
	return k.register(fmt.Sprintf("caller-%d", k.made)), nil
}
