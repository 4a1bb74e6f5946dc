// Package node is the composition root: it makes a running Toolpost of a config, by opening its sources,
// putting the engine in front of them, and opening the doors in front of the engine.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
	"toolpost/engine/job"
	"toolpost/engine/pin"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/engine/redact"
	"toolpost/engine/running"
	"toolpost/engine/telemetry"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/protocol/all"
	"toolpost/store"
	"toolpost/tool"
)

// What commands need of the list of protocols, so that this package alone knows it.
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

// Dial gives the Toolpost that serves HTTP at url, whose certificate the authorities in the file ca vouch for.
func Dial(url, token, ca string) (Remote, error) { return all.Dial(url, token, ca) }

// MCPAddress is where clients on this machine find the MCP door of a config.
func MCPAddress(cfg *config.Config) (string, error) { return all.MCPAddress(cfg) }

// Select lets a policy, an external program, choose among the tools that can be called now.
func Select(
	ctx context.Context, command []string, c tool.Catalog, p tool.Principal, inputs json.RawMessage,
) (Selected, error) {
	return all.Select(ctx, command, c, p, inputs)
}

// Schema is the JSON Schema of the config that this build reads.
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
	Log       *slog.Logger    // nil: silence
	Protocols []Protocol      // nil: every one of this build
	Listen    string          // of the HTTP door and those that share its address, in place of what the config says
	Token     string          // of the owner; empty: one is made and kept in the state folder
	NewToken  bool            // make another token
	Own       bool            // open no source of the config: its own tools are all that is called
	Still     bool            // open only those sources for which nothing is started and nobody is asked
	LeaseTier int             // tools from this tier on need a lease, also where the config asks for none; 0: as it says
	Version   string          // of this program, for those who ask a door
	Ready     func(Listening) // called for each door that is open
}

// A Node is a running Toolpost.
type Node struct {
	o       Options
	cfg     *config.Config
	engine  *engine.Engine
	store   *store.DB        // nil: the config wants none
	trail   *audit.Trail     // nil: there is no store
	own     []engine.Binding // sources that no config names; their names cannot be taken
	keep    keepers
	pins    *pin.Book
	stages  []stage // as stages lists them
	policy  *policy.Current
	queue   queue.Options
	cache   *cache.Cache
	callers atomic.Pointer[identity.Callers]
	owner   atomic.Pointer[identity.Gate] // nil: no door is open, or the config wants none
	jobs    *job.Queue                    // nil: there is no store to keep them in

	telemetry *telemetry.Telemetry
	leaseTier int // the tier from which on calls need a lease; 0: none does

	book     offlimits.Book   // what no tool sees or changes
	redactor *secret.Redactor // knows the values of all secrets, also of those that a reload changed
	catalog  tool.Catalog
	calls    running.Calls // those that run now

	storing StoreOptions

	life    context.Context // ends with Close
	end     context.CancelFunc
	tasks   sync.WaitGroup // retries, and opens that came too late
	loading sync.Mutex     // one Reload at a time

	mu      sync.Mutex
	sources []*source // in the order of the config
	secrets map[string]secret.From
	vault   *secret.Vault // nil: the config has no secrets
}

// Open opens every source of the config, all at once, each within its time. A source that fails does not
// harm the others: its tools are unavailable, and it is tried again in the background.
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
	n := &Node{o: o, cfg: cfg, redactor: new(secret.Redactor)}
	n.o.Log = slog.New(secret.Handler(o.Log.Handler(), n.redactor)) // it writes no secrets
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}
	return n, nil
}

// start opens what a new node consists of, from the store up. Whatever it has opened when something fails is for Close.
func (n *Node) start(ctx context.Context) (err error) {
	if n.store, n.storing, err = OpenStore(n.cfg); err != nil {
		return err
	}
	n.keep, n.pins = n.keepIn(), n.pinsIn()
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
		Pins: n.pins, Stages: placed,
	})
	n.catalog = redact.Catalog(n.engine, n.redactor)
	n.openJobs()
	if n.own, err = n.ownTools(ctx); err != nil {
		return err
	}
	if n.o.Own {
		tools.sources = nil
	}
	if n.o.Still {
		tools.sources = slices.DeleteFunc(slices.Clone(tools.sources), n.asks)
	}
	n.replace(ctx, tools)
	if n.store != nil {
		n.tasks.Go(func() { n.watchPins(n.life) })
	}
	return errors.Join(ctx.Err(), n.cache.Misplaced())
}

// issuer brings the tools that issue leases, where calls need them.
func (n *Node) issuer(book leases) *define.Set {
	return leasetools.New(leasetools.Options{
		Leases: book,
		Resolve: func(ctx context.Context, p tool.Principal, name string) (string, int, error) {
			spec, err := n.engine.Lookup(ctx, p, name)
			if err != nil {
				return "", 0, err
			}
			return spec.Ref().String(), spec.Tier, nil
		},
	})
}

// StateDir is the folder that everything is written to.
func (n *Node) StateDir() string { return n.cfg.StateDir() }

// Handler runs calls.
func (n *Node) Handler() tool.Handler { return n.engine }

// Catalog shows what can be called.
func (n *Node) Catalog() tool.Catalog { return n.catalog }

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
		if err != nil && fresh != "" && !told.Load() { // nobody has seen it: the next start makes another and shows it
			err = errors.Join(err, os.Remove(filepath.Join(n.cfg.StateDir(), identity.TokenFile)))
		}
	}()
	ready := func(l Listening) {
		told.Store(true)
		n.o.Ready(l)
	}
	doors, err := all.Doors(n.cfg, all.DoorOptions{
		Log: n.o.Log, Listen: n.o.Listen, Gate: n.Admit, Named: n.named, Fresh: fresh, Version: n.o.Version,
		Ready: ready, Metrics: n.Metrics, Known: n.callers.Load().Lists, Calls: &n.calls,
		Issuers: func() []string { return n.callers.Load().Issuers() }, Keys: n.keep.keys,
	})
	if err != nil {
		return err
	}
	if some, lasting := n.Pins(); some && !lasting {
		n.o.Log.Warn("there is no store: what upstream tools say of themselves is remembered until this program ends")
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range doors {
		g.Go(func() error { return d.Serve(ctx, n.engine, n.catalog) })
	}
	if n.store != nil {
		g.Go(func() error { n.housekeeping(ctx); return nil })
		g.Go(func() error { n.jobs.Run(ctx); return nil })
	}
	return g.Wait()
}

// Reload goes over to the sources, the callers and the secrets of another config, and to the settings of those stages
// that can read them again, to all at once. Sources that say the same as before, and whose secrets are the same, keep
// their runner and their calls; calls in flight on the others end in peace, under the policy that let them in. What a
// door, the store or any other stage is told takes effect at the next start. A config that cannot be read is logged,
// and the one before it stays.
func (n *Node) Reload(ctx context.Context, cfg *config.Config) {
	tools, err := n.read(ctx, cfg)
	if err != nil {
		n.o.Log.Error("the config was not reloaded; the one before it stays", "error", message(err))
		return
	}
	if changed := n.fixed(cfg); len(changed) > 0 {
		n.o.Log.Warn("parts of the config changed that hold from start to end; restart to apply them", "parts", changed)
	}
	n.replace(ctx, tools)
	if err := n.cache.Misplaced(); err != nil {
		n.o.Log.Warn("a rule of limits.cache does nothing", "error", message(err))
	}
	n.o.Log.Info("config reloaded", "sources", len(cfg.Sources))
}

// fixed lists what another config says differently of that which holds from start to end.
func (n *Node) fixed(cfg *config.Config) (changed []string) {
	note := func(what string, same bool) {
		if !same {
			changed = append(changed, what)
		}
	}
	note("doors", slices.EqualFunc(n.cfg.Doors, cfg.Doors, config.Door.Equal))
	note("limits", n.cfg.Limits == cfg.Limits)
	note("state", n.cfg.State == cfg.State)
	note("store", n.cfg.Store.Equal(cfg.Store))
	for i, kind := range stages() {
		if name := kind.section.Name; n.stages[i].read == nil {
			note(name, n.cfg.Section(name).Equal(cfg.Section(name)))
		}
	}
	return changed
}

// Close ends the node: no new call, no retry; calls in flight and sources have until ctx ends.
func (n *Node) Close(ctx context.Context) (err error) {
	n.end()
	n.loading.Lock()
	defer n.loading.Unlock()
	if n.engine != nil {
		err = n.engine.Close(ctx)
	}
	n.telemetry.Close(ctx)
	ended := make(chan struct{})
	go func() { n.tasks.Wait(); close(ended) }()
	if n.store != nil {
		defer func() {
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
