package grep

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// A Match is one line that matches.
type Match struct {
	Line    int      // its number, from 1
	Content string   // valid UTF-8, without what ends the line
	Around  *Context // nil where none was asked for
}

// A Context is the lines around a match, as many as were asked for and are there.
type Context struct{ Before, After []string }

// Shape says what is given of the lines that match. The zero value gives all of them, without others
// around them.
type Shape struct {
	Before, After int // lines around each
	PerFile       int // at most so many of one file; 0: all; -1: none
	MaxLine       int // bytes of a line that are given; 0: DefaultMaxLine
}

// DefaultMaxLine is how much of a line people can use. Longer ones are what machines wrote.
const DefaultMaxLine = 1000

// cutMark stands where a line was cut.
const cutMark = "…"

// binaryBlock is how much of a file is looked at for a NUL, the sure sign that it is no text.
const binaryBlock = 8 << 10

// Binary reports whether a file that begins so is no text.
func Binary(start []byte) bool {
	return bytes.IndexByte(start[:min(len(start), binaryBlock)], 0) >= 0
}

// Lines returns the lines of a text that match; before it are so many others. More says that there are more matches
// than the shape wants.
func (m *Matcher) Lines(text []byte, before int, s Shape) (_ []Match, more bool) {
	if s.MaxLine == 0 {
		s.MaxLine = DefaultMaxLine
	}
	m.Reset()
	m.found, m.shown, m.ends = m.found[:0], m.shown[:0], m.ends[:0]
	number, counted, from := before+1, 0, 0
	for {
		span, ok := m.Next(text, from)
		if !ok {
			break
		}
		if more = s.PerFile != 0 && len(m.found) >= s.PerFile; more {
			break
		}
		number += bytes.Count(text[counted:span.Start], []byte{'\n'})
		counted, from = span.Start, span.End+1
		match := Match{Line: number}
		m.shown = s.appendShown(m.shown, text, span)
		m.ends = append(m.ends, len(m.shown))
		if s.Before > 0 || s.After > 0 {
			match.Around = s.around(text, span.Start, from)
		}
		m.found = append(m.found, match)
	}
	return m.take(), more
}

// take returns the matches that were gathered, their contents out of one string: a file may have many.
func (m *Matcher) take() []Match {
	if len(m.found) == 0 {
		return nil
	}
	all, start := string(m.shown), 0
	for i, end := range m.ends {
		m.found[i].Content = all[start:end]
		start = end
	}
	return slices.Clone(m.found)
}

// around returns the lines around one that begins and ends at two places.
func (s Shape) around(text []byte, start, end int) *Context {
	first := start
	for n := 0; n < s.Before && first > 0; n++ {
		first = bytes.LastIndexByte(text[:first-1], '\n') + 1
	}
	return &Context{Before: s.lines(text[:start], first, s.Before), After: s.lines(text, end, s.After)}
}

// lines returns at most n lines that begin at a place.
func (s Shape) lines(text []byte, from, n int) []string {
	if n == 0 {
		return nil
	}
	lines := make([]string, 0, n)
	for from < len(text) && len(lines) < n {
		span := lineAt(text, from, from)
		lines = append(lines, string(s.appendShown(nil, text, span)))
		from = span.End + 1
	}
	return lines
}

// appendShown gives a line to people, as valid UTF-8. Of a long one it gives what is around the match.
func (s Shape) appendShown(to, text []byte, span Span) []byte {
	line := trimCR(text[span.Start:span.End])
	if len(line) <= s.MaxLine {
		return appendValid(to, line)
	}
	start := max(0, min(span.At-span.Start-s.MaxLine/2, len(line)-s.MaxLine))
	end := start + s.MaxLine
	for start > 0 && start < end && !utf8.RuneStart(line[start]) {
		start++
	}
	for end < len(line) && end > start && !utf8.RuneStart(line[end]) {
		end--
	}
	if start > 0 {
		to = append(to, cutMark...)
	}
	to = appendValid(to, line[start:end])
	if end < len(line) {
		to = append(to, cutMark...)
	}
	return to
}

func appendValid(to, line []byte) []byte {
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	return append(to, line...)
}
