//go:build linux

package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	lastCall  = unix.SYS_RSEQ_SLICE_YIELD
)

// System calls that only this architecture has.
var (
	forkCalls = []uintptr{unix.SYS_FORK, unix.SYS_VFORK}
	modeCalls = []uintptr{
		unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	}
	machineCalls = []uintptr{
		unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS,
	}
)

func machineChanges() []change {
	return []change{
		{unix.SYS_OPEN, -1, 0, 2, 1}, {unix.SYS_CREAT, -1, 0, 1, -1}, {unix.SYS_UNLINK, -1, 0, -1, -1},
		{unix.SYS_RMDIR, -1, 0, -1, -1}, {unix.SYS_MKDIR, -1, 0, 1, -1}, {unix.SYS_MKNOD, -1, 0, 1, -1},
		{unix.SYS_RENAME, -1, 1, -1, -1}, {unix.SYS_LINK, -1, 1, -1, -1}, {unix.SYS_SYMLINK, -1, 1, -1, -1},
		{unix.SYS_CHMOD, -1, 0, 1, -1}, {unix.SYS_CHOWN, -1, 0, -1, -1},
	}
}
