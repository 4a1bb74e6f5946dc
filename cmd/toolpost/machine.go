package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolpost/host/sandbox"
)

// probeTimeout bounds a program that the doctor runs.
const probeTimeout = 5 * time.Second

// machine looks at the kernel and the interpreters: what this build uses, and the walls that can be built here.
func machine(ctx context.Context) []finding {
	findings := []finding{
		kernel(),
		python(ctx),
		probe("whole trees", subreaper(), stateFailed, "a tool's processes end with it, also those that hide from it"),
		probe("process handles", pidfd(), stateMissing, "a signal can never reach a process that got a recycled number"),
		probe("memory files", memfd(), stateFailed, "Python tools start without a file on disk"),
	}
	for _, l := range sandbox.Probe() {
		f := finding{l.Name, stateOK, cmp.Or(l.Why, "works"), l.Means}
		if !l.Works {
			f.State = stateMissing
		}
		findings = append(findings, f)
	}
	return findings
}

// probe makes a finding of an error; without one the thing is there.
func probe(name string, err error, otherwise, means string) finding {
	if err != nil {
		return finding{name, otherwise, err.Error(), means}
	}
	return finding{name, stateOK, "works", means}
}

func kernel() finding {
	f := finding{Name: "kernel", State: stateOK, Means: "Linux 5.10 or later"}
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
	f := finding{Name: "python3", State: stateMissing, Means: "runs Python tools; 3.9 or later"}
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
