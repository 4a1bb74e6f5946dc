package meaning

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"

	"toolpost/codesearch/disk"
	"toolpost/codesearch/split"
)

// A chunk is a part of a file as the index knows it.
type chunk struct {
	file               int32 // number within the segment
	line, last, define int32
	kind               split.Kind
	name               string
	hash               uint32 // of the text
	length             int32  // words
}

// A segment is an immutable piece of an index: the chunks of some files, their vectors, and for every word the chunks
// that contain it.
type segment struct {
	name   string // of its file on disk
	size   int64
	files  []int32 // first chunk of each file, and the total at the end
	chunks []chunk
	dims   int
	codes  []byte    // vectors in four bits per dimension
	norms  []float32 // their lengths
	signs  []uint64  // the sign of each dimension, dims/64 words per chunk
	terms  []uint32  // tokens, sorted
	ends   []uint32  // by term: the end of its postings
	posts  []byte
}

const segmentMagic = "tpmean02"

// errDamaged reports that a file of the index is not as it was written.
var errDamaged = errors.New("the index on disk is damaged")

// The kinds in the order of their numbers on disk.
var kinds = [...]split.Kind{split.Block, split.Function, split.Type, split.Section}

// encode returns the file of a segment.
func (s *segment) encode() []byte {
	b := make([]byte, 0, len(s.codes)+len(s.posts)+len(s.terms)*4+len(s.chunks)*32+64)
	b = append(b, segmentMagic...)
	b = appendNumbers(b, len(s.files)-1, len(s.chunks), s.dims, len(s.terms), len(s.posts))
	for i := 1; i < len(s.files); i++ {
		b = appendNumbers(b, s.files[i]-s.files[i-1])
	}
	for _, c := range s.chunks {
		b = append(b, byte(slices.Index(kinds[:], c.kind)))
		b = appendNumbers(b, c.line, c.last-c.line, c.define, c.length)
		b = binary.LittleEndian.AppendUint32(b, c.hash)
		b = appendString(b, c.name)
	}
	b = append(b, s.codes...)
	prev, end := uint32(0), uint32(0)
	for i, t := range s.terms {
		b = appendNumbers(b, t-prev, s.ends[i]-end)
		prev, end = t, s.ends[i]
	}
	b = append(b, s.posts...)
	return seal(b)
}

func appendNumbers[N int | int32 | uint32](b []byte, numbers ...N) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func appendString(b []byte, s string) []byte { return append(appendNumbers(b, len(s)), s...) }

// seal appends the checksum of a file.
func seal(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, disk.Checksum(b)) }

// unseal checks the magic and the checksum of a file and returns a reader of the bytes between.
func unseal(b []byte, magic string) *disk.Reader {
	end := len(b) - 4
	if end < len(magic) || string(b[:len(magic)]) != magic || disk.Checksum(b[:end]) != le32(b[end:]) {
		return &disk.Reader{Bad: true}
	}
	return disk.NewReader(b[len(magic):end])
}

// decodeSegment reads the file of a segment. For any bytes it returns either a sound segment or errDamaged.
func decodeSegment(b []byte) (*segment, error) {
	r := unseal(b, segmentMagic)
	files, chunks, dims, terms, posts := r.Count(1), r.Count(1), int(r.Number(maxDims)), r.Count(1), r.Count(1)
	if r.Check(dims%64 == 0 && chunks*dims/2 <= len(b)); r.Bad {
		return nil, errDamaged
	}
	s := &segment{dims: dims, size: int64(len(b))}
	s.readFiles(r, files, chunks)
	s.readChunks(r, chunks)
	s.codes = r.Bytes(chunks * dims / 2)
	s.readTerms(r, terms, posts)
	s.posts = r.Bytes(posts)
	if !r.Whole() {
		return nil, errDamaged
	}
	s.derive()
	return s, nil
}

func (s *segment) readFiles(r *disk.Reader, files, chunks int) {
	s.files = make([]int32, 1, files+1)
	at := 0
	for range files {
		at += r.Count(1)
		s.files = append(s.files, int32(at))
	}
	r.Check(at == chunks)
}

func (s *segment) readChunks(r *disk.Reader, chunks int) {
	number := func() int32 { return int32(r.Number(math.MaxInt32 / 2)) }
	s.chunks = make([]chunk, chunks)
	for file := range len(s.files) - 1 {
		for i := s.files[file]; i < s.files[file+1] && !r.Bad; i++ {
			kind, line := r.Byte(), number()
			if r.Check(int(kind) < len(kinds)); r.Bad {
				return
			}
			s.chunks[i] = chunk{
				file: int32(file), kind: kinds[kind], line: line, last: line + number(), define: number(),
				length: number(), hash: r.Uint32(), name: r.String(),
			}
		}
	}
}

func (s *segment) readTerms(r *disk.Reader, terms, posts int) {
	s.terms, s.ends = make([]uint32, terms), make([]uint32, terms)
	token, end := uint64(0), uint64(0)
	for i := range terms {
		step := r.Number(math.MaxUint32)
		token += step
		end += uint64(r.Count(1))
		s.terms[i], s.ends[i] = uint32(token), uint32(end)
		if r.Check((step > 0 || i == 0) && token <= math.MaxUint32 && end <= uint64(posts)); r.Bad {
			return
		}
	}
	r.Check(end == uint64(posts))
}

// derive computes the fields that are not on disk.
func (s *segment) derive() {
	n, half := len(s.chunks), s.dims/2
	s.norms = make([]float32, n)
	s.signs = make([]uint64, n*s.dims/64)
	for i := range n {
		sum := int32(0)
		signs := s.signs[i*s.dims/64 : (i+1)*s.dims/64]
		for d, c := range s.codes[i*half : (i+1)*half] {
			lo, hi := int32(c&15)-8, int32(c>>4)-8
			sum += lo*lo + hi*hi
			two := uint64(c>>3)&1 | uint64(c>>7)<<1 // 8 and above encode 0 and more
			signs[d/32] |= two << (2 * (d % 32))
		}
		s.norms[i] = float32(math.Sqrt(float64(sum)))
	}
}

// pack encodes a vector in four bits per dimension. It keeps only the direction.
func pack(v []float32, into []byte) []byte {
	top := float32(0)
	for _, x := range v {
		top = max(top, x, -x)
	}
	scale := float32(0)
	if top > 0 {
		scale = 7 / top
	}
	for i := 0; i+1 < len(v); i += 2 {
		into = append(into, nibble(v[i]*scale)|nibble(v[i+1]*scale)<<4)
	}
	return into
}

// nibble rounds a number from -7 to 7 to one from 1 to 15.
func nibble(x float32) byte { return byte(x + 8.5) }

// signsOf returns the signs of a question's vector.
func signsOf(v []float32) []uint64 {
	signs := make([]uint64, len(v)/64)
	for i, x := range v {
		if x >= 0 {
			signs[i/64] |= 1 << (i % 64)
		}
	}
	return signs
}

// distance counts the dimensions in which a chunk's sign differs.
func (s *segment) distance(i int, signs []uint64) int {
	own := s.signs[i*len(signs) : (i+1)*len(signs)]
	n := 0
	for k, x := range signs {
		n += bits.OnesCount64(x ^ own[k])
	}
	return n
}

// cosine compares a chunk with a question's vector of length 1.
func (s *segment) cosine(i int, v []float32) float32 {
	if s.norms[i] == 0 {
		return 0
	}
	codes := s.codes[i*s.dims/2 : (i+1)*s.dims/2]
	var a, b float32
	for d, c := range codes {
		a += v[2*d] * float32(int(c&15)-8)
		b += v[2*d+1] * float32(int(c>>4)-8)
	}
	return (a + b) / s.norms[i]
}

// postings calls each for every chunk that contains a word.
func (s *segment) postings(t Token, each func(chunk, count int)) {
	if i, found := slices.BinarySearch(s.terms, uint32(t)); found {
		s.postingsAt(i, each)
	}
}

func (s *segment) postingsAt(i int, each func(chunk, count int)) {
	from := uint32(0)
	if i > 0 {
		from = s.ends[i-1]
	}
	b := s.posts[from:s.ends[i]]
	for at := -1; len(b) > 0; {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return
		}
		b = b[n:]
		count := 1
		if x&1 != 0 {
			c, n := binary.Uvarint(b)
			if n <= 0 {
				return
			}
			b, count = b[n:], int(c&math.MaxUint16)
		}
		at += int(x >> 1 & math.MaxInt32)
		if at < 0 || at >= len(s.chunks) {
			return
		}
		each(at, count)
	}
}

// appendPosting adds a chunk to a word's list; prev is the previous chunk, or -1.
func appendPosting(b []byte, prev, at, count int) []byte {
	x := uint64(at-prev) << 1
	if count == 1 {
		return binary.AppendUvarint(b, x)
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, x|1), uint64(count))
}

// A list is the postings of one word while a segment is built.
type list struct {
	token uint32
	prev  int32
	bytes []byte
}

// A builder makes a segment of analysed files, or of the remains of older segments.
type builder struct {
	s     segment
	lists []list
	index map[Token]int32
}

func newBuilder(dims int) *builder {
	return &builder{s: segment{dims: dims, files: []int32{0}}, index: map[Token]int32{}}
}

// add adds the chunks of one file.
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

// take copies files of an older segment. It skips the chunks of a file that is no longer wanted.
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

// segment finishes the segment. The builder must not be used afterwards.
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
