package offlimits

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A Thing is something of a list, where it really is.
type Thing struct {
	Path    string // without links
	Folder  bool
	missing string // what of the path is not there
}

// Find finds a thing of a list. It need not be there.
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

// Missing reports whether it is not there.
func (t Thing) Missing() bool { return t.missing != "" }

// Make makes an empty file or folder where the thing is missing, so that it can be covered: nothing can be put in front
// of what is not there, and a tool that may write the folder could make it first. Nobody takes an empty one for more
// than a missing one. It reports whether there is something now; where we cannot make it, a tool, which has no more
// rights than we, cannot either.
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
			err = unix.Mknodat(at.Fd(), name, unix.S_IFREG|mode&0o666, 0)
		}
		switch {
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
			return false, nil
		case err != nil && !errors.Is(err, unix.EEXIST): // somebody else was faster; whether it is a link is seen below
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
