package trigram

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// An extractor returns the trigrams of texts: every three bytes of a line, without duplicates. It is not safe for
// concurrent use.
type extractor struct {
	text  []byte   // of the file being read
	seen  []uint64 // a bit for each of the 2^24 trigrams
	grams []uint32
	all   []uint32 // of all blocks of a text
	list  []block
}

const gramBits = 24

func newExtractor() *extractor { return &extractor{seen: make([]uint64, 1<<gramBits/64)} }

// of returns the trigrams of a text, unsorted. They are valid until the next call.
func (e *extractor) of(text []byte) []uint32 {
	for _, g := range e.grams {
		e.seen[g/64] = 0
	}
	e.grams = e.grams[:0]
	gram, n := uint32(0), 0
	for _, b := range text {
		if b == '\n' {
			gram, n = 0, 0
			continue
		}
		gram = (gram<<8 | uint32(b)) & (1<<gramBits - 1)
		if n++; n < 3 {
			continue
		}
		if word, bit := &e.seen[gram/64], uint64(1)<<(gram%64); *word&bit == 0 {
			*word |= bit
			e.grams = append(e.grams, gram)
		}
	}
	return e.grams
}

// A block is a number of whole lines of a text.
type block struct {
	size, lines int
	grams       []uint32
}

// blockSize is the size of a block. Smaller blocks leave less text to search, but make a larger index.
const blockSize = 16 << 10

// blocks divides a text into blocks, which are valid until the next call.
func (e *extractor) blocks(text []byte) []block {
	e.list, e.all = e.list[:0], e.all[:0]
	for len(text) > 0 {
		end := len(text)
		if end > blockSize {
			if eol := bytes.IndexByte(text[blockSize:], '\n'); eol >= 0 {
				end = blockSize + eol + 1
			}
		}
		start := len(e.all)
		e.all = append(e.all, e.of(text[:end])...)
		e.list = append(e.list, block{end, bytes.Count(text[:end], []byte{'\n'}), e.all[start:]})
		text = text[end:]
	}
	return e.list
}

// A builder collects the lists of a segment in memory.
type builder struct {
	files []entry
	parts []part
	pages [1 << pageBits]*page // by the upper bits of a gram
	bytes int                  // of all lists
}

const pageBits = 12

// A page holds the lists of the grams that share their upper bits.
type page [1 << (gramBits - pageBits)]list

// A list is a posting list that still grows.
type list struct {
	deltas []byte
	next   uint32 // one more than its last block number
}

func (l *list) add(block uint32) {
	l.deltas = binary.AppendUvarint(l.deltas, uint64(block-l.next))
	l.next = block + 1
}

// add adds a file with its blocks.
func (b *builder) add(e entry, blocks []block) {
	e.blocks = uint32(len(blocks))
	at := part{file: uint32(len(b.files))}
	b.files = append(b.files, e)
	for _, one := range blocks {
		at.size = uint32(one.size)
		b.addGrams(uint32(len(b.parts)), one.grams)
		b.parts = append(b.parts, at)
		at.offset += at.size
		at.line += uint32(one.lines)
	}
}

func (b *builder) addGrams(id uint32, grams []uint32) {
	for _, g := range grams {
		p := b.pages[g>>(gramBits-pageBits)]
		if p == nil {
			p = &page{}
			b.pages[g>>(gramBits-pageBits)] = p
		}
		l := &p[g&(1<<(gramBits-pageBits)-1)]
		had := len(l.deltas)
		l.add(id)
		b.bytes += len(l.deltas) - had
	}
}

// write writes the segment.
func (b *builder) write(w io.Writer) error {
	sw := newSegmentWriter(w)
	for upper, p := range b.pages {
		if p == nil {
			continue
		}
		for lower := range p {
			if l := &p[lower]; len(l.deltas) > 0 {
				sw.add(uint32(upper)<<(gramBits-pageBits)|uint32(lower), l.deltas)
			}
		}
	}
	return sw.finish(b.files, b.parts)
}

// merge writes one segment with the files of several that keep accepts.
func merge(w io.Writer, segs []*segment, keep func(seg, file int) bool) error {
	var files []entry
	var parts []part
	renumber := make([][]int64, len(segs)) // by segment and old number of a block; -1 if dropped
	for i, s := range segs {
		for _, p := range s.parts {
			if !keep(i, int(p.file)) {
				renumber[i] = append(renumber[i], -1)
				continue
			}
			renumber[i] = append(renumber[i], int64(len(parts)))
			parts = append(parts, p) // its file follows from the order
		}
		for j, f := range s.files {
			if keep(i, j) {
				files = append(files, f)
			}
		}
	}
	sw := newSegmentWriter(w)
	at := make([]int, len(segs))
	for {
		gram, ok := lowest(segs, at)
		if !ok {
			return sw.finish(files, parts)
		}
		var l list
		for i, s := range segs {
			if at[i] == len(s.grams) || s.grams[at[i]] != gram {
				continue
			}
			at[i]++
			ids, err := s.list(gram)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if to := renumber[i][id]; to >= 0 {
					l.add(uint32(to))
				}
			}
		}
		if len(l.deltas) > 0 {
			sw.add(gram, l.deltas)
		}
	}
}

// lowest returns the lowest gram that the segments have left.
func lowest(segs []*segment, at []int) (gram uint32, ok bool) {
	for i, s := range segs {
		if at[i] < len(s.grams) && (!ok || s.grams[at[i]] < gram) {
			gram, ok = s.grams[at[i]], true
		}
	}
	return gram, ok
}

// finish makes the results of a refresh the index.
func (r *refresh) finish() error {
	news := len(r.fresh) + len(r.b.files) + len(r.segs)
	if r.old != nil && news == 0 && !slices.Contains(r.seen, false) {
		return nil
	}
	for i, seen := range r.seen {
		if !seen {
			r.fresh = append(r.fresh, entry{path: r.old.known[i].path, kind: kindGone})
		}
	}
	for _, e := range r.fresh {
		r.b.add(e, nil)
	}
	if err := r.flush(); err != nil {
		closeAll(r.segs)
		return err
	}
	var segs []*segment
	if r.old != nil {
		segs = slices.Clone(r.old.segs)
	}
	all, err := r.x.compact(append(segs, r.segs...))
	if err == nil {
		err = r.x.commit(all)
	}
	for _, s := range slices.Concat(r.segs, all) {
		if !slices.Contains(segs, s) && (err != nil || !slices.Contains(all, s)) {
			s.file.Close()
		}
	}
	if errors.Is(err, errCorrupt) {
		r.x.discard()
	}
	return err
}

// compact merges the small segments, and those of which little is left, into one.
func (x *Index) compact(segs []*segment) ([]*segment, error) {
	snap := newSnapshot(segs)
	var few, keep []*segment // those to merge, and the others
	var places [][]int32     // of the files of the segments to merge
	for i, s := range segs {
		alive := snap.alive(i)
		if alive < len(snap.known)/small || alive < len(s.files)/2 {
			few, places = append(few, s), append(places, snap.place[i])
		} else {
			keep = append(keep, s)
		}
	}
	if len(few) <= maxSmall {
		return segs, nil
	}
	one, err := x.writeSegment(func(w io.Writer) error {
		return merge(w, few, func(seg, file int) bool {
			place := places[seg][file]
			return place >= 0 || place == gone && len(keep) > 0 // a segment that stays may have the path
		})
	})
	if err != nil {
		return nil, err
	}
	return append(keep, one), nil
}
