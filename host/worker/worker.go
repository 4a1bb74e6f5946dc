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
	"toolpost/wire/bounded"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

const (
	unrelatedQueue = 64      // incoming messages that belong to no request and wait to be served
	maxLogLine     = 2 << 10 // bytes of a line of standard error in the log
	logBurst       = 200     // such lines that are logged at once; then logRate of them a second
	logRate        = 20
	maxNoise       = 20 // unusable lines that are logged before they are only counted
)

// A Worker is one process of a program. Requests are multiplexed: several may be pending at once, and each gets its own
// answer.
type Worker struct {
	// Own is the protocol's data about this worker. Greet sets it, before it asks anything.
	Own any

	s         *Supervisor
	watch     walls.Watch
	child     *process.Child
	dir       string // its working folder
	started   time.Time
	conn      *jsonrpc.Conn
	pipe      *pipe
	unrelated chan *jsonrpc.Incoming // messages that belong to no request of ours
	noise     int                    // owned by the reading goroutine
	babble    atomic.Pointer[string] // the last line that was not a message
	greeted   atomic.Bool            // it takes calls, or did

	done   chan struct{} // closed when its output has ended
	broken chan struct{} // closed when it broke the protocol
	dead   chan struct{} // closed when it is gone; err holds the reason
	err    *tool.Error

	load // guarded by the mutex of the supervisor
}

// load is how busy a worker is, and how long it may stay.
type load struct {
	waiting   int         // requests with a waiting caller
	abandoned int         // calls without a waiting caller that are not answered yet
	busy      int         // places taken: pending and abandoned calls
	suspect   bool        // a call was abandoned, and no answer has come since
	since     time.Time   // when it became one
	alarm     *time.Timer // decides whether it is replaced
	nap       *time.Timer // ends it when it has been idle for too long; nil while it has a call
	retired   bool        // it gets no new calls
	closing   bool        // we are ending it
	gone      bool        // it has ended
	fault     error       // how it broke the protocol
}

// A Scope belongs to one request while it runs, and is used for the messages that the program sends meanwhile. The caller
// of Ask or Call passes it, and Serve receives it.
type Scope interface {
	// Events returns the sink of the request's call, or nil if it belongs to none.
	Events() *tool.Relay
}

// A Pausing scope is one whose request may pause while it waits for another party. A message that the program sends then
// without naming a request belongs to another request.
type Pausing interface {
	Scope
	Paused() bool // it must not wait
}

// owns reports whether a message that names no request may belong to this one.
func owns(r *jsonrpc.Request) bool {
	s := r.Tag.(*requestTag).scope
	if p, ok := s.(Pausing); ok {
		return !p.Paused()
	}
	return s != nil
}

// A requestTag is the supervisor's data about a request.
type requestTag struct {
	scope Scope
	call  bool // it has a place, which it keeps until it is answered, even if it is abandoned
}

func (s *Supervisor) newWorker() (*Worker, error) {
	w := &Worker{
		s: s, started: time.Now(), unrelated: make(chan *jsonrpc.Incoming, unrelatedQueue),
		done: make(chan struct{}), broken: make(chan struct{}), dead: make(chan struct{}),
	}
	w.pipe = &pipe{out: make(chan []byte), gone: w.dead}
	o := jsonrpc.Options{
		Writer: w.pipe, Take: w.takeUnrelated, Unusable: w.skip, Names: s.o.Names, Serve: w.serveFor, Owns: owns,
		Abandoned: w.wasAbandoned, Answered: w.wasAnswered, Forget: s.o.Probe != nil, Lenient: s.o.Lenient, Go: s.running.Go,
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
	for _, f := range []func(){w.read, write, w.serveUnrelated, w.bury} {
		s.running.Go(f)
	}
	return w, nil
}

// start starts the process, with its secrets, in its sandbox.
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

// attempted reports an attempt that a wall stopped, like a log line of the program.
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

// stderr handles a line of the program's log. While only one call is pending, the line belongs to that call.
func (w *Worker) stderr(line []byte) {
	if events := w.listener(); events != nil {
		events.Stderr(line)
		return
	}
	if !w.s.logs.Allow() {
		w.s.unlogged.Add(1)
		return
	}
	w.logUnlogged()
	more := ""
	if len(line) > maxLogLine {
		line, more = line[:process.WholeRunes(line[:maxLogLine])], "..."
	}
	w.s.o.Log.Info("a line of standard error", "line", string(line)+more)
}

// logUnlogged logs how many lines of standard error are not in the log: all programs of a source share its rate.
func (w *Worker) logUnlogged() {
	if n := w.s.unlogged.Swap(0); n > 0 {
		w.s.o.Log.Warn("lines of standard error were left out", "lines", n)
	}
}

// listener returns the events of the only pending call.
func (w *Worker) listener() *tool.Relay {
	if e, ok := w.conn.Only().(*requestTag); ok {
		return e.scope.Events()
	}
	return nil
}

// Ask makes a request and waits for its answer. Meanwhile it serves the program's own requests, with s. If ctx ends first
// the request is abandoned, jsonrpc.ErrAbandoned: its answer is dropped when it comes. A nil scope is for requests during
// which the program sends no messages of its own.
func (w *Worker) Ask(ctx context.Context, method string, params []byte, s Scope) (json.RawMessage, error) {
	return w.ask(ctx, method, func(uint64) []byte { return params }, &requestTag{scope: s})
}

// Call is Ask for the call for which Get or Hold has taken a place. It releases the place when the call is answered. For
// an abandoned call that is later, since the program may still be busy with it. Params may contain the id of the request.
func (w *Worker) Call(
	ctx context.Context, method string, params func(id uint64) []byte, s Scope,
) (json.RawMessage, error) {
	raw, err := w.ask(ctx, method, params, &requestTag{scope: s, call: true})
	if !errors.Is(err, jsonrpc.ErrAbandoned) {
		w.Release()
	}
	return raw, err
}

func (w *Worker) ask(
	ctx context.Context, method string, params func(id uint64) []byte, e *requestTag,
) (json.RawMessage, error) {
	counts := 0 // a request without a scope may wait for as long as the worker lives
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

// Notify sends a notification, before any later request.
func (w *Worker) Notify(ctx context.Context, method string, params []byte) error {
	return w.conn.Send(ctx, jsonrpc.EncodeNotification(method, params))
}

// Tell sends a notification in the background, without waiting.
func (w *Worker) Tell(method string, params []byte) {
	w.conn.Tell(jsonrpc.EncodeNotification(method, params))
}

// Answer answers a request that Early handled. It does not wait.
func (w *Worker) Answer(in *jsonrpc.Incoming, result []byte, err *jsonrpc.Error) {
	if in.ID != nil {
		w.conn.Tell(jsonrpc.EncodeReply(in.ID, result, err))
	}
}

// Hold takes a place for a call on this worker, ahead of all other waiting calls.
func (w *Worker) Hold(ctx context.Context) error {
	_, err := w.s.acquire(ctx, w)
	return err
}

// Release releases a place that was not used for a Call.
func (w *Worker) Release() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.busy--
	w.s.serveLine()
}

// Dead returns a channel that is closed when the worker is gone.
func (w *Worker) Dead() <-chan struct{} { return w.dead }

// Layers returns the names of the sandbox layers around the worker.
func (w *Worker) Layers() []string { return w.child.Layers() }

// Open opens a file that the worker named, with the worker's rights.
func (w *Worker) Open(path string) (*os.File, error) { return w.child.Open(w.dir, path) }

// Pending returns the number of pending requests, including abandoned ones.
func (w *Worker) Pending() int {
	n, _ := w.conn.Pending()
	return n
}

// Pid returns the process id of the worker.
func (w *Worker) Pid() int { return w.child.Pid() }

// Unanswered returns the methods of requests, other than calls, that were abandoned and are not answered yet.
func (w *Worker) Unanswered() (methods []string) {
	_, abandoned := w.conn.Pending()
	for _, r := range abandoned {
		if !r.Tag.(*requestTag).call {
			methods = append(methods, r.Method)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// wasAbandoned records that the caller of a request has stopped waiting.
func (w *Worker) wasAbandoned(r *jsonrpc.Request) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	switch call := r.Tag.(*requestTag).call; {
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

// probe checks whether the worker still works: any answer shows it.
func (w *Worker) probe() {
	ctx, cancel := context.WithTimeout(w.s.ctx, w.s.o.Grace)
	defer cancel()
	w.s.o.Probe(ctx, w)
}

// wasAnswered records an answer. Any answer shows that the worker works.
func (w *Worker) wasAnswered(r *jsonrpc.Request) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.suspect = false
	if r.Tag.(*requestTag).call {
		w.s.restart.Worked()
		if r.Abandoned() {
			w.abandoned--
			w.busy--
		}
	}
	w.s.serveLine()
}

// read reads the program's lines to the end.
func (w *Worker) read() {
	defer close(w.done)
	err := w.conn.Read(context.Background(), bounded.NewLines(w.child.Stdout, bounded.LineLimits{Line: w.s.o.MaxLine}))
	if _, ok := errors.AsType[*bounded.LimitError](err); !ok {
		err = errors.New("it closed its output")
	}
	w.breaks(err)
}

// skip logs and skips an unusable message. A request is answered with an error if possible.
func (w *Worker) skip(m *jsonrpc.Message, line []byte, why error) {
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

// LastWords completes a message with the program's last output that was not a message.
func (w *Worker) LastWords() string { return w.child.LastWords() + w.babbles() }

// babbles is LastWords of its stdout. Once the worker takes calls, its output there may be about any of them, so it is
// left out.
func (w *Worker) babbles() string {
	if last := w.babble.Load(); last != nil && *last != "" && !w.greeted.Load() {
		return "; the last it wrote to stdout, which is for messages: " + *last
	}
	return ""
}

// takeUnrelated queues a message that belongs to no request. It never waits: the reader serves other calls too.
func (w *Worker) takeUnrelated(in *jsonrpc.Incoming) error {
	select {
	case w.unrelated <- in:
	default:
		w.conn.TooMany(in)
	}
	return nil
}

func (w *Worker) serveUnrelated() {
	for {
		select {
		case in := <-w.unrelated:
			w.serve(context.Background(), in, nil)
		case <-w.dead:
			return
		}
	}
}

func (w *Worker) serveFor(ctx context.Context, in *jsonrpc.Incoming, r *jsonrpc.Request) {
	w.serve(ctx, in, r.Tag.(*requestTag).scope)
}

// serve answers a request of the program.
func (w *Worker) serve(ctx context.Context, in *jsonrpc.Incoming, s Scope) {
	result, err := w.s.o.Serve(w, in, s)
	if in.ID == nil && err != nil {
		w.s.o.Log.Warn("a notification of the program failed", "method", jsonrpc.Clip(in.Method), "error", err)
	}
	w.conn.Reply(ctx, in, result, err)
}

// breaks records the program's first violation of the protocol.
func (w *Worker) breaks(fault error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.fault == nil {
		w.fault = fault
		close(w.broken)
	}
}

// bury waits for the end of the worker, however it comes, and makes sure that nothing is left.
func (w *Worker) bury() {
	select {
	case <-w.child.Exited():
	case <-w.broken:
	}
	w.s.mu.Lock()
	breath := process.LastBreath // a program that closes its pipes is usually about to exit, with a status
	if w.babbled() {
		breath = 0
	}
	w.s.mu.Unlock()
	exited := tool.Within(w.child.Exited(), breath)
	exit := w.child.Kill()
	<-w.done
	w.child.Close()
	w.logUnlogged()
	why, brief := w.obituary(w.child.Describe(exit)+w.babbles(), exited), w.obituary(exit.String(), exited)
	w.s.ended(w, why, brief)
	if n, _ := w.conn.Pending(); n > 1 && w.greeted.Load() { // its last output may be about any one of the callers
		why = brief
	}
	w.conn.End(why)
}

// babbled reports whether the worker sent more at once than allowed.
func (w *Worker) babbled() bool {
	_, ok := errors.AsType[*bounded.LimitError](w.fault)
	return ok
}

// obituary returns why and how the worker ended.
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

// end ends the worker without asking it: it does not answer, or is not needed.
func (w *Worker) end() {
	w.child.Stop(process.Ladder{Term: process.LastBreath})
	<-w.dead
}

// shutdown ends the worker in steps: the protocol's goodbye, stdin is closed, SIGTERM, SIGKILL to the tree. The protocol
// bounds its goodbye; the next two steps have half of Farewell each.
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

// pipeAtom is the size up to which the kernel writes to a pipe atomically.
const pipeAtom = 4096

// A pipe sends lines to a program. One goroutine, run, writes the lines that have to wait, so that a program that does
// not read blocks no caller. A line that fits is written at once by its caller, which saves a call two goroutine
// switches.
type pipe struct {
	file *os.File
	out  chan []byte
	gone <-chan struct{} // closed when the program ends

	writing sync.Mutex
	raw     syscall.RawConn
	try     func(fd uintptr) bool // made once, so that a line needs no allocation
	line    []byte
	sent    bool
}

// open sets the pipe's file, before anything is sent.
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

// now writes a line if that is possible whole and without waiting.
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

// run writes the waiting lines until the program ends. It calls failed for each line that could not be written.
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
