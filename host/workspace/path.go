package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"toolpost/host/offlimits"
	"toolpost/tool"
)

// MaxPath is how many bytes a path may have: Linux's own limit.
const MaxPath = 4096

// A Place is a path within a root, by its letters alone: whether something is there, and whether a link leads
// elsewhere, is not known yet.
type Place struct {
	Root  Root
	Rel   string // below the root, clean; "." is the root itself
	Abs   string
	Shown string // as the caller wrote it
}

// A place is a Place on the way to being opened.
type place struct {
	*root
	rel, shown string
}

func (p place) path() string { return p.at(p.rel) }

// at returns the absolute path of what is rel below the root.
func (r *root) at(rel string) string { return filepath.Join(r.Dir, rel) }

// Locate says where a path is, in the first root that it may be in. It touches no disk.
func (v *View) Locate(path string) (Place, error) {
	all, err := v.LocateAll(path)
	if err != nil {
		return Place{}, err
	}
	return all[0], nil
}

// LocateAll says every place where a path may be: a relative one in each root, in the order of the config.
func (v *View) LocateAll(path string) ([]Place, error) {
	places, err := v.places(path)
	if err != nil {
		return nil, err
	}
	all := make([]Place, len(places))
	for i, p := range places {
		all[i] = Place{Root: p.Root, Rel: p.rel, Abs: p.path(), Shown: p.shown}
	}
	return all, nil
}

func (v *View) places(path string) ([]place, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	clean := filepath.Clean(path)
	found := make([]place, 0, len(v.roots))
	for _, r := range v.roots {
		if rel, ok := r.locate(clean); ok {
			found = append(found, place{r, rel, path})
		}
	}
	if len(found) == 0 {
		for _, b := range v.gone {
			if _, ok := b.locate(clean); ok {
				return nil, b.err
			}
		}
		return nil, denied(path, "it is outside the offered folders ("+v.names()+")")
	}
	return found, nil
}

// locate returns where a clean path is in the root: a relative one as it is, an absolute one when it lies
// below the root by its letters.
func (r *root) locate(path string) (rel string, ok bool) {
	if !filepath.IsAbs(path) {
		return path, filepath.IsLocal(path)
	}
	if rel, ok := below(r.abs, path); ok {
		return rel, true
	}
	return below(r.Dir, path)
}

// ForPrograms reports whether a program that is started may have a file, by where that really is. It sees no more than
// its walls let it; this says why.
func (v *View) ForPrograms(shown, real string, write bool) error {
	switch ban := v.ws.book.At(real); {
	case ban == offlimits.Secret, ban == offlimits.Config, write && ban != offlimits.Free:
		return offLimitsError(shown, ban)
	}
	return nil
}

// below returns what of a clean absolute path comes after a folder.
func below(dir, path string) (rel string, ok bool) {
	if path == dir {
		return ".", true
	}
	if dir != "/" {
		dir += "/"
	}
	rel, ok = strings.CutPrefix(path, dir)
	return rel, ok
}

func (v *View) names() string {
	names := make([]string, len(v.roots))
	for i, r := range v.roots {
		names[i] = r.Name
	}
	return strings.Join(names, ", ")
}

func checkPath(path string) error {
	switch {
	case path == "":
		return tool.Errorf(tool.CodeInvalidInput, "path is empty; name a file or a folder")
	case len(path) > MaxPath:
		return tool.Errorf(tool.CodeInvalidInput, "path has %d bytes; at most %d make sense", len(path), MaxPath)
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return tool.Errorf(tool.CodeInvalidInput, "path %q contains a control character or is not UTF-8", path)
	}
	return nil
}

// explain puts the error of a system call into our words, with the path as the caller wrote it.
func explain(shown string, err error) error {
	var errno unix.Errno
	switch {
	case !errors.As(err, &errno):
		return denied(shown, "it leads outside the offered folders") // os.Root's own refusal carries no errno
	case errors.Is(err, fs.ErrNotExist), errno == unix.ENOTDIR:
		return notFound(shown)
	case errors.Is(err, fs.ErrPermission), errno == unix.EROFS:
		return denied(shown, "the operating system forbids it: "+errno.Error())
	case errno == unix.ENXIO, errno == unix.ENODEV:
		return notRegular(shown)
	case errno == unix.ENAMETOOLONG:
		return tool.Errorf(tool.CodeInvalidInput, "%s: the name is too long", shown)
	case errno == unix.ELOOP:
		return tool.Errorf(tool.CodeInvalidInput, "%s: too many symbolic links", shown)
	case errno == unix.EINVAL: // a name that the file system does not take
		return tool.Errorf(tool.CodeInvalidInput, "%s: the file system does not take this name", shown)
	case errno == unix.EEXIST, errno == unix.ENOTEMPTY:
		return tool.Errorf(tool.CodeConflict, "%s: %w", shown, errno)
	}
	return tool.Errorf(tool.CodeInternal, "%s: %w", shown, errno)
}

func notFound(shown string) *tool.Error {
	return tool.Errorf(tool.CodeNotFound, "%s: no such file", shown)
}

func (v *View) notFoundAnywhere(shown string) *tool.Error {
	return tool.Errorf(tool.CodeNotFound, "%s: no such file in the offered folders (%s)", shown, v.names())
}

func denied(shown, why string) *tool.Error {
	return tool.Errorf(tool.CodeAccessDenied, "%s is not allowed: %s", shown, why)
}

func offLimitsError(shown string, ban offlimits.Ban) *tool.Error {
	why := "it is what the config runs, so no tool may change it; change it by hand"
	switch ban {
	case offlimits.Secret:
		why = "it is this installation's own: its state, its store, a key or a secret"
	case offlimits.Config:
		why = "it is the config of this installation; change it by hand"
	}
	return denied(shown, why).Because("off_limits")
}

func deniedSensitive(shown string) *tool.Error {
	return denied(shown, "files with such names hold secrets").Because("sensitive")
}

func notRegular(shown string) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "%s is not a regular file but a device, pipe or socket", shown)
}

// bare takes the path off an error of package os: ours name it as the caller wrote it.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}
