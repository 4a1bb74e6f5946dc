package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/host/spawn"
	"toolpost/host/worker"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// A program is a server that we start and that speaks on its standard streams. A supervisor keeps it running.
type program struct {
	*worker.Supervisor
	r    *Runner
	base string // the folder of the config

	found     atomic.Pointer[spawn.Program]
	skipProbe atomic.Bool // the probe for its era killed it, so it is legacy
	starts    atomic.Int64
}

var _ upstream = (*program)(nil)

// A workerState is what we know of one worker of a program.
type workerState struct {
	server    atomic.Pointer[serverInfo] // nil until it has introduced itself
	questions mcp.InFlight               // its questions without an answer yet
}

func serverInfoOf(w *worker.Worker) *serverInfo { return w.Own.(*workerState).server.Load() }

func (r *Runner) openProgram(src config.Source) error {
	p := &program{r: r, base: src.Dir}
	found, err := p.find()
	if err != nil {
		return err
	}
	r.upstream = p
	r.walls = found.Publish
	p.Supervisor = worker.New(worker.Options{
		Name: src.Name, Log: r.log,
		Find: p.find, Guarantees: r.o.Guarantees,
		Hello: mcp.MethodInitialize, Greet: p.handshake, Live: p.subscribe,
		Serve: p.serve, Early: p.early, Names: progressOf, Cancel: p.cancel, Probe: p.probe,
		Places: func() int { return r.o.Concurrency }, MaxLine: r.o.MaxMessage, Lenient: true,
		StartTime: time.Duration(r.o.StartTimeout), Grace: time.Duration(r.o.Grace), Idle: time.Duration(r.o.Idle),
	})
	return nil
}

func (p *program) find() (*spawn.Program, error) {
	if found := p.found.Load(); found != nil {
		return found, nil
	}
	found, err := p.r.o.Program(p.base, spawn.Command{Argv: p.r.o.Command, Log: p.r.log})
	if err != nil {
		return nil, err
	}
	p.found.Store(found)
	return found, nil
}

// ask implements upstream. A request that was not sent is sent to the next worker.
func (p *program) ask(ctx context.Context, q *query) (json.RawMessage, error) {
	for {
		w, err := p.get(ctx)
		if err != nil {
			return nil, err
		}
		q.server = serverInfoOf(w)
		if q.stream {
			w.Release()
			return w.Ask(ctx, q.method, q.server.encode(q, 0), nil)
		}
		var scope worker.Scope
		if q.owner != nil {
			scope, q.owner.layers = q.owner, w.Layers()
			p.setLevel(ctx, w)
		}
		raw, err := w.Call(ctx, q.method, func(id uint64) []byte { return q.server.encode(q, id) }, scope)
		if err != nil {
			q.lastOutput = w.LastWords()
		}
		if !errors.Is(err, jsonrpc.ErrUnsent) {
			return raw, err
		}
	}
}

// get returns a worker with a free place. The wait does not count as the call's time.
func (p *program) get(ctx context.Context) (*worker.Worker, error) {
	defer tool.Waiting(ctx)()
	skipped := p.skipProbe.Load()
	w, err := p.Get(ctx)
	if err != nil && !skipped && p.skipProbe.Load() {
		return p.Get(ctx) // it is greeted in another way now
	}
	return w, err
}

func (p *program) close(ctx context.Context) error { return p.Close(ctx) }

// Workers implements tool.Staffed. It returns none for a server elsewhere.
func (r *Runner) Workers() (n tool.Workers) {
	if p, ok := r.upstream.(*program); ok {
		n = p.Supervisor.Workers()
	}
	return n
}

// handshake finds out what a worker is. A replacement may have other tools.
func (p *program) handshake(ctx context.Context, w *worker.Worker) error {
	state := &workerState{}
	w.Own = state
	info, err := p.negotiate(ctx, w)
	if err != nil {
		return err
	}
	state.server.Store(info)
	if !info.modern {
		if err := w.Notify(ctx, noteInitialized, nil); err != nil {
			return err
		}
		p.setLevel(ctx, w)
	}
	if p.starts.Add(1) > 1 {
		p.r.changed()
	}
	return nil
}

func (p *program) setLevel(ctx context.Context, w *worker.Worker) {
	p.r.setLevel(ctx, serverInfoOf(w), func(ctx context.Context, level string) {
		_, _ = w.Ask(ctx, mcp.MethodSetLevel, fmt.Appendf(nil, `{"level":%q}`, level), nil)
	})
}

// probeTime is how long a server may take to answer that it does not know server/discover. Some never answer.
const probeTime = 5 * time.Second

type discovery struct {
	raw json.RawMessage
	err error
}

// negotiate finds out the era of a server, as the specification describes: it asks in the modern way, and anything but
// a modern answer means a legacy server.
func (p *program) negotiate(ctx context.Context, w *worker.Worker) (*serverInfo, error) {
	if p.r.o.Era == eraLegacy || p.skipProbe.Load() {
		return p.initialize(ctx, w)
	}
	hello := &serverInfo{modern: true, version: mcp.ModernVersion}
	probe, over := context.WithCancel(ctx)
	found := make(chan discovery, 1)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer over()
	asking.Go(func() {
		raw, err := discover(func() (json.RawMessage, error) {
			return w.Ask(probe, mcp.MethodDiscover, hello.encode(&query{}, 0), nil)
		})
		found <- discovery{raw, err}
	})
	var late <-chan time.Time
	if p.r.o.Era == "" {
		late = time.After(probeTime)
	}
	select {
	case d := <-found:
		return p.discovered(ctx, w, d)
	case <-late:
	}
	// It may be slow rather than deaf: the answer to the first request still counts if the second gets none.
	info, err := p.initialize(ctx, w)
	if err != nil {
		select {
		case d := <-found:
			if info, err := readDiscovery(d.raw, d.err); err == nil {
				return info, nil
			}
		default:
		}
	}
	return info, err
}

// discovered continues with the result of the probe.
func (p *program) discovered(ctx context.Context, w *worker.Worker, d discovery) (*serverInfo, error) {
	if d.err != nil && answeredError(d.err) == nil {
		if ctx.Err() == nil { // it exited: some servers do at the first method that they do not know
			p.skipProbe.Store(p.r.o.Era == "")
		}
		return nil, d.err
	}
	info, err := readDiscovery(d.raw, d.err)
	switch {
	case !errors.Is(err, errLegacy):
		return info, err
	case p.r.o.Era == eraModern:
		return nil, tool.Errorf(tool.CodeProtocol,
			"the server is of the legacy era, and the config says modern; leave `era` out")
	}
	return p.initialize(ctx, w)
}

func (p *program) initialize(ctx context.Context, w *worker.Worker) (*serverInfo, error) {
	raw, err := w.Ask(ctx, mcp.MethodInitialize, initializeParams(len(p.r.o.Roots) > 0), nil)
	if err != nil {
		return nil, err
	}
	return readInitialize(raw)
}

// subscribe asks a modern server for its changes for as long as it lives. A legacy server reports them unasked.
func (p *program) subscribe(ctx context.Context, w *worker.Worker) {
	info := serverInfoOf(w)
	lists, some := info.lists()
	if !some {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-w.Dead():
			cancel()
		case <-ctx.Done():
		}
	})
	keepListening(ctx, func(first bool) error {
		if !first {
			p.r.changed() // changes may have been missed
		}
		_, err := w.Ask(ctx, mcp.MethodListen, info.encode(listenQuery(lists), 0), nil)
		return err
	})
}

// cancel tells a worker that a request is cancelled.
func (p *program) cancel(w *worker.Worker, id uint64) {
	if serverInfoOf(w) != nil {
		w.Tell(mcp.NoteCancelled, fmt.Appendf(nil, `{"requestId":%d}`, id))
	}
}

// probe sends a worker a simple request.
func (p *program) probe(ctx context.Context, w *worker.Worker) {
	info := serverInfoOf(w)
	method := mcp.MethodPing
	if info.modern {
		method = mcp.MethodDiscover
	}
	_, _ = w.Ask(ctx, method, info.encode(&query{}, 0), nil) // any answer is enough
}

func (p *program) early(w *worker.Worker, in *jsonrpc.Incoming) bool {
	return p.r.early(in, &w.Own.(*workerState).questions, func(result []byte) { w.Answer(in, result, nil) })
}

func (p *program) serve(w *worker.Worker, in *jsonrpc.Incoming, s worker.Scope) (json.RawMessage, *jsonrpc.Error) {
	u, _ := s.(*upstreamCall)
	state := w.Own.(*workerState)
	return p.r.serve(in, u, state.server.Load(), &state.questions, w.Dead())
}
