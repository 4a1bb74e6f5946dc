package process

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How a tree is ended. The leader is killed with its group. Whatever it started elsewhere, in sessions
// of its own, by forking twice, is our child as soon as its parent is dead, a stray; so the list of
// our own children is all that has to be looked at, and it is looked at until nothing is found.
const (
	endTime  = 5 * time.Second      // for a whole tree; only a process that the kernel cannot end needs it
	endPause = 2 * time.Millisecond // between killing and looking again
	passes   = 32                   // looks until a tree that goes on forking is killed as far as it is known
)

// end kills what a child started and waits until it is gone.
func (r *registry) end(c *Child) {
	for deadline := time.Now().Add(endTime); time.Now().Before(deadline); time.Sleep(endPause) {
		found, clean := r.freeze(c)
		if clean && len(found) == 0 {
			return
		}
		for pid, start := range found {
			r.send(pid, start, unix.SIGKILL)
		}
	}
}

// freeze finds and stops everything that belongs to a child but the child itself. A stopped process
// cannot fork, so what is found soon is all there is. Clean says that the last look found nothing new.
func (r *registry) freeze(c *Child) (found map[int]uint64, clean bool) {
	found = map[int]uint64{}
	for range passes {
		if clean = !r.look(c, found); clean {
			break
		}
	}
	return found, clean
}

// look reads the table once, stops what belongs to c and is not in found yet, and reports whether there
// was anything new. A zombie is new as well: it may have forked while the table was read.
func (r *registry) look(c *Child, found map[int]uint64) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	children := r.proc.children()
	roots := children(c.proc.Pid)
	for pid, s := range r.strays(children) {
		owner := r.owner(pid, s)
		switch {
		case owner != nil && owner != c:
		case s.dead():
			reapOrphan(pid)
			news = true
		default: // c's own, or one that hides whose it is, and is ended by whoever finds it
			roots = append(roots, pid)
		}
	}
	return r.stop(roots, children, found) || news
}

// stop stops the processes of a list and all below them, those that are not in found yet.
func (r *registry) stop(pids []int, children func(int) []int, found map[int]uint64) (news bool) {
	for len(pids) > 0 {
		pid := pids[len(pids)-1]
		pids = append(pids[:len(pids)-1], children(pid)...)
		s, ok := r.proc.stat(pid)
		if !ok || s.dead() || found[pid] == s.start {
			continue
		}
		if r.send(pid, s.start, unix.SIGSTOP) {
			found[pid], news = s.start, true
		}
	}
	return news
}

// send signals the process that had this pid and this start time, and never another one that got the
// pid since: the pidfd is checked to be that process's before it is used.
func (r *registry) send(pid int, start uint64, sig syscall.Signal) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if s, ok := r.proc.stat(pid); !ok || s.start != start {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// strays lists the children of ours that are no leaders and live in another session than we do. What
// other code of this program started with os/exec shares our session and is not touched; what a tool
// started cannot come back into it.
func (r *registry) strays(children func(int) []int) map[int]stat {
	strays := map[int]stat{}
	session, _ := unix.Getsid(0)
	for _, pid := range children(os.Getpid()) {
		if r.leaders[pid] != nil {
			continue
		}
		if s, ok := r.proc.stat(pid); ok && s.session != session {
			strays[pid] = s
		}
	}
	return strays
}

// owner tells whose stray a process is: by its session, which it can leave and never enter, or by the
// marker in its environment.
func (r *registry) owner(pid int, s stat) *Child {
	if c := r.leaders[s.session]; c != nil {
		return c
	}
	for _, marker := range r.proc.markers(pid) {
		if c := r.marked[marker]; c != nil {
			return c
		}
	}
	return nil
}

// reapOrphans takes the exit statuses of strays that died by themselves.
func (r *registry) reapOrphans() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var none unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &none, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || none.Signo == 0 {
		return // no child of ours is dead: the table need not be read
	}
	for pid, s := range r.strays(r.proc.children()) {
		if s.dead() {
			reapOrphan(pid)
		}
	}
}

// reapOrphan never waits for just any child: os/exec waits for its own.
func reapOrphan(pid int) { _, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) }
