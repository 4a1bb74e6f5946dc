//go:build linux

package sandbox

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the system's ps shows of the forker and its children. By the first, our program recognises that it is the forker.
const (
	forkerName = "toolpost: sandbox"
	spareName  = "toolpost: spare room" // of a room in advance
	roomName   = "toolpost: room"       // of the first process of a room; the name of its source follows
)

// titleSize is the space for such a name, which the forker is started with.
const titleSize = 64

// title returns the memory of the forker's arguments, which is what ps shows. Forked children have their own copy.
func title() []byte {
	if len(os.Args) != 2 {
		return make([]byte, titleSize)
	}
	first, second := unsafe.StringData(os.Args[0]), unsafe.StringData(os.Args[1]) // they follow each other
	return unsafe.Slice(first, uintptr(unsafe.Pointer(second))-uintptr(unsafe.Pointer(first))+titleSize)
}

// entitle changes what ps shows.
func entitle(title []byte, name string) { clear(title[copy(title, name):]) }

// The descriptors of the forker.
const (
	forkerSocket = 3 // receives scripts
	forkerLife   = 4 // ends with the host
)

// mayStart records that this program called Main, so that starting it again under the forker's name results in a forker
// and not in a second run of the program.
var mayStart atomic.Bool

// Main must be called first in a program that starts confined children. If the program was started as the forker, Main
// does that work and returns true when it is over; the program must then end.
//
// The forker is the program itself, started again without environment, arguments or descriptors of the host. It forks
// every confined child: it is small, holds no secret, and is already running, so that a child does not pay for the start
// of a large program.
func Main() (handled bool) {
	mayStart.Store(true)
	if len(os.Args) == 0 || os.Args[0] != forkerName {
		return false
	}
	serveForks()
	return true
}

// serveForks forks a child for each script that it receives, until the host is gone.
func serveForks() {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)       // a request leaves a few hundred bytes
	request := make([]uint64, 3) // one word longer than a request, to detect an excess
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	title := title()
	entitle(title, forkerName)
	for n := 0; ; n++ {
		size, oobSize, _, _, err := unix.Recvmsg(forkerSocket, bytesOf(request), oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || size != 16 {
			return
		}
		entitle(title, spareName)
		forkRoom(request[0], request[1], descriptors(oob[:oobSize]), title)
		entitle(title, forkerName)
		if n%1024 == 1023 {
			runtime.GC()
		}
	}
}

// maxFiles is the maximum number of descriptors that the kernel passes with one message.
const maxFiles = 253

// descriptors returns those that came with a message.
func descriptors(oob []byte) []int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil
	}
	return fds
}

// noOp is the op index that stands for the forker itself in a failure.
const noOp = ^uint64(0)

// forkRoom forks a child with new namespaces that plays a script. The first descriptor is the script's memory, the second
// the socket to the waiting process. The child becomes the host's, not ours.
func forkRoom(flags, size uint64, fds []int, title []byte) {
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if len(fds) < 2 || size < headerSize {
		return
	}
	room, err := unix.Mmap(fds[0], 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		tellHost(fds[1], err.(unix.Errno))
		return
	}
	defer func() { _ = unix.Munmap(room) }()
	h := (*header)(unsafe.Pointer(&room[0]))
	h.regs[regLife] = forkerLife
	h.regs[regStatus] = uint64(fds[1])
	h.regs[regTitle] = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(title))))
	for i, fd := range fds[2:] {
		h.regs[regFiles+register(i)] = uint64(fd)
	}
	if _, errno := fork(uintptr(flags)|unix.CLONE_PARENT|uintptr(unix.SIGCHLD), unsafe.Pointer(&room[0])); errno != 0 {
		tellHost(fds[1], errno)
	}
}

// tellHost reports to the waiting process that there is no child.
func tellHost(status int, errno unix.Errno) {
	_, _ = unix.Write(status, bytesOf([]uint64{tellFailure, noOp, uint64(errno)}))
}
