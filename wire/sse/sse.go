// Package sse reads server-sent events from untrusted servers: lines, events and streams are bounded.
package sse

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"

	"toolpost/wire/bounded"
)

// An Event is one server-sent event that has data.
type Event struct {
	Name string
	Data []byte
}

// A Reader reads events within its bounds. Lines end with LF or CRLF: no known server ends them with CR alone.
type Reader struct {
	LastID string        // of the last event that had one, with data or without
	Retry  time.Duration // how long to wait before reconnecting, if the server set it

	lines *bounded.Lines
	most  int
}

// New reads from r. Most bounds a line, and the data of one event, in bytes.
func New(r io.Reader, most int) *Reader { return NewBounded(r, most, 0) }

// NewBounded is New with a bound on all input, in bytes; 0 means no bound.
func NewBounded(r io.Reader, most int, total int64) *Reader {
	return &Reader{lines: bounded.NewLines(r, bounded.LineLimits{Line: most, Total: total}), most: most}
}

// maxRetry bounds the delay that a server can ask for.
const maxRetry = time.Minute

// Next returns the next event with data. The end of a stream, anywhere, is io.ErrUnexpectedEOF: a caller that has read
// the last event does not ask for another.
func (s *Reader) Next() (m Event, err error) {
	hasData := false
	for {
		line, err := s.lines.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Event{}, err
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && hasData:
			return m, nil
		case len(line) == 0:
			m.Name = ""
		case string(name) == "event":
			m.Name = string(value)
		case string(name) == "data":
			if hasData {
				m.Data = append(m.Data, '\n')
			}
			if m.Data, hasData = append(m.Data, value...), true; len(m.Data) > s.most {
				return Event{}, &bounded.LimitError{What: "a message", Max: int64(s.most)}
			}
		default:
			s.about(string(name), string(value))
		}
	}
}

// about handles the fields that concern the stream itself.
func (s *Reader) about(name, value string) {
	switch name {
	case "id":
		s.LastID = value
	case "retry":
		if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
			s.Retry = min(time.Duration(ms)*time.Millisecond, maxRetry)
		}
	}
}
