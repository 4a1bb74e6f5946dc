package grep

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"toolpost/host/workspace"
)

// What a search may cost where its options say nothing.
const (
	DefaultMaxFile  = 64 << 20
	DefaultMaxBytes = 8 << 20
	// firstRead is enough for most files, and to see that one is no text.
	firstRead = 64 << 10
	// maxPending bounds what is held of files that were done before their turn.
	maxPending = 16 << 20
)

// Options say how a search is done. The zero value gives every line of every file.
type Options struct {
	Shape
	Limit    int   // at most so many lines; 0: all
	MaxBytes int   // at most so many bytes of lines; 0: DefaultMaxBytes
	MaxFile  int64 // larger files are not searched; 0: DefaultMaxFile
	Workers  int   // 0: one for each processor
}

// A File is a file with lines that match.
type File struct {
	Path    string // as it is shown to the caller
	Matches []Match
}

// Stats tell how a search went.
type Stats struct {
	Files    int  `json:"files"`               // searched
	Bytes    int  `json:"bytes"`               // of them
	Binary   int  `json:"binary,omitempty"`    // left out: no text
	TooLarge int  `json:"too_large,omitempty"` // left out: larger than a file may be
	Matches  int  `json:"matches"`
	More     bool `json:"more,omitempty"` // a limit was met: there are lines that are not given
}

// A search is one under way.
type search struct {
	o       Options
	pattern *Pattern
	emit    func(File) error
	workers sync.Pool // of *worker
	forget  func() bool

	files, bytes, binary, tooLarge atomic.Int64

	mu      sync.Mutex
	turn    sync.Cond
	next    int // the number of the file whose turn it is
	waiting map[int]result
	pending int // bytes of waiting
	given   int // bytes of matches that were emitted
	matches int
	more    bool
	err     error // why it ended early
}

// A result is what came of one file.
type result struct {
	file  File
	bytes int
	more  bool
}

// A worker is what one goroutine needs.
type worker struct {
	matcher *Matcher
	buf     []byte
}

func newSearch(ctx context.Context, p *Pattern, o Options, emit func(File) error) *search {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxFile == 0 {
		o.MaxFile = DefaultMaxFile
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Limit > 0 && (o.PerFile == 0 || o.PerFile > o.Limit) {
		o.PerFile = o.Limit
	}
	s := &search{o: o, pattern: p, emit: emit, waiting: map[int]result{}}
	s.turn.L = &s.mu
	s.workers.New = func() any { return &worker{matcher: p.Matcher(ctx), buf: make([]byte, firstRead)} }
	s.forget = context.AfterFunc(ctx, func() { s.cancel(ctx.Err()) })
	return s
}

// cancel ends the search. Who waits for a turn that never comes now is woken.
func (s *search) cancel(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.turn.Broadcast()
}

// Walk searches what a walk comes to. Emit gets the files that match, one after the other, in the order of
// their paths; an error from it ends the search.
func Walk(
	ctx context.Context, v *workspace.View, path string, w workspace.WalkOptions, shown func(below string) string,
	p *Pattern, o Options, emit func(File) error,
) (Stats, error) {
	s := newSearch(ctx, p, o, emit)
	w.Parallel = max(2, s.o.Workers)
	err := v.Walk(ctx, path, w, func(e *workspace.Entry) error {
		if e.Type != 0 {
			return s.skip(e.Seq)
		}
		open := func() (*workspace.File, []Part, error) {
			f, err := e.Open()
			return f, nil, err
		}
		return s.file(e.Seq, open, func() string { return shown(e.Below()) })
	})
	return s.end(ctx, err)
}

// A Part is some whole lines of a file.
type Part struct {
	Offset, Size int
	Line         int // how many lines are before it
}

// A Source gives the files of a search, by their numbers.
type Source interface {
	Len() int
	// Open gives a file and which parts of it are to be searched; nil: all of it. One that cannot be opened (any more)
	// is left out.
	Open(i int) (*workspace.File, []Part, error)
	// Shown is the file's path for the caller.
	Shown(i int) string
}

// Files searches files one after the other. Emit is as in Walk.
func Files(ctx context.Context, src Source, p *Pattern, o Options, emit func(File) error) (Stats, error) {
	s := newSearch(ctx, p, o, emit)
	var taken atomic.Int64
	var workers sync.WaitGroup
	for range min(s.o.Workers, src.Len()) {
		workers.Go(func() {
			for i := int(taken.Add(1)) - 1; i < src.Len() && ctx.Err() == nil; i = int(taken.Add(1)) - 1 {
				open := func() (*workspace.File, []Part, error) { return src.Open(i) }
				if s.file(i, open, func() string { return src.Shown(i) }) != nil {
					return
				}
			}
		})
	}
	workers.Wait()
	return s.end(ctx, nil)
}

// end tells how it went.
func (s *search) end(ctx context.Context, err error) (Stats, error) {
	s.forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil && !errors.Is(s.err, fs.SkipAll):
		err = s.err
	case err == nil:
		err = ctx.Err()
	}
	return Stats{
		Files: int(s.files.Load()), Bytes: int(s.bytes.Load()), Binary: int(s.binary.Load()),
		TooLarge: int(s.tooLarge.Load()), Matches: s.matches, More: s.more,
	}, err
}

// file searches the file with a number. Every number gets its turn, also one without a file.
func (s *search) file(seq int, open func() (*workspace.File, []Part, error), shown func() string) error {
	f, parts, err := open()
	if err != nil {
		return s.skip(seq) // gone meanwhile, or not for this caller
	}
	defer f.Close()
	if f.Size() > s.o.MaxFile {
		s.tooLarge.Add(1)
		return s.skip(seq)
	}
	if parts == nil || s.o.Before > 0 || s.o.After > 0 { // lines around a match may be in another part
		parts = []Part{{Size: int(f.Size())}}
	}
	w := s.workers.Get().(*worker)
	defer s.workers.Put(w)
	r, ok := s.parts(w, f, parts)
	if !ok {
		s.binary.Add(1)
		return s.skip(seq)
	}
	s.files.Add(1)
	if len(r.file.Matches) > 0 {
		r.file.Path = shown()
	}
	return s.deliver(seq, r)
}

// parts searches parts of a file. It is not ok when the file is no text.
func (s *search) parts(w *worker, f *workspace.File, parts []Part) (r result, ok bool) {
	for _, p := range parts {
		text, err := w.read(f, p)
		switch {
		case err != nil:
			return r, true
		case p.Offset == 0 && Binary(text):
			return r, false
		}
		s.bytes.Add(int64(len(text)))
		shape := s.o.Shape
		if left := shape.PerFile - len(r.file.Matches); shape.PerFile > 0 {
			shape.PerFile = cmp.Or(left, -1) // none is wanted, only whether there is one
		}
		found, more := w.matcher.Lines(text, p.Line, shape)
		for i := range found {
			r.bytes += found[i].Size()
		}
		if r.file.Matches == nil {
			r.file.Matches = found
		} else {
			r.file.Matches = append(r.file.Matches, found...)
		}
		if r.more = more; more {
			break
		}
	}
	return r, true
}

// Size is how many bytes of lines a match has.
func (m *Match) Size() int {
	n := len(m.Content)
	if m.Around != nil {
		for _, l := range slices.Concat(m.Around.Before, m.Around.After) {
			n += len(l)
		}
	}
	return n
}

// read reads a part of a file: one that grows meanwhile is not followed. Of a file that is no text it reads the
// beginning.
func (w *worker) read(f *workspace.File, p Part) ([]byte, error) {
	n := 0
	for n < p.Size {
		if n == len(w.buf) {
			if p.Offset == 0 && Binary(w.buf[:n]) {
				break
			}
			w.buf = append(make([]byte, 0, p.Size), w.buf...)[:p.Size]
		}
		k, err := unix.Pread(f.Fd(), w.buf[n:min(p.Size, len(w.buf))], int64(p.Offset+n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k == 0 {
			break
		}
		n += k
	}
	return w.buf[:n], nil
}

// skip gives a number its turn without a file.
func (s *search) skip(seq int) error { return s.deliver(seq, result{}) }

// deliver hands a result over when its turn comes. Who is too far ahead waits: the one whose turn it is never
// does, so the wait has an end.
func (s *search) deliver(seq int, r result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r.bytes > 0 && s.pending > maxPending && seq != s.next && s.err == nil {
		s.turn.Wait()
	}
	if s.err != nil {
		return s.err
	}
	s.waiting[seq] = r
	s.pending += r.bytes
	for {
		r, ok := s.waiting[s.next]
		if !ok {
			break
		}
		delete(s.waiting, s.next)
		s.pending -= r.bytes
		s.next++
		s.give(r)
	}
	s.turn.Broadcast()
	return s.err
}

// give emits a result as far as the limits allow.
func (s *search) give(r result) {
	if s.err != nil || len(r.file.Matches) == 0 {
		return
	}
	s.more = s.more || r.more
	if room := s.o.Limit - s.matches; s.o.Limit > 0 && len(r.file.Matches) > room {
		r.file.Matches = r.file.Matches[:room]
		s.more = true
		s.err = fs.SkipAll
	}
	for i := range r.file.Matches {
		if s.given += r.file.Matches[i].Size(); s.given > s.o.MaxBytes {
			r.file.Matches = r.file.Matches[:i]
			s.more = true
			s.err = fs.SkipAll
			break
		}
	}
	if s.matches += len(r.file.Matches); s.more && s.o.Limit > 0 && s.matches >= s.o.Limit {
		s.err = fs.SkipAll
	}
	if len(r.file.Matches) == 0 {
		return
	}
	if err := s.emit(r.file); err != nil {
		s.err = err
	}
}
