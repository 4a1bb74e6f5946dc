//go:build linux

package process

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How a tree is ended: the leader is killed with its group. A process that it started outside the group, in a new session
// or by forking twice, becomes our child, a stray, as soon as its parent is dead. So only the list of our own children
// must be read, again and again until nothing is found.
const (
	endTime  = 5 * time.Second      // for a whole tree; only processes that the kernel cannot end take that long
	endPause = 2 * time.Millisecond // between killing and looking again
	looks    = 32                   // at a tree that keeps forking, before its known processes are killed
	patience = time.Second          // with a stray whose owner is not yet known
)

// A hunt ends the descendants of a child, but not the child itself.
type hunt struct {
	*registry
	child *Child
	begin time.Time
	seen  map[int]quarry // by pid: all processes ever met

	news  bool           // the last look met a process for the first time, or missed one
	alive map[int]uint64 // processes that the last look met alive: pid and start time
}

// A quarry is a process that a hunt has met.
type quarry struct {
	start  uint64
	immune bool // it runs as a user whose processes we may not signal
}

// end kills all descendants of a child and waits until they are gone.
func (r *registry) end(c *Child) {
	h := &hunt{registry: r, child: c, begin: time.Now(), seen: map[int]quarry{}}
	for n := 1; time.Since(h.begin) < endTime; n++ {
		h.look()
		switch {
		case !h.news && len(h.alive) == 0:
			return
		case !h.news || n%looks == 0:
			h.kill()
			time.Sleep(endPause)
		}
	}
}

// look reads the table once and stops each process that it meets for the first time: a stopped process cannot fork, so
// soon all of them are known.
func (h *hunt) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news, h.alive = false, map[int]uint64{}
	children := h.proc.children()
	below := children(h.child.proc.Pid)
	if h.child.room != nil && h.child.room.Init != 0 { // it is the parent of its orphans; none of them becomes ours
		h.follow(append(below, children(h.child.room.Init)...), children)
		return
	}
	for pid, s := range h.strays(children) {
		owner, sure := h.owner(pid, s)
		switch {
		case owner != nil && owner != h.child && h.seen[pid].start != s.start:
		case s.dead():
			reapOrphan(pid)
			h.news = true // it may have forked after the table was read
		case !sure && time.Since(h.begin) < patience:
			h.news = true
		default: // the child's own, or of unknown owner: any hunt that meets it ends it
			h.meet(pid, s)
			below = append(below, children(pid)...)
		}
	}
	h.follow(below, children)
}

// follow meets the listed processes and all their descendants.
func (h *hunt) follow(pids []int, children func(int) []int) {
	for len(pids) > 0 {
		pid := pids[len(pids)-1]
		pids = append(pids[:len(pids)-1], children(pid)...)
		if s, ok := h.proc.stat(pid); ok {
			h.meet(pid, s)
		} else {
			h.news = true // it may have forked before it vanished
		}
	}
}

// meet records a process that belongs to the tree. A stray that is just dying counts as alive, so that the next look
// reaps it. The init of a pid namespace does not if it waits for zombies: they may be the child's to reap, and a child that
// is only swept, such as another Toolpost, may not do so before its next call.
func (h *hunt) meet(pid int, s stat) {
	if h.seen[pid].start != s.start {
		h.news = true
		err := h.send(pid, s.start, unix.SIGSTOP)
		h.seen[pid] = quarry{start: s.start, immune: err == unix.EPERM}
	}
	if !s.dead() && !h.seen[pid].immune && !(s.zapping && h.child.runs()) {
		h.alive[pid] = s.start
	}
}

func (h *hunt) kill() {
	for pid, start := range h.alive {
		_ = h.send(pid, start, unix.SIGKILL)
	}
}

// send signals the process with this pid and start time, and never a process that has got the pid since: it checks that
// the pidfd refers to that process before it uses it.
func (r *registry) send(pid int, start uint64, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if s, ok := r.proc.stat(pid); !ok || s.start != start {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// strays lists our children that are not leaders and live in a session other than ours. Children that other code of this
// program started with os/exec share our session and are not touched; a tool's descendants cannot enter it.
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

// owner finds the child that a stray belongs to: by its session, which it can leave but never enter, by the marker in its
// environment, or by a claim on its command line. A process in the middle of exec has no environment for a moment; then
// sure is false.
func (r *registry) owner(pid int, before stat) (c *Child, sure bool) {
	if c := r.leaders[before.session]; c != nil {
		return c, true
	}
	for _, marker := range r.proc.markers(pid) {
		if c := r.marked[marker]; c != nil {
			return c, true
		}
	}
	if c := r.claimant(pid); c != nil {
		return c, true
	}
	after, _ := r.proc.stat(pid)
	return nil, before.state == 'Z' || before.environ != 0 && before.environ == after.environ
}

// claimant finds the child that claims a process by its command line.
func (r *registry) claimant(pid int) *Child {
	var line []byte
	for _, c := range r.leaders {
		if c.claim == "" {
			continue
		}
		if line == nil {
			line = r.proc.read(pid, "cmdline")
		}
		if bytes.Contains(line, []byte(c.claim)) {
			return c
		}
	}
	return nil
}

// reapOrphans takes the exit statuses of strays that died by themselves.
func (r *registry) reapOrphans() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var dead unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &dead, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil ||
		dead.Signo == 0 {
		return // no child of ours is dead: the table need not be read
	}
	for pid, s := range r.strays(r.proc.children()) {
		if s.dead() {
			reapOrphan(pid)
		}
	}
}

// reapOrphan waits only for this pid, since os/exec waits for its own children.
func reapOrphan(pid int) { _, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) }

// A procfs reads the kernel's process table. Tests substitute a folder of their own.
type procfs string

// A stat is the table's entry of one process.
type stat struct {
	state   byte // R, S, D, T, Z ...
	parent  int
	session int
	threads int
	zapping bool   // it is dying, and waits until all zombies of its pid namespace are reaped; it runs nothing more
	start   uint64 // in clock ticks since boot; with the pid it identifies a process for ever
	environ uint64 // the address of its environment in its memory; 0 if it has none or we may not know
}

// dead reports whether only the entry is left. A process whose first thread has exited is also in state Z, but it runs on
// as long as it has another thread.
func (s stat) dead() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

// stat reads the entry of a process; it returns false if the process does not exist.
func (p procfs) stat(pid int) (stat, bool) {
	fd, err := unix.Open(string(p)+"/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat{}, false
	}
	defer unix.Close(fd)
	var buf [2048]byte // for a name and about 50 numbers
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return stat{}, false
	}
	return parseStat(buf[:n])
}

// started returns when a process was started, or 0 if it does not exist.
func (p procfs) started(pid int) uint64 {
	s, _ := p.stat(pid)
	return s.start
}

// parseStat reads "PID (NAME) STATE PPID PGRP SESSION ...". The name may hold spaces and parentheses.
func parseStat(line []byte) (stat, bool) {
	end := bytes.LastIndexByte(line, ')')
	fields := bytes.Fields(line[end+1:])
	if end < 0 || len(fields) < 49 {
		return stat{}, false
	}
	number := func(i int) uint64 { n, _ := strconv.ParseUint(string(fields[i]), 10, 64); return n }
	s := stat{
		state: fields[0][0], parent: int(number(1)), session: int(number(3)),
		threads: int(number(17)), start: number(19), environ: number(48),
	}
	const exiting = 0x4 // PF_EXITING
	s.zapping = s.state == 'S' && s.threads == 1 && number(6)&exiting != 0
	return s, true
}

// children returns a function that looks up the children of a process. A kernel built with CONFIG_PROC_CHILDREN keeps a
// list for each thread; on others the whole table is read once.
func (p procfs) children() func(pid int) []int {
	self := strconv.Itoa(os.Getpid())
	if _, err := os.Stat(filepath.Join(string(p), self, "task", self, "children")); err == nil {
		return p.listed
	}
	families := p.scan()
	return func(pid int) []int { return families[pid] }
}

// listed reads the lists of all threads of a process.
func (p procfs) listed(pid int) []int {
	var pids []int
	for _, thread := range p.numbers(strconv.Itoa(pid) + "/task") {
		list, _ := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "task", strconv.Itoa(thread), "children"))
		for _, field := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// scan reads the whole table and returns the children of every process.
func (p procfs) scan() map[int][]int {
	families := map[int][]int{}
	for _, pid := range p.numbers("") {
		if s, ok := p.stat(pid); ok {
			families[s.parent] = append(families[s.parent], pid)
		}
	}
	return families
}

// numbers lists the entries of a folder that are numbers.
func (p procfs) numbers(folder string) []int {
	dir, err := os.Open(filepath.Join(string(p), folder))
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var numbers []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// markers returns the values of our marker in the environment that a process was started with. A process that hides its
// environment has none.
func (p procfs) markers(pid int) []string {
	var values []string
	for entry := range bytes.SplitSeq(p.read(pid, "environ"), []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(Marker+"=")); ok {
			values = append(values, string(value))
		}
	}
	return values
}

func (p procfs) read(pid int, name string) []byte {
	file, err := os.Open(filepath.Join(string(p), strconv.Itoa(pid), name))
	if err != nil {
		return nil
	}
	defer file.Close()
	const most = 4 << 20 // the kernel takes no more than that for arguments and environment together
	text, _ := io.ReadAll(io.LimitReader(file, most))
	return text
}
