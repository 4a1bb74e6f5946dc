package codesearch

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// updateTimeout bounds an index update, which continues after the call that began it has given up.
const updateTimeout = 30 * time.Minute

// meanings are the semantic indexes of the codebases searched so far, each opened on first use.
type meanings struct {
	ctx    context.Context // of the updates; cancelled when the library closes
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	open   map[string]*fresh
}

func newMeanings() *meanings {
	m := &meanings{open: map[string]*fresh{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// fresh is an index that is updated before each query.
type fresh struct {
	index *meaning.Index
	busy  chan struct{} // holds one token while no update runs
	last  update        // guarded by the token

	seen, all atomic.Int64 // files that the running update has reached, and their total; 0 until counted
}

// An update is the result of a finished update.
type update struct {
	began time.Time
	stats meaning.Stats
	err   error
}

// fresh returns the index of a codebase, updated to the current state of its files. If only the embeddings failed, it
// returns both the index and an error.
func (m *meanings) fresh(r *asked, l *Library, root workspace.Root) (*meaning.Index, meaning.Stats, error) {
	arrived := time.Now()
	f, err := m.get(l, root)
	if err != nil {
		return nil, meaning.Stats{}, err
	}
	view, err := l.unscoped(r.call, root)
	if err != nil {
		return nil, meaning.Stats{}, err
	}
	if _, err := await(r, f, root, f.busy); err != nil {
		return nil, meaning.Stats{}, err
	}
	done := make(chan update, 1)
	m.mu.Lock() // close waits for updates that began before it took the lock
	closing := m.ctx.Err() != nil
	if !closing {
		m.wg.Go(func() {
			done <- f.update(m.ctx, view, arrived)
			f.busy <- struct{}{}
		})
	}
	m.mu.Unlock()
	if closing {
		f.busy <- struct{}{}
		return nil, meaning.Stats{}, tool.Errorf(tool.CodeUnavailable, "the code tools are closing")
	}
	u, err := await(r, f, root, done)
	switch {
	case err != nil:
		return nil, meaning.Stats{}, err
	case u.err != nil && u.stats.Files == 0:
		return nil, u.stats, u.err
	}
	return f.index, u.stats, u.err
}

// How often a waiting caller gets progress, and after how long the files are counted. Most updates finish sooner.
const (
	tellEvery  = 500 * time.Millisecond
	countAfter = time.Second
)

// await waits for a value of an update, and reports progress to the caller.
func await[T any](r *asked, f *fresh, root workspace.Root, from <-chan T) (v T, err error) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case v = <-from:
			return v, nil
		case <-r.Done():
			return v, stillIndexing(r, root)
		case <-tick.C:
			p := tool.Progress{Progress: float64(f.seen.Load()), Message: "indexing " + root.Codebase}
			if all := f.all.Load(); float64(all) >= p.Progress {
				p.Total = float64(all)
			}
			if err := r.out.Emit(tool.NewEvent(tool.KindProgress, p)); err != nil {
				return v, err
			}
		}
	}
}

func stillIndexing(r *asked, root workspace.Root) error {
	return &tool.Error{
		Code: tool.CodeOf(r.Err()), Err: r.Err(),
		Message: "codebase " + root.Codebase + " is still being indexed; that goes on, try again in a while",
	}
}

// get opens the index of a codebase.
func (m *meanings) get(l *Library, root workspace.Root) (*fresh, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.open[root.Codebase]; f != nil {
		return f, nil
	}
	dir := ""
	if !l.o.Index.Off && l.stateDir != "" {
		dir = l.stateOf(root, "meaning")
	}
	x, err := meaning.Open(dir, meaning.Options{MaxChunks: l.o.Search.MaxChunks, Embedder: l.embedder})
	if err != nil {
		return nil, err
	}
	f := &fresh{index: x, busy: make(chan struct{}, 1)}
	f.busy <- struct{}{}
	m.open[root.Codebase] = f
	return f, nil
}

// update updates the index to the state of the files, unless an update has begun since the call arrived.
func (f *fresh) update(ctx context.Context, view *workspace.View, arrived time.Time) update {
	if f.last.began.After(arrived) {
		return f.last
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	var counting sync.WaitGroup
	defer counting.Wait()
	defer cancel()
	f.seen.Store(0)
	f.all.Store(0)
	counting.Go(func() { f.count(ctx, view) })
	f.last.began = time.Now()
	f.last.stats, f.last.err = f.index.Update(ctx, f.counted(sourcesOf(ctx, view)))
	return f.last
}

// counted counts the files that an update reaches.
func (f *fresh) counted(files iter.Seq2[meaning.File, error]) iter.Seq2[meaning.File, error] {
	return func(yield func(meaning.File, error) bool) {
		for file, err := range files {
			if !yield(file, err) {
				return
			}
			f.seen.Add(1)
		}
	}
}

// count counts all files, but only if an update takes long enough for the total to matter.
func (f *fresh) count(ctx context.Context, view *workspace.View) {
	if !tool.Sleep(ctx, countAfter) {
		return
	}
	n := int64(0)
	for _, err := range sourcesOf(ctx, view) {
		if err != nil {
			return
		}
		n++
	}
	f.all.Store(n)
}

// sourcesOf walks the files of a codebase that people wrote.
func sourcesOf(ctx context.Context, view *workspace.View) iter.Seq2[meaning.File, error] {
	return func(yield func(meaning.File, error) bool) {
		err := view.Walk(ctx, ".", workspace.WalkOptions{Recursive: true, Ignore: true},
			func(e *workspace.Entry) error {
				if e.Type != 0 || !split.IsSource(e.Name) {
					return nil
				}
				info, err := e.Info()
				if err != nil {
					return nil //nolint:nilerr // it has gone meanwhile
				}
				rel := e.Rel()
				open := func() (io.ReadCloser, error) { return view.Open(rel) }
				// The change time: unlike the modification time, it cannot be set back.
				st, _ := info.Sys().(*unix.Stat_t)
				f := meaning.File{Path: rel, Size: info.Size(), ModTime: time.Unix(st.Ctim.Unix()), Open: open}
				if !yield(f, nil) {
					return fs.SkipAll
				}
				return nil
			})
		if err != nil {
			yield(meaning.File{}, err)
		}
	}
}

// close stops the running updates and waits for them.
func (m *meanings) close() {
	m.mu.Lock()
	m.cancel()
	m.mu.Unlock()
	m.wg.Wait()
}
