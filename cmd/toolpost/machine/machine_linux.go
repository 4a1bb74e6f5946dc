package machine

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// system checks what this program needs of the kernel, apart from walls.
func system() []Finding {
	return []Finding{
		kernelVersion(),
		Probe("whole trees", subreaper(), Failed, "works",
			"when a tool ends, all its processes end, even those that hide"),
		Probe("process handles", closed(unix.PidfdOpen(os.Getpid(), 0)), Missing, "works",
			"a signal never reaches another process that got the same process id"),
		Probe("memory files", closed(unix.MemfdCreate("toolpost", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)), Failed,
			"works", "Python tools start without a file on disk"),
	}
}

func kernelVersion() Finding {
	var u unix.Utsname
	err := unix.Uname(&u)
	release := unix.ByteSliceToString(u.Release[:])
	f := Probe("kernel", err, Failed, unix.ByteSliceToString(u.Sysname[:])+" "+release, "Linux 5.10 or later")
	var major, minor int
	_, unread := fmt.Sscanf(release, "%d.%d", &major, &minor)
	if err == nil && (unread != nil || major < 5 || major == 5 && minor < 10) {
		f.State = Missing
	}
	return f
}

func subreaper() error {
	var on int32
	return unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&on)), 0, 0, 0)
}

// closed closes a descriptor that was only opened as a test.
func closed(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
