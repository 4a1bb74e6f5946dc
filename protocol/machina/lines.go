package machina

import (
	"bufio"
	"bytes"
	"errors"

	"toolpost/tool"
)

// A line is one request, or why it is none.
type line struct {
	text []byte // valid until the next one is read
	err  error
}

// readLine reads one line, of which it keeps at most maxStdin bytes: one bad request does not end a session.
// An error is the end of the input; what stands before it without a newline is a line too.
func readLine(in *bufio.Reader) (l line, err error) {
	part, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line{text: bytes.TrimRight(part, "\r\n")}, err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		l.keep(part)
		part, err = in.ReadSlice('\n')
	}
	l.keep(part)
	l.text = bytes.TrimRight(l.text, "\r\n")
	return l, err
}

// tooLong is the answer to a request of more than maxStdin bytes. It is no word about its JSON, which nobody has read.
func tooLong() error {
	e := tool.Errorf(tool.CodeInvalidInput, "the request is longer than %d bytes, the most that a toolhost takes", maxStdin)
	return &wireError{said: inWords(e)}
}

// keep adds a part of a long line.
func (l *line) keep(part []byte) {
	if l.err == nil {
		l.text = append(l.text, part...)
	}
	if len(l.text) > maxStdin+1 { // with its newline
		*l = line{err: tooLong()}
	}
}
