package process

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

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
