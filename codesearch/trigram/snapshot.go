package trigram

import (
	"cmp"
	"slices"
	"strings"
)

// A snapshot is what the index knows at one time: for each path the newest entry of all segments.
type snapshot struct {
	segs  []*segment // oldest first
	known []known    // sorted by path
	place [][]int32  // by segment and file: its place in known, or one of the two below
}

const (
	replaced = -1 // a newer segment has the path
	gone     = -2 // this says that the path is gone, and nothing newer says otherwise
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
	// The newest comes first among those with the same path, and is kept.
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

// lookup finds a path.
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

// alive counts the files of a segment that no newer one has.
func (s *snapshot) alive(seg int) int {
	n := 0
	for _, p := range s.place[seg] {
		if p >= 0 {
			n++
		}
	}
	return n
}
