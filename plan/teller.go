package plan

import (
	"sync"

	"toolpost/tool"
)

// A teller hands on the events of a plan, one at a time and in order. Many tools tell of themselves at once, and each
// waiting for its turn would take small ones longer than they take themselves: whoever comes first tells what the others
// bring meanwhile too, and they go on. Only when much waits do they wait.
type teller struct {
	out tool.Sink

	mu      sync.Mutex
	waiting []tool.Event
	told    []tool.Event // the room of those before
	telling bool
	room    sync.Cond // there may be some again
	failed  error     // nobody listens any more
}

// maxWaiting is how many events wait to be told.
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
	for len(t.waiting) >= maxWaiting && t.failed == nil { // somebody tells: bounded by them
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

// tell tells what waits. It gives the lock away meanwhile.
func (t *teller) tell() {
	events := t.waiting
	t.waiting = t.told[:0]
	t.mu.Unlock()
	defer func() { // also where the sink panics: the others do not wait for ever
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
