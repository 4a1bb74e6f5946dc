package trigram

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// A snapshot is the knowledge of the index at one time: for each path the newest entry of all segments.
type snapshot struct {
	segs  []*segment // oldest first
	known []known    // sorted by path
	place [][]int32  // by segment and file: its place in known, or one of the constants below
}

const (
	replaced = -1 // a newer segment has the path
	gone     = -2 // this entry marks the path as gone, and no newer one replaces it
)

// A known is a path that the index knows.
type known struct {
	entry
	seg, file int32
}

func newSnapshot(segs []*segment) *snapshot {
	s := &snapshot{segs: segs, place: make([][]int32, len(segs))}
	for i, seg := range segs {
		s.place[i] = make([]int32, len(seg.files))
		for j, e := range seg.files {
			s.place[i][j] = replaced
			s.known = append(s.known, known{e, int32(i), int32(j)})
		}
	}
	// Of entries with the same path, the newest sorts first and is kept.
	slices.SortFunc(s.known, func(a, b known) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(b.seg, a.seg), cmp.Compare(b.file, a.file))
	})
	s.known = slices.CompactFunc(s.known, func(a, b known) bool { return a.path == b.path })
	s.known = slices.DeleteFunc(s.known, func(k known) bool {
		if k.kind == kindGone {
			s.place[k.seg][k.file] = gone
		}
		return k.kind == kindGone
	})
	for i, k := range s.known {
		s.place[k.seg][k.file] = int32(i)
	}
	return s
}

// close closes the segments; a nil snapshot has none.
func (s *snapshot) close() {
	if s != nil {
		closeAll(s.segs)
	}
}

// lookup returns the place of a path.
func (s *snapshot) lookup(path string) (int, bool) {
	if s == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(s.known, path, func(k known, path string) int {
		return strings.Compare(k.path, path)
	})
}

// below returns the places of everything below a folder; "" is the root.
func (s *snapshot) below(folder string) (from, to int) {
	if folder == "" {
		return 0, len(s.known)
	}
	from, _ = s.lookup(folder + "/")
	to, _ = s.lookup(folder + "0") // the byte after the slash
	return from, to
}

// alive counts the files of a segment that no newer one replaces.
func (s *snapshot) alive(seg int) int {
	n := 0
	for _, p := range s.place[seg] {
		if p >= 0 {
			n++
		}
	}
	return n
}

// Changed reports that something may have changed, so that the tree is read again soon.
func (x *Index) Changed() {
	select {
	case x.kick <- struct{}{}:
	default: // it is going to be read anyway
	}
}

// keep reads the tree again after changes. Between two reads it rests longer than the reading took, so that a tree that
// never rests does not keep a processor busy.
func (x *Index) keep(ctx context.Context) {
	w := &watch{root: x.root.Abs()}
	defer w.close()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.kick:
		case <-again:
		case <-w.events:
		case <-w.errors:
		}
		if _, ok := w.pause(ctx, x.o.Pause); !ok {
			return
		}
		began := time.Now()
		found, err := x.update(ctx)
		if errors.Is(err, errTooManyFiles) || ctx.Err() != nil {
			return
		}
		if err == nil {
			w.follow(found.folders)
		}
		if found != nil && found.unrest {
			again = time.After(x.o.rest)
		}
		changed, ok := w.pause(ctx, 4*time.Since(began))
		if !ok {
			return
		}
		if changed {
			x.Changed()
		}
	}
}

// update runs one refresh for keep.
func (x *Index) update(ctx context.Context) (*refresh, error) {
	if x.broken.Swap(false) {
		x.discard()
	}
	found, err := x.refresh(ctx)
	if err != nil && ctx.Err() == nil {
		x.o.Log.Warn("the code index is not up to date", "folder", x.root.Abs(), "why", err)
	}
	return found, err
}

// pause waits, and reports whether the watcher signalled a change meanwhile. It returns false if ctx has ended.
func (w *watch) pause(ctx context.Context, d time.Duration) (changed, ok bool) {
	over := time.After(d)
	for {
		select {
		case <-ctx.Done():
			return changed, false
		case <-over:
			return changed, true
		case <-w.events:
			changed = true
		case <-w.errors:
			changed = true
		}
	}
}
