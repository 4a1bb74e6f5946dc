package run

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/host/forks"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// nodeSource is the JavaScript side.
//
//go:embed runtime/program.mjs
var nodeSource string

// A nodePool has Node.js processes that wait for a program. Node.js cannot fork: each runs one program and ends, and the
// next is started meanwhile.
type nodePool struct {
	*process.Pool[*nodeWorker]
	*interpreter
	heap int64 // MiB

	life  context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup // start processes that will be needed
}

// A nodeWorker is a process that waits for its program, or runs it.
type nodeWorker struct {
	child  *process.Child
	conn   *net.UnixConn
	lines  *bounded.Lines
	pool   *nodePool
	watch  walls.Watch
	stderr atomic.Pointer[func([]byte)] // of its program; nil if it has none yet
}

func (t *Tools) openNode(i *interpreter) pool {
	p := &nodePool{interpreter: i, heap: heapOf(t.o.Memory)}
	p.life, p.end = context.WithCancel(context.Background())
	p.Pool = process.NewPool(p.start, process.PoolOptions{Name: "the Node.js of " + Name, Max: t.o.Workers})
	return p
}

// heapOf returns how much of its memory a program may use for objects, in MiB, so that the interpreter reports a full heap
// before the kernel kills it without a message.
func heapOf(memory int64) int64 {
	if memory <= 0 {
		memory = sandbox.DefaultMemory
	}
	return memory * 5 / 8 >> 20
}

// startTime bounds the start of a spare interpreter, for which no program waits yet.
const startTime = 30 * time.Second

// take takes a process for a program, and starts the next one.
func (p *nodePool) take(ctx context.Context) (worker, error) {
	w, err := p.Get(ctx)
	if err != nil {
		return nil, err
	}
	p.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(p.life, startTime)
		defer cancel()
		if next, err := p.Get(ctx); err == nil { // otherwise the next program will report the error
			p.Put(next, true)
		}
	})
	return w, nil
}

func (p *nodePool) close(ctx context.Context) error {
	p.end()
	err := p.Close(ctx)
	p.tasks.Wait()
	return err
}

// start starts a process and waits until it is ready.
func (p *nodePool) start(ctx context.Context) (*nodeWorker, error) {
	w := &nodeWorker{pool: p}
	confine, err := p.confine(&w.watch)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := forks.SocketPair()
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no socket for the Node.js of %s: %w", Name, err)
	}
	defer theirs.Close()
	w.conn, w.lines = ours, bounded.NewLines(ours, lineLimits())
	w.child, err = process.Start(process.Command{
		Argv: []string{
			p.path, fmt.Sprintf("--max-old-space-size=%d", p.heap), "--input-type=module", "-e", nodeSource,
		},
		Dir: "/", Confine: confine, Files: []*os.File{theirs}, Stderr: w.line, StderrLimit: process.LifeLog,
	})
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	w.child.CloseStdin()
	if err := w.greet(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// greet waits until it is ready.
func (w *nodeWorker) greet(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Now()) })
	_, err := w.lines.Next()
	if !stop() || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the Node.js of %s did not start: %s", Name,
			w.child.Describe(w.child.Kill()))
	}
	return nil
}

// line handles a line of its standard error.
func (w *nodeWorker) line(line []byte) {
	if take := w.stderr.Load(); take != nil {
		(*take)(line)
	}
}

// Close implements process.Worker.
func (w *nodeWorker) Close() {
	_ = w.conn.Close()
	w.child.Close()
}

// run implements worker.
func (w *nodeWorker) run(ctx context.Context, p *program) (e ending, err error) {
	defer w.pool.Retire(w)
	select {
	case <-w.child.Exited(): // while it waited
		return ending{again: true}, nil
	default:
	}
	take := p.stderrLines()
	w.stderr.Store(&take)
	follow(&w.watch, p)
	life, end := context.WithCancel(ctx)
	defer end()
	var pumps, talk sync.WaitGroup
	pumps.Go(func() { _, _ = io.Copy(p.stdout, struct{ io.Reader }{w.child.Stdout}) })
	talk.Go(func() { e.said, e.broken = p.talkThen(life, end, w.conn, w.lines) })
	var exit process.Exit
	select {
	case <-w.child.Exited():
		exit = w.child.Wait()
	case <-life.Done():
		exit = w.child.Kill()
	}
	end()
	_ = w.conn.SetReadDeadline(time.Now().Add(forks.DrainTime)) // its final message is still in the buffer
	talk.Wait()
	_ = w.child.Stdout.SetReadDeadline(time.Now().Add(forks.DrainTime))
	pumps.Wait()
	e.ended(exit)
	if ctx.Err() == nil && e.said == nil {
		e.why = w.child.Reached(exit)
	}
	e.layers, e.checks = w.child.Layers(), w.watch.Checks()
	return e, nil
}
