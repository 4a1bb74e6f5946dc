package meaning

// compact drops segments that nobody uses, and melts together those that have shrunk or that are small beside what
// came before them, so that their number stays small and each chunk is rewritten only a few times.
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

// melt makes one segment of those from a number on.
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
