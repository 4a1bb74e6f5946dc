// Package node is the composition root: it makes a running Toolpost from a config, by opening its sources, putting the
// engine in front of them, and opening the doors in front of the engine.
package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	operatetools "toolpost/builtin/operate"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine"
	"toolpost/engine/ask"
	"toolpost/engine/cache"
	"toolpost/engine/calls"
	"toolpost/engine/cassette"
	"toolpost/engine/connection"
	"toolpost/engine/follow"
	"toolpost/engine/lease"
	"toolpost/engine/notify"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/engine/quota"
	"toolpost/engine/redact"
	"toolpost/engine/telemetry"
	"toolpost/fleet"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/model"
	"toolpost/node/access"
	"toolpost/node/catalogue"
	"toolpost/node/storage"
	"toolpost/plan/planner"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/web"
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
	return config.Schema(protocols, all.DoorParts(), append(configParts(),
		config.Part{Name: "store", Options: storage.Options{}},
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
	Client    bool            // this program ends with its one client: RunJobs runs the jobs that it makes, if no server does
	Early     bool            // start before the sources are open; each follows when it is
	LeaseTier int             // tools from this tier on need a lease, even if the config asks for none; 0 leaves it to the config
	Tiers     lease.Tiers     // of the leases that tools need
	Version   string          // of this program, as doors report it
	Commands  bool            // let Serve answer commands of this user, at a socket in the state folder
	Ready     func(Listening) // called for each open door
	Worker    bool            // run calls of hubs, with Work: callers, the store and approvals are the hubs' business
	Sockets   *web.Sockets    // that the doors listen on; nil if each opens its own
	// Only selects the sources that are opened; nil means all.
	Only func(config.Source) bool
	// AddSource writes a source into the config, for operators; nil if no tool may change the config.
	AddSource operatetools.AddSource
	// Tape receives the calls of this node, to record them on a cassette or to check them against one; nil if there is none.
	Tape interface {
		In(cassette.Env)
		For(*tool.Spec) tool.Middleware
	}
}

// A Node is a running Toolpost.
type Node struct {
	*access.Access       // who comes in
	*catalogue.Catalogue // the sources

	o        Options
	cfg      *config.Config // of the start
	engine   *engine.Engine
	catalog  tool.Catalog // of the engine, without secrets
	storage  *storage.Storage
	redactor *secret.Redactor // knows the values of all secrets, including those that a reload replaced

	settings  []setting // of sections, in their order
	policy    *policy.Current
	queue     queue.Options
	quotas    *quota.Quotas
	cache     *cache.Cache
	telemetry *telemetry.Telemetry
	models    *model.Registry
	planners  *planner.Registry

	connections *connection.Connections

	own       tool.Handler // Toolpost's own tools, for other hubs
	calls     *calls.Log   // running and recent calls, and recent events
	notify    *notify.Notifier
	followers *follow.Followers // callers that follow events; they end with Serve

	fleet        atomic.Pointer[fleet.Node] // this node's part of its fleet; nil if it is in none, or not yet
	fleetOptions fleet.Options
	endJournal   func() error // of a worker
	leaves       atomic.Bool  // it is about to end
}

// Open opens every source of the config concurrently, each within its timeout. A source that fails does not affect the
// others: its tools are unavailable, and it is retried in the background. With Early, Open waits for none of them.
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
	n.calls = calls.New(calls.Env{Redactor: n.redactor, Node: n.nodeName, Elsewhere: n.cancelElsewhere, RedactByName: func(args json.RawMessage) json.RawMessage {
		return n.storage.RedactByName(args)
	}})
	n.o.Log = slog.New(secret.Handler(n.calls.Handler(o.Log.Handler()), n.redactor)) // it writes no secrets
	var err error
	if n.storage, err = storage.New(cfg, !o.Worker, n.o.Log, n.redactor, n.lateOutcome); err != nil {
		return nil, err
	}
	n.storage.Faults.Once = o.Lazy || o.Own
	n.storage.Trail.Name(n.nodeName)
	n.storage.Lost = n.doubt
	n.Catalogue = catalogue.New(ctx, catalogue.Env{
		Config: cfg, Protocols: o.Protocols, Log: n.o.Log, Redactor: n.redactor, Pins: n.storage.Pins,
		Watch: o.Watch, Own: o.Own, Offline: o.Offline, Lazy: o.Lazy, Early: o.Early, Only: o.Only,
		Read: n.readSettings, Connections: connection.Describe, Claims: n.claims, Remote: n.fleetSources, Misplaced: func() error { return n.cache.Misplaced() },
	})
	n.warnOfWriters()
	if err = n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Close(context.WithoutCancel(ctx)))
	}
	return n, nil
}

// warnOfWriters warns if others can write the config. The person who starts the program has chosen it, so it is loaded
// nevertheless; later changes of it are not.
func (n *Node) warnOfWriters() {
	if err := config.Trusted(n.cfg.Path); n.cfg.Path != "" && err != nil {
		n.o.Log.Warn("others can write the config, and so decide what runs here; a running server takes no changes of it",
			"error", tool.AsError(err).Message)
	}
}

// start opens the parts of a new node, in front of its store. If it fails, Close closes what was opened.
func (n *Node) start(ctx context.Context) error {
	n.Access = access.New(access.Env{
		Config: n.cfg, Storage: n.storage, Calls: n.calls, Log: n.o.Log, Redactor: n.redactor, Listen: n.o.Listen,
		Token: n.o.Token, NewToken: n.o.NewToken, Version: n.o.Version, Secrets: n.Catalogue,
	})
	stages, err := n.openSections()
	if err != nil {
		return err
	}
	n.engine = engine.New(engine.Options{
		Log: n.o.Log, Timeout: time.Duration(n.cfg.Limits.Timeout), Policy: n.policy.Load, Audit: n.storage.Trail, Queue: n.queue,
		Pins: n.storage.Pins, Stages: stages, Open: n.OpenWaiting,
		Asked: func(ctx context.Context, id string) string {
			return cmp.Or(ask.Definition(id), n.storage.Approvals.Definition(ctx, id))
		},
	})
	n.catalog = redact.Catalog(n.engine, n.redactor)
	n.storage.Bind(n.engine, n.catalog, n, catalogue.Settling, n.o.Client)
	own, err := n.ownTools(ctx)
	if err != nil {
		return err
	}
	n.own = tool.Recovered(n.o.Log, "the log")(redact.Stage(n.redactor)(nil)(own.Runner))
	return n.Start(ctx, n.engine, own, inside{n.storage.Approvals.Waiting(n.engine), n.catalog})
}

// claims returns the files that the parts of a config other than its sources use.
func (n *Node) claims(cfg *config.Config) []offlimits.Claim {
	return slices.Concat([]offlimits.Claim{storage.Claim(cfg)}, n.Claims(cfg), planner.Claims(cfg), []offlimits.Claim{fleetClaim(cfg)})
}

// inside is the engine for tools that call other tools: they set the parents of their calls themselves, and wait for the
// decision on a call that needs an approval.
type inside struct {
	tool.Handler
	tool.Catalog
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
func (n *Node) Serve(ctx context.Context) error {
	if len(n.cfg.Doors) == 0 {
		return tool.Errorf(tool.CodeInvalidInput, "the config has no door to serve; add `doors: {http: {}}`")
	}
	o := all.DoorOptions{
		Metrics: n.Metrics, Models: n.models, Opening: n.Opening, Usable: n.usable, Sockets: n.o.Sockets,
		Ready: func(l Listening) {
			n.Settle(ctx)
			n.o.Sockets.Settle()
			n.o.Ready(l)
		},
	}
	if n.o.Commands {
		o.Running = n.Running
	}
	doors, forget, err := n.Doors(o)
	if err != nil {
		return err
	}
	if some, lasting := n.Pins(); some && !lasting {
		n.o.Log.Warn("there is no store: what upstream tools say of themselves is remembered until this program ends")
	}
	defer GCBallast()()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := n.joinFleet(ctx, stop); err != nil {
		return errors.Join(err, forget())
	}
	defer n.leaveFleet(ctx)
	late, last := n.lastCalls(ctx)
	defer last()
	told := ctx // its cause says why a member of a fleet has to leave
	g, ctx := errgroup.WithContext(late)
	defer context.AfterFunc(ctx, n.followers.Close)() // otherwise doors would wait for them
	for _, d := range doors {
		g.Go(func() error { return d.Serve(ctx, n.Handler(), n.catalog) })
	}
	g.Go(func() error { n.storage.Run(ctx); return nil })
	g.Go(func() error { n.notify.Run(ctx); return nil })
	g.Go(func() error { n.followFleet(ctx); return nil })
	g.Go(func() error {
		for tool.Sleep(ctx, time.Second) {
			n.quotas.Settle(ctx, false)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return errors.Join(err, forget())
	}
	return expelled(told)
}

// RunJobs runs jobs until ctx ends, for a program that does not serve.
func (n *Node) RunJobs(ctx context.Context) { n.storage.RunJobs(ctx) }

// Close ends the node: no new calls and no retries; calls in flight and sources have until ctx ends.
func (n *Node) Close(ctx context.Context) (err error) {
	n.followers.Close()
	n.End()
	if n.engine != nil {
		err = n.engine.Close(ctx)
		n.connections.Close()
		n.quotas.Settle(ctx, true)
	}
	n.telemetry.Close(ctx)
	return errors.Join(err, n.Wait(ctx), n.storage.Close(ctx))
}
