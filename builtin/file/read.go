package file

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"unicode/utf8"

	"toolpost/host/process"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

type readArgs struct {
	fileArgs
	Offset   *int64 `json:"offset" schema:"minimum=0" doc:"The first byte to read, counted from 0."`
	Length   *int64 `json:"length" schema:"minimum=0" doc:"How many bytes to read, at most."`
	FromLine *int64 `json:"from_line" schema:"minimum=1" doc:"The first line to read, counted from 1."`
	ToLine   *int64 `json:"to_line" schema:"minimum=1" doc:"The last line to read."`
	Encoding string `json:"encoding" schema:"enum=text|base64" doc:"How the content is given. Left out: text as a string, everything else in base64."`
	Stream   bool   `json:"stream" doc:"Give the content as output events while it is read, and only its size as the result: for files over the size limit."`
}

// The encodings of content. By default, text is returned as text and everything else as base64.
const (
	asText   = "text"
	asBase64 = "base64"
)

// A binary is the form of content that is not text.
type binary struct {
	Encoding string `json:"encoding"`
	Content  []byte `json:"content"` // base64 in JSON
}

// whole reports whether the call wants the file as it is, which is what the cache keeps.
func (a readArgs) whole() bool { return a == readArgs{fileArgs: a.fileArgs} }

func (t *Tools) read(r *request, a readArgs) (json.RawMessage, error) {
	rng, err := a.span()
	if err != nil {
		return nil, err
	}
	if err := checkEncoding(a.Encoding); err != nil {
		return nil, err
	}
	f, err := r.Open(a.Path)
	if err != nil {
		return nil, advise(err, "folder", listName)
	}
	defer f.Close()
	switch {
	case a.whole():
		return t.cache.get(f, func() (json.RawMessage, error) {
			if f.Size() > large && f.Size() <= t.maxFile {
				if text, err := quoted(r, f, t.maxFile); text != nil || err != nil {
					return text, err
				}
			}
			content, err := f.ReadAll(t.maxFile)
			if err != nil {
				return nil, err
			}
			return encode(content, f.Shown(), "")
		})
	case a.Stream:
		return stream(r, f, rng.reader(r, f, max(f.Size(), t.maxFile)), a.Encoding)
	}
	content, err := io.ReadAll(rng.reader(r, f, t.maxFile+1))
	if err == nil && int64(len(content)) > t.maxFile {
		err = f.TooLarge(t.maxFile)
	}
	if err != nil {
		return nil, err
	}
	return encode(content, a.Path, a.Encoding)
}

// advise names the tool to use instead, if an error's reason shows that this one is wrong.
func advise(err error, reason, instead string) error {
	var e *tool.Error
	if !errors.As(err, &e) || e.Reason != reason {
		return err
	}
	better := *e
	better.Message += "; use " + instead
	return &better
}

func encode(content []byte, shown, encoding string) (json.RawMessage, error) {
	switch {
	case encoding != asBase64 && isText(content):
		return strictjson.Quote(content), nil
	case encoding == asText:
		return nil, notText(shown)
	}
	return strictjson.Marshal(binary{Encoding: asBase64, Content: content})
}

func notText(shown string) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "%s is not UTF-8 text; ask for encoding base64", shown).Because("not_text")
}

func checkEncoding(e string) error {
	if e != "" && e != asText && e != asBase64 {
		return tool.Errorf(tool.CodeInvalidInput, "encoding is %q; say text or base64", e)
	}
	return nil
}

// isText reports whether people would call it text; a NUL shows that it is not.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// block is how much of a file is in memory at a time, and in one event. It is divisible by three, so that the base64 of the
// blocks, concatenated, is the base64 of the file.
const block = 48 << 10

// streamed describes content that was sent as events.
type streamed struct {
	Streamed bool   `json:"streamed"`
	Bytes    int64  `json:"bytes"`
	Encoding string `json:"encoding"`
}

// stream sends content as output events, block by block.
func stream(r *request, f *workspace.File, content io.Reader, encoding string) (json.RawMessage, error) {
	s := streamed{Streamed: true, Encoding: encoding}
	buf := make([]byte, block)
	held := 0 // bytes at the start of buf that begin a character
	for {
		n, err := io.ReadFull(content, buf[held:])
		n += held
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return nil, err
		}
		s.choose(buf[:n])
		give := n
		if s.Encoding == asText && !last {
			give = process.WholeRunes(buf[:n])
		}
		if err := s.emit(r.out, buf[:give], f.Shown()); err != nil {
			return nil, err
		}
		held = copy(buf, buf[give:n])
		if last {
			return strictjson.Marshal(s)
		}
	}
}

// choose decides, by the first block, what the caller left open.
func (s *streamed) choose(first []byte) {
	switch {
	case s.Encoding != "":
	case isText(first[:process.WholeRunes(first)]):
		s.Encoding = asText
	default:
		s.Encoding = asBase64
	}
}

func (s *streamed) emit(out tool.Sink, b []byte, shown string) error {
	if len(b) == 0 {
		return nil
	}
	text := string(b)
	if s.Encoding == asBase64 {
		text = base64.StdEncoding.EncodeToString(b)
	} else if !isText(b) {
		return notText(shown)
	}
	s.Bytes += int64(len(b))
	return out.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: "content", Text: text}))
}

// A span is the requested part of a file: bytes, or lines.
type span struct {
	lines    bool
	from, to int64 // bytes: from 0, to is exclusive; lines: from 1, both inclusive
}

// maxScan is how much of a file is searched for the requested lines.
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

// A lineReader returns some lines of what it reads.
type lineReader struct {
	span
	r       io.Reader
	line    int64 // the next one
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

// keep moves the wanted part of a block to its beginning and returns its length.
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
