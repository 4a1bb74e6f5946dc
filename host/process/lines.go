package process

import (
	"bytes"
	"fmt"
	"io"
	"math"
)

const (
	readSize = 64 << 10

	emptyReads = 100 // in a row, until a reader is taken to be broken
)

// LineLimits bounds what Lines reads.
type LineLimits struct {
	Line  int   // bytes of one line, without its newline; 0: 4 MiB
	Total int64 // bytes of all lines, with their newlines; 0: no limit
	Open  bool  // a last line without its newline is a line like any other
}

// Lines reads newline-terminated lines within bounds. It has one buffer, as large as the longest line.
type Lines struct {
	r      io.Reader
	limits LineLimits
	buf    []byte // what was read and not given yet is buf[start:end]
	start  int
	end    int
	given  int64 // bytes
	number int
	err    error // what Next gives when the buffer has no more lines
}

// NewLines reads lines from r.
func NewLines(r io.Reader, l LineLimits) *Lines {
	if l.Line <= 0 {
		l.Line = MaxLine
	}
	return &Lines{r: r, limits: l}
}

// Number is the number of the line that Next returned last, from 1.
func (l *Lines) Number() int { return l.number }

// Next returns the next line without its newline, valid until the next call. A last line without a newline comes with
// io.ErrUnexpectedEOF, unless LineLimits.Open takes it; the clean end is io.EOF; a bound that was exceeded is a
// *LimitError.
func (l *Lines) Next() ([]byte, error) {
	searched := 0
	for {
		pending := l.buf[l.start:l.end]
		if i := bytes.IndexByte(pending[searched:], '\n'); i >= 0 {
			return l.give(searched+i, 1, nil)
		}
		if err := l.exceeded(len(pending), 0); err != nil {
			return nil, err
		}
		if l.err != nil {
			return l.last(len(pending))
		}
		searched = len(pending)
		l.fill()
	}
}

// give hands out the next n bytes as a line and steps over its newline.
func (l *Lines) give(n, newline int, err error) ([]byte, error) {
	if err := l.exceeded(n, newline); err != nil {
		return nil, err
	}
	line := l.buf[l.start : l.start+n]
	l.start += n + newline
	l.given += int64(n + newline)
	l.number++
	return line, err
}

// last deals with what is left when r has no more.
func (l *Lines) last(n int) ([]byte, error) {
	if n == 0 || l.err != io.EOF {
		l.start = l.end
		return nil, l.err
	}
	if l.limits.Open {
		return l.give(n, 0, nil)
	}
	return l.give(n, 0, io.ErrUnexpectedEOF)
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

// fill reads once, after making room where there is too little.
func (l *Lines) fill() {
	if l.start == l.end {
		l.start, l.end = 0, 0
	}
	if len(l.buf)-l.end < readSize/2 {
		l.makeRoom()
	}
	for range emptyReads {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if l.err = err; n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}

// makeRoom moves the pending bytes to the front of the buffer, and doubles it where they fill half of it.
// Next gives up on a line before it grows beyond its limit.
func (l *Lines) makeRoom() {
	pending := l.buf[l.start:l.end]
	size := min(max(2*len(l.buf), readSize), l.limits.Line+readSize)
	if size > len(l.buf) && len(pending) >= len(l.buf)/2 {
		l.buf = make([]byte, size)
	}
	l.end = copy(l.buf, pending)
	l.start = 0
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
