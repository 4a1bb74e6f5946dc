package code

import (
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

// index gives the trigram index of a codebase; nil: it is searched without one. So is a folder that was deleted and made
// again: the index knows the old one, and calls may still be using it.
func (t *Tools) index(c *tool.Call, r workspace.Root) *trigram.Index {
	if t.o.Index.Off || t.stateDir == "" {
		return nil
	}
	t.indexes.mu.Lock()
	defer t.indexes.mu.Unlock()
	if x, ok := t.indexes.open[r.Codebase]; ok {
		if x.of != r.ID {
			return nil
		}
		return x.Index
	}
	var x *trigram.Index
	view, err := t.unscoped(c, r)
	if err == nil {
		x, err = trigram.Open(t.stateOf(r, "trigram"), view, trigram.Options{
			MaxFiles: t.o.Index.MaxFiles, MaxBytes: t.o.Index.MaxBytes, MaxFile: t.o.MaxFile, Log: t.log,
		})
	}
	if err != nil {
		t.log.Info("a codebase is searched without an index", "codebase", r.Codebase, "why", err)
	}
	if t.indexes.open == nil {
		t.indexes.open = map[string]*indexed{}
	}
	t.indexes.open[r.Codebase] = &indexed{x, r.ID}
	return x
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
	x.open = nil
	return errors.Join(errs...)
}
