//go:build linux

package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	lastCall  = unix.SYS_RSEQ_SLICE_YIELD
)

// System calls that only this architecture has.
var (
	forkCalls    []uintptr
	modeCalls    []uintptr
	machineCalls []uintptr
)

func machineChanges() []change { return nil }
