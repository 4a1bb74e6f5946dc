package grep

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"unicode/utf8"
)

// A Matcher finds the matching lines of one text after another. It is not safe for concurrent use.
type Matcher struct {
	ctx     context.Context // of the search that it belongs to
	pattern *Pattern
	finder  finder // nil if every byte has to be read
	machine *dfa
	slow    *regexp.Regexp // used if the machine failed

	// The results of one text: the matches, their lines as shown, and the end of each of these lines.
	found []Match
	shown []byte
	ends  []int
}

// A Span is a line of a text, up to its newline. At is the place in it at which the match was noticed.
type Span struct{ Start, End, At int }

// Matcher returns a matcher, which may stop finding matches once ctx has ended.
func (p *Pattern) Matcher(ctx context.Context) *Matcher {
	return &Matcher{ctx: ctx, pattern: p, finder: newFinder(p.need), machine: newDFA(p.prog, p.alphabet)}
}

// Reset prepares for a new text.
func (m *Matcher) Reset() { m.finder.reset() }

// Next returns the first matching line of text at or after from. from must be the beginning of a line and must not
// decrease between two resets: after a span it is End+1.
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
		matches := m.pattern.exact
		if !matches {
			_, matches = m.scan(text[line.Start:line.End], 0)
		}
		if matches {
			return line, true
		}
		from = line.End + 1
	}
	return Span{}, false
}

// scan reads every byte.
func (m *Matcher) scan(text []byte, from int) (Span, bool) {
	at := -1
	if !m.machine.failed {
		at = m.machine.scan(text, from)
	}
	if m.machine.failed {
		at = m.scanSlowly(text, from)
	}
	if at < 0 {
		return Span{}, false
	}
	return lineAt(text, from, at), true
}

// scanSlowly does the machine's work with package regexp, for the rare pattern and text that would need more states than
// they are worth. It is slow, so it checks now and then whether ctx has ended.
func (m *Matcher) scanSlowly(text []byte, from int) int {
	if m.slow == nil {
		m.slow = regexp.MustCompile(m.pattern.expr)
	}
	for from < len(text) {
		line := lineAt(text, from, from)
		r := lineReader{ctx: m.ctx, line: trimCR(text[from:line.End])}
		matches := m.slow.MatchReader(&r)
		switch {
		case m.ctx.Err() != nil:
			return -1
		case matches:
			return from + r.at
		}
		from = line.End + 1
	}
	return -1
}

// A lineReader returns the runes of a line until ctx ends.
type lineReader struct {
	ctx   context.Context
	line  []byte
	at    int
	count int
}

// ReadRune implements io.RuneReader.
func (r *lineReader) ReadRune() (c rune, width int, err error) {
	if r.count++; r.at == len(r.line) || r.count%1024 == 0 && r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	c, width = utf8.DecodeRune(r.line[r.at:])
	r.at += width
	return c, width, nil
}

// lineAt returns the line that contains at. from is at or before its beginning.
func lineAt(text []byte, from, at int) Span {
	s := Span{Start: from + bytes.LastIndexByte(text[from:at], '\n') + 1, End: len(text), At: at}
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		s.End = at + i
	}
	return s
}

func trimCR(line []byte) []byte { return bytes.TrimSuffix(line, []byte{'\r'}) }
