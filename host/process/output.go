package process

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const readSize = 64 << 10

// LineLimits bounds the input of Lines.
type LineLimits struct {
	Line  int   // bytes of one line, without its newline; default 4 MiB
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

// A LimitError reports which bound was exceeded: "line 7 is longer than 4194304 bytes".
type LimitError struct {
	What string // "line 7", "the output", "the document"
	Max  int64
}

// Error implements error.
func (e *LimitError) Error() string { return fmt.Sprintf("%s is longer than %d bytes", e.What, e.Max) }

const (
	tailSize    = 4 << 10
	pieceSize   = 8 << 10 // the longest line that is passed on in one piece
	stderrLimit = 1 << 20
)

// stderr reads a child's standard error to its end, so that the child never waits for a reader.
type stderr struct {
	pipe    *os.File
	emit    func([]byte)
	left    int  // bytes that may still be passed to emit
	redraws bool // see Command
	done    chan struct{}

	silent atomic.Bool // emit is no longer called

	mu   sync.Mutex // guards last
	last []byte     // at least the tail, at most twice as much
}

func newStderr(pipe *os.File, cmd Command) *stderr {
	s := &stderr{
		pipe: pipe, emit: cmd.Stderr, left: cmp.Or(max(cmd.StderrLimit, 0), stderrLimit), redraws: cmd.Redraws,
		done: make(chan struct{}),
	}
	go s.run()
	return s
}

func (s *stderr) run() {
	defer close(s.done)
	all := io.TeeReader(s.pipe, s)
	if s.emit != nil {
		lines := bufio.NewScanner(all)
		lines.Buffer(make([]byte, pieceSize+1), 0)
		lines.Split(s.split)
		for s.left > 0 && lines.Scan() {
			s.hand(lines.Bytes())
		}
	}
	_, _ = io.Copy(io.Discard, all) // only the tail is kept
}

// Write remembers the tail of what was read.
func (s *stderr) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last, data...)
	if over := len(s.last) - tailSize; over > tailSize {
		s.last = append(s.last[:0], s.last[over:]...)
	}
	return len(data), nil
}

// split finds the next line, or a piece of one that is too long.
func (s *stderr) split(data []byte, last bool) (size int, piece []byte, err error) {
	ends := "\n"
	if s.redraws {
		ends = "\r\n"
	}
	switch i := bytes.IndexAny(data, ends); {
	case i >= 0:
		return i + 1, bytes.TrimSuffix(data[:i], []byte{'\r'}), nil
	case len(data) > pieceSize:
		size = WholeRunes(data[:pieceSize])
		return size, data[:size], nil
	case last && len(data) > 0:
		return len(data), data, nil
	}
	return 0, nil, nil
}

// WholeRunes returns the length of the longest prefix of b that does not end within a character.
func WholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i > len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) && !utf8.FullRune(b[i:]) {
			return i
		}
	}
	return len(b)
}

// hand passes a line to the caller. The line that exceeds the limit is the first that is not passed on.
func (s *stderr) hand(line []byte) {
	if s.left -= len(line) + 1; s.left < 0 || s.silent.Load() || s.redraws && len(line) == 0 {
		return
	}
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	s.emit(line)
}

// stop waits for the end of the output, which comes when no writer is left. The wait is bounded: a callback may hang, and
// a writer may have escaped.
func (s *stderr) stop(within time.Duration) {
	_ = s.pipe.SetReadDeadline(time.Now().Add(within))
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
	s.silent.Store(true)
	_ = s.pipe.Close()
}

func (s *stderr) tail() string {
	s.mu.Lock()
	last := string(s.last[max(0, len(s.last)-tailSize-utf8.UTFMax):])
	s.mu.Unlock()
	last = strings.ToValidUTF8(last, "\uFFFD")
	cut := max(0, len(last)-tailSize)
	for cut < len(last) && !utf8.RuneStart(last[cut]) {
		cut++
	}
	return last[cut:]
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
