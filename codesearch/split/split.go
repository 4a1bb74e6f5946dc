// Package split cuts source files into the parts that people name: functions, types and sections, each with its
// documentation. It understands just enough of a language for that, never fails, and takes time in proportion to the
// file. Text that it does not recognise becomes blocks.
package split

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
)

// A Kind is the kind of a part.
type Kind string

// The kinds of parts.
const (
	Function Kind = "function"
	Type     Kind = "type"
	Section  Kind = "section" // under a heading
	Block    Kind = "block"   // any text between the named parts
)

// A Part is a piece of a file. Parts are in order and do not overlap.
type Part struct {
	Kind  Kind
	Name  string // empty for a block
	Owner string // the type or module that it belongs to, if any
	// Start and End are byte offsets in the source; the documentation is within.
	Start, End int
	// Line and Last are the first and the last line, from 1.
	Line, Last int
	// DocStart and DocEnd are the byte offsets of the documentation; equal if there is none.
	DocStart, DocEnd int
	// Define is the line of the name.
	Define int
}

// Sizes of parts. A long part is cut, so that its subject is not lost in its text.
const (
	maxLines = 120
	maxBytes = 8 << 10
	minBlock = 24 // bytes of code that make a block worth keeping
)

// A found is a definition as the families of languages find it.
type found struct {
	kind        Kind
	name, owner string
	from, to    int // without the documentation above it; only the head if its members are parts of their own
	at          int // the offset of its name
	doc         span
}

// begin returns the start of a definition, including its documentation.
func (d *found) begin() int {
	if d.doc.empty() {
		return d.from
	}
	return min(d.from, d.doc.from)
}

// Parts cuts a source into parts.
func Parts(l Language, src []byte) []Part {
	var defs []found
	switch l {
	case Python, Ruby, Elixir: // blocks by indentation, or closed by end at the same indentation
		defs = findIndented(mask(src, l), l)
	case Markdown:
		defs = findHeadings(src)
	case Text:
	default:
		defs = findBraces(mask(src, l), l)
	}
	c := &cutter{src: src, lines: lineStarts(src)}
	return c.cut(defs)
}

// A cutter makes parts of definitions and of the text between them.
type cutter struct {
	src   []byte
	lines []int
	parts []Part
}

func (c *cutter) cut(defs []found) []Part {
	c.parts = make([]Part, 0, len(defs)+8)
	at := 0
	for _, d := range defs {
		from := max(d.begin(), at)
		if d.to <= from {
			continue
		}
		c.blocks(at, c.lineStart(from))
		c.define(d, max(at, c.lineStart(from)))
		at = max(at, c.nextLine(d.to))
	}
	c.blocks(at, len(c.src))
	return c.parts
}

// lineStart returns the beginning of the line of a byte if only blanks are between, otherwise the byte.
func (c *cutter) lineStart(at int) int {
	start := c.lines[c.lineOf(at)-1]
	if len(bytes.TrimSpace(c.src[start:at])) > 0 {
		return at
	}
	return start
}

// nextLine skips the rest of a line that has nothing but blanks and closing marks.
func (c *cutter) nextLine(at int) int {
	end := lineEnd(c.src, at)
	if len(bytes.Trim(c.src[at:end], " \t\r;,)}")) > 0 {
		return at
	}
	return min(end+1, len(c.src))
}

func (c *cutter) define(d found, from int) {
	if d.doc.from < from || d.doc.to > d.to {
		d.doc = span{}
	}
	c.pieces(Part{Kind: d.kind, Name: d.name, Owner: d.owner, Define: c.lineOf(d.at)}, d.doc, from, d.to)
}

// blocks cuts unnamed text at blank lines.
func (c *cutter) blocks(from, to int) {
	for from < to {
		end := c.blockEnd(from, to)
		if worth(c.src[from:end]) {
			line := c.lineOf(from + leadingBlank(c.src[from:end]))
			c.pieces(Part{Kind: Block, Define: line}, span{}, from, end)
		}
		from = end
	}
}

// blockEnd continues over blank lines until the block has a good size.
func (c *cutter) blockEnd(from, to int) int {
	const good, most = 15, 40
	first := c.lineOf(from)
	for n := first; n < len(c.lines) && c.lines[n] < to; n++ {
		start, end := c.lines[n-1], c.lines[n]
		blank := len(bytes.TrimSpace(c.src[max(start, from):end])) == 0
		if blank && n-first >= good || n-first >= most {
			return end
		}
	}
	return to
}

// worth reports whether a block has content: closing braces alone do not count.
func worth(b []byte) bool {
	n := 0
	for i := 0; i < len(b) && n < minBlock; i++ {
		if IsWord(b[i]) {
			n++
		}
	}
	return n >= minBlock
}

const blanks = " \t\r\n"

func leadingBlank(b []byte) int { return len(b) - len(bytes.TrimLeft(b, blanks)) }

// pieces adds a part, in several pieces if it is long. Each piece has the part's name; the first has its documentation.
func (c *cutter) pieces(p Part, doc span, from, to int) {
	from += leadingBlank(c.src[from:to])
	to = from + len(bytes.TrimRight(c.src[from:to], blanks))
	for from < to {
		end := c.pieceEnd(from, to)
		p.Start, p.End = from, end
		p.Line, p.Last = c.lineOf(from), c.lineOf(end-1)
		p.DocStart, p.DocEnd = max(doc.from, from), min(doc.to, end)
		if p.DocEnd <= p.DocStart {
			p.DocStart, p.DocEnd = 0, 0
		}
		c.parts = append(c.parts, p)
		from = end
	}
}

func (c *cutter) pieceEnd(from, to int) int {
	end := to
	if last := c.lineOf(from) + maxLines; last < len(c.lines) && c.lines[last-1] < to &&
		last+maxLines/4 < c.lineOf(to-1) {
		end = c.lines[last-1]
	}
	if end-from > maxBytes {
		end = from + maxBytes
		if n := bytes.LastIndexByte(c.src[from:end], '\n'); n > 0 {
			end = from + n + 1
		}
	}
	return end
}

// lineOf returns the line of a byte, from 1.
func (c *cutter) lineOf(at int) int {
	return sort.Search(len(c.lines), func(i int) bool { return c.lines[i] > at })
}

func lineStarts(src []byte) []int {
	lines := make([]int, 1, bytes.Count(src, []byte{'\n'})+1)
	for i := lineEnd(src, 0); i < len(src); i = lineEnd(src, i+1) {
		lines = append(lines, i+1)
	}
	return lines
}

// Code returns a source with its comments and the insides of its strings blanked out; every byte stays in its place. It
// returns Markdown and plain text unchanged.
func Code(l Language, src []byte) []byte {
	if l == Markdown || l == Text {
		return src
	}
	return mask(src, l).text
}

// findHeadings finds the sections of Markdown. A line that begins with # inside a fence is code.
func findHeadings(src []byte) []found {
	var defs []found
	var titles [7]string
	fence := byte(0)
	for i := 0; i < len(src); {
		end := lineEnd(src, i)
		line := bytes.TrimSpace(src[i:end])
		if len(line) >= 3 && (line[0] == '`' || line[0] == '~') && line[1] == line[0] && line[2] == line[0] {
			switch fence {
			case 0:
				fence = line[0]
			case line[0]:
				fence = 0
			}
		}
		if level := headingLevel(line); level > 0 && fence == 0 {
			if n := len(defs); n > 0 {
				defs[n-1].to = i
			}
			title := string(bytes.Trim(line[level:], " \t#"))
			titles[level] = title
			clear(titles[level+1:])
			defs = append(defs, found{
				kind: Section, name: title, owner: parent(titles[:level]), from: i, to: len(src), at: i,
			})
		}
		i = end + 1
	}
	return defs
}

// headingLevel returns the number of marks of a heading, or 0 if the line is not a heading.
func headingLevel(line []byte) int {
	n := len(line) - len(bytes.TrimLeft(line, "#"))
	if n == 0 || n > 6 || n == len(line) || line[n] != ' ' && line[n] != '\t' {
		return 0
	}
	return n
}

// parent returns the nearest heading above.
func parent(titles []string) string {
	for _, title := range slices.Backward(titles) {
		if title != "" {
			return title
		}
	}
	return ""
}

// A Language is a source language that the package can cut.
type Language string

// The languages. Text stands for everything else.
const (
	Go         Language = "go"
	Python     Language = "python"
	JavaScript Language = "javascript"
	TypeScript Language = "typescript"
	Java       Language = "java"
	Rust       Language = "rust"
	C          Language = "c"
	CPP        Language = "cpp"
	CSharp     Language = "csharp"
	Kotlin     Language = "kotlin"
	Swift      Language = "swift"
	PHP        Language = "php"
	Ruby       Language = "ruby"
	Elixir     Language = "elixir"
	Markdown   Language = "markdown"
	Text       Language = "text"
)

// known maps the names and suffixes of the files that people write to their languages: source that the package can cut,
// or other text whose blocks are worth finding. Data, lock files and logs are not among them.
var known = sync.OnceValue(func() map[string]Language {
	byName := map[string]Language{}
	for language, names := range map[Language]string{
		Go:         ".go",
		Python:     ".py .pyi .pyx",
		JavaScript: ".js .jsx .mjs .cjs",
		TypeScript: ".ts .tsx .mts .cts",
		Java:       ".java",
		Rust:       ".rs",
		C:          ".c .h",
		CPP:        ".cc .cpp .cxx .hpp .hh .hxx .cu",
		CSharp:     ".cs",
		Kotlin:     ".kt .kts .scala",
		Swift:      ".swift",
		PHP:        ".php",
		Ruby:       ".rb .rake .gemspec Rakefile Gemfile Guardfile Vagrantfile",
		Elixir:     ".ex .exs",
		Markdown:   ".md .markdown",
		Text: "Makefile Dockerfile Justfile CMakeLists.txt Jenkinsfile README CHANGELOG CONTRIBUTING .txt .rst .adoc " +
			".org .sh .bash .zsh .fish .ps1 .sql .proto .graphql .yaml .yml .toml .lua .pl .pm .r .jl .hs .ml .mli " +
			".fs .clj .cljs .erl .hrl .zig .nim .dart .vue .svelte .html .css .scss .less .tf .gradle .cmake .vim " +
			".el .groovy .m .mm .asm .s .tex",
	} {
		for name := range strings.FieldsSeq(names) {
			byName[name] = language
		}
	}
	return byName
})

// lookUp looks up a file by its name, then by its suffix.
func lookUp(name string) (l Language, found bool) {
	base := path.Base(name)
	if l, found = known()[base]; !found {
		l, found = known()[strings.ToLower(path.Ext(base))]
	}
	return l, found
}

// LanguageOf returns the language of a file, judged by its name.
func LanguageOf(name string) Language {
	l, _ := lookUp(name)
	return cmp.Or(l, Text)
}

// IsSource reports whether people write files of this name.
func IsSource(name string) bool {
	_, found := lookUp(name)
	return found
}
