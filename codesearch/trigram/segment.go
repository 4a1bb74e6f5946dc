package trigram

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"toolpost/codesearch/disk"
)

// A segment is one immutable file of the index: a table of files, and for each trigram the list of the blocks that
// contain it. A block is a number of whole lines of a file. A match is within one line, so everything it needs is in one
// block, and a large file is not selected because of texts that are far apart in it. Blocks are numbered across all files
// of the segment.
//
// Lists follow one another, each as the differences of rising block numbers in varints, followed by a checksum. They stay
// on disk and are read on demand. The directory of trigrams and the table come after them, under one checksum, and are
// held in memory.
//
//	magic | lists ... | directory | table | footer
type segment struct {
	file  *os.File
	name  string
	files []entry
	parts []part   // by block: its place
	grams []uint32 // sorted
	ends  []uint64 // by gram: the end of its list, at which the next list begins
}

// An entry is one row of the table of files.
type entry struct {
	path  string // below the root
	stamp uint64 // of the state that was read; 0 if it may have changed since
	kind  kind
	// blocks is the number of its blocks.
	blocks uint32
}

func (e *entry) isFile() bool {
	return e.kind == kindText || e.kind == kindBinary || e.kind == kindOther
}

// A part is the place of a block.
type part struct {
	file   uint32 // number of the file
	offset uint32 // in the file
	size   uint32
	line   uint32 // number of lines before it
}

// A kind describes what is known of a path.
type kind byte

const (
	kindText   kind = iota + 1 // its trigrams are in the lists
	kindBinary                 // not text: nothing in it matches
	kindOther                  // its trigrams are unknown: it may contain any
	kindFolder
	kindRules // an ignore file that no walk shows
	kindGone  // it existed in an older segment
)

const (
	magic      = "tptri01\n"
	footerSize = int64(8 + 8 + 4 + len(magic)) // start of the directory, start of the table, checksum of both
	crcSize    = 4
	maxSegment = 4 << 30
)

// errCorrupt reports that a file of the index is not as it was written.
var errCorrupt = errors.New("the file is damaged")

// openSegment reads the part that is held in memory, and checks it.
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
	if disk.Checksum(held) != binary.LittleEndian.Uint32(foot[16:]) {
		return errCorrupt
	}
	if err := s.readDirectory(disk.NewReader(held[:table-dir]), dir); err != nil {
		return err
	}
	return s.readTable(disk.NewReader(held[table-dir:]))
}

// readDirectory reads pairs of differences: to the previous gram, and to the end of the previous list.
func (s *segment) readDirectory(r *disk.Reader, limit uint64) error {
	n := r.Count(2)
	s.grams, s.ends = make([]uint32, n), make([]uint64, n)
	gram, end := uint64(0), uint64(len(magic))
	for i := range n {
		gram += r.Number(maxSegment)
		end += r.Number(maxSegment)
		s.grams[i], s.ends[i] = uint32(gram), end
	}
	if !r.Whole() || end > limit {
		return errCorrupt
	}
	return nil
}

// readTable reads entries: a kind, a stamp, how much of the previous path is shared, the rest of the path, and the size
// and the number of lines of each block.
func (s *segment) readTable(r *disk.Reader) error {
	n := r.Count(12)
	s.files = make([]entry, n)
	last := ""
	for i := range n {
		k, stamp, shared := kind(r.Byte()), r.Uint64(), r.Number(uint64(len(last)))
		last = last[:shared] + r.String()
		s.files[i] = entry{last, stamp, k, uint32(r.Count(2))}
		at := part{file: uint32(i)}
		for range s.files[i].blocks {
			at.size = uint32(r.Number(maxSegment))
			s.parts = append(s.parts, at)
			at.offset += at.size
			at.line += uint32(r.Number(maxSegment))
		}
	}
	if !r.Whole() {
		return errCorrupt
	}
	return nil
}

// place returns the place of a gram's list, or an empty place if the segment does not have the gram.
func (s *segment) place(gram uint32) (from, to uint64) {
	i, found := slices.BinarySearch(s.grams, gram)
	switch {
	case !found:
		return 0, 0
	case i == 0:
		return uint64(len(magic)), s.ends[0]
	}
	return s.ends[i-1], s.ends[i]
}

// list reads the block numbers of a gram. A gram that the segment does not have has none.
func (s *segment) list(gram uint32) ([]uint32, error) {
	from, to := s.place(gram)
	if from == to {
		return nil, nil
	}
	b := make([]byte, to-from)
	if _, err := s.file.ReadAt(b, int64(from)); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	end := len(b) - crcSize
	if end < 0 || disk.Checksum(b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return nil, fmt.Errorf("%s: %w", s.name, errCorrupt)
	}
	return s.decode(b[:end])
}

func (s *segment) decode(b []byte) ([]uint32, error) {
	ids := make([]uint32, 0, len(b))
	next := uint64(0)
	for len(b) > 0 {
		d, n := uint64(b[0]), 1
		if d >= 0x80 {
			d, n = binary.Uvarint(b)
		}
		next += d
		if n <= 0 || next >= uint64(len(s.parts)) {
			return nil, fmt.Errorf("%s: %w", s.name, errCorrupt)
		}
		ids = append(ids, uint32(next))
		next++
		b = b[n:]
	}
	return ids, nil
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
	_, _ = sw.w.WriteString(magic) // finish returns the error
	return sw
}

// add writes the list of a gram, as the differences that decode reads.
func (w *segmentWriter) add(gram uint32, list []byte) {
	_, _ = w.w.Write(list) // finish returns the error
	_, _ = w.w.Write(binary.LittleEndian.AppendUint32(nil, disk.Checksum(list)))
	length := uint64(len(list) + crcSize)
	w.dir = binary.AppendUvarint(w.dir, uint64(gram-w.last))
	w.dir = binary.AppendUvarint(w.dir, length)
	w.last = gram
	w.at += length
	w.n++
}

// finish writes the rest. Parts are those of all files in order.
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
	_, _ = w.w.Write(held) // Flush returns the error
	foot := binary.LittleEndian.AppendUint64(nil, w.at)
	foot = binary.LittleEndian.AppendUint64(foot, table)
	foot = binary.LittleEndian.AppendUint32(foot, disk.Checksum(held))
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
