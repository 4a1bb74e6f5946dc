package tool

import (
	"context"
	"sync"
)

// A Relay hands the events of one call from a runner to the call's sink. Several goroutines may use it;
// when nobody listens any more it ends the call; and once it is closed the sink is not used again.
type Relay struct {
	sink Sink
	stop context.CancelCauseFunc

	mu     sync.Mutex
	err    error
	closed bool
}

// NewRelay makes the relay of a call. An error of the sink ends the call through stop.
func NewRelay(sink Sink, stop context.CancelCauseFunc) *Relay { return &Relay{sink: sink, stop: stop} }

// Emit implements Sink. After Close it does nothing.
func (r *Relay) Emit(ev Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.closed {
		return r.err
	}
	if r.err = r.sink.Emit(ev); r.err != nil {
		r.stop(r.err)
	}
	return r.err
}

// Stderr passes a line of a tool's standard error on as a log event.
func (r *Relay) Stderr(line []byte) {
	// Emit keeps an error and ends the call.
	_ = r.Emit(NewEvent(KindLog, Log{Level: "info", Message: string(line), Fields: []byte(`{"stream":"stderr"}`)}))
}

// Err is what the sink said when nobody listened any more.
func (r *Relay) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close waits for an Emit in progress: after a call its sink is no longer used.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
