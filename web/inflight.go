package web

import (
	"context"
	"sync"

	"toolpost/tool"
)

// inFlight counts the calls of a front, so that its shutdown can wait for them.
type inFlight struct {
	mu       sync.Mutex
	calls    int
	draining bool
	idle     chan struct{} // closed when draining and no call is left

	leaving context.Context // ends when draining begins
	leave   context.CancelFunc
}

func newInFlight() *inFlight {
	f := &inFlight{idle: make(chan struct{})}
	f.leaving, f.leave = context.WithCancel(context.Background())
	return f
}

// begin starts a call; its caller calls end once it has been answered.
func (f *inFlight) begin() *tool.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return tool.Errorf(tool.CodeUnavailable, "the server is shutting down and takes no new calls").Because("draining").RetryAfter(RetryDrained)
	}
	f.calls++
	return nil
}

func (f *inFlight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls--; f.draining && f.calls == 0 {
		close(f.idle)
	}
}

// drain lets no new call start, and returns a channel that is closed when the last one has ended. It is called once.
func (f *inFlight) drain() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draining = true
	f.leave()
	if f.calls == 0 {
		close(f.idle)
	}
	return f.idle
}

func (f *inFlight) isDraining() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.draining
}
