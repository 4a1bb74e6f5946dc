package trigram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"path"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/codesearch/grep"
	"toolpost/host/workspace"
	"toolpost/kernel"
)

const (
	// maxLists is how many bytes of lists are collected in memory before they become a segment.
	maxLists = 32 << 20
	// maxSmall is how many small segments there may be before they are merged.
	maxSmall = 4
	// small is the divisor of all files below which a segment is small: it has less than an eighth of them.
	small = 8
)

var errTooManyFiles = errors.New("the codebase has more files than an index may have")

// A refresh reads the changes since the last one.
type refresh struct {
	x       *Index
	old     *snapshot
	seen    []bool // by place in old: it still exists
	fresh   []entry
	todo    chan entry
	files   int
	bytes   int64
	folders []string // all of them

	mu     sync.Mutex // guards the fields below
	b      *builder
	segs   []*segment
	unrest bool // something changed too recently to have a stamp
	err    error
}

// Refresh reads the tree and updates the index.
func (x *Index) Refresh(ctx context.Context) error {
	_, err := x.refresh(ctx)
	return err
}

func (x *Index) refresh(ctx context.Context) (*refresh, error) {
	x.refreshing.Lock()
	defer x.refreshing.Unlock()
	x.mu.RLock()
	old := x.snap
	x.mu.RUnlock()
	r := &refresh{x: x, old: old, b: &builder{}, todo: make(chan entry, 64)}
	if old != nil {
		r.seen = make([]bool, len(old.known))
	}
	if err := r.run(ctx); err != nil {
		closeAll(r.segs)
		return nil, err
	}
	return r, r.finish()
}

// run walks the tree, and reads files concurrently.
func (r *refresh) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var readers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		readers.Go(func() { r.readAll(cancel) })
	}
	err := r.walk(ctx)
	close(r.todo)
	readers.Wait()
	return cmp.Or(r.err, err)
}

// walk visits every file and folder. It takes a folder's stamp before listing the folder, because later additions change
// the stamp.
func (r *refresh) walk(ctx context.Context) error {
	r.folder("")
	return r.x.view.Walk(ctx, "", walkAll(true), func(e *workspace.Entry) error {
		if r.files++; r.files > r.x.o.MaxFiles {
			return errTooManyFiles
		}
		switch e.Type {
		case fs.ModeDir:
			r.folder(e.Rel())
		case 0:
			return r.file(ctx, e)
		}
		return nil
	})
}

// folder records a folder and its rules.
func (r *refresh) folder(rel string) {
	r.folders = append(r.folders, rel)
	at := time.Now()
	if stamp, last := r.x.rulesStamp(rel); stamp != 0 {
		if !r.x.resting(last, at) {
			stamp = 0
		}
		r.note(entry{path: rulesPath(rel), stamp: stamp, kind: kindRules})
	}
	if s, ok := r.x.stat(rel); ok {
		r.note(entry{path: rel, stamp: r.x.restingStamp(s, at), kind: kindFolder})
	}
}

// note keeps an entry that is not a file, if it is new.
func (r *refresh) note(e entry) {
	if e.stamp == 0 {
		r.mu.Lock()
		r.unrest = true
		r.mu.Unlock()
	}
	if !r.same(e) {
		r.fresh = append(r.fresh, e)
	}
}

// same reports whether the index has this entry, and marks its path as still existing.
func (r *refresh) same(e entry) bool {
	i, ok := r.old.lookup(e.path)
	if !ok {
		return false
	}
	r.seen[i] = true
	k := &r.old.known[i]
	return k.stamp == e.stamp && e.stamp != 0 && (k.kind == e.kind || k.isFile() && e.isFile())
}

// file queues a file for reading if it is new or has changed.
func (r *refresh) file(ctx context.Context, e *workspace.Entry) error {
	info, err := e.Info()
	if err != nil {
		return nil //nolint:nilerr // gone meanwhile; the next refresh notices its folder
	}
	rel := e.Rel()
	st, _ := info.Sys().(*unix.Stat_t)
	r.bytes += st.Size
	todo := entry{path: rel, stamp: stampOf(rawStamp(st)), kind: kindText}
	if r.same(todo) {
		return nil
	}
	if st.Size > r.x.o.MaxFile || r.bytes > r.x.o.MaxBytes {
		todo.kind = kindOther
	}
	select {
	case r.todo <- todo:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readAll reads files until the queue ends.
func (r *refresh) readAll(cancel context.CancelFunc) {
	ex := newExtractor()
	for e := range r.todo {
		var blocks []block
		if e.kind == kindText {
			e, blocks = r.read(e, ex)
		}
		if err := r.add(e, blocks); err != nil {
			cancel()
		}
	}
}

// read returns the entry of a file and its blocks. A file that cannot be read may contain any trigram.
func (r *refresh) read(e entry, ex *extractor) (entry, []block) {
	at := time.Now()
	f, err := r.x.view.Open(e.path)
	if err != nil {
		return entry{path: e.path, stamp: e.stamp, kind: kindOther}, nil
	}
	defer f.Close()
	e.stamp = r.x.restingStamp(f.Stamp(), at)
	ex.text = slices.Grow(ex.text[:0], int(f.Size()))[:f.Size()]
	n, err := f.ReadAt(ex.text, 0) // its size when it was opened
	if err != nil && err != io.EOF {
		return entry{path: e.path, kind: kindOther}, nil
	}
	text := ex.text[:n]
	if after, err := f.Restat(); err != nil || after != f.Stamp() {
		e.stamp = 0
	}
	if grep.Binary(text) {
		e.kind = kindBinary
		return e, nil
	}
	return e, ex.blocks(text)
}

// add adds a file to the segment under construction.
func (r *refresh) add(e entry, blocks []block) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unrest = r.unrest || e.stamp == 0
	r.b.add(e, blocks)
	if r.err == nil && r.b.bytes > maxLists {
		r.err = r.flush()
	}
	return r.err
}

// flush writes a segment.
func (r *refresh) flush() error {
	b := r.b
	r.b = &builder{}
	s, err := r.x.writeSegment(b.write)
	if err != nil {
		return fmt.Errorf("the code index could not be written: %w", err)
	}
	r.segs = append(r.segs, s)
	return nil
}

// rest is how long a file must have been unchanged before its stamp counts: longer than the tick of the coarsest clock of
// a file system (two seconds, of FAT).
const rest = 2500 * time.Millisecond

// stampOf hashes everything that tells two states of a file apart. It is never 0.
func stampOf(s workspace.Stamp) uint64 {
	h := uint64(0x9E3779B97F4A7C15)
	for _, v := range [...]uint64{s.Dev, s.Ino, uint64(s.Size), uint64(s.MTime.Sec), uint64(s.MTime.Nsec),
		uint64(s.CTime.Sec), uint64(s.CTime.Nsec)} {
		h = bits.RotateLeft64(h^v, 29) * 0xBF58476D1CE4E5B9
		h ^= h >> 32
	}
	return max(h, 1)
}

func rawStamp(st *unix.Stat_t) workspace.Stamp {
	return workspace.Stamp{Dev: kernel.Device(st), Ino: st.Ino, Size: st.Size, MTime: st.Mtim, CTime: st.Ctim}
}

// restingStamp returns the stamp of a state that was at rest at a time, otherwise 0. The change time alone decides: every
// change sets it, and no program can set it otherwise.
func (x *Index) restingStamp(s workspace.Stamp, at time.Time) uint64 {
	if !x.resting(s.CTime.Nano(), at) {
		return 0
	}
	return stampOf(s)
}

func (x *Index) resting(last int64, at time.Time) bool { return at.UnixNano()-last >= int64(x.o.rest) }

// stat returns the state of a path below the root. It does not follow a link at its end.
func (x *Index) stat(rel string) (workspace.Stamp, bool) { return statAt(x.root.Fd(), rel) }

func statAt(dir int, rel string) (workspace.Stamp, bool) {
	var st unix.Stat_t
	if rel == "" {
		rel = "."
	}
	for {
		err := unix.Fstatat(dir, rel, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != unix.EINTR {
			return rawStamp(&st), err == nil
		}
	}
}

// ruleFiles returns the files of a folder that define what is ignored in it and below. Of .git only its existence counts.
func ruleFiles() []string { return []string{".gitignore", ".ignore", ".git/info/exclude", ".git"} }

// rulesStamp returns the stamp of the ignore files of a folder, or 0 if it has none. Last is when one of them last
// changed.
func (x *Index) rulesStamp(folder string) (stamp uint64, last int64) {
	for i, name := range ruleFiles() {
		s, ok := x.stat(path.Join(folder, name))
		if !ok {
			continue
		}
		if name == ".git" {
			s = workspace.Stamp{}
		}
		last = max(last, s.CTime.Nano())
		stamp = max(1, bits.RotateLeft64(stamp, 7)^(stampOf(s)+uint64(i)))
	}
	return stamp, last
}

// rulesPath returns the path under which the index keeps the stamp of a folder's rules. No file has this path.
func rulesPath(folder string) string {
	if folder == "" {
		return "."
	}
	return folder + "/."
}
