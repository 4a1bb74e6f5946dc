package workspace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
	"toolpost/kernel"
	"toolpost/tool"
)

// The default limits of a walk.
const (
	defaultMaxEntries = 10_000_000
	defaultMaxDepth   = 256
)

// WalkOptions select what a walk visits.
type WalkOptions struct {
	Recursive bool
	Ignore    bool // leave out the paths in .gitignore, .git/info/exclude and .ignore, and .git itself
	Hidden    bool // include names that begin with a dot
	// what is visited; "!x" leaves x out, with all below it; without a slash matched against the name
	Globs      []string
	MaxEntries int // maximum number examined; more is an error
	MaxDepth   int // maximum nesting of folders; more is an error
	Parallel   int // how many goroutines call visit at once; up to 1 means the caller's own, in order
}

// An Entry is a file or folder that a walk visits. It is valid until visit returns.
type Entry struct {
	Name string
	Type fs.FileMode // dir, symlink, irregular, or 0 for a regular file
	Seq  int         // 0, 1, 2 ...: the position in the order of the paths
	dir  *folder
}

// Walk visits the entries below a folder, in the byte order of their paths. Links are visited but not followed. Sensitive
// names, and files that policy denies to the call, are not visited. A folder that has disappeared meanwhile, or that may
// not be read, has no entries. If visit returns fs.SkipAll the walk ends without an error; any other error ends it and is
// returned.
func (v *View) Walk(ctx context.Context, path string, o WalkOptions, visit func(*Entry) error) error {
	w, start, err := v.begin(path, o)
	if err != nil {
		return err
	}
	if o.Parallel > 1 {
		return w.parallel(ctx, start, visit)
	}
	w.visit = visit
	if err := w.folder(ctx, start); !errors.Is(err, fs.SkipAll) {
		return err
	}
	return nil
}

// A walk holds the state of one Walk.
type walk struct {
	*View
	WalkOptions
	root   *root
	globs  *Globs
	visit  func(*Entry) error
	shown  string // the start as the caller wrote it
	prefix string // the text before an entry's own path
	below  int    // length of the start's path below the root
	seen   int
	seq    int
	buf    []byte
}

// begin opens the start of the walk, with the rules of all ignore files above it.
func (v *View) begin(shown string, o WalkOptions) (*walk, *folder, error) {
	g, err := NewGlobs(o.Globs)
	if err != nil {
		return nil, nil, err
	}
	o.MaxEntries, o.MaxDepth = cmp.Or(o.MaxEntries, defaultMaxEntries), cmp.Or(o.MaxDepth, defaultMaxDepth)
	w := &walk{View: v, WalkOptions: o, globs: g, shown: cmp.Or(shown, "."), buf: make([]byte, 32<<10)}
	if shown != "" {
		w.prefix = strings.TrimRight(shown, "/") + "/"
	}
	f, err := v.OpenDir(w.shown)
	if err != nil {
		return nil, nil, err
	}
	w.root = f.root
	rel, ok := below(f.root.Dir, f.abs)
	if !ok || rel == "." {
		rel = ""
	}
	if w.below = len(rel); w.below > 0 {
		w.below++
	}
	d := &folder{walk: w, fd: f.fd, rel: rel, abs: f.abs, depth: 1}
	d.refs.Store(1)
	if w.Ignore {
		d.rules = rulesAbove(f.root.fd, rel)
	}
	return w, d, nil
}

// A folder is an open folder of a walk.
type folder struct {
	*walk
	fd    int
	rel   string // below the root; "" is the root
	abs   string
	depth int
	rules *rules
	refs  atomic.Int32 // one for the walk, and one for each entry that waits for its visit
}

func (d *folder) release() {
	if d.refs.Add(-1) == 0 {
		unix.Close(d.fd)
	}
}

// folder visits everything in and below d, and releases d.
func (w *walk) folder(ctx context.Context, d *folder) error {
	defer d.release()
	items, err := w.read(ctx, d)
	if err != nil {
		return err
	}
	for _, it := range items {
		name, descend := strings.CutSuffix(it.name, "/")
		if descend {
			err = w.descend(ctx, d, name)
		} else {
			err = w.visit(&Entry{Name: name, Type: it.typ, Seq: w.seq, dir: d})
			w.seq++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// An item is a name in a folder: an entry to visit, or, with a trailing slash, a folder to descend into. Sorting both by
// name results in the order of the whole paths.
type item struct {
	name string
	typ  fs.FileMode
}

// read returns the selected items of a folder, in order.
func (w *walk) read(ctx context.Context, d *folder) ([]item, error) {
	items, err := w.list(ctx, d)
	if err != nil {
		return nil, err
	}
	if w.seen += len(items); w.Ignore {
		d.rules = d.rules.with(d, items)
	}
	wanted := make([]item, 0, len(items))
	for _, it := range items {
		if w.leavesOut(d, it) {
			continue
		}
		if w.wants(d, it) {
			wanted = append(wanted, it)
		}
		if it.typ.IsDir() && w.Recursive {
			wanted = append(wanted, item{it.name + "/", it.typ})
		}
	}
	slices.SortFunc(wanted, func(a, b item) int { return strings.Compare(a.name, b.name) })
	return wanted, nil
}

// list reads the names of a folder.
func (w *walk) list(ctx context.Context, d *folder) (items []item, err error) {
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var n int
		if err := retry(func() error { n, err = unix.ReadDirent(d.fd, w.buf); return err }); err != nil || n == 0 {
			return items, nil //nolint:nilerr // a folder that cannot be read any more has no further entries
		}
		items = appendItems(items, d.fd, w.buf[:n])
		if w.seen+len(items) > w.MaxEntries {
			return nil, w.tooMuch("has more than %d entries below it", w.MaxEntries)
		}
	}
}

func (w *walk) tooMuch(what string, limit int) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "%s "+what+"; take a smaller folder or give a pattern", w.shown,
		limit).Because("too_large")
}

// leavesOut reports whether an item, with everything below it, is not part of the walk.
func (w *walk) leavesOut(d *folder, it item) bool {
	switch {
	case !w.Hidden && it.name[0] == '.', w.Ignore && it.name == ".git", w.ws.sensitive.name(it.name):
		return true
	case w.Ignore && d.rules.ignores(d, it):
		return true
	case len(w.globs.exclude) > 0 && w.globs.LeaveOut(w.belowStart(d, it.name)):
		return true
	}
	real := path.Join(d.abs, it.name)
	return w.ws.checker.At(real) == offlimits.Secret || w.scope != nil && w.scope.Path(real, false) != nil
}

func (w *walk) wants(d *folder, it item) bool {
	return len(w.globs.include) == 0 || matchAny(w.globs.include, w.belowStart(d, it.name))
}

func (w *walk) belowStart(d *folder, name string) string { return d.child(name)[w.below:] }

// child returns the path of an entry below the root.
func (d *folder) child(name string) string {
	if d.rel == "" {
		return name
	}
	return d.rel + "/" + name
}

// descend visits a folder below d. It follows no links, so the folder's path is its real one.
func (w *walk) descend(ctx context.Context, d *folder, name string) error {
	sub, err := w.enter(d, name)
	if err != nil || sub == nil {
		return err
	}
	return w.folder(ctx, sub)
}

// enter opens a folder below d. It returns nil if the folder is gone meanwhile, or not ours to read: it has no entries.
func (w *walk) enter(d *folder, name string) (*folder, error) {
	if d.depth >= w.MaxDepth {
		return nil, w.tooMuch("has folders nested deeper than %d", w.MaxDepth)
	}
	fd, err := openName(d.fd, name, readFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // see above
	}
	sub := &folder{walk: w, fd: fd, rel: d.child(name), abs: d.abs + "/" + name, depth: d.depth + 1, rules: d.rules}
	sub.refs.Store(1)
	return sub, nil
}

// Rel returns the path below the root.
func (e *Entry) Rel() string { return e.dir.child(e.Name) }

// Below returns the path below the start of the walk.
func (e *Entry) Below() string { return e.dir.belowStart(e.dir, e.Name) }

// Abs returns the absolute path, without links.
func (e *Entry) Abs() string { return path.Join(e.dir.abs, e.Name) }

// Shown returns the start of the walk as the caller wrote it, a slash, and the path below it. Invalid UTF-8 is replaced,
// since JSON does not allow it.
func (e *Entry) Shown() string { return strings.ToValidUTF8(e.dir.prefix+e.Below(), "\uFFFD") }

// Info describes the current state of the entry; it does not follow a link.
func (e *Entry) Info() (fs.FileInfo, error) {
	st, err := statAt(e.dir.fd, e.Name)
	if err != nil {
		return nil, explain(e.Shown(), err)
	}
	return fileInfo{e.Name, st}, nil
}

// Open opens a regular file for reading. Neither the walk nor Open follows a link: it opens the file of that name in that
// folder, or fails.
func (e *Entry) Open() (*File, error) {
	return openEntry(e.dir.fd, e.Name, File{root: e.dir.root, entry: e})
}

// openEntry opens a regular file by its name in an open folder, following no link.
func openEntry(dir int, name string, f File) (*File, error) {
	fd, err := openName(dir, name, readFlags, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, isLink(f.Shown())
	case err != nil:
		return nil, explain(f.Shown(), err)
	}
	f.fd = fd
	if err = f.load(); err == nil {
		err = f.checkRegular()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &f, nil
}

func statAt(dir int, name string) (st unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

// appendItems adds the names of a folder's entries from the kernel's buffer. If the file system does not provide the type
// of an entry, it is looked up.
func appendItems(items []item, fd int, buf []byte) []item {
	for len(buf) > kernel.DirentName {
		length := int(binary.NativeEndian.Uint16(buf[kernel.DirentLength:]))
		if length <= kernel.DirentName || length > len(buf) {
			return items
		}
		name := buf[kernel.DirentName:length]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		if s := string(name); s != "." && s != ".." {
			items = append(items, item{s, itemType(fd, s, buf[kernel.DirentType])})
		}
		buf = buf[length:]
	}
	return items
}

func itemType(fd int, name string, kind byte) fs.FileMode {
	switch kind {
	case unix.DT_REG:
		return 0
	case unix.DT_DIR:
		return fs.ModeDir
	case unix.DT_LNK:
		return fs.ModeSymlink
	case unix.DT_UNKNOWN:
		if st, err := statAt(fd, name); err == nil {
			return typeOf(st.Mode)
		}
	}
	return fs.ModeIrregular
}

// batchSize is how many entries are passed on at once: passing on costs more than most visits.
const batchSize = 32

// parallel walks in the caller's goroutine and visits in several others, and waits for them.
func (w *walk) parallel(ctx context.Context, start *folder, visit func(*Entry) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan []Entry, w.Parallel)
	var wg sync.WaitGroup
	for range w.Parallel {
		wg.Go(func() {
			for batch := range batches {
				for i := range batch {
					if ctx.Err() == nil {
						if err := visit(&batch[i]); err != nil {
							cancel(err)
						}
					}
					batch[i].dir.release()
				}
			}
		})
	}
	walkErr := w.feed(ctx, start, batches)
	close(batches)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		walkErr = err
	}
	if errors.Is(walkErr, fs.SkipAll) {
		return nil
	}
	return walkErr
}

// feed walks and passes the entries on.
func (w *walk) feed(ctx context.Context, start *folder, batches chan<- []Entry) error {
	var batch []Entry
	w.visit = func(e *Entry) error {
		e.dir.refs.Add(1)
		if batch = append(batch, *e); len(batch) < batchSize {
			return nil
		}
		batches <- batch // the visitors take every batch, even when the walk is over
		batch = make([]Entry, 0, batchSize)
		return ctx.Err()
	}
	err := w.folder(ctx, start)
	batches <- batch
	return err
}
