package machina

import (
	"bufio"
	"bytes"
	"errors"

	"toolpost/tool"
)

// A rawRequest is one line of the input, or why it is no request.
type rawRequest struct {
	text []byte // valid until the next one is read
	err  error
}

// readLine reads one line, of which it keeps at most maxStdin bytes: one bad request does not end a session.
// An error is the end of the input; what stands before it without a newline is a line too.
func readLine(in *bufio.Reader) (r rawRequest, err error) {
	part, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) { // nearly all of them
		return rawRequest{text: bytes.TrimRight(part, "\r\n")}, err
	}
	for ; errors.Is(err, bufio.ErrBufferFull); part, err = in.ReadSlice('\n') {
		r.keep(part)
	}
	r.keep(part)
	r.text = bytes.TrimRight(r.text, "\r\n")
	return r, err
}

// tooLong is the answer to a request of more than maxStdin bytes. It is no word about its JSON, which nobody has read.
func tooLong() error {
	e := tool.Errorf(tool.CodeInvalidInput, "the request is longer than %d bytes, the most that a toolhost takes",
		maxStdin)
	return &wireError{said: inWords(e)}
}

// keep adds a part of a long line.
func (r *rawRequest) keep(part []byte) {
	if r.err == nil {
		r.text = append(r.text, part...)
	}
	if len(r.text) > maxStdin+1 { // with its newline
		*r = rawRequest{err: tooLong()}
	}
}
