package workspace

import (
	"errors"
	"io/fs"
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
	*root
	Rel   string // below the root, clean; "." is the root itself
	Shown string // as the caller wrote it
}

// Abs is the absolute path.
func (p Place) Abs() string { return filepath.Join(p.Dir, p.Rel) }

// LocateAll says every place where a path may be: a relative one in each root, in the order of the config. It touches
// no disk.
func (v *View) LocateAll(path string) ([]Place, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	clean := filepath.Clean(path)
	found := make([]Place, 0, len(v.roots))
	for _, r := range v.roots {
		if rel, ok := r.locate(clean); ok {
			found = append(found, Place{r, rel, path})
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

// first gives what try finds in the first root that has it.
func first[T any](v *View, path string, try func(Place) (*T, error)) (*T, error) {
	places, err := v.LocateAll(path)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		found, err := try(p)
		if err == nil {
			return found, nil
		}
		if tool.CodeOf(err) != tool.CodeNotFound {
			return nil, err
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "%s: no such file in the offered folders (%s)", path, v.names())
}

// locate returns where a clean path is in the root: a relative one as it is, an absolute one when it lies
// below the root by its letters.
func (r *root) locate(path string) (rel string, ok bool) {
	if !filepath.IsAbs(path) {
		return path, filepath.IsLocal(path)
	}
	if rel, ok = below(r.abs, path); !ok {
		rel, ok = below(r.Dir, path)
	}
	return rel, ok
}

// ForPrograms reports whether a program that is started may have a file, by where that really is. It sees no more than
// its walls let it; this says why.
func (v *View) ForPrograms(shown, real string, write bool) error {
	ban := v.ws.book.At(real)
	if ban == offlimits.Free || ban == offlimits.Fixed && !write {
		return nil
	}
	return offLimitsError(shown, ban)
}

// below returns what of a clean absolute path comes after a folder.
func below(dir, path string) (rel string, ok bool) {
	if path == dir {
		return ".", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func (v *View) names() string {
	return join(v.roots, func(r *root) string { return r.Name })
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
	errno, ok := errors.AsType[unix.Errno](err)
	switch {
	case !ok:
		return denied(shown, "it leads outside the offered folders") // os.Root's own refusal carries no errno
	case errors.Is(err, fs.ErrNotExist), errno == unix.ENOTDIR:
		return tool.Errorf(tool.CodeNotFound, "%s: no such file", shown)
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
