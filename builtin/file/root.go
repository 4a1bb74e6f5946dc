package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"toolpost/tool"
)

// A root is an open folder. Whatever happens to its name, dir stays this folder.
type root struct {
	dir  *os.Root
	name string // as the config has it, for messages
	abs  string // where the config says it is
	real string // where it really is, links resolved
}

func openRoot(base, name string) (*root, error) {
	if name == "" {
		name = "."
	}
	abs := name
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(base, name)
	}
	dir, err := os.OpenRoot(abs + "/") // the slash: a FIFO in its place is an error, not a wait
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "root %s: %w; make the folder or correct the root's path", name, unwrapPath(err))
	}
	real, err := realPathOfRoot(dir)
	if err != nil {
		dir.Close()
		return nil, tool.Errorf(tool.CodeUnavailable, "root %s: %w", name, err)
	}
	return &root{dir: dir, name: name, abs: filepath.Clean(abs), real: real}, nil
}

func realPathOfRoot(dir *os.Root) (string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return "", err
	}
	defer f.Close()
	return realPath(f)
}

// realPath asks the kernel where an open file is. Asking before the open could be answered for another
// file than the one that is opened.
func realPath(f *os.File) (string, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	var path string
	ctlErr := conn.Control(func(fd uintptr) {
		path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	})
	return path, errors.Join(ctlErr, err)
}

// locate gives where a clean path is in the root: a relative one as it is, an absolute one when it lies
// below the root by its letters.
func (r *root) locate(path string) (rel string, ok bool) {
	if !filepath.IsAbs(path) {
		return path, filepath.IsLocal(path)
	}
	for _, base := range []string{r.abs, r.real} {
		if rel, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
			return rel, true
		}
	}
	return "", false
}

// A place is a path within a root.
type place struct {
	root *root
	rel  string
}

// places gives where path may be, in the order of the config.
func (r *Runner) places(path string) ([]place, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	clean := filepath.Clean(path)
	var found []place
	for _, root := range r.roots {
		if rel, ok := root.locate(clean); ok {
			found = append(found, place{root, rel})
		}
	}
	if len(found) == 0 {
		return nil, denied(path, "it is outside the offered folders ("+r.rootNames()+")")
	}
	return found, nil
}

// open opens path for reading, in the first root that has it.
func (r *Runner) open(path string) (*os.File, place, error) {
	places, err := r.places(path)
	if err != nil {
		return nil, place{}, err
	}
	for _, p := range places {
		f, err := p.open(path, 0)
		if tool.CodeOf(err) == tool.CodeNotFound {
			continue
		}
		return f, p, err
	}
	return nil, place{}, tool.Errorf(tool.CodeNotFound, "%s: no such file in the offered folders (%s)", path, r.rootNames())
}

// open opens the place; shown is its name for messages. It never waits: not for the writer of a FIFO
// (O_NONBLOCK), and it never makes a terminal ours.
func (p place) open(shown string, flags int) (*os.File, error) {
	if sensitivePath(p.rel) {
		return nil, deniedSensitive(shown)
	}
	f, err := p.root.dir.OpenFile(p.rel, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|flags, 0)
	if err != nil {
		return nil, explain(shown, err)
	}
	if err := p.checkOpened(f, shown); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkOpened looks at the name of what was really opened: a link with a harmless name may lead to a
// file with a sensitive one.
func (p place) checkOpened(f *os.File, shown string) error {
	real, err := realPath(f)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "%s: cannot tell which file it is: %w; is /proc mounted?", shown, err)
	}
	if rel, err := filepath.Rel(p.root.real, real); err == nil && filepath.IsLocal(rel) {
		real = rel
	}
	if sensitivePath(strings.TrimSuffix(real, " (deleted)")) { // the kernel's mark on a name that is gone
		return deniedSensitive(shown)
	}
	return nil
}

func (r *Runner) rootNames() string {
	names := make([]string, len(r.roots))
	for i, root := range r.roots {
		names[i] = root.name
	}
	return strings.Join(names, ", ")
}

const maxPath = 4096 // Linux's own limit

func checkPath(path string) error {
	switch {
	case path == "":
		return tool.Errorf(tool.CodeInvalidInput, "path is empty; name a file or a folder")
	case len(path) > maxPath:
		return tool.Errorf(tool.CodeInvalidInput, "path has %d bytes; at most %d make sense", len(path), maxPath)
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return tool.Errorf(tool.CodeInvalidInput, "path %q contains a control character or is not UTF-8", path)
	}
	return nil
}

// explain puts the error of an open into our words, with the path as the caller wrote it.
func explain(shown string, err error) error {
	var errno syscall.Errno
	switch {
	case !errors.As(err, &errno):
		return denied(shown, "it leads outside the offered folders") // os.Root's own refusal carries no errno
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return tool.Errorf(tool.CodeNotFound, "%s: no such file", shown)
	case errors.Is(err, fs.ErrPermission):
		return denied(shown, "the operating system forbids it")
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		return notRegular(shown)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return tool.Errorf(tool.CodeInvalidInput, "%s: the name is too long", shown)
	case errors.Is(err, syscall.ELOOP):
		return tool.Errorf(tool.CodeInvalidInput, "%s: too many symbolic links", shown)
	}
	return tool.Errorf(tool.CodeInternal, "%s: %w", shown, errno)
}

func denied(shown, why string) *tool.Error {
	return tool.Errorf(tool.CodeAccessDenied, "%s is not allowed: %s", shown, why)
}

func deniedSensitive(shown string) *tool.Error {
	return denied(shown, "files with such names hold secrets").Because("sensitive")
}

func notRegular(shown string) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "%s is not a regular file but a device, pipe or socket", shown)
}

func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
