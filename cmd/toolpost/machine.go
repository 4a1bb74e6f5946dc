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
	"toolpost/tool"
)

// probeTimeout bounds a program that the doctor runs.
const probeTimeout = 5 * time.Second

// machine looks at the kernel and the interpreters: what this build uses, and the walls that can be built here.
func machine(ctx context.Context) []finding {
	findings := []finding{
		kernel(),
		python(ctx),
		probe("whole trees", subreaper(), stateFailed, "works",
			"a tool's processes end with it, also those that hide from it"),
		probe("process handles", closed(unix.PidfdOpen(os.Getpid(), 0)), stateMissing, "works",
			"a signal can never reach a process that got a recycled number"),
		probe("memory files", closed(unix.MemfdCreate("toolpost", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)), stateFailed,
			"works", "Python tools start without a file on disk"),
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

// probe makes a finding of an error; without one the thing is there, with its detail.
func probe(name string, err error, otherwise, detail, means string) finding {
	if err != nil {
		return finding{name, otherwise, tool.AsError(err).Message, means}
	}
	return finding{name, stateOK, detail, means}
}

func kernel() finding {
	var u unix.Utsname
	err := unix.Uname(&u)
	release := unix.ByteSliceToString(u.Release[:])
	f := probe("kernel", err, stateFailed, unix.ByteSliceToString(u.Sysname[:])+" "+release, "Linux 5.10 or later")
	var major, minor int
	_, unread := fmt.Sscanf(release, "%d.%d", &major, &minor)
	if err == nil && (unread != nil || major < 5 || major == 5 && minor < 10) {
		f.State = stateMissing
	}
	return f
}

func python(ctx context.Context) finding {
	f := finding{Name: "python3", State: stateMissing, Means: "runs Python tools; 3.9 or later"}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	const script = "import sys; " +
		"print(sys.executable, '.'.join(map(str, sys.version_info[:3])), int(sys.version_info >= (3, 9)))"
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

// closed closes what was only opened to see that it can be.
func closed(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
