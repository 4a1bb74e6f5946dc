//go:build linux

package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mostViolations bounds the reports of one child. Endless attempts add no information.
const mostViolations = 64

// notification is the kernel's struct seccomp_notif.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// response is the kernel's struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// A supervisor answers the system calls of a room that the filter sends to us. It never allows anything that another wall
// would stop, except the first exec, which is the script's own. When this program is gone, the kernel answers in its
// place, with an error.
type supervisor struct {
	plan     *plan
	listener int
	started  bool
	reported int
}

// supervise serves the listener until no process is left behind the filter.
func (c *Confined) supervise(p *plan, listener *os.File) {
	conn, err := listener.SyscallConn()
	if err != nil {
		listener.Close() // every call sent to it is refused
		return
	}
	s := &supervisor{plan: p}
	c.work.Go(func() {
		defer listener.Close()
		_ = conn.Read(func(fd uintptr) bool {
			s.listener = int(fd)
			return s.serve()
		})
	})
}

// serve answers the pending calls; it returns true if no process is left.
func (s *supervisor) serve() bool {
	for {
		ready := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		switch {
		case err == unix.EINTR:
		case err != nil || n > 0 && ready[0].Revents&unix.POLLIN == 0:
			return true
		case n == 0:
			return false
		default:
			s.answer()
		}
	}
}

func (s *supervisor) answer() {
	var n notification
	if ioctl(s.listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 {
		return // the call was interrupted, and is repeated
	}
	r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	refuse := func(errno unix.Errno, capability string, target func(notification) string) {
		r.errno, r.flags = -int32(errno), 0
		s.report(n, capability, target)
	}
	switch nr := uintptr(n.nr); {
	case nr == unix.SYS_EXECVE || nr == unix.SYS_EXECVEAT:
		if s.started {
			refuse(unix.EPERM, "subprocess", s.execPath)
		}
		s.started = true
	case nr == unix.SYS_CLONE, slices.Contains(forkCalls, nr):
		refuse(unix.EPERM, "subprocess", func(notification) string { return "a new process" })
	case nr == unix.SYS_CONNECT:
		// even if the address is changed afterwards, its network has no other host
		if !s.plan.Unix || !strings.HasPrefix(s.address(n), "unix:") {
			refuse(unix.EACCES, "network", s.address)
		}
	default: // a call that changes files: the walls decide, we only report
		s.report(n, "filesystem_write", s.forbiddenPath)
	}
	ioctl(s.listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	return errno
}

// report reports an attempt, unless target returns "": then it is not a violation.
func (s *supervisor) report(n notification, capability string, target func(notification) string) {
	if s.plan.Violation == nil || s.reported == mostViolations {
		return
	}
	// Only if the process still waits was the memory that was read its own.
	if what := target(n); what != "" && ioctl(s.listener, ioctlIDValid, unsafe.Pointer(&n.id)) == 0 {
		s.reported++
		s.plan.Violation(Violation{capability, "no_" + capability, what})
	}
}

const ioctlIDValid = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID

// memory reads the memory of a process that waits for our answer.
func memory(pid uint32, at uint64, size int) []byte {
	buf := make([]byte, size)
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(size)}}
	n, err := unix.ProcessVMReadv(int(pid), local, []unix.RemoteIovec{{Base: uintptr(at), Len: size}}, 0)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// textAt reads a string of a process. It may be close to unreadable memory, so it is read page by page.
func textAt(pid uint32, at uint64) string {
	var text []byte
	for len(text) < unix.PathMax {
		piece := memory(pid, at, int(4096-at%4096))
		if end := bytes.IndexByte(piece, 0); end >= 0 {
			return string(append(text, piece[:end]...))
		}
		if len(piece) == 0 {
			return string(text)
		}
		text, at = append(text, piece...), at+uint64(len(piece))
	}
	return string(text[:unix.PathMax])
}

func (s *supervisor) execPath(n notification) string {
	if uintptr(n.nr) == unix.SYS_EXECVE {
		return s.path(n, atCwd, n.args[0])
	}
	return s.path(n, int32(n.args[0]), n.args[1])
}

const atCwd = int32(unix.AT_FDCWD)

// path makes a path of a process absolute, as far as possible.
func (s *supervisor) path(n notification, dir int32, at uint64) string {
	path := textAt(n.pid, at)
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	link := "cwd"
	if dir != atCwd {
		link = "fd/" + strconv.Itoa(int(dir))
	}
	base, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", n.pid, link))
	if err != nil {
		return path
	}
	return filepath.Join(base, path)
}

// address reads the address passed to connect.
func (s *supervisor) address(n notification) string {
	const longest = 110 // of a Unix address
	raw := memory(n.pid, n.args[1], int(min(n.args[2], longest)))
	if len(raw) < 2 {
		return "an address that cannot be read"
	}
	port := func() uint16 { return binary.BigEndian.Uint16(raw[2:]) }
	switch kind := binary.NativeEndian.Uint16(raw); {
	case kind == unix.AF_INET && len(raw) >= 8:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), port()).String()
	case kind == unix.AF_INET6 && len(raw) >= 24:
		return net.JoinHostPort(netip.AddrFrom16([16]byte(raw[8:24])).String(), strconv.Itoa(int(port())))
	case kind == unix.AF_UNIX:
		return "unix:" + string(bytes.TrimRight(raw[2:], "\x00"))
	default:
		return fmt.Sprintf("an address of family %d", kind)
	}
}

// A change is a call that changes files, with the indexes of the arguments that matter, or -1 for those it lacks.
type change struct {
	nr    uintptr
	dir   int // the folder that the path starts from, else the working folder
	path  int
	mode  int // the mode of the new file
	flags int // the flags of an open, which may change nothing
}

// changes returns the calls whose attempts are reported.
func changes() []change {
	return append(machineChanges(), []change{
		{unix.SYS_OPENAT, 0, 1, 3, 2}, {unix.SYS_UNLINKAT, 0, 1, -1, -1}, {unix.SYS_MKDIRAT, 0, 1, 2, -1},
		{unix.SYS_MKNODAT, 0, 1, 2, -1}, {unix.SYS_RENAMEAT2, 2, 3, -1, -1}, {unix.SYS_RENAMEAT, 2, 3, -1, -1},
		{unix.SYS_LINKAT, 2, 3, -1, -1}, {unix.SYS_SYMLINKAT, 1, 2, -1, -1}, {unix.SYS_TRUNCATE, -1, 0, -1, -1},
		{unix.SYS_FCHMODAT, 0, 1, 2, -1}, {unix.SYS_FCHMODAT2, 0, 1, 2, -1}, {unix.SYS_FCHOWNAT, 0, 1, -1, -1},
	}...)
}

// watchChanges returns rules that send changes to the supervisor.
func watchChanges() []rule {
	const write = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC
	var rules []rule
	for _, c := range changes() {
		if c.flags >= 0 {
			rules = append(rules, only(c.nr, notify, masked(c.flags, write, 0)))
		} else {
			rules = append(rules, always(notify, c.nr)...)
		}
	}
	return rules
}

// forbiddenPath returns the path that a call is about to change, or "" if the change is allowed.
func (s *supervisor) forbiddenPath(n notification) string {
	all := changes()
	i := slices.IndexFunc(all, func(c change) bool { return c.nr == uintptr(n.nr) })
	if i < 0 {
		return ""
	}
	dir := atCwd
	if c := all[i]; c.dir >= 0 {
		dir = int32(n.args[c.dir])
	}
	path := s.path(n, dir, n.args[all[i].path])
	if path == "/dev/tty" || s.plan.all.mayWrite(path) { // shells look for a terminal, and do without
		return ""
	}
	return path
}

// mayWrite reports whether a path can be changed in a room.
func (v *view) mayWrite(path string) bool {
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(folder, filepath.Base(path))
	}
	at := v.around(filepath.Join(path, "x"))
	return at != nil && (at.kind == partWrite || at.kind == partTmpfs || at.kind == partDevice)
}
