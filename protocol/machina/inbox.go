package machina

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// An inbox reads requests. If several have arrived, another goroutine decodes them while the first of them are answered, so
// that a host which does not wait for each answer can use a second processor. The calls still run in sequence: a request may
// depend on the effects of the one before it. A single request, as from a host that waits for each answer, wakes no other
// goroutine.
type inbox struct {
	in     *bufio.Reader
	reader requestReader

	first  int // buffered requests that are not for the other goroutine
	other  requestReader
	ahead  chan []asked // batches that it has decoded
	ready  []asked      // the rest of the current batch
	coming int          // requests that it has, or that are ready
	used   int          // bytes of in that they take
}

// An asked is one line of the input: a request, or the reason why it is invalid.
type asked struct {
	text []byte // valid until the next one is read; nil if it is too long
	req  request
	err  error
}

// isEnd reports whether the line is empty, which ends the requests.
func (a *asked) isEnd() bool { return a.err == nil && len(a.text) == 0 }

// several is the number of requests that are handed over at once. The answering goroutine decodes as many itself before it
// needs one from the other goroutine: otherwise it would wait for that one to start.
const several = 16

func newInbox(in io.Reader) *inbox {
	return &inbox{in: bufio.NewReaderSize(in, 64<<10), reader: newRequestReader(), other: newRequestReader()}
}

// next returns the next request. An error means the end of the input; text before it without a newline is a request too.
func (b *inbox) next() (asked, error) {
	switch {
	case b.first > 0:
		b.first--
	case b.coming > 0:
		if len(b.ready) == 0 {
			b.ready = <-b.ahead
		}
		one := b.ready[0]
		b.ready = b.ready[1:]
		b.coming--
		return one, nil
	default:
		_, _ = b.in.Discard(b.used) // it is buffered
		b.used = 0
	}
	text, wrong, end := readLine(b.in)
	if b.coming == 0 {
		b.look()
	}
	if wrong != nil {
		return asked{err: wrong}, end
	}
	return b.reader.take(text), end
}

// more reports whether at least a part of another request has arrived.
func (b *inbox) more() bool { return b.coming > 0 || b.in.Buffered() > b.used }

// look has the other goroutine decode the complete requests in the buffer, except for the first several.
func (b *inbox) look() {
	lines, _ := b.in.Peek(b.in.Buffered())
	for range several {
		_, lines, _ = bytes.Cut(lines, []byte{'\n'})
	}
	lines = lines[:bytes.LastIndexByte(lines, '\n')+1]
	n := bytes.Count(lines, []byte{'\n'})
	if n < several {
		return
	}
	b.first, b.coming, b.used = several, n, len(lines)
	b.ahead = make(chan []asked, n/several+1) // all of them fit: the goroutine never blocks
	go b.takeApart(lines, b.ahead)
}

func (b *inbox) takeApart(lines []byte, to chan<- []asked) {
	batch := make([]asked, 0, several)
	for line := range bytes.Lines(lines) {
		if batch = append(batch, b.other.take(bytes.TrimSuffix(line, []byte{'\n'}))); len(batch) == several {
			to <- batch
			batch = make([]asked, 0, several)
		}
	}
	if len(batch) > 0 {
		to <- batch
	}
}

// take decodes the request of a line.
func (r requestReader) take(line []byte) asked {
	one := asked{text: line}
	if len(line) > 0 {
		one.req, one.err = r.read(line)
	}
	return one
}

// readLine reads one line and keeps at most maxStdin bytes of it: one bad request does not end a session. The first error
// reports a fault of the line, the second the end of the input.
func readLine(in *bufio.Reader) (text []byte, wrong, end error) {
	part, end := in.ReadSlice('\n')
	if !errors.Is(end, bufio.ErrBufferFull) { // nearly all lines
		return bytes.TrimSuffix(part, []byte{'\n'}), nil, end
	}
	for {
		if text = append(text, part...); len(text) > maxStdin+1 { // with its newline
			text, wrong = text[:0], tooLong() // the rest is read and discarded
		}
		if !errors.Is(end, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(text, []byte{'\n'}), wrong, end
		}
		part, end = in.ReadSlice('\n')
	}
}
