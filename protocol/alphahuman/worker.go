package alphahuman

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	reverseQueue = 64       // calls back that may wait for one request
	maxNoise     = 20       // lines that are no messages, until they are only counted
	maxLog       = 64 << 20 // bytes of standard error over a worker's whole life
	lastBreath   = 500 * time.Millisecond
)

// A worker is one process of a skill. Requests are multiplexed by their ids: several calls may be on their
// way at once, and each gets its own answer. What is guarded is guarded by the program's mutex.
type worker struct {
	p       *program
	watch   walls.Watch
	child   *process.Child
	dir     string // its working folder
	started time.Time
	writing sync.Mutex       // held while a line is written to the skill
	now     lineNow          // for lines that can be written without waiting
	out     chan []byte      // all other lines; who sends one has it written, or sees dead
	stray   chan reverseCall // calls back that belong to no request of ours
	done    chan struct{}    // closed when its output has ended
	broken  chan struct{}    // closed when it broke the protocol
	leaving chan struct{}    // closed when it is retired or gone: nothing more is sent
	dead    chan struct{}    // closed when it is gone; err says why
	err     *tool.Error

	second     bool // it is of the second generation
	cancels    bool // it knows $/cancelRequest
	sessionful bool // it takes sessionId in tools/call
	intro      introduction

	// Guarded.
	last      uint64 // the id of the last request
	pending   map[uint64]*request
	waiting   int             // requests that somebody waits for
	abandoned int             // calls that nobody waits for any more, and that are not answered yet
	busy      int             // places taken: calls on their way and abandoned ones
	suspect   bool            // a call was abandoned, and nothing was answered since
	since     time.Time       // when it became one
	alarm     *time.Timer     // judges it
	retired   bool            // no new call comes here
	closing   bool            // we are ending it
	gone      bool            // it has ended
	fault     error           // how it broke the protocol
	sessions  map[who]*talk   // that it was told of
	names     map[string]bool // their ids
	noise     int
}

// A request is one that we sent. What is guarded is guarded by the program's mutex.
type request struct {
	id     uint64
	method string
	call   bool // it has a place, which it keeps until it is answered, also when it is abandoned
	desk   *desk
	news   chan struct{} // one: something below has changed

	// Guarded.
	asked     []reverseCall // what the skill asks back meanwhile and nobody has served yet
	answered  bool
	answer    reply
	abandoned bool // nobody waits for it
}

func (r *request) tell() {
	select {
	case r.news <- struct{}{}:
	default: // who waits for it looks at everything
	}
}

type reply struct {
	result json.RawMessage
	err    error // an *rpcError where the skill said so
}

// errAbandoned is the end of a request whose answer nobody waits for any more: it was sent. errUnsent is the end
// of one that never was, so that another worker may have it.
var (
	errAbandoned = errors.New("not answered in time")
	errUnsent    = errors.New("the worker was replaced")
)

func (p *program) newWorker() (*worker, error) {
	w := &worker{
		p: p, started: time.Now(), out: make(chan []byte), stray: make(chan reverseCall, reverseQueue),
		done: make(chan struct{}), broken: make(chan struct{}),
		leaving: make(chan struct{}), dead: make(chan struct{}),
		pending: map[uint64]*request{}, sessions: map[who]*talk{}, names: map[string]bool{},
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	if err := w.now.open(w.child.Stdin); err != nil {
		w.child.Close()
		return nil, err
	}
	for _, f := range []func(){w.read, w.write, w.serveStrays, w.bury} {
		p.running.Go(f)
	}
	return w, nil
}

// start starts the skill, with its secrets, behind its walls.
func (w *worker) start() error {
	p := w.p
	command, err := p.find()
	if err != nil {
		return err
	}
	w.dir = command.Dir
	w.watch.Follow(tool.SinkFunc(w.attempted), walls.Sources(p.o.Guarantees, p.o.Guarantees))
	p.mu.Lock()
	p.walls, p.held = command.String(), command.Holds()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, p.o.startTime())
	defer cancel()
	w.child, err = command.Start(ctx, spawn.Run{
		Name: p.name, Guarantees: p.o.Guarantees, Watch: &w.watch, Look: true, Stderr: w.stderr, StderrLimit: maxLog,
	})
	return err
}

// attempted tells of something that a wall stopped, as a log line of the skill would be.
func (w *worker) attempted(e tool.Event) error {
	if events := w.listener(); events != nil {
		return events.Emit(e)
	}
	var said tool.Log
	if err := strictjson.Unmarshal(e.Data, &said); err != nil {
		return err
	}
	w.p.log.Warn("the walls of the skill stopped something", "line", said.Message)
	return nil
}

// stderr is the skill's log. While one call alone is on its way, a line belongs to that.
func (w *worker) stderr(line []byte) {
	events := w.listener()
	if events == nil {
		w.p.log.Info("the skill says", "line", string(line))
		return
	}
	said := tool.Log{Level: "info", Message: string(line), Fields: json.RawMessage(`{"stream":"stderr"}`)}
	_ = events.Emit(tool.NewEvent(tool.KindLog, said)) // emit keeps the error and ends the call
}

// listener gives the events of the call that alone is on its way.
func (w *worker) listener() *tool.Relay {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if r := w.only(); r != nil && !r.abandoned {
		return r.desk.events
	}
	return nil
}

// only gives the request that is on its way, if there is exactly one.
func (w *worker) only() *request {
	if len(w.pending) != 1 {
		return nil
	}
	for _, r := range w.pending {
		return r
	}
	return nil
}

// ask makes a request and waits for its answer. Meanwhile it serves what the skill asks back, at d. Where
// ctx ends first the request is abandoned: its answer is dropped when it comes, and the error is errAbandoned.
func (w *worker) ask(ctx context.Context, method string, params []byte, d *desk) (json.RawMessage, error) {
	r := w.enter(method, d)
	if err := w.send(ctx, encodeRequest(r.id, method, params)); err != nil {
		w.forget(r)
		return nil, err
	}
	for dead := false; ; {
		select {
		case <-r.news:
		case <-w.dead:
			dead = true
		case <-ctx.Done():
			return w.abandon(r)
		}
		switch {
		case w.catchUp(ctx, r):
			return r.answer.result, r.answer.err
		case dead:
			return nil, w.err
		}
	}
}

// catchUp serves what the skill has asked back so far, and then tells whether the answer has come. It stops when
// ctx ends: a skill may ask without end.
func (w *worker) catchUp(ctx context.Context, r *request) bool {
	for {
		c, asked, answered := w.next(r)
		if !asked {
			return answered
		}
		w.serve(ctx, c, r.desk)
		if ctx.Err() != nil {
			r.tell() // there may be more
			return false
		}
	}
}

// next takes a call back that nobody has served. Where there is none it tells whether the answer has come.
func (w *worker) next(r *request) (c reverseCall, asked, answered bool) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if len(r.asked) == 0 {
		return c, false, r.answered
	}
	c, r.asked = r.asked[0], r.asked[1:]
	return c, true, false
}

// send writes a line, at once where the skill has room for it, else as soon as it has.
func (w *worker) send(ctx context.Context, line []byte) error {
	select {
	case <-w.leaving:
		return errUnsent
	default:
	}
	if ctx.Err() == nil && w.sendNow(line) {
		return nil
	}
	select {
	case w.out <- line:
		return nil
	case <-w.leaving:
		return errUnsent
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendNow writes a line if that can be done whole and without waiting: it saves a call two changes of
// goroutine.
func (w *worker) sendNow(line []byte) bool {
	if len(line) > pipeAtom || !w.writing.TryLock() {
		return false
	}
	defer w.writing.Unlock()
	return w.now.write(line)
}

// pipeAtom is how much the kernel takes into a pipe as a whole or not at all.
const pipeAtom = 4096

// A lineNow writes lines to a pipe, whole or not at all. It is for one goroutine at a time.
type lineNow struct {
	pipe syscall.RawConn
	try  func(fd uintptr) bool // made once, so that a line costs no memory
	line []byte
	sent bool
}

func (l *lineNow) open(f *os.File) (err error) {
	l.pipe, err = f.SyscallConn()
	l.try = func(fd uintptr) bool {
		n, err := syscall.Write(int(fd), l.line)
		l.sent = err == nil && n == len(l.line)
		return true
	}
	return err
}

func (l *lineNow) write(line []byte) bool {
	l.line, l.sent = line, false
	err := l.pipe.Write(l.try)
	l.line = nil
	return l.sent && err == nil
}

func (w *worker) enter(method string, d *desk) *request {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.last++
	r := &request{id: w.last, method: method, call: method == methodToolsCall, desk: d, news: make(chan struct{}, 1)}
	w.pending[r.id] = r
	w.waiting++
	return r
}

// unanswered gives the hooks that the skill was told of and never answered.
func (w *worker) unanswered() (hooks []string) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	for _, r := range w.pending {
		if r.abandoned && !r.call {
			hooks = append(hooks, r.method)
		}
	}
	slices.Sort(hooks)
	return slices.Compact(hooks)
}

// forget takes a request back that was never sent.
func (w *worker) forget(r *request) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.pending[r.id] == r {
		delete(w.pending, r.id)
		w.waiting--
		w.p.drained(w)
	}
}

// abandon gives a request up, unless its answer has come this moment.
func (w *worker) abandon(r *request) (json.RawMessage, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	switch {
	case r.answered:
		return r.answer.result, r.answer.err
	case w.pending[r.id] != r: // the worker has died
		return nil, errAbandoned
	}
	r.abandoned = true
	w.waiting--
	w.refuseAll(r)
	if r.call {
		w.abandoned++
		w.p.doubt(w)
	}
	if w.cancels {
		w.tell(encodeNotification(methodCancel, fmt.Appendf(nil, `{"id":%d}`, r.id)))
	}
	w.p.drained(w)
	return nil, errAbandoned
}

// tell sends a line that nobody waits for, and in no case waits itself.
func (w *worker) tell(line []byte) {
	w.p.running.Go(func() {
		select {
		case w.out <- line:
		case <-w.dead:
		case <-time.After(w.p.o.farewell()):
		}
	})
}

// write is the only writer to the skill: lines stay whole, and whoever has one does not have to wait for a
// skill that does not read.
func (w *worker) write() {
	for {
		select {
		case line := <-w.out:
			w.writing.Lock()
			_, err := w.child.Stdin.Write(line)
			w.writing.Unlock()
			if err != nil {
				w.breaks(errors.New("it does not read its input any more"))
			}
		case <-w.dead:
			return
		}
	}
}

// read takes the skill's lines to the end.
func (w *worker) read() {
	defer close(w.done)
	lines := process.NewLines(w.child.Stdout, process.LineLimits{Line: w.p.o.maxLine()})
	var scan strictjson.Scanner
	for {
		line, err := lines.Next()
		var limit *process.LimitError
		switch {
		case errors.As(err, &limit):
			w.breaks(limit)
			return
		case err != nil:
			w.breaks(errors.New("it closed its output"))
			return
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			w.take(&scan, line)
		}
	}
}

// take handles one line.
func (w *worker) take(scan *strictjson.Scanner, line []byte) {
	m, err := decodeMessage(scan, line)
	switch {
	case err != nil:
		w.badLine(line, err)
	case m.method != nil:
		w.takeReverse(&m)
	case m.id == nil || string(m.id) == "null":
		w.skip("an answer to nothing that was asked is dropped", line)
	case m.err != nil:
		w.answer(&m, reply{err: m.failure()}, line)
	case m.result != nil:
		w.answer(&m, reply{result: bytes.Clone(m.result)}, line)
	default:
		w.skip("a line of the skill is not a message", line)
	}
}

// answer gives a reply to whoever waits for it.
func (w *worker) answer(m *message, a reply, line []byte) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	id, ok := m.number()
	r := w.pending[id]
	if !ok || r == nil {
		w.skipLocked("an answer to an unknown request is dropped", line)
		return
	}
	w.settle(r, a)
}

// settle ends a request. Any answer shows that the worker works.
func (w *worker) settle(r *request, a reply) {
	delete(w.pending, r.id)
	w.suspect = false
	if r.call {
		w.p.fails = 0
	}
	switch {
	case !r.abandoned:
		w.waiting--
		r.answered, r.answer = true, a
		r.tell()
	case r.call:
		w.abandoned--
		w.busy--
	}
	w.p.drained(w)
	w.p.serveLine()
}

// badLine handles a line that is not JSON: as a rule it is logged and skipped. One that meant to be an answer
// fails its call.
func (w *worker) badLine(line []byte, why error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if id, ok := brokenReply(line); ok && w.pending[id] != nil {
		fault := tool.Errorf(tool.CodeProtocol, "the answer of %s is not valid: %s", w.p.name, misread(why))
		w.settle(w.pending[id], reply{err: fault})
		return
	}
	w.skipLocked("a line of the skill is not JSON", line)
}

func (w *worker) skip(why string, line []byte) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.skipLocked(why, line)
}

func (w *worker) skipLocked(why string, line []byte) {
	if w.noise++; w.noise <= maxNoise {
		w.p.log.Warn(why, "line", clip(string(line)))
	}
}

// breaks records the first thing that the skill did wrong.
func (w *worker) breaks(fault error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.fault == nil {
		w.fault = fault
		close(w.broken)
	}
}

// bury waits for the end of the worker, however it comes, and sees to it that nothing is left.
func (w *worker) bury() {
	select {
	case <-w.child.Exited():
	case <-w.broken:
	}
	var limit *process.LimitError
	if !errors.As(w.faulty(), &limit) { // who closes its pipes is mostly about to exit, and says how
		select {
		case <-w.child.Exited():
		case <-time.After(lastBreath):
		}
	}
	exited := w.exited()
	exit := w.child.Kill()
	<-w.done
	w.child.Close()
	w.p.ended(w, w.obituary(exit, exited))
}

func (w *worker) exited() bool {
	select {
	case <-w.child.Exited():
		return true
	default:
		return false
	}
}

func (w *worker) faulty() error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.fault
}

// obituary says why the worker is gone.
func (w *worker) obituary(exit process.Exit, exited bool) *tool.Error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	var limit *process.LimitError
	switch {
	case w.closing:
		return tool.Errorf(tool.CodeUnavailable, "%s was shut down", w.p.name)
	case errors.As(w.fault, &limit):
		return tool.Errorf(tool.CodeProtocol, "%s broke the protocol and was ended: %w", w.p.name, limit)
	case !exited:
		return tool.Errorf(tool.CodeProtocol, "%s broke the protocol and was ended: %w", w.p.name, w.fault)
	}
	return tool.Errorf(tool.CodeCrash, "%s crashed: %s", w.p.name, w.child.Describe(exit))
}

// end ends the worker without asking: it does not answer, or nobody needs it.
func (w *worker) end() {
	w.child.Stop(process.Ladder{Term: lastBreath})
	<-w.dead
}
