package secret

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// How forms are found: only every step-th window of a few bytes of a text is looked up. Each form, or block of one, is at
// least as long as a step and a window, and the table has its windows at all offsets of a step: so one of the windows
// that are looked up is among them.
const (
	window   = 4
	maxBlock = 16 // longer blocks mean fewer lookups in a text, and a larger table
	// Pieces of coded forms: blocks begin at every spread-th byte of them, so that each line of 60 digits and more, as
	// programs write them, has a whole block.
	minPieced = 48
	maxPieced = 16 << 10 // longer ones would fill the table
	spread    = 40
	minPiece  = 16
	maxRefs   = 64 // blocks of forms in the table that begin alike; a repetitive value has many
)

// A matcher finds forms. It is immutable.
type matcher struct {
	labels []string // by secret: its replacement
	forms  []form
	sorted []int32 // forms by their text
	first  [256]bool
	step   int
	most   int // the length of the longest form

	filter []uint64 // windows that may be in the table
	shift  int
	table  map[uint32][]ref
	cuts   *cutTable
}

// A ref is a window of a form.
type ref struct{ form, offset int32 }

// A hit is a part of a text that reveals a secret.
type hit struct {
	from, to int
	secret   int
}

func newMatcher(secrets []known) *matcher {
	m := &matcher{table: map[uint32][]ref{}}
	seen := map[string]bool{}
	for i, s := range secrets {
		for _, f := range formsOf(i, s.value) {
			if !seen[f.text] {
				seen[f.text] = true
				m.forms = append(m.forms, f)
			}
		}
	}
	block := maxBlock
	for _, f := range m.forms {
		block, m.most = min(block, len(f.text)), max(m.most, len(f.text))
	}
	m.step = block - window + 1
	m.index()
	m.cuts = newCutTable(m.forms)
	for i, f := range m.forms {
		m.sorted = append(m.sorted, int32(i))
		m.first[f.text[0]] = true
	}
	slices.SortFunc(m.sorted, func(a, b int32) int { return strings.Compare(m.forms[a].text, m.forms[b].text) })
	m.label(secrets)
	return m
}

// index fills the table, and the filter in front of it.
func (m *matcher) index() {
	windows := 0
	for i, f := range m.forms {
		windows += m.add(i, 0, math.MaxInt)
		if f.pieced() {
			last := len(f.text) - m.step - window + 1
			for at := spread; at < last; at += spread {
				windows += m.add(i, at, maxRefs)
			}
			windows += m.add(i, last, maxRefs)
		}
	}
	size := bits.Len(uint(windows * 32))
	size = min(max(size, 12), 23)
	m.shift = 32 - size
	m.filter = make([]uint64, 1<<size/64)
	for key, refs := range m.table {
		h := m.hash(key)
		m.filter[h/64] |= 1 << (h % 64)
		// the longest first
		slices.SortStableFunc(refs, func(a, b ref) int { return len(m.forms[b.form].text) - len(m.forms[a.form].text) })
	}
}

// add adds the windows of the block at a position of a form to the table.
func (m *matcher) add(i, at, most int) int {
	for offset := at; offset < at+m.step; offset++ {
		key := load(m.forms[i].text, offset)
		if len(m.table[key]) < most {
			m.table[key] = append(m.table[key], ref{int32(i), int32(offset)})
		}
	}
	return m.step
}

// load reads a window; the compiler turns it into one read.
func load(text string, i int) uint32 {
	text = text[i : i+window]
	return uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24
}

// label chooses the replacement of each secret: a text that reveals none.
func (m *matcher) label(secrets []known) {
	for _, s := range secrets {
		for _, label := range []string{cmp.Or(s.label, "[secret "+s.name+"]"), "[redacted]", "***"} {
			if len(m.find(label)) == 0 {
				m.labels = append(m.labels, label)
				break
			}
		}
	}
}

func (m *matcher) hash(key uint32) uint32 { return key * 0x9E3779B1 >> m.shift }

// find returns every form in a text, without decoding escapes.
func (m *matcher) find(text string) (hits []hit) {
	for i := 0; i+window <= len(text); i += m.step {
		key := load(text, i)
		if h := m.hash(key); m.filter[h/64]&(1<<(h%64)) != 0 {
			hits = m.look(text, i, m.table[key], hits)
		}
	}
	return hits
}

// look adds the forms that really are at a window of theirs.
func (m *matcher) look(text string, i int, refs []ref, hits []hit) []hit {
	for _, r := range refs {
		f := &m.forms[r.form]
		origin := i - int(r.offset)
		switch {
		case covered(hits, f.secret, i):
		case f.at(text, origin):
			hits = add(hits, f.edges(text, origin, hit{origin, origin + len(f.text), f.secret}))
		case f.pieced():
			if from, to := f.piece(text, origin, i); to-from >= minPiece {
				hits = add(hits, f.edges(text, origin, hit{from, to, f.secret}))
			}
		}
	}
	return hits
}

// pieced reports whether a form is found in pieces too.
func (f *form) pieced() bool {
	return f.coded && minPieced <= len(f.text) && len(f.text) <= maxPieced
}

// covered reports whether one of the last hits already includes a window. If a secret continues beyond it, a later window
// finds that.
func covered(hits []hit, secret, i int) bool {
	for _, h := range hits[max(0, len(hits)-4):] {
		if h.secret == secret && h.from <= i && i+window <= h.to {
			return true
		}
	}
	return false
}

// add adds a hit, or extends the last one: there may be as many as a text has bytes.
func add(hits []hit, h hit) []hit {
	if n := len(hits) - 1; n >= 0 && hits[n].secret == h.secret && hits[n].from <= h.from && h.from <= hits[n].to {
		hits[n].to = max(hits[n].to, h.to)
		return hits
	}
	return append(hits, h)
}

// at reports whether a text has the form at a position. It compares the last byte first: most texts that begin alike end
// differently.
func (f *form) at(text string, origin int) bool {
	end := origin + len(f.text)
	return origin >= 0 && end <= len(text) && text[end-1] == f.text[len(f.text)-1] && text[origin:end] == f.text
}

// piece returns the part of a text around i that matches a form that begins, or would begin, at origin.
func (f *form) piece(text string, origin, i int) (from, to int) {
	for from = i; from > max(0, origin) && text[from-1] == f.text[from-1-origin]; {
		from--
	}
	for to = i; to < min(len(text), origin+len(f.text)) && text[to] == f.text[to-origin]; {
		to++
	}
	return from, to
}

// edges adds the digits that contain a few bits of the secret, and the padding after the last.
func (f *form) edges(text string, origin int, h hit) hit {
	if f.before && h.from == origin && h.from > 0 && isDigit(text[h.from-1]) {
		h.from--
	}
	if !f.after || h.to != origin+len(f.text) || h.to == len(text) || !isDigit(text[h.to]) {
		return h
	}
	h.to++
	for n := 0; n < 2 && h.to < len(text) && text[h.to] == '='; n++ {
		h.to++
	}
	return h
}

// isDigit reports whether a byte is a base64 digit.
func isDigit(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/' || c == '-' ||
		c == '_'
}

// begunPlain returns where the last part of a text begins that may be the beginning of a form, without decoding escapes,
// or len(text) if there is none.
func (m *matcher) begunPlain(text string) int {
	for i := max(0, len(text)-m.most+1); i < len(text); i++ {
		if m.first[text[i]] && m.begins(text[i:]) {
			return i
		}
	}
	return len(text)
}

// begins reports whether a form begins with a part: the first form that does not sort before it.
func (m *matcher) begins(part string) bool {
	i, _ := slices.BinarySearchFunc(m.sorted, part, func(f int32, part string) int {
		return strings.Compare(m.forms[f].text, part)
	})
	return i < len(m.sorted) && strings.HasPrefix(m.forms[m.sorted[i]].text, part)
}

// merge joins overlapping hits. A joined hit has the secret of its longest part.
func merge(hits []hit) []hit {
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	longest := 0
	all := hits[:0]
	for _, h := range hits {
		if len(all) == 0 || h.from >= all[len(all)-1].to {
			all = append(all, h)
			longest = h.to - h.from
			continue
		}
		last := &all[len(all)-1]
		if last.to = max(last.to, h.to); h.to-h.from > longest {
			last.secret, longest = h.secret, h.to-h.from
		}
	}
	return all
}

// A form is a text that reveals a secret: its value, or an encoding of it. Escaped values have no form of their own:
// texts with escapes are also searched decoded.
type form struct {
	text   string
	secret int  // the secret that it reveals
	coded  bool // base64 or hexadecimal digits: long ones are also found in pieces, since programs break them into lines
	// Whether a digit before the text, and one after it, has bits of the secret and other bits.
	before, after bool
	head, tail    int // bytes at its beginning and at its end that are not secret
	least         int // how many of the others identify it at the cut of a text
}

// minLine is the minimum length of a line of a value that is redacted by itself. Programs print long values, such as
// keys, line by line, and short lines occur in many texts.
const minLine = 16

// formsOf lists the forms of a value.
func formsOf(secret int, value string) []form {
	texts := []string{value, strings.TrimSpace(value)}
	if strings.Contains(value, " ") {
		texts = append(texts, strings.ReplaceAll(value, " ", "+")) // as in web forms
	}
	if strings.Contains(strings.TrimSpace(value), "\n") {
		for line := range strings.Lines(value) {
			if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
				texts = append(texts, line)
			}
		}
	}
	var all []form
	for _, text := range texts {
		if len(text) >= MinSize {
			all = append(all, form{text: text, secret: secret})
		}
	}
	digits := hex.EncodeToString([]byte(value))
	all = append(all, form{text: digits, secret: secret, coded: true}, form{
		text: strings.ToUpper(digits), secret: secret, coded: true,
	})
	for shift := range 3 {
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			all = append(all, base64Form(secret, value, shift, alphabet))
		}
	}
	for i := range all {
		f := &all[i]
		if !f.coded {
			f.head, f.tail = public(f.text)
		}
		f.least = max(window, min(minCut, (len(f.text)-f.head-f.tail+1)/2))
	}
	return all
}

// base64Form returns the digits that a value always has if shift bytes, plus any multiple of three, precede it. The
// digits at its ends depend on the bytes around it.
func base64Form(secret int, value string, shift int, alphabet *base64.Encoding) form {
	digits := alphabet.EncodeToString([]byte("\x00\x00"[:shift] + value))
	from, to := (8*shift+5)/6, 8*(shift+len(value))/6
	return form{text: digits[from:to], secret: secret, coded: true, before: shift > 0, after: to < len(digits)}
}
