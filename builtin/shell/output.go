package shell

import (
	"slices"
	"strings"
	"sync"

	"toolpost/host/process"
	"toolpost/tool"
)

// output collects what the commands of a call write, and passes it on as it comes.
type output struct{ stdout, stderr *stream }

func newOutput(events tool.Sink, most int) *output {
	return &output{
		stdout: &stream{name: "stdout", events: events, left: most},
		stderr: &stream{name: "stderr", events: events, left: most},
	}
}

func (o *output) result(code int) result {
	return result{
		Stdout: o.stdout.text(), Stderr: o.stderr.text(), ExitCode: code,
		Truncated: o.stdout.truncated || o.stderr.truncated,
	}
}

// A stream keeps the first bytes that are written to it; the rest is read and dropped, so that nobody waits for us.
// Several commands may write at once.
type stream struct {
	name   string
	events tool.Sink

	mu        sync.Mutex
	left      int // bytes that are still kept
	kept      strings.Builder
	part      []byte // of a character whose rest has not come yet
	truncated bool
}

// Write implements io.Writer. An error means that nobody listens any more.
func (s *stream) Write(p []byte) (int, error) {
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

func (s *stream) emit(text string) error {
	if text == "" {
		return nil
	}
	s.kept.WriteString(text)
	return s.events.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: s.name, Text: text}))
}

// text is all that was kept.
func (s *stream) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.part) > 0 && !s.truncated {
		s.part = nil
		_ = s.emit("\uFFFD") // the relay remembers an error
	}
	return s.kept.String()
}
