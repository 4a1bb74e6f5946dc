package secret

import "strings"

// A Stream redacts a text that comes in parts, such as what a tool prints, where a secret may begin in one part and
// end in another. It holds back the end of a part that may be the beginning of a secret, and nothing else: text that
// ends in a newline is held back only where a secret of several lines may have begun. The zero value with a Redactor
// is ready. It is not safe for use by several goroutines.
type Stream struct {
	Redactor *Redactor
	held     string
	begun    bool // something was shown: what comes next is not the beginning of the text
}

// Write takes the next part and gives what can be shown of the text so far.
func (s *Stream) Write(part string) string {
	text := s.held + part
	s.held = ""
	m := s.Redactor.current()
	if m == nil {
		return text
	}
	which := cutInside
	if !s.begun {
		which |= cutStart
	}
	at := m.holdFrom(text, which)
	s.held, s.begun = text[at:], s.begun || at > 0
	return m.redact(text[:at], which)
}

// Flush gives what was held back, at the end of the text.
func (s *Stream) Flush() string {
	text := s.held
	s.held = ""
	return s.Redactor.String(text)
}

// Lines redacts texts that are shown as they come, such as the lines of a log, where a secret may have been cut in two.
// Nothing is held back: a line that ends in the beginning of a secret is shown without it where that is half of it or
// some bytes, and the next line is shown without the rest. The zero value with a Redactor is ready. It is not safe for
// use by several goroutines.
type Lines struct {
	Redactor *Redactor
	begun    string // how the last line ended: the beginning of a form, or nothing
}

// Write takes the next line and gives what can be shown of it.
func (l *Lines) Write(line string) string {
	m := l.Redactor.current()
	if m == nil {
		return line
	}
	before := len(l.begun)
	if before == 0 {
		l.begun = line[m.begun(line, depth):]
		return m.redact(line, cutAll)
	}
	text := l.begun + line
	l.begun = text[m.begun(text, depth):]
	var rest []hit
	for _, h := range merge(m.everywhere(text, nil, depth, cutInside|cutEnd)) {
		if h.to > before {
			rest = append(rest, hit{max(h.from, before) - before, h.to - before, h.secret})
		}
	}
	return m.redact(m.replace(line, rest), cutAll)
}

// holdFrom returns where the part of a text begins that is to be held back. Secrets that reach into it are held back as
// a whole.
func (m *matcher) holdFrom(text string, which cuts) int {
	at := m.begun(text, depth)
	if at == len(text) {
		return at
	}
	hits := merge(m.everywhere(text, nil, depth, which))
	for i := len(hits) - 1; i >= 0 && hits[i].to > at; i-- {
		at = min(at, hits[i].from)
	}
	most := 4 * m.most
	if strings.ContainsAny(text[at:], "%\\&") {
		most *= maxEscape / 2 // each byte may be written in so many more
	}
	if len(text)-at > most { // secrets that follow each other without end
		return len(text)
	}
	return at
}

// begun returns where the last part of a text begins that may be the beginning of a form, as it is written and as it
// reads without its escapes, that many deep; len(text): nowhere.
func (m *matcher) begun(text string, deep int) int {
	at := m.begunPlain(text)
	if deep == 0 {
		return at
	}
	for _, e := range escapesOf(text) {
		if strings.IndexByte(text, e.mark) >= 0 {
			at = min(at, m.begunThrough(text, e, deep-1))
		}
	}
	return at
}

// begunThrough is begun for a text with escapes of one kind. Only a part of the last of them may be there yet.
func (m *matcher) begunThrough(text string, e escape, deep int) int {
	whole := len(text)
	for at := max(0, len(text)-e.most+1); at < whole; at++ {
		if text[at] == e.mark && e.partial(text[at:]) {
			whole = at
		}
	}
	// Each byte of a secret is written in so many at the most.
	far := e.most * m.most
	if deep > 0 {
		far *= maxEscape
	}
	near := max(0, whole-far-codedLine)
	v := views.Get().(*view)
	defer v.close()
	if !v.open(text[near:whole], e) {
		if whole == len(text) {
			return whole
		}
		return near + m.begun(text[near:whole], deep)
	}
	at := m.begun(asString(v.plain), deep)
	if at == len(v.plain) || e.gap && len(v.plain)-at < MinSize {
		return whole
	}
	return near + v.from(at)
}
