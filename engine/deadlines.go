package engine

import (
	"context"
	"sync"
	"time"

	"toolpost/tool"
)

// deadlines end the calls whose time is over. One timer serves all of them: nearly every call ends long before
// its deadline, and a timer of its own would cost it more than the rest of the chain, and wake an idle
// processor each time.
//
// context.WithTimeout is the obvious way: it makes a timer, a channel and an entry in its parent for every call. Here a
// call gets a lazy context, which stands in one unordered list.
// The timer is set for the earliest end that it was told of and never moved back: when it fires too early, because that
// call has ended, it looks through the list and is set again.
//
// A second reason is that this clock can stand still. Waiting for a free worker is not the tool's time, and a deadline
// from the standard library cannot be put off once it is set.
type deadlines struct {
	mu    sync.Mutex
	calls []*limited // that run now, in no order
	timer *time.Timer
	rings time.Time // when the timer fires; zero: it does not
}

// A limited is the context of a call that has a deadline.
type limited struct {
	tool.LazyContext
	late  *tool.Error // the cause when the time is over
	all   *deadlines
	place int // among the calls that run

	mu    sync.Mutex
	end   time.Time
	wait  time.Duration // how long the clock may stand yet
	stood time.Time     // since when it stands; zero: it goes
}

// Deadline implements context.Context. While the clock stands it is when the call is given up if nothing happens.
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

// Stop implements tool.Clock. A clock that is stopped already is left to the one who stopped it.
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

// due is when the call is over, and why it will be.
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

// start gives a call until end, and its clock so long to stand. The caller of start stops it.
func (d *deadlines) start(ctx context.Context, end time.Time, wait time.Duration, late *tool.Error) *limited {
	l := &limited{LazyContext: tool.LazyContext{Parent: ctx}, all: d, end: end, wait: wait, late: late}
	d.mu.Lock()
	l.place = len(d.calls)
	d.calls = append(d.calls, l)
	d.ringBy(end)
	d.mu.Unlock()
	return l
}

// lookAt has the timer ring at a time at the latest.
func (d *deadlines) lookAt(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ringBy(at)
}

// ringBy is lookAt for who holds mu.
func (d *deadlines) ringBy(at time.Time) {
	if d.rings.IsZero() || at.Before(d.rings) {
		d.ringAt(at)
	}
}

// stop ends the context of a call that has ended. The timer is left alone: the next call would start it again.
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

// ringPause lies between two looks at all calls, so that many deadlines in a row are one look.
const ringPause = time.Millisecond

// ring ends the calls whose time is over, and waits for the next.
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
