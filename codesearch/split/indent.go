package split

import (
	"bytes"
	"sort"
)

// A logical line is a line that does not continue the one before.
type logical struct {
	from, to int // to is the end of its last physical line
	indent   int
}

// logicalLines lists the lines of a masked source at which a statement begins.
func logicalLines(m *masked) []logical {
	var lines []logical
	parens := 0
	for i := 0; i < len(m.text); {
		end := lineEnd(m.text, i)
		first := end - len(bytes.TrimLeft(m.text[i:end], " \t"))
		// No definition begins in parentheses: any that seem open were misread.
		if parens > 0 && isDefinition(m.text[first:end]) {
			parens = 0
		}
		switch {
		case first == end || m.text[first] == '\r':
		case parens > 0 && len(lines) > 0:
			lines[len(lines)-1].to = end
		default:
			lines = append(lines, logical{first, end, columns(m.text[i:first])})
		}
		for _, c := range m.text[first:end] {
			switch c {
			case '(', '[', '{':
				parens++
			case ')', ']', '}':
				parens = max(0, parens-1)
			}
		}
		i = end + 1
	}
	return lines
}

func columns(blanks []byte) int {
	n := 0
	for _, c := range blanks {
		if c == '\t' {
			n += 8 - n%8
		} else {
			n++
		}
	}
	return n
}

func isDefinition(line []byte) bool {
	return startsWith(line, "def ", "defp ", "async def ", "class ", "module ", "defmodule ")
}

// An indentFinder walks logical lines and keeps those that define something, with what is indented below them.
type indentFinder struct {
	m     *masked
	l     Language
	lines []logical
	defs  []found

	functions, types []string // the words that begin one
}

func findIndented(m *masked, l Language) []found {
	f := &indentFinder{m: m, l: l, lines: logicalLines(m)}
	switch l {
	case Python:
		f.functions, f.types = []string{"def", "cdef", "cpdef"}, []string{"class"}
	case Ruby:
		f.functions, f.types = []string{"def"}, []string{"class", "module"}
	case Elixir:
		f.functions = []string{"def", "defp", "defmacro", "defmacrop", "defguard", "defdelegate"}
		f.types = []string{"defmodule", "defprotocol", "defimpl"}
	}
	f.walk(0, len(f.lines), "", 0)
	return f.defs
}

// walk visits the lines with numbers from n up to to.
func (f *indentFinder) walk(n, to int, owner string, depth int) {
	for n < to {
		kind, name := f.read(f.lines[n])
		if kind == "" {
			n++
			continue
		}
		end := f.blockEnd(n, to)
		d := found{kind: kind, name: name, owner: owner, at: f.lines[n].from}
		d.from, d.doc = f.above(n)
		d.to = f.lines[end-1].to
		switch f.l {
		case Python:
			d.doc = f.docstring(n)
			d.to = max(d.to, d.doc.to)
		case Ruby:
			d.doc = f.m.docAbove(d.from)
		}
		f.add(d, n, end, depth)
		n = end
	}
}

// add keeps a definition. Of a type or module with members it keeps only the head; the members are definitions of their
// own.
func (f *indentFinder) add(d found, n, end, depth int) {
	if d.kind == Type && depth < maxInner {
		mark := len(f.defs)
		f.defs = append(f.defs, d)
		f.walk(n+1, end, d.name, depth+1)
		if len(f.defs) > mark+1 {
			f.defs[mark].to = max(f.lines[n].to, min(d.to, f.defs[mark+1].begin()))
		}
		return
	}
	if last := len(f.defs) - 1; f.l == Elixir && last >= 0 && f.defs[last].name == d.name &&
		f.defs[last].kind == Function && d.doc.empty() {
		f.defs[last].to = d.to // another clause of the same function
		return
	}
	f.defs = append(f.defs, d)
}

// read parses a line.
func (f *indentFinder) read(line logical) (Kind, string) {
	w := wordsOf(f.m.text, span{line.from, min(line.to, line.from+200)})
	if len(w) < 2 || w[0].from != line.from {
		return "", ""
	}
	switch {
	case len(w) > 2 && f.qualified(w):
		return Function, string(w[2].text)
	case w[0].is(f.functions...):
		return Function, string(w[1].text)
	case f.l == Ruby && w[0].is("class") && startsWith(bytes.TrimSpace(f.m.text[w[0].to:w[1].from]), "<<"):
		return "", "" // class << self: its contents belong to the enclosing module
	case w[0].is(f.types...):
		return Type, f.lastOfPath(w[1:])
	}
	return "", ""
}

// qualified reports whether the name of a function follows two words.
func (f *indentFinder) qualified(w []word) bool {
	return f.l == Python && w[0].is("async") && w[1].is("def") ||
		f.l == Ruby && w[0].is("def") && w[1].is("self") ||
		f.l == Ruby && w[0].is("private", "protected", "module_function", "private_class_method") && w[1].is("def")
}

// lastOfPath returns the last word of A::B::C or A.B.C.
func (f *indentFinder) lastOfPath(w []word) string {
	i := 0
	for ; f.l != Python && i+1 < len(w); i++ {
		between := bytes.TrimSpace(f.m.text[w[i].to:w[i+1].from])
		if s := string(between); s != "::" && s != "." || w[i+1].is("do") {
			break
		}
	}
	return string(w[i].text)
}

// blockEnd returns the number of the first line that no longer belongs to the definition of line n.
func (f *indentFinder) blockEnd(n, to int) int {
	base := f.lines[n].indent
	for i := n + 1; i < to; i++ {
		line := f.lines[i]
		if line.indent > base {
			continue
		}
		if f.l == Python || line.indent < base {
			return i
		}
		w := wordsOf(f.m.text, span{line.from, min(line.to, line.from+40)})
		switch {
		case len(w) > 0 && w[0].from == line.from && w[0].is("end"):
			return i + 1
		case len(w) > 0 && w[0].from == line.from && w[0].is("rescue", "ensure", "else", "after", "catch", "when"):
		default:
			return i
		}
	}
	return to
}

// above returns the beginning of a definition, including the decorators and attributes above it, and Elixir's
// documentation among these.
func (f *indentFinder) above(n int) (from int, doc span) {
	from = f.lines[n].from
	for i := n - 1; i >= 0 && f.lines[i].indent == f.lines[n].indent && f.m.text[f.lines[i].from] == '@'; i-- {
		line := f.m.text[f.lines[i].from:]
		if f.l == Ruby || f.l == Elixir && !startsWith(line, "@doc", "@spec", "@impl", "@deprecated", "@since") {
			break
		}
		from = f.lines[i].from
		if f.l == Elixir && startsWith(line, "@doc") {
			doc = f.stringAt(from, f.lines[n].from)
		}
	}
	return from, doc
}

// docstring returns the string that is the first statement of a Python block.
func (f *indentFinder) docstring(n int) span {
	limit := len(f.m.text)
	if n+1 < len(f.lines) {
		limit = f.lines[n+1].from
	}
	return f.stringAt(f.lines[n].to, limit)
}

// stringAt returns the first long string that begins between two bytes.
func (f *indentFinder) stringAt(from, to int) span {
	s := f.m.strings
	i := sort.Search(len(s), func(i int) bool { return s[i].from >= from })
	if i < len(s) && s[i].from < to {
		return s[i]
	}
	return span{}
}
