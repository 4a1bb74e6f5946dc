package alphahuman

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/host/spawn"
	"toolpost/tool"
)

// How a crashed worker is restarted: after a pause that doubles with every fast crash in a row; the fifth opens
// the breaker, and calls fail at once until the long pause is over.
const (
	fastCrash    = 10 * time.Second
	breakerAt    = 5
	firstBackoff = 100 * time.Millisecond
	longBackoff  = 30 * time.Second
	maxAbandoned = 1000
)

// A program is a skill that is a program. One worker takes all calls; it is started at the first use, and
// replaced when it crashes or does not answer any more.
type program struct {
	skill *Skill
	name  string
	o     *Options
	base  string // the folder of the config
	log   *slog.Logger

	memory   memory
	data     dataFolder
	entities entities

	command *command // how it was started the last time; one start at a time looks at it

	ctx     context.Context // ends with the program
	cancel  context.CancelFunc
	running sync.WaitGroup // every goroutine of every worker

	mu       sync.Mutex
	walls    string           // around the worker that was started last, in words
	held     tool.Guarantees  // what these walls hold
	current  *worker          // takes new calls; nil: none does
	workers  map[*worker]bool // that are not gone; those that only finish their calls too
	starting bool
	line     []*waiter   // who waits for a worker, in order
	second   atomic.Bool // its last worker was of the second generation
	fails    int         // fast crashes and failed starts in a row
	why      string      // what the last of them was
	retry    time.Time   // no start before this
	alarm    *time.Timer // serves the line at retry
	closed   bool
}

// A waiter is somebody in the line.
type waiter struct {
	ticket chan ticket // one
	only   *worker     // not nil: no other one will do
}

type ticket struct {
	w   *worker
	err error
}

func newProgram(s *Skill, o *Options, base, data string, log *slog.Logger) *program {
	p := &program{
		skill: s, name: s.Name(), o: o, base: base, data: dataFolder{dir: data},
		log: log.With("skill", s.Name()), workers: map[*worker]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// A command is how a skill is started.
type command struct {
	launch // as the manifest says
	*spawn.Program
}

// find finds how the skill is started, behind walls. Its folder is its own code: no guarantee takes that.
func (p *program) find() (*command, error) {
	said, err := p.skill.Manifest.launch(p.skill.Dir)
	if err != nil {
		return nil, err
	}
	if p.command != nil && slices.Equal(p.command.argv, said.argv) {
		return p.command, nil
	}
	argv := said.argv
	if p.skill.Manifest.python() { // its folder is read-only: each module that it could not keep compiled would be an attempt
		argv = slices.Insert(slices.Clone(argv), 1, "-B")
	}
	found, err := p.o.Program(p.base, spawn.Command{
		Argv: argv, Dir: said.dir, Own: p.skill.Dir, Code: append([]string{p.skill.Dir}, said.code...),
		PassEnv: p.skill.Manifest.Env, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	p.command = &command{said, found}
	return p.command, nil
}

// acquire gives a worker with a place for one call; release gives the place back. Only a worker that is not
// nil: that one, before everybody else.
func (p *program) acquire(ctx context.Context, only *worker) (*worker, error) {
	p.mu.Lock()
	if len(p.line) == 0 || only != nil {
		if t, ok := p.next(only); ok {
			p.mu.Unlock()
			return t.w, t.err
		}
	}
	me := &waiter{ticket: make(chan ticket, 1), only: only}
	if only != nil {
		p.line = slices.Insert(p.line, 0, me)
	} else {
		p.line = append(p.line, me)
	}
	p.serveLine()
	p.mu.Unlock()
	select {
	case t := <-me.ticket:
		return t.w, t.err
	case <-ctx.Done():
		return nil, p.quit(ctx, me)
	}
}

// quit leaves the line, or gives back what came this moment.
func (p *program) quit(ctx context.Context, me *waiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.line, me); i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	} else if t := <-me.ticket; t.w != nil {
		t.w.busy--
		p.serveLine()
	}
	return ctx.Err()
}

func (p *program) release(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.busy--
	p.serveLine()
}

// serveLine gives tickets to those in the line, in order, as far as there are any.
func (p *program) serveLine() {
	for len(p.line) > 0 {
		t, ok := p.next(p.line[0].only)
		if !ok {
			return
		}
		p.line[0].ticket <- t
		p.line = p.line[1:]
	}
}

// next makes the next ticket; false: there is none now.
func (p *program) next(only *worker) (t ticket, ok bool) {
	w, wait := p.current, time.Until(p.retry)
	switch {
	case p.closed:
		t.err = tool.Errorf(tool.CodeUnavailable, "%s has been shut down", p.name)
	case only != nil && only != w:
		t.err = tool.Errorf(tool.CodeUnavailable, "%s was replaced", p.name)
	case w != nil && (w.suspect || w.full()):
		return t, false
	case w != nil:
		w.busy++
		t.w = w
	case p.starting:
		return t, false
	case p.fails >= breakerAt && wait > 0:
		t.err = p.broken(wait)
	case wait > 0:
		p.wake(wait)
		return t, false
	default:
		p.start()
		return t, false
	}
	return t, true
}

// full reports whether the worker has as many calls as it can take. One of the second generation takes one,
// where nothing else is said: its calls back do not tell which call they belong to.
func (w *worker) full() bool {
	limit := w.p.limit()
	return limit > 0 && w.busy >= limit
}

// limit is how many calls a worker takes at once; 0: any number. Before the first one has come up that may be too many.
func (p *program) limit() int {
	switch {
	case p.o.Concurrency > 0:
		return p.o.Concurrency
	case p.skill.Manifest.Concurrency > 0:
		return p.skill.Manifest.Concurrency
	case p.second.Load():
		return 1
	}
	return 0
}

func (p *program) broken(wait time.Duration) error {
	return tool.Errorf(tool.CodeBreakerOpen, "%s failed %d times in a row (last: %s); the next start is tried in %v",
		p.name, p.fails, p.why, wait.Round(time.Second))
}

// wake serves the line when the pause is over, and starts a worker where nobody waits: a skill that has
// ticks lives without calls too.
func (p *program) wake(after time.Duration) {
	if p.alarm != nil {
		return
	}
	p.alarm = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.alarm = nil
		if p.current == nil && !p.starting && !p.closed && len(p.line) == 0 {
			p.start()
		}
		p.serveLine()
	})
}

// start starts a worker in the background: who waits for it may go, and it still comes up for others.
func (p *program) start() {
	p.starting = true
	p.running.Go(func() {
		w, err := p.launch()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.starting = false
		if err == nil && w.gone {
			err = w.err
		}
		if err != nil {
			p.failed(err)
			p.refuseLine(err)
			return
		}
		p.current = w
		p.fails = min(p.fails, breakerAt-1) // the breaker closes, and opens again with the next failure
		p.running.Go(w.keepTime)
		p.serveLine()
	})
}

// refuseLine sends everybody away who waited for a start that failed.
func (p *program) refuseLine(err error) {
	for _, w := range p.line {
		w.ticket <- ticket{err: err}
	}
	p.line = nil
}

// failed counts a failure and sets when the next start may be tried.
func (p *program) failed(err error) {
	if p.closed {
		return
	}
	p.fails++
	p.why = tool.AsError(err).Message
	pause := longBackoff
	if p.fails < breakerAt {
		pause = firstBackoff << (p.fails - 1)
	} else {
		p.log.Error("the skill failed too often; its calls fail for a while", "failures", p.fails, "last", p.why)
	}
	p.retry = time.Now().Add(pause)
}

// ended takes note that a worker is gone. Whoever waits for an answer of it is told why; no call is repeated.
func (p *program) ended(w *worker, why *tool.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.gone, w.err = true, why
	w.pending, w.waiting, w.suspect = map[uint64]*request{}, 0, false
	if w.alarm != nil {
		w.alarm.Stop()
	}
	close(w.dead)
	if !w.retired {
		close(w.leaving)
	}
	delete(p.workers, w)
	if p.current == w {
		p.current = nil
		p.crashed(w)
	}
	p.serveLine()
}

// crashed arranges for another worker, unless this one was ended by us.
func (p *program) crashed(w *worker) {
	if w.closing || p.closed {
		return
	}
	p.log.Warn("the skill ended", "error", w.err.Message)
	if time.Since(w.started) >= fastCrash {
		p.fails = 0
	}
	p.failed(w.err)
	if p.fails < breakerAt {
		p.wake(time.Until(p.retry))
	}
}

// doubt holds new calls back from a worker that left one unanswered. If it answers nothing for a while it is
// replaced.
func (p *program) doubt(w *worker) {
	if !w.suspect {
		w.suspect, w.since = true, time.Now()
	}
	if w.alarm == nil {
		w.alarm = time.AfterFunc(p.o.grace(), func() { p.judge(w) })
	}
}

func (p *program) judge(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.alarm = nil
	left := p.o.grace() - time.Since(w.since)
	switch {
	case w.gone || w.retired || w.closing:
	case w.suspect && left > 0: // it had answered, and then left another call
		w.alarm = time.AfterFunc(left, func() { p.judge(w) })
	case w.suspect, p.limit() > 0 && w.abandoned >= p.limit(), w.abandoned >= maxAbandoned:
		p.retire(w)
	}
}

// retire lets a worker finish what it has, and nothing more. Calls that wait get another.
func (p *program) retire(w *worker) {
	p.log.Warn("the skill does not answer; it is replaced", "unanswered", w.abandoned)
	w.retired = true
	close(w.leaving)
	if p.current == w {
		p.current = nil
	}
	p.drained(w)
	p.serveLine()
}

// drained ends a retired worker that nobody waits for any more.
func (p *program) drained(w *worker) {
	if w.retired && w.waiting == 0 && !w.closing && !w.gone {
		w.closing = true
		p.running.Go(w.end)
	}
}

// launch starts a worker, finds out what it is and what it has, and tells it that it is loaded.
func (p *program) launch() (*worker, error) {
	w, err := p.newWorker()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.workers[w] = true
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, p.o.startTime())
	defer cancel()
	if err := w.introduce(ctx); err != nil {
		w.end()
		return nil, p.notStarted(w, err)
	}
	p.second.Store(w.second)
	w.hook(p.ctx, w.loadHook())
	return w, nil
}

// notStarted says why a worker did not start. One that died said so itself.
func (p *program) notStarted(w *worker, err error) error {
	var known *tool.Error
	var said *rpcError
	switch {
	case p.ctx.Err() != nil:
		return tool.Errorf(tool.CodeUnavailable, "%s was shut down while it started", p.name)
	case errors.As(err, &known):
		return known
	case errors.Is(err, errAbandoned) || errors.Is(err, context.DeadlineExceeded):
		return tool.Errorf(tool.CodeTimeout, "%s did not answer %s within %v and was ended%s", p.name, methodInitialize, p.o.startTime(), lastWords(w))
	case errors.As(err, &said):
		return tool.Errorf(tool.CodeProtocol, "%s did not start: %w", p.name, said)
	}
	return err
}

func lastWords(w *worker) string {
	if tail := w.child.Tail(); tail != "" {
		return fmt.Sprintf("; the last it wrote to stderr: %s", clip(tail[max(0, len(tail)-300):]))
	}
	return ""
}
