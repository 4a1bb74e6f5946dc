package trigram

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"toolpost/codesearch/grep"
	"toolpost/host/workspace"
	"toolpost/kernel"
	"toolpost/tool"
)

// A Selection is the files that have to be searched, and why.
type Selection struct {
	Picks      []Pick // sorted by path
	Candidates int    // how many of them may match according to the index
	Changed    int    // how many of them changed since they were indexed
}

// A Pick is a file that has to be searched.
type Pick struct {
	Path  string // below the root
	stamp uint64
	parts []grep.Part
}

// Parts returns the parts of an open file that have to be searched, or nil for the whole file, such as one that has
// changed since it was indexed.
func (p *Pick) Parts(f *workspace.File) []grep.Part {
	if p.parts == nil || stampOf(f.Stamp()) != p.stamp {
		return nil
	}
	return p.parts
}

// Select returns the files below a folder ("" is the root) that may satisfy the need in the current state of the tree,
// including hidden files but not ignored ones. ErrNotReady means that the tree has to be walked instead.
func (x *Index) Select(ctx context.Context, folder string, n grep.Need) (Selection, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.asked.Do(x.Changed) // the first time it may be out of date, and nothing is watched yet
	s := x.snap
	if s == nil || n.None() {
		return Selection{}, ErrNotReady
	}
	if i, ok := s.lookup(folder); !ok || s.known[i].kind != kindFolder || !x.isHere(folder) {
		return Selection{}, ErrNotReady // ignored, new, or a link now
	}
	wanted, err := s.find(n)
	if err != nil {
		x.damaged(err)
		return Selection{}, ErrNotReady
	}
	c := &check{
		x: x, s: s, folder: folder, wanted: wanted, changed: map[int]bool{}, add: map[string]bool{},
		seen: map[string]bool{},
	}
	if err := c.run(ctx); err != nil {
		return Selection{}, err
	}
	if c.found() {
		x.Changed()
	}
	sel := c.selection()
	if slices.ContainsFunc(sel.Picks, func(p Pick) bool { return odd(p.Path) }) {
		return Selection{}, ErrNotReady
	}
	return sel, nil
}

// isHere reports whether a folder is really at its path, with no link on the way that leads elsewhere.
func (x *Index) isHere(folder string) bool {
	f, err := x.view.OpenDir(cmp.Or(folder, "."))
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Abs() == filepath.Join(x.root.Abs(), folder)
}

// odd reports whether a path cannot be written down, so that only a walk reaches it.
func odd(path string) bool {
	return !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl)
}

// find returns, by place, the parts of the files that may satisfy the need: nil means none, and an empty list the whole
// file.
func (s *snapshot) find(n grep.Need) (wanted [][]grep.Part, err error) {
	wanted = make([][]grep.Part, len(s.known))
	for i, seg := range s.segs {
		h, err := seg.find(n)
		if err != nil {
			return nil, err
		}
		add := func(at part) {
			if p := s.place[i][at.file]; p >= 0 {
				wanted[p] = appendPart(wanted[p], at)
			}
		}
		for _, id := range h.ids {
			add(seg.parts[id])
		}
		for n := 0; h.all && n < len(seg.parts); n++ {
			add(seg.parts[n])
		}
	}
	for i := range s.known {
		if s.known[i].kind == kindOther {
			wanted[i] = []grep.Part{}
		}
	}
	return wanted, nil
}

// appendPart adds a block to the parts of its file. A block that follows the last part extends it.
func appendPart(parts []grep.Part, b part) []grep.Part {
	if n := len(parts); n > 0 && parts[n-1].Offset+parts[n-1].Size == int(b.offset) {
		parts[n-1].Size += int(b.size)
		return parts
	}
	return append(parts, grep.Part{Offset: int(b.offset), Size: int(b.size), Line: int(b.line)})
}

// A check compares the index's knowledge of a folder with the tree.
type check struct {
	x      *Index
	s      *snapshot
	folder string
	wanted [][]grep.Part // by place

	mu      sync.Mutex
	changed map[int]bool // places of files with another stamp
	listed  []string     // folders with another stamp
	rules   []string     // folders with other rules

	add    map[string]bool // files that the index does not know
	walked []string        // folders that were walked as a whole: they contain exactly what the walk found
	seen   map[string]bool // files found by a walk
}

func (c *check) run(ctx context.Context) error {
	c.above()
	if err := c.compare(ctx); err != nil {
		return err
	}
	for _, folder := range c.listed {
		if i, ok := c.s.lookup(rulesPath(folder)); !ok || c.s.known[i].kind != kindRules {
			if stamp, _ := c.x.rulesStamp(folder); stamp != 0 {
				c.rules = append(c.rules, folder)
			}
		}
	}
	if err := c.walkRules(ctx); err != nil {
		return err
	}
	return c.list(ctx)
}

// above checks the rules of the folders above, which apply here too.
func (c *check) above() {
	for folder := c.folder; folder != ""; {
		folder = strings.TrimPrefix(path.Dir("/"+folder), "/")
		want := uint64(0)
		if i, ok := c.s.lookup(rulesPath(folder)); ok {
			if want = c.s.known[i].stamp; want == 0 {
				want = 1 // not at rest, so it equals no other
			}
		}
		if stamp, _ := c.x.rulesStamp(folder); stamp != want {
			c.rules = append(c.rules, c.folder)
			return
		}
	}
}

// compare checks the stamp of everything below the folder that would be left out.
func (c *check) compare(ctx context.Context) error {
	from, to := c.s.below(c.folder)
	if c.folder != "" {
		i, _ := c.s.lookup(c.folder)
		c.look(i, c.x.root.Fd(), 0)
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for at := from; at < to && ctx.Err() == nil; at += batchSize {
		g.Go(func() error {
			c.batch(at, min(at+batchSize, to))
			return nil
		})
	}
	_ = g.Wait()
	return ctx.Err()
}

// batchSize is how many paths one goroutine takes at a time. They are neighbours, so most share a folder.
const batchSize = 128

// batch compares some paths. It stats them from the folder that they share: resolving the path from the root is most of
// the cost.
func (c *check) batch(from, to int) {
	first, last := c.s.known[from].path, c.s.known[to-1].path
	common := first[:strings.LastIndexByte(first[:sharedPrefix(first, last)], '/')+1]
	dir := c.x.root.Fd()
	if common != "" {
		fd, err := unix.Openat(dir, common, kernel.PathOnly|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			common = "" // it is gone, which each of its paths will show
		} else {
			defer unix.Close(fd)
			dir = fd
		}
	}
	for i := from; i < to; i++ {
		c.look(i, dir, len(common))
	}
}

// look compares the stamp of one path. Its first common bytes are the path of the open folder dir.
func (c *check) look(i, dir, common int) {
	k := &c.s.known[i]
	if k.kind == kindRules {
		folder := strings.TrimSuffix(strings.TrimSuffix(k.path, "."), "/")
		if stamp, _ := c.x.rulesStamp(folder); stamp != k.stamp {
			c.note(func() { c.rules = append(c.rules, folder) })
		}
		return
	}
	if c.wanted[i] != nil {
		return // it is searched anyway
	}
	s, ok := statAt(dir, k.path[common:])
	switch {
	case !ok || stampOf(s) == k.stamp: // a removed file changed its folder
	case k.kind == kindFolder:
		c.note(func() { c.listed = append(c.listed, k.path) })
	default:
		c.note(func() { c.changed[i] = true })
	}
}

func (c *check) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

// walkRules walks the folders whose rules changed.
func (c *check) walkRules(ctx context.Context) error {
	slices.Sort(c.rules)
	for _, folder := range slices.Compact(c.rules) {
		if c.wasWalked(folder) || !c.x.isHere(folder) {
			continue
		}
		c.walked = append(c.walked, folder)
		if err := c.walk(ctx, folder); err != nil {
			return err
		}
	}
	return nil
}

// wasWalked reports whether a folder, or one above it, was walked as a whole.
func (c *check) wasWalked(rel string) bool {
	return slices.ContainsFunc(c.walked, func(w string) bool {
		return w == "" || rel == w || strings.HasPrefix(rel, w+"/")
	})
}

// walk visits all files below a folder, and keeps those that the index does not know.
func (c *check) walk(ctx context.Context, folder string) error {
	err := c.x.view.Walk(ctx, cmp.Or(folder, "."), walkAll(true), func(e *workspace.Entry) error {
		if e.Type == 0 {
			rel := e.Rel()
			c.seen[rel] = true
			c.keep(rel)
		}
		return nil
	})
	return unlessGone(err)
}

// unlessGone ignores the error that a folder was removed in the meantime, or became something else.
func unlessGone(err error) error {
	var e *tool.Error
	if errors.As(err, &e) &&
		(e.Code == tool.CodeNotFound || e.Code == tool.CodeAccessDenied || e.Reason == "not_a_folder") {
		return nil
	}
	return err
}

// keep adds a file that the index does not know. A file that is not below the folder was reached through a link that is
// just replacing the folder.
func (c *check) keep(rel string) {
	if c.folder != "" && !strings.HasPrefix(rel, c.folder+"/") {
		return
	}
	if i, ok := c.s.lookup(rel); !ok || !c.s.known[i].isFile() {
		c.add[rel] = true
	}
}

// list lists the folders in which something was added, removed or renamed.
func (c *check) list(ctx context.Context) error {
	for _, folder := range c.listed {
		if c.wasWalked(folder) || !c.x.isHere(folder) {
			continue
		}
		var folders []string
		err := c.x.view.Walk(ctx, cmp.Or(folder, "."), walkAll(false), func(e *workspace.Entry) error {
			switch e.Type {
			case 0:
				c.keep(e.Rel())
			case fs.ModeDir:
				if i, ok := c.s.lookup(e.Rel()); !ok || c.s.known[i].kind != kindFolder {
					folders = append(folders, e.Rel())
				}
			}
			return nil
		})
		if err := unlessGone(err); err != nil {
			return err
		}
		for _, f := range folders {
			if err := c.walk(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func walkAll(recursive bool) workspace.WalkOptions {
	return workspace.WalkOptions{Recursive: recursive, Ignore: true, Hidden: true}
}

// found reports whether the tree differs from the index.
func (c *check) found() bool {
	return len(c.changed)+len(c.listed)+len(c.rules)+len(c.add) > 0
}

// selection assembles the results.
func (c *check) selection() Selection {
	var sel Selection
	from, to := c.s.below(c.folder)
	for i := from; i < to; i++ {
		k := &c.s.known[i]
		if !k.isFile() || c.wanted[i] == nil && !c.changed[i] || c.wasWalked(k.path) && !c.seen[k.path] {
			continue
		}
		p := Pick{Path: k.path}
		if c.wanted[i] != nil {
			sel.Candidates++
		}
		if len(c.wanted[i]) > 0 && k.stamp != 0 {
			p.stamp, p.parts = k.stamp, c.wanted[i]
		}
		sel.Picks = append(sel.Picks, p)
	}
	for rel := range c.add {
		sel.Picks = append(sel.Picks, Pick{Path: rel})
	}
	sel.Changed = len(sel.Picks) - sel.Candidates
	slices.SortFunc(sel.Picks, func(a, b Pick) int { return strings.Compare(a.Path, b.Path) })
	return sel
}

// damaged discards the index in the background, because its caller is still reading it.
func (x *Index) damaged(err error) {
	x.o.Log.Warn("the code index is made anew", "folder", x.dir, "why", err)
	x.broken.Store(true)
	x.Changed()
}
