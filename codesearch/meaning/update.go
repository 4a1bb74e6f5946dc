package meaning

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"toolpost/tool"
)

// flushAt is how much source goes into one segment while an index is built, which bounds the memory.
const flushAt = 64 << 20

// racy is the age below which a file's modification time cannot be trusted: the file can change again within the same
// clock tick.
const racy = 2 * time.Second

// An updater builds the next state of an index.
type updater struct {
	ctx     context.Context
	x       *Index
	old     *snapshot
	tasks   chan task
	results chan *analysed

	// Owned by the collector; run waits for it.
	segs    []*segment
	files   []entry
	b       *builder
	bytes   int64   // of source in the builder
	made    int     // chunks
	pending []entry // files in the builder
	stats   Stats
	changed bool
	remote  error // the first failure of the embedder: the files are indexed without vectors and tried again
	over    error
	seen    []bool // by entry of the old state
	fresh   map[string]bool
}

// A task is one file for the workers.
type task struct {
	file  File
	known *entry // nil if the index has no usable entry of it
}

func newUpdater(ctx context.Context, x *Index) *updater {
	old := x.current.Load()
	return &updater{
		ctx: ctx, x: x, old: old, segs: slices.Clone(old.segs), b: newBuilder(x.space.dims),
		seen: make([]bool, len(old.files)), fresh: map[string]bool{}, tasks: make(chan task, x.o.Workers),
		results: make(chan *analysed, x.o.Workers),
	}
}

// run passes every file to the workers and collects their results.
func (u *updater) run(files iter.Seq2[File, error]) error {
	ctx, cancel := context.WithCancel(u.ctx)
	defer cancel()
	var workers, collector sync.WaitGroup
	for range u.x.o.Workers {
		workers.Go(func() { u.work(ctx) })
	}
	collector.Go(func() {
		for a := range u.results {
			if u.over == nil {
				if u.over = u.collect(a); u.over != nil {
					cancel()
				}
			}
		}
	})
	kept, err := u.offer(ctx, files)
	close(u.tasks)
	workers.Wait()
	close(u.results)
	collector.Wait()
	switch {
	case u.over != nil:
		return u.over
	case u.ctx.Err() != nil:
		return u.ctx.Err()
	case err != nil:
		return err
	}
	u.files = append(u.files, kept...)
	u.flush()
	return nil
}

// offer passes on the files that may have changed and returns the entries of the others.
func (u *updater) offer(ctx context.Context, files iter.Seq2[File, error]) ([]entry, error) {
	var kept []entry
	for f, err := range files {
		if err != nil {
			return nil, err
		}
		t := task{file: f}
		n, had := u.old.byPath[f.Path]
		switch {
		case had && u.seen[n], !had && u.fresh[f.Path]: // it was offered before
			continue
		case had:
			u.seen[n] = true
			e := &u.old.files[n]
			if e.size == f.Size && e.mtime == f.ModTime.UnixNano() {
				kept = append(kept, *e)
				continue
			}
			if e.mtime != retry {
				t.known = e
			}
		default:
			u.fresh[f.Path] = true
		}
		select {
		case u.tasks <- t:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return kept, nil
}

// retry is the time of a file that has to be analysed again although its content is known.
const retry = never + 1

func (u *updater) work(ctx context.Context) {
	w := &analyst{table: u.x.table, embedder: u.x.o.Embedder, sum: make([]float32, u.x.table.dims)}
	for t := range u.tasks {
		if ctx.Err() == nil {
			u.results <- w.analyse(ctx, t.file, t.known)
		}
	}
}

// collect adds a worker's result for a file.
func (u *updater) collect(a *analysed) error {
	e := entry{path: a.file.Path, size: a.file.Size, mtime: a.file.ModTime.UnixNano(), digest: a.digest}
	if a.young {
		e.mtime = never
	}
	n, had := u.old.byPath[e.path]
	switch {
	case a.err != nil && u.x.o.Embedder != nil && a.chunks != nil:
		// The words are indexed but the vectors are missing: try again next time.
		u.remote, e.mtime = cmp.Or(u.remote, a.err), retry
		a.codes = bytes.Repeat([]byte{0x88}, len(a.chunks)*u.x.space.dims/2)
	case a.err != nil:
		if !a.gone {
			u.stats.Skipped++
			u.stats.FirstOfSkipped = cmp.Or(u.stats.FirstOfSkipped, a.err)
		}
		u.changed = u.changed || had
		return nil
	case a.same:
		old := u.old.files[n]
		u.changed = u.changed || old.mtime != e.mtime
		e.seg, e.file = old.seg, old.file
		u.files = append(u.files, e)
		return nil
	}
	return u.add(e, a)
}

func (u *updater) add(e entry, a *analysed) error {
	u.changed = true
	u.stats.Indexed++
	u.made += len(a.chunks)
	if u.made > u.x.o.MaxChunks {
		return u.tooMany()
	}
	e.file = int32(len(u.pending))
	u.pending = append(u.pending, e)
	u.b.add(a)
	if u.bytes += a.file.Size; u.bytes >= flushAt {
		u.flush()
	}
	return nil
}

// tooMany refuses an index that would be too large. New chunks are counted as they are made, kept ones at the end.
func (u *updater) tooMany() error {
	return tool.Errorf(tool.CodeQuotaExceeded,
		"code search: there are more than %d chunks of code; leave some out with an ignore file", u.x.o.MaxChunks)
}

// flush finishes the segment under construction.
func (u *updater) flush() {
	if len(u.pending) == 0 {
		return
	}
	for i := range u.pending {
		u.pending[i].seg = int32(len(u.segs))
	}
	u.segs = append(u.segs, u.b.segment())
	u.files = append(u.files, u.pending...)
	u.b, u.pending, u.bytes = newBuilder(u.x.space.dims), nil, 0
}

// finish returns the next state.
func (u *updater) finish() (*snapshot, Stats) {
	for _, seen := range u.seen {
		if !seen {
			u.stats.Removed++
			u.changed = true
		}
	}
	next := u.old
	if u.changed {
		next = compact(newSnapshot(u.segs, u.files), u.x.space.dims)
	}
	u.stats.Files, u.stats.Chunks = len(next.files), next.chunks
	return next, u.stats
}

// compact merges all segments from the first one that has shrunk below half, or that is at most twice as large as all
// later ones, so that their number stays small and each chunk is rewritten only a few times.
func compact(s *snapshot, dims int) *snapshot {
	live := make([]int, len(s.segs))
	from := len(s.segs)
	for i := range s.segs {
		live[i] = s.live(i)
		if live[i]*2 < len(s.segs[i].chunks) || len(s.segs[i].chunks) == 0 {
			from = min(from, i)
		}
	}
	tail := 0
	for i := len(s.segs) - 1; i >= 0; i-- {
		if i < len(s.segs)-1 && live[i] <= 2*tail {
			from = min(from, i)
		}
		tail += live[i]
	}
	if from == len(s.segs) || from == len(s.segs)-1 && live[from] == len(s.segs[from].chunks) && live[from] > 0 {
		return s
	}
	return melt(s, from, dims)
}

// melt merges the segments from a number on into one.
func melt(s *snapshot, from, dims int) *snapshot {
	b := newBuilder(dims)
	files := make([]entry, 0, len(s.files))
	for _, f := range s.files {
		if int(f.seg) < from {
			files = append(files, f)
		}
	}
	for i := from; i < len(s.segs); i++ {
		b.take(s.segs[i], func(file int) bool {
			n := s.owner[i][file]
			if n < 0 {
				return false
			}
			e := s.files[n]
			e.seg, e.file = int32(from), int32(len(b.s.files)-1)
			files = append(files, e)
			return true
		})
	}
	segs := append([]*segment(nil), s.segs[:from]...)
	if len(b.s.files) > 1 {
		segs = append(segs, b.segment())
	}
	return newSnapshot(segs, files)
}
