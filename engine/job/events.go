package job

import (
	"context"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The limits of a job's events.
const (
	maxEvents  = 10_000
	maxBytes   = 8 << 20
	flushEvery = 100 * time.Millisecond
	flushBytes = 256 << 10
)

// A recorder stores the events of one job in batches: a commit for each would be most of the work.
type recorder struct {
	ledger Ledger
	job    *Job

	mu            sync.Mutex
	waiting       [][]byte // not stored yet; bounded like all events
	size          int
	events, bytes int   // of the job so far
	full          bool  // further events are dropped
	err           error // the job no longer belongs to this process
}

func newRecorder(l Ledger, j *Job) *recorder {
	return &recorder{ledger: l, job: j, events: j.Events, bytes: j.Bytes, full: j.Events >= maxEvents}
}

// Emit implements tool.Sink.
func (r *recorder) Emit(ev tool.Event) error {
	b, err := strictjson.Marshal(ev)
	if err != nil {
		return tool.Errorf(tool.CodeProtocol, "an event of the job is not JSON: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.full {
		return r.err
	}
	if r.full = r.events+1 >= maxEvents || r.bytes+len(b) > maxBytes; r.full {
		last := tool.LogEvent("warn", "there are more events than are kept of a job; the rest is left out")
		last.Seq, last.Time = ev.Seq, ev.Time
		if b, err = strictjson.Marshal(last); err != nil {
			return err
		}
	}
	r.waiting = append(r.waiting, b)
	r.size, r.events, r.bytes = r.size+len(b), r.events+1, r.bytes+len(b)
	if r.size >= flushBytes {
		_ = r.store() // a store that fails now gets them later; r.err has what is final
	}
	return r.err
}

// store writes the waiting events. The caller holds mu.
func (r *recorder) store() error {
	if len(r.waiting) == 0 || r.err != nil {
		return r.err
	}
	err := r.ledger.Append(context.Background(), r.job, r.events-len(r.waiting), r.waiting)
	switch {
	case err == nil:
		r.waiting, r.size = nil, 0
	case tool.CodeOf(err) == tool.CodeConflict:
		r.err = err
	}
	return err
}

func (r *recorder) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store()
}

// flushNowAndThen flushes regularly, so that watchers see events soon, until stopped is closed.
func (r *recorder) flushNowAndThen(ctx context.Context, stopped <-chan struct{}) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-tick.C:
			if ctx.Err() == nil {
				_ = r.flush() // retried the next time, and at the end
			}
		}
	}
}
