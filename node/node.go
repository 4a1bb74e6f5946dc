// Package node is the composition root: it makes a running Toolpost from a config, by opening its sources, putting the
// engine in front of them, and opening the doors in front of the engine.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/builtin/define"
	leasetools "toolpost/builtin/lease"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/audit"
	"toolpost/engine/cache"
	"toolpost/engine/calls"
	"toolpost/engine/cassette"
	"toolpost/engine/follow"
	"toolpost/engine/job"
	"toolpost/engine/lease"
	"toolpost/engine/pin"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/engine/quota"
	"toolpost/engine/redact"
	"toolpost/engine/telemetry"
	"toolpost/host/notice"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/model"
	"toolpost/plan"
	"toolpost/plan/planner"
	"toolpost/protocol/all"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/web/console"
)

// Types from the list of protocols that commands need, so that only this package imports it.
type (
	Protocol     = all.Protocol
	Stdio        = all.Stdio
	Listening    = all.Listening
	Remote       = all.Remote
	Selected     = all.Selected
	Packs        = all.Packs
	Skills       = all.Skills
	Skill        = all.Skill
	SkillFinding = all.SkillFinding
)

// Protocols lists the protocols of this build.
func Protocols() []Protocol { return all.Protocols() }

// Dial returns the Toolpost that serves HTTP at url, whose certificate is verified with the authorities in the file ca.
func Dial(url, token, ca string) (Remote, error) { return all.Dial(url, token, ca) }

// MCPAddress returns the address at which clients on this machine find the MCP door of a config.
func MCPAddress(cfg *config.Config) (string, error) { return all.MCPAddress(cfg) }

// HTTPAddress returns the address at which programs on this machine find the HTTP door of a config.
func HTTPAddress(cfg *config.Config) (string, error) { return all.HTTPAddress(cfg) }

// Select lets a policy, an external program, choose among the tools that can be called now.
func Select(
	ctx context.Context, command []string, c tool.Catalog, p tool.Principal, request string, inputs json.RawMessage,
) (Selected, error) {
	return all.Select(ctx, command, c, p, request, inputs)
}

// Schema returns the JSON Schema of the config that this build reads.
func Schema() ([]byte, error) {
	var protocols []config.Part
	for _, p := range all.Protocols() {
		protocols = append(protocols, config.Part{Name: p.Name, Doc: p.Doc, Options: p.Options, Pinned: p.Upstream})
	}
	return config.Schema(protocols, all.DoorParts(), append(stageSections(),
		config.Part{Name: "store", Options: StoreOptions{}},
		config.Part{Name: "callers", Options: identity.Options{}},
		config.Part{Name: "secrets", Options: map[string]secret.From(nil)},
	))
}

// Options has useful zero values.
type Options struct {
	Log       *slog.Logger    // nil means no logging
	Protocols []Protocol      // nil means all of this build
	Listen    string          // overrides the config's address of the HTTP door and of those that share it
	Token     string          // of the owner; if empty, one is made and kept in the state folder
	NewToken  bool            // make another token
	Watch     bool            // track the files that sources start from, for Watch
	Own       bool            // open no source of the config: only Toolpost's own tools are called
	Offline   bool            // open only sources that start no program and send no request to a server
	Lazy      bool            // open a source on first use, for programs that make one call
	Early     bool            // start with the sources that open at once; the others follow when they are open
	LeaseTier int             // tools from this tier on need a lease, even if the config asks for none; 0 leaves it to the config
	Tiers     lease.Tiers     // of the leases that tools need
	Version   string          // of this program, as doors report it
	Ready     func(Listening) // called for each open door
	// Tape receives the calls of this node, to record them on a cassette or to check them against one; nil if there is none.
	Tape interface {
		In(cassette.Env)
		For(*tool.Spec) tool.Middleware
	}
}

// A Node is a running Toolpost.
type Node struct {
	o       Options
	cfg     *config.Config
	engine  *engine.Engine
	store   *store.DB        // nil if the config wants none
	trail   *audit.Trail     // nil if there is no store
	own     []engine.Binding // sources that no config names; their names are reserved
	keep    keepers
	console *console.Console
	pins    *pin.Registry
	stages  []stage // as stages lists them
	policy  *policy.Current
	queue   queue.Options
	quotas  *quota.Quotas
	cache   *cache.Cache
	callers atomic.Pointer[identity.Callers]
	// coming are the callers of a config that is being loaded; nil if none is. Sources and secrets may take a long time to
	// open, and a caller that is not among these is refused at once.
	coming atomic.Pointer[identity.Callers]
	owner  atomic.Pointer[identity.Gate] // nil if no door is open, or the config wants none
	jobs   *job.Queue                    // nil if there is no store to keep them in
	plans  *plan.Executor

	telemetry *telemetry.Telemetry
	models    *model.Registry
	planners  *planner.Registry

	checker  offlimits.Checker            // what no tool sees or changes
	seen     atomic.Pointer[notice.Sight] // the config file when it was last read
	redactor *secret.Redactor             // knows the values of all secrets, including those that a reload replaced
	catalog  tool.Catalog

	calls     *calls.Log        // running and recent calls, and recent events
	followers *follow.Followers // callers that follow events; they end with Serve

	storing StoreOptions

	life    context.Context // ends with Close
	end     context.CancelFunc
	tasks   sync.WaitGroup // retries, and opens that finished too late
	loading sync.Mutex     // one Reload at a time

	mu      sync.Mutex
	now     wanted    // the config that was loaded last
	sources []*source // in the order of the config
	secrets map[string]secret.From
	vault   *secret.Vault // nil if the config has no secrets
}

// Open opens every source of the config concurrently, each within its timeout. A source that fails does not affect the
// others: its tools are unavailable, and it is retried in the background. With Early, Open does not wait for slow sources.
func Open(ctx context.Context, cfg *config.Config, o Options) (*Node, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Protocols == nil {
		o.Protocols = all.Protocols()
	}
	if o.Ready == nil {
		o.Ready = func(Listening) {}
	}
	n := &Node{o: o, cfg: cfg, redactor: new(secret.Redactor), followers: follow.New()}
	n.calls = calls.New(calls.Env{Redactor: n.redactor, RedactByName: n.redactByName})
	n.o.Log = slog.New(secret.Handler(n.calls.Handler(o.Log.Handler()), n.redactor)) // it writes no secrets
	n.seen.Store(n.lookAtConfig())
	n.warnOfWriters()
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}
	return n, nil
}

// warnOfWriters warns if others can write the config. The person who starts the program has chosen it, so it is loaded
// nevertheless; later changes of it are not.
func (n *Node) warnOfWriters() {
	if err := config.Trusted(n.cfg.Path); n.cfg.Path != "" && err != nil {
		n.o.Log.Warn("others can write the config, and so decide what runs here; a running server takes no changes of it",
			"error", message(err))
	}
}

// start opens the parts of a new node, from the store up. If it fails, Close closes what was opened.
func (n *Node) start(ctx context.Context) (err error) {
	if n.store, n.storing, err = OpenStore(n.cfg); err != nil {
		return err
	}
	n.keep, n.pins = n.keepIn(), n.pinsIn()
	n.console = n.openConsole()
	placed, err := n.openStages()
	if err != nil {
		return err
	}
	tools, err := n.read(ctx, n.cfg)
	if err != nil {
		return err
	}
	n.engine = engine.New(engine.Options{
		Log: n.o.Log, Timeout: time.Duration(n.cfg.Limits.Timeout), Policy: n.policy.Load, Audit: n.trail, Queue: n.queue,
		Pins: n.pins, Stages: placed, Open: n.openWaiting,
	})
	n.catalog = redact.Catalog(n.engine, n.redactor)
	n.openJobs()
	n.bindPlans()
	if n.own, err = n.ownTools(ctx); err != nil {
		return err
	}
	if n.o.Own {
		tools.sources = nil
	}
	if n.o.Offline {
		tools.sources = slices.DeleteFunc(slices.Clone(tools.sources), n.connects)
	}
	n.loading.Lock()
	if n.o.Lazy {
		n.await(ctx, tools)
	} else {
		n.replace(ctx, tools, alive, startPause)
	}
	n.loading.Unlock()
	if n.store != nil {
		n.tasks.Go(func() { n.watchPins(n.life) })
	}
	return errors.Join(ctx.Err(), n.cache.Misplaced())
}

// issuer returns the tools that issue leases.
func (n *Node) issuer(issued leases) *define.Set {
	return leasetools.New(leasetools.Options{
		Leases: issued,
		Resolve: func(ctx context.Context, p tool.Principal, name string) (string, int, error) {
			spec, err := n.engine.Lookup(ctx, p, name)
			if err != nil {
				return "", 0, err
			}
			return spec.Ref().String(), n.o.Tiers.Of(spec), nil
		},
	})
}

// StateDir returns the folder that everything is written to.
func (n *Node) StateDir() string { return n.cfg.StateDir() }

// Handler runs calls from outside, through any door: they have no parent call. Doors leave a call's parent and depth empty,
// and Handler makes sure of it, so that a client cannot pass its call off as a child of another caller's call.
func (n *Node) Handler() tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if c.Parent != "" || c.Depth != 0 {
			orphan := *c
			orphan.Parent, orphan.Depth = "", 0
			c = &orphan
		}
		return n.engine.Invoke(ctx, c, out)
	})
}

// Catalog returns the catalogue of tools that can be called.
func (n *Node) Catalog() tool.Catalog { return n.catalog }

// GCBallast is for programs that answer many calls; release frees it. Go collects garbage whenever there is as much of
// it as of live memory. That is little here, so it would collect all the time. An allocation that is never touched, and
// so takes no memory, counts as live. Setting GOGC instead would let a program that holds large outputs accumulate
// several times as much garbage.
func GCBallast() (release func()) {
	ballast := make([]byte, 16<<20)
	return func() { runtime.KeepAlive(ballast) }
}

// Serve opens every configured door and returns when ctx has ended and the doors have drained, or when
// one of them fails.
func (n *Node) Serve(ctx context.Context) (err error) {
	if len(n.cfg.Doors) == 0 {
		return tool.Errorf(tool.CodeInvalidInput, "the config has no door to serve; add `doors: {http: {}}`")
	}
	fresh, err := n.ownersToken()
	if err != nil {
		return err
	}
	var told atomic.Bool
	defer func() {
		if err != nil && fresh != "" && !told.Load() { // it was never shown: the next start makes another and shows it
			err = errors.Join(err, os.Remove(filepath.Join(n.cfg.StateDir(), identity.TokenFile)))
		}
	}()
	ready := func(l Listening) {
		told.Store(true)
		soon, cancel := context.WithTimeout(ctx, readyPause)
		defer cancel()
		arrived(soon, n.waiting(nil))
		n.o.Ready(l)
	}
	doors, err := all.Doors(n.cfg, all.DoorOptions{
		Log: n.o.Log, Listen: n.o.Listen, Gate: n.Admit, Named: n.named, Fresh: fresh, Version: n.o.Version,
		Ready: ready, Metrics: n.Metrics, Known: n.callers.Load().Lists, Calls: n.calls,
		Issuers: func() []string { return n.callers.Load().Issuers() }, Keys: n.keep.keys, Console: n.console,
		Models: n.models, Waiting: n.keep.approvals.Waiting,
	})
	if err != nil {
		return err
	}
	if some, lasting := n.Pins(); some && !lasting {
		n.o.Log.Warn("there is no store: what upstream tools say of themselves is remembered until this program ends")
	}
	defer GCBallast()()
	g, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, n.followers.Close)() // otherwise doors would wait for them
	for _, d := range doors {
		g.Go(func() error { return d.Serve(ctx, n.Handler(), n.catalog) })
	}
	if n.store != nil {
		g.Go(func() error { n.housekeeping(ctx); return nil })
		g.Go(func() error { n.jobs.Run(ctx); return nil })
	}
	return g.Wait()
}

// A fixedPart of the config is read at the start: a change of it needs a restart.
type fixedPart struct {
	name string
	same func(a, b *config.Config) bool
}

// fixedParts lists those parts. All others can change while the node runs.
func (n *Node) fixedParts() []fixedPart {
	parts := []fixedPart{
		{"doors", func(a, b *config.Config) bool { return slices.EqualFunc(a.Doors, b.Doors, config.Door.Equal) }},
		{"state", func(a, b *config.Config) bool { return a.State == b.State }},
		{"store", func(a, b *config.Config) bool { return a.Store.Equal(b.Store) }},
		{"limits.timeout", func(a, b *config.Config) bool { return a.Limits.Timeout == b.Limits.Timeout }},
		{"limits.drain", func(a, b *config.Config) bool { return a.Limits.Drain == b.Limits.Drain }},
	}
	for i, kind := range stages() {
		if name := kind.section.Name; name != "" && n.stages[i].read == nil {
			parts = append(parts, fixedPart{name, func(a, b *config.Config) bool {
				return a.Section(name).Equal(b.Section(name))
			}})
		}
	}
	return parts
}

// fixed lists the fixed parts that differ in another config.
func (n *Node) fixed(cfg *config.Config) (changed []string) {
	for _, p := range n.fixedParts() {
		if !p.same(n.cfg, cfg) {
			changed = append(changed, p.name)
		}
	}
	return changed
}

// awaitPublication waits for a publication in progress; once the node's life has ended, none follows it. It holds no
// lock when it returns, since a call that is waited for may be one that reloads.
func (n *Node) awaitPublication() {
	n.loading.Lock()
	defer n.loading.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
}

// Close ends the node: no new calls and no retries; calls in flight and sources have until ctx ends.
func (n *Node) Close(ctx context.Context) (err error) {
	n.end()
	n.followers.Close()
	n.awaitPublication()
	if n.engine != nil {
		err = n.engine.Close(ctx)
	}
	n.telemetry.Close(ctx)
	ended := make(chan struct{})
	go func() { n.tasks.Wait(); close(ended) }()
	if n.store != nil {
		defer func() {
			n.store.Audit().Settle() // records that it does not accept are in the trail afterwards
			n.trail.Flush(ctx)
			if left := n.trail.Left(); left > 0 {
				n.o.Log.Error("calls are missing from the audit log: the store did not take their records to the end",
					"calls", left)
			}
			err = errors.Join(err, n.store.Close())
		}()
	}
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("some sources are still being opened: %w", ctx.Err()))
	}
}
