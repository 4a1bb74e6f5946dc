package secret

import "strings"

// A Stream redacts a text that comes in parts, such as what a tool prints, where a secret may begin in one part and
// end in another. It holds back the end of a part that may be the beginning of a secret, and nothing else: text that
// ends in a newline is held back only where a secret of several lines may have begun. The zero value with a Redactor
// is ready. It is not safe for use by several goroutines.
type Stream struct {
	Redactor *Redactor
	held     string
}

// Write takes the next part and gives what can be shown of the text so far.
func (s *Stream) Write(part string) string {
	text := s.held + part
	s.held = ""
	m := s.Redactor.current()
	if m == nil {
		return text
	}
	at := m.holdFrom(text)
	s.held = text[at:]
	return m.redact(text[:at])
}

// Flush gives what was held back, at the end of the text.
func (s *Stream) Flush() string {
	text := s.held
	s.held = ""
	return s.Redactor.String(text)
}

// Lines redacts texts that are shown as they come, such as the lines of a log, where a secret may have been cut in
// two. Nothing is held back: a line that ends in the beginning of a secret is shown without it where that is long, and
// the next line is shown without the rest. The zero value with a Redactor is ready. It is not safe for use by several
// goroutines.
type Lines struct {
	Redactor *Redactor
	begun    string // how the last line ended: the beginning of a form, or nothing
}

// minBegun is how much of a secret must stand at the end of a line to be taken for it.
const minBegun = 16

// Write takes the next line and gives what can be shown of it.
func (l *Lines) Write(line string) string {
	m := l.Redactor.current()
	if m == nil {
		return line
	}
	before := len(l.begun)
	text := l.begun + line
	at := m.begun(text)
	l.begun = text[at:]
	if before == 0 && len(l.begun) < minBegun {
		return m.redact(line)
	}
	hits := m.everywhere(text, nil, depth)
	if len(text)-at >= minBegun {
		hits = append(hits, hit{at, len(text), m.begunSecret(text[at:])})
	}
	var rest []hit
	for _, h := range merge(hits) {
		if h.to > before {
			rest = append(rest, hit{max(h.from, before) - before, h.to - before, h.secret})
		}
	}
	return m.redact(m.replace(line, rest))
}

// holdFrom gives where the part of a text begins that is to be held back. Secrets that reach into it are held back as
// a whole.
func (m *matcher) holdFrom(text string) int {
	at := m.begun(text)
	for _, e := range escapesOf(text) {
		at = min(at, m.begunThrough(text, e))
	}
	if at == len(text) {
		return at
	}
	hits := merge(m.everywhere(text, nil, depth))
	for i := len(hits) - 1; i >= 0 && hits[i].to > at; i-- {
		at = min(at, hits[i].from)
	}
	if len(text)-at > 4*m.most { // secrets that follow each other without end
		return len(text)
	}
	return at
}

// begunThrough is begun for a text with escapes of one kind. Only a part of the last of them may be there yet.
func (m *matcher) begunThrough(text string, e escape) int {
	if strings.IndexByte(text, e.mark) < 0 {
		return len(text)
	}
	whole := len(text)
	for at := max(0, len(text)-e.most+1); at < whole; at++ {
		if text[at] == e.mark && e.partial(text[at:]) {
			whole = at
		}
	}
	// Each byte of a secret is written in so many at the most.
	near := max(0, whole-e.most*m.most-codedLine)
	v := views.Get().(*view)
	defer v.close()
	if !v.open(text[near:whole], e) {
		if whole == len(text) {
			return whole
		}
		return near + m.begun(text[near:whole])
	}
	at := m.begun(asString(v.plain))
	if at == len(v.plain) || e.gap && len(v.plain)-at < MinSize {
		return whole
	}
	return near + v.from(at)
}

// partial reports whether a text is the beginning of an escape and not yet all of it.
func (e escape) partial(text string) bool {
	if e.gap || len(text) == 1 {
		return !e.gap
	}
	_, size := e.read(nil, text+"00000000", 0)
	return size > len(text)
}
