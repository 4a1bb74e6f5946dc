package machina

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// An inbox reads requests. Where several have come already, another goroutine takes them apart while the first of them
// are answered, so that a host which does not wait for each answer has the use of a second processor. They are still
// called one after the other: a request may count on what the one before it did. Where one has come alone, as from
// hosts that ask one thing at a time, nobody else is woken for it.
type inbox struct {
	in     *bufio.Reader
	reader requestReader

	first  int // requests that are there and are not for the other goroutine
	other  requestReader
	ahead  chan []asked // what it took apart
	ready  []asked      // of that, what is next
	coming int          // requests that it has, or that are ready
	used   int          // bytes of in that they take
}

// An asked is one line of the input: a request, or why it is none.
type asked struct {
	text []byte // valid until the next one is read; nil: it is too long
	req  request
	err  error
}

// isEnd reports whether the line is the empty one, behind which nothing is asked.
func (a *asked) isEnd() bool { return a.err == nil && len(a.text) == 0 }

// several requests are handed over at once. As many are taken apart by who answers them, before it needs one of the
// other goroutine's: else it would wait for that to begin.
const several = 16

func newInbox(in io.Reader) *inbox {
	return &inbox{in: bufio.NewReaderSize(in, 64<<10), reader: newRequestReader(), other: newRequestReader()}
}

// next gives the next request. An error is the end of the input; what stands before it without a newline is a request
// too.
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
		_, _ = b.in.Discard(b.used) // it is there
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

// more reports whether there is more to be answered already, at least in part.
func (b *inbox) more() bool { return b.coming > 0 || b.in.Buffered() > b.used }

// look has the other goroutine take apart the requests that are there to their end, but for the first.
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
	b.ahead = make(chan []asked, n/several+1) // all of them fit: it never waits
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

// take reads the request of a line.
func (r requestReader) take(line []byte) asked {
	one := asked{text: line}
	if len(line) > 0 {
		one.req, one.err = r.read(line)
	}
	return one
}

// readLine reads one line, of which it keeps at most maxStdin bytes: one bad request does not end a session. The first
// error is what is wrong with the line, the second the end of the input.
func readLine(in *bufio.Reader) (text []byte, wrong, end error) {
	part, end := in.ReadSlice('\n')
	if !errors.Is(end, bufio.ErrBufferFull) { // nearly all of them
		return bytes.TrimSuffix(part, []byte{'\n'}), nil, end
	}
	for {
		if text = append(text, part...); len(text) > maxStdin+1 { // with its newline
			text, wrong = text[:0], tooLong() // the rest is read and forgotten
		}
		if !errors.Is(end, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(text, []byte{'\n'}), wrong, end
		}
		part, end = in.ReadSlice('\n')
	}
}
