// Package worker keeps a program running that serves many calls. It starts the program at the first use, in its sandbox,
// checks that it is what it should be, passes calls to it, answers its requests, and replaces it when it crashes or no
// longer answers. The program speaks JSON-RPC, one message a line; the protocol defines the messages, in the functions of
// Options.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"toolpost/host/backoff"
	"toolpost/host/spawn"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// Options of a Supervisor. Fields without a documented nil or 0 are required.
type Options struct {
	Name string // of the program, for error messages
	Log  *slog.Logger

	// Find returns the program to start. It is called before every start.
	Find       func() (*spawn.Program, error)
	Guarantees tool.Guarantees // of its walls

	// Greet is the handshake: it finds out what the worker is and has. Hello names its first request, for messages.
	Greet func(context.Context, *Worker) error
	Hello string
	// Live, if not nil, runs as long as the worker takes calls, until Dead or ctx ends.
	Live func(context.Context, *Worker)
	// Goodbye, if not nil, asks the worker to end. The steps after it use force.
	Goodbye func(context.Context, *Worker)

	// Serve answers a request of the program. The scope is that of our request to which it belongs, or nil if there is
	// none. Names returns the request that a message names; see jsonrpc.Options.
	Serve func(w *Worker, in *jsonrpc.Incoming, s Scope) (json.RawMessage, *jsonrpc.Error)
	Names func(*jsonrpc.Incoming) uint64
	// Early, if not nil, handles messages that must not wait for a slow Serve; see jsonrpc.Options.
	Early func(w *Worker, in *jsonrpc.Incoming) bool
	// Cancel, if not nil, tells the worker that a request was abandoned. It must not wait.
	Cancel func(w *Worker, id uint64)
	// Probe asks the worker something that it can answer at once. It is for programs that do not answer a cancelled
	// request: its place is free at once, and Probe checks whether the worker still works. If nil, the answer to the
	// request shows that.
	Probe func(context.Context, *Worker)

	Places    func() int    // calls that the worker takes at once; 0 means any number
	MaxLine   int           // bytes of one message
	Lenient   bool          // see jsonrpc.Options
	StartTime time.Duration // for the handshake
	Grace     time.Duration // a worker that left a call unanswered, and answers nothing for this long, is replaced
	Idle      time.Duration // a worker that has been idle for this long is ended, until the next call; 0 means never

	Restart backoff.Breaker // when to start another after a fast crash or a failed start
}

// maxAbandoned is how many calls a worker may leave unanswered while it answers others.
const maxAbandoned = 1000

// A Supervisor keeps one program running. One worker takes all calls. A crashed worker is restarted after a pause that
// doubles with every fast crash in a row; the fifth opens the breaker, and calls fail at once until a long pause is over.
type Supervisor struct {
	o Options

	ctx     context.Context // ends with the supervisor
	cancel  context.CancelFunc
	running sync.WaitGroup // every goroutine of every worker

	logs     *rate.Limiter // of lines of standard error
	unlogged atomic.Int64  // lines that it stopped

	mu       sync.Mutex
	current  *Worker          // takes new calls; nil if none does
	workers  map[*Worker]bool // those that are not gone, including those that only finish their calls
	starting bool
	line     []*waiter // callers waiting for a worker, in order
	restart  backoff.Breaker
	alarm    *time.Timer // serves the line when the pause after a failure is over
	closed   bool
}

// A waiter is a caller in the line.
type waiter struct {
	ticket chan ticket // one
	only   *Worker     // not nil if only this worker will do
}

type ticket struct {
	w   *Worker
	err error
}

// New makes a supervisor. It starts nothing before the first Get.
func New(o Options) *Supervisor {
	s := &Supervisor{o: o, restart: o.Restart, workers: map[*Worker]bool{}, logs: rate.NewLimiter(logRate, logBurst)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Farewell returns the maximum time of each step of ending a worker.
func (s *Supervisor) Farewell() time.Duration { return min(s.o.Grace, 2*time.Second) }

// Get returns a worker with a place for one call, which Worker.Call or Worker.Release releases. It waits for a place, for
// a start, or for the pause before one; while the breaker is open it fails at once.
func (s *Supervisor) Get(ctx context.Context) (*Worker, error) { return s.acquire(ctx, nil) }

// Current returns the worker that takes new calls, or nil if there is none or it may no longer answer.
func (s *Supervisor) Current() *Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.suspect {
		return nil
	}
	return s.current
}

// acquire returns a worker with a place. If only is not nil, it waits for that worker, ahead of all others. The wait does
// not count towards the call's time.
func (s *Supervisor) acquire(ctx context.Context, only *Worker) (*Worker, error) {
	s.mu.Lock()
	if len(s.line) == 0 || only != nil {
		if t, ok := s.next(only); ok {
			s.mu.Unlock()
			return t.w, t.err
		}
	}
	me, at := &waiter{ticket: make(chan ticket, 1), only: only}, len(s.line)
	if only != nil {
		at = 0
	}
	s.line = slices.Insert(s.line, at, me)
	s.serveLine()
	s.mu.Unlock()
	defer tool.Waiting(ctx)()
	select {
	case t := <-me.ticket:
		return t.w, t.err
	case <-ctx.Done():
		return nil, s.quit(ctx, me)
	}
}

// quit leaves the line, or returns a ticket that came at the same moment.
func (s *Supervisor) quit(ctx context.Context, me *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.line, me); i >= 0 {
		s.line = slices.Delete(s.line, i, i+1)
	} else if t := <-me.ticket; t.w != nil {
		t.w.busy--
		s.serveLine()
	}
	return ctx.Err()
}

// serveLine hands tickets to the callers in the line, in order, while there are any.
func (s *Supervisor) serveLine() {
	defer s.rest()
	for len(s.line) > 0 {
		t, ok := s.next(s.line[0].only)
		if !ok {
			return
		}
		s.line[0].ticket <- t
		s.line = s.line[1:]
	}
}

// next makes the next ticket; it returns false if there is none now.
func (s *Supervisor) next(only *Worker) (t ticket, ok bool) {
	w, wait := s.current, s.restart.Wait()
	switch {
	case s.closed:
		t.err = tool.Errorf(tool.CodeUnavailable, "%s has been shut down", s.o.Name)
	case only != nil && only != w:
		t.err = tool.Errorf(tool.CodeUnavailable, "%s was replaced", s.o.Name)
	case w != nil && (w.suspect || s.full(w.busy)):
		return t, false
	case w != nil:
		w.busy++
		t.w = w
		s.rest()
	case s.starting:
		return t, false
	case wait > 0 && s.restart.Tripped():
		t.err = s.restart.Refusal(s.o.Name, "start")
	case wait > 0:
		s.wake(wait)
		return t, false
	default:
		s.start()
		return t, false
	}
	return t, true
}

// rest starts the idle timer of a worker that has no call, and stops it when the worker has one.
func (s *Supervisor) rest() {
	w := s.current
	switch {
	case w == nil || s.o.Idle <= 0:
	case w.busy > 0 && w.nap != nil:
		w.nap.Stop()
		w.nap = nil
	case w.busy == 0 && w.nap == nil:
		w.nap = time.AfterFunc(s.o.Idle, func() { s.asleep(w) })
	}
}

// asleep shuts down a worker that has been idle for too long. The next call starts another.
func (s *Supervisor) asleep(w *Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != w || w.busy > 0 || w.closing || s.closed {
		return
	}
	s.o.Log.Debug("the program had no calls for a while; it is ended until there is one", "pid", w.Pid())
	w.closing, s.current = true, nil
	s.running.Go(func() { w.shutdown(s.ctx) })
}

// full reports whether a worker with this many calls takes no more.
func (s *Supervisor) full(calls int) bool {
	places := s.o.Places()
	return places > 0 && calls >= places
}

// wake serves the line when the pause is over, and starts a worker even if no caller waits: a program may have work to do
// between calls.
func (s *Supervisor) wake(after time.Duration) {
	if s.alarm != nil {
		return
	}
	s.alarm = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.alarm = nil
		if s.current == nil && !s.starting && !s.closed && len(s.line) == 0 {
			s.start()
		}
		s.serveLine()
	})
}

// start starts a worker in the background: if the waiting caller gives up, the worker still comes up for others.
func (s *Supervisor) start() {
	s.starting = true
	s.running.Go(func() {
		w, err := s.launch()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.starting = false
		if err == nil && w.gone {
			err = w.err
		}
		if err != nil {
			s.failed(err)
			for _, w := range s.line { // the callers that waited for this start
				w.ticket <- ticket{err: err}
			}
			s.line = nil
			return
		}
		s.current = w
		w.greeted.Store(true)
		s.restart.Tried()
		if s.o.Live != nil {
			s.running.Go(func() { s.o.Live(s.ctx, w) })
		}
		s.serveLine()
	})
}

// failed counts a failure, which determines when the next start may be tried.
func (s *Supervisor) failed(err error) {
	if s.closed {
		return
	}
	s.restart.Failed(tool.AsError(err).Message)
	if s.restart.Tripped() {
		s.o.Log.Error("the program failed too often; its calls fail for a while",
			"failures", s.restart.Fails(), "last", s.restart.Why())
	}
}

// ended records that a worker is gone. Later calls get the brief error.
func (s *Supervisor) ended(w *Worker, why, brief *tool.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.gone, w.err, w.suspect = true, why, false
	for _, timer := range []*time.Timer{w.alarm, w.nap} {
		if timer != nil {
			timer.Stop()
		}
	}
	close(w.dead)
	delete(s.workers, w)
	if s.current == w {
		s.current = nil
		s.crashed(w, brief)
	}
	s.serveLine()
}

// crashed schedules another worker, unless we ended this one. No call is repeated.
func (s *Supervisor) crashed(w *Worker, brief *tool.Error) {
	if w.closing || s.closed {
		return
	}
	s.o.Log.Warn("the program ended", "pid", w.Pid(), "error", w.err.Message)
	if time.Since(w.started) >= backoff.FastCrash {
		s.restart.Worked()
	}
	s.failed(brief)
	if !s.restart.Tripped() {
		s.wake(s.restart.Wait())
	}
}

// doubt holds new calls back from a worker that left one unanswered. If it answers nothing for a while it is replaced.
func (s *Supervisor) doubt(w *Worker) {
	if !w.suspect {
		w.suspect, w.since = true, time.Now()
	}
	if w.alarm == nil {
		w.alarm = time.AfterFunc(s.o.Grace, func() { s.judge(w) })
	}
}

func (s *Supervisor) judge(w *Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.alarm = nil
	left := s.o.Grace - time.Since(w.since)
	switch {
	case w.gone || w.retired || w.closing:
	case w.suspect && left > 0: // it had answered, and then left another call unanswered
		w.alarm = time.AfterFunc(left, func() { s.judge(w) })
	case w.suspect, w.abandoned > 0 && s.full(w.abandoned), w.abandoned >= maxAbandoned:
		s.retire(w)
	}
}

// retire lets a worker finish its calls but take no more. Waiting calls get another worker.
func (s *Supervisor) retire(w *Worker) {
	s.o.Log.Warn("the program does not answer; it is replaced", "unanswered", w.abandoned)
	w.retired = true
	w.conn.Retire()
	if s.current == w {
		s.current = nil
	}
	s.drained(w)
	s.serveLine()
}

// drained ends a retired worker that has no waiting callers left.
func (s *Supervisor) drained(w *Worker) {
	if w.retired && w.waiting == 0 && !w.closing && !w.gone {
		w.closing = true
		s.running.Go(w.end)
	}
}

// launch starts a worker and greets it.
func (s *Supervisor) launch() (*Worker, error) {
	w, err := s.newWorker()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.workers[w] = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, s.o.StartTime)
	defer cancel()
	if err := s.o.Greet(ctx, w); err != nil {
		w.end()
		return nil, s.notStarted(w, err)
	}
	return w, nil
}

// notStarted explains why a worker did not start. The error of a worker that died is kept.
func (s *Supervisor) notStarted(w *Worker, err error) error {
	var known *tool.Error
	var said *jsonrpc.Error
	switch {
	case s.ctx.Err() != nil:
		return tool.Errorf(tool.CodeUnavailable, "%s was shut down while it started", s.o.Name)
	case errors.As(err, &known):
		return known
	case errors.Is(err, jsonrpc.ErrAbandoned) || errors.Is(err, context.DeadlineExceeded):
		return tool.Errorf(tool.CodeTimeout, "%s did not answer %s within %v and was ended%s",
			s.o.Name, s.o.Hello, s.o.StartTime, w.LastWords())
	case errors.As(err, &said):
		return tool.Errorf(tool.CodeProtocol, "%s did not start: %w", s.o.Name, said)
	case errors.Is(err, jsonrpc.ErrUnsent): // it was gone before it could be asked
		s.mu.Lock()
		defer s.mu.Unlock()
		return w.err
	}
	return err
}

// Close ends the program: waiting calls are refused, the worker is asked to end and then forced to, each step bounded,
// and nothing that it started is left.
func (s *Supervisor) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	current := s.current
	for w := range s.workers {
		w.closing = true
		if w != current {
			s.running.Go(w.end)
		}
	}
	if s.alarm != nil {
		s.alarm.Stop()
	}
	s.serveLine()
	s.mu.Unlock()
	s.cancel()
	if current != nil {
		current.shutdown(ctx)
	}
	return s.allGone(ctx)
}

// reaping is the maximum time to reap the killed processes.
const reaping = 2 * time.Second

// allGone waits for every goroutine; the steps of a shutdown are bounded, so they all end.
func (s *Supervisor) allGone(ctx context.Context) error {
	gone := make(chan struct{})
	go func() { s.running.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	if !tool.Within(gone, reaping) { // the rest was killed, and is being reaped
		return tool.Errorf(tool.CodeTimeout, "%s did not end in time: %w", s.o.Name, ctx.Err())
	}
	return nil
}

// Workers reports the state of the program. Besides the worker that takes calls there may be some that only finish
// theirs.
func (s *Supervisor) Workers() tool.Workers {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := tool.Workers{Alive: len(s.workers), Wait: len(s.line), Most: 1}
	for w := range s.workers {
		if n.Calls += w.busy; w.busy > 0 {
			n.Busy++
		}
	}
	return n
}
