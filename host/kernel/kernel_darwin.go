package kernel

import (
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// PathOnly opens a file to look at it or to go on from it. Events are what macOS means it for.
	PathOnly = unix.O_EVTONLY
	// Descriptors is the folder that lists what this program has open.
	Descriptors = "/dev/fd"

	// TermGet reads the state of a terminal.
	TermGet = unix.TIOCGETA
	// TermSet sets it.
	TermSet = unix.TIOCSETA
	// TermSetLater sets it once all was written.
	TermSetLater = unix.TIOCSETAW

	// DirentLength is where the length is in an entry of a folder that unix.ReadDirent reads, struct dirent.
	DirentLength = 16
	// DirentType is where its type is.
	DirentType = 20
	// DirentName is where its name is.
	DirentName = 21

	fionread = 0x4004667f // FIONREAD of sys/filio.h
	// F_OFD_SETLK and F_OFD_GETLK of sys/fcntl.h
	setLock, getLock = 90, 92
)

// Open opens a path from an open folder, in one step of the kernel's. What has a ".." in it, or is absolute, is not
// beneath a folder: there is no flag for that which every macOS has.
func Open(dir int, name string, flags int, refuse Resolve) (int, error) {
	if refuse&Beneath != 0 && (path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..")) {
		return -1, unix.EXDEV
	}
	if refuse != 0 { // a link could lead out
		flags |= unix.O_NOFOLLOW_ANY
	}
	if flags&PathOnly != 0 && flags&unix.O_NOFOLLOW != 0 && refuse == 0 { // the link itself
		flags = flags&^unix.O_NOFOLLOW | unix.O_SYMLINK
	}
	return unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
}

// ReadLink reads where a link leads, which was opened by its name in a folder. macOS has to be asked by the name.
func ReadLink(_, dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// MakeFile makes an empty file that is not there yet.
func MakeFile(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// Again is a path that leads to an open file, unless something was renamed meanwhile: /dev/fd does not lead into
// folders.
func Again(fd int) (string, error) { return PathOf(fd) }

// ForOthers is a path by which an open file is found: on macOS by this program alone.
func ForOthers(fd int) string { return Descriptors + "/" + strconv.Itoa(fd) }

// PathOf is where an open file is now.
func PathOf(fd int) (string, error) {
	var buf [unix.PathMax]byte
	//nolint:gosec // the kernel writes at most PathMax bytes there
	_, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETPATH, uintptr(unsafe.Pointer(&buf[0])))
	if errno != 0 {
		return "", errno
	}
	return unix.ByteSliceToString(buf[:]), nil
}

// Sealed makes a file that has no name and can be read and not be changed: of the temporary file only a descriptor to
// read it is kept.
func Sealed(name string, fill func(io.Writer) error) (*os.File, error) {
	w, err := os.CreateTemp("", "toolpost-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(w.Name())
	if err := filled(w, fill); err != nil {
		return nil, err
	}
	defer w.Close()
	fd, err := unix.Open(w.Name(), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func renameNew(from int, name string, to int, newName string) error {
	return unix.RenameatxNp(from, name, to, newName, unix.RENAME_EXCL)
}

// SocketPair makes two Unix sockets that are connected with each other, and that no child inherits.
func SocketPair() ([2]int, error) {
	syscall.ForkLock.RLock() // no child is started between the two steps
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	return fds, err
}

// Peer is who is at the other end of a Unix socket.
func Peer(fd int) (uid, gid uint32, pid int32, err error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, 0, err
	}
	number, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return cred.Uid, cred.Groups[0], int32(number), err //nolint:gosec // process numbers are small
}

// HalfClosed reports whether the other end of a TCP connection has closed its direction. Only rooms ask, and there are
// none here.
func HalfClosed(int) bool { return false }

// Remote reports whether a file is on a file system that another machine keeps.
func Remote(fd int) (bool, error) {
	var fs unix.Statfs_t
	err := unix.Fstatfs(fd, &fs)
	return fs.Flags&unix.MNT_LOCAL == 0, err
}

// MadeUp reports whether a file is made up by the kernel for whoever reads it. What cannot be told may be.
func MadeUp(fd int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return true
	}
	return slices.Contains([]string{"devfs", "fdesc", "autofs"}, unix.ByteSliceToString(fs.Fstypename[:]))
}

// StampOf is the stamp of a file that os.Stat or os.Lstat looked at.
func StampOf(info fs.FileInfo) Stamp {
	st := info.Sys().(*syscall.Stat_t)
	return Stamp{Inode: st.Ino, Size: st.Size, Modified: st.Mtimespec, Changed: st.Ctimespec}
}

// ReleaseProgram does nothing: macOS takes such pages back by itself.
func ReleaseProgram() error { return nil }
