package process

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/kernel"
)

// On macOS a program cannot become the parent of its children's orphans, and no child ends with it. The processes of a
// tool are found by their session, which is enough for tools that mean no harm: a process that creates its own session
// and leaves its parent escapes. `toolpost doctor` reports this.

// procfs is the process table, for which macOS has no files.
type procfs string

// started returns when a process was started, in microseconds, or 0 if it does not exist.
func (procfs) started(pid int) uint64 {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	//nolint:gosec // times since 1970
	return uint64(p.Proc.P_starttime.Sec)*1e6 + uint64(p.Proc.P_starttime.Usec)
}

// adopt keeps descriptors that our own parent left open from being inherited.
func (r *registry) adopt() {
	entries, _ := os.ReadDir(kernel.Descriptors)
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// plain starts a child.
func (r *registry) plain(path string, argv []string, attr *os.ProcAttr, c *Child) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	attr.Sys = &syscall.SysProcAttr{Setsid: true}
	proc, err := os.StartProcess(path, argv, attr)
	if err != nil {
		return err
	}
	handle, err := openHandle(proc.Pid)
	if err != nil {
		_ = proc.Kill()
		_, _ = proc.Wait()
		return err
	}
	r.register(c, proc, handle)
	return nil
}

// openHandle makes a kqueue that reports the exit of a child, even one that has already exited.
func openHandle(pid int) (*os.File, error) {
	queue, err := unix.Kqueue()
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(queue)
	exit := unix.Kevent_t{Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}
	exit.Ident = uint64(pid) //nolint:gosec // process numbers are not negative
	_, err = unix.Kevent(queue, []unix.Kevent_t{exit}, nil, nil)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		_ = unix.Close(queue)
		return nil, err
	}
	f := os.NewFile(uintptr(queue), "kqueue")
	if err != nil {
		_ = f.Close()
	}
	return f, nil
}

// awaitExit waits until a process has exited; it does not reap it. A closed queue means that it has exited.
func awaitExit(queue *os.File) {
	conn, err := queue.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		events := make([]unix.Kevent_t, 1)
		for {
			if n, err := unix.Kevent(int(fd), nil, events, nil); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
}

// Limits for ending a tree.
const (
	endTime  = 5 * time.Second
	endPause = 2 * time.Millisecond
)

// end kills all descendants of a child that are in its session, and waits until they are gone. The child itself is left
// alone; it is not reaped before, so the id of its session is not reused.
func (r *registry) end(c *Child) {
	for begin := time.Now(); time.Since(begin) < endTime; time.Sleep(endPause) {
		alive := false
		for _, pid := range inSession(c.proc.Pid) {
			alive = unix.Kill(pid, unix.SIGKILL) == nil || alive
		}
		if !alive {
			return
		}
	}
}

// inSession lists the processes of a session, without its leader and the dead.
func inSession(leader int) (pids []int) {
	const zombie = 5 // SZOMB of sys/proc.h
	all, _ := unix.SysctlKinfoProcSlice("kern.proc.all")
	for i := range all {
		pid := int(all[i].Proc.P_pid)
		if session, err := unix.Getsid(pid); err == nil && session == leader && pid != leader &&
			all[i].Proc.P_stat != zombie {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reapOrphans does nothing: orphans go to launchd.
func (r *registry) reapOrphans() {}
