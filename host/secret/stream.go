package secret

import "strings"

// A Stream redacts a text that comes in parts, such as the output of a tool. A secret may begin in one part and end in
// another. The Stream holds back only the end of a part that may be the beginning of a secret: text that ends in a
// newline is held back only if a secret of several lines may have begun. The zero value with a Redactor is ready. It is
// not safe for concurrent use.
type Stream struct {
	Redactor *Redactor
	held     string
	shown    string // the end of the text shown before a pause, if a secret may have begun there
	begun    bool   // something was shown, so the next part is not the beginning of the text
}

// Open reports whether the text may end in the beginning of a secret. Otherwise the Stream is like a new one.
func (s *Stream) Open() bool { return s.held+s.shown != "" }

// Write takes the next part and returns as much of the text as can be shown.
func (s *Stream) Write(part string) string { return s.show(part, false) }

// Pause returns the text that was held back, at the end of the text or before another text. If a secret has begun there,
// the next part is shown without the rest of it. A log, whose lines are shown as they come, pauses after each.
func (s *Stream) Pause() string { return s.show("", true) }

func (s *Stream) show(part string, all bool) string {
	text, before := s.shown+s.held+part, len(s.shown)
	m, which, at := s.Redactor.current(), cutInside, len(text)
	if m == nil {
		s.held, s.shown = "", ""
		return text[before:]
	}
	if !s.begun {
		which |= cutStart
	}
	if all {
		which |= cutEnd
	} else {
		at = max(m.holdFrom(text, which), before)
	}
	if s.held = text[at:]; at == before {
		return ""
	}
	if s.shown, s.begun = "", !all; all {
		s.shown = text[m.begun(text, depth):]
	}
	return m.redactFrom(text[:at], before, which)
}

// redactFrom returns a text from a position on, without secrets. Those may begin before the position.
func (m *matcher) redactFrom(text string, at int, which cuts) string {
	if at == 0 {
		return m.redact(text, which)
	}
	var rest []hit
	for _, h := range merge(m.everywhere(text, nil, depth, which)) {
		if h.to > at {
			rest = append(rest, hit{max(h.from, at) - at, h.to - at, h.secret})
		}
	}
	return m.replace(text[at:], rest)
}

// holdFrom returns the beginning of the part of a text to hold back. Secrets that reach into it are held back as a whole.
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
		most *= maxEscape / 2 // each byte may take that many more
	}
	if len(text)-at > most { // an endless sequence of secrets
		return len(text)
	}
	return at
}

// begun returns where the last part of a text begins that may be the beginning of a form, as it is written and with its
// escapes decoded, up to deep levels. It returns len(text) if there is none.
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

// begunThrough is begun for a text with escapes of one kind. The last escape may be incomplete.
func (m *matcher) begunThrough(text string, e escape, deep int) int {
	whole := len(text)
	for at := max(0, len(text)-e.most+1); at < whole; at++ {
		if text[at] == e.mark && e.partial(text[at:]) {
			whole = at
		}
	}
	// The maximum number of bytes in which a secret may be written.
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

// Texts are cut before they come here: the end of a program's output, the first bytes of an answer, a line that was too
// long. The remainder of a secret is then its end at the beginning of the text, or its beginning at the end of the text,
// or both. Messages quote such texts, on a line of their own or with dots for the missing part; so each of these places
// counts as a cut.

// The cuts to consider.
type cuts uint8

const (
	cutInside cuts = 1 << iota // at the marks within a text
	cutStart                   // at its beginning
	cutEnd                     // at its end
	cutAll    = cutInside | cutStart | cutEnd
)

// How much of a form must be left at a cut to count as the form. Shorter pieces occur in many texts, and reveal little.
const (
	minCut    = 8  // or half of it, if that is less
	minMiddle = 16 // with a cut on both sides
)

// Which forms are found at cuts: the table has all positions of short ones, and each sparse-th of long values.
const (
	maxDense = 1 << 10
	sparse   = 16
)

// A cutTable finds forms by any of their windows.
type cutTable struct {
	filter [1 << 14]uint64
	table  map[uint32][]ref
	reach  int // how many windows beside a cut are looked up
}

func newCutTable(forms []form) *cutTable {
	t := &cutTable{table: map[uint32][]ref{}, reach: 1}
	for i, f := range forms {
		by := 1
		if len(f.text) > maxDense {
			if f.coded {
				continue
			}
			by, t.reach = sparse, sparse
		}
		for at := 0; at+window <= len(f.text); at += by {
			key := load(f.text, at)
			if refs := t.table[key]; len(refs) < maxRefs {
				t.table[key] = append(refs, ref{int32(i), int32(at)})
			}
			h := t.hash(key)
			t.filter[h/64] |= 1 << (h % 64)
		}
	}
	return t
}

func (t *cutTable) hash(key uint32) uint32 { return key * 0x9E3779B1 >> 12 }

func (t *cutTable) at(text string, i int) []ref {
	key := load(text, i)
	if h := t.hash(key); t.filter[h/64]&(1<<(h%64)) == 0 {
		return nil
	}
	return t.table[key]
}

// atCuts adds the remainders of secrets at the cuts of a text.
func (m *matcher) atCuts(text string, which cuts, hits []hit) []hit {
	if which&cutInside != 0 {
		for at := 0; at < len(text); at++ {
			if !isCut(text[at]) {
				continue
			}
			if end := endOfCut(text, at); end > at {
				hits = m.before(text, at, hits)
				hits = m.behind(text, end, hits)
				at = end - 1
			}
		}
	}
	if which&cutStart != 0 {
		hits = m.behind(text, 0, hits)
	}
	if which&cutEnd != 0 {
		hits = m.before(text, len(text), hits)
	}
	return hits
}

// behind adds a secret whose end, or a long piece, is left behind a cut. The rest of an escape may precede it.
func (m *matcher) behind(text string, cut int, hits []hit) []hit {
	for at := cut; at < min(len(text), cut+maxEscape) && (at == cut || isEscape(text[at-1])); at++ {
		if hits, found := m.after(text, at, hits); found {
			return hits
		}
	}
	return hits
}

// before adds a secret whose beginning is left before a cut. A part of an escape may follow it, or of several: escapes
// may be written in escapes.
func (m *matcher) before(text string, cut int, hits []hit) []hit {
	for range 1 + depth {
		if hits, found := m.until(text, cut, hits); found {
			return hits
		}
		at := withoutPartial(text[:cut])
		if at == cut {
			break
		}
		if hits, found := m.until(text, at+1, hits); found { // &amp; begins with the character that it stands for
			return hits
		}
		cut = at
	}
	return hits
}

func (m *matcher) after(text string, cut int, hits []hit) (_ []hit, found bool) {
	for i := cut; i < min(cut+m.cuts.reach, len(text)-window+1); i++ {
		for _, r := range m.cuts.at(text, i) {
			f := &m.forms[r.form]
			origin := i - int(r.offset)
			from, to := f.piece(text, origin, i)
			switch end := origin + len(f.text); {
			case from > cut:
			case to == end && to-cut >= f.tail+f.least:
				return append(hits, hit{cut, to, f.secret}), true
			case min(to, end-f.tail)-max(cut, origin+f.head) >= minMiddle && (to == len(text) || isCut(text[to])):
				return append(hits, hit{cut, cut + len(strings.TrimRight(text[cut:to], "\r\n")), f.secret}), true
			}
		}
	}
	return hits, false
}

func (m *matcher) until(text string, cut int, hits []hit) (_ []hit, found bool) {
	for i := cut - window; i >= max(0, cut-window-m.cuts.reach+1); i-- {
		for _, r := range m.cuts.at(text, i) {
			f := &m.forms[r.form]
			origin := i - int(r.offset)
			if origin < 0 || cut-origin < f.head+f.least || cut-origin > len(f.text) {
				continue
			}
			if text[origin:cut] == f.text[:cut-origin] {
				return append(hits, hit{origin, cut, f.secret}), true
			}
		}
	}
	return hits, false
}

// ellipsis is how some programs mark an omission; others write three dots or more.
const ellipsis = "…"

// isCut reports whether a byte may begin the mark of a cut.
func isCut(c byte) bool {
	return c == '\n' || c == '\r' || c == '"' || c == '\'' || c == '`' || c == '.' || c == ellipsis[0]
}

// endOfCut returns the position after the mark at a position, or the position itself if there is no mark.
func endOfCut(text string, at int) int {
	switch text[at] {
	case '.':
		end := at
		for end < len(text) && text[end] == '.' {
			end++
		}
		if end-at >= 3 {
			return end
		}
		return at
	case ellipsis[0]:
		if strings.HasPrefix(text[at:], ellipsis) {
			return at + len(ellipsis)
		}
		return at
	}
	return at + 1
}

// isEscape reports whether a byte can be part of an escape.
func isEscape(c byte) bool { return isDigit(c) || strings.IndexByte(`#;&%\"'`, c) >= 0 }

// withoutPartial returns where an incomplete escape begins at the end of a text, or the length of the text if there is
// none.
func withoutPartial(text string) int {
	for at := max(0, len(text)-maxEscape+1); at < len(text); at++ {
		partial := false
		switch text[at] {
		case '%':
			partial = partialPercent(text[at:])
		case '\\':
			partial = partialBackslash(text[at:])
		case '&':
			partial = partialEntity(text[at:])
		}
		if partial {
			return at
		}
	}
	return len(text)
}

// public returns how many bytes at the two ends of a value are not secret: of an address with a password, the parts
// before and after the password; of another address, the part before its query; of a key, the first line and the last.
func public(value string) (head, tail int) {
	if first, rest, ok := strings.Cut(value, "\n"); ok && strings.HasPrefix(value, "-----") {
		rest = strings.TrimRight(rest, "\n")
		return len(first) + 1, len(value) - len(first) - 2 - strings.LastIndexByte(rest, '\n')
	}
	_, rest, ok := strings.Cut(value, "://")
	if !ok {
		return 0, 0
	}
	scheme := len(value) - len(rest)
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, _, _ := strings.Cut(rest[:at], ":")
		return scheme + len(user), len(rest) - at
	}
	before, _, _ := strings.Cut(rest, "?")
	return scheme + min(len(before), strings.LastIndexByte(rest, '/')+1), 0
}
