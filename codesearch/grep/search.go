package grep

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"toolpost/host/workspace"
)

// Default limits of a search.
const (
	DefaultMaxFile  = 64 << 20
	DefaultMaxBytes = 8 << 20
	// firstRead is enough for most files, and to recognise a binary one.
	firstRead = 64 << 10
	// maxPending bounds the results held of files that finished before their turn.
	maxPending = 16 << 20
)

// Options configure a search. The zero value returns every line of every file.
type Options struct {
	Shape
	Limit    int   // maximum number of lines; 0 means all
	MaxBytes int   // maximum number of bytes of lines; 0 means DefaultMaxBytes
	MaxFile  int64 // larger files are skipped; 0 means DefaultMaxFile
}

// A File is a file with lines that match.
type File struct {
	Path    string // as it is shown to the caller
	Matches []Match
}

// Stats report how a search went.
type Stats struct {
	Files    int  `json:"files"`               // files searched
	Bytes    int  `json:"bytes"`               // their bytes
	Binary   int  `json:"binary,omitempty"`    // files skipped because they are binary
	TooLarge int  `json:"too_large,omitempty"` // files skipped because of their size
	Matches  int  `json:"matches"`
	More     bool `json:"more,omitempty"` // a limit was reached and lines are missing
}

// A Search finds lines in one folder or list of files after the other. Its limits apply to all of them together.
type Search struct {
	ctx     context.Context
	o       Options
	emit    func(File) error
	workers sync.Pool // of *worker

	mu      sync.Mutex
	turn    sync.Cond
	next    int // the number of the file whose turn it is
	waiting map[int]result
	pending int // bytes of waiting
	given   int // bytes of matches emitted
	stats   Stats
	err     error // why the search ended early
}

// A result is the result of one file.
type result struct {
	file  File
	size  int   // of its matches
	stats Stats // without the matches, which count once they are emitted
}

// A worker is the state of one goroutine.
type worker struct {
	matcher *Matcher
	buf     []byte
}

// NewSearch makes a search. Emit receives the matching files one after the other, in the order of their paths; if it
// returns an error, the search ends.
func NewSearch(ctx context.Context, p *Pattern, o Options, emit func(File) error) *Search {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.MaxFile = cmp.Or(o.MaxFile, DefaultMaxFile)
	if o.Limit > 0 && (o.PerFile == 0 || o.PerFile > o.Limit) {
		o.PerFile = o.Limit
	}
	s := &Search{ctx: ctx, o: o, emit: emit}
	s.turn.L = &s.mu
	s.workers.New = func() any { return &worker{matcher: p.Matcher(ctx), buf: make([]byte, firstRead)} }
	return s
}

// Stats returns the statistics so far.
func (s *Search) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Walk searches the files that a walk reaches.
func (s *Search) Walk(
	v *workspace.View, path string, w workspace.WalkOptions, shown func(below string) string,
) error {
	w.Parallel = max(2, runtime.GOMAXPROCS(0))
	return s.run(func() error {
		return v.Walk(s.ctx, path, w, func(e *workspace.Entry) error {
			var f *workspace.File
			if e.Type == 0 {
				f, _ = e.Open() // nil if the file is gone or this caller may not read it
			}
			return s.file(e.Seq, f, nil, func() string { return shown(e.Below()) })
		})
	})
}

// A Part is some whole lines of a file.
type Part struct {
	Offset, Size int
	Line         int // number of lines before it
}

// Files searches n files. Open returns a file, or nil if it cannot be opened, and the parts of it to search; nil parts
// mean the whole file. Shown returns its path for the caller.
func (s *Search) Files(n int, open func(i int) (*workspace.File, []Part), shown func(i int) string) error {
	return s.run(func() error {
		var taken atomic.Int64
		var workers sync.WaitGroup
		for range min(runtime.GOMAXPROCS(0), n) {
			workers.Go(func() {
				for i := int(taken.Add(1)) - 1; i < n && s.ctx.Err() == nil; i = int(taken.Add(1)) - 1 {
					f, parts := open(i)
					if s.file(i, f, parts, func() string { return shown(i) }) != nil {
						return
					}
				}
			})
		}
		workers.Wait()
		return nil
	})
}

// run searches files, numbered from 0. When ctx ends, it wakes the goroutines that wait for a turn that will not come.
func (s *Search) run(search func() error) error {
	defer context.AfterFunc(s.ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = cmp.Or(s.err, s.ctx.Err())
		s.turn.Broadcast()
	})()
	s.next, s.waiting, s.pending = 0, map[int]result{}, 0
	err := search()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil && !errors.Is(s.err, fs.SkipAll):
		return s.err
	case err == nil:
		return s.ctx.Err()
	}
	return err
}

// file searches the file with a number, and closes it. Every number gets its turn, even if it has no file.
func (s *Search) file(seq int, f *workspace.File, parts []Part, shown func() string) error {
	if f == nil {
		return s.deliver(seq, result{})
	}
	defer f.Close()
	if f.Size() > s.o.MaxFile {
		return s.deliver(seq, result{stats: Stats{TooLarge: 1}})
	}
	if parts == nil || s.o.Before > 0 || s.o.After > 0 { // context lines may be in another part
		parts = []Part{{Size: int(f.Size())}}
	}
	w := s.workers.Get().(*worker)
	defer s.workers.Put(w)
	r := s.parts(w, f, parts)
	if len(r.file.Matches) > 0 {
		r.file.Path = shown()
	}
	return s.deliver(seq, r)
}

// parts searches parts of a file, unless it is binary.
func (s *Search) parts(w *worker, f *workspace.File, parts []Part) result {
	r := result{stats: Stats{Files: 1}}
	for _, p := range parts {
		text, err := w.read(f, p)
		switch {
		case err != nil:
			return r
		case p.Offset == 0 && Binary(text):
			return result{stats: Stats{Binary: 1}}
		}
		r.stats.Bytes += len(text)
		shape := s.o.Shape
		if left := shape.PerFile - len(r.file.Matches); shape.PerFile > 0 {
			shape.PerFile = cmp.Or(left, -1) // no more matches are wanted, only whether there is one
		}
		found, more := w.matcher.Lines(text, p.Line, shape)
		for i := range found {
			r.size += found[i].Size()
		}
		if r.file.Matches == nil {
			r.file.Matches = found
		} else {
			r.file.Matches = append(r.file.Matches, found...)
		}
		if r.stats.More = more; more {
			break
		}
	}
	return r
}

// Size returns the number of bytes of a match's lines.
func (m *Match) Size() int {
	n := len(m.Content)
	if m.Around != nil {
		for _, l := range slices.Concat(m.Around.Before, m.Around.After) {
			n += len(l)
		}
	}
	return n
}

// read reads p.Size bytes of a file, even if the file has grown since. Of a binary file it reads only the beginning.
func (w *worker) read(f *workspace.File, p Part) ([]byte, error) {
	n, err := f.ReadAt(w.buf[:min(p.Size, len(w.buf))], int64(p.Offset))
	if err == nil && n < p.Size && (p.Offset > 0 || !Binary(w.buf)) {
		w.buf = append(make([]byte, 0, p.Size), w.buf...)[:p.Size]
		var rest int
		rest, err = f.ReadAt(w.buf[n:], int64(p.Offset+n))
		n += rest
	}
	if err == io.EOF {
		err = nil
	}
	return w.buf[:n], err
}

// deliver hands over a result when its turn comes. A goroutine that is too far ahead waits. The one whose turn it is
// never waits, so the wait ends.
func (s *Search) deliver(seq int, r result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Files += r.stats.Files
	s.stats.Bytes += r.stats.Bytes
	s.stats.Binary += r.stats.Binary
	s.stats.TooLarge += r.stats.TooLarge
	for r.size > 0 && s.pending > maxPending && seq != s.next && s.err == nil {
		s.turn.Wait()
	}
	if s.err != nil {
		return s.err
	}
	s.waiting[seq] = r
	s.pending += r.size
	for {
		r, ok := s.waiting[s.next]
		if !ok {
			break
		}
		delete(s.waiting, s.next)
		s.pending -= r.size
		s.next++
		s.give(r)
	}
	s.turn.Broadcast()
	return s.err
}

// give emits a result as far as the limits allow.
func (s *Search) give(r result) {
	matches := r.file.Matches
	if s.err != nil || len(matches) == 0 {
		return
	}
	room := len(matches)
	if s.o.Limit > 0 {
		room = min(room, s.o.Limit-s.stats.Matches)
	}
	for i := range room {
		if s.given += matches[i].Size(); s.given > s.o.MaxBytes {
			room = i
			break
		}
	}
	if room < len(matches) {
		s.err = fs.SkipAll
	}
	s.stats.More = s.stats.More || r.stats.More || room < len(matches)
	s.stats.Matches += room
	if s.stats.More && s.o.Limit > 0 && s.stats.Matches >= s.o.Limit {
		s.err = fs.SkipAll
	}
	if r.file.Matches = matches[:room]; room > 0 {
		if err := s.emit(r.file); err != nil {
			s.err = err
		}
	}
}
