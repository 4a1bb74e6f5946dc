package run

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/host/forks"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// pythonSource is the Python side, behind that of all fork servers.
//
//go:embed runtime/program.py
var pythonSource []byte

// A pythonPool has fork servers.
type pythonPool struct {
	*process.Pool[*pythonWorker]
	*interpreter
	log   *slog.Logger
	ahead atomic.Int64 // children that wait for a program
}

// A pythonWorker is a fork server. Each program is a child that it forks.
type pythonWorker struct {
	*forks.Server
	pool  *pythonPool
	watch walls.Watch
}

func (t *Tools) openPython(i *interpreter) pool {
	p := &pythonPool{interpreter: i, log: t.Log}
	p.Pool = process.NewPool(p.start, process.PoolOptions{Name: "the Python of " + Name, Max: t.o.Workers})
	return p
}

func (p *pythonPool) take(ctx context.Context) (worker, error) { return p.Get(ctx) }

// Workers implements pool.
func (p *pythonPool) Workers() tool.Workers {
	return p.Pool.Workers().Plus(tool.Workers{Ahead: int(p.ahead.Load())})
}

func (p *pythonPool) close(ctx context.Context) error { return p.Close(ctx) }

// start starts a server and waits until it is ready.
func (p *pythonPool) start(ctx context.Context) (*pythonWorker, error) {
	w := &pythonWorker{pool: p}
	confine, err := p.confine(&w.watch)
	if err != nil {
		return nil, err
	}
	script, err := forks.Script(confine.Profile)
	if err != nil {
		return nil, err
	}
	confine.Profile = forks.ServerProfile(confine.Profile)
	room, err := forks.Room(script)
	if err != nil {
		return nil, err
	}
	defer room.Close()
	source, err := forks.Sealed(slices.Concat([]byte(forks.Python()), pythonSource))
	if err != nil {
		return nil, err
	}
	defer source.Close()
	w.Server, err = forks.Start(process.Command{
		// -I isolates it from the folder and the user that start it; -B writes no bytecode.
		Argv: []string{p.path, "-I", "-B", "-c", forks.Bootstrap, "room"}, Dir: "/", Confine: confine,
		Stderr: func(line []byte) { p.log.Debug("written by the interpreter of "+Name, "line", string(line)) },
	}, source, room, forks.Options{Start: process.Start, Ends: ends, Ahead: &p.ahead})
	if err != nil {
		return nil, err
	}
	if err := w.greet(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *pythonWorker) greet(ctx context.Context) error {
	line, err := w.Hello(ctx)
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the Python of %s did not start: %s", Name, w.Child.Describe(w.Child.Kill()))
	}
	var hello struct {
		Ready bool   `json:"ready"`
		Why   string `json:"why"`
	}
	if err := strictjson.Unmarshal(line, &hello); err != nil {
		return tool.Errorf(tool.CodeProtocol, "the first message of the Python of %s: %w", Name, err)
	}
	if !hello.Ready {
		return tool.Errorf(tool.CodeUnsupported, "%s was not run: %s", Name, hello.Why).Because(sandbox.CoverageMissing)
	}
	return nil
}

// ends makes the channel and the output pipes for one program.
func ends() (*forks.Ends, error) {
	ours, theirs, err := forks.SocketPair()
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no socket for the program: %w", err)
	}
	out, err := forks.NewPipes(context.Background(), 2)
	if err != nil {
		_ = ours.Close()
		_ = theirs.Close()
		return nil, err
	}
	return &forks.Ends{Ours: ours, Theirs: theirs, Out: out}, nil
}

// run implements worker.
func (w *pythonWorker) run(ctx context.Context, p *program) (ending, error) {
	e, healthy, err := w.fork(ctx, p)
	switch {
	case e.again && !healthy: // it had ended by itself
		w.pool.Put(w, false)
	case healthy && !w.Spent():
		w.Prepare()
		w.pool.Put(w, true)
	default: // damage that a program does to its interpreter does not concern the next one
		w.pool.Retire(w)
	}
	return e, err
}

// fork runs a program in a child.
func (w *pythonWorker) fork(ctx context.Context, p *program) (e ending, healthy bool, err error) {
	follow(&w.watch, p)
	defer func() {
		e.layers, e.checks = w.Child.Layers(), w.watch.Checks()
		w.watch.Follow(nil, nil)
	}()
	f, err := w.Take(ctx)
	switch {
	case errors.Is(err, forks.ErrGone):
		e.again = true
		return e, false, nil
	case err != nil:
		return e, true, err
	}
	defer f.Close()
	ours := f.Ours.(*net.UnixConn)

	life, end := context.WithCancel(ctx)
	defer end()
	var pumps, talk sync.WaitGroup
	pumps.Go(func() { _, _ = io.Copy(p.stdout, f.Out.Reader(0)) })
	pumps.Go(func() { _, _ = io.Copy(p.stderr, f.Out.Reader(1)) })
	talk.Go(func() { e.said, e.broken = p.talkThen(life, end, f, bounded.NewLines(ours, lineLimits())) })
	exit, healthy, err := w.Await(life, f)
	end()
	_ = ours.SetReadDeadline(time.Now().Add(forks.DrainTime)) // its final message is still in the buffer
	talk.Wait()
	f.Out.Drain()
	pumps.Wait()
	switch {
	case err != nil: // stale: nothing was run
		e.again = true
		w.Spend()
		return e, healthy, nil
	case ctx.Err() == nil && f.Early() && p.unread: // nothing was run here either: it died while it waited
		e.again = true
		w.Lost()
		return e, healthy, nil
	}
	e.ended(exit)
	if ctx.Err() == nil && e.said == nil {
		e.why = w.Limits(exit)
	}
	return e, healthy, nil
}
