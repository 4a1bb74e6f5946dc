package machina

import (
	"io"
	"sync"
)

// An outbox writes answers. While requests wait to be answered, the answers before them are written by another
// goroutine, as many at once as have gathered: a write costs as much as a small call, and the next call need not wait
// for it. An answer is never held back for more to gather. Where nothing waits, as with hosts that ask one thing at a
// time, it is written at once, since to wake another goroutine would cost more than the write.
type outbox struct {
	out io.Writer

	mu      sync.Mutex
	changed sync.Cond
	full    []byte // answers that are not being written yet
	spare   []byte // the memory for the next ones
	writing bool   // somebody writes; who wants to write must wait
	started bool   // there is a goroutine
	ended   bool
	err     error // of the first write that failed; nothing is written after it
}

// largestGathering is how much may wait to be written. A peer that does not read makes the calls wait.
const largestGathering = 256 << 10

func newOutbox(out io.Writer) *outbox {
	o := &outbox{out: out}
	o.changed.L = &o.mu
	return o
}

// put takes an answer. Later: more is asked already, so that another goroutine may write it. The error is that of a
// write, of this answer or of one before it.
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

// write writes what has gathered. It is called with mu held, which it lets go of meanwhile.
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

// end writes what is left, and lets the other goroutine go.
func (o *outbox) end() error {
	err := o.put(nil, false)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed.Broadcast()
	return err
}
