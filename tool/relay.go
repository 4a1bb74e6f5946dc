package tool

import (
	"context"
	"sync"
)

// A Relay passes the events of one call from a runner to the call's sink. Several goroutines may use it. When the sink
// fails it ends the call; after Close it does not use the sink again.
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
	// Emit remembers an error and ends the call.
	_ = r.Emit(NewEvent(KindLog, Log{Level: "info", Message: string(line), Fields: []byte(`{"stream":"stderr"}`)}))
}

// Err returns the error with which the sink refused an event.
func (r *Relay) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close waits for an Emit in progress, since the sink must not be used after the call.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
