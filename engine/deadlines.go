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
type deadlines struct {
	mu    sync.Mutex
	calls []*limited // that run now, in no order
	timer *time.Timer
	rings time.Time // when the timer fires; zero: it does not
}

// A limited is the context of a call that has a deadline. What can end is made when somebody looks: most quick tools
// never do.
type limited struct {
	caller context.Context
	end    time.Time
	late   *tool.Error // the cause when the time is over
	place  int         // among the calls that run

	mu    sync.Mutex
	own   context.Context // nil: nobody has looked
	stop  context.CancelCauseFunc
	ended bool
	cause error // why it has ended; nil: its call has
}

// Deadline implements context.Context.
func (l *limited) Deadline() (time.Time, bool) { return l.end, true }

// Done implements context.Context.
func (l *limited) Done() <-chan struct{} { return l.look().Done() }

// Value implements context.Context.
func (l *limited) Value(key any) any { return l.look().Value(key) }

// Err implements context.Context.
func (l *limited) Err() error {
	own := l.look()
	err := own.Err()
	if err != nil && context.Cause(own) == error(l.late) {
		return context.DeadlineExceeded
	}
	return err
}

func (l *limited) look() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		l.own, l.stop = context.WithCancelCause(l.caller)
		if l.ended {
			l.stop(l.cause)
		}
	}
	return l.own
}

// over ends the context; the first cause counts.
func (l *limited) over(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended, l.cause = true, cause
	if l.stop != nil {
		l.stop(cause)
	}
}

// start gives a call until end. Whoever starts one stops it.
func (d *deadlines) start(ctx context.Context, end time.Time, late *tool.Error) *limited {
	l := &limited{caller: ctx, end: end, late: late}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.place = len(d.calls)
	d.calls = append(d.calls, l)
	if d.rings.IsZero() || end.Before(d.rings) {
		d.ringAt(end)
	}
	return l
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
	l.over(nil)
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
		switch {
		case !l.end.After(now):
			l.over(l.late)
		case next.IsZero() || l.end.Before(next):
			next = l.end
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
