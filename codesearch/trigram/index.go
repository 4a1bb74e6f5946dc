// Package trigram keeps an index of a codebase on disk that tells which files may contain a text, and never answers from
// an old state.
//
// # Why an answer is not stale
//
// The index knows, for each file and folder, the stamp of the state that it has read: its inode, its size, and when its
// content and its inode were last changed. A selection checks the stamp of every file and folder that it would leave out.
// A file with another stamp is searched, regardless of the index. A folder with another stamp is listed, and its new
// files are searched. If an ignore file changed, everything below it is walked. So every change made before the selection
// began is in the answer.
//
// A stamp is only taken from a state that was at rest for longer than the tick of any file system's clock, so a later
// change results in another stamp. Until then the stamp is 0, which equals no other, and the file is searched each time.
//
// Watching the tree (inotify) is not enough for that: it does not report changes through a hard link from elsewhere, or
// through a mapping, and its queue may overflow. It only hints when to read again, so that few files are left to search.
//
// There is one change that no stamp shows at once: a program that keeps changing a page of a file that it has mapped. The
// system records only the first change after each time that it has written the page to disk.
package trigram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"toolpost/codesearch/disk"
	"toolpost/host/workspace"
	"toolpost/kernel"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options limit the cost of an index. The zero value is useful.
type Options struct {
	MaxFiles int           // maximum of the codebase, above which there is no index; 0 means a million
	MaxBytes int64         // of all files; files beyond it are not indexed but searched each time; 0 means 4 GiB
	MaxFile  int64         // maximum size of a file that is read; 0 means 64 MiB
	Pause    time.Duration // between a change and reading it; 0 means half a second
	Log      *slog.Logger  // nil discards all messages

	rest time.Duration // 0 means the constant rest
}

func (o Options) withDefaults() Options {
	o.MaxFiles = cmp.Or(o.MaxFiles, 1_000_000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 4<<30)
	o.MaxFile = cmp.Or(o.MaxFile, 64<<20)
	o.Pause = cmp.Or(o.Pause, 500*time.Millisecond)
	o.rest = cmp.Or(o.rest, rest)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// An Index is the index of one codebase. It is safe for concurrent use.
type Index struct {
	dir  string // of its own files
	view *workspace.View
	root *workspace.File
	o    Options
	lock io.Closer

	mu   sync.RWMutex // held for reading while segments are read
	snap *snapshot    // nil if there is none yet, or if it is damaged

	asked      sync.Once   // set by the first selection
	broken     atomic.Bool // a selection found it damaged
	refreshing sync.Mutex
	kick       chan struct{} // something changed
	end        context.CancelFunc
	keeper     sync.WaitGroup
}

// ErrNotReady reports that the index cannot answer, and that the tree has to be walked.
var ErrNotReady = errors.New("the index is not ready")

// Open opens the index, kept in dir, of the only root of a view. It reads the tree in the background, on the first query
// and again after changes. A damaged index is rebuilt.
func Open(dir string, view *workspace.View, o Options) (*Index, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := disk.Lock(dir)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another process has the code index of %s open: %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	root, err := view.OpenDir(".")
	if err == nil {
		err = checkLocal(root)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	x := &Index{dir: dir, view: view, root: root, o: o.withDefaults(), lock: lock, kick: make(chan struct{}, 1)}
	if err := x.load(); err != nil {
		x.o.Log.Warn("the code index is made anew", "folder", dir, "why", err)
		x.discard()
	}
	var ctx context.Context
	ctx, x.end = context.WithCancel(context.Background())
	x.keeper.Go(func() { x.keep(ctx) })
	return x, nil
}

// checkLocal refuses a tree on another machine, because its stamps may be out of date here.
func checkLocal(root *workspace.File) error {
	remote, err := kernel.Remote(root.Fd())
	if err == nil && remote {
		return fmt.Errorf("%s is on a file system that may show old stamps; it is searched without an index",
			root.Abs())
	}
	return err
}

// Close stops the background work and closes the index.
func (x *Index) Close() error {
	x.end()
	x.keeper.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snap.close()
	x.snap = nil
	x.root.Close()
	return x.lock.Close()
}

// A manifest names the files of the index.
type manifest struct {
	Version  int      `json:"version"`
	Segments []string `json:"segments"` // oldest first
}

const (
	version      = 1
	manifestName = "index.json"
	segmentExt   = ".tri"
)

func (x *Index) path(name string) string { return filepath.Join(x.dir, name) }

// load opens the segments that the manifest names, and removes the remains of an interrupted write.
func (x *Index) load() error {
	b, err := os.ReadFile(x.path(manifestName))
	if errors.Is(err, os.ErrNotExist) {
		x.sweep(nil)
		return nil
	}
	if err != nil {
		return err
	}
	var m manifest
	if err := strictjson.UnmarshalClosed(b, &m); err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	if m.Version != version {
		return fmt.Errorf("%s has version %d", manifestName, m.Version)
	}
	segs := make([]*segment, 0, len(m.Segments))
	for _, name := range m.Segments {
		s, err := openSegment(x.path(filepath.Base(name)), name)
		if err != nil {
			closeAll(segs)
			return err
		}
		segs = append(segs, s)
	}
	x.sweep(m.Segments)
	x.snap = newSnapshot(segs)
	return nil
}

// sweep removes every segment that is not in keep.
func (x *Index) sweep(keep []string) {
	files, _ := os.ReadDir(x.dir) // a folder that cannot be listed cannot be swept
	for _, f := range files {
		if name := f.Name(); strings.Contains(name, segmentExt) && !slices.Contains(keep, name) {
			os.Remove(x.path(name))
		}
	}
}

// discard deletes the index.
func (x *Index) discard() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snap.close()
	x.snap = nil
	os.Remove(x.path(manifestName))
	x.sweep(nil)
}

// commit makes segments the index. After a crash, either all of the new ones are in it or none.
func (x *Index) commit(segs []*segment) error {
	m := manifest{Version: version, Segments: []string{}}
	for _, s := range segs {
		m.Segments = append(m.Segments, s.name)
	}
	b, err := strictjson.Marshal(m)
	if err != nil {
		return err
	}
	err = disk.Write(x.path(manifestName), func(w io.Writer) error { _, err := w.Write(b); return err })
	if err != nil {
		return err
	}
	fresh := newSnapshot(segs)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.snap != nil {
		for _, s := range x.snap.segs {
			if !slices.Contains(segs, s) {
				s.file.Close()
			}
		}
	}
	x.snap = fresh
	x.sweep(m.Segments)
	return nil
}

// writeSegment writes a new segment and opens it.
func (x *Index) writeSegment(write func(io.Writer) error) (*segment, error) {
	name := tool.NewID() + segmentExt
	if err := disk.Write(x.path(name), write); err != nil {
		return nil, err
	}
	return openSegment(x.path(name), name)
}

func closeAll(segs []*segment) {
	for _, s := range segs {
		s.file.Close()
	}
}

// Size returns the number of indexed files, and the size of the index on disk in bytes.
func (x *Index) Size() (files int, bytes int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.snap == nil {
		return 0, 0
	}
	for _, s := range x.snap.segs {
		if info, err := s.file.Stat(); err == nil {
			bytes += info.Size()
		}
	}
	for _, e := range x.snap.known {
		if e.kind == kindText {
			files++
		}
	}
	return files, bytes
}

// A watch signals changes in the folders of a codebase. It is only a hint: it may be late, miss changes, or not work at
// all.
type watch struct {
	root    string
	watcher *fsnotify.Watcher // nil if nothing is watched
	watched map[string]bool
	events  <-chan fsnotify.Event // silent if nothing is watched
	errors  <-chan error
}

// maxWatches is the maximum number of watched folders.
const maxWatches = 16_384

// follow watches these folders, of which the first is the root. If there are too many, or the system has no room for
// them, it watches none: watching half of them would notice some changes and miss others.
func (w *watch) follow(folders []string) {
	if len(folders) > maxWatches {
		w.close()
		return
	}
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return
		}
		w.watcher, w.events, w.errors = watcher, watcher.Events, watcher.Errors
	}
	now := make(map[string]bool, len(folders))
	for _, f := range folders {
		now[f] = true
		if w.watched[f] {
			continue
		}
		// Ignore a folder that was removed in the meantime.
		if err := w.watcher.Add(filepath.Join(w.root, f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.close()
			return
		}
	}
	w.watched = now
}

// close stops watching.
func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
	*w = watch{root: w.root}
}
