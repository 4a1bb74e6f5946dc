package grep

import (
	"bytes"
	"context"
)

// A Matcher finds the lines of one text after another. It belongs to one goroutine.
type Matcher struct {
	ctx     context.Context // of the search that it belongs to
	pattern *Pattern
	finder  *finder // nil: every byte is read
	machine *dfa

	// What was found in one text: the matches, their lines as they are shown, and where each of these ends.
	found []Match
	shown []byte
	ends  []int
}

// A Span is a line of a text, up to its newline. At is where in it the match was noticed.
type Span struct{ Start, End, At int }

// Matcher makes a matcher, which may find nothing more once ctx has ended.
func (p *Pattern) Matcher(ctx context.Context) *Matcher {
	return &Matcher{ctx: ctx, pattern: p, finder: newFinder(p.need), machine: newDFA(p.prog, p.alphabet)}
}

// Reset begins a new text.
func (m *Matcher) Reset() {
	if m.finder != nil {
		m.finder.reset()
	}
}

// Next returns the first line of text at or after from that matches. From is the beginning of a line and
// only grows between two resets: after a span it is End+1.
func (m *Matcher) Next(text []byte, from int) (Span, bool) {
	if m.finder == nil {
		return m.scan(text, from)
	}
	for from < len(text) {
		at := m.finder.next(text, from)
		if at < 0 {
			break
		}
		line := lineAt(text, from, at)
		if m.pattern.exact || m.matches(text[line.Start:line.End]) {
			return line, true
		}
		from = line.End + 1
	}
	return Span{}, false
}

// matches reports whether a line, which is not empty and ends before its newline, matches.
func (m *Matcher) matches(line []byte) bool {
	_, ok := m.scan(line, 0)
	return ok
}

// scan reads every byte.
func (m *Matcher) scan(text []byte, from int) (Span, bool) {
	at := -1
	if !m.machine.failed {
		at = m.machine.scan(text, from)
	}
	if m.machine.failed {
		at = m.machine.simulate(m.ctx, text, from)
	}
	if at < 0 {
		return Span{}, false
	}
	return lineAt(text, from, at), true
}

// lineAt returns the line around a place; from is at or before its beginning.
func lineAt(text []byte, from, at int) Span {
	s := Span{Start: from + bytes.LastIndexByte(text[from:at], '\n') + 1, End: len(text), At: at}
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		s.End = at + i
	}
	return s
}

func trimCR(line []byte) []byte { return bytes.TrimSuffix(line, []byte{'\r'}) }
