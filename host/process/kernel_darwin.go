package process

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/kernel"
)

// On macOS a program cannot become the parent of what its children leave behind, and no child ends with it. What a tool
// started is found by its session, which is enough for tools that mean no harm: one that makes a session of its own and
// leaves its parent gets away. `toolpost doctor` says so.

// procfs is the table of processes, which macOS has no files for.
type procfs string

// started is when a process was started, in microseconds; 0: there is none.
func (procfs) started(pid int) uint64 {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	//nolint:gosec // times since 1970
	return uint64(p.Proc.P_starttime.Sec)*1e6 + uint64(p.Proc.P_starttime.Usec)
}

// adopt keeps the descriptors to ourselves that our own parent left open for us.
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

// openHandle makes a queue that tells when a child exits. One that has exited already has told.
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

// awaitExit waits until a process has exited; it is not reaped. A closed queue has told already.
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

// How a tree is ended.
const (
	endTime  = 5 * time.Second
	endPause = 2 * time.Millisecond
)

// end kills everything that a child started and that is in its session, and waits until it is gone. The child itself is
// left alone; it is not reaped before, so the number of its session means nobody else.
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

// inSession lists the processes of a session, without its leader and those that are dead.
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

// reapOrphans has nobody to reap: orphans go to launchd.
func (r *registry) reapOrphans() {}
