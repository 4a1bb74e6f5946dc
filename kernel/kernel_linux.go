package kernel

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// PathOnly opens a file only to stat it or to open paths below it: no right to it is needed.
	PathOnly = unix.O_PATH
	// Descriptors is the folder that lists the open files of this program.
	Descriptors = "/proc/self/fd"

	// TermGet reads the state of a terminal.
	TermGet = unix.TCGETS
	// TermSet sets it.
	TermSet = unix.TCSETS
	// TermSetLater sets it once all output was written.
	TermSetLater = unix.TCSETSW
	// TermSetFresh does so too, and drops what was typed and not read.
	TermSetFresh = unix.TCSETSF

	// DirentLength is the offset of the length in an entry read by unix.ReadDirent, struct linux_dirent64.
	DirentLength = 16
	// DirentType is the offset of its type.
	DirentType = 18
	// DirentName is the offset of its name.
	DirentName = 19

	fionread         = unix.TIOCINQ
	setLock, getLock = unix.F_OFD_SETLK, unix.F_OFD_GETLK
)

// Open opens a path from an open folder, in one system call, even if something is renamed meanwhile.
func Open(dir int, path string, flags int, refuse Resolve) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC}
	if refuse&NoLinks != 0 {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	}
	if refuse&Beneath != 0 {
		how.Resolve |= unix.RESOLVE_BENEATH
	}
	return unix.Openat2(dir, path, &how)
}

// ReadLink returns the target of a link that was opened by its name in a folder.
func ReadLink(link, _ int, _ string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// MakeFile makes an empty file that must not exist yet.
func MakeFile(dir int, name string, mode uint32) error {
	return unix.Mknodat(dir, name, unix.S_IFREG|mode, 0)
}

// Again returns a path that refers to this open file alone, for as long as it is open.
func Again(fd int) (string, error) { return Descriptors + "/" + strconv.Itoa(fd), nil }

// ForOthers returns a path by which other programs of this user find an open file.
func ForOthers(fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd) }

// PathOf returns the current path of an open file.
func PathOf(fd int) (string, error) {
	path, err := os.Readlink(Descriptors + "/" + strconv.Itoa(fd))
	return strings.TrimSuffix(path, " (deleted)"), err // the kernel's mark on a deleted name
}

// Sealed makes a file that has no name, is on no disk, and can be read but not changed.
func Sealed(name string, fill func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := filled(f, fill); err != nil {
		return nil, err
	}
	const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, all); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func renameNew(from int, name string, to int, newName string) error {
	return unix.Renameat2(from, name, to, newName, unix.RENAME_NOREPLACE)
}

// SocketPair makes two connected Unix sockets that no child inherits.
func SocketPair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}

// Peer returns the process at the other end of a Unix socket.
func Peer(fd int) (uid, gid uint32, pid int32, err error) {
	cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return 0, 0, 0, err
	}
	return cred.Uid, cred.Gid, cred.Pid, nil
}

// HalfClosed reports whether the other end of a TCP connection has closed its direction.
func HalfClosed(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	open := []uint8{unix.BPF_TCP_ESTABLISHED, unix.BPF_TCP_FIN_WAIT1, unix.BPF_TCP_FIN_WAIT2}
	return err == nil && !slices.Contains(open, info.State)
}

// UserTimeout ends a TCP connection whose packets are not acknowledged for so long.
func UserTimeout(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}

// Remote reports whether a file is on a file system of another machine or of another program.
func Remote(fd int) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return false, err
	}
	return slices.Contains([]int64{unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
		unix.CIFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.AFS_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC,
		unix.CODA_SUPER_MAGIC, unix.NCP_SUPER_MAGIC}, fs.Type), nil
}

// MadeUp reports whether the kernel generates a file for each reader. It returns true if that is unknown.
func MadeUp(fd int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return true
	}
	return slices.Contains([]int64{unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC,
		unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC},
		fs.Type)
}

// StampOf returns the stamp of a file from os.Stat or os.Lstat.
func StampOf(info fs.FileInfo) Stamp {
	st := info.Sys().(*syscall.Stat_t)
	return Stamp{Inode: st.Ino, Size: st.Size, Modified: st.Mtim, Changed: st.Ctim}
}
