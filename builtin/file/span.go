package file

import (
	"bytes"
	"context"
	"io"
	"math"

	"toolpost/tool"
)

// A span is the part of a file that is asked for: bytes, or lines.
type span struct {
	lines    bool
	from, to int64 // bytes: from 0, to is the first that is not wanted; lines: from 1, both wanted
}

// maxScan is how much of a file is looked through for the lines that are asked for.
const maxScan = 1 << 30

func (a readArgs) span() (span, error) {
	byBytes, byLines := a.Offset != nil || a.Length != nil, a.FromLine != nil || a.ToLine != nil
	if byBytes && byLines {
		return span{}, tool.Errorf(tool.CodeInvalidInput,
			"ask for bytes (offset, length) or for lines (from_line, to_line), not for both")
	}
	if byLines {
		s := span{lines: true, from: or(a.FromLine, 1), to: or(a.ToLine, math.MaxInt64)}
		if s.from < 1 || s.to < s.from {
			return span{}, tool.Errorf(tool.CodeInvalidInput,
				"lines %d to %d: the first line is 1, and the last one comes after it", s.from, s.to)
		}
		return s, nil
	}
	s := span{from: or(a.Offset, 0), to: math.MaxInt64}
	length := or(a.Length, math.MaxInt64)
	if s.from < 0 || length < 0 {
		return span{}, tool.Errorf(tool.CodeInvalidInput, "offset %d, length %d: neither can be negative", s.from, length)
	}
	if length < s.to-s.from {
		s.to = s.from + length
	}
	return s, nil
}

func or(p *int64, otherwise int64) int64 {
	if p == nil {
		return otherwise
	}
	return *p
}

// reader reads the span of a file, at most limit bytes of it.
func (s span) reader(ctx context.Context, f io.ReaderAt, limit int64) io.Reader {
	if !s.lines {
		return contextReader{ctx, io.NewSectionReader(f, s.from, min(s.to-s.from, limit))}
	}
	all := contextReader{ctx, io.NewSectionReader(f, 0, math.MaxInt64)}
	return io.LimitReader(&lineReader{r: all, span: s, line: 1}, limit)
}

// A lineReader gives some lines of what it reads.
type lineReader struct {
	span
	r       io.Reader
	line    int64 // the one that comes next
	scanned int64
}

// Read implements io.Reader.
func (l *lineReader) Read(p []byte) (int, error) {
	for l.line <= l.to {
		n, err := l.r.Read(p)
		if kept := l.keep(p[:n]); kept > 0 || err != nil || len(p) == 0 {
			return kept, err
		}
		if l.scanned += int64(n); l.scanned > maxScan {
			return 0, tool.Errorf(tool.CodeInvalidInput,
				"line %d is not within the first %d bytes; ask for bytes by offset", l.from, maxScan).Because("too_large")
		}
	}
	return 0, io.EOF
}

// keep moves what is wanted of a block to its beginning and gives its length.
func (l *lineReader) keep(block []byte) int {
	rest := block
	for l.line < l.from {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			return 0
		}
		rest, l.line = rest[end+1:], l.line+1
	}
	if l.to == math.MaxInt64 {
		return copy(block, rest)
	}
	n := 0
	for l.line <= l.to {
		end := bytes.IndexByte(rest[n:], '\n')
		if end < 0 {
			n = len(rest)
			break
		}
		n, l.line = n+end+1, l.line+1
	}
	return copy(block, rest[:n])
}

// A contextReader stops between two reads when its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
