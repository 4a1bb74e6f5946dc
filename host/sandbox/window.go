//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
)

// A Window looks into a room from outside: it opens files as the processes in the room find them, even after all of them
// have ended. So the paths that a tool reports can be opened without trusting the tool: no path and no link leads to a
// file that the tool itself could not read.
type Window struct {
	root *os.File // of the room; nil if it has no mounts of its own
	room *os.File // its mounts, which exist as long as this is open
	view *view    // the readable paths of a room without mounts
}

// window keeps the mounts of a room that is being built. Its root is set later.
func (p *plan) window(pid int) (*Window, error) {
	if !p.on.Mounts {
		return &Window{view: p.all}, nil
	}
	room, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return nil, unavailable("the files of a room cannot be seen", err)
	}
	return &Window{room: room}, nil
}

// Open opens a regular file of the room for reading. A relative path starts in dir.
func (w *Window) Open(dir, path string) (*os.File, error) {
	if strings.ContainsRune(path, 0) {
		return nil, unix.EINVAL
	}
	f, err := w.open(offlimits.Under(dir, path))
	if err != nil {
		return nil, err
	}
	if err := mayBeRead(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// noLinks resolves a path that has no links, or was found to have none, in one step, by the kernel, even if something is
// renamed meanwhile. A link that has appeared since is an error.
const noLinks = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// resolve opens a path from an open folder, with the given rules of resolution.
func resolve(dir int, path string, flags, how uint64) (*os.File, error) {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: how})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// resolveInRoom resolves paths of a room from its root.
const resolveInRoom = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS

func (w *Window) open(path string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	if w.root != nil {
		return resolve(int(w.root.Fd()), path, flags, resolveInRoom)
	}
	at := w.view.around(filepath.Join(path, "x")) // the nearest folder that it may read
	if at == nil || at.rights&rightsRead == 0 || !at.folder {
		return nil, unix.EACCES
	}
	folder, err := resolve(unix.AT_FDCWD, at.path, unix.O_PATH, noLinks)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return resolve(int(folder.Fd()), "."+strings.TrimPrefix(path, at.path), flags,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
}

// mayBeRead refuses anything but regular files, and files that an unprivileged process could not read: we may have
// privileges.
func mayBeRead(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("it is not a regular file")
	}
	need := uint32(0o004)
	switch {
	case int(st.Uid) == os.Geteuid():
		need = 0o400
	case int(st.Gid) == os.Getegid():
		need = 0o040
	}
	if st.Mode&need == 0 {
		return fs.ErrPermission
	}
	return nil
}

// Close releases the room. A nil Window is valid.
func (w *Window) Close() {
	if w != nil {
		_ = w.root.Close()
		_ = w.room.Close()
	}
}
