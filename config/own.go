package config

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"toolpost/kernel"
	"toolpost/tool"
)

// maxOwn is the maximum size of a file to be changed: some programs keep their history beside their settings.
const maxOwn = 32 << 20

// An Own is a settings file of this program's user, for this or another program, that is about to be changed. It holds
// its folder open, so that no rename can redirect a change.
type Own struct {
	Path string      // its real path; links on the way were followed
	Text []byte      // nil if the file does not exist
	Mode fs.FileMode // its permissions

	root    *os.Root // the nearest existing folder
	name    string   // in root
	missing string   // the folders between the two; empty if none
	seen    fs.FileInfo
}

// OpenOwn reads a file, which need not exist. It refuses a file that belongs to another user, or that is reached
// through a folder or a link of another user: that user would decide what is written, and where. Unlike for
// LoadTrusted, a group may have write access on the way: many systems give each user a group of their own.
func OpenOwn(path string) (*Own, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, ownError(path, err)
	}
	w := &walk{path: path, user: os.Geteuid(), left: names(abs), group: true}
	defer func() { w.back(0) }()
	if err := w.enter(unix.AT_FDCWD, "/", "/"); err != nil {
		return nil, err
	}
	o := &Own{Mode: 0o600}
	f, rest, err := w.toFile()
	if why, ok := errors.AsType[unix.Errno](err); ok {
		return nil, ownError(path, why)
	} else if err != nil {
		return nil, err
	}
	at := w.above[len(w.above)-1]
	o.Path = filepath.Join(append([]string{at.path}, rest...)...)
	o.name, o.missing = filepath.Join(rest...), filepath.Join(rest[:len(rest)-1]...)
	again, err := kernel.Again(at.fd)
	if err == nil {
		o.root, err = os.OpenRoot(again)
	}
	if err != nil {
		return nil, ownError(path, err)
	}
	if f == nil {
		return o, nil
	}
	defer f.Close()
	if err := o.read(f); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// toFile walks to the end; rest are the names below the last existing folder. It returns no file if there is none.
func (w *walk) toFile() (f *os.File, rest []string, err error) {
	for len(w.left) > 0 {
		rest = slices.Clone(w.left)
		f, err = w.next()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, rest, nil
		case err != nil || f != nil:
			return f, rest, err
		}
	}
	return nil, nil, tool.Errorf(tool.CodeInvalidInput, "%s is a folder; name a file", w.path)
}

func ownError(path string, err error) error {
	if why, ok := errors.AsType[*fs.PathError](err); ok {
		err = why.Err
	}
	return tool.Errorf(tool.CodeUnavailable, "%s cannot be changed: %w", path, err)
}

func (o *Own) read(f *os.File) (err error) {
	if o.seen, err = f.Stat(); err != nil {
		return ownError(o.Path, err)
	}
	o.Mode = o.seen.Mode().Perm()
	var info unix.Stat_t
	switch err := unix.Fstat(int(f.Fd()), &info); {
	case err != nil:
		return ownError(o.Path, err)
	case !o.seen.Mode().IsRegular():
		return tool.Errorf(tool.CodeInvalidInput, "%s is not a regular file", o.Path)
	case int(info.Uid) != os.Geteuid():
		return tool.Errorf(tool.CodeAccessDenied, "%s belongs to user %d and not to user %d, who runs this program; run it "+
			"as that user", o.Path, info.Uid, os.Geteuid())
	}
	if o.Text, err = io.ReadAll(io.LimitReader(f, maxOwn+1)); err != nil {
		return ownError(o.Path, err)
	}
	if len(o.Text) > maxOwn {
		return tool.Errorf(tool.CodeInvalidInput, "%s is larger than %d bytes", o.Path, maxOwn)
	}
	if o.Text == nil {
		o.Text = []byte{}
	}
	return nil
}

// Close closes the folder.
func (o *Own) Close() { _ = o.root.Close() }

// There reports whether the file exists.
func (o *Own) There() bool { return o.Text != nil }

// Replace replaces the file, with these permissions, atomically: a reader sees all of the old text or all of the new.
// It writes nothing if another program has changed the file since it was read, nor if its owner has made it read-only,
// though a rename would not check that.
func (o *Own) Replace(text []byte, mode fs.FileMode) error {
	if o.There() && o.Mode&0o200 == 0 {
		return tool.Errorf(tool.CodeAccessDenied, "%s is read-only; to have it changed, run chmod u+w on it", o.Path)
	}
	if o.missing != "" {
		if err := o.root.MkdirAll(o.missing, 0o700); err != nil {
			return ownError(o.Path, err)
		}
	}
	half := o.name + ".toolpost-" + rand.Text()[:8]
	if err := o.fill(half, text, mode); err != nil {
		_ = o.root.Remove(half)
		return ownError(o.Path, err)
	}
	err := o.unchanged()
	if err == nil {
		err = o.root.Rename(half, o.name)
	}
	if err != nil {
		_ = o.root.Remove(half)
		return ownError(o.Path, err)
	}
	o.Text, o.Mode = slices.Clip(text), mode
	o.seen, err = o.root.Lstat(o.name)
	return err
}

func (o *Own) fill(name string, text []byte, mode fs.FileMode) error {
	f, err := o.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if o.seen != nil { // a service reads its config by its group
		err = f.Chown(-1, int(o.seen.Sys().(*syscall.Stat_t).Gid))
	}
	_, bad := f.Write(text)
	return errors.Join(err, bad, f.Chmod(mode), f.Sync(), f.Close())
}

// unchanged returns an error if another program has written the file since it was read.
func (o *Own) unchanged() error {
	now, err := o.root.Lstat(o.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if o.seen == nil {
			return nil
		}
	case err != nil:
		return err
	case o.seen != nil && os.SameFile(o.seen, now) && o.seen.Size() == now.Size() && o.seen.ModTime().Equal(now.ModTime()):
		return nil
	}
	return errors.New("another program has changed it meanwhile; try again")
}

// Remove deletes the file, unless another program has changed it since it was read.
func (o *Own) Remove() error {
	err := o.unchanged()
	if err == nil {
		err = o.root.Remove(o.name)
	}
	if err != nil {
		return ownError(o.Path, err)
	}
	o.Text, o.seen = nil, nil
	return nil
}

// Sibling opens another file of the same folder. It does not follow a link there: the user did not choose its name.
func (o *Own) Sibling(name string) (*Own, error) {
	root, err := o.root.OpenRoot(".")
	if err != nil {
		return nil, ownError(o.Path, err)
	}
	b := &Own{
		Path: filepath.Join(filepath.Dir(o.Path), name), Mode: 0o600,
		root: root, name: filepath.Join(o.missing, name), missing: o.missing,
	}
	f, err := root.OpenFile(b.name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		defer f.Close()
		err = b.read(f)
	}
	here, lerr := root.Lstat(b.name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.Is(lerr, fs.ErrNotExist):
		return b, nil
	case lerr == nil && here.Mode().Type() == fs.ModeSymlink, err == nil && !os.SameFile(here, b.seen):
		err = errors.New("it is a link; remove it")
	}
	if err != nil {
		b.Close()
		return nil, ownError(b.Path, err)
	}
	return b, nil
}
