package workspace

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Closed lists what a started program must not read, or change, below the offered folders, by real paths. What is off limits
// for all is not in it.
type Closed struct {
	Hidden []string // may not be read; a folder stands for everything in it
	Fixed  []string // may be read, but not changed
	Git    []string // git's own folders, and files that take the place of one
}

// maxLookedAt is how many files and folders are looked at.
const maxLookedAt = 500_000

// Closed looks through a folder below a root. Inside of .git it lists nothing for git itself, which has a right to it; changes
// says whether Fixed is wanted.
func (v *View) Closed(ctx context.Context, real string, git, changes bool) (Closed, error) {
	places, err := v.LocateAll(real)
	if err != nil {
		return Closed{}, err
	}
	in := slices.MaxFunc(places, func(a, b Place) int { return len(a.Dir) - len(b.Dir) })
	fd, err := openNoLinks(in.fd, in.Rel, readFlags|unix.O_DIRECTORY)
	if err != nil {
		return Closed{}, nil //nolint:nilerr // it is gone, or no folder: there is nothing below it
	}
	o := WalkOptions{MaxEntries: maxLookedAt, MaxDepth: defaultMaxDepth}
	w := &walk{View: v, WalkOptions: o, root: in.root, shown: real, buf: make([]byte, 32<<10)}
	d := &folder{walk: w, fd: fd, abs: real, depth: 1}
	d.refs.Store(1)
	c := &closing{walk: w, git: git, changes: changes && in.Write}
	_, _, err = c.folder(ctx, d)
	return c.Closed, err
}

// A closing is the state of one search for what is closed.
type closing struct {
	*walk
	Closed
	git, changes bool
}

// folder looks through a folder, and reports whether it is hidden, or fixed, with everything in it: one entry stands for all.
func (c *closing) folder(ctx context.Context, d *folder) (hidden, fixed bool, err error) {
	defer d.release()
	items, err := c.list(ctx, d)
	if err != nil {
		return false, false, err
	}
	c.seen += len(items)
	isGit := d.depth > 1 && IsGit(filepath.Base(d.abs), func(name string) bool {
		return slices.ContainsFunc(items, func(it item) bool { return it.name == name })
	})
	if isGit {
		c.Git = append(c.Git, d.abs)
		if c.git && fold(filepath.Base(d.abs)) == ".git" { // a tool can make a folder that only looks like one
			return false, false, nil
		}
	}
	hides, fixes := len(c.Hidden), len(c.Fixed)
	hidden, fixed = c.denies(d.abs)
	for _, it := range items {
		h, f, err := c.item(ctx, d, it)
		if err != nil {
			return false, false, err
		}
		hidden, fixed = hidden && h, fixed && f
	}
	switch {
	case hidden:
		c.Hidden, c.Fixed = append(c.Hidden[:hides], d.abs), c.Fixed[:fixes]
	case isGit && !c.git: // it is closed as a whole
		c.Fixed = c.Fixed[:fixes]
	case fixed:
		c.Fixed = append(c.Fixed[:fixes], d.abs)
	}
	return hidden, fixed, nil
}

// item looks at something in a folder.
func (c *closing) item(ctx context.Context, d *folder, it item) (hidden, fixed bool, err error) {
	isDir := it.typ.IsDir()
	switch secret := c.ws.sensitive.name(it.name); {
	case it.typ == fs.ModeSymlink, // its target is found by itself
		secret && !isDir && strings.HasPrefix(it.name, TempPrefix): // it is gone in a moment
		return true, true, nil
	case secret:
		c.Hidden = append(c.Hidden, filepath.Join(d.abs, it.name))
		return true, true, nil
	case isDir:
		sub, err := c.enter(d, it.name)
		if err != nil || sub == nil {
			return true, true, err
		}
		return c.folder(ctx, sub)
	case strings.EqualFold(it.name, ".git"):
		c.Git = append(c.Git, filepath.Join(d.abs, it.name))
		return false, true, nil
	}
	abs := ""
	if c.scope != nil {
		abs = filepath.Join(d.abs, it.name)
	}
	switch hidden, fixed = c.denies(abs); {
	case hidden:
		c.Hidden = append(c.Hidden, abs)
	case fixed:
		c.Fixed = append(c.Fixed, abs)
	}
	return hidden, fixed, nil
}

// denies asks policy about a file or a folder.
func (c *closing) denies(abs string) (hidden, fixed bool) {
	if c.scope == nil {
		return false, false
	}
	hidden = c.scope.Path(abs, false) != nil
	return hidden, hidden || c.changes && c.scope.Path(abs, true) != nil
}
