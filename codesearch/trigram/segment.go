package trigram

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
)

// A segment is one immutable file of the index: a table of files, and for each trigram the list of the blocks
// that have it. A block is a number of whole lines of a file: a match is within one line, so all that it needs is
// in one block, and a large file is not named because of what stands far apart in it. Blocks are numbered
// through all files of the segment.
//
// Lists lie one after the other, each the differences of rising block numbers as varints with a checksum
// behind them; they stay on disk and are read when they are asked for. The directory of trigrams and the
// table come after them, under one checksum, and are held in memory.
//
//	magic | lists ... | directory | table | footer
type segment struct {
	file  *os.File
	name  string
	files []entry
	parts []part   // by block: where it is
	grams []uint32 // sorted
	ends  []uint64 // by gram: where its list ends; it begins where the one before ends
}

// An entry is one line of the table of files.
type entry struct {
	path  string // below the root
	stamp uint64 // of the state that was read; 0: it may have changed meanwhile
	kind  kind
	// blocks is how many there are of it.
	blocks uint32
}

// A part is where a block is.
type part struct {
	file   uint32 // its number
	offset uint32 // in the file
	size   uint32
	line   uint32 // how many lines are before it
}

// A kind says what is known of a path.
type kind byte

const (
	kindText   kind = iota + 1 // its trigrams are in the lists
	kindBinary                 // no text: nothing in it matches
	kindOther                  // its trigrams are not known: it may have any
	kindFolder
	kindRules // an ignore file that no walk shows
	kindGone  // it was there in an older segment
)

const (
	magic      = "tptri01\n"
	footerSize = int64(8 + 8 + 4 + len(magic)) // start of the directory, start of the table, checksum of both
	crcSize    = 4
	maxSegment = 4 << 30
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// errCorrupt says that a file of the index is not what was written.
var errCorrupt = errors.New("the file is damaged")

// openSegment reads what is held in memory, and checks it.
func openSegment(path, name string) (*segment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &segment{file: f, name: name}
	if err := s.load(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func (s *segment) load() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size < int64(len(magic))+footerSize || size > maxSegment {
		return errCorrupt
	}
	foot := make([]byte, footerSize)
	if _, err := s.file.ReadAt(foot, size-footerSize); err != nil {
		return err
	}
	dir, table := binary.LittleEndian.Uint64(foot), binary.LittleEndian.Uint64(foot[8:])
	end := uint64(size - footerSize)
	if string(foot[20:]) != magic || dir < uint64(len(magic)) || dir > table || table > end {
		return errCorrupt
	}
	held := make([]byte, end-dir)
	if _, err := s.file.ReadAt(held, int64(dir)); err != nil {
		return err
	}
	if checksum(held) != binary.LittleEndian.Uint32(foot[16:]) {
		return errCorrupt
	}
	if err := s.readDirectory(held[:table-dir], dir); err != nil {
		return err
	}
	return s.readTable(held[table-dir:])
}

// readDirectory reads pairs of differences: to the gram before, and to where the list before ends.
func (s *segment) readDirectory(b []byte, limit uint64) error {
	r := reader{b: b}
	n := r.count(2)
	s.grams, s.ends = make([]uint32, n), make([]uint64, n)
	gram, end := uint64(0), uint64(len(magic))
	for i := range n {
		gram += r.uvarint()
		end += r.uvarint()
		s.grams[i], s.ends[i] = uint32(gram), end
	}
	if r.bad || len(r.b) > 0 || end > limit {
		return errCorrupt
	}
	return nil
}

// readTable reads entries: a kind, a stamp, how much of the path before is shared, the rest of the path, and the size
// and the number of lines of each block.
func (s *segment) readTable(b []byte) error {
	r := reader{b: b}
	n := r.count(12)
	s.files = make([]entry, n)
	last := ""
	for i := range n {
		k, stamp := kind(r.take(1)[0]), binary.LittleEndian.Uint64(r.take(8))
		shared, rest := r.uvarint(), r.uvarint()
		if shared > uint64(len(last)) || r.bad {
			return errCorrupt
		}
		last = last[:shared] + string(r.take(rest))
		s.files[i] = entry{last, stamp, k, uint32(r.count(2))}
		at := part{file: uint32(i)}
		for range s.files[i].blocks {
			at.size = uint32(r.uvarint())
			s.parts = append(s.parts, at)
			at.offset += at.size
			at.line += uint32(r.uvarint())
		}
	}
	if r.bad || len(r.b) > 0 {
		return errCorrupt
	}
	return nil
}

// list reads the block numbers of a gram. A gram that is not there has none.
func (s *segment) list(gram uint32) ([]uint32, error) {
	i, found := slices.BinarySearch(s.grams, gram)
	if !found {
		return nil, nil
	}
	start := uint64(len(magic))
	if i > 0 {
		start = s.ends[i-1]
	}
	b := make([]byte, s.ends[i]-start)
	if _, err := s.file.ReadAt(b, int64(start)); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if len(b) < crcSize || checksum(b[:len(b)-crcSize]) != binary.LittleEndian.Uint32(b[len(b)-crcSize:]) {
		return nil, fmt.Errorf("%s: %w", s.name, errCorrupt)
	}
	return s.decode(b[:len(b)-crcSize])
}

func (s *segment) decode(b []byte) ([]uint32, error) {
	ids := make([]uint32, 0, len(b))
	next := uint64(0)
	for len(b) > 0 {
		d, n := uint64(b[0]), 1
		if d >= 0x80 {
			if d, n = binary.Uvarint(b); n <= 0 {
				return nil, fmt.Errorf("%s: %w", s.name, errCorrupt)
			}
		}
		next += d
		if next >= uint64(len(s.parts)) {
			return nil, fmt.Errorf("%s: %w", s.name, errCorrupt)
		}
		ids = append(ids, uint32(next))
		next++
		b = b[n:]
	}
	return ids, nil
}

// listSize is how many bytes the list of a gram has: a cheap estimate of its length.
func (s *segment) listSize(gram uint32) uint64 {
	i, found := slices.BinarySearch(s.grams, gram)
	switch {
	case !found:
		return 0
	case i == 0:
		return s.ends[0] - uint64(len(magic))
	}
	return s.ends[i] - s.ends[i-1]
}

// A reader takes values from bytes that may be damaged; it never fails, but says so in the end.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > maxSegment {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// take returns n bytes, zeros where there are not so many left.
func (r *reader) take(n uint64) []byte {
	if uint64(len(r.b)) < n {
		r.bad, r.b = true, nil
		return make([]byte, min(n, 16))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// count reads how many things follow, each of at least so many bytes.
func (r *reader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/least) {
		r.bad, r.b = true, nil
		return 0
	}
	return int(n)
}

// A segmentWriter writes a segment: lists by rising gram, then the table.
type segmentWriter struct {
	w    *bufio.Writer
	at   uint64
	dir  []byte
	n    uint64
	last uint32 // gram
}

func newSegmentWriter(w io.Writer) *segmentWriter {
	sw := &segmentWriter{w: bufio.NewWriterSize(w, 1<<20), at: uint64(len(magic))}
	_, _ = sw.w.WriteString(magic) // finish gives the error
	return sw
}

// add writes the list of a gram, as the differences that decode reads.
func (w *segmentWriter) add(gram uint32, list []byte) {
	_, _ = w.w.Write(list) // finish gives the error
	_, _ = w.w.Write(binary.LittleEndian.AppendUint32(nil, checksum(list)))
	length := uint64(len(list) + crcSize)
	w.dir = binary.AppendUvarint(w.dir, uint64(gram-w.last))
	w.dir = binary.AppendUvarint(w.dir, length)
	w.last = gram
	w.at += length
	w.n++
}

// finish writes the rest. Parts are those of all files, one after the other.
func (w *segmentWriter) finish(files []entry, parts []part) error {
	held := append(binary.AppendUvarint(nil, w.n), w.dir...)
	table := w.at + uint64(len(held))
	held = binary.AppendUvarint(held, uint64(len(files)))
	last := ""
	for _, f := range files {
		held = append(held, byte(f.kind))
		held = binary.LittleEndian.AppendUint64(held, f.stamp)
		shared := sharedPrefix(last, f.path)
		held = binary.AppendUvarint(held, uint64(shared))
		held = binary.AppendUvarint(held, uint64(len(f.path)-shared))
		held = append(held, f.path[shared:]...)
		held = binary.AppendUvarint(held, uint64(f.blocks))
		for i, p := range parts[:f.blocks] {
			lines := uint32(0)
			if i+1 < int(f.blocks) {
				lines = parts[i+1].line - p.line
			}
			held = binary.AppendUvarint(binary.AppendUvarint(held, uint64(p.size)), uint64(lines))
		}
		parts = parts[f.blocks:]
		last = f.path
	}
	_, _ = w.w.Write(held) // Flush gives the error
	foot := binary.LittleEndian.AppendUint64(nil, w.at)
	foot = binary.LittleEndian.AppendUint64(foot, table)
	foot = binary.LittleEndian.AppendUint32(foot, checksum(held))
	_, _ = w.w.Write(append(foot, magic...))
	return w.w.Flush()
}

func sharedPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
