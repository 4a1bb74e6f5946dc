package grep

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// A Match is a line that matches.
type Match struct {
	Line    int      // its number, from 1
	Content string   // valid UTF-8, without its line ending
	Around  *Context // nil if no context was requested
}

// A Context holds the lines around a match: those requested, as far as they exist.
type Context struct{ Before, After []string }

// Shape selects what is returned of the matching lines. The zero value returns all of them, without context.
type Shape struct {
	Before, After int // lines of context
	PerFile       int // maximum number of matches per file; 0 means all, -1 none
	MaxLine       int // maximum number of bytes of a line; 0 means DefaultMaxLine
}

// DefaultMaxLine is as much of a line as people can use. Longer lines are machine-written.
const DefaultMaxLine = 1000

// cutMark marks a place at which a line was cut.
const cutMark = "…"

// binaryBlock is how much of a file is searched for a NUL, the sure sign of a binary file.
const binaryBlock = 8 << 10

// Binary reports whether a file with this beginning is binary.
func Binary(start []byte) bool {
	return bytes.IndexByte(start[:min(len(start), binaryBlock)], 0) >= 0
}

// Lines returns the lines of a text that match. Before is the number of lines that precede the text. More reports that
// there are more matches than the shape allows.
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

// take returns the collected matches. Their contents share one string, because a file may have many.
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

// around returns the context of the line between start and end.
func (s Shape) around(text []byte, start, end int) *Context {
	first := start
	for n := 0; n < s.Before && first > 0; n++ {
		first = bytes.LastIndexByte(text[:first-1], '\n') + 1
	}
	return &Context{Before: s.lines(text[:start], first, s.Before), After: s.lines(text, end, s.After)}
}

// lines returns at most n lines from a place on.
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

// appendShown appends a line as valid UTF-8. It cuts a long line to the part around the match.
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
