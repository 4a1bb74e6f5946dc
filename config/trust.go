package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolpost/kernel"
	"toolpost/tool"
)

// LoadTrusted reads a file as Load does, if only root and this program's user could have written it. The file, every
// folder above it, and likewise the targets of links on the way must belong to one of the two, and no other user may
// write them. A folder with the sticky bit, such as /tmp, may be writable by others: they cannot touch files that are
// not theirs. The file that was checked is the one that is read, whatever is renamed meanwhile. An empty file is
// refused: a file that is saved in place is empty for a moment, and would be a config without a single source.
func LoadTrusted(path string) (*Config, error) {
	f, err := openTrusted(path)
	if err != nil {
		return nil, err
	}
	data, err := read(path, f)
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = tool.Errorf(tool.CodeInvalidInput, "%s is empty: it is being saved, or its content is lost", path)
	}
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Trusted returns an error that names who else could have written a file, if another user could; see LoadTrusted.
func Trusted(path string) error {
	f, err := openTrusted(path)
	if err == nil {
		f.Close()
	}
	return err
}

// maxLinks is how many links may lead to a file, the same as in the kernel.
const maxLinks = 40

// A walk goes to a file folder by folder, each opened from the one before it.
type walk struct {
	path  string // as requested
	user  int
	above []step   // from the root down to the current folder
	left  []string // names still to visit
	links int
	group bool // whether a group may have write access on the way
}

type step struct {
	fd   int
	path string
}

func openTrusted(path string) (*os.File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	w := &walk{path: path, user: os.Geteuid(), left: names(abs)}
	defer func() { w.back(0) }()
	if err := w.enter(unix.AT_FDCWD, "/", "/"); err != nil {
		return nil, err
	}
	for len(w.left) > 0 {
		f, err := w.next()
		if f != nil || err != nil {
			return f, err
		}
	}
	return nil, tool.Errorf(tool.CodeInvalidInput, "%s: the config cannot be read: it is a folder", path)
}

func names(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

// back goes up again, to the first n folders.
func (w *walk) back(n int) {
	for _, s := range w.above[n:] {
		unix.Close(s.fd)
	}
	w.above = w.above[:n]
}

// enter opens a folder and checks it.
func (w *walk) enter(from int, name, path string) error {
	fd, err := unix.Openat(from, name, kernel.PathOnly|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return cannotRead(w.path, err)
	}
	w.above = append(w.above, step{fd, path})
	return w.judge(fd, path)
}

// next takes one step; it returns the file on reaching it.
func (w *walk) next() (*os.File, error) {
	name, at := w.left[0], w.above[len(w.above)-1]
	w.left = w.left[1:]
	if name == ".." {
		w.back(max(len(w.above)-1, 1))
		return nil, nil
	}
	path := filepath.Join(at.path, name)
	var info unix.Stat_t
	if err := unix.Fstatat(at.fd, name, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, cannotRead(w.path, err)
	}
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil, w.follow(at.fd, name, path, &info)
	case unix.S_IFDIR:
		return nil, w.enter(at.fd, name, path)
	}
	if len(w.left) > 0 {
		return nil, cannotRead(w.path, unix.ENOTDIR)
	}
	fd, err := unix.Openat(at.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, cannotRead(w.path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := w.judge(fd, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// follow goes to the target of a link. The link's owner matters: in a sticky folder any user may create one.
func (w *walk) follow(folder int, name, path string, info *unix.Stat_t) error {
	if w.links++; w.links > maxLinks {
		return cannotRead(w.path, unix.ELOOP)
	}
	if err := w.owner(path, info); err != nil {
		return err
	}
	to := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(folder, name, to)
	if err != nil {
		return cannotRead(w.path, err)
	}
	if filepath.IsAbs(string(to[:n])) {
		w.back(1)
	}
	w.left = append(names(string(to[:n])), w.left...)
	return nil
}

// judge returns an error if another user may write the opened file or folder.
func (w *walk) judge(fd int, path string) error {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return cannotRead(w.path, err)
	}
	if err := w.owner(path, &info); err != nil {
		return err
	}
	const others = unix.S_IWGRP | unix.S_IWOTH
	sticky := info.Mode&unix.S_IFMT == unix.S_IFDIR && info.Mode&unix.S_ISVTX != 0
	if info.Mode&others == 0 || sticky || w.group && info.Mode&unix.S_IWOTH == 0 {
		return nil
	}
	who, option := "everybody", "go-w"
	if info.Mode&unix.S_IWOTH == 0 {
		who, option = fmt.Sprintf("the group %d", info.Gid), "g-w"
	}
	return w.distrust("%s may be written by %s (owner %d, mode %04o): run `chmod %s %s`", path, who, info.Uid,
		info.Mode&0o7777, option, path)
}

func (w *walk) owner(path string, info *unix.Stat_t) error {
	if info.Uid == 0 || int(info.Uid) == w.user {
		return nil
	}
	return w.distrust("%s belongs to user %d (mode %04o) and not to root or to user %d, who runs this program: give "+
		"it to one of them, or move the config to a folder of theirs", path, info.Uid, info.Mode&0o7777, w.user)
}

func (w *walk) distrust(format string, args ...any) error {
	return tool.Errorf(tool.CodeAccessDenied, "%s could have been written by someone else: %s", w.path,
		fmt.Sprintf(format, args...))
}
