package codesearch

import (
	"context"
	"errors"
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
