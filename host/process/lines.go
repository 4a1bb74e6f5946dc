package process

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
)

const readSize = 64 << 10

// LineLimits bounds what Lines reads.
type LineLimits struct {
	Line  int   // bytes of one line, without its newline; 0: 4 MiB
	Total int64 // bytes of all lines, with their newlines; 0: no limit
	Open  bool  // a last line without its newline is a line like any other
}

// Lines reads newline-terminated lines within bounds. It has one buffer, as large as the longest line.
type Lines struct {
	scan     *bufio.Scanner
	limits   LineLimits
	searched int   // of the bytes of the next line
	given    int64 // bytes
	number   int
	open     bool // the last line has no newline
}

// NewLines reads lines from r.
func NewLines(r io.Reader, l LineLimits) *Lines {
	l.Line = cmp.Or(max(l.Line, 0), MaxLine)
	lines := &Lines{scan: bufio.NewScanner(r), limits: l}
	lines.scan.Buffer(make([]byte, readSize), l.Line+readSize)
	lines.scan.Split(lines.split)
	return lines
}

// Number is the number of the line that Next returned last, from 1.
func (l *Lines) Number() int { return l.number }

// Next returns the next line without its newline, valid until the next call. A last line without a newline comes with
// io.ErrUnexpectedEOF, unless LineLimits.Open takes it; the clean end is io.EOF; a bound that was exceeded is a
// *LimitError.
func (l *Lines) Next() ([]byte, error) {
	switch {
	case !l.scan.Scan():
		return nil, cmp.Or(l.scan.Err(), io.EOF)
	case l.open && !l.limits.Open:
		return l.scan.Bytes(), io.ErrUnexpectedEOF
	}
	return l.scan.Bytes(), nil
}

// split finds the next line in what was read and not given yet. It gives up on one before that grows beyond its limit.
func (l *Lines) split(pending []byte, last bool) (size int, line []byte, err error) {
	if l.scan.Err() != nil { // the end of what was read is a part of a line
		return 0, nil, nil
	}
	i := bytes.IndexByte(pending[l.searched:], '\n')
	n, newline := l.searched+i, 1
	if i < 0 {
		n, newline = len(pending), 0
		l.searched = n
	}
	if err := l.exceeded(n, newline); err != nil {
		return 0, nil, err
	}
	if i < 0 && (!last || n == 0) {
		return 0, nil, nil
	}
	l.open, l.searched, l.number, l.given = i < 0, 0, l.number+1, l.given+int64(n+newline)
	return n + newline, pending[:n], nil
}

// exceeded says which bound a line of n bytes breaks, if any: the one that it reached first.
func (l *Lines) exceeded(n, newline int) error {
	left := int64(n + newline) // within the total, unless there is one
	if l.limits.Total > 0 {
		left = l.limits.Total - l.given
	}
	switch {
	case n > l.limits.Line && int64(l.limits.Line) <= left:
		return &LimitError{What: fmt.Sprintf("line %d", l.number+1), Max: int64(l.limits.Line)}
	case int64(n+newline) > left:
		return &LimitError{What: "the output", Max: l.limits.Total}
	}
	return nil
}

// ReadDocument reads r to its end, at most max bytes; beyond that the error is a *LimitError.
func ReadDocument(r io.Reader, max int) ([]byte, error) {
	enough := int64(min(max, math.MaxInt-1)) + 1 // one byte more tells that there is more
	data, err := io.ReadAll(io.LimitReader(r, enough))
	if len(data) > max {
		return nil, &LimitError{What: "the document", Max: int64(max)}
	}
	return data, err
}

// A LimitError says which bound was exceeded: "line 7 is longer than 4194304 bytes".
type LimitError struct {
	What string // "line 7", "the output", "the document"
	Max  int64
}

// Error implements error.
func (e *LimitError) Error() string { return fmt.Sprintf("%s is longer than %d bytes", e.What, e.Max) }
