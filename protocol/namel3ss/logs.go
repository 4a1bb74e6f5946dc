package namel3ss

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	maxLog    = 8 << 20 // bytes of log lines that become events; later lines are only counted
	lineCost  = 64      // bytes that even an empty line counts for
	pieceSize = 8 << 10 // the longest line that becomes one event
	tailSize  = 4 << 10 // bytes of standard error that are kept for messages
)

// logs turns a tool's output, other than its reply, into log events of the call.
type logs struct {
	tool   string
	ctx    context.Context
	stop   context.CancelCauseFunc // ends the call
	events *tool.Relay
	redact *strings.Replacer

	mu   sync.Mutex
	size int
	lost int    // lines beyond maxLog
	tail []byte // the end of standard error
}

// read emits an event for every line of r. It always reads to the end: a tool must not hang because its output is unwanted.
func (l *logs) read(stream string, r io.Reader) {
	in := bufio.NewReaderSize(r, pieceSize)
	var line []byte
	for !l.full() {
		piece, err := in.ReadSlice('\n')
		line = append(line, piece...)
		whole := len(line)
		if errors.Is(err, bufio.ErrBufferFull) {
			whole, err = process.WholeRunes(line), nil
		}
		if whole > 0 {
			l.line(stream, bytes.TrimRight(line[:whole], "\r\n"))
			line = append(line[:0], line[whole:]...)
		}
		if err != nil {
			return
		}
	}
	l.skip(stream, in)
}

func (l *logs) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size > maxLog
}

// skip reads the output that no longer becomes events, and keeps the end of standard error.
func (l *logs) skip(stream string, r io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		l.mu.Lock()
		l.lost += bytes.Count(buf[:n], []byte{'\n'})
		if stream == "stderr" {
			l.keep(buf[:n])
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *logs) keep(b []byte) {
	l.tail = append(l.tail, b[max(0, len(b)-tailSize):]...)
	l.tail = append(l.tail[:0], l.tail[max(0, len(l.tail)-tailSize):]...)
}

// line emits one line.
func (l *logs) line(stream string, line []byte) {
	if l.counted(stream, line) {
		message := l.redact.Replace(strings.ToValidUTF8(string(line), "\uFFFD"))
		l.send(tool.NewEvent(tool.KindLog, tool.Log{
			Level: "info", Message: message, Fields: json.RawMessage(`{"stream":"` + stream + `"}`),
		}))
	}
}

func (l *logs) stderr(line []byte) { l.line("stderr", line) }

// counted counts a line and reports whether it becomes an event.
func (l *logs) counted(stream string, line []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stream == "stderr" {
		l.keep(line)
		l.keep([]byte{'\n'})
	}
	if l.size += max(len(line), lineCost); l.size > maxLog {
		l.lost++
		return false
	}
	return true
}

// send passes an event on until the call has ended. An error from the sink ends the call.
func (l *logs) send(e tool.Event) {
	if l.ctx.Err() == nil {
		_ = l.events.Emit(e)
	}
}

// Emit implements tool.Sink for the watcher of the walls around the call. A tool's attempts may contain secrets too.
func (l *logs) Emit(e tool.Event) error {
	if e.Data = []byte(l.redact.Replace(string(e.Data))); strictjson.Check(e.Data) == nil {
		l.send(e)
	}
	return nil
}

// close ends the events. If lines were left out, the last event reports it.
func (l *logs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost > 0 {
		l.send(tool.LogEvent("warn",
			fmt.Sprintf("%d more lines were left out: the call wrote more than %d MiB", l.lost, maxLog>>20)))
	}
	l.events.Close()
}

// last returns the last lines of standard error as one line, for messages.
func (l *logs) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return process.LastLines(l.redact.Replace(strings.ToValidUTF8(string(l.tail), "\uFFFD")))
}
