package web

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"

	"toolpost/host/process"
)

// A Received is one server-sent event that has data.
type Received struct {
	Event string
	Data  []byte
}

// Events are server-sent events as they are read, within its bounds. Lines end with LF or CRLF: nobody is known who
// ends them with CR alone.
type Events struct {
	LastID string        // of the last event that had one, with data or without
	Retry  time.Duration // how long to wait before the stream is asked for again, if it was said

	lines *process.Lines
	most  int
}

// NewEvents reads from r. Most bounds a line, and the data of one event, in bytes.
func NewEvents(r io.Reader, most int) *Events {
	return &Events{lines: process.NewLines(r, process.LineLimits{Line: most}), most: most}
}

// maxRetry is the longest that somebody is believed who asks for patience.
const maxRetry = time.Minute

// Next returns the next event with data. A stream that ends, wherever it does, ends with io.ErrUnexpectedEOF: whoever
// has read the last event does not ask for another.
func (s *Events) Next() (m Received, err error) {
	hasData := false
	for {
		line, err := s.lines.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Received{}, err
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && hasData:
			return m, nil
		case len(line) == 0:
			m.Event = ""
		case string(name) == "event":
			m.Event = string(value)
		case string(name) == "data":
			if hasData {
				m.Data = append(m.Data, '\n')
			}
			if m.Data, hasData = append(m.Data, value...), true; len(m.Data) > s.most {
				return Received{}, &process.LimitError{What: "a message", Max: int64(s.most)}
			}
		default:
			s.about(string(name), string(value))
		}
	}
}

// about takes what is said of the stream and not in it.
func (s *Events) about(name, value string) {
	switch name {
	case "id":
		s.LastID = value
	case "retry":
		if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
			s.Retry = min(time.Duration(ms)*time.Millisecond, maxRetry)
		}
	}
}
