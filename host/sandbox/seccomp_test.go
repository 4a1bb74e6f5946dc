//go:build linux

package sandbox

import (
	"encoding/binary"
	"testing"

	"toolpost/internal/kit"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// judge runs a filter over a call as the kernel would. The virtual machine of package bpf reads big-endian words, so they
// are written that way; the low half of an argument comes first, as in the kernel's layout.
func judge(t kit.TB, rules []rule, arch, nr uint32, args ...uint64) uint32 {
	raw := kit.Must(filter(rules, allow))(t)
	code, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatalf("the filter cannot be read")
	}
	vm := kit.Must(bpf.NewVM(code))(t)
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNumber:], nr)
	binary.BigEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offArg(i):], uint32(a))
		binary.BigEndian.PutUint32(data[offArg(i)+4:], uint32(a>>32))
	}
	answer := kit.Must(vm.Run(data))(t)
	return uint32(answer)
}

func TestTheFilterDecides(t *testing.T) {
	strict := filterPlan{ownNetwork: true, ownIPC: true, queues: true, ownMounts: true, ownPids: true, execOnce: true}
	shell, net, unixes, watched, forked, bare := strict, strict, strict, strict, strict, filterPlan{}
	shell.subprocess, net.network, unixes.unix, watched.watch = true, NetworkAll, true, true
	forked.execOnce, forked.queues = false, false
	const high = 1 << 32
	for name, c := range map[string]struct {
		p    filterPlan
		nr   uintptr
		args []uint64
		want uint32
	}{
		"read":                         {strict, unix.SYS_READ, nil, allow},
		"a thread":                     {strict, unix.SYS_CLONE, []uint64{unix.CLONE_THREAD | unix.CLONE_VM}, allow},
		"a process":                    {strict, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, deny(unix.EPERM)},
		"a process, high bits":         {strict, unix.SYS_CLONE, []uint64{unix.CLONE_THREAD * high}, deny(unix.EPERM)},
		"clone3":                       {shell, unix.SYS_CLONE3, nil, deny(unix.ENOSYS)},
		"exec":                         {strict, unix.SYS_EXECVE, nil, notify},
		"exec after a fork":            {forked, unix.SYS_EXECVEAT, nil, deny(unix.EPERM)},
		"exec of a shell":              {shell, unix.SYS_EXECVE, nil, allow},
		"a shell's process":            {shell, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
		"a shell's namespace":          {shell, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, deny(unix.EPERM)},
		"no socket":                    {strict, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM}, deny(unix.EACCES)},
		"no Unix socket":               {strict, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, deny(unix.EACCES)},
		"a pair":                       {strict, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
		"a pair of datagrams":          {strict, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, deny(unix.EACCES)},
		"a Unix socket":                {unixes, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, allow},
		"another beside Unix sockets":  {unixes, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM}, deny(unix.EACCES)},
		"TCP":                          {net, unix.SYS_SOCKET, []uint64{unix.AF_INET | high, unix.SOCK_STREAM | unix.SOCK_NONBLOCK, 6}, allow},
		"MPTCP":                        {net, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 262}, deny(unix.EACCES)},
		"raw":                          {net, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW, 0}, deny(unix.EACCES)},
		"routes":                       {net, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, allow},
		"another netlink":              {net, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 9}, deny(unix.EACCES)},
		"vsock":                        {net, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, deny(unix.EACCES)},
		"connect, watched":             {watched, unix.SYS_CONNECT, nil, notify},
		"open to read, watched":        {watched, unix.SYS_OPENAT, []uint64{0, 0, unix.O_CLOEXEC}, allow},
		"open to write, watched":       {watched, unix.SYS_OPENAT, []uint64{0, 0, unix.O_WRONLY}, notify},
		"open to write":                {strict, unix.SYS_OPENAT, []uint64{0, 0, unix.O_WRONLY}, allow},
		"chmod without mounts":         {bare, unix.SYS_FCHMODAT, nil, deny(unix.EPERM)},
		"chmod":                        {strict, unix.SYS_FCHMODAT, []uint64{0, 0, 0o755}, allow},
		"chmod, watched":               {watched, unix.SYS_FCHMODAT, []uint64{0, 0, 0o755}, notify},
		"chmod of a set-id bit":        {strict, unix.SYS_FCHMODAT2, []uint64{0, 0, 0o4755}, deny(unix.EPERM)},
		"the same, watched":            {watched, unix.SYS_FCHMODAT, []uint64{0, 0, 0o2755}, deny(unix.EPERM)},
		"the same, high bits":          {strict, unix.SYS_FCHMOD, []uint64{0, 0o6000 | high}, deny(unix.EPERM)},
		"the bit of a folder":          {strict, unix.SYS_FCHMOD, []uint64{0, 0o1777}, allow},
		"a new file with a set-id bit": {strict, unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o4755}, deny(unix.EPERM)},
		"one without a name":           {watched, unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE | unix.O_RDWR, 0o2600}, deny(unix.EPERM)},
		"what is no mode":              {strict, unix.SYS_OPENAT, []uint64{0, 0, unix.O_DIRECTORY, 0o6000}, allow},
		"openat2":                      {watched, unix.SYS_OPENAT2, nil, deny(unix.ENOSYS)},
		"a fifo with a set-id bit":     {strict, unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFIFO | 0o4644}, deny(unix.EPERM)},
		"memory for others":            {strict, unix.SYS_SHMGET, nil, allow},
		"memory of the host's":         {bare, unix.SYS_SHMGET, nil, deny(unix.EPERM)},
		"a queue":                      {strict, unix.SYS_MQ_OPEN, nil, allow},
		"a queue after a fork":         {forked, unix.SYS_MQ_OPEN, nil, deny(unix.EPERM)},
		"prlimit of itself":            {bare, unix.SYS_PRLIMIT64, []uint64{0}, allow},
		"prlimit of others":            {bare, unix.SYS_PRLIMIT64, []uint64{7}, deny(unix.EPERM)},
		"io_uring":                     {shell, unix.SYS_IO_URING_SETUP, nil, deny(unix.ENOSYS)},
		"memory":                       {shell, unix.SYS_MEMFD_CREATE, []uint64{0, unix.MFD_NOEXEC_SEAL | unix.MFD_CLOEXEC}, allow},
		"memory that runs":             {shell, unix.SYS_MEMFD_CREATE, []uint64{0, unix.MFD_CLOEXEC}, deny(unix.EACCES)},
		"a call of the future":         {shell, lastCall + 1, nil, deny(unix.ENOSYS)},
		"a call of another entry":      {shell, 0x40000000 | unix.SYS_READ, nil, deny(unix.ENOSYS)},
		"the first of all, with rules": {strict, unix.SYS_PTRACE, nil, deny(unix.EPERM)},
	} {
		kit.Equal(t, judge(t, c.p.rules(), auditArch, uint32(c.nr), c.args...), c.want, name)
	}
	kit.Equal(t, judge(t, strict.rules(), unix.AUDIT_ARCH_I386, unix.SYS_READ), kill, "another machine's call")
}

// However the rules are arranged for speed, each call gets the answer of the first rule that applies.
func TestHalvingChangesNoDecision(t *testing.T) {
	modes := []uint64{0o2755, 0o4755, 0o6755, unix.O_CREAT, unix.O_TMPFILE}
	rapid.Check(t, func(t *rapid.T) {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		p := filterPlan{
			network: Network(rapid.IntRange(0, 3).Draw(t, "network")), unix: flag("unix"), subprocess: flag("subprocess"), ownNetwork: flag("net"),
			ownIPC: flag("ipc"), queues: flag("queues"), ownMounts: flag("mounts"), ownPids: flag("pids"), watch: flag("watch"), execOnce: flag("exec"),
		}
		nr := rapid.Uint32Range(0, lastCall).Draw(t, "nr")
		args := rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(0, 64), rapid.SampledFrom(modes)), 6, 6).Draw(t, "args")
		want := allow
		for _, r := range p.rules() {
			if uint32(r.nr) != nr {
				continue
			}
			if answer := r.answer(args); answer != 0 {
				want = answer
				break
			}
		}
		kit.MustEqual(t, judge(t, p.rules(), auditArch, nr, args...), want, nr, args)
	})
}

// answer evaluates a rule directly; 0 means that it does not decide.
func (r rule) answer(args []uint64) uint32 {
	for _, test := range r.tests {
		v := uint32(args[test.arg])
		if test.mask != 0 {
			v &= test.mask
		}
		holds := false
		for _, one := range test.any {
			holds = holds || v == one
		}
		if !holds {
			return r.otherwise
		}
	}
	return r.then
}
