package codesearch

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"toolpost/codesearch/trigram"
	"toolpost/config/offlimits"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// indexes are the trigram indexes of the codebases searched so far, each opened on first use.
type indexes struct {
	mu   sync.Mutex
	open map[string]*indexed // by codebase
}

// An indexed is the index of a folder; a nil Index means that it has none.
type indexed struct {
	*trigram.Index
	of offlimits.ID
}

// index returns the trigram index of a codebase, or nil if it is searched without one. A folder that was deleted and
// created again is searched without one: the index belongs to the old folder, and calls may still be using it.
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

// Refresh updates the index of a codebase now. Questions update it themselves, in the background after they were asked.
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

// A filter decides whether a walk of the same call would reach the paths that an index returns.
type filter struct {
	start   int // length of the path at which the walk would start
	hidden  bool
	globs   *workspace.Globs
	root    string
	scope   tool.Scope
	folders map[string]bool // decisions about folders
}

func newFilter(r *asked, at target, g *workspace.Globs) filter {
	return filter{start: len(at.below()), globs: g, root: at.root.Dir, scope: r.call.Scope, folders: map[string]bool{}}
}

// wants checks the file, and each folder on the way to it.
func (f *filter) wants(rel string) bool {
	below := rel[f.start:]
	if !f.hidden && (below[0] == '.' || strings.Contains(below, "/.")) {
		return false
	}
	return f.globs.Want(below) && f.enters(path.Dir(rel))
}

// enters reports whether the walk would enter a folder. A folder that the policy denies, or that a pattern excludes,
// hides all its contents.
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
