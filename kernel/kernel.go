// Package kernel hides the differences between Linux and macOS from all code that opens files, keeps locks or asks for
// the peer of a socket. Each function has one contract and an implementation for each system, so that callers need not
// know on which they run.
//
// Walls are not here: package sandbox builds them on Linux, and reports elsewhere that it cannot.
package kernel

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Resolve states what Open refuses in a path.
type Resolve uint

// The refusals: any link, and any path that is not below the starting folder.
const (
	NoLinks Resolve = 1 << iota
	Beneath
)

// Device returns the number of a file's device.
func Device(st *unix.Stat_t) uint64 { return uint64(st.Dev) } //nolint:unconvert // int32 on macOS; only compared

// Waiting returns how many bytes wait in a pipe or a terminal.
func Waiting(fd int) (int, error) { return unix.IoctlGetInt(fd, fionread) }

// Rename renames a file. Without replace the new name must not exist; a file system that cannot guarantee that returns
// unix.EINVAL.
func Rename(from int, name string, to int, newName string, replace bool) error {
	if replace {
		return unix.Renameat(from, name, to, newName)
	}
	return renameNew(from, name, to, newName)
}

// Lock takes a shared lock on a byte of an open file or folder. The lock is released when the last descriptor of this
// opening is closed, at the latest when the program ends.
func Lock(f *os.File, at int64) error {
	return unix.FcntlFlock(f.Fd(), setLock, &unix.Flock_t{Type: unix.F_RDLCK, Start: at, Len: 1})
}

// Locked reports whether another opening has locked a byte.
func Locked(f *os.File, at int64) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	err := unix.FcntlFlock(f.Fd(), getLock, &lock)
	return lock.Type != unix.F_UNLCK, err
}

// filled fills a file and seeks to its start; on an error it closes it.
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

// A Stamp identifies a state of a file. The zero value is that of no file.
type Stamp struct {
	Inode             uint64
	Size              int64
	Modified, Changed syscall.Timespec
}

// Disk returns the free and total bytes of a path's file system, free for this program.
func Disk(path string) (free, total uint64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), fs.Blocks * uint64(fs.Bsize), nil
}
