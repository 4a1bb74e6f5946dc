package narratoria

import (
	"context"
	"sync"
	"time"

	"toolpost/host/process"
)

// A reaper owns the process of a call and sees to its end, however it comes. When the process and
// everything that it started are gone, so is every writer of its output, and reading it ends too.
type reaper struct {
	child *process.Child
	grace time.Duration

	finish func() // the tool has said all: it has the grace to exit
	abort  func() // the tool is to be killed now
	ended  chan struct{}

	exit   process.Exit // set when ended is closed
	killed bool         // it did not exit by itself
}

// How long a tool has after SIGTERM, when nobody waits for the call any more and when it stays after
// its last word; and how long one read may take at the most once it is dead.
const (
	termInterrupted = process.LastBreath
	termFinished    = time.Second
	lastRead        = 3 * time.Second
)

// reap starts the reaper; its caller waits for ended.
func reap(ctx context.Context, child *process.Child, grace time.Duration) *reaper {
	finished, aborted := make(chan struct{}), make(chan struct{})
	r := &reaper{
		child: child, grace: grace, ended: make(chan struct{}),
		finish: sync.OnceFunc(func() { close(finished) }),
		abort:  sync.OnceFunc(func() { close(aborted) }),
	}
	go func() {
		r.exit, r.killed = r.see(ctx, finished, aborted)
		r.hurry()
		close(r.ended)
	}()
	return r
}

// Read reads the tool's output. What a dead tool wrote is there at once, and whoever else may hold the
// other end of the pipe, out of our reach, does not keep us.
func (r *reaper) Read(b []byte) (int, error) {
	select {
	case <-r.ended:
		r.hurry()
	default:
	}
	return r.child.Stdout.Read(b)
}

func (r *reaper) hurry() { _ = r.child.Stdout.SetReadDeadline(time.Now().Add(min(r.grace, lastRead))) }

func (r *reaper) see(ctx context.Context, finished, aborted <-chan struct{}) (exit process.Exit, killed bool) {
	var late <-chan time.Time
	for {
		select {
		case <-r.child.Exited():
			return r.child.Wait(), false
		case <-aborted:
			return r.child.Kill(), true
		case <-ctx.Done():
			return r.child.Stop(process.Ladder{Term: termInterrupted}), true
		case <-finished:
			timer := time.NewTimer(r.grace)
			defer timer.Stop()
			finished, late = nil, timer.C
		case <-late:
			return r.child.Stop(process.Ladder{Term: termFinished}), true
		}
	}
}
