//go:build linux

package sandbox

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The runtime's own fork hooks, which package syscall uses too.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// fork forks a child that plays the script at room and never returns.
//
//go:noinline
//go:norace
func fork(flags uintptr, room unsafe.Pointer) (pid uintptr, errno syscall.Errno) {
	beforeFork()
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
	}
	afterForkInChild()
	play(room)
	return 0, 0
}

// play makes the system calls of a script, one after the other, until one of them ends the process. It runs in a child
// that was forked from a program with several threads, of which only this one is left. So it must not allocate, grow its
// stack or call anything that might. An op that fails ends the child, which first reports the op.
//
//go:nosplit
//go:norace
//go:nocheckptr
func play(room unsafe.Pointer) {
	h := relocate(room)
	for pc := uint64(0); ; {
		o := (*op)(unsafe.Add(room, h.ops+pc*opSize))
		pc++
		var a [6]uintptr
		for i := range a {
			v := o.args[i]
			if o.mode>>i&1 != 0 {
				v += uint64(uintptr(room))
			} else if o.mode>>(8+i)&1 != 0 {
				v = h.regs[v%maxRegs]
			}
			a[i] = uintptr(v)
		}
		var r uintptr
		var errno syscall.Errno
		switch o.nr {
		case opPoke:
			*(*uint64)(unsafe.Add(room, o.args[0])) = uint64(a[1])
		case opPeek:
			r = uintptr(*(*uint32)(unsafe.Add(room, o.args[0])))
		case opTell:
			tell(h, uint64(a[0]), uint64(a[1]), uint64(a[2]))
		case opChain:
			next := unsafe.Add(room, a[0]-uintptr(room))
			chain(h, (*header)(next), unsafe.Add(room, o.args[1]), a[2])
			room, h, pc = next, relocate(next), 0
			continue
		default:
			r, _, errno = syscall.RawSyscall6(uintptr(o.nr), a[0], a[1], a[2], a[3], a[4], a[5])
		}
		if errno != 0 {
			if o.mode&modeLoose == 0 {
				tell(h, tellFailure, pc-1, uint64(errno))
				_, _, _ = syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 127, 0, 0, 0, 0, 0)
			}
			continue
		}
		if o.dst != 0 {
			h.regs[o.dst%maxRegs] = uint64(r)
		}
		if o.jump != 0 && r == 0 {
			pc = o.jump
		}
	}
}

// relocate sets the pointers in a script's data.
//
//go:nosplit
//go:norace
//go:nocheckptr
func relocate(room unsafe.Pointer) *header {
	h := (*header)(room)
	for i := uint64(0); i < h.nrelocs; i++ {
		at := *(*uint64)(unsafe.Add(room, h.relocs+8*i))
		*(*uint64)(unsafe.Add(room, at)) += uint64(uintptr(room))
	}
	h.nrelocs = 0 // processes forked from here have them already
	return h
}

// chain passes to a script the registers of the previous one, and the descriptors that came with it.
//
//go:nosplit
//go:norace
//go:nocheckptr
func chain(from, to *header, fds unsafe.Pointer, n uintptr) {
	for _, r := range [...]register{regStatus, regLife, regRules} {
		to.regs[r] = from.regs[r]
	}
	for i := uintptr(0); i < n && i < maxFiles; i++ {
		to.regs[regFiles+register(i)] = uint64(*(*uint32)(unsafe.Add(fds, 4*i)))
	}
}

//go:nosplit
//go:norace
//go:nocheckptr
func tell(h *header, what, a, b uint64) {
	h.record = [3]uint64{what, a, b}
	_, _, _ = syscall.RawSyscall6(unix.SYS_WRITE, uintptr(h.regs[regStatus]), uintptr(unsafe.Pointer(&h.record)),
		unsafe.Sizeof(h.record), 0, 0, 0)
}
