package define

import (
	"io"
	"slices"
	"strings"
	"sync"

	"toolpost/host/process"
	"toolpost/tool"
)

// A Stream keeps the first bytes of what the programs of a call write, and passes them on as they come. The rest is read and
// dropped, so that no program blocks. Several programs may write to it at once.
type Stream struct {
	name   string
	events tool.Sink

	mu        sync.Mutex
	left      int // bytes that may still be kept
	kept      strings.Builder
	part      []byte // of a character whose rest has not come yet
	truncated bool
}

// NewStream makes a stream with a name, stdout or stderr, that keeps at most this many bytes.
func NewStream(name string, events tool.Sink, most int) *Stream {
	return &Stream{name: name, events: events, left: most}
}

// Write implements io.Writer. An error means that there is no listener any more.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := len(p)
	if len(p) > s.left {
		p, s.truncated = p[:s.left], true
	}
	s.left -= len(p)
	if len(p) == 0 {
		return size, nil
	}
	data := slices.Concat(s.part, p)
	whole := process.WholeRunes(data)
	s.part = data[whole:]
	return size, s.emit(strings.ToValidUTF8(string(data[:whole]), "\uFFFD"))
}

func (s *Stream) emit(text string) error {
	if text == "" {
		return nil
	}
	s.kept.WriteString(text)
	return s.events.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: s.name, Text: text}))
}

// Lines returns a function that passes lines from process.Command.Stderr on to w. They come without their newline; a long
// line comes in pieces.
func Lines(w io.Writer) func([]byte) {
	const piece = 8<<10 - 3 // a line of this length is a piece
	return func(line []byte) {
		if len(line) < piece {
			line = append(slices.Clone(line), '\n')
		}
		_, _ = w.Write(line) // an error ends the call by itself
	}
}

// Text returns everything that was kept.
func (s *Stream) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.part) > 0 && !s.truncated {
		s.part = nil
		_ = s.emit("\uFFFD") // the relay of events remembers an error
	}
	return s.kept.String()
}

// Truncated reports whether something was dropped.
func (s *Stream) Truncated() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.truncated
}
