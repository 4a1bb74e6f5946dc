package workspace

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
	"toolpost/kernel"
	"toolpost/tool"
)

// A spot is a name in an open folder. Creating, replacing, moving and removing use that name, so no link can come in
// between.
type spot struct {
	Place
	dir  *File
	name string
	was  unix.Stat_t // what existing found at this name
}

func (s *spot) close() { s.dir.Close() }

func (s *spot) abs() string { return path.Join(s.dir.abs, s.name) }

// stat describes what is at the spot; it does not follow a link.
func (s *spot) stat() (unix.Stat_t, error) {
	st, err := statAt(s.dir.fd, s.name)
	if err != nil {
		err = explain(s.Shown, err)
	}
	return st, err
}

// spotAt opens the folder of a place and checks policy for its name there.
func (v *View) spotAt(p Place, write bool) (*spot, error) {
	if p.Rel == "." {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is an offered folder itself; name something in it",
			p.Shown).Because("folder")
	}
	if v.ws.sensitive.path(p.Rel) {
		return nil, deniedSensitive(p.Shown)
	}
	dir, err := v.ws.openFile(Place{p.root, path.Dir(p.Rel), p.Shown}, readFlags|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	s := &spot{Place: p, dir: dir, name: path.Base(p.Rel)}
	err = v.allowed(s.abs(), p.Shown, write)
	ban := max(v.ws.checker.At(s.abs()), dir.ban())
	if err == nil && (ban == offlimits.Secret || write && ban != offlimits.Free) {
		err = offLimitsError(p.Shown, ban)
	}
	if err == nil && write {
		err = v.checkCodeFolder(p.Shown, s.abs())
	}
	if err == nil && write && InGit(s.root.Dir, s.abs()) {
		err = denied(p.Shown, "what is in .git decides which programs git runs; change it with git").Because("git")
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// InGit reports whether a real path below a root is git's own folder, or in it. Such a folder may have another name: a file
// .git names it (gitdir:), or it is a bare repository. So it is also known by what is in it.
func InGit(root, real string) bool {
	for real != root && offlimits.Within(real, root) {
		if IsGit(path.Base(real), func(name string) bool { return unix.Access(path.Join(real, name), unix.F_OK) == nil }) {
			return true
		}
		real = path.Dir(real)
	}
	return false
}

// IsGit reports whether a file or folder is git's own, by its name and by the names in it.
func IsGit(name string, has func(string) bool) bool {
	return fold(name) == ".git" || has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// existing finds what is at a path, in the first root that has it; it does not follow a link.
func (v *View) existing(path string, write bool) (*spot, error) {
	return first(v, path, func(p Place) (*spot, error) {
		s, err := v.spotAt(p, write)
		if err != nil {
			return nil, err
		}
		if s.was, err = s.stat(); err != nil {
			s.close()
		}
		return s, err
	})
}

// changeable is existing for changes: the path must be below a writable root.
func (v *View) changeable(path string) (*spot, error) {
	s, err := v.existing(path, true)
	if err != nil {
		return nil, err
	}
	if err = s.keeps(); !s.Write {
		err = readOnly(s.Place)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// keeps refuses to move, remove or replace a folder that contains something off limits, or would contain it, and one
// that the config names as a root.
func (s *spot) keeps() error {
	switch {
	case s.checker.Inside(s.abs()) != offlimits.Free:
		return denied(s.Shown, "something lies in it, or is to, that belongs to this installation or that the config "+
			"starts from").Because("off_limits")
	case s.checker.HoldsRoot(s.abs()):
		return denied(s.Shown, "the config gives it, or a folder in it, to tools").Because("off_limits")
	}
	return nil
}

// target returns the place at which a path is written: its existing one, else in the first writable root, preferring a
// root that has its folder.
func (v *View) target(path string) (Place, error) {
	places, err := v.LocateAll(path)
	if err != nil {
		return Place{}, err
	}
	best, rank := places[0], -1
	for _, p := range places {
		r := 0
		if s, err := v.spotAt(p, true); err == nil {
			if _, err := s.stat(); err == nil {
				s.close()
				best = p
				break
			}
			s.close()
			r = 1
		} else if tool.CodeOf(err) != tool.CodeNotFound {
			return Place{}, err
		}
		if p.Write && r > rank {
			best, rank = p, r
		}
	}
	if !best.Write {
		return Place{}, readOnly(best)
	}
	return best, nil
}

func readOnly(p Place) error {
	return denied(p.Shown, "the folder "+p.Name+
		" is offered read-only; `write: true` of the root lets tools write there").Because("read_only")
}

// newSpot opens the spot at which a path is to be written, and makes the folders that lead to it.
func (v *View) newSpot(path string) (*spot, error) {
	p, err := v.target(path)
	if err != nil {
		return nil, err
	}
	return v.makeSpot(p)
}

func (v *View) makeSpot(p Place) (*spot, error) {
	s, err := v.spotAt(p, true)
	if tool.CodeOf(err) != tool.CodeNotFound {
		return s, err
	}
	if _, err := v.makeFolder(Place{p.root, path.Dir(p.Rel), p.Shown}); err != nil {
		return nil, err
	}
	return v.spotAt(p, true)
}

// Mkdir makes a folder and its missing parents. It reports whether the folder was missing.
func (v *View) Mkdir(path string) (made bool, err error) {
	if f, err := v.OpenDir(path); err == nil {
		return false, f.Close()
	}
	p, err := v.target(path)
	if err != nil {
		return false, err
	}
	return v.makeFolder(p)
}

func (v *View) makeFolder(p Place) (made bool, err error) {
	s, err := v.makeSpot(p)
	if err != nil {
		return false, err
	}
	defer s.close()
	switch err := retry(func() error { return unix.Mkdirat(s.dir.fd, s.name, 0o755) }); {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrExist):
		return false, explain(p.Shown, err)
	}
	f, err := v.ws.openFile(p, readFlags|unix.O_DIRECTORY)
	if tool.CodeOf(err) == tool.CodeNotFound { // also if it is not a folder
		return false, tool.Errorf(tool.CodeConflict, "%s: %s is in the way and is not a folder", p.Shown,
			s.name).Because("exists")
	}
	if err != nil {
		return false, err
	}
	return false, f.Close()
}

// Stat describes what is at a path; it does not follow a link.
func (v *View) Stat(path string) (fs.FileInfo, error) {
	places, err := v.LocateAll(path)
	if err != nil {
		return nil, err
	}
	if places[0].Rel == "." {
		f, err := v.OpenDir(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return f.Info(), nil
	}
	s, err := v.existing(path, false)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return fileInfo{s.name, s.was}, nil
}

// Remove removes a file, a link (never its target) or an empty folder.
func (v *View) Remove(path string) error {
	s, err := v.changeable(path)
	if err != nil {
		return err
	}
	defer s.close()
	flags := 0
	switch typeOf(s.was.Mode) {
	case fs.ModeDir:
		flags = unix.AT_REMOVEDIR
	case fs.ModeIrregular:
		return notRegular(path)
	}
	err = retry(func() error { return unix.Unlinkat(s.dir.fd, s.name, flags) })
	if errors.Is(err, unix.ENOTEMPTY) {
		return tool.Errorf(tool.CodeConflict, "%s is a folder with something in it; delete that first",
			path).Because("not_empty")
	}
	if err != nil {
		return explain(path, err)
	}
	return nil
}

// Rename moves a file, a link or a folder, and makes the folders that lead to its new place. An existing file there is
// replaced only if overwrite is set, and a link never.
func (v *View) Rename(ctx context.Context, from, to string, overwrite bool) error {
	src, err := v.changeable(from)
	if err != nil {
		return err
	}
	defer src.close()
	if typeOf(src.was.Mode) == fs.ModeIrregular {
		return notRegular(from)
	}
	dst, err := v.newSpot(to)
	if err != nil {
		return err
	}
	defer dst.close()
	if strings.HasPrefix(dst.abs()+"/", src.abs()+"/") {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be moved to %s, which is the same or within it", from, to)
	}
	if err := cmp.Or(dst.keeps(), dst.checkFree(overwrite)); err != nil {
		return err
	}
	if err := v.mayMove(ctx, src, dst); err != nil {
		return err
	}
	return rename(src.dir.fd, src.name, dst, overwrite)
}

// checkFree returns an error if the spot must not be taken.
func (s *spot) checkFree(overwrite bool) error {
	st, err := s.stat()
	switch {
	case tool.CodeOf(err) == tool.CodeNotFound:
		return nil
	case err != nil:
		return err
	case typeOf(st.Mode) == fs.ModeSymlink:
		return isLink(s.Shown)
	case typeOf(st.Mode) == fs.ModeIrregular:
		return notRegular(s.Shown)
	case !overwrite:
		return exists(s.Shown)
	}
	return nil
}

func isLink(shown string) *tool.Error {
	return denied(shown, "it is a symbolic link; name the file that it leads to").Because("symlink")
}

func exists(shown string) *tool.Error {
	return tool.Errorf(tool.CodeConflict, "%s exists already", shown).Because("exists")
}

// mayMove checks policy for everything that is moved, by its old and its new name: a file that may not be read or written
// under one name must not become readable or writable under another.
func (v *View) mayMove(ctx context.Context, src, dst *spot) error {
	if v.scope == nil {
		return nil
	}
	if err := v.allowed(src.abs(), src.Shown, false); err != nil || typeOf(src.was.Mode) != fs.ModeDir {
		return err
	}
	all := &View{ws: v.ws, roots: []*root{src.root}} // the scope's view would leave out what it denies
	return all.Walk(ctx, src.abs(), WalkOptions{Recursive: true, Hidden: true, MaxEntries: 1_000_000},
		func(e *Entry) error {
			if err := errors.Join(v.allowed(e.Abs(), src.Shown, false),
				v.allowed(e.Abs(), src.Shown, true)); err != nil {
				return err
			}
			return v.allowed(path.Join(dst.abs(), e.Below()), dst.Shown, true)
		})
}

// rename moves a name of an open folder to a spot.
func rename(dir int, name string, to *spot, overwrite bool) error {
	err := retry(func() error { return kernel.Rename(dir, name, to.dir.fd, to.name, overwrite) })
	if err == unix.EINVAL && !overwrite { // a file system that cannot rename without replacing
		if err = unix.Linkat(dir, name, to.dir.fd, to.name, 0); err == nil {
			err = unix.Unlinkat(dir, name, 0)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST):
		return exists(to.Shown)
	case errors.Is(err, unix.EXDEV):
		return tool.Errorf(tool.CodeUnsupported, "%s is on another file system; read, write and delete instead",
			to.Shown)
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENOTEMPTY):
		return tool.Errorf(tool.CodeConflict, "%s: %w; move it away first", to.Shown, err)
	}
	return explain(to.Shown, err)
}
