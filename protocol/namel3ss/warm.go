package namel3ss

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/kernel"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// reportTime is how long a fork server may take to report the end of a child that we killed.
const reportTime = 5 * time.Second

// A worker is a fork server: an interpreter that has imported a tool and forks a clean child for each
// call. It serves one call at a time.
type worker struct {
	child   *process.Child
	control *net.UnixConn
	lines   *process.Lines // what it says on control
	hello   hello
	watch   *walls.Watch
	blind   []string     // guarantees of its calls against which attempts are not seen
	tried   atomic.Int32 // attempts of its calls that were seen
	spent   bool         // it is not for another call, and nothing is wrong with it
}

// hello is the first thing that a fork server says.
type hello struct {
	Ready  bool       `json:"ready"`
	Error  replyError `json:"error"`  // why the import failed
	Files  []stamp    `json:"files"`  // of the app, that were imported
	Unsafe string     `json:"unsafe"` // why it must not be forked; empty: it may
}

// A stamp is a file in the state in which it was imported.
type stamp struct {
	Path  string `json:"path"`
	MTime int64  `json:"mtime"` // nanoseconds
	Size  int64  `json:"size"`
}

// changed reports whether any of the files is not what it was.
func changed(files []stamp) bool {
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil || info.ModTime().UnixNano() != f.MTime || info.Size() != f.Size {
			return true
		}
	}
	return false
}

// start starts a fork server and waits until it has imported the tool. A tool that cannot be
// imported, or forked, is no error here: its worker says so in its hello.
func (p *pool) start(ctx context.Context) (*worker, error) {
	t, w := p.tool, &worker{watch: &walls.Watch{}}
	w.watch.Follow(nil, p.sources)
	if p.late {
		w.blind = []string{"no_subprocess"} // what starts a process meets the fork's own filter, which nobody watches
	}
	cmd, room, err := p.command(w)
	if err != nil {
		return nil, err
	}
	defer closeAll(room)
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no socket for the fork server: %w", err)
	}
	cmd.Files = append([]*os.File{t.host, theirs}, room...)
	w.child, err = t.start(cmd, p.held)
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	w.child.CloseStdin()
	w.control, w.lines = ours, process.NewLines(ours, process.LineLimits{})
	if err := w.greet(ctx, t.redact); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// command is how a fork server is started, and the file with the walls of its forks, if there are any.
func (p *pool) command(w *worker) (process.Command, []*os.File, error) {
	t := p.tool
	words := []string{t.entry}
	if p.late {
		words = append(words, "late")
	}
	confine, err := t.around.Confine(t.spec.Name, p.held, w.watch)
	if err != nil {
		return process.Command{}, nil, err
	}
	var room []*os.File
	if confine != nil {
		file, err := t.forkRoom(confine.Profile)
		if err != nil {
			return process.Command{}, nil, err
		}
		confine.Profile, confine.Violation = serverProfile(confine.Profile), w.count(confine.Violation)
		room, words = []*os.File{file}, append(words, "room")
		if confine.Tmp > 0 {
			words = append(words, "tmp")
		}
	}
	return process.Command{
		Argv: t.hostCommand("warm", words...), Dir: t.root, Env: t.environment(p.held), Confine: confine,
		Stderr: func(line []byte) { t.log.Debug("written while importing", "line", t.redact.Replace(string(line))) },
	}, room, nil
}

// forkRoom is the file from which a fork server learns how to confine its forks: code, a NUL, and the script
// for it. It is written anew for each server, since it names files as they are now.
func (t *localTool) forkRoom(call sandbox.Profile) (*os.File, error) {
	call.Name = "tp:" + t.spec.Name
	script, err := t.fork(call)
	if err != nil {
		return nil, err
	}
	return sealed(slices.Concat([]byte(sandbox.ForkPython()), []byte{0}, script))
}

func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := kernel.SocketPair()
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close() // FileConn has its own
	conn, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// greet waits for the hello.
func (w *worker) greet(ctx context.Context, redact *strings.Replacer) error {
	defer context.AfterFunc(ctx, func() { _ = w.control.SetReadDeadline(time.Now()) })()
	line, err := w.lines.Next()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		exit := w.child.Kill()
		said := redact.Replace(w.child.Describe(exit))
		return tool.Errorf(tool.CodeCrash, "the interpreter ended while it imported the tool: %s", said)
	}
	if err := strictjson.Unmarshal(line, &w.hello); err != nil {
		return tool.Errorf(tool.CodeProtocol, "the fork server's first message: %w", err)
	}
	return nil
}

// Close implements process.Worker.
func (w *worker) Close() {
	_ = w.control.Close()
	w.child.Close()
}

// errServerGone says that a fork server had ended before it got the call. Nothing was run: another one may.
var errServerGone = errors.New("the fork server is gone")

// errStale says that a fork server ran nothing because an earlier call has left something: another one may.
var errStale = fmt.Errorf("%w: an earlier call has left something", errServerGone)

// worn reports whether a worker is not for another call. Only so many attempts of one child are reported, so that
// those of the next call may not be.
func (w *worker) worn() bool { return w.spent || w.tried.Load() > 32 }

// count counts what is seen.
func (w *worker) count(see func(sandbox.Violation)) func(sandbox.Violation) {
	return func(v sandbox.Violation) {
		w.tried.Add(1)
		see(v)
	}
}

// enforced notes what stood around a call of the worker, and what was tried since the call before it.
func (w *worker) enforced(inv *invocation) {
	inv.enforced(w.child.Layers(), w.watch.Checks(), w.blind...)
}

// call runs one call in a forked child. The worker is healthy if it can take another one.
func (w *worker) call(ctx context.Context, request []byte, inv *invocation) (e ending, healthy bool, err error) {
	w.enforced(inv) // what was tried while the tool was imported belongs to the first call
	w.watch.Follow(inv.logs, inv.sources)
	e, healthy, err = w.fork(ctx, request, inv.logs)
	w.enforced(inv)
	w.watch.Follow(nil, inv.sources)
	return e, healthy, err
}

// fork runs one call.
func (w *worker) fork(ctx context.Context, request []byte, l *logs) (e ending, healthy bool, err error) {
	in, err := newPipes(ctx, 1)
	if err != nil {
		return ending{}, true, err
	}
	defer in.close()
	out, err := newPipes(ctx, 3)
	if err != nil {
		return ending{}, true, err
	}
	defer out.close()
	if err := w.send(in.r[0], out.w...); err != nil {
		return ending{}, false, errServerGone
	}
	closeAll(in.r)
	closeAll(out.w)

	var pumps sync.WaitGroup
	pumps.Go(func() { feed(in.w[0], request) })
	for i, stream := range []string{"reply", "stdout", "stderr"} {
		pumps.Go(func() { l.take(stream, out.reader(i), &e) })
	}
	exit, healthy, err := w.await(ctx)
	closeAll(in.w)
	out.drain()
	pumps.Wait()
	if e.exit = exit; exit.Signal == syscall.SIGKILL && ctx.Err() == nil && len(w.child.Layers()) > 0 {
		w.child.Kill() // only what has ended says which limit it reached
		w.spent, e.why = true, reached(w.child, exit)
	}
	return e, healthy, err
}

// feed writes a request and closes the pipe. A tool that ends without reading it all is no error.
func feed(f *os.File, request []byte) {
	_, _ = f.Write(request)
	_ = f.Close()
}

// send hands descriptors to the fork server; that is its signal to fork.
func (w *worker) send(in *os.File, out ...*os.File) error {
	fds := []int{int(in.Fd())}
	for _, f := range out {
		fds = append(fds, int(f.Fd()))
	}
	_ = w.control.SetDeadline(time.Now().Add(reportTime))
	_, _, err := w.control.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil)
	_ = w.control.SetDeadline(time.Time{})
	return err
}

// await waits for the child's end, or ends it together with ctx. Either way nothing that the call
// started is left when it returns.
func (w *worker) await(ctx context.Context) (process.Exit, bool, error) {
	reported, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		w.end(reported)
	})
	line, err := w.lines.Next()
	close(reported)
	if !stop() {
		<-ended
		_ = w.control.SetReadDeadline(time.Time{})
	}
	var report struct {
		Exit  int  `json:"exit"`
		Left  bool `json:"left"`
		Stale bool `json:"stale"`
	}
	if err == nil {
		err = strictjson.UnmarshalClosed(line, &report)
	}
	switch {
	case err != nil:
		return w.child.Kill(), false, nil
	case report.Stale:
		return process.Exit{}, true, errStale
	}
	w.child.Sweep()
	w.spent = report.Left
	if report.Exit < 0 {
		return process.Exit{Code: -1, Signal: syscall.Signal(-report.Exit)}, true, nil
	}
	return process.Exit{Code: report.Exit}, true, nil
}

// end kills the call until the server has reported its end. Once is not enough: the server may be
// about to fork.
func (w *worker) end(reported <-chan struct{}) {
	_ = w.control.SetReadDeadline(time.Now().Add(reportTime))
	for {
		w.child.Sweep()
		select {
		case <-reported:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// drainTime is how long a reader waits for more, once everyone who could write is dead.
const drainTime = 5 * time.Second

// pipes are some pipes of one call.
type pipes struct {
	r, w     []*os.File
	ctx      context.Context // of the call
	patience time.Duration
	draining atomic.Bool
}

func newPipes(ctx context.Context, n int) (*pipes, error) {
	p := &pipes{ctx: ctx, patience: drainTime}
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return nil, tool.Errorf(tool.CodeUnavailable,
				"no more pipes for the call: %w; raise the limit of open files (ulimit -n)", err)
		}
		p.r, p.w = append(p.r, r), append(p.w, w)
	}
	return p, nil
}

// drain says that every writer is dead. The end must come now, but a tool may have handed a pipe to a
// process that is not ours, so nobody waits for ever.
func (p *pipes) drain() {
	p.draining.Store(true)
	for _, r := range p.r {
		_ = r.SetReadDeadline(time.Now().Add(p.patience))
	}
}

// reader reads one of the pipes. While the call lives, a caller who takes the events slowly loses none
// of them: only waiting for more is bounded.
func (p *pipes) reader(i int) pipeReader { return pipeReader{p, p.r[i]} }

type pipeReader struct {
	of *pipes
	f  *os.File
}

func (r pipeReader) Read(b []byte) (int, error) {
	if r.of.draining.Load() && r.of.ctx.Err() == nil {
		_ = r.f.SetReadDeadline(time.Now().Add(r.of.patience))
	}
	return r.f.Read(b)
}

func (p *pipes) close() {
	closeAll(p.r)
	closeAll(p.w)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
