package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

const (
	strayQueue = 64 // things asked that wait to be served and belong to no request
	maxNoise   = 20 // lines that cannot be used, until they are only counted
)

// A Worker is one process of a program. Requests are multiplexed: several may be on their way at once, and each gets
// its own answer.
type Worker struct {
	// Own is what the protocol knows of this worker. Greet sets it, before it asks anything.
	Own any

	s       *Supervisor
	watch   walls.Watch
	child   *process.Child
	dir     string // its working folder
	started time.Time
	conn    *jsonrpc.Conn
	pipe    *pipe
	stray   chan *jsonrpc.Incoming // what belongs to no request of ours
	noise   int                    // of the goroutine that reads
	babble  atomic.Pointer[string] // the last line that was no message
	greeted atomic.Bool            // it takes calls, or did

	done   chan struct{} // closed when its output has ended
	broken chan struct{} // closed when it broke the protocol
	dead   chan struct{} // closed when it is gone; err says why
	err    *tool.Error

	// Guarded by the mutex of the supervisor.
	waiting   int         // requests that somebody waits for
	abandoned int         // calls that nobody waits for any more, and that are not answered yet
	busy      int         // places taken: calls on their way and abandoned ones
	suspect   bool        // a call was abandoned, and nothing was answered since
	since     time.Time   // when it became one
	alarm     *time.Timer // judges it
	nap       *time.Timer // ends it when it has had no call for long; nil: it has one
	retired   bool        // no new call comes here
	closing   bool        // we are ending it
	gone      bool        // it has ended
	fault     error       // how it broke the protocol
}

// A Scope is what belongs to one request while it runs, for whatever the program says and asks meanwhile. The caller
// of Ask or Call gives its own, and Serve gets it back.
type Scope interface {
	// Events gives the sink of the call that the request belongs to; nil: it belongs to none.
	Events() *tool.Relay
}

// A Pausing scope is one whose request may stand still, while it waits for somebody else: what the program says then
// and names no request belongs to another.
type Pausing interface {
	Scope
	Paused() bool // it must not wait
}

// owns reports whether what names no request may belong to this one.
func owns(r *jsonrpc.Request) bool {
	s := r.Tag.(*errand).scope
	if p, ok := s.(Pausing); ok {
		return !p.Paused()
	}
	return s != nil
}

// An errand is what the supervisor knows of a request.
type errand struct {
	scope Scope
	call  bool // it has a place, which it keeps until it is answered, also when it is abandoned
}

func (s *Supervisor) newWorker() (*Worker, error) {
	w := &Worker{
		s: s, started: time.Now(), stray: make(chan *jsonrpc.Incoming, strayQueue),
		done: make(chan struct{}), broken: make(chan struct{}), dead: make(chan struct{}),
	}
	w.pipe = &pipe{out: make(chan []byte), gone: w.dead}
	o := jsonrpc.Options{
		Writer: w.pipe, Take: w.takeStray, Odd: w.odd, Names: s.o.Names, Serve: w.serveFor, Owns: owns,
		Abandoned: w.wasAbandoned, Answered: w.wasAnswered, Forget: s.o.Probe != nil, Go: s.running.Go,
	}
	if s.o.Early != nil {
		o.Early = func(in *jsonrpc.Incoming) bool { return s.o.Early(w, in) }
	}
	w.conn = jsonrpc.NewConn(o)
	if err := w.start(); err != nil {
		return nil, err
	}
	if err := w.pipe.open(w.child.Stdin); err != nil {
		w.child.Close()
		return nil, err
	}
	write := func() { w.pipe.run(func() { w.breaks(errors.New("it no longer reads its input")) }) }
	for _, f := range []func(){w.read, write, w.serveStrays, w.bury} {
		s.running.Go(f)
	}
	return w, nil
}

// start starts the process, with its secrets, behind its walls.
func (w *Worker) start() error {
	o := &w.s.o
	ctx, cancel := context.WithTimeout(w.s.ctx, o.StartTime)
	defer cancel()
	program, err := o.Find()
	if err != nil {
		return err
	}
	w.dir = program.Dir
	w.watch.Follow(tool.SinkFunc(w.attempted), walls.Sources(o.Guarantees, o.Guarantees))
	w.child, err = program.Start(ctx, spawn.Run{
		Name: o.Name, Guarantees: o.Guarantees, Watch: &w.watch, Look: true, Stderr: w.stderr,
		StderrLimit: process.LifeLog,
	})
	return err
}

// attempted tells of something that a wall stopped, as a log line of the program would be.
func (w *Worker) attempted(e tool.Event) error {
	if events := w.listener(); events != nil {
		return events.Emit(e)
	}
	var said tool.Log
	if err := strictjson.Unmarshal(e.Data, &said); err != nil {
		return err
	}
	w.s.o.Log.Warn("the walls stopped something", "line", said.Message)
	return nil
}

// stderr is the program's log. While one call alone is on its way, a line belongs to that.
func (w *Worker) stderr(line []byte) {
	if events := w.listener(); events != nil {
		events.Stderr(line)
		return
	}
	w.s.o.Log.Info("a line of standard error", "line", string(line))
}

// listener returns the events of the call that alone is on its way.
func (w *Worker) listener() *tool.Relay {
	if e, ok := w.conn.Only().(*errand); ok {
		return e.scope.Events()
	}
	return nil
}

// Ask makes a request and waits for its answer. Meanwhile it serves what the program asks, at s. When ctx ends first
// the request is abandoned, jsonrpc.ErrAbandoned: its answer is dropped when it comes. A scope that is nil is for
// requests about which the program says and asks nothing.
func (w *Worker) Ask(ctx context.Context, method string, params []byte, s Scope) (json.RawMessage, error) {
	return w.ask(ctx, method, func(uint64) []byte { return params }, &errand{scope: s})
}

// Call is Ask for the call that Get, or Hold, has taken a place for. It gives the place back when the call is
// answered: for one that was abandoned that is later, since the program may still be busy with it. Params may have the
// id of the request in them.
func (w *Worker) Call(
	ctx context.Context, method string, params func(id uint64) []byte, s Scope,
) (json.RawMessage, error) {
	raw, err := w.ask(ctx, method, params, &errand{scope: s, call: true})
	if !errors.Is(err, jsonrpc.ErrAbandoned) {
		w.Release()
	}
	return raw, err
}

func (w *Worker) ask(
	ctx context.Context, method string, params func(id uint64) []byte, e *errand,
) (json.RawMessage, error) {
	counts := 0 // what nobody says anything about may wait for as long as the worker lives
	if e.scope != nil || e.call {
		counts = 1
	}
	w.s.mu.Lock()
	w.waiting += counts
	w.s.mu.Unlock()
	raw, err := w.conn.Put(ctx, jsonrpc.Query{Method: method, Params: params, Tag: e})
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.waiting -= counts
	w.s.drained(w)
	if invalid, ok := errors.AsType[*jsonrpc.InvalidError](err); ok {
		err = tool.Errorf(tool.CodeProtocol, "the answer of %s is not valid: %s", w.s.o.Name,
			jsonrpc.Misread(invalid.Err))
	}
	return raw, err
}

// Notify sends a notification, before anything that is asked after it.
func (w *Worker) Notify(ctx context.Context, method string, params []byte) error {
	return w.conn.Send(ctx, jsonrpc.EncodeNotification(method, params))
}

// Tell sends a notification in the background, and does not wait.
func (w *Worker) Tell(method string, params []byte) {
	w.conn.Tell(jsonrpc.EncodeNotification(method, params))
}

// Answer answers something that Early dealt with. It does not wait.
func (w *Worker) Answer(in *jsonrpc.Incoming, result []byte, err *jsonrpc.Error) {
	if in.ID != nil {
		w.conn.Tell(jsonrpc.EncodeReply(in.ID, result, err))
	}
}

// Hold takes a place for a call on this worker, before everybody else who waits for one.
func (w *Worker) Hold(ctx context.Context) error {
	_, err := w.s.acquire(ctx, w)
	return err
}

// Release gives a place back that was not used for a Call.
func (w *Worker) Release() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.busy--
	w.s.serveLine()
}

// Dead is closed when the worker is gone.
func (w *Worker) Dead() <-chan struct{} { return w.dead }

// Layers names the walls that stand around the worker.
func (w *Worker) Layers() []string { return w.child.Layers() }

// Open opens a file that the worker named, as it could itself.
func (w *Worker) Open(path string) (*os.File, error) { return w.child.Open(w.dir, path) }

// Pending is how many requests are on their way, those that nobody waits for among them.
func (w *Worker) Pending() int {
	n, _ := w.conn.Pending()
	return n
}

// Pid is the process id of the worker.
func (w *Worker) Pid() int { return w.child.Pid() }

// Unanswered returns the methods of requests, other than calls, that were abandoned and are not answered yet.
func (w *Worker) Unanswered() (methods []string) {
	_, abandoned := w.conn.Pending()
	for _, r := range abandoned {
		if !r.Tag.(*errand).call {
			methods = append(methods, r.Method)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// wasAbandoned takes note of a request that nobody waits for any more.
func (w *Worker) wasAbandoned(r *jsonrpc.Request) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	switch call := r.Tag.(*errand).call; {
	case call && w.s.o.Probe != nil:
		w.busy--
		w.s.doubt(w)
		w.s.running.Go(w.probe)
	case call:
		w.abandoned++
		w.s.doubt(w)
	}
	if w.s.o.Cancel != nil {
		w.s.o.Cancel(w, r.ID)
	}
}

// probe finds out whether the worker still works: any answer shows it.
func (w *Worker) probe() {
	ctx, cancel := context.WithTimeout(w.s.ctx, w.s.o.Grace)
	defer cancel()
	w.s.o.Probe(ctx, w)
}

// wasAnswered takes note of an answer. Any answer shows that the worker works.
func (w *Worker) wasAnswered(r *jsonrpc.Request) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.suspect = false
	if r.Tag.(*errand).call {
		w.s.restart.Worked()
		if r.Abandoned() {
			w.abandoned--
			w.busy--
		}
	}
	w.s.serveLine()
}

// read takes the program's lines to the end.
func (w *Worker) read() {
	defer close(w.done)
	err := w.conn.Read(context.Background(), process.NewLines(w.child.Stdout, process.LineLimits{Line: w.s.o.MaxLine}))
	if _, ok := errors.AsType[*process.LimitError](err); !ok {
		err = errors.New("it closed its output")
	}
	w.breaks(err)
}

// odd logs what cannot be used and skips it. A request that can be answered is.
func (w *Worker) odd(m *jsonrpc.Message, line []byte, why error) {
	switch e := (*jsonrpc.Error)(nil); {
	case errors.As(why, &e) && m.ReplyID() != nil:
		w.conn.Tell(jsonrpc.EncodeReply(m.ReplyID(), nil, e))
		return
	case e == nil && !errors.Is(why, jsonrpc.ErrNotMessage) && !errors.Is(why, jsonrpc.ErrUnasked):
		why = fmt.Errorf("it is not JSON: %w", why)
	}
	clipped := process.LastLines(string(line))
	w.babble.Store(&clipped)
	if w.noise++; w.noise <= maxNoise {
		w.s.o.Log.Warn("a line of the program is skipped", "why", why, "line", jsonrpc.Clip(string(line)))
	}
}

// LastWords ends a message with what the program wrote last that was no message.
func (w *Worker) LastWords() string { return w.child.LastWords() + w.babbles() }

// babbles is LastWords of its stdout. Once it takes calls, what it writes there may be about any of them.
func (w *Worker) babbles() string {
	if last := w.babble.Load(); last != nil && *last != "" && !w.greeted.Load() {
		return "; the last it wrote to stdout, which is for messages: " + *last
	}
	return ""
}

// takeStray puts aside what belongs to no request. It never waits: whoever reads has other calls to look after.
func (w *Worker) takeStray(in *jsonrpc.Incoming) error {
	select {
	case w.stray <- in:
	default:
		w.conn.TooMany(in)
	}
	return nil
}

func (w *Worker) serveStrays() {
	for {
		select {
		case in := <-w.stray:
			w.serve(context.Background(), in, nil)
		case <-w.dead:
			return
		}
	}
}

func (w *Worker) serveFor(ctx context.Context, in *jsonrpc.Incoming, r *jsonrpc.Request) {
	w.serve(ctx, in, r.Tag.(*errand).scope)
}

// serve answers what the program asks.
func (w *Worker) serve(ctx context.Context, in *jsonrpc.Incoming, s Scope) {
	result, err := w.s.o.Serve(w, in, s)
	if in.ID == nil && err != nil {
		w.s.o.Log.Warn("a notification of the program failed", "method", jsonrpc.Clip(in.Method), "error", err)
	}
	w.conn.Reply(ctx, in, result, err)
}

// breaks records the first thing that the program did wrong.
func (w *Worker) breaks(fault error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.fault == nil {
		w.fault = fault
		close(w.broken)
	}
}

// bury waits for the end of the worker, however it comes, and sees to it that nothing is left.
func (w *Worker) bury() {
	select {
	case <-w.child.Exited():
	case <-w.broken:
	}
	w.s.mu.Lock()
	breath := process.LastBreath // who closes its pipes is mostly about to exit, and says how
	if w.babbled() {
		breath = 0
	}
	w.s.mu.Unlock()
	exited := true
	select {
	case <-w.child.Exited():
	case <-time.After(breath):
		exited = false
	}
	exit := w.child.Kill()
	<-w.done
	w.child.Close()
	why, brief := w.obituary(w.child.Describe(exit)+w.babbles(), exited), w.obituary(exit.String(), exited)
	w.s.ended(w, why, brief)
	if n, _ := w.conn.Pending(); n > 1 && w.greeted.Load() { // what it wrote last may be about one caller, and nobody knows which
		why = brief
	}
	w.conn.End(why)
}

// babbled reports whether the worker said more at once than it may.
func (w *Worker) babbled() bool {
	_, ok := errors.AsType[*process.LimitError](w.fault)
	return ok
}

// obituary says why the worker is gone, and how it went.
func (w *Worker) obituary(how string, exited bool) *tool.Error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	switch name := w.s.o.Name; {
	case w.closing:
		return tool.Errorf(tool.CodeUnavailable, "%s was shut down", name)
	case w.babbled() || !exited:
		return tool.Errorf(tool.CodeProtocol, "%s broke the protocol and was ended: %w", name, w.fault)
	case strings.HasPrefix(how, process.Exit{}.String()):
		return tool.Errorf(tool.CodeCrash, "%s ended by itself: %s", name, how)
	default:
		return tool.Errorf(tool.CodeCrash, "%s crashed: %s", name, how)
	}
}

// end ends the worker without asking: it does not answer, or nobody needs it.
func (w *Worker) end() {
	w.child.Stop(process.Ladder{Term: process.LastBreath})
	<-w.dead
}

// shutdown is the ladder: the protocol says goodbye, stdin is closed, SIGTERM, SIGKILL to the tree. What the protocol
// says is bound by the protocol; the other steps have half of the farewell each.
func (w *Worker) shutdown(ctx context.Context) {
	defer func() { <-w.dead }()
	if ctx.Err() == nil && w.s.o.Goodbye != nil {
		w.s.o.Goodbye(ctx, w)
	}
	if ctx.Err() != nil {
		w.child.Kill()
		return
	}
	half := w.s.Farewell() / 2
	w.child.Stop(process.Ladder{Stdin: half, Term: half})
}

// pipeAtom is how much the kernel takes into a pipe as a whole or not at all.
const pipeAtom = 4096

// A pipe sends lines to a program. One goroutine, run, writes those that have to wait, so that nobody is held by a
// program that does not read; a line that fits is written at once by whoever has it, which saves a call two changes of
// goroutine.
type pipe struct {
	file *os.File
	out  chan []byte
	gone <-chan struct{} // closed with the program

	writing sync.Mutex
	raw     syscall.RawConn
	try     func(fd uintptr) bool // made once, so that a line costs no memory
	line    []byte
	sent    bool
}

// open gives the pipe its file, before anything is sent.
func (p *pipe) open(f *os.File) (err error) {
	p.file = f
	p.raw, err = f.SyscallConn()
	p.try = func(fd uintptr) bool {
		n, err := syscall.Write(int(fd), p.line)
		p.sent = err == nil && n == len(p.line)
		return true
	}
	return err
}

// Send implements jsonrpc.Writer.
func (p *pipe) Send(ctx context.Context, stop <-chan struct{}, line []byte) error {
	select {
	case <-stop:
	case <-p.gone:
	default:
		if ctx.Err() == nil && p.now(line) {
			return nil
		}
		select {
		case p.out <- line:
			return nil
		case <-stop:
		case <-p.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return jsonrpc.ErrUnsent
}

// now writes a line if that can be done whole and without waiting.
func (p *pipe) now(line []byte) bool {
	if len(line) > pipeAtom || !p.writing.TryLock() {
		return false
	}
	defer p.writing.Unlock()
	p.line, p.sent = line, false
	err := p.raw.Write(p.try)
	p.line = nil
	return p.sent && err == nil
}

// run writes the lines that wait, to the end of the program. Failed is called for each that could not be written.
func (p *pipe) run(failed func()) {
	for {
		select {
		case line := <-p.out:
			p.writing.Lock()
			_, err := p.file.Write(line)
			p.writing.Unlock()
			if err != nil {
				failed()
			}
		case <-p.gone:
			return
		}
	}
}
