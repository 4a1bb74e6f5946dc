// Package bounded reads input of untrusted programs, servers and files within bounds: lines, and whole documents.
package bounded

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
)

// MaxLine is the default bound of a line, in bytes.
const MaxLine = 4 << 20

const readSize = 64 << 10

// LineLimits bounds the input of Lines.
type LineLimits struct {
	Line  int   // bytes of one line, without its newline; default MaxLine
	Total int64 // bytes of all lines, with their newlines; 0 means no limit
	Open  bool  // accept a last line without a newline
}

// Lines reads newline-terminated lines within bounds. Its only buffer is as large as the longest line.
type Lines struct {
	scan     *bufio.Scanner
	limits   LineLimits
	searched int   // bytes of the next line already searched
	given    int64 // bytes returned
	number   int
	open     bool // the last line has no newline
}

// NewLines returns a reader of the lines of r.
func NewLines(r io.Reader, l LineLimits) *Lines {
	l.Line = cmp.Or(max(l.Line, 0), MaxLine)
	lines := &Lines{scan: bufio.NewScanner(r), limits: l}
	lines.scan.Buffer(make([]byte, readSize), l.Line+readSize)
	lines.scan.Split(lines.split)
	return lines
}

// Number returns the number of the line that Next returned last, from 1.
func (l *Lines) Number() int { return l.number }

// Next returns the next line without its newline, valid until the next call. A last line without a newline is returned
// with io.ErrUnexpectedEOF, unless LineLimits.Open is set. The error is io.EOF at the clean end, and a *LimitError if a
// bound was exceeded.
func (l *Lines) Next() ([]byte, error) {
	switch {
	case !l.scan.Scan():
		return nil, cmp.Or(l.scan.Err(), io.EOF)
	case l.open && !l.limits.Open:
		return l.scan.Bytes(), io.ErrUnexpectedEOF
	}
	return l.scan.Bytes(), nil
}

// split finds the next line in the pending bytes. It fails before a line grows beyond its limit.
func (l *Lines) split(pending []byte, last bool) (size int, line []byte, err error) {
	if l.scan.Err() != nil { // the rest of the input is a part of a line
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

// exceeded returns the bound that a line of n bytes breaks first, if any.
func (l *Lines) exceeded(n, newline int) error {
	left := int64(n + newline) // within the total, if there is no limit
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
	enough := int64(min(max, math.MaxInt-1)) + 1 // one byte more shows that there is more
	data, err := io.ReadAll(io.LimitReader(r, enough))
	if len(data) > max {
		return nil, &LimitError{What: "the document", Max: int64(max)}
	}
	return data, err
}

// ReadWithin is ReadDocument until ctx ends. Then it closes r if r is an io.Closer. A read that cannot be interrupted,
// such as from a terminal or an inherited pipe, leaves its goroutine behind until the program ends.
func ReadWithin(ctx context.Context, r io.Reader, max int) ([]byte, error) {
	read := make(chan struct{})
	var doc []byte
	var failed error
	go func() {
		defer close(read)
		doc, failed = ReadDocument(r, max)
	}()
	select {
	case <-read:
		return doc, failed
	case <-ctx.Done():
		if c, ok := r.(io.Closer); ok {
			_ = c.Close()
		}
		return nil, context.Cause(ctx)
	}
}

// A LimitError reports which bound was exceeded: "line 7 is longer than 4194304 bytes".
type LimitError struct {
	What string // "line 7", "the output", "the document"
	Max  int64
}

// Error implements error.
func (e *LimitError) Error() string { return fmt.Sprintf("%s is longer than %d bytes", e.What, e.Max) }
