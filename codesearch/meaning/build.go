package meaning

import (
	"cmp"
	"slices"
)

// A list is the postings of one word while a segment is being made.
type list struct {
	token uint32
	prev  int32
	bytes []byte
}

// A builder makes a segment of analysed files, or of what is left of older segments.
type builder struct {
	s     segment
	lists []list
	index map[Token]int32
}

func newBuilder(dims int) *builder {
	return &builder{s: segment{dims: dims, files: []int32{0}}, index: map[Token]int32{}}
}

// add takes the chunks of one more file.
func (b *builder) add(a *analysed) {
	base := len(b.s.chunks)
	for i, c := range a.chunks {
		c.file = int32(len(b.s.files) - 1)
		b.s.chunks = append(b.s.chunks, c)
		for _, t := range a.termsOf(i) {
			b.post(t.Token, base+i, int(t.Count))
		}
	}
	b.s.codes = append(b.s.codes, a.codes...)
	b.s.files = append(b.s.files, int32(len(b.s.chunks)))
}

func (b *builder) post(t Token, chunk, count int) {
	n, ok := b.index[t]
	if !ok {
		n = int32(len(b.lists))
		b.index[t] = n
		b.lists = append(b.lists, list{token: uint32(t), prev: -1})
	}
	l := &b.lists[n]
	l.bytes = appendPosting(l.bytes, int(l.prev), chunk, count)
	l.prev = int32(chunk)
}

// take carries files of an older segment over. It gives nothing for a file that is no longer wanted.
func (b *builder) take(old *segment, wanted func(file int) bool) {
	moved := make([]int32, len(old.chunks))
	for file := range len(old.files) - 1 {
		keep := wanted(file)
		for i := old.files[file]; i < old.files[file+1]; i++ {
			moved[i] = -1
			if keep {
				c := old.chunks[i]
				c.file = int32(len(b.s.files) - 1)
				moved[i] = int32(len(b.s.chunks))
				b.s.chunks = append(b.s.chunks, c)
				b.s.codes = append(b.s.codes, old.codes[int(i)*old.dims/2:(int(i)+1)*old.dims/2]...)
			}
		}
		if keep {
			b.s.files = append(b.s.files, int32(len(b.s.chunks)))
		}
	}
	for n, t := range old.terms {
		old.postingsAt(n, func(chunk, count int) {
			if moved[chunk] >= 0 {
				b.post(Token(t), int(moved[chunk]), count)
			}
		})
	}
}

// segment finishes. The builder is of no use afterwards.
func (b *builder) segment() *segment {
	slices.SortFunc(b.lists, func(x, y list) int { return cmp.Compare(x.token, y.token) })
	s := &b.s
	total := 0
	for _, l := range b.lists {
		total += len(l.bytes)
	}
	s.posts = make([]byte, 0, total)
	s.terms, s.ends = make([]uint32, len(b.lists)), make([]uint32, len(b.lists))
	for i, l := range b.lists {
		s.posts = append(s.posts, l.bytes...)
		s.terms[i], s.ends[i] = l.token, uint32(len(s.posts))
	}
	s.derive()
	return s
}
