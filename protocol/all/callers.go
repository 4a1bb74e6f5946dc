package all

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/host/walls"
	"toolpost/tool"
)

// Keys says how the sources of a protocol use connections.
type Keys int

// The ways.
const (
	KeysNowhere  Keys = iota // they cannot
	KeysByCall               // the runner sets the header of each request itself
	KeysByCaller             // what a source keeps between calls, such as programs, belongs to one caller
)

// OpenSource binds a configured source. One with connections may get an instance for each caller.
func (p Protocol) OpenSource(ctx context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	switch {
	case len(src.Connections) == 0:
		return p.Open(ctx, src, log)
	case p.Keys == KeysNowhere:
		return nil, tool.Errorf(tool.CodeInvalidInput, "source %s has connections, which its protocol %s cannot use", src.Name, p.Name)
	case len(src.Credentials) != len(src.Connections):
		return nil, tool.Errorf(tool.CodeInvalidInput, "source %s names connections that the section connections does not have", src.Name)
	case p.Keys == KeysByCall:
		return p.Open(ctx, src, log)
	}
	return tool.Opened(newCallers(ctx, p, src, log))
}

// Bounds on the instances of a source.
const (
	mostInstances = 64
	instanceIdle  = 5 * time.Minute  // without a call, after which an instance ends
	instanceLook  = 30 * time.Second // between two looks for them
	instanceClose = 10 * time.Second
)

// callers is the runner of a source with connections. The first instance of the source lists the tools, and never has a
// key. Each call runs in the instance of its caller, which is opened on first use and never serves another.
type callers struct {
	first    tool.Runner
	protocol Protocol
	src      config.Source
	log      *slog.Logger
	keys     *walls.Injector // of first

	life  context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup // what looks for idle instances, and instances that end

	mu        sync.Mutex
	instances map[string]*instance // by caller
}

// An instance is the source as one caller has it.
type instance struct {
	caller  string
	keys    *walls.Injector
	opening chan struct{} // has a place for the call that opens it
	changed <-chan struct{}

	// under callers.mu
	runner tool.Runner // nil until it is open
	calls  int
	since  time.Time // when the last call ended
	gone   bool      // it ends with its last call
}

func newCallers(ctx context.Context, p Protocol, src config.Source, log *slog.Logger) (*callers, error) {
	c := &callers{protocol: p, src: src, log: log, instances: map[string]*instance{}}
	var err error
	if c.keys, err = walls.NewInjector(src.Credentials, ""); err != nil {
		return nil, err
	}
	src.Injector = c.keys
	if c.first, err = p.Open(ctx, src, log); err != nil {
		c.keys.Close()
		return nil, err
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.tasks.Go(c.retireIdle)
	return c, nil
}

// Invoke implements tool.Handler.
func (c *callers) Invoke(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
	in, err := c.borrow(ctx, call)
	if err != nil {
		return nil, err
	}
	defer c.giveBack(in)
	end, err := in.keys.Begin(call)
	if err != nil {
		return nil, err
	}
	defer end()
	r, err := c.open(ctx, in)
	if err != nil {
		return nil, err
	}
	return r.Invoke(ctx, call, out)
}

// borrow returns the instance of a caller, which does not end before giveBack.
func (c *callers) borrow(ctx context.Context, call *tool.Call) (*instance, error) {
	caller := call.Caller.ID
	if caller == "" {
		return nil, tool.Errorf(tool.CodeAccessDenied, "%s uses the accounts of its callers, and this caller has no name", call.Tool)
	}
	c.mu.Lock()
	in := c.instances[caller]
	c.mu.Unlock()
	outdated := in != nil && in.keys.Outdated(ctx, call)
	c.mu.Lock()
	defer c.mu.Unlock()
	if outdated && c.instances[caller] == in {
		c.retire(in)
	}
	if in = c.instances[caller]; in == nil {
		if err := c.makeRoom(); err != nil {
			return nil, err
		}
		keys, err := walls.NewInjector(c.src.Credentials, caller)
		if err != nil {
			return nil, err
		}
		in = &instance{caller: caller, keys: keys, opening: make(chan struct{}, 1)}
		c.instances[caller] = in
	}
	in.calls++
	return in, nil
}

func (c *callers) giveBack(in *instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in.calls--
	in.since = time.Now()
	if in.gone && in.calls == 0 {
		c.tasks.Go(func() { c.close(in) })
	}
}

// makeRoom ends the instance that is idle for the longest time if there are too many. The caller holds mu.
func (c *callers) makeRoom() error {
	if len(c.instances) < mostInstances {
		return nil
	}
	var oldest *instance
	for _, in := range c.instances {
		if in.idle() && (oldest == nil || in.since.Before(oldest.since)) {
			oldest = in
		}
	}
	if oldest == nil {
		return tool.Errorf(tool.CodeUnavailable, "source %s works for %d callers, which is the most at a time", c.src.Name, mostInstances).
			RetryAfter(time.Second)
	}
	c.retire(oldest)
	return nil
}

// retire lets an instance end with its last call. The caller holds mu.
func (c *callers) retire(in *instance) {
	delete(c.instances, in.caller)
	if in.gone = true; in.calls == 0 {
		c.tasks.Go(func() { c.close(in) })
	}
}

// idle reports whether an instance has no call, and waits for no answer to a question.
func (in *instance) idle() bool {
	asks, ok := in.runner.(interface{ KeepsAsking() bool })
	return in.calls == 0 && !(ok && asks.KeepsAsking())
}

// retireIdle ends instances that had no call for a while.
func (c *callers) retireIdle() {
	for tool.Sleep(c.life, instanceLook) {
		c.mu.Lock()
		for _, in := range c.instances {
			if in.idle() && time.Since(in.since) >= instanceIdle {
				c.retire(in)
			}
		}
		c.mu.Unlock()
	}
}

// open returns the runner of an instance, whose first call opens it. The wait does not count as the call's time.
func (c *callers) open(ctx context.Context, in *instance) (tool.Runner, error) {
	defer tool.Waiting(ctx)()
	select {
	case in.opening <- struct{}{}:
		defer func() { <-in.opening }()
	case <-ctx.Done():
		return nil, tool.Ended(ctx)
	}
	if in.runner != nil {
		select {
		case <-in.changed:
			in.changed = tool.Changed(in.runner)
			return in.runner, list(ctx, in.runner)
		default:
			return in.runner, nil
		}
	}
	src := c.src
	src.Injector = in.keys
	r, err := c.protocol.Open(ctx, src, in.keys.Quiet(c.log.With("caller", in.caller)))
	if err != nil {
		return nil, err
	}
	in.changed = tool.Changed(r)
	if err := list(ctx, r); err != nil {
		c.discard(r)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in.runner = r
	return r, nil
}

// list lets a runner learn its tools: some start their programs for that.
func list(ctx context.Context, r tool.Runner) error {
	lister, ok := r.(tool.Source)
	if !ok {
		return nil
	}
	_, err := lister.Tools(ctx)
	return err
}

func (c *callers) close(in *instance) {
	if in.runner != nil {
		c.discard(in.runner)
	}
	in.keys.Close()
}

func (c *callers) discard(r tool.Runner) {
	ctx, cancel := context.WithTimeout(context.Background(), instanceClose)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		c.log.Warn("the instance of a caller did not close cleanly", "source", c.src.Name, "error", err)
	}
}

// Close implements tool.Runner.
func (c *callers) Close(ctx context.Context) error {
	c.end()
	c.mu.Lock()
	for _, in := range c.instances {
		c.retire(in)
	}
	c.mu.Unlock()
	err := c.first.Close(ctx)
	c.keys.Close()
	ended := make(chan struct{})
	go func() { c.tasks.Wait(); close(ended) }()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// runners lists those of all instances.
func (c *callers) runners() []tool.Runner {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []tool.Runner{c.first}
	for _, in := range c.instances {
		if in.runner != nil {
			all = append(all, in.runner)
		}
	}
	return all
}

// What the engine asks of a runner, apart from calls, the first instance answers.
var (
	_ tool.Source   = (*callers)(nil)
	_ tool.Changing = (*callers)(nil)
	_ tool.Staffed  = (*callers)(nil)
	_ tool.Toucher  = (*callers)(nil)
	_ tool.Follower = (*callers)(nil)
)

// Tools implements tool.Source.
func (c *callers) Tools(ctx context.Context) ([]*tool.Spec, error) {
	if lister, ok := c.first.(tool.Source); ok {
		return lister.Tools(ctx)
	}
	return nil, nil
}

// Changed implements tool.Changing.
func (c *callers) Changed() <-chan struct{} { return tool.Changed(c.first) }

// Workers implements tool.Staffed.
func (c *callers) Workers() (n tool.Workers) {
	for _, r := range c.runners() {
		if staffed, ok := r.(tool.Staffed); ok {
			n = n.Plus(staffed.Workers())
		}
	}
	return n
}

// Places returns how many calls all instances take at once: each has programs of its own, but all share a server elsewhere.
func (c *callers) Places(name string) (pool string, calls int) {
	if crowded, ok := c.first.(interface{ Places(string) (string, int) }); ok {
		pool, calls = crowded.Places(name)
	}
	if remote, ok := c.first.(interface{ Remote() bool }); ok && remote.Remote() {
		return pool, calls
	}
	return pool, calls * mostInstances
}

// KeepsAsking reports whether a program waits for the answer to a question.
func (c *callers) KeepsAsking() bool {
	return slices.ContainsFunc(c.runners(), func(r tool.Runner) bool {
		asks, ok := r.(interface{ KeepsAsking() bool })
		return ok && asks.KeepsAsking()
	})
}

// Knows reports whether Touches knows what calls of a tool touch.
func (c *callers) Knows(s *tool.Spec) bool {
	_, ok := c.first.(tool.Toucher)
	knows, of := c.first.(interface{ Knows(*tool.Spec) bool })
	return ok && (!of || knows.Knows(s))
}

// Touches implements tool.Toucher.
func (c *callers) Touches(call *tool.Call) (tool.Touches, error) {
	if t, ok := c.first.(tool.Toucher); ok {
		return t.Touches(call)
	}
	return tool.Touches{}, nil
}

// Follow implements tool.Follower.
func (c *callers) Follow(ctx context.Context, uris []string, heard func(uri, changed string)) (stop func(), failed []string) {
	if f, ok := c.first.(tool.Follower); ok {
		return f.Follow(ctx, uris, heard)
	}
	return func() {}, uris
}
