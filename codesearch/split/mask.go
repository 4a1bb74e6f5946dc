package split

import (
	"bytes"
	"slices"
	"sort"
	"strings"
)

// How far to read a literal that may have no end. Without a bound, each of many beginnings would be read to the end of
// the file.
const (
	maxLiteral  = 1000
	maxHeredocs = 64 // different words
	maxNesting  = 32
)

// A span is a range of bytes.
type span struct{ from, to int }

func (s span) empty() bool { return s.to <= s.from }

// masked is a source whose comments and strings are blanked out, so that only structure is left: each brace is a brace,
// and each word a word of the language. Every byte stays in its place.
type masked struct {
	src      []byte
	text     []byte // src with blanks for comments and the insides of strings
	comments []span
	strings  []span // those of several lines, which are documentation in some languages
	heredocs map[string]int
}

// mask blanks out comments and strings. A misread string ends with its line, which keeps a wrong guess, or hostile text,
// from swallowing the rest.
func mask(src []byte, l Language) *masked {
	m := &masked{src: src, text: bytes.Clone(src)}
	r := lexisOf(l)
	for i := 0; i < len(src); {
		if r.special[src[i]] {
			if end := r.skip(m, i); end > i {
				i = end
				continue
			}
		}
		i++
	}
	return m
}

func (m *masked) comment(from, to int) int {
	m.comments = append(m.comments, span{from, to})
	return m.blank(from, to)
}

// long blanks a string of several lines, which may be documentation.
func (m *masked) long(from, to int) int {
	m.strings = append(m.strings, span{from, to})
	return m.blank(from, to)
}

func (m *masked) blank(from, to int) int {
	for i := from; i < to; i++ {
		if m.text[i] != '\n' {
			m.text[i] = ' '
		}
	}
	return to
}

// lexis describes how a language writes comments and strings.
type lexis struct {
	language Language
	line     string // begins a comment up to the end of the line; if it is //, there are also comments between /* and */
	special  [256]bool
}

func lexisOf(l Language) *lexis {
	r := &lexis{language: l, line: "//"}
	special := "/\"'"
	switch l {
	case Python:
		r.line, special = "#", "#\"'"
	case Ruby:
		r.line, special = "#", "#\"'/<=%`?"
	case Elixir:
		r.line, special = "#", "#\"'~?"
	case PHP:
		special += "#"
	case Go, JavaScript, TypeScript, Kotlin:
		special += "`"
	case C, CPP, CSharp:
		special += "#R"
	case Rust:
		special += "r"
	}
	for _, c := range []byte(special) {
		r.special[c] = true
	}
	return r
}

// skip blanks the literal or comment that begins at i and returns its end, or i if none does.
func (r *lexis) skip(m *masked, i int) int {
	s := m.src
	rest := s[i:]
	switch {
	case startsWith(rest, r.line), r.language == PHP && s[i] == '#':
		return m.comment(i, lineEnd(s, i))
	case r.line == "//" && startsWith(rest, "/*"):
		return m.comment(i, r.blockEnd(s, i))
	case s[i] == '#':
		return r.preprocessor(m, i)
	case s[i] == '=':
		if atLineStart(s, i) && startsWith(rest, "=begin") {
			return m.comment(i, after(s, i, "\n=end"))
		}
		return i
	case s[i] == '?':
		if startsWith(rest[1:], `"`, "'", "#") && !wordBefore(s, i) {
			return i + 2
		}
		return i
	case s[i] == '<', s[i] == '%', s[i] == '~':
		return r.sigil(m, i)
	case s[i] == 'r', s[i] == 'R':
		return r.rawString(m, i)
	case s[i] == '/':
		return r.regexp(m, i)
	}
	return r.quote(m, i)
}

// preprocessor blanks a directive with its continuation lines: its braces need not match.
func (r *lexis) preprocessor(m *masked, i int) int {
	if r.language != C && r.language != CPP && r.language != CSharp || !firstOfLine(m.src, i) {
		return i
	}
	end := lineEnd(m.src, i)
	for end < len(m.src) && end > i && m.src[end-1] == '\\' {
		end = lineEnd(m.src, end+1)
	}
	return m.blank(i, end)
}

// blockEnd returns the end of a comment between /* and */. Rust's comments nest.
func (r *lexis) blockEnd(s []byte, i int) int {
	if r.language != Rust {
		return after(s, i+2, "*/")
	}
	for depth := 0; i+1 < len(s); {
		switch {
		case s[i] == '/' && s[i+1] == '*':
			depth++
			i += 2
		case s[i] == '*' && s[i+1] == '/':
			depth--
			i += 2
			if depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(s)
}

func (r *lexis) quote(m *masked, i int) int {
	s, q := m.src, m.src[i]
	switch r.language {
	case Python, Elixir, Kotlin, Swift, Java:
		if triple := string([]byte{q, q, q}); startsWith(s[i:], triple) {
			return m.long(i, after(s, i+3, triple))
		}
	case Go:
		if q == '`' {
			return m.blank(i, after(s, i+1, "`"))
		}
	case Rust: // a character, or a lifetime
		if q == '\'' && i+2 < len(s) && s[i+1] != '\\' && s[i+2] != '\'' && s[i+1] < 0x80 {
			return i
		}
	}
	if q == '`' {
		return m.blank(i, templateEnd(s, i+1))
	}
	return m.blank(i, closing(s, i+1, q))
}

// rawString reads Rust's r#"..."# and C++'s R"x(...)x".
func (r *lexis) rawString(m *masked, i int) int {
	s := m.src
	if wordBefore(s, i) {
		return i
	}
	j := i + 1
	if r.language == Rust {
		for j < len(s) && s[j] == '#' {
			j++
		}
		if j >= len(s) || s[j] != '"' {
			return i
		}
		return m.blank(i, after(s, j+1, `"`+string(s[i+1:j])))
	}
	if s[i] != 'R' || j >= len(s) || s[j] != '"' {
		return i
	}
	open := bytes.IndexByte(s[j:min(j+18, len(s))], '(')
	if open < 0 {
		return i
	}
	return m.blank(i, after(s, j+open, ")"+string(s[j+1:j+open])+`"`))
}

// regexp distinguishes a regular expression from a division by the text before it.
func (r *lexis) regexp(m *masked, i int) int {
	if r.language != JavaScript && r.language != TypeScript && r.language != Ruby {
		return i
	}
	before := bytes.TrimRight(m.src[:i], " \t")
	if n := len(before); n > 0 && strings.IndexByte("(,=:[!&|?{};\n~", before[n-1]) < 0 && !expectsValue(before) {
		return i
	}
	inClass := false
	for k := i + 1; k < min(len(m.src), i+maxLiteral) && m.src[k] != '\n'; k++ {
		switch c := m.src[k]; {
		case c == '\\':
			k++
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		case c == '/' && !inClass:
			return m.blank(i, k+1)
		}
	}
	return i
}

// expectsValue reports whether a text ends in a word after which a value begins.
func expectsValue(text []byte) bool {
	words := []string{"return", "typeof", "case", "in", "of", "and", "or", "when", "if", "unless"}
	return slices.ContainsFunc(words, func(w string) bool {
		return endsIn(text, w) && !wordBefore(text, len(text)-len(w))
	})
}

// sigil reads a here-document of Ruby, or a literal of Ruby or Elixir that chooses its own delimiter.
func (r *lexis) sigil(m *masked, i int) int {
	s := m.src
	if s[i] == '<' {
		return heredoc(m, i)
	}
	j := i + 1
	for j < len(s) && j < i+3 && isLetter(s[j]) {
		j++
	}
	if j >= len(s) || s[i] == '%' && (j == i+1 || wordBefore(s, i)) || s[i] == '~' && j == i+1 {
		return i
	}
	for _, triple := range []string{`"""`, "'''"} {
		if startsWith(s[j:], triple) {
			return m.long(i, after(s, j+3, triple))
		}
	}
	const openers, closers = "([{<|/!\"'", ")]}>|/!\"'"
	n := strings.IndexByte(openers, s[j])
	if n < 0 {
		return i
	}
	return m.blank(i, closing(s, j+1, closers[n]))
}

// heredoc blanks from the line after <<~WORD to the line that is WORD.
func heredoc(m *masked, i int) int {
	s := m.src
	j := i + 2
	if j >= len(s) || s[i+1] != '<' {
		return i
	}
	if s[j] == '~' || s[j] == '-' {
		j++
	}
	for j < len(s) && (s[j] == '"' || s[j] == '\'') {
		j++
	}
	k := j
	for k < len(s) && (s[k] >= 'A' && s[k] <= 'Z' || s[k] == '_') {
		k++
	}
	if k == j {
		return i
	}
	if end := m.heredocEnd(string(s[j:k]), lineEnd(s, k)); end > 0 {
		m.blank(lineEnd(s, k), end)
		return k
	}
	return i
}

// heredocEnd returns the end of the next line that consists of a word, or 0 if there is none. It remembers the result, so
// that the file is read once per word, however often the word occurs.
func (m *masked) heredocEnd(word string, from int) int {
	at, known := m.heredocs[word]
	if known && (at == 0 || at > from) {
		return at
	}
	if !known && len(m.heredocs) >= maxHeredocs {
		return 0
	}
	if m.heredocs == nil {
		m.heredocs = map[string]int{}
	}
	end := 0
	for at = from; at < len(m.src) && end == 0; at = lineEnd(m.src, at+1) {
		if next := lineEnd(m.src, at+1); string(bytes.TrimSpace(m.src[at:next])) == word {
			end = next
		}
	}
	m.heredocs[word] = end
	return end
}

// closing returns the end of a string that begins before i; it ends with the line at the latest.
func closing(s []byte, i int, q byte) int {
	for ; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case q:
			return i + 1
		case '\n':
			return i
		}
	}
	return len(s)
}

// templateEnd returns the end of a JavaScript template, which may hold code that holds templates.
func templateEnd(s []byte, i int) int {
	var open [maxNesting]int // braces that are open in the code of each level
	level, inText := 0, true
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case inText && c == '`':
			if level == 0 {
				return i + 1
			}
			inText = false
		case inText && c == '$' && i+1 < len(s) && s[i+1] == '{':
			i++
			if level+1 == maxNesting {
				return i
			}
			level++
			open[level], inText = 0, false
		case !inText && c == '`':
			inText = true
		case !inText && c == '{':
			open[level]++
		case !inText && c == '}':
			if open[level]--; open[level] < 0 {
				level--
				inText = true
			}
		}
	}
	return len(s)
}

// after returns the end of the next closing mark from i on, or the end of the source if there is none.
func after(s []byte, i int, mark string) int {
	if i < len(s) {
		if n := bytes.Index(s[i:], []byte(mark)); n >= 0 {
			return i + n + len(mark)
		}
	}
	return len(s)
}

func lineEnd(s []byte, i int) int {
	if i < len(s) {
		if n := bytes.IndexByte(s[i:], '\n'); n >= 0 {
			return i + n
		}
	}
	return len(s)
}

func startsWith(text []byte, marks ...string) bool {
	return slices.ContainsFunc(marks, func(m string) bool { return bytes.HasPrefix(text, []byte(m)) })
}

func endsIn(text []byte, marks ...string) bool {
	return slices.ContainsFunc(marks, func(m string) bool { return bytes.HasSuffix(text, []byte(m)) })
}

func atLineStart(s []byte, i int) bool { return i == 0 || s[i-1] == '\n' }

func firstOfLine(s []byte, i int) bool { return atLineStart(s, len(bytes.TrimRight(s[:i], " \t"))) }

func wordBefore(s []byte, i int) bool { return i > 0 && IsWord(s[i-1]) }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// IsWord reports whether a byte belongs to an identifier; all bytes beyond ASCII do.
func IsWord(c byte) bool {
	return isLetter(c) || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// docAbove joins the comments that reach down to a byte without a blank line.
func (m *masked) docAbove(at int) span {
	doc := span{at, at}
	n := sort.Search(len(m.comments), func(i int) bool { return m.comments[i].to > at })
	for n--; n >= 0; n-- {
		c := m.comments[n]
		if !adjacent(m.src[c.to:doc.from], m.src[c.from:c.to]) || !firstOfLine(m.src, c.from) {
			break
		}
		if doc.empty() {
			doc.to = c.to
		}
		doc.from = c.from
		if startsWith(m.src[c.from:], "/*") {
			break
		}
	}
	return doc
}

// adjacent reports whether only blanks and a line break are between a comment and what follows it. A comment marked as
// documentation may also be followed by a blank line.
func adjacent(between, comment []byte) bool {
	most := 1
	if startsWith(comment, "/**", "/*!") {
		most = 2
	}
	return len(between) < 200 && len(bytes.TrimSpace(between)) == 0 && bytes.Count(between, []byte{'\n'}) <= most
}
