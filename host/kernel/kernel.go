// Package kernel has what Linux and macOS do differently, below everything that opens files, keeps locks or asks who is
// at the other end of a socket. Each function has one contract and an implementation for each system, so that nobody
// above asks on which of them it runs.
//
// Walls are not here: package sandbox builds them on Linux, and says elsewhere that it cannot.
package kernel

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Resolve says what Open refuses on the way.
type Resolve uint

// What is refused: any link, and whatever is not below the folder where the way begins.
const (
	NoLinks Resolve = 1 << iota
	Beneath
)

// Device is the number of the device that a file is on.
func Device(st *unix.Stat_t) uint64 { return uint64(st.Dev) } //nolint:unconvert // int32 on macOS; only compared

// Waiting tells how many bytes wait in a pipe or a terminal.
func Waiting(fd int) (int, error) { return unix.IoctlGetInt(fd, fionread) }

// Rename moves a name to another that must not be taken, unless it may be replaced. A file system that cannot promise
// that gives unix.EINVAL.
func Rename(from int, name string, to int, newName string, replace bool) error {
	if replace {
		return unix.Renameat(from, name, to, newName)
	}
	return renameNew(from, name, to, newName)
}

// Lock locks a byte of an open file or folder, together with others who only look. The lock is given back when the last
// descriptor of this opening is closed, so at the latest when the program ends.
func Lock(f *os.File, at int64) error {
	return unix.FcntlFlock(f.Fd(), setLock, &unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: 1})
}

// Locked reports whether somebody else has locked a byte.
func Locked(f *os.File, at int64) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	err := unix.FcntlFlock(f.Fd(), getLock, &lock)
	return lock.Type != unix.F_UNLCK, err
}

// filled fills a file and goes back to its start, or closes it.
func filled(f *os.File, fill func(io.Writer) error) error {
	err := fill(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
	}
	return err
}

// A Stamp tells one state of a file from another. The zero value is that of no file.
type Stamp struct {
	Inode             uint64
	Size              int64
	Modified, Changed syscall.Timespec
}

// Disk tells how many bytes of the file system that a path is on are free for this program, and how many it has.
func Disk(path string) (free, total uint64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), fs.Blocks * uint64(fs.Bsize), nil
}
