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
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// PathOnly opens a file to stat it or to open paths below it. macOS intends the flag for events.
	PathOnly = unix.O_EVTONLY
	// Descriptors is the folder that lists the open files of this program.
	Descriptors = "/dev/fd"

	// TermGet reads the state of a terminal.
	TermGet = unix.TIOCGETA
	// TermSet sets it.
	TermSet = unix.TIOCSETA
	// TermSetLater sets it once all output was written.
	TermSetLater = unix.TIOCSETAW
	// TermSetFresh does so too, and drops what was typed and not read.
	TermSetFresh = unix.TIOCSETAF

	// DirentLength is the offset of the length in an entry read by unix.ReadDirent, struct dirent.
	DirentLength = 16
	// DirentType is the offset of its type.
	DirentType = 20
	// DirentName is the offset of its name.
	DirentName = 21

	fionread = 0x4004667f // FIONREAD of sys/filio.h
	// F_OFD_SETLK and F_OFD_GETLK of sys/fcntl.h
	setLock, getLock = 90, 92
)

// Open opens a path from an open folder, in one system call. A path that has a ".." in it, or is absolute, is not beneath
// a folder: not every macOS has a flag for that.
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

// ReadLink returns the target of a link that was opened by its name in a folder. macOS needs the name.
func ReadLink(_, dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// MakeFile makes an empty file that must not exist yet.
func MakeFile(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// Again returns a path to an open file, unless something was renamed meanwhile: /dev/fd does not lead into folders.
func Again(fd int) (string, error) { return PathOf(fd) }

// ForOthers returns a path to an open file. On macOS only this program can use it.
func ForOthers(fd int) string { return Descriptors + "/" + strconv.Itoa(fd) }

// PathOf returns the current path of an open file.
func PathOf(fd int) (string, error) {
	var buf [unix.PathMax]byte
	//nolint:gosec // the kernel writes at most PathMax bytes there
	_, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETPATH, uintptr(unsafe.Pointer(&buf[0])))
	if errno != 0 {
		return "", errno
	}
	return unix.ByteSliceToString(buf[:]), nil
}

// Sealed makes a file that has no name and can be read but not changed: of the temporary file only a read-only descriptor
// is kept.
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

// SocketPair makes two connected Unix sockets that no child inherits.
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

// Peer returns the process at the other end of a Unix socket.
func Peer(fd int) (uid, gid uint32, pid int32, err error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, 0, err
	}
	number, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return cred.Uid, cred.Groups[0], int32(number), err //nolint:gosec // process numbers are small
}

// HalfClosed reports whether the other end of a TCP connection has closed its direction. Only rooms use it, and there are
// none here.
func HalfClosed(int) bool { return false }

// UserTimeout ends a TCP connection whose packets are not acknowledged for so long, in whole seconds.
func UserTimeout(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RXT_CONNDROPTIME, int((d+time.Second-1)/time.Second))
}

// Remote reports whether a file is on a file system of another machine.
func Remote(fd int) (bool, error) {
	var fs unix.Statfs_t
	err := unix.Fstatfs(fd, &fs)
	return fs.Flags&unix.MNT_LOCAL == 0, err
}

// MadeUp reports whether the kernel generates a file for each reader. It returns true if that is unknown.
func MadeUp(fd int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return true
	}
	return slices.Contains([]string{"devfs", "fdesc", "autofs"}, unix.ByteSliceToString(fs.Fstypename[:]))
}

// StampOf returns the stamp of a file from os.Stat or os.Lstat.
func StampOf(info fs.FileInfo) Stamp {
	st := info.Sys().(*syscall.Stat_t)
	return Stamp{Inode: st.Ino, Size: st.Size, Modified: st.Mtimespec, Changed: st.Ctimespec}
}

// ReleaseProgram does nothing: macOS reclaims such pages by itself.
func ReleaseProgram() error { return nil }
