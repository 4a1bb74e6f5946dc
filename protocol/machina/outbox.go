package machina

import (
	"io"
	"sync"
)

// An outbox writes answers. While requests wait to be answered, another goroutine writes the answers before them, as many at
// once as have gathered: a write costs as much as a small call, and the next call need not wait for it. An answer is never
// held back for more to gather. If no request waits, as with hosts that wait for each answer, it is written at once, because
// waking another goroutine would cost more than the write.
type outbox struct {
	out io.Writer

	mu      sync.Mutex
	changed sync.Cond
	full    []byte // answers that are not being written yet
	spare   []byte // the memory for the next ones
	writing bool   // a write is in progress; others must wait
	started bool   // the goroutine was started
	ended   bool
	err     error // of the first failed write; nothing is written after it
}

// largestGathering bounds the unwritten answers. A peer that does not read delays the calls.
const largestGathering = 256 << 10

func newOutbox(out io.Writer) *outbox {
	o := &outbox{out: out}
	o.changed.L = &o.mu
	return o
}

// put takes an answer. If later, more requests are waiting and another goroutine may write it. The error is that of a write,
// of this answer or of an earlier one.
func (o *outbox) put(answer []byte, later bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.full = append(o.full, answer...)
	if later && len(o.full) < largestGathering {
		if !o.started {
			o.started = true
			go o.writeAll()
		}
		o.changed.Broadcast()
		return o.err
	}
	for o.writing && o.err == nil {
		o.changed.Wait()
	}
	o.write()
	return o.err
}

// writeAll is the other goroutine.
func (o *outbox) writeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.ended && o.err == nil {
		if len(o.full) > 0 && !o.writing {
			o.write()
		} else {
			o.changed.Wait()
		}
	}
}

// write writes the gathered answers. It is called with mu held, and releases it meanwhile.
func (o *outbox) write() {
	if len(o.full) == 0 || o.err != nil {
		return
	}
	batch := o.full
	o.full, o.spare, o.writing = o.spare[:0], nil, true
	o.mu.Unlock()
	_, err := o.out.Write(batch)
	o.mu.Lock()
	o.spare, o.writing, o.err = batch, false, err
	o.changed.Broadcast()
}

// end writes the rest, and ends the other goroutine.
func (o *outbox) end() error {
	err := o.put(nil, false)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed.Broadcast()
	return err
}
