package split

import (
	"bytes"
	"slices"
	"strings"
)

// A pair is an opening brace and the end of its block.
type pair struct {
	open, end int
	outer     bool // whether its line begins in the first column
}

// pairsOf matches braces in one pass. A closing brace in the first column also closes everything that was opened on
// indented lines: conditional compilation leaves such texts behind, and people still put that brace there.
func pairsOf(text []byte) []pair {
	var pairs []pair
	var open []int
	outer := false
	for i, c := range text {
		if i == 0 || text[i-1] == '\n' {
			outer = c != ' ' && c != '\t'
		}
		switch c {
		case '{':
			open = append(open, len(pairs))
			pairs = append(pairs, pair{i, len(text), outer})
		case '}':
			for first := i == 0 || text[i-1] == '\n'; len(open) > 0; {
				n := open[len(open)-1]
				open = open[:len(open)-1]
				pairs[n].end = i + 1
				if !first || pairs[n].outer {
					break
				}
			}
		}
	}
	return pairs
}

// A braceFinder walks the blocks of a source and keeps those that define something.
type braceFinder struct {
	m     *masked
	l     Language
	pairs []pair
	defs  []found
}

// maxInner bounds the nesting of definitions.
const maxInner = 12

func findBraces(m *masked, l Language) []found {
	if l == Go {
		blankEmptyTypes(m.text)
	}
	f := &braceFinder{m: m, l: l, pairs: pairsOf(m.text)}
	f.walk(0, 0, len(m.text), "", 0)
	return f.defs
}

// blankEmptyTypes blanks the braces of interface{} and struct{}: they open no block, and occur in the middle of headers.
func blankEmptyTypes(text []byte) {
	for at := 0; ; {
		n := bytes.Index(text[at:], []byte("{}"))
		if n < 0 {
			return
		}
		at += n
		line := text[bytes.LastIndexByte(text[max(0, at-200):at], '\n')+1+max(0, at-200) : at]
		if !startsWith(line, "type ") && endsIn(line, "interface", "struct") {
			text[at], text[at+1] = ' ', ' '
		}
		at += 2
	}
}

// walk visits the blocks directly between two bytes, from the n-th pair on, and returns the first pair beyond them.
func (f *braceFinder) walk(n, from, to int, owner string, depth int) int {
	for n < len(f.pairs) && f.pairs[n].open < to {
		p := f.pairs[n]
		p.end = min(p.end, to)
		head, inParens := f.headOf(from, p.open)
		h := f.read(head, owner)
		next := n + 1
		if h.opens && depth < maxInner {
			next = f.descend(n, h, p, owner, depth)
		} else {
			if h.kind != "" {
				f.defs = append(f.defs, f.until(p.end, h))
			}
			for next < len(f.pairs) && f.pairs[next].open < p.end {
				next++
			}
		}
		n = next
		if !inParens { // otherwise the statement around it continues
			from = p.end
		}
	}
	return n
}

// descend looks for members within a block. A block without members is one definition as a whole.
func (f *braceFinder) descend(n int, h header, p pair, owner string, depth int) int {
	mark := len(f.defs)
	f.defs = append(f.defs, found{})
	inside := owner
	if h.name != "" && h.kind == Type {
		inside = h.name
	}
	next := f.walk(n+1, p.open+1, max(p.open+1, p.end-1), inside, depth+1)
	switch {
	case h.kind == "":
		f.defs = slices.Delete(f.defs, mark, mark+1)
	case len(f.defs) == mark+1 || h.kind == Function && !f.large(h, p):
		f.defs = append(f.defs[:mark], f.until(p.end, h))
	default: // a type with members: its fields up to the first member, whose documentation is not part of it
		first := f.defs[mark+1].begin()
		f.defs[mark] = f.until(max(p.open+1, min(first, p.open+maxBytes)), h)
	}
	return next
}

// until returns the definition of a header, with the documentation above it.
func (f *braceFinder) until(to int, h header) found {
	h.to, h.doc = to, f.m.docAbove(h.from)
	return h.found
}

// large reports whether a function wraps a whole file, as JavaScript's modules do.
func (f *braceFinder) large(h header, p pair) bool {
	return bytes.Count(f.m.src[h.from:p.end], []byte{'\n'}) > maxLines
}

// headOf finds the beginning of the statement that ends in a brace: after the last complete statement. Comments before it
// are not part of it. For a brace in parentheses, the statement begins within these.
func (f *braceFinder) headOf(from, open int) (head span, inParens bool) {
	const far = 4 << 10
	text := f.m.text
	at := max(from, open-far)
	parens := 0
	for i := open - 1; i >= at; i-- {
		begins := false
		switch text[i] {
		case ')', ']':
			parens++
		case '(', '[':
			if parens--; parens < 0 {
				return f.trim(i+1, open), true
			}
		case ';', '}', '{':
			begins = parens <= 0
		case ',':
			begins = parens <= 0 && (f.l == JavaScript || f.l == TypeScript)
		case '\n':
			begins = parens <= 0 && f.ends(i)
		}
		if begins {
			return f.trim(i+1, open), false
		}
	}
	return f.trim(at, open), false
}

// ends reports whether a statement ends with the line. In languages without semicolons it does, unless the line is
// visibly incomplete; in all languages a blank line ends it.
func (f *braceFinder) ends(newline int) bool {
	line := bytes.TrimRight(f.m.text[:newline], " \t\r")
	if len(line) == 0 || endsIn(line, "\n") {
		return !f.inComment(newline)
	}
	switch f.l {
	case Go, JavaScript, TypeScript, Kotlin, Swift:
	default: // a label of a class
		return (f.l == CPP || f.l == C) && endsIn(line, "public:", "private:", "protected:", "slots:", "signals:")
	}
	if startsWith(bytes.TrimLeft(f.m.text[newline+1:], " \t"), "{") || f.annotates(newline) {
		return false
	}
	return strings.IndexByte(",=(|&?:+.>", line[len(line)-1]) < 0
}

// annotates reports whether a line begins with @, so that it belongs to the next one.
func (f *braceFinder) annotates(newline int) bool {
	start := bytes.LastIndexByte(f.m.text[:newline], '\n') + 1
	return startsWith(bytes.TrimLeft(f.m.text[start:newline], " \t"), "@")
}

// inComment reports whether a line is blank only because a comment was blanked out.
func (f *braceFinder) inComment(at int) bool {
	start := bytes.LastIndexByte(f.m.src[:at], '\n') + 1
	return len(bytes.TrimSpace(f.m.src[start:at])) > 0
}

func (f *braceFinder) trim(from, to int) span {
	return span{from + leadingBlank(f.m.text[min(from, to):to]), to}
}
