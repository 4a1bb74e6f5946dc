package process

import (
	"context"
	"sync"
	"time"
)

// A Reaper owns a child that serves one call and ends it in every case. When the child and all its descendants are gone,
// so is every writer of its output, and reading the output ends too.
type Reaper struct {
	Finish func()        // the child's output is complete: it has the grace period to exit
	Abort  func()        // kills the child now
	Ended  chan struct{} // closed when it is gone

	Exit   Exit // valid once Ended is closed
	Killed bool // it did not exit by itself

	child *Child
	grace time.Duration
}

// How long a child that does not exit after its last output has after SIGTERM, and how long one read may take once it is
// dead.
const (
	termFinished = time.Second
	lastRead     = 3 * time.Second
)

// Reap starts the reaper of a child; when ctx ends, so does the child. The caller waits for Ended.
func Reap(ctx context.Context, child *Child, grace time.Duration) *Reaper {
	finished, aborted := make(chan struct{}), make(chan struct{})
	r := &Reaper{
		child: child, grace: grace, Ended: make(chan struct{}),
		Finish: sync.OnceFunc(func() { close(finished) }),
		Abort:  sync.OnceFunc(func() { close(aborted) }),
	}
	go func() {
		r.Exit, r.Killed = r.see(ctx, finished, aborted)
		r.hurry()
		close(r.Ended)
	}()
	return r
}

// Read reads the child's output. The output of a dead child is available at once, so a process beyond our reach that
// still holds the other end of the pipe does not block us.
func (r *Reaper) Read(b []byte) (int, error) {
	select {
	case <-r.Ended:
		r.hurry()
	default:
	}
	return r.child.Stdout.Read(b)
}

func (r *Reaper) hurry() { _ = r.child.Stdout.SetReadDeadline(time.Now().Add(min(r.grace, lastRead))) }

func (r *Reaper) see(ctx context.Context, finished, aborted <-chan struct{}) (exit Exit, killed bool) {
	var late <-chan time.Time
	for {
		select {
		case <-r.child.Exited():
			return r.child.Wait(), false
		case <-aborted:
			return r.child.Kill(), true
		case <-ctx.Done():
			return r.child.Stop(Ladder{Term: LastBreath}), true
		case <-finished:
			timer := time.NewTimer(r.grace)
			defer timer.Stop()
			finished, late = nil, timer.C
		case <-late:
			return r.child.Stop(Ladder{Term: termFinished}), true
		}
	}
}
