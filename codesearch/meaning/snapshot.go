package meaning

import "slices"

// An entry is a file that the index has.
type entry struct {
	path   string
	size   int64
	mtime  int64 // nanoseconds; never where the file may have changed after it was read
	digest uint64
	seg    int32 // number of its segment
	file   int32 // number within it
}

// never is a time that no file has.
const never = -1 << 63

// A snapshot is one state of the index. Once it is searched it is never changed.
type snapshot struct {
	segs   []*segment
	files  []entry
	byPath map[string]int32
	owner  [][]int32 // for each segment and each of its files the entry; -1: it is not part of this state
	base   []int     // for each segment how many chunks are in those before, and in all of them
	chunks int
	mean   float64 // words of a chunk
	sum    uint32  // checksum of the manifest it was read from or written to
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
