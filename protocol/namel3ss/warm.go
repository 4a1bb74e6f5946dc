package namel3ss

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/process"
	"toolpost/strictjson"
	"toolpost/tool"
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

// startWorker starts a fork server and waits until it has imported the tool. A tool that cannot be
// imported, or forked, is no error here: its worker says so in its hello.
func (t *localTool) startWorker(ctx context.Context) (*worker, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no socket for the fork server: %w", err)
	}
	child, err := process.Start(process.Command{
		Argv: t.hostCommand("warm", t.entry), Dir: t.root, Env: t.env,
		Files:  []*os.File{t.host, theirs},
		Stderr: func(line []byte) { t.log.Debug("written while importing", "line", t.redact.Replace(string(line))) },
	})
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	child.CloseStdin()
	w := &worker{child: child, control: ours, lines: process.NewLines(ours, process.LineLimits{Line: 4 << 20})}
	if err := w.greet(ctx, t.redact); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
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

// call runs one call in a forked child. The worker is healthy if it can take another one.
func (w *worker) call(ctx context.Context, request []byte, l *logs) (e ending, healthy bool, err error) {
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
	pumps.Go(func() { e.reply = readReply(out.reader(0), l) })
	pumps.Go(func() { l.read("stdout", out.reader(1)) })
	pumps.Go(func() { l.read("stderr", out.reader(2)) })
	exit, healthy := w.await(ctx)
	closeAll(in.w)
	out.drain()
	pumps.Wait()
	e.exit = exit
	return e, healthy, nil
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
func (w *worker) await(ctx context.Context) (process.Exit, bool) {
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
		Exit int `json:"exit"`
	}
	if err == nil {
		err = strictjson.UnmarshalClosed(line, &report)
	}
	if err != nil {
		return w.child.Kill(), false
	}
	w.child.Sweep()
	if report.Exit < 0 {
		return process.Exit{Code: -1, Signal: syscall.Signal(-report.Exit)}, true
	}
	return process.Exit{Code: report.Exit}, true
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
