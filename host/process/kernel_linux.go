package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"toolpost/tool"
)

// adopt makes this program the parent of orphaned descendants: a daemon that its tool has left comes to us and not to
// init, however it was detached. It also keeps descriptors that our own parent left open from being inherited; those that
// Go opened are private already.
func (r *registry) adopt() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		r.unfit = tool.Errorf(tool.CodeUnavailable,
			"cannot look after the children of tools: prctl(PR_SET_CHILD_SUBREAPER): %w", err)
	} else if _, ok := r.proc.stat(os.Getpid()); !ok {
		r.unfit = tool.Errorf(tool.CodeUnavailable,
			"cannot look after the children of tools: %s is not readable: mount it", r.proc)
	}
	for _, fd := range r.proc.numbers("self/fd") {
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// plain starts a child, on the starter's thread.
func (r *registry) plain(path string, argv []string, attr *os.ProcAttr, c *Child) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pidfd := -1
	attr.Sys = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd}
	proc, err := os.StartProcess(path, argv, attr)
	if err != nil {
		return err
	}
	if pidfd < 0 {
		_ = proc.Kill()
		_, _ = proc.Wait()
		return tool.Errorf(tool.CodeUnavailable,
			"this kernel gives no handle on a process (pidfd); Linux 5.4 or later is needed")
	}
	r.register(c, proc, handleOf(pidfd))
	return nil
}

// openHandle opens a pidfd on a process, which can never refer to another process.
func openHandle(pid int) (*os.File, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	return handleOf(pidfd), nil
}

func handleOf(pidfd int) *os.File {
	_ = unix.SetNonblock(pidfd, true) // lets the runtime's poller wait for it, without a thread
	return os.NewFile(uintptr(pidfd), "pidfd")
}

// awaitExit waits until the process of a pidfd has exited with all its threads, and leaves it a zombie.
func awaitExit(pidfd *os.File) {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	})
}
