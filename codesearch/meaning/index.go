// Package meaning finds code by what it is for. It cuts files into functions and sections, and ranks them for a question
// by the words they share with it (BM25) and by the vectors of their words (a table of our own, trained on how people
// describe functions; see bench/embeddings). It needs no service and no network.
//
// An Index is a folder of immutable segments, and a manifest of the files they hold. The caller provides the files; the
// package opens nothing but its own folder.
package meaning

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// A File is a file that a caller offers for indexing.
type File struct {
	Path    string // identifies it in hits
	Size    int64
	ModTime time.Time
	Open    func() (io.ReadCloser, error)
}

// Options configure an index. The zero value is ready for use.
type Options struct {
	// Workers is how many files are analysed at once; 0 means as many as there are cores.
	Workers int
	// MaxChunks is the maximum number of chunks of an index; 0 means a million.
	MaxChunks int
	// Embedder makes vectors in place of the table.
	Embedder *Service
}

// MaxFile is the maximum size of an indexed file: people do not write larger ones by hand.
const MaxFile = 1 << 20

const defaultMaxChunks = 1_000_000

// An Index may be searched by any number of goroutines while one of them updates it.
type Index struct {
	dir     string
	o       Options
	table   *Table
	space   space
	update  sync.Mutex
	current atomic.Pointer[snapshot]
	rebuilt bool
}

// A space identifies comparable vectors: those of different spaces cannot be compared.
type space struct {
	name string
	dims int
}

// Open opens the index of a folder, which it creates if necessary. An index that is damaged, or that was made with other
// settings, counts as missing: the next Update rebuilds it. Without a folder the index is only in memory.
func Open(dir string, o Options) (*Index, error) {
	table, err := Standard()
	if err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "code search: %w; build the program again", err)
	}
	o.Workers = cmp.Or(max(0, o.Workers), runtime.GOMAXPROCS(0))
	o.MaxChunks = cmp.Or(max(0, o.MaxChunks), defaultMaxChunks)
	x := &Index{dir: dir, o: o, table: table, space: space{table.name(), table.dims}}
	if o.Embedder != nil {
		x.space = o.Embedder.space()
	}
	x.current.Store(newSnapshot(nil, nil))
	if dir == "" {
		return x, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "code search: the folder of the index cannot be made: %w", err)
	}
	unlock, err := lock(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	x.load()
	return x, nil
}

// Stats report the results of an Update.
type Stats struct {
	Files, Chunks  int // in the index now
	Indexed        int // files that were analysed
	Removed        int
	Skipped        int  // files that could not be read
	Rebuilt        bool // the index on disk was damaged or made with other settings
	FirstOfSkipped error
}

// Update updates the index to the state of the files: it analyses new and changed ones, and drops those that are no
// longer given. If files fails, the index stays as it was. If only the disk or the embedder fails, the index is up to
// date as far as possible, and there is an error beside the stats.
func (x *Index) Update(ctx context.Context, files iter.Seq2[File, error]) (Stats, error) {
	x.update.Lock()
	defer x.update.Unlock()
	if x.dir != "" {
		unlock, err := lock(ctx, x.dir)
		if err != nil {
			return Stats{}, err
		}
		defer unlock()
		x.load()
	}
	u := newUpdater(ctx, x)
	if err := u.run(files); err != nil {
		return Stats{}, updateError(err)
	}
	next, stats := u.finish()
	if next.chunks > x.o.MaxChunks {
		return Stats{}, u.tooMany()
	}
	stats.Rebuilt, x.rebuilt = x.rebuilt, false
	defer x.current.Store(next)
	if u.changed && x.dir != "" {
		if err := x.save(next); err != nil {
			return stats, tool.Errorf(tool.CodeUnavailable,
				"code search: the index cannot be written and has to be made anew each time: %w", err)
		}
	}
	return stats, u.remote
}

func updateError(err error) error {
	var e *tool.Error
	if errors.As(err, &e) {
		return err
	}
	return tool.Errorf(tool.CodeOf(err), "the files cannot be indexed: %w", err)
}

// Size returns the size of the index on disk.
func (x *Index) Size() (int64, error) {
	var size int64
	entries, err := os.ReadDir(x.dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	return size, err
}

func (x *Index) manifest() string { return filepath.Join(x.dir, "manifest") }

// An entry is a file of the index.
type entry struct {
	path   string
	size   int64
	mtime  int64 // nanoseconds; never if the file may have changed after it was read
	digest uint64
	seg    int32 // number of its segment
	file   int32 // number within it
}

// never is a time that no file has.
const never = -1 << 63

// A snapshot is one state of the index. It is immutable once it can be searched.
type snapshot struct {
	segs   []*segment
	files  []entry
	byPath map[string]int32
	owner  [][]int32 // by segment and file: its entry, or -1 if it is not part of this state
	base   []int     // by segment: the number of chunks in those before; the last is the total
	chunks int
	mean   float64 // words of a chunk
	sum    uint32  // checksum of the manifest that it was read from or written to
}

func newSnapshot(segs []*segment, files []entry) *snapshot {
	s := &snapshot{segs: segs, files: files, byPath: make(map[string]int32, len(files)), base: []int{0}}
	for i, g := range segs {
		s.owner = append(s.owner, slices.Repeat([]int32{-1}, len(g.files)-1))
		s.base = append(s.base, s.base[i]+len(g.chunks))
	}
	words := 0
	for i, f := range files {
		s.byPath[f.path] = int32(i)
		s.owner[f.seg][f.file] = int32(i)
		g := segs[f.seg]
		for c := g.files[f.file]; c < g.files[f.file+1]; c++ {
			s.chunks++
			words += int(g.chunks[c].length)
		}
	}
	s.mean = max(1, float64(words)/float64(max(1, s.chunks)))
	return s
}

// live counts the chunks of a segment that are part of this state.
func (s *snapshot) live(seg int) int {
	n := 0
	g := s.segs[seg]
	for file, owner := range s.owner[seg] {
		if owner >= 0 {
			n += int(g.files[file+1] - g.files[file])
		}
	}
	return n
}
