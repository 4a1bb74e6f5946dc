package shell

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config/offlimits"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// A place is what a call may reach: its caller's view of the workspace, less what policy takes away.
//
// The check covers what a path leads to now. A program opens it later by itself, and another process may have put a link in
// its place meanwhile: only the kernel's walls help against that.
type place struct {
	ctx   context.Context
	view  *workspace.View
	scope tool.Scope

	anywhere bool // the caller did not name a start folder
}

// check returns why a path may not be read, or written; shown is the path as the caller wrote it.
func (p place) check(shown, abs string, write bool) error {
	real, err := p.resolve(abs)
	if err != nil {
		return say(shown, abs, err)
	}
	if write {
		return say(shown, abs, p.mayWrite(shown, real))
	}
	if err := p.view.ForPrograms(shown, real, write); err != nil {
		return err
	}
	if p.scope != nil {
		return say(shown, abs, p.scope.Path(real, false))
	}
	return nil
}

// mayWrite returns why a file may not be written, by its resolved path. The content of .git decides which programs git runs,
// so it is closed here as it is to the file tools; git itself is not given paths in it.
func (p place) mayWrite(shown, real string) error {
	switch root := p.innermost(real); {
	case !root.Write:
		return tool.Errorf(tool.CodeAccessDenied,
			"%s is not allowed: it is below a folder that is only offered for reading; `write: true` of the root lets "+
				"commands write there", shown)
	case workspace.InGit(root.Dir, real):
		return tool.Errorf(tool.CodeAccessDenied,
			"%s is not allowed: what is in .git decides which programs git runs; change it with git", shown).Because("git")
	case p.scope != nil:
		return p.scope.Path(real, true)
	}
	return nil
}

// resolve returns the file that a path leads to, or would lead to if it existed.
func (p place) resolve(abs string) (string, error) {
	f, err := p.view.Open(abs)
	if tool.CodeOf(err) == tool.CodeInvalidInput {
		f, err = p.view.OpenDir(abs)
	}
	if err == nil {
		defer f.Close()
		return f.Abs(), nil
	}
	if tool.CodeOf(err) != tool.CodeNotFound {
		return "", err
	}
	if info, lerr := os.Lstat(abs); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", tool.Errorf(tool.CodeAccessDenied, "%s is not allowed: it is a link to something that is not there", abs)
	}
	if _, err := p.view.LocateAll(filepath.Dir(abs)); err != nil {
		return "", err
	}
	parent, err := p.resolve(filepath.Dir(abs))
	return filepath.Join(parent, filepath.Base(abs)), err
}

// isRoot reports whether an absolute path is one of the roots itself.
func (p place) isRoot(abs string) bool {
	real, err := p.resolve(abs)
	return err == nil && slices.ContainsFunc(p.view.Roots(), func(r workspace.Root) bool {
		return offlimits.Within(r.Dir, real) // a folder around a root counts too
	})
}

// innermost returns the innermost root that contains a file.
func (p place) innermost(real string) workspace.Root {
	var innermost workspace.Root
	for _, r := range p.view.Roots() {
		if offlimits.Within(real, r.Dir) && len(r.Dir) > len(innermost.Dir) {
			innermost = r
		}
	}
	return innermost
}

// say rewords an error of the workspace with the path as the caller wrote it.
func say(shown, abs string, err error) error {
	if err == nil {
		return nil
	}
	e := *tool.AsError(err)
	if rest, ok := strings.CutPrefix(e.Message, abs); ok {
		e.Message = shown + rest
	}
	return &e
}

// maxBelow is how many entries of a tree, or of an archive, are judged before a program may write them.
const maxBelow = 500_000
