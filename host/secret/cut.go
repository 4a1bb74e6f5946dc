package secret

import "strings"

// Texts are cut before they come here: the end of what a program printed, the first bytes of an answer, a line that was
// too long. What is left of a secret is then the end of it where the text begins, or the beginning of it where the text
// ends, or both. Messages have such texts in them, in quotes, on a line of their own or with dots for what is missing;
// so each of these places counts as a cut.

// Which cuts count.
type cuts uint8

const (
	cutInside cuts = 1 << iota // at the marks within a text
	cutStart                   // where it begins
	cutEnd                     // where it ends
	cutAll    = cutInside | cutStart | cutEnd
)

// How much of a form must be left at a cut to be taken for it. Less is found in many texts, and tells little.
const (
	minCut    = 8  // or half of it, if that is less
	minMiddle = 16 // with a cut on both sides
)

// Which forms are found at cuts: all places of short ones are in the table, and of long values each sparse-th.
const (
	maxDense = 1 << 10
	sparse   = 16
)

// A cutTable finds forms by any window of theirs.
type cutTable struct {
	filter [1 << 14]uint64
	table  map[uint32][]ref
	reach  int // how many windows beside a cut are looked at
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

// atCuts adds what is left of secrets at the cuts of a text.
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

// behind adds a secret whose end, or a long piece, is left behind a cut. What is left of an escape comes first.
func (m *matcher) behind(text string, cut int, hits []hit) []hit {
	for at := cut; at < min(len(text), cut+maxEscape) && (at == cut || isEscape(text[at-1])); at++ {
		if hits, found := m.after(text, at, hits); found {
			return hits
		}
	}
	return hits
}

// before adds a secret whose beginning is left before a cut. What there is of an escape comes last, or of two: escapes
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
		if hits, found := m.until(text, at+1, hits); found { // &amp; begins with what it stands for
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

// ellipsis is how some programs write what they left out; others write three dots or more.
const ellipsis = "…"

// isCut reports whether a byte may begin the mark of a cut.
func isCut(c byte) bool {
	return c == '\n' || c == '\r' || c == '"' || c == '\'' || c == '`' || c == '.' || c == ellipsis[0]
}

// endOfCut returns the place behind the mark at a place; the place itself: there is none.
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

// isEscape reports whether escapes have such a byte.
func isEscape(c byte) bool { return isDigit(c) || strings.IndexByte(`#;&%\"'`, c) >= 0 }

// withoutPartial returns where an escape begins of which only a part is there yet, at the end of a text; the length of
// the text: there is none.
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

// public returns how much of the two ends of a value is no secret: of an address with a password in it, what is before
// the password and what is behind it; of another address, what is before its query; of a key, the first line and the
// last.
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
