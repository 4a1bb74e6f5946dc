// Package queue is the stage in which calls wait for tools that run only so many at once. Waiting does not count as the
// tool's time: its clock starts behind this stage. The queue is bounded, in calls and in time; a call too many is
// refused as unavailable, with a time to try again.
package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/tool"
)

// Options is the section limits.queue of a config. It has useful zero values.
type Options struct {
	Calls int           `yaml:"calls" schema:"default=1000" doc:"calls that may wait for the same workers"`
	Wait  time.Duration `yaml:"wait" schema:"default=30s" doc:"how long a call may wait; this does not count against the tool's own time limit"`
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{
		Name: "limits.queue", Options: Options{},
		Doc: "how many calls may wait for a busy tool, and for how long",
	}
}

// From returns the options of a config.
func From(cfg *config.Config) (o Options, err error) {
	err = cfg.Section(Section().Name).Decode(&o)
	return o, err
}

// The reasons of a refusal.
const (
	reasonFull = "queue_full"
	reasonLate = "queue_timeout"
)

// WithDefaults replaces zero values by the defaults.
func (o Options) WithDefaults() Options {
	return Options{Calls: cmp.Or(o.Calls, 1000), Wait: cmp.Or(o.Wait, 30*time.Second)}
}

// A Line is the queue of the calls that share some places, first come first served.
type Line struct {
	o      Options
	places func() int

	mu      sync.Mutex
	running int
	waiting []chan struct{} // closed for the call that gets a place
	each    time.Duration   // how long a call keeps its place, on average; 0 if none has ended yet
}

// New makes a line for as many calls at once as places returns, which may change; 0 means no limit.
func New(o Options, places func() int) *Line { return &Line{o: o.WithDefaults(), places: places} }

// A Load is the number of calls in a line.
type Load struct {
	Running int `json:"running"`
	Places  int `json:"places"` // 0 means no limit
	Waiting int `json:"waiting"`
	Most    int `json:"most"` // limit of Waiting
}

// A Crowd is the load of a line of a source.
type Crowd struct {
	Source string `json:"source"`
	Pool   string `json:"pool,omitzero"` // of the source, which may have several
	Load
}

// Load returns how full the line is.
func (l *Line) Load() Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Load{l.running, max(l.places(), 0), len(l.waiting), l.o.Calls}
}

// Stage lets a call through when there is a place for it. It runs in front of every stage that records the start of a
// call: a waiting call has not begun, uses up no lease and reads no state.
func (l *Line) Stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if err := l.enter(ctx, c.Tool); err != nil {
			return nil, err
		}
		began := time.Now()
		defer func() { l.leave(time.Since(began)) }()
		return next.Invoke(ctx, c, out)
	})
}

// enter waits for a place.
func (l *Line) enter(ctx context.Context, name string) error {
	l.mu.Lock()
	if len(l.waiting) == 0 && l.free() {
		l.running++
		l.mu.Unlock()
		return nil
	}
	if len(l.waiting) >= l.o.Calls {
		defer l.mu.Unlock()
		return l.refuse(reasonFull, "%s was not run: %d calls wait for it already", name, len(l.waiting))
	}
	mine := make(chan struct{})
	l.waiting = append(l.waiting, mine)
	l.mu.Unlock()
	late := time.NewTimer(l.o.Wait)
	defer late.Stop()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		return l.quit(mine, func() error { return interrupted(ctx, name) })
	case <-late.C:
		return l.quit(mine, func() error {
			return l.refuse(reasonLate, "%s was not run: no place became free for it within %v", name, l.o.Wait)
		})
	}
}

// free reports whether there is a place.
func (l *Line) free() bool {
	places := l.places()
	return places <= 0 || l.running < places
}

// quit takes a call out of the line, unless it was given a place at this moment.
func (l *Line) quit(mine chan struct{}, why func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, mine)
	if i < 0 {
		return nil
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return why()
}

// leave frees a place.
func (l *Line) leave(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.each == 0 {
		l.each = took
	}
	l.each += (took - l.each) / 8
	for len(l.waiting) > 0 && l.free() {
		l.running++
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}

// The least and the most that a refused caller is told to wait. The time is estimated from how long calls took so far.
const (
	leastRetry = 100 * time.Millisecond
	mostRetry  = time.Minute
)

// refuse returns the error of a call that gets no place.
func (l *Line) refuse(reason, format string, args ...any) error {
	retry := cmp.Or(l.each, time.Second) * time.Duration(len(l.waiting)+1) / time.Duration(max(l.places(), 1))
	retry = min(max(retry, leastRetry), mostRetry).Round(time.Millisecond)
	return tool.Errorf(tool.CodeUnavailable, format+"; try again in %v", append(args, retry)...).
		Because(reason).RetryAfter(retry)
}

// interrupted returns why a waiting call has ended.
func interrupted(ctx context.Context, name string) error {
	e := tool.Ended(ctx)
	e.Message = name + " was not run, it waited for a place: " + e.Message
	return e
}
