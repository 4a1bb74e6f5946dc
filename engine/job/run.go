package job

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"toolpost/engine/persist"
	"toolpost/tool"
)

// Intervals and limits of the processes that run jobs.
const (
	lookEvery    = 5 * time.Second       // for what other processes could not tell this one
	ringEvery    = 20 * time.Millisecond // at most, for jobs that this process does not begin
	recoverEvery = time.Second           // for jobs whose process is gone
	expireEvery  = 10 * time.Minute      // for expired jobs
	tellEvery    = time.Minute           // between log lines about the same problem
	maxAttempts  = 3                     // for a job that crashes its process each time
)

// The causes of the end of a job's context.
var (
	errStopped  = tool.Errorf(tool.CodeCancelled, "the job was cancelled")
	errShutdown = tool.Errorf(tool.CodeCancelled, "the program that ran the job was shut down").Because("shutdown")
)

// A dispatcher hands jobs to the goroutines that run them, during one Run.
type dispatcher struct {
	*Queue
	life    context.Context      // ends when the time for draining is over
	strange map[string]time.Time // since when jobs have been left to other processes; see has

	mu       sync.Mutex
	running  map[*Job]context.CancelCauseFunc // one may begin again before its earlier run ends
	settling int                              // jobs that have run, and whose end is not stored yet
	told     map[string]time.Time             // when each problem was last logged
	free     chan struct{}                    // a worker has become free
	heard    chan struct{}                    // another process has rung: for take
	look     chan struct{}                    // the same, for tend
	workers  sync.WaitGroup
}

// Run runs jobs until ctx ends. Jobs that run then have some time to end. A job that has not ended by then is put back
// if it is safe to run twice, and is lost otherwise. Run must be called only once.
func (q *Queue) Run(ctx context.Context) {
	defer close(q.ended)
	if q.o.Process != "" { // it does not open the store before it has a job
		select {
		case <-q.wake:
			nudge(q.wake)
		case <-ctx.Done():
			return
		}
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	d := &dispatcher{
		Queue: q, life: life, running: map[*Job]context.CancelCauseFunc{},
		told: map[string]time.Time{}, free: make(chan struct{}, 1), heard: make(chan struct{}, 1), look: make(chan struct{}, 1),
	}
	q.runs.Store(true)
	var tending sync.WaitGroup
	stop := make(chan struct{})
	listening, deaf := context.WithCancel(context.WithoutCancel(ctx)) // jobs that run can still be stopped
	tending.Go(func() { d.tend(stop) })
	tending.Go(func() { q.o.Bell.Listen(listening, func() { nudge(d.heard); nudge(d.look) }) })
	d.take(ctx)
	q.runs.Store(false)
	late := time.AfterFunc(q.o.Drain, func() { end(errShutdown) }) // for the jobs that take too long
	defer late.Stop()
	d.workers.Wait()
	deaf()
	close(stop)
	tending.Wait()
}

// take starts jobs as they come and as workers become free. If it cannot start all jobs that this process has made, it rings,
// so that others do.
func (d *dispatcher) take(ctx context.Context) {
	var rang time.Time
	for made := false; ctx.Err() == nil; {
		changed := d.o.Tools.Changed() // before looking
		made = d.claim(ctx) && made
		pause := lookEvery
		if len(d.strange) > 0 {
			pause = min(pause, d.o.Patience)
		}
		if wait := ringEvery - time.Since(rang); made && wait > 0 {
			pause = wait
		} else if made {
			d.o.Bell.Ring(ctx)
			rang, made = time.Now(), false
		}
		select {
		case <-ctx.Done():
		case <-d.wake:
			made = true
		case <-d.heard:
		case <-d.free:
		case <-changed:
		case <-time.After(pause):
		}
	}
}

// claim starts the waiting jobs that this process can run, and reports whether others may be left.
func (d *dispatcher) claim(ctx context.Context) (left bool) {
	d.mu.Lock()
	free := d.o.Workers - len(d.running) - max(d.settling-d.o.Workers, 0)
	d.mu.Unlock()
	if free <= 0 {
		return true
	}
	strange := map[string]time.Time{}
	jobs, err := d.o.Ledger.Claim(ctx, free, func(needs string) bool {
		has := d.has(needs, strange)
		left = left || !has
		return has
	})
	d.strange = strange
	if ctx.Err() == nil {
		d.complain("jobs cannot be begun", err)
	}
	for i := range jobs {
		d.begin(&jobs[i])
	}
	return left || len(jobs) == free
}

// has reports whether this process can run a job. It notes in strange since when it has left the job to others, by its own
// clock, since those of processes differ: it has the tool with another definition, or does not serve.
func (d *dispatcher) has(needs string, strange map[string]time.Time) bool {
	digest, name, process := parseNeeds(needs)
	have, ok := d.o.Tools.Has(name)
	switch serves := d.o.Process == ""; {
	case !ok || !serves && process != d.o.Process:
		return false
	case serves && (digest == "" || digest == have):
		return true
	}
	now := time.Now()
	strange[needs] = cmp.Or(d.strange[needs], now)
	return now.Sub(strange[needs]) >= d.o.Patience
}

// begin runs a claimed job in a goroutine.
func (d *dispatcher) begin(j *Job) {
	ctx, stop := context.WithCancelCause(d.life)
	d.mu.Lock()
	d.running[j] = stop
	d.mu.Unlock()
	d.workers.Go(func() {
		defer stop(nil)
		d.run(ctx, j)
	})
}

// tend does the periodic work until stop is closed.
func (d *dispatcher) tend(stop <-chan struct{}) {
	ctx := context.WithoutCancel(d.life)
	var looked, recovered, expired time.Time
	for rung := true; ; {
		now := time.Now()
		if due(&recovered, now, recoverEvery) {
			d.recover(ctx)
		}
		if due(&looked, now, lookEvery) || rung {
			looked = now
			d.stopWanted(ctx)
			n, err := d.o.Ledger.Wake(ctx, approved)
			d.complain("jobs that wait for an approval cannot be looked after", err)
			if n > 0 {
				nudge(d.wake)
			}
		}
		if due(&expired, now, expireEvery) {
			_, err := d.o.Ledger.Expire(ctx, now.Add(-d.o.Keep))
			d.complain("old jobs cannot be removed", err)
		}
		select {
		case <-stop:
			return
		case <-d.look:
			rung = true
		case <-time.After(recoverEvery):
			rung = false
		}
	}
}

// due reports whether periodic work is due, and then resets its time.
func due(last *time.Time, now time.Time, every time.Duration) bool {
	if now.Sub(*last) < every {
		return false
	}
	*last = now
	return true
}

// complain logs a problem, but not the same one all the time.
func (d *dispatcher) complain(what string, err error) {
	if err == nil || d.o.Faults.Report(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.told[what]
	if due(&last, time.Now(), tellEvery) {
		d.told[what] = last
		d.o.Log.Error(what, "error", tool.AsError(err).Message)
	}
}

// stopWanted ends the jobs that were asked to end in any process.
func (d *dispatcher) stopWanted(ctx context.Context) {
	d.mu.Lock()
	busy := len(d.running) > 0
	d.mu.Unlock()
	if !busy {
		return
	}
	ids, err := d.o.Ledger.Stops(ctx)
	d.complain("whether jobs are to end cannot be read", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	for j, stop := range d.running {
		if slices.Contains(ids, j.ID) {
			stop(errStopped)
		}
	}
}

func (d *dispatcher) recover(ctx context.Context) {
	n, err := d.o.Ledger.Recover(ctx, decide, approved)
	d.complain("jobs whose program is gone cannot be looked after", err)
	if n > 0 {
		d.o.Log.Warn("a program ended while it ran jobs; those that may run again wait, the others are lost", "jobs", n)
		nudge(d.wake)
	}
}

// decide returns the state of a job whose process is gone. A job that may have had an effect is not run again: it runs
// at most once, and its outcome reports that.
func decide(j Job) (state string, result []byte) {
	switch {
	case !j.Again:
		return Lost, because(tool.Errorf(tool.CodeCrash,
			"the program that ran %s ended meanwhile, and its outcome is unknown; look before you call it again",
			j.Tool).Because("job_lost"))
	case j.Stop:
		return Cancelled, because(errStopped)
	case j.Attempts >= maxAttempts:
		return Lost, because(tool.Errorf(tool.CodeCrash, "%s was begun %d times, and its program ended each time",
			j.Tool, j.Attempts).Because("job_lost"))
	}
	return Queued, nil
}

// run runs a job to its end, lets the next one begin, and stores its outcome.
func (d *dispatcher) run(ctx context.Context, j *Job) {
	var h tool.Handover
	events := newRecorder(d.o.Ledger, j)
	stopped := make(chan struct{})
	var flushing sync.WaitGroup
	flushing.Go(func() { events.flushNowAndThen(ctx, stopped) })
	r, err := d.invokeWithStore(ctx, j, &h, events)
	close(stopped)
	flushing.Wait()
	d.ran(j, 1)
	defer d.ran(j, -1)
	state, result := ended(ctx, j, r, err)
	d.settle(j, &h, events, state, result)
}

// ran counts the jobs whose end is being stored. They are no longer running: the next ones are begun by the same commit, and
// perhaps the same one, if it asked and has its answer already.
func (d *dispatcher) ran(j *Job, settling int) {
	d.mu.Lock()
	if settling > 0 {
		delete(d.running, j)
	}
	d.settling += settling
	d.mu.Unlock()
	nudge(d.free)
}

// invokeWithStore runs a job once the store is available: an accepted job does not fail because the store was down for a
// while. Effects of a job that has run wait for the store elsewhere, however long that takes.
func (d *dispatcher) invokeWithStore(ctx context.Context, j *Job, h *tool.Handover, out tool.Sink) (*tool.Result, error) {
	for {
		r, err := d.invoke(ctx, j, h, out)
		if err == nil || !persist.Away(err) || !j.Again && !tool.NotRun(err) || ctx.Err() != nil {
			return r, err
		}
		d.complain("jobs wait for the store", err)
		if !tool.Sleep(ctx, lastTry) {
			return nil, errNotBegun
		}
	}
}

func (d *dispatcher) invoke(ctx context.Context, j *Job, h *tool.Handover, out tool.Sink) (*tool.Result, error) {
	if j.Stop { // it was put back after it had been asked to end
		return nil, errStopped
	}
	call, err := d.callOf(ctx, j)
	if err != nil {
		return nil, tool.BeforeRun(err)
	}
	if j.Attempts > 1 {
		if err := out.Emit(tool.LogEvent("warn", "the program that ran this job ended; it runs again")); err != nil {
			return nil, err
		}
	}
	call.Background, call.Handover = true, h
	return d.o.Handler.Invoke(ctx, call, out)
}

var errNotBegun = tool.Errorf(tool.CodeCancelled, "the job ended before the store could be reached")

// callOf returns the call of a job, if its caller may still make it.
func (d *dispatcher) callOf(ctx context.Context, j *Job) (*tool.Call, error) {
	call, known, err := decode(j)
	if err != nil {
		return nil, err
	}
	if err := d.o.Admit(ctx, call.Caller); err != nil {
		return nil, err
	}
	var now tool.Principal
	if known {
		if now.Rights, known = d.o.Known(j.Caller); !known {
			return nil, tool.Errorf(tool.CodeAccessDenied, "%q is no longer on the list of callers",
				j.Caller).Because("caller_gone")
		}
		call.Caller.Rights = stillHeld(call.Caller.Rights, now.Rights)
	}
	spec, err := d.o.Lookup(ctx, call.Caller, call.Tool)
	switch {
	case err != nil:
		return nil, err
	case !now.May(spec):
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", call.Tool)
	case d.o.Own(spec):
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is about calls, and no job itself", spec.Name)
	case j.Attempts > 1 && !d.again(spec): // it is no longer the tool that was started
		return nil, errChanged
	}
	return call, nil
}

// stillHeld returns the rights that a caller had when it made a job, without the roles that it has lost since. Lost
// tools are checked one by one.
func stillHeld(had, now *tool.Rights) *tool.Rights {
	if had == nil || now == nil {
		return now
	}
	lost := func(role string) bool { return !slices.Contains(now.Roles, role) }
	return &tool.Rights{Tools: had.Tools, Roles: slices.DeleteFunc(slices.Clone(had.Roles), lost)}
}

var errChanged = tool.Errorf(tool.CodeCrash,
	"the program that ran it ended meanwhile, and the tool no longer says that it may run twice; "+
		"its outcome is unknown").Because("job_lost")

// ended returns the final state and outcome of a job that was run.
func ended(ctx context.Context, j *Job, r *tool.Result, err error) (state string, result []byte) {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		o := outcome{Result: &tool.Stored{Result: *r, Content: r.Content}}
		if r.Ask != nil {
			o.Round = rounds(j) + 1
		}
		b, err := o.encode()
		switch {
		case err != nil:
			return Failed, because(err)
		case r.Ask != nil:
			return Asked, b
		case !r.OK:
			return Failed, b
		}
		return Done, b
	case errors.Is(err, errChanged):
		return Lost, because(err)
	case refused(err):
		return Failed, because(err)
	case cause == error(errStopped) || errors.Is(err, errStopped):
		return Cancelled, because(errStopped)
	case cause == error(errShutdown) && (j.Again || errors.Is(err, errNotBegun)):
		return Queued, nil
	case cause == error(errShutdown):
		return Lost, because(tool.Errorf(tool.CodeCrash,
			"the program that ran %s was shut down meanwhile, and its outcome is unknown; look before you call it again",
			j.Tool).Because("job_lost"))
	}
	if cause == nil && tool.CodeOf(err) == tool.CodeCancelled { // not as a job, but as a running call
		return Cancelled, because(err)
	}
	return Failed, because(err)
}

// refused reports whether a call certainly had no effect, whatever happened meanwhile.
func refused(err error) bool {
	how, _, _ := tool.OutcomeOf(nil, err)
	return how == tool.OutcomeRefused
}

// The pauses between attempts to store the end of a job, and how long they go on at a shutdown.
const (
	firstTry  = 20 * time.Millisecond
	lastTry   = time.Second
	lastTries = 3 * time.Second
)

// settle stores the end of a job, with the record of its call if that is left to it. If the store cannot take it now, as with
// a full disk, it retries until it can, or until the process ends: then another process will find a job whose process is gone.
// If the log refuses the record, the job has failed, as any call that could not be recorded.
func (d *dispatcher) settle(j *Job, h *tool.Handover, events *recorder, state string, result []byte) {
	var giveUp <-chan time.Time
	over := d.life.Done()
	for pause := firstTry; ; pause = min(2*pause, lastTry) {
		err := events.flush()
		refused := false
		if err == nil || tool.CodeOf(err) == tool.CodeConflict { // a job that was taken has a record, too
			err = d.o.Ledger.Settle(context.WithoutCancel(d.life), j, state, result, h.Record)
			refused = h.Record != nil && err != nil && !persist.Retry(err) && tool.AsError(err).Reason != Taken
		}
		switch {
		case err == nil:
			if state == Queued {
				d.o.Bell.Ring(context.WithoutCancel(d.life))
			}
			return
		case refused:
			state, result, h.Record = Failed, because(h.Missed(err)), nil
			continue
		case tool.CodeOf(err) == tool.CodeConflict:
			d.o.Log.Warn("a job was taken from this program while it ran", "job", j.ID, "tool", j.Tool)
			return
		}
		d.complain("the end of a job cannot be kept yet", err)
		select {
		case <-time.After(pause):
		case <-over:
			over, giveUp = nil, time.After(lastTries)
		case <-giveUp:
			if h.Record != nil {
				_ = h.Missed(err)
			}
			return
		}
	}
}
