//go:build linux

package sandbox

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/tool"
)

// linger is how long the forker stays unused, so that consecutive calls find it running.
const linger = 30 * time.Millisecond

// startTime bounds the time between a script and the program that it starts. It is long because a machine may be slow;
// only a broken one reaches it.
const startTime = 30 * time.Second

// A starter keeps the forker of this program while it is needed, and a few rooms in advance. There is one per program,
// since the forker is the program itself, started again.
type starter struct {
	mu      sync.Mutex
	users   int
	forkers map[bool]*forker // by whether it is outside, in the host's own network
	spares  []*birth         // the oldest first
	want    int              // how many spares there should be
	idle    *time.Timer

	jobs   int       // running clean-up jobs
	tidied sync.Cond // signals that jobs has decreased
}

var ours = newStarter()

func newStarter() *starter {
	h := &starter{forkers: map[bool]*forker{}}
	h.tidied.L = &h.mu
	return h
}

// Keep keeps the forker running until release is called, so that the first confined child does not wait for it. Without
// Keep the forker starts with the first child and ends soon after the last. A program that calls Keep when it begins and
// release when it ends leaves nothing behind: release waits for running clean-up.
func Keep() (release func()) {
	ours.hold()
	m := thisMachine()
	ours.refill(m, m.ground(Profile{}))
	return sync.OnceFunc(func() {
		ours.release()
		Leave()
	})
}

// Leave ends the forker, unless it is kept, and waits for running clean-up. A program that started confined children
// calls it last, to leave nothing behind.
func Leave() {
	ours.rest()
	ours.close()
}

// tidy runs a clean-up job in the background, so that no call waits for it.
func (h *starter) tidy(job func()) {
	h.mu.Lock()
	h.jobs++
	h.mu.Unlock()
	go func() {
		job()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.jobs--
		h.tidied.Broadcast()
	}()
}

// rest waits until all clean-up is done. Every job is bounded.
func (h *starter) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.jobs > 0 {
		h.tidied.Wait()
	}
}

func (h *starter) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users++; h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
}

func (h *starter) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users == 0 {
		h.idle = time.AfterFunc(linger, h.close)
	}
}

// close ends the forker and the spare rooms, unless they are in use.
func (h *starter) close() {
	h.mu.Lock()
	if h.users > 0 {
		h.mu.Unlock()
		return
	}
	spares, forkers := h.spares, h.forkers
	h.spares, h.forkers, h.want = nil, map[bool]*forker{}, 0
	h.mu.Unlock()
	for _, b := range spares {
		b.abort()
	}
	for _, s := range forkers {
		s.stop()
	}
}

const (
	fresh   = 5 * time.Second        // how long a room is kept in advance: it shows some files as they were
	prompt  = 300 * time.Microsecond // a spare room that is not ready within this came too late
	mostFew = 4                      // spare rooms
)

// A ground is the environment of a foundation.
type ground struct {
	flags   uintptr // the new namespaces
	outside bool    // it has the host's network
}

// take returns a room with its foundation laid. A caller that has to wait for one raises the number of spare rooms.
func (h *starter) take(m *machine, on ground) (*birth, error) {
	began := time.Now()
	defer func() {
		if time.Since(began) > prompt {
			h.mu.Lock()
			h.want = min(h.want+1, mostFew)
			h.mu.Unlock()
		}
	}()
	for b := h.pop(on); b != nil; b = h.pop(on) {
		if b.await() == nil && b.ready {
			return b, nil
		}
		h.tidy(b.abort)
	}
	b, err := h.begin(m, on)
	if err != nil {
		return nil, err
	}
	if err := b.listen(); err != nil || !b.ready {
		b.abort()
		return nil,
			cmp.Or(err, errors.New("the sandbox's forker ended at once: does the program begin with sandbox.Main?"))
	}
	return b, nil
}

// pop returns the oldest spare room on a ground, and discards those that are too old.
func (h *starter) pop(on ground) *birth {
	h.mu.Lock()
	old := 0
	for old < len(h.spares) && time.Since(h.spares[old].began) >= fresh {
		old++
	}
	gone := slices.Clone(h.spares[:old])
	h.spares = slices.Delete(h.spares, 0, old)
	var found *birth
	if i := slices.IndexFunc(h.spares, func(b *birth) bool { return b.ground == on }); i >= 0 {
		found = h.spares[i]
		h.spares = slices.Delete(h.spares, i, i+1)
	}
	h.mu.Unlock()
	for _, b := range gone {
		h.tidy(b.abort)
	}
	return found
}

// refill begins the next rooms without waiting for them. An error is ignored here: the next caller that needs a room gets
// it.
func (h *starter) refill(m *machine, on ground) {
	for {
		h.mu.Lock()
		enough := len(h.spares) >= max(h.want, 1)
		h.mu.Unlock()
		if enough {
			return
		}
		b, err := h.begin(m, on)
		if err != nil {
			return
		}
		b.laid = make(chan error, 1)
		h.tidy(func() {
			err := b.listen()
			reap(b.midwife) // otherwise it would be a zombie for as long as the room is spare
			b.midwife = 0
			b.laid <- err
		})
		h.mu.Lock()
		h.spares = append(h.spares, b)
		h.mu.Unlock()
	}
}

// begin sends the script of a foundation to the forker.
func (h *starter) begin(m *machine, on ground) (*birth, error) {
	g, err := m.groups.newGroup()
	if err != nil {
		return nil, unavailable("no cgroup could be made", err)
	}
	defer g.close()
	b := &birth{ground: on, began: time.Now(), group: g}
	if err := b.begin(h, m); err != nil {
		g.remove()
		return nil, err
	}
	return b, nil
}

func (b *birth) begin(h *starter, m *machine) error {
	f, err := m.lay(len(b.group.procs))
	if err != nil {
		return err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return unavailable("no socket for a confined child", err)
	}
	defer theirs.Close()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		_ = ours.Close()
		return unavailable("no pipe for a confined child", err)
	}
	named := os.NewFile(uintptr(pipe[0]), "pipe")
	defer named.Close()
	b.names, b.conn, b.title = f.names, ours, os.NewFile(uintptr(pipe[1]), "pipe")
	files := slices.Concat([]*os.File{f.memory, theirs}, b.group.procs, []*os.File{named})
	if err = h.ask(m, b.outside, uint64(b.flags), uint64(f.size), files); err != nil {
		_ = ours.Close()
		b.title.Close()
	}
	return err
}

// ask sends a request to the forker, which is started if necessary. A forker that turns out to be gone is replaced once.
func (h *starter) ask(m *machine, outside bool, flags, size uint64, files []*os.File) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for again := false; ; again = true {
		if h.forkers[outside] == nil {
			s, err := m.startForker(outside)
			if err != nil {
				return err
			}
			h.forkers[outside] = s
		}
		err := send(h.forkers[outside].conn, flags, size, files)
		if err == nil || again {
			return err
		}
		h.forkers[outside].stop()
		delete(h.forkers, outside)
	}
}

// A forker is the program that forks confined children, see Main.
type forker struct {
	conn *net.UnixConn
	life *os.File // the write end of a pipe that is closed when we end
	proc *os.Process
}

// startForker starts a forker. Unless it is outside, it is in an empty network namespace of its own. The rooms without
// network share that one: a network takes the kernel longer to make than all the rest.
func (m *machine) startForker(outside bool) (*forker, error) {
	if !mayStart.Load() {
		return nil, tool.Errorf(tool.CodeInternal,
			"no confined child can be started: this program does not call sandbox.Main first")
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, unavailable("no socket for the sandbox's forker", err)
	}
	defer theirs.Close()
	r, w, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		return nil, unavailable("no pipe for the sandbox's forker", err)
	}
	defer r.Close()
	argv := []string{forkerName, strings.Repeat(" ", titleSize)}
	proc, err := os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		Files: []*os.File{nil, nil, nil, forkerSocket: theirs, forkerLife: r}, Sys: m.forkerNamespaces(outside),
	})
	if err != nil {
		_ = ours.Close()
		w.Close()
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			return nil, &wallError{LayerNamespaces + ": the forker", errno}
		}
		return nil, unavailable("the sandbox's forker does not start", err)
	}
	return &forker{conn: ours, life: w, proc: proc}, nil
}

// forkerNamespaces puts the forker into our session, in which package process leaves it alone, but not into a terminal's
// group, and into namespaces.
func (m *machine) forkerNamespaces(outside bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if outside {
		return attr
	}
	if m.NetNS {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	if m.UserNS {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

func unavailable(what string, err error) error {
	return tool.Errorf(tool.CodeUnavailable, "%s: %w", what, err)
}

// stop ends the forker. The forker has no clean-up to do, so it is killed right away.
func (s *forker) stop() {
	_ = s.conn.Close()
	s.life.Close()
	_ = s.proc.Kill()
	_, _ = s.proc.Wait()
}

// send sends two numbers and descriptors.
func send(conn *net.UnixConn, a, b uint64, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	_ = conn.SetWriteDeadline(time.Now().Add(startTime))
	_, _, err := conn.WriteMsgUnix(bytesOf([]uint64{a, b}), unix.UnixRights(fds...), nil)
	return err
}

// memoryFile returns a file in memory with the given content.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("script", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	memory := os.NewFile(uintptr(fd), "script")
	if _, err := memory.Write(content); err != nil {
		memory.Close()
		return nil, err
	}
	return memory, nil
}

// socketPair returns the two ends of a socket pair that preserves message boundaries.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	defer ours.Close() // FileConn has its own
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// A birth is a room that is being built, and its processes so far.
type birth struct {
	ground
	began time.Time
	group *group
	conn  *net.UnixConn
	names []string   // of the ops of the script being played
	title *os.File   // takes the name of the room
	laid  chan error // of a spare room: receives the result of listen; nil otherwise

	midwife, init, tool int // pids; 0 until born
	ready               bool
	egress              *os.File // listens in the room, if it was requested
	supervise           func(listener *os.File)
	root                func(root *os.File)
}

// finish sends the second script, and waits until the program runs.
func (b *birth) finish(s *script, files []*os.File) error {
	if len(files)+1 > maxFiles {
		return tool.Errorf(tool.CodeInvalidInput, "a confined child gets at most %d descriptors", maxFiles-1)
	}
	b.names, b.ready = s.names, false
	image := s.image()
	memory, err := memoryFile(image)
	if err != nil {
		return unavailable("no memory for a script", err)
	}
	defer memory.Close()
	if err := send(b.conn, uint64(len(image)), uint64(len(files)), append([]*os.File{memory}, files...)); err != nil {
		return err
	}
	return b.listen()
}

// listen receives the records until the room is ready for the next script, or until every possible sender is gone: then
// the child runs its program or has ended.
func (b *birth) listen() error {
	_ = b.conn.SetReadDeadline(time.Now().Add(startTime))
	var record [3]uint64
	oob := make([]byte, unix.CmsgSpace(4))
	var failure error
	for !b.ready || b.tool == 0 { // the midwife may be slower than her children
		n, oobn, _, _, err := b.conn.ReadMsgUnix(bytesOf(record[:]), oob)
		switch {
		case n == 0 && (err == nil || errors.Is(err, io.EOF)):
			return failure
		case err != nil:
			return unavailable("a confined child does not come up", err)
		}
		var file *os.File
		if fds := descriptors(oob[:oobn]); len(fds) == 1 {
			_ = unix.SetNonblock(fds[0], true) // so that the runtime's poller waits for it, without a thread
			file = os.NewFile(uintptr(fds[0]), "of a confined child")
		}
		what, a, errno := record[0], record[1], record[2]
		if what == tellFailure {
			failure = &wallError{LayerNamespaces + ": the new process", syscall.Errno(errno)}
			if a < uint64(len(b.names)) { // an op of the script
				failure = &wallError{b.names[a], syscall.Errno(errno)}
			}
			continue
		}
		b.note(what, int(a), file)
	}
	return nil
}

func (b *birth) note(what uint64, pid int, file *os.File) {
	switch what {
	case tellMidwife:
		b.midwife = pid
	case tellInit:
		b.init = pid
	case tellTool:
		b.tool = pid
	case tellReady:
		b.ready = true
	case tellEgress:
		b.egress = file
	case tellListener:
		b.supervise(file)
	case tellRoot:
		b.root(file)
	}
}

// await is listen for a room that may be spare: another goroutine then listens.
func (b *birth) await() error {
	if b.laid != nil {
		err := <-b.laid
		b.laid = nil
		return err
	}
	return b.listen()
}

// call names the room after its source, for ps.
func (b *birth) call(source string) {
	name := make([]byte, titleSize)
	if copy(name, roomName); source != "" {
		copy(name, roomName+" of "+printable(source, titleSize/2))
	}
	if b.init != 0 {
		_, _ = b.title.Write(name)
	}
	b.title.Close()
}

// abort ends a room that runs no program.
func (b *birth) abort() {
	_ = b.await() // for the pids, if they are not known yet
	_ = b.conn.Close()
	b.title.Close()
	// the init is last: it ends when all others have been waited for
	born := slices.DeleteFunc([]int{b.midwife, b.tool, b.init}, func(pid int) bool { return pid == 0 })
	for _, pid := range born {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for _, pid := range born {
		reap(pid)
	}
	b.group.remove()
}

// A wallError reports which wall could not be built.
type wallError struct {
	what  string // "layer: thing"
	errno syscall.Errno
}

func (e *wallError) Error() string { return e.what + ": " + e.errno.Error() }

func (e *wallError) Unwrap() error { return e.errno }
