package meaning

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/bits"
	"sort"

	"toolpost/codesearch/split"
)

// A chunk is a part of a file as the index knows it.
type chunk struct {
	file               int32 // number within the segment
	line, last, define int32
	kind               split.Kind
	name, owner        string
	hash               uint32 // of the text
	length             int32  // words
}

// A segment is an immutable piece of an index: the chunks of some files, their vectors, and for every word the chunks
// that have it.
type segment struct {
	name   string // of its file on disk
	size   int64
	files  []int32 // first chunk of each file, and one more
	chunks []chunk
	dims   int
	codes  []byte    // vectors in four bits a dimension
	norms  []float32 // their lengths
	signs  []uint64  // the sign of each dimension, dims/64 words a chunk
	terms  []uint32  // tokens in order
	ends   []uint32  // where the postings of each end
	counts []uint32  // how many chunks have it
	posts  []byte
}

const segmentMagic = "tpmean01"

// errDamaged means that a file of the index is not what was written.
var errDamaged = errors.New("the index on disk is damaged")

// Kinds on disk.
var kinds = [...]split.Kind{split.Block, split.Function, split.Type, split.Section}

const sameOwner = 0x80

// encode makes the file of a segment.
func (s *segment) encode() []byte {
	b := make([]byte, 0, len(s.codes)+len(s.posts)+len(s.terms)*4+len(s.chunks)*32+64)
	b = append(b, segmentMagic...)
	for _, n := range []int{len(s.files) - 1, len(s.chunks), s.dims, len(s.terms), len(s.posts)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for i := 1; i < len(s.files); i++ {
		b = binary.AppendUvarint(b, uint64(s.files[i]-s.files[i-1]))
	}
	owner := ""
	for i := range s.chunks {
		b = s.chunks[i].encode(b, owner)
		owner = s.chunks[i].owner
	}
	b = append(b, s.codes...)
	prev, end := uint32(0), uint32(0)
	for i, t := range s.terms {
		b = binary.AppendUvarint(b, uint64(t-prev))
		b = binary.AppendUvarint(b, uint64(s.counts[i]))
		b = binary.AppendUvarint(b, uint64(s.ends[i]-end))
		prev, end = t, s.ends[i]
	}
	b = append(b, s.posts...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

func (c *chunk) encode(b []byte, owner string) []byte {
	k := byte(0)
	for i, kind := range kinds {
		if kind == c.kind {
			k = byte(i)
		}
	}
	if c.owner == owner {
		k |= sameOwner
	}
	b = append(b, k)
	for _, n := range []int32{c.line, c.last - c.line, c.define - c.line, c.length} {
		b = binary.AppendVarint(b, int64(n))
	}
	b = binary.LittleEndian.AppendUint32(b, c.hash)
	b = appendString(b, c.name)
	if c.owner != owner {
		b = appendString(b, c.owner)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeSegment reads the file of a segment. Whatever the bytes are, it gives a sound segment or errDamaged.
func decodeSegment(b []byte) (*segment, error) {
	body, ok := unseal(b, segmentMagic)
	if !ok {
		return nil, errDamaged
	}
	r := &reader{b: body}
	files, chunks, dims, terms, posts := r.count(), r.count(), r.number(), r.count(), r.count()
	if r.bad || dims > maxDims || dims%64 != 0 || chunks > 0 && dims/2 > len(body)/chunks {
		return nil, errDamaged
	}
	s := &segment{dims: dims, size: int64(len(b))}
	s.readFiles(r, files, chunks)
	s.readChunks(r, chunks)
	s.codes = r.bytes(chunks * dims / 2)
	s.readTerms(r, terms, posts)
	s.posts = r.bytes(posts)
	if r.bad || len(r.b) != r.at {
		return nil, errDamaged
	}
	s.derive()
	return s, nil
}

// unseal checks the beginning and the checksum of a file and gives what is between.
func unseal(b []byte, magic string) ([]byte, bool) {
	if len(b) < len(magic)+4 || string(b[:len(magic)]) != magic {
		return nil, false
	}
	end := len(b) - 4
	return b[len(magic):end], crc32.Checksum(b[:end], castagnoli()) == le32(b[end:])
}

func (s *segment) readFiles(r *reader, files, chunks int) {
	s.files = make([]int32, 1, files+1)
	at := 0
	for range files {
		at += r.count()
		s.files = append(s.files, int32(at))
	}
	r.check(at == chunks)
}

func (s *segment) readChunks(r *reader, chunks int) {
	s.chunks = make([]chunk, chunks)
	file, owner := int32(0), ""
	for i := range s.chunks {
		for int(file)+1 < len(s.files) && int32(i) >= s.files[file+1] {
			file++
		}
		c := &s.chunks[i]
		c.file = file
		k := r.byte()
		r.check(int(k&^sameOwner) < len(kinds))
		if r.bad {
			return
		}
		c.kind = kinds[k&^sameOwner]
		c.line = r.int32()
		c.last, c.define, c.length = c.line+r.int32(), c.line+r.int32(), r.int32()
		c.hash = r.uint32()
		c.name = r.string()
		if k&sameOwner == 0 {
			owner = r.string()
		}
		c.owner = owner
		r.check(c.length >= 0)
	}
}

func (s *segment) readTerms(r *reader, terms, posts int) {
	s.terms, s.counts, s.ends = make([]uint32, terms), make([]uint32, terms), make([]uint32, terms)
	token, end := uint64(0), uint64(0)
	for i := range terms {
		step := r.uvarint()
		r.check(step > 0 || i == 0)
		token += step
		s.counts[i] = uint32(r.count())
		end += uint64(r.count())
		s.terms[i], s.ends[i] = uint32(token), uint32(end)
		r.check(token <= math.MaxUint32 && end <= uint64(posts))
		if r.bad {
			return
		}
	}
	r.check(end == uint64(posts))
}

// derive computes what is not on disk.
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
			two := uint64(c>>3)&1 | uint64(c>>7)<<1 // 8 and above stand for 0 and more
			signs[d/32] |= two << (2 * (d % 32))
		}
		s.norms[i] = float32(math.Sqrt(float64(sum)))
	}
}

// pack brings a vector into four bits a dimension. Only its direction is kept.
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

// distance counts the dimensions in which a chunk points the other way.
func (s *segment) distance(i int, signs []uint64) int {
	own := s.signs[i*len(signs) : (i+1)*len(signs)]
	n := 0
	for k, x := range signs {
		n += bits.OnesCount64(x ^ own[k])
	}
	return n
}

// cosine compares a chunk with a question's vector, whose length is 1.
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

// postings calls each for every chunk that has a word.
func (s *segment) postings(t Token, each func(chunk, count int)) {
	i := sort.Search(len(s.terms), func(i int) bool { return s.terms[i] >= uint32(t) })
	if i < len(s.terms) && s.terms[i] == uint32(t) {
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

// appendPosting adds a chunk to a word's list; prev is the one before it, -1 at the beginning.
func appendPosting(b []byte, prev, at, count int) []byte {
	x := uint64(at-prev) << 1
	if count == 1 {
		return binary.AppendUvarint(b, x)
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, x|1), uint64(count))
}
