package offlimits

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"toolpost/kernel"
	"toolpost/tool"
)

// An ID identifies a file, whatever its names.
type ID struct{ Dev, Ino uint64 }

// An Anchor is an open file or folder of a config, through a descriptor that cannot read.
type Anchor struct {
	Path  string            // its path, without links
	Links map[string]string // the links that led there, none of which tools could have made
	ID    ID
	Mode  fs.FileMode // its type
	file  *os.File
}

// Fd returns the descriptor, which the Anchor still owns.
func (a *Anchor) Fd() int { return int(a.file.Fd()) }

// Close closes the descriptor.
func (a *Anchor) Close() { _ = a.file.Close() }

const maxLinks = 40 // the kernel's own limit

// Open opens an absolute path of a config. It follows a link only if just the owner of this machine can have made it, and
// never in a folder that tools may change: one of the list's, or one of more. A path that the list has as read-only or
// absent is not such a folder, wherever it lies. Nor is a home, unless it is one of the folders that tools may change.
//
// It is called anew at each start, and returns a path without links that is opened again as such. So it does not matter
// if a folder was replaced in the meantime, as long as the new one is a folder and not a link. A descriptor kept from the
// first start would keep a deleted folder.
func Open(path string, l *List, more ...string) (*Anchor, error) {
	path = filepath.Clean(path)
	if a, err := openDirect(unix.AT_FDCWD, path, path); err == nil {
		return a, nil
	} else if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	w := &way{asked: path, list: l, more: more}
	return w.walk()
}

// Is reports whether a path refers to the open file with this ID. It is for checks at every call, which would otherwise
// have to open the path: a link at its end is another file, and a link on the way makes no difference.
func Is(path string, id ID) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && id == ID{kernel.Device(&st), st.Ino}
}

// LeadsTo is Is for a path that may have links.
func LeadsTo(path string, id ID) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && id == ID{kernel.Device(&st), st.Ino}
}

// openDirect opens a path that has no links, or was found to have none. A link that has appeared since is an error.
func openDirect(dir int, path, real string) (*Anchor, error) {
	return openAnchor(dir, path, real, 0, kernel.NoLinks)
}

func openAnchor(dir int, path, real string, flags int, refuse kernel.Resolve) (*Anchor, error) {
	fd, err := kernel.Open(dir, path, flags|kernel.PathOnly, refuse)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Anchor{Path: real, ID: idOf(info), Mode: info.Mode().Type(), file: f}, nil
}

func idOf(info fs.FileInfo) ID {
	st := info.Sys().(*syscall.Stat_t)
	return ID{uint64(st.Dev), st.Ino} //nolint:unconvert // int32 on macOS; only compared
}

// A way is a path with links that is being opened.
type way struct {
	asked string
	list  *List
	more  []string
	links map[string]string
	count int  // links followed, including repeated ones
	open  []ID // folders that tools may change
	shut  []ID // folders in them that they may not change
	homes []ID // folders that they may not change unless they are open
}

// walk goes from the root, one name at a time, by descriptors.
func (w *way) walk() (*Anchor, error) {
	w.links = map[string]string{}
	w.open = identities(apart(slices.Concat(w.more, w.list.Roots())), 0)
	w.shut = identities(slices.Concat(w.list.Fixed(), w.list.Hidden()), kernel.NoLinks)
	w.homes = identities(w.list.Folders(), kernel.NoLinks)
	at, err := openDirect(unix.AT_FDCWD, "/", "/")
	if err != nil {
		return nil, err
	}
	rest := names(w.asked)
	for theirs := w.changes(false, at.ID); len(rest) > 0; theirs = w.changes(theirs, at.ID) {
		next, err := w.step(at, rest[0], theirs)
		if err != nil {
			at.Close()
			return nil, err
		}
		if rest = rest[1:]; next.Mode != fs.ModeSymlink {
			at.Close()
			at = next
			continue
		}
		target := Under(at.Path, w.links[next.Path])
		next.Close()
		at.Close()
		if at, err = openDirect(unix.AT_FDCWD, "/", "/"); err != nil {
			return nil, err
		}
		rest, theirs = append(names(target), rest...), false
	}
	at.Links = w.links
	return at, nil
}

// changes reports whether tools may change a folder, given whether they may change its parent.
func (w *way) changes(outer bool, id ID) bool {
	switch {
	case slices.Contains(w.shut, id):
		return false
	case slices.Contains(w.open, id):
		return true
	}
	return outer && !slices.Contains(w.homes, id)
}

// step opens a name in a folder. It records a link, if that may be followed.
func (w *way) step(at *Anchor, name string, theirs bool) (*Anchor, error) {
	here := filepath.Join(at.Path, name)
	next, err := openAnchor(at.Fd(), name, here, unix.O_NOFOLLOW, 0)
	switch {
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: w.asked, Err: err}
	case next.Mode != fs.ModeSymlink:
		return next, nil
	}
	to, err := kernel.ReadLink(next.Fd(), at.Fd(), name)
	switch {
	case theirs:
		err = &LinkError{Path: w.asked, Link: here}
	case err == nil && w.count >= maxLinks:
		err = &fs.PathError{Op: "open", Path: w.asked, Err: unix.ELOOP}
	}
	if err != nil {
		next.Close()
		return nil, err
	}
	w.count++
	w.links[here] = to
	return next, nil
}

func names(path string) []string {
	return strings.FieldsFunc(filepath.Clean(path), func(r rune) bool { return r == '/' })
}

// apart lists folders that tools may change. If that is everything, the system's folders are left out: they are full of
// links, and a tool that may change them needs none.
func apart(paths []string) []string {
	if !slices.ContainsFunc(paths, func(path string) bool { return filepath.Clean(path) == "/" }) {
		return paths
	}
	system := []string{
		"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/nix", "/gnu", "/proc", "/sys", "/dev",
	}
	all := slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return filepath.Clean(path) == "/" })
	entries, _ := os.ReadDir("/")
	for _, e := range entries {
		if path := "/" + e.Name(); e.IsDir() && !slices.Contains(system, path) {
			all = append(all, path)
		}
	}
	return all
}

// identities returns the IDs of what is at the given paths. If a tool has replaced a writable folder by a link, the ID is
// not the intended one: then more links are refused, not fewer, since the folder around it is among the paths too.
func identities(paths []string, refuse kernel.Resolve) []ID {
	var ids []ID
	for _, path := range paths {
		if a, err := openAnchor(unix.AT_FDCWD, path, path, 0, refuse); err == nil {
			ids = append(ids, a.ID)
			a.Close()
		}
	}
	return ids
}

// A LinkError refuses a link that a tool may have made.
type LinkError struct {
	Path string // the path to open
	Link string // the link on it
}

// Error implements error.
func (e *LinkError) Error() string {
	return e.Path + ": " + e.Link + " is a symbolic link in a folder that tools may change, so it is not followed; " +
		"put the file or folder itself there, name what it leads to, or let no source write that folder (`roots`, `walls.write`)"
}

// Unwrap returns an error with a code.
func (e *LinkError) Unwrap() error {
	return tool.Errorf(tool.CodeUnavailable, "%s", e.Error()).Because("symlink")
}

// openNearest opens a path, or its nearest existing parent; rest is the missing part.
func openNearest(path string, l *List, more ...string) (a *Anchor, rest string, err error) {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		a, err = Open(path, l, more...)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return a, rest, err
		}
		rest = filepath.Join(filepath.Base(path), rest)
	}
}

// A Thing is something on a list, at its real path.
type Thing struct {
	Path    string // without links
	Folder  bool
	missing string // the missing part of the path
}

// Find finds a thing of a list. It need not exist.
func Find(path string, l *List, more ...string) (Thing, error) {
	a, rest, err := openNearest(path, l, more...)
	if err != nil {
		return Thing{}, err
	}
	defer a.Close()
	t := Thing{Path: filepath.Join(a.Path, rest), Folder: a.Mode.IsDir(), missing: rest}
	if rest != "" {
		t.Folder = strings.HasSuffix(path, "/")
	}
	return t, nil
}

// Missing reports whether it does not exist.
func (t Thing) Missing() bool { return t.missing != "" }

// Make makes an empty file or folder if the thing is missing, so that it can be covered: a mount needs something to
// cover, and a tool that may write the folder could create it first. An empty file or folder has no more effect than a
// missing one. Make reports whether the thing exists now; if we cannot make it, a tool, which has no more rights, cannot
// either.
func (t Thing) Make(private bool) (bool, error) {
	if t.missing == "" {
		return true, nil
	}
	at, err := openDirect(unix.AT_FDCWD, strings.TrimSuffix(t.Path, t.missing), "")
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: t.Path, Err: err}
	}
	defer func() { at.Close() }()
	mode := uint32(0o755)
	if private {
		mode = 0o700
	}
	rest := names(t.missing)
	for i, name := range rest {
		if i < len(rest)-1 || t.Folder {
			err = unix.Mkdirat(at.Fd(), name, mode)
		} else {
			err = kernel.MakeFile(at.Fd(), name, mode&0o666)
		}
		switch {
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
			return false, nil
		case err != nil && !errors.Is(err, unix.EEXIST): // another process was faster; the check below finds out if it is a link
			return false, &fs.PathError{Op: "make", Path: t.Path, Err: err}
		}
		next, err := openDirect(at.Fd(), name, "")
		if err != nil {
			return false, &fs.PathError{Op: "open", Path: t.Path, Err: err}
		}
		at.Close()
		at = next
	}
	return true, nil
}

// WriteNew makes a file that only its owner can read, atomically: it is written beside path and then linked there. If
// path exists it stays, and the error is fs.ErrExist.
func WriteNew(path, text string) error { return write(path, text, os.Link) }

// WriteOver writes a file atomically, for its owner alone, replacing an existing one.
func WriteOver(path, text string) error { return write(path, text, os.Rename) }

func write(path, text string, put func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // O_EXCL, 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err := errors.Join(err, asFolder(f, dir), f.Sync(), f.Close()); err != nil {
		return err
	}
	return put(f.Name(), path)
}

// asFolder gives a file of root to the owner of its folder: a service with its own user must be able to read what root
// makes for it.
func asFolder(f *os.File, dir string) error {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	if owner.Uid == 0 {
		return nil
	}
	return f.Chown(int(owner.Uid), int(owner.Gid))
}
