package grep

import (
	"bytes"
	"context"
	"unicode/utf8"
)

// simulate does what scan does without keeping states, for the rare pattern and text that would make more of them than
// they are worth. It is slow, so it looks now and then whether it is still wanted.
func (d *dfa) simulate(ctx context.Context, text []byte, from int) int {
	switch {
	case from >= len(text) || d.start == dead:
		return -1
	case d.start == matched:
		return from
	}
	var bufs [2][]uint32
	s, i := d.first, from
	for n := 1; i < len(text); n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return -1
		}
		if width := endOfLine(text[i:]); width > 0 {
			if d.matchesAtEnd(s) {
				return i
			}
			s, i = d.first, i+width
			continue
		}
		if len(s.insts) == 0 { // nothing more can come of this line
			eol := bytes.IndexByte(text[i:], '\n')
			if eol < 0 {
				return -1
			}
			s, i = d.first, i+eol+1
			continue
		}
		r, width := utf8.DecodeRune(text[i:])
		to, match := d.advance(s, d.alphabet.class(r), bufs[n%2][:0])
		if match {
			return i
		}
		s, bufs[n%2] = to, to.insts
		i += width
	}
	if endOfLine(text[len(text)-1:]) == 0 && d.matchesAtEnd(s) {
		return len(text)
	}
	return -1
}

func (d *dfa) matchesAtEnd(s set) bool {
	_, match := d.settle(s, false, true)
	return match
}

// endOfLine returns the width of the end of a line that a text begins with; 0: it begins with something else.
func endOfLine(text []byte) int {
	switch {
	case text[0] == '\n', text[0] == '\r' && len(text) == 1:
		return 1
	case text[0] == '\r' && text[1] == '\n':
		return 2
	}
	return 0
}
