package plan

import (
	"sync"

	"toolpost/tool"
)

// A teller passes on the events of a plan, one at a time and in order. Many tools emit at once, and small tools would
// take longer to wait for their turn than to run. So the first goroutine also emits the events that the others add
// meanwhile, and they go on. They wait only if the queue is full.
type teller struct {
	out tool.Sink

	mu      sync.Mutex
	waiting []tool.Event
	told    []tool.Event // the memory of the events before
	telling bool
	room    sync.Cond // signals that there may be room again
	failed  error     // the sink's error; nothing is passed on after it
}

// maxWaiting limits the events in the queue.
const maxWaiting = 256

func newTeller(out tool.Sink) *teller {
	t := &teller{out: out}
	t.room.L = &t.mu
	return t
}

// Emit implements tool.Sink. An error may be that of an event before.
func (t *teller) Emit(ev tool.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.waiting) >= maxWaiting && t.failed == nil { // another goroutine is emitting, so this ends
		t.room.Wait()
	}
	if t.failed != nil {
		return t.failed
	}
	if t.waiting = append(t.waiting, ev); t.telling {
		return nil
	}
	t.telling = true
	for len(t.waiting) > 0 && t.failed == nil {
		t.tell()
	}
	t.telling = false
	return t.failed
}

// tell emits the waiting events. It releases the lock meanwhile.
func (t *teller) tell() {
	events := t.waiting
	t.waiting = t.told[:0]
	t.mu.Unlock()
	defer func() { // even if the sink panics: the others must not wait for ever
		t.mu.Lock()
		clear(events)
		t.told = events
		t.room.Broadcast()
	}()
	for _, ev := range events {
		if err := t.out.Emit(ev); err != nil {
			t.fail(err)
			return
		}
	}
}

func (t *teller) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = err
}
