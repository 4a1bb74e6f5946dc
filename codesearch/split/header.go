package split

import (
	"bytes"
	"slices"
	"strings"
)

// A header is the parsed text before a brace.
type header struct {
	found      // without a kind, it defines nothing
	opens bool // whether there may be definitions within its block
}

// A word is an identifier of a header.
type word struct {
	text     []byte
	from, to int
}

// maxWords bounds how much of a header is read.
const maxWords = 64

// read parses the header of a block.
func (f *braceFinder) read(s span, owner string) header {
	h := header{found: found{owner: owner, from: s.from, at: s.from}}
	w := wordsOf(f.m.text, s)
	if len(w) == 0 {
		h.opens = f.l == JavaScript || f.l == TypeScript
		return h
	}
	switch f.l {
	case Go:
		f.readGo(&h, w, s)
	case Rust:
		f.readRust(&h, w)
	case JavaScript, TypeScript:
		f.readScript(&h, w, s)
	default:
		f.readC(&h, w, s)
	}
	return h
}

// wordsOf lists the identifiers of a header.
func wordsOf(text []byte, s span) []word {
	var words []word
	for i := s.from; i < s.to && len(words) < maxWords; {
		if !IsWord(text[i]) {
			i++
			continue
		}
		j := i
		for j < s.to && IsWord(text[j]) {
			j++
		}
		words = append(words, word{text[i:j], i, j})
		i = j
	}
	return words
}

func (w word) is(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return string(w.text) == n })
}

func (h *header) define(k Kind, w word) {
	h.kind, h.name, h.at = k, string(w.text), w.from
}

// after returns the first byte after a word that is not a blank.
func (f *braceFinder) after(w word, to int) byte {
	text := bytes.TrimLeft(f.m.text[w.to:to], blanks)
	if len(text) == 0 {
		return 0
	}
	return text[0]
}

// before returns the last byte before a word that is not a blank.
func (f *braceFinder) before(w word, from int) byte {
	text := bytes.TrimRight(f.m.text[from:w.from], blanks)
	if len(text) == 0 {
		return 0
	}
	return text[len(text)-1]
}

func (f *braceFinder) readGo(h *header, w []word, s span) {
	switch {
	case len(w) < 2:
	case w[0].is("func") && f.after(w[0], s.to) == '(':
		beyond := func(x word) bool { return bytes.IndexByte(f.m.text[w[0].to:x.from], ')') >= 0 }
		if i := 1 + slices.IndexFunc(w[1:], beyond); i > 0 {
			h.owner = receiver(w[1:i])
			h.define(Function, w[i])
		}
	case w[0].is("func"):
		h.define(Function, w[1])
	case w[0].is("type"):
		h.define(Type, w[1])
	}
}

// receiver returns the type of (r *Type[T]) or (Type).
func receiver(w []word) string {
	if len(w) == 0 {
		return ""
	}
	return string(w[min(1, len(w)-1)].text)
}

func (f *braceFinder) readRust(h *header, w []word) {
	if f.after(w[0], w[0].to+1) == '!' && !w[0].is("macro_rules") {
		h.opens = true // a macro around definitions
		return
	}
	for i, x := range w[:len(w)-1] {
		switch {
		case x.is("fn", "macro_rules"):
			h.define(Function, w[i+1])
		case x.is("struct", "enum", "union"):
			h.define(Type, w[i+1])
		case x.is("trait", "mod"):
			h.define(Type, w[i+1])
			h.opens = true
		case x.is("impl"):
			f.readImpl(h, w[i+1:])
		case x.is("match", "if", "while", "for", "loop"):
		default:
			continue
		}
		return
	}
}

// readImpl reads the type of impl<T> Trait for Type<T>.
func (f *braceFinder) readImpl(h *header, w []word) {
	h.opens = true
	depth, at := 0, w[0].from
	for _, x := range w {
		for ; at < x.from; at++ {
			switch f.m.text[at] {
			case '<':
				depth++
			case '>':
				depth--
			}
		}
		switch {
		case x.is("where"):
			return
		case x.is("for"):
			h.name = ""
		case depth <= 0 && (h.name == "" || at > 0 && f.m.text[at-1] == ':') && !x.is("dyn", "mut", "const"):
			h.define(Type, x)
		}
	}
}

// controls reports whether a word begins a block that defines nothing.
func controls(w word) bool {
	return w.is("if", "for", "while", "switch", "try", "else", "do", "catch", "with", "return", "finally", "case",
		"default", "throw", "await", "yield", "foreach", "using", "lock", "fixed", "new", "delete", "typeof", "guard",
		"when", "goto", "match", "unless", "synchronized") //nolint:misspell // Java's word
}

func (f *braceFinder) readScript(h *header, w []word, s span) {
	for i, x := range w {
		switch {
		case x.is("class", "interface", "enum", "namespace", "module") && i+1 < len(w) && f.after(x, s.to) != '.' &&
			f.after(x, s.to) != '=':
			h.define(Type, w[i+1])
			h.opens = !x.is("interface", "enum")
		case x.is("function"):
			f.readFunction(h, w, i, s)
		case controls(x) && (i == 0 || f.before(x, s.from) != '.'):
		case f.after(x, s.to) == '(' && i == f.lastModifier(w, s):
			f.readMethod(h, w, i, s)
		case f.after(x, s.to) == '=' || f.after(x, s.to) == ':':
			f.readAssigned(h, w, i, s)
		default:
			continue
		}
		return
	}
	h.opens = true
}

// lastModifier returns the index of the first word that is not async, static and the like.
func (f *braceFinder) lastModifier(w []word, s span) int {
	for i, x := range w {
		modifies := x.is("async", "static", "get", "set", "public", "private", "protected", "override", "readonly",
			"abstract", "export", "default")
		if !modifies || f.after(x, s.to) == '(' {
			return i
		}
	}
	return len(w)
}

// readFunction reads function NAME(...), and NAME = function(...), whose name is what it is assigned to.
func (f *braceFinder) readFunction(h *header, w []word, i int, s span) {
	h.opens = true
	if i+1 < len(w) && (f.after(w[i], s.to) != '(') {
		h.define(Function, w[i+1])
		return
	}
	f.assigned(h, w[:i], s)
}

// readMethod reads NAME(...) { in a class or an object. Elsewhere that is a call with a block as its argument.
func (f *braceFinder) readMethod(h *header, w []word, i int, s span) {
	h.opens = true
	if !f.headEndsIn(s, "=>", "(", "=", ",") {
		h.define(Function, w[i])
	}
}

// readAssigned reads NAME = (...) => {, NAME: {, const NAME = {.
func (f *braceFinder) readAssigned(h *header, w []word, i int, s span) {
	h.opens = true
	for j, x := range w[i+1:] {
		if x.is("function") {
			f.readFunction(h, w[:min(len(w), i+j+3)], i+j+1, s)
			return
		}
	}
	if f.headEndsIn(s, "=>") {
		f.assigned(h, w[:i+1], s)
	}
}

// assigned names a function by the last word before the assignment sign.
func (f *braceFinder) assigned(h *header, w []word, s span) {
	for i := len(w) - 1; i >= 0; i-- {
		if c := f.after(w[i], s.to); c == '=' || c == ':' {
			h.define(Function, w[i])
			if i >= 2 && w[i-1].is("prototype") {
				h.owner = string(w[i-2].text)
			}
			return
		}
	}
}

// headEndsIn reports whether a header, without trailing blanks, ends in one of the marks.
func (f *braceFinder) headEndsIn(s span, marks ...string) bool {
	return endsIn(bytes.TrimRight(f.m.text[s.from:s.to], blanks), marks...)
}

// readC reads the languages that look like C: the name is before the first parenthesis, or after class.
func (f *braceFinder) readC(h *header, w []word, s span) {
	for i, x := range w {
		switch {
		case x.is("namespace", "extern", "package"):
			h.opens = true
		case x.is("class", "struct", "interface", "enum", "record", "union", "trait", "object", "extension",
			"protocol"):
			if !f.readType(h, w, i, s) {
				continue
			}
		case controls(x) && (i == 0 || f.l != CSharp):
		case x.is("operator"):
			h.define(Function, x)
		case f.after(x, s.to) == '(' && f.names(x, s):
			f.readCFunction(h, w, i, s)
		default:
			continue
		}
		return
	}
}

// readType distinguishes the definition of a type from a function that returns or takes one.
func (f *braceFinder) readType(h *header, w []word, i int, s span) bool {
	rest := f.m.text[w[i].to:s.to]
	has := func(c byte) bool { return bytes.IndexByte(rest, c) >= 0 }
	switch {
	case i+1 >= len(w):
		h.opens = f.l == CPP
		return true
	case f.l == C && has('('), f.l == CPP && has('(') && !has(':'), has('=') && f.l != Kotlin && f.l != CPP:
		return false
	}
	name := w[i+1]
	for j := i + 1; j+1 < len(w) && (name.is("class", "struct", "final") || isMacro(name)) &&
		f.after(name, s.to) != ':'; j++ {
		name = w[j+1]
	}
	h.define(Type, name)
	h.opens = f.l != C
	return true
}

// isMacro reports whether a word is in capitals: C++ libraries put such macros before the name of a class.
func isMacro(w word) bool {
	return len(w.text) > 3 && bytes.Equal(w.text, bytes.ToUpper(w.text)) && bytes.IndexByte(w.text, '_') > 0
}

// names reports whether the word before a parenthesis can be the name of a function.
func (f *braceFinder) names(x word, s span) bool {
	return !x.is("__attribute__", "__declspec", "alignas", "noexcept", "throws", "decltype", "requires", "sizeof",
		"defined") && strings.IndexByte("@=(,.", f.before(x, s.from)) < 0
}

func (f *braceFinder) readCFunction(h *header, w []word, i int, s span) {
	if f.headEndsIn(s, "=", ",", "(") {
		return
	}
	h.define(Function, w[i])
	if i > 0 && endsIn(f.m.text[:w[i].from], "::") {
		h.owner = string(w[i-1].text)
	}
}
