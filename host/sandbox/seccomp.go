//go:build linux

package sandbox

import (
	"maps"
	"slices"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The filter of system calls. It is a list of rules, each for one call. A call without a rule is allowed if this program
// knows it: a call newer than this list does not exist in the room. The filter checks the architecture first, so that the
// calls of another one (int 0x80, x32) are no way around it, and compares the low half of an argument if the kernel looks
// at that half alone.

// The answers of a filter.
const (
	allow  = uint32(unix.SECCOMP_RET_ALLOW)
	kill   = uint32(unix.SECCOMP_RET_KILL_PROCESS)
	notify = uint32(unix.SECCOMP_RET_USER_NOTIF)
)

func deny(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

// Offsets in the filter's input.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

func offArg(i int) uint32 { return uint32(offArgs + 8*i) } // of the low half: both machines are little-endian

// A rule decides one call. If all tests hold the answer is then, otherwise it is otherwise; if that is 0 the next rule
// for this call decides.
type rule struct {
	nr        uintptr
	tests     []test
	then      uint32
	otherwise uint32
}

// A test checks the low half of an argument.
type test struct {
	arg  int
	mask uint32   // 0 means all bits
	any  []uint32 // the test holds if the masked argument is one of these
}

// filter compiles rules; a call without one gets otherwise. A call may have several rules: the first that applies
// decides. The number is found by binary search: the kernel runs a new filter on every existing call, and a linear list
// takes it longer than all other walls together.
func filter(rules []rule, otherwise uint32) ([]bpf.RawInstruction, error) {
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		// Above the last call that we know are x32, with its own bit, and the calls of later kernels.
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: lastCall, SkipTrue: 1},
		bpf.RetConstant{Val: deny(unix.ENOSYS)},
	}
	cases := map[uintptr][]bpf.Instruction{}
	for _, r := range slices.Backward(rules) {
		rest := cases[r.nr]
		if rest == nil {
			rest = []bpf.Instruction{bpf.RetConstant{Val: otherwise}}
		}
		cases[r.nr] = r.body(rest)
	}
	return bpf.Assemble(append(prog, halve(cases, slices.Sorted(maps.Keys(cases)), otherwise)...))
}

// halve finds the case of a number by binary search.
func halve(cases map[uintptr][]bpf.Instruction, numbers []uintptr, otherwise uint32) []bpf.Instruction {
	if len(numbers) == 0 {
		return []bpf.Instruction{bpf.RetConstant{Val: otherwise}}
	}
	if len(numbers) == 1 {
		return append([]bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(numbers[0]), SkipTrue: 1},
			bpf.RetConstant{Val: otherwise},
		}, cases[numbers[0]]...)
	}
	middle := len(numbers) / 2
	low, high := halve(cases, numbers[:middle], otherwise), halve(cases, numbers[middle:], otherwise)
	// A conditional jump reaches 255 instructions, a plain one any number.
	fork := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: uint32(numbers[middle]), SkipTrue: 1}, bpf.Jump{Skip: uint32(len(low))},
	}
	return slices.Concat(fork, low, high)
}

// body returns the code for the rule's call: its tests, and rest if they do not decide.
func (r rule) body(rest []bpf.Instruction) []bpf.Instruction {
	body := []bpf.Instruction{bpf.RetConstant{Val: r.then}}
	for _, t := range slices.Backward(r.tests) {
		body = append(t.code(len(body)), body...)
	}
	if r.otherwise == 0 {
		return append(body, rest...)
	}
	return append(body, bpf.RetConstant{Val: r.otherwise})
}

// code tests an argument; if the test fails, it skips the given number of instructions.
func (t test) code(skip int) []bpf.Instruction {
	code := []bpf.Instruction{bpf.LoadAbsolute{Off: offArg(t.arg), Size: 4}}
	if t.mask != 0 {
		code = append(code, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: t.mask})
	}
	for i, v := range t.any {
		left := len(t.any) - 1 - i
		if left == 0 {
			code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: uint8(skip)})
		} else {
			code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(left)})
		}
	}
	return code
}

// always returns rules without tests.
func always(answer uint32, calls ...uintptr) (rules []rule) {
	for _, nr := range calls {
		rules = append(rules, rule{nr: nr, then: answer, otherwise: answer})
	}
	return rules
}

// only returns a rule that allows a call if the tests hold.
func only(nr uintptr, otherwise uint32, tests ...test) rule { return rule{nr, tests, allow, otherwise} }

// among tests whether an argument is one of the given values.
func among(arg int, any ...uint32) test { return test{arg: arg, any: any} }

// masked tests bits of an argument.
func masked(arg int, mask uint32, any ...uint32) test { return test{arg, mask, any} }

// A filterPlan describes the purpose of a filter.
type filterPlan struct {
	network    Network
	unix       bool
	subprocess bool
	ownNetwork bool // it has a network of its own, so a socket reaches nothing outside
	ownIPC     bool
	queues     bool // it may have POSIX message queues of its own
	ownMounts  bool
	ownPids    bool
	apart      bool // its processes must not reach each other
	watch      bool // attempts are sent to the supervisor, which reports them
	execOnce   bool // the supervisor lets the first exec pass; otherwise none passes
}

// A compiled filter is in the form that the kernel expects.
type compiled struct {
	code    []bpf.RawInstruction // laid out as the kernel's struct sock_filter
	listens bool                 // some calls are sent to a supervisor
}

// compile returns the filter of a plan. There are few plans, and each is compiled once.
func (p filterPlan) compile() (*compiled, error) {
	if f, ok := filters.Load(p); ok {
		return f.(*compiled), nil
	}
	f, err := compile(p.rules(), allow)
	if err == nil {
		filters.Store(p, f)
	}
	return f, err
}

// filters caches the compiled plans.
var filters sync.Map

func compile(rules []rule, otherwise uint32) (*compiled, error) {
	raw, err := filter(rules, otherwise)
	if err != nil {
		return nil, err
	}
	asks := func(r rule) bool { return r.then == notify || r.otherwise == notify }
	return &compiled{raw, slices.ContainsFunc(rules, asks)}, nil
}

func (p filterPlan) rules() []rule {
	return slices.Concat(p.kernel(), p.others(), p.processes(), p.sockets(), setIDs(), p.files())
}

// kernel returns rules for calls that no tool needs, and for those that would bypass the other walls.
func (p filterPlan) kernel() []rule {
	no := append([]uintptr{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
		unix.SYS_PROCESS_MADVISE, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN,
		unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_TREE_ATTR,
		unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_CHROOT, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_LISTNS,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
		unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FILE_GETATTR, unix.SYS_FILE_SETATTR,
		unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
		unix.SYS_DELETE_MODULE, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETTIMEOFDAY,
		unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_ACCT, unix.SYS_QUOTACTL,
		unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
		unix.SYS_LSM_GET_SELF_ATTR, unix.SYS_LSM_SET_SELF_ATTR, unix.SYS_LSM_LIST_MODULES, unix.SYS_SETHOSTNAME,
		unix.SYS_SETDOMAINNAME,
	}, machineCalls...)
	if !p.ownIPC {
		no = append(no, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_SHMGET)
	}
	if !p.queues {
		no = append(no, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK)
	}
	// io_uring performs its operations without passing the filter.
	ring := always(deny(unix.ENOSYS), unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER)
	terminal := among(1, unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD)
	return append(append(always(deny(unix.EPERM), no...), ring...),
		only(unix.SYS_PERSONALITY, deny(unix.EPERM), among(0, 0, 0xffffffff)),
		rule{nr: unix.SYS_IOCTL, tests: []test{terminal}, then: deny(unix.EPERM), otherwise: allow})
}

// others returns rules for calls that reach other processes by pid. In a PID namespace of its own a child can reach none,
// except the server of a call. Otherwise Landlock handles signals, and the other calls may only target the caller itself.
func (p filterPlan) others() []rule {
	if p.ownPids && !p.apart {
		return nil
	}
	rules := always(deny(unix.EPERM), unix.SYS_PIDFD_OPEN, unix.SYS_PROCESS_MRELEASE)
	for whom, calls := range [][]uintptr{ // by the index of the argument that names the target
		{
			unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
			unix.SYS_SCHED_SETAFFINITY,
		},
		{unix.SYS_SETPRIORITY, unix.SYS_GETPRIORITY, unix.SYS_IOPRIO_SET},
	} {
		for _, nr := range calls {
			rules = append(rules, only(nr, deny(unix.EPERM), among(whom, 0)))
		}
	}
	return rules
}

// namespaceFlags are the namespace flags of clone. In clone, the bit of the time namespace is part of the exit signal.
const namespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// processes returns the rules about new processes. The flags of clone3 are in memory, which a filter does not see;
// without clone3 the C library falls back to clone.
func (p filterPlan) processes() []rule {
	// A program in memory has no path, so the rules on executable paths would not apply to it.
	rules := append(always(deny(unix.ENOSYS), unix.SYS_CLONE3),
		only(unix.SYS_MEMFD_CREATE, deny(unix.EACCES), masked(1, unix.MFD_NOEXEC_SEAL, unix.MFD_NOEXEC_SEAL)))
	if p.subprocess {
		return append(rules, only(unix.SYS_CLONE, deny(unix.EPERM), masked(0, namespaceFlags, 0)))
	}
	exec, fork := deny(unix.EPERM), deny(unix.EPERM)
	if p.execOnce {
		exec = notify
	}
	if p.watch {
		fork = notify
	}
	rules = append(rules, always(fork, forkCalls...)...)
	rules = append(rules, always(exec, unix.SYS_EXECVE, unix.SYS_EXECVEAT)...)
	return append(rules, only(unix.SYS_CLONE, fork, masked(0, unix.CLONE_THREAD, unix.CLONE_THREAD)))
}

const typeMask = 0xf // of socket's second argument; above it are flags

// sockets returns the rules about networks.
func (p filterPlan) sockets() []rule {
	// a datagram socket of a pair can be connected to another path
	pair := []uint32{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}
	var rules []rule
	if p.unix {
		pair = append(pair, unix.SOCK_DGRAM)
		rules = append(rules, only(unix.SYS_SOCKET, 0, family(unix.AF_UNIX)))
	}
	pairs := only(unix.SYS_SOCKETPAIR, deny(unix.EACCES), family(unix.AF_UNIX), masked(1, typeMask, pair...))
	return append(append(rules, pairs), p.internet()...)
}

func family(families ...uint32) test { return among(0, families...) }

// internet returns the rules about sockets other than Unix sockets. The protocols are listed, because MPTCP and SCTP are
// TCP to the program but not to the walls.
func (p filterPlan) internet() []rule {
	sockets := only(unix.SYS_SOCKET, deny(unix.EACCES), family(unix.AF_INET, unix.AF_INET6),
		masked(1, typeMask, unix.SOCK_STREAM, unix.SOCK_DGRAM), among(2, 0, unix.IPPROTO_TCP, unix.IPPROTO_UDP))
	switch {
	case p.network == NetworkAll:
		return []rule{only(unix.SYS_SOCKET, 0, family(unix.AF_NETLINK), among(2, unix.NETLINK_ROUTE)), sockets}
	case p.network != NetworkNone:
		return []rule{sockets}
	case p.watch && p.ownNetwork:
		return append([]rule{sockets}, always(notify, unix.SYS_CONNECT)...)
	}
	none := always(deny(unix.EACCES), unix.SYS_SOCKET)
	if p.unix {
		return none
	}
	return append(none, always(deny(unix.EACCES), unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT,
		unix.SYS_ACCEPT4)...)
}

// files returns the rules about operations that Landlock does not see: modes, owners, times and attributes. A room with
// mounts of its own does not need them, since its mounts are read-only as required.
func (p filterPlan) files() []rule {
	var rules []rule
	if p.watch {
		rules = watchChanges()
	}
	if p.ownMounts {
		return rules
	}
	return slices.Concat(rules, always(deny(unix.EPERM), modeCalls...), always(deny(unix.EPERM),
		unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
		unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
		unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT))
}

// setIDs keep a room from making a file that runs as another user: with the set-user-id or set-group-id bit, a program
// that a tool leaves in a folder runs as the folder's owner, outside of every wall, no matter which user starts it. A
// room without capabilities may still set both bits on its own files. The mode of an open matters if it creates a file.
// The mode of an openat2 is in memory, which a filter does not see, so openat2 is denied: programs that use it fall back
// to openat. A new folder below one that has the bit inherits it, as the owner of that one intended, and mkdir itself
// never sets it.
func setIDs() []rule {
	const unnamed = unix.O_TMPFILE &^ unix.O_DIRECTORY
	rules := always(deny(unix.ENOSYS), unix.SYS_OPENAT2)
	for _, c := range append(changes(), change{nr: unix.SYS_FCHMOD, mode: 1, flags: -1}) {
		if c.mode < 0 {
			continue
		}
		r := rule{nr: c.nr, tests: []test{either(c.mode, unix.S_ISUID, unix.S_ISGID)}, then: deny(unix.EPERM)}
		if c.flags >= 0 {
			r.tests = append(r.tests, either(c.flags, unix.O_CREAT, unnamed))
		}
		rules = append(rules, r)
	}
	return rules
}

// either holds if an argument has one of two bits, or both.
func either(arg int, a, b uint32) test {
	return masked(arg, a|b, a, b, a|b)
}

// install puts the process that plays it behind a filter. If the filter has a supervisor, it returns the register that
// holds the supervisor's descriptor.
func (s *script) install(f *compiled) (listener register) {
	s.in(LayerSeccomp)
	fprog := s.words(len(f.code), bytesOf(f.code))
	install := s.call("the filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, fprog)
	if f.listens {
		listener = s.newReg()
		install.into(listener).args[1] = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	return listener
}
