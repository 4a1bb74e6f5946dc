//go:build linux

package sandbox

import (
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A room is built by two scripts. The foundation is the same for all rooms, so one is always laid in advance. It ends
// with the room's first two processes waiting for the second script, the plan, which sets up the room for one child's
// profile and starts its program.

// A foundation is the first script while it is being written.
type foundation struct {
	*script
	on    *machine
	title register // the pipe by which the init gets its name
}

// A laid foundation is a first script that can be played again and again, for a while.
type laid struct {
	memory *os.File
	size   int
	names  []string
	at     time.Time
}

// lay returns the first script of a room that joins the given number of cgroups.
func (m *machine) lay(cgroups int) (*laid, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.laid[cgroups]; l != nil && time.Since(l.at) < fresh {
		return l, nil
	}
	system, err := systemView()
	if err != nil {
		return nil, err
	}
	m.system = system
	s, err := m.foundation(cgroups)
	if err != nil {
		return nil, err
	}
	image := s.image()
	memory, err := memoryFile(image)
	if err != nil {
		return nil, unavailable("no memory for a script", err)
	}
	m.laid[cgroups] = &laid{memory, len(image), s.names, time.Now()}
	return m.laid[cgroups], nil
}

func (m *machine) systemNow() *view {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.system
}

// foundation writes the first script. The process that plays it first is the midwife: it is in the new namespaces, forks
// the room's init and then the child, both as children of the host, and exits. There is a midwife because a process
// enters a pid namespace only by being born in it.
func (m *machine) foundation(cgroups int) (*script, error) {
	f := &foundation{script: &script{regs: register(cgroups) + 1}, on: m, title: regFiles + register(cgroups)}
	f.in("start")
	self := f.newReg()
	f.call("the midwife", unix.SYS_GETPID).into(self)
	f.add("pid", opTell, tellMidwife, self)
	f.joinCgroups(cgroups)
	f.mapUser()
	var atInit int
	if m.PidNS {
		f.in(LayerPid)
		f.call("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWPID)
		atInit = f.fork(tellInit)
	}
	atTool := f.fork(tellTool)
	f.exit()
	if m.PidNS {
		f.ops[atInit].jump = f.here()
		if err := f.writeInit(); err != nil {
			return nil, err
		}
	}
	f.ops[atTool].jump = f.here()
	f.writeChild()
	return f.script, f.fits()
}

// fork adds a fork, and returns the index of the op that jumps to the child's part, which is not written yet. The forked
// process is a child of the host, which receives its pid.
func (f *foundation) fork(what int) (at int) {
	at = len(f.ops)
	pid := f.newReg()
	f.call("fork", unix.SYS_CLONE, unix.CLONE_PARENT|int(unix.SIGCHLD), 0, 0, 0, 0).into(pid)
	f.add("pid", opTell, what, pid)
	return at
}

func (s *script) exit() { s.call("exit", unix.SYS_EXIT_GROUP, 0) }

// joinCgroups joins the cgroups whose cgroup.procs came with the script.
func (f *foundation) joinCgroups(n int) {
	f.in(layerGroup)
	for i := range n {
		f.call("join", unix.SYS_WRITE, regFiles+register(i), "0", 1)
		f.call("join", unix.SYS_CLOSE, regFiles+register(i)) // frees the descriptor for the later steps
	}
	if n > 0 {
		f.call("hide", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP).loose()
	}
}

// mapUser gives the new user namespace its only user: ourselves, with the same ids.
func (f *foundation) mapUser() {
	if !f.on.UserNS {
		return
	}
	f.in(LayerNamespaces)
	f.writeFile("/proc/self/setgroups", "deny")
	f.writeFile("/proc/self/uid_map", fmt.Sprintf("%d %[1]d 1", os.Geteuid()))
	f.writeFile("/proc/self/gid_map", fmt.Sprintf("%d %[1]d 1", os.Getegid()))
}

func (s *script) writeFile(path, content string) {
	fd := s.newReg()
	s.call(path, unix.SYS_OPENAT, cwd, path, unix.O_WRONLY|unix.O_CLOEXEC, 0).into(fd)
	s.call(path, unix.SYS_WRITE, fd, content, len(content))
	s.call(path, unix.SYS_CLOSE, fd)
}

// writeInit writes the part of the room's first process. One of its descriptors gives it the name of its source, for
// ps; the other reports the end of the host. It ends with the host, and everything in the room ends with it. Orphans in the room become its children and are not waited for.
func (f *foundation) writeInit() error {
	f.in("init")
	f.call("secrecy", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	const ignore = 1 // SIG_IGN
	action := f.words(ignore, 0, 0, 0)
	f.call("children", unix.SYS_RT_SIGACTION, int(unix.SIGCHLD), action, 0, 8)
	f.call("descriptors", unix.SYS_DUP3, regLife, 0, 0)
	f.call("descriptors", unix.SYS_DUP3, f.title, 1, 0)
	f.call("descriptors", unix.SYS_CLOSE_RANGE, 2, math.MaxUint32, 0)
	f.dropPrivileges(f.on)
	if f.on.Seccomp {
		quiet, err := compile(always(allow, unix.SYS_READ, unix.SYS_EXIT_GROUP), kill)
		if err != nil {
			return err
		}
		f.install(quiet)
	}
	f.call("name", unix.SYS_READ, 1, regTitle, titleSize).loose()
	f.call("wait", unix.SYS_READ, 0, f.bytes(make([]byte, 8)), 1).loose()
	f.exit()
	return nil
}

// writeChild writes the child's part: the steps that all rooms share, and then the wait for the plan.
func (f *foundation) writeChild() {
	f.in("start")
	f.call("name", unix.SYS_CLOSE, f.title)
	if !f.on.PidNS { // nothing else ends it when the host is gone
		f.call("die with the host", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL))
	}
	if f.on.Mounts {
		f.foundation(f.on.system, f.on.base)
	}
	if f.on.Landlock > 0 {
		f.ruleset(f.on.Landlock)
		f.grant(f.on.Landlock, f.on.system.grants())
	}
	f.in("start")
	f.add("ready", opTell, tellReady)
	f.next()
}

// next waits for the next script and continues with it. It exits if the host closes the connection.
func (f *foundation) next() {
	payload := f.words(0, 0) // the size of the script, the number of descriptors after it
	control := f.bytes(make([]byte, unix.CmsgSpace(4*maxFiles)))
	iov := f.words(payload, 16)
	message := f.words(0, 0, iov, 1, control, unix.CmsgSpace(4*maxFiles), 0)
	wait := len(f.ops)
	f.call("wait", unix.SYS_RECVMSG, regStatus, message, unix.MSG_CMSG_CLOEXEC)
	size, count, memory, room := f.newReg(), f.newReg(), f.newReg(), f.newReg()
	fds := control + place(unix.CmsgLen(0))
	f.add("size", opPeek, payload).into(size)
	f.add("count", opPeek, payload+8).into(count)
	f.add("memory", opPeek, fds).into(memory)
	f.call("memory", unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE, memory, 0).into(room)
	f.call("memory", unix.SYS_CLOSE, memory)
	f.add("chain", opChain, room, fds+4, count)
	f.ops[wait].jump = f.here()
	f.exit()
}

// A plan is the second script while it is being written: the request, and the layers of this machine that it uses.
type plan struct {
	script
	Spawn
	on   *machine
	view *view // what this room has besides the system
	all  *view // both together
	dir  string
}

// write writes the script. The order matters: each step needs a right that a later one removes.
func (p *plan) write() error {
	p.regs = register(len(p.Files))
	p.in("start")
	p.call("session", unix.SYS_SETSID)
	p.descriptors()
	p.network()
	if p.on.Mounts {
		p.complete(p.view, p.all, p.on.base, p.dir)
		if p.Look { // the host gets the root of the room
			root := p.newReg()
			p.call("root", unix.SYS_OPENAT, cwd, "/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0).into(root)
			p.hand(tellRoot, root)
		}
	}
	p.in("start")
	dir := p.newReg()
	p.openDirect("working folder "+p.dir, cwd, p.dir, noLinks).into(dir)
	p.call("working folder "+p.dir, unix.SYS_FCHDIR, dir)
	p.call("working folder "+p.dir, unix.SYS_CLOSE, dir)
	p.limits()
	p.in("start")
	p.call("close the rest", unix.SYS_CLOSE_RANGE, len(p.Files), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	p.dropPrivileges(p.on)
	if p.on.Landlock > 0 {
		grants := p.view.grants()
		// A child may list the folders of a room that has an image: all of them are its own. Hidden paths are not mounted
		// there, and writable ones may be write-only.
		if p.Root != "" && !p.WriteOnly {
			grants = append(grants, grant{"/", rightsRead | rightsExec, true})
		}
		p.grant(p.on.Landlock, grants)
		p.restrict(p.on.Landlock, p.Network == NetworkNone)
	}
	if err := p.filter(); err != nil {
		return err
	}
	if p.Path == "" { // only the room was requested
		p.exit()
	} else {
		p.in(layerExec)
		p.call(p.Path, unix.SYS_EXECVE, p.Path, p.Argv, p.Env)
	}
	return p.fits()
}

// descriptors moves the child's files to 0, 1, 2 and so on. Descriptors that are still needed move out of their places
// first, and no further than necessary: there may be few descriptors, and none above the limit.
func (p *plan) descriptors() {
	move := func(reg register) {
		p.call("descriptor", unix.SYS_FCNTL, reg, unix.F_DUPFD_CLOEXEC, len(p.Files)).into(reg)
	}
	move(regStatus)
	if p.on.Landlock > 0 {
		move(regRules)
	}
	for i := range p.Files {
		move(regFiles + register(i))
	}
	for i := range p.Files {
		p.call("descriptor", unix.SYS_DUP3, regFiles+register(i), i, 0)
		p.call("descriptor", unix.SYS_CLOSE, regFiles+register(i))
	}
}

func (p *plan) ownNetwork() bool { return !p.on.ground(p.Profile).outside }

// network brings up the loopback, which has no way out, and on it the listener for the host's proxy.
func (p *plan) network() {
	if !p.ownNetwork() || p.Network == NetworkNone {
		return
	}
	p.in(LayerNetwork)
	fd := p.newReg()
	socket := func(kind int) {
		p.call("socket", unix.SYS_SOCKET, unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0).into(fd)
	}
	socket(unix.SOCK_DGRAM)
	interfaceFlags := make([]byte, 40) // struct ifreq
	copy(interfaceFlags, "lo")
	interfaceFlags[16] = unix.IFF_UP | unix.IFF_RUNNING
	p.call("loopback", unix.SYS_IOCTL, fd, unix.SIOCSIFFLAGS, p.bytes(interfaceFlags))
	p.call("loopback", unix.SYS_CLOSE, fd)
	if p.Network != NetworkEgress {
		return
	}
	socket(unix.SOCK_STREAM)
	address := []byte{unix.AF_INET, 0, egressPort >> 8, egressPort & 0xff, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	p.call("bind", unix.SYS_BIND, fd, p.bytes(address), len(address))
	p.call("listen", unix.SYS_LISTEN, fd, 128)
	p.hand(tellEgress, fd)
}

// hand sends a descriptor to the host.
func (s *script) hand(what int, fd register) {
	rights := s.bytes(unix.UnixRights(0))
	s.poke(rights+place(unix.CmsgLen(0)), fd)
	iov := s.words(s.words(what, 0, 0), recordSize)
	message := s.words(0, 0, iov, 1, rights, unix.CmsgLen(4), 0)
	s.call("hand over", unix.SYS_SENDMSG, regStatus, message, 0)
	s.call("hand over", unix.SYS_CLOSE, fd)
}

// dropPrivileges removes every capability, for good: a user namespace grants them all, and root has them anyway.
func (s *script) dropPrivileges(on *machine) {
	s.in(LayerPrivileges)
	if on.privileged() { // otherwise there are none to remove
		for c := range on.lastCap + 1 {
			s.call("bounding set", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c)
		}
		s.call("securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secureBits)
	}
	s.call("ambient set", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	head := s.words(unix.LINUX_CAPABILITY_VERSION_3, 0) // version and pid, 32 bits each
	none := bytesOf(make([]unix.CapUserData, 2))        // version 3 has two of them
	s.call("capabilities", unix.SYS_CAPSET, head, s.bytes(none))
	s.call("no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// secureBits: user 0 has no special rights, changing the user grants none, capabilities are neither kept nor raised; each
// bit is locked.
const secureBits = 0b1110_1111

// filter installs the filter of system calls. With a supervisor, its descriptor goes to the host.
func (p *plan) filter() error {
	if !p.on.Seccomp {
		return nil
	}
	f, err := filterPlan{
		network: p.Network, unix: p.Unix, subprocess: p.Subprocess, watch: p.Violation != nil && p.on.Notify,
		execOnce: p.on.Notify, ownNetwork: p.ownNetwork(), ownIPC: p.on.IPCNS, queues: p.on.IPCNS && !p.Forks,
		ownMounts: p.on.Mounts, ownPids: p.on.PidNS, apart: p.Forks,
	}.compile()
	if err != nil {
		return err
	}
	if listener := p.install(f); listener != 0 {
		p.hand(tellListener, listener)
	}
	return nil
}

// limits sets the limits of each process. Limits on all processes of a room together are set by its cgroups.
func (p *plan) limits() {
	p.in(LayerLimits)
	l := p.Limits.WithDefaults()
	p.limit("core", unix.RLIMIT_CORE, 0, 0)
	p.atMost("files", unix.RLIMIT_NOFILE, int64(l.Files))
	p.atMost("file size", unix.RLIMIT_FSIZE, l.FileSize)
	if l.CPUTime > 0 {
		// The soft limit sends a signal that can be caught, the hard limit does not.
		seconds := uint64((l.CPUTime + time.Second - 1) / time.Second)
		p.limit("cpu time", unix.RLIMIT_CPU, seconds, seconds+1)
	}
	if p.on.groups.why[ctlMemory] != nil {
		// This limits one process, not all of them, so it serves as the default only; an explicit limit is refused
		// (cover). Watching the sum and ending the room when it is too large was considered, but a periodic check is not
		// a wall. RLIMIT_DATA counts writable memory, not memory that is merely reserved, which would stop runtimes that
		// reserve a lot.
		p.atMost("memory", unix.RLIMIT_DATA, l.Memory)
	}
	if p.on.backstopPids() {
		p.atMost("processes", unix.RLIMIT_NPROC, int64(l.Processes)+1) // the init is one
	}
}

// atMost lowers a limit; a negative number means no limit.
func (p *plan) atMost(what string, resource int, n int64) {
	if n >= 0 {
		p.limit(what, resource, uint64(n), uint64(n))
	}
}

func (p *plan) limit(what string, resource int, soft, hard uint64) {
	var now unix.Rlimit
	if unix.Getrlimit(resource, &now) == nil { // a process cannot be given more than we have
		soft, hard = min(soft, now.Max), min(hard, now.Max)
	}
	p.call(what, unix.SYS_PRLIMIT64, 0, resource, p.words(soft, hard), 0)
}
