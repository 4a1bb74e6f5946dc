package codesearch

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"toolpost/codesearch/trigram"
	"toolpost/host/offlimits"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// indexes are the trigram indexes of the codebases that were searched, each opened when it is first asked for.
type indexes struct {
	mu   sync.Mutex
	open map[string]*indexed // by codebase
}

// An indexed is the index of a folder; nil: it has none.
type indexed struct {
	*trigram.Index
	of offlimits.ID
}

// index returns the trigram index of a codebase; nil: it is searched without one. So is a folder that was deleted and
// made again: the index knows the old one, and calls may still be using it.
func (l *Library) index(c *tool.Call, r workspace.Root) *trigram.Index {
	if l.o.Index.Off || l.stateDir == "" {
		return nil
	}
	l.indexes.mu.Lock()
	defer l.indexes.mu.Unlock()
	if x, ok := l.indexes.open[r.Codebase]; ok {
		if x.of != r.ID {
			return nil
		}
		return x.Index
	}
	var x *trigram.Index
	view, err := l.unscoped(c, r)
	if err == nil {
		x, err = trigram.Open(l.stateOf(r, "trigram"), view, trigram.Options{
			MaxFiles: l.o.Index.MaxFiles, MaxBytes: l.o.Index.MaxBytes, MaxFile: l.o.MaxFile, Log: l.log,
		})
	}
	if err != nil {
		l.log.Info("a codebase is searched without an index", "codebase", r.Codebase, "why", err)
	}
	l.indexes.open[r.Codebase] = &indexed{x, r.ID}
	return x
}

// Refresh brings the index of a codebase up to date now. Questions do that by themselves, in the background and once
// they were asked.
func (l *Library) Refresh(ctx context.Context, c *tool.Call, codebase string) error {
	view, err := l.ws.View(c).Codebase(codebase)
	if err != nil {
		return err
	}
	x := l.index(c, view.Roots()[0])
	if x == nil {
		return tool.Errorf(tool.CodeUnavailable, "codebase %s has no index", codebase)
	}
	return x.Refresh(ctx)
}

func (x *indexes) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, one := range x.open {
		if one.Index != nil {
			errs = append(errs, one.Close())
		}
	}
	clear(x.open)
	return errors.Join(errs...)
}

// A filter says of the paths that an index gives whether a walk of the same call would come to them.
type filter struct {
	start   int // how many bytes of a path lead to where the walk would start
	hidden  bool
	globs   *workspace.Globs
	root    string
	scope   tool.Scope
	folders map[string]bool // what was said about folders
}

func newFilter(r *asked, at target, g *workspace.Globs) filter {
	return filter{start: len(at.below()), globs: g, root: at.root.Dir, scope: r.call.Scope, folders: map[string]bool{}}
}

// wants asks about the file, and about each folder on the way to it.
func (f *filter) wants(rel string) bool {
	below := rel[f.start:]
	if !f.hidden && (below[0] == '.' || strings.Contains(below, "/.")) {
		return false
	}
	return f.globs.Want(below) && f.enters(path.Dir(rel))
}

// enters reports whether the walk would go down into a folder: one that the policy denies hides all that is in it,
// and so does one that a pattern leaves out.
func (f *filter) enters(folder string) bool {
	if folder == "." || len(folder) <= f.start {
		return true
	}
	ok, known := f.folders[folder]
	if !known {
		ok = f.enters(path.Dir(folder)) && !f.globs.LeaveOut(folder[f.start:]) &&
			(f.scope == nil || f.scope.Path(filepath.Join(f.root, folder), false) == nil)
		f.folders[folder] = ok
	}
	return ok
}
