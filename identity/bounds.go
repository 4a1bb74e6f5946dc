package identity

import (
	"syscall"
	"time"
)

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
