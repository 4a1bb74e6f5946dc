package engine

import (
	"context"
	"sync"
	"time"

	"toolpost/tool"
)

// deadlines ends the calls whose time is over. One timer serves all of them: nearly every call ends long before its
// deadline. A timer per call would cost more than the rest of the chain, and wake an idle processor each time.
//
// The obvious way, context.WithTimeout, makes a timer, a channel and an entry in its parent for every call. Here a call
// gets a lazy context, which is kept in one unordered list. The timer is set for the earliest end and never moved back.
// If it fires too early, because that call has ended, it looks through the list and is set again.
//
// A second reason is that this clock can be stopped. Waiting for a free worker does not count as the tool's time, and a
// deadline from the standard library cannot be postponed once it is set.
type deadlines struct {
	mu    sync.Mutex
	calls []*limited // the running calls, in no order
	timer *time.Timer
	rings time.Time // when the timer fires; zero if it is not set
}

// A limited is the context of a call that has a deadline.
type limited struct {
	tool.LazyContext
	late  *tool.Error // the cause when the time is over
	all   *deadlines
	place int // index in deadlines.calls

	mu    sync.Mutex
	end   time.Time
	wait  time.Duration // how long the clock may still be stopped
	stood time.Time     // when the clock was stopped; zero if it runs
}

// Deadline implements context.Context. While the clock is stopped, it returns when the wait for a worker runs out.
func (l *limited) Deadline() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until(), true
}

func (l *limited) until() time.Time {
	if l.stood.IsZero() {
		return l.end
	}
	return l.stood.Add(l.wait)
}

// Stop implements tool.Clock. If the clock is stopped already, Stop and its result do nothing.
func (l *limited) Stop() (goOn func()) {
	l.mu.Lock()
	if !l.stood.IsZero() || l.Ended() {
		l.mu.Unlock()
		return func() {}
	}
	l.stood = time.Now()
	until := l.until()
	l.mu.Unlock()
	l.all.lookAt(until)
	return sync.OnceFunc(func() {
		l.mu.Lock()
		stood := time.Since(l.stood)
		l.end, l.wait, l.stood = l.end.Add(stood), l.wait-stood, time.Time{}
		until := l.end
		l.mu.Unlock()
		l.all.lookAt(until)
	})
}

// Value implements context.Context.
func (l *limited) Value(key any) any {
	if key == (tool.ClockKey{}) {
		return tool.Clock(l)
	}
	return l.LazyContext.Value(key)
}

// Err implements context.Context.
func (l *limited) Err() error {
	err := l.LazyContext.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(&l.LazyContext); cause == error(l.late) || cause == errNoWorker {
		return context.DeadlineExceeded
	}
	return err
}

// due returns when the call times out, and the cause that it will have.
func (l *limited) due() (time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stood.IsZero() {
		return l.end, l.late
	}
	return l.until(), errNoWorker
}

// errNoWorker is the cause when a call has waited too long for a worker.
var errNoWorker error = tool.Errorf(tool.CodeUnavailable,
	"the call was not run: no worker came up for it in time; try again").Because("no_worker").RetryAfter(time.Second)

// start adds a call that times out at end and whose clock may be stopped for wait in all. The caller must call stop.
func (d *deadlines) start(ctx context.Context, end time.Time, wait time.Duration, late *tool.Error) *limited {
	l := &limited{LazyContext: tool.LazyContext{Parent: ctx}, all: d, end: end, wait: wait, late: late}
	d.mu.Lock()
	l.place = len(d.calls)
	d.calls = append(d.calls, l)
	d.ringBy(end)
	d.mu.Unlock()
	return l
}

// lookAt makes the timer fire at the given time at the latest.
func (d *deadlines) lookAt(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ringBy(at)
}

// ringBy is lookAt for a caller that holds mu.
func (d *deadlines) ringBy(at time.Time) {
	if d.rings.IsZero() || at.Before(d.rings) {
		d.ringAt(at)
	}
}

// stop ends the context of a call that has ended. It does not touch the timer: the next call would start it again.
func (d *deadlines) stop(l *limited) {
	d.mu.Lock()
	last := len(d.calls) - 1
	d.calls[l.place] = d.calls[last]
	d.calls[l.place].place = l.place
	d.calls[last] = nil
	d.calls = d.calls[:last]
	d.mu.Unlock()
	l.End(nil)
}

func (d *deadlines) ringAt(at time.Time) {
	d.rings = at
	if d.timer == nil {
		d.timer = time.AfterFunc(time.Until(at), d.ring)
	} else {
		d.timer.Reset(time.Until(at))
	}
}

// ringPause is the least time between two passes over the calls, so that many deadlines in a row share one pass.
const ringPause = time.Millisecond

// ring ends the calls whose time is over, and sets the timer for the next.
func (d *deadlines) ring() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	var next time.Time
	for _, l := range d.calls {
		switch end, late := l.due(); {
		case !end.After(now):
			l.End(late)
		case next.IsZero() || end.Before(next):
			next = end
		}
	}
	if d.rings = next; next.IsZero() {
		return
	}
	if soon := now.Add(ringPause); next.Before(soon) {
		next = soon
	}
	d.ringAt(next)
}
