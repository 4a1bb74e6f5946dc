package namel3ss

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"toolpost/host/forks"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A worker is a fork server: an interpreter that has imported a tool and forks a clean child for each
// call. It serves one call at a time.
type worker struct {
	*forks.Server
	hello hello
	watch *walls.Watch
	blind []string     // guarantees of its calls for which attempts are not seen
	tried atomic.Int32 // attempts of its calls that were seen
}

// hello is the first message of a fork server.
type hello struct {
	Ready  bool       `json:"ready"`
	Error  replyError `json:"error"`  // why the import failed
	Files  []stamp    `json:"files"`  // of the app that were imported
	Unsafe string     `json:"unsafe"` // why it must not be forked, or empty
}

// A stamp is the state of a file when it was imported.
type stamp struct {
	Path  string `json:"path"`
	MTime int64  `json:"mtime"` // nanoseconds
	Size  int64  `json:"size"`
}

// changed reports whether any of the files has changed.
func changed(files []stamp) bool {
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil || info.ModTime().UnixNano() != f.MTime || info.Size() != f.Size {
			return true
		}
	}
	return false
}

// start starts a fork server and waits until it has imported the tool. A tool that cannot be imported or forked is no error
// here: its worker reports that in its hello.
func (p *pool) start(ctx context.Context) (*worker, error) {
	t, w := p.tool, &worker{watch: &walls.Watch{}}
	w.watch.Follow(nil, p.sources)
	if p.late {
		w.blind = []string{"no_subprocess"} // new processes meet the fork's own filter, which is not watched
	}
	cmd, room, err := p.command(w)
	if err != nil {
		return nil, err
	}
	defer room.Close() // does nothing if nil
	w.Server, err = forks.Start(cmd, t.host, room, forks.Options{
		Start: func(cmd process.Command) (*process.Child, error) { return t.start(cmd, p.held) },
		Ends:  ends, Ahead: &p.ahead,
	})
	if err != nil {
		return nil, err
	}
	if err := w.greet(ctx, t.redact); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// command returns the command of a fork server, and the file with the walls of its forks, if there are any.
func (p *pool) command(w *worker) (cmd process.Command, room *os.File, err error) {
	t := p.tool
	words := []string{t.entry}
	if p.late {
		words = append(words, "late")
	}
	confine, err := t.around.Confine(t.spec.Name, p.held, w.watch)
	if err != nil {
		return process.Command{}, nil, err
	}
	if confine != nil {
		if room, err = t.forkRoom(confine.Profile); err != nil {
			return process.Command{}, nil, err
		}
		confine.Profile, confine.Violation = forks.ServerProfile(confine.Profile), w.count(confine.Violation)
		words = append(words, "room")
		if confine.Tmp > 0 {
			words = append(words, "tmp")
		}
	}
	return process.Command{
		Argv: t.hostCommand("warm", words...), Dir: t.root, Env: t.environment(p.held), Confine: confine,
		Stderr: func(line []byte) { t.log.Debug("written while importing", "line", t.redact.Replace(string(line))) },
	}, room, nil
}

// forkRoom returns the file that tells a fork server how to confine its forks.
func (t *localTool) forkRoom(call sandbox.Profile) (*os.File, error) {
	call.Name = "tp:" + t.spec.Name
	script, err := t.fork(call)
	if err != nil {
		return nil, err
	}
	return forks.Room(script)
}

// greet waits for the hello.
func (w *worker) greet(ctx context.Context, redact *strings.Replacer) error {
	line, err := w.Hello(ctx)
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		exit := w.Child.Kill()
		said := redact.Replace(w.Child.Describe(exit))
		return tool.Errorf(tool.CodeCrash, "the interpreter ended while it imported the tool: %s", said)
	}
	if err := strictjson.Unmarshal(line, &w.hello); err != nil {
		return tool.Errorf(tool.CodeProtocol, "the fork server's first message: %w", err)
	}
	return nil
}

// worn reports whether a worker must not take another call. Only a limited number of attempts per child are reported, so
// those of the next call might be missed.
func (w *worker) worn() bool { return w.Spent() || w.tried.Load() > 32 }

// count counts the violations that are seen.
func (w *worker) count(see func(sandbox.Violation)) func(sandbox.Violation) {
	return func(v sandbox.Violation) {
		w.tried.Add(1)
		see(v)
	}
}

// enforced records which walls were around a call of the worker, and the attempts since the call before it.
func (w *worker) enforced(inv *invocation) {
	inv.enforced(w.Child.Layers(), w.watch.Checks(), w.blind...)
}

// call runs one call in a forked child. The worker is healthy if it can take another one.
func (w *worker) call(ctx context.Context, request []byte, inv *invocation) (e ending, healthy bool, err error) {
	w.enforced(inv) // attempts during the import belong to the first call
	w.watch.Follow(inv.logs, inv.sources)
	e, healthy, err = w.fork(ctx, request, inv.logs)
	w.enforced(inv)
	w.watch.Follow(nil, inv.sources)
	return e, healthy, err
}

// ends makes the pipes of one call: its request and its output.
func ends() (*forks.Ends, error) {
	in, err := forks.NewPipes(context.Background(), 1)
	if err != nil {
		return nil, err
	}
	out, err := forks.NewPipes(context.Background(), 3)
	if err != nil {
		in.Close()
		return nil, err
	}
	return &forks.Ends{Ours: in.W[0], Theirs: in.R[0], Out: out, Held: true}, nil
}

// fork runs one call.
func (w *worker) fork(ctx context.Context, request []byte, l *logs) (e ending, healthy bool, err error) {
	f, err := w.Take(ctx)
	if err != nil {
		return ending{}, !errors.Is(err, forks.ErrGone), err
	}
	defer f.Close()
	var pumps sync.WaitGroup
	if len(request) <= pipeAtom {
		feed(f, request)
	} else {
		pumps.Go(func() { feed(f, request) })
	}
	for i, stream := range []string{"reply", "stdout", "stderr"} {
		pumps.Go(func() { l.take(stream, f.Out.Reader(i), &e) })
	}
	exit, healthy, err := w.Await(ctx, f)
	f.Out.Drain()
	pumps.Wait()
	if e.exit = exit; ctx.Err() == nil {
		e.why = w.Limits(exit)
	}
	return e, healthy, err
}

// pipeAtom is what an empty pipe takes at once, so that its writer need not wait.
const pipeAtom = 4096

// feed writes a request and closes the pipe. It ignores a tool that ends without reading all of it.
func feed(f *forks.Fork, request []byte) {
	_, _ = f.Write(request)
	_ = f.Ours.Close()
}
