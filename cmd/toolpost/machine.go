package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// probeTimeout bounds a program that the doctor runs.
const probeTimeout = 5 * time.Second

// machine looks at the kernel and the interpreters: what this build uses, and the walls that sandboxes
// are made of.
func machine(ctx context.Context) []finding {
	return []finding{
		kernel(),
		python(ctx),
		probe("whole trees", subreaper(), stateFailed, "a tool's processes end with it, also those that hide from it"),
		probe("process handles", pidfd(), stateMissing, "a signal can never reach a process that got a recycled number"),
		probe("memory files", memfd(), stateFailed, "Python tools start without a file on disk"),
		probe("landlock", landlock(), stateMissing, "will keep a tool inside its folders"),
		probe("seccomp", seccomp(), stateMissing, "will keep a tool from system calls that it does not need"),
		probe("namespaces", namespaces(ctx), stateMissing, "will keep a tool without network, and alone"),
		probe("cgroup 2", cgroup(), stateMissing, "will bound a tool's memory, processor and processes"),
	}
}

// probe makes a finding of an error; without one the thing is there.
func probe(name string, err error, otherwise, means string) finding {
	if err != nil {
		return finding{name, otherwise, err.Error(), means}
	}
	return finding{name, stateOK, "works", means}
}

func kernel() finding {
	f := finding{Name: "kernel", State: stateOK, Means: "Linux 5.10 or later is wanted"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		f.State, f.Detail = stateFailed, err.Error()
		return f
	}
	f.Detail = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	if err != nil || major < 5 || major == 5 && minor < 10 {
		f.State = stateMissing
	}
	return f
}

func python(ctx context.Context) finding {
	f := finding{Name: "python3", State: stateMissing, Means: "runs Python tools; 3.9 or later is wanted"}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	const script = "import sys; print(sys.executable, '.'.join(map(str, sys.version_info[:3])), int(sys.version_info >= (3, 9)))"
	out, err := exec.CommandContext(ctx, "python3", "-c", script).Output()
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	text := strings.TrimSpace(string(out))
	if f.Detail = strings.TrimSuffix(text, " 1"); f.Detail != text {
		f.State = stateOK
	}
	return f
}

func subreaper() error {
	var on int32
	return unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&on)), 0, 0, 0)
}

func pidfd() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func memfd() error {
	fd, err := unix.MemfdCreate("toolpost", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func landlock() error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return fmt.Errorf("this kernel has none: %w", errno)
	}
	if version < 1 {
		return fmt.Errorf("version %d", version)
	}
	return nil
}

func seccomp() error {
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		return err
	}
	if !strings.Contains(string(actions), "errno") {
		return fmt.Errorf("filters cannot refuse a call")
	}
	return nil
}

// namespaces tries it: a distribution may forbid what the kernel can do.
func namespaces(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "true")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
	return c.Run()
}

func cgroup() error {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return err
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("/sys/fs/cgroup is not cgroup 2")
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	dir := "/sys/fs/cgroup" + strings.TrimPrefix(strings.TrimSpace(string(self)), "0::")
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("%s cannot be written: %w", dir, err)
	}
	return nil
}
