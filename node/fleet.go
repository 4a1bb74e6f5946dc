package node

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	runningtools "toolpost/builtin/running"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine"
	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/member"
	"toolpost/fleet"
	"toolpost/fleet/invite"
	"toolpost/fleet/membership"
	"toolpost/identity"
	"toolpost/node/storage"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// machine is what this node runs for the hubs of its fleet: calls come without going through a door.
type machine struct {
	*engine.Engine
	own tool.Handler // Toolpost's own tools
}

// answered lists Toolpost's own tools that a hub may let other nodes run: it has judged the caller for these alone.
var answered = []string{"listCalls", "showCall", "cancelCall", "watchCalls", "watchLogs", "watchLoad"}

// Answer implements fleet.Machine: it runs one of Toolpost's own tools, which asks no other node then.
func (m machine) Answer(ctx context.Context, q fleet.Question, out tool.Sink) ([]byte, error) {
	if !slices.Contains(answered, q.Tool) {
		return nil, tool.Errorf(tool.CodeAccessDenied, "no node runs %.40q for another one", q.Tool)
	}
	r, err := m.own.Invoke(ctx, &tool.Call{
		ID: tool.NewID(), Tool: q.Tool, Args: q.Args, Caller: identity.AtHub(q.Caller, q.Operator), FromHub: true,
	}, out)
	if err != nil {
		return nil, err
	}
	return r.Output, nil
}

// lateOutcome finds what became of a call on another machine of the fleet.
func (n *Node) lateOutcome(ctx context.Context, first idempotency.First, again *tool.Call) (r *tool.Result, never bool, err error) {
	return n.Fleet().Late(ctx, first, again)
}

// doubt lets the fleet look for the outcomes of calls whose hub has ended.
func (n *Node) doubt(lost []*tool.Record) { n.Fleet().Recovered(lost) }

// cancelElsewhere cancels a call at another hub. One that does not answer may have it.
func (n *Node) cancelElsewhere(p tool.Principal, whose, id string) error {
	args, err := strictjson.Marshal(runningtools.CancelArgs{Call: id, Caller: whose})
	if err != nil {
		return err
	}
	err = tool.Errorf(tool.CodeNotFound, "no hub has the call")
	q := fleet.Question{Tool: "cancelCall", Args: args, Caller: p.ID, Operator: p.Operator()}
	for _, answer := range n.Fleet().AskHubs(context.Background(), q) {
		if answer.Err == nil {
			return nil
		}
		if tool.CodeOf(answer.Err) != tool.CodeNotFound {
			err = answer.Err
		}
	}
	return err
}

// Offers implements fleet.Machine.
func (m machine) Offers(ctx context.Context) (all []fleet.Offer) {
	for b := range m.Brought(ctx) {
		all = append(all, fleet.Offer(b))
	}
	return all
}

// openFleet reads the section fleet. The fleet is joined by Serve or Work.
func (n *Node) openFleet() (s setting, err error) {
	n.fleetOptions, err = fleetOptions(n.cfg)
	return s, err
}

func fleetOptions(cfg *config.Config) (o fleet.Options, err error) {
	err = cfg.Section(fleet.Section().Name).Decode(&o)
	for _, path := range []*string{&o.TLS.Cert, &o.TLS.Key, &o.TLS.CA} {
		if *path != "" {
			*path = offlimits.Under(cfg.Dir, *path)
		}
	}
	return o, cmp.Or(err, o.Check())
}

// fleetClaim returns the files of the section fleet.
func fleetClaim(cfg *config.Config) offlimits.Claim {
	o, _ := fleetOptions(cfg) // an error is told at the start
	return offlimits.Claim{Keeps: offlimits.Given("", o.TLS.Key), Starts: offlimits.Given("", o.TLS.Cert, o.TLS.CA)}
}

// joinFleet starts the part of this program that is a member of its fleet. It does nothing in a program that is none. stop ends
// what the program serves.
func (n *Node) joinFleet(ctx context.Context, stop func(error)) error {
	pass, err := membership.Load(n.StateDir())
	if err != nil {
		return err
	}
	switch {
	case pass == nil && n.o.Worker:
		return tool.Errorf(tool.CodeInvalidInput, "this machine belongs to no fleet; at a hub, `toolpost fleet token` prints a line for "+
			"`toolpost worker --join LINE`")
	case pass == nil:
		if n.cfg.Section(fleet.Section().Name).Equal(config.Section{}) {
			return nil
		}
		return tool.Errorf(tool.CodeInvalidInput, "the config has a section `fleet`, and this machine belongs to none: found one with "+
			"`toolpost fleet init`, or join one with `toolpost serve --join LINE`")
	}
	env := fleet.Env{
		Options: n.fleetOptions, Pass: pass, State: n.StateDir(), Version: n.o.Version, Log: n.o.Log, Machine: machine{n.engine, n.own},
		Changed: n.Rebind, Stop: stop,
	}
	if (pass.Role == member.Worker) != n.o.Worker {
		return tool.Errorf(tool.CodeConflict, "this machine is a %s of its fleet; start it with `toolpost %s`", pass.Role,
			map[member.Role]string{member.Hub: "serve", member.Worker: "worker"}[pass.Role])
	}
	if pass.Role == member.Worker {
		if env.Journal, n.endJournal, err = storage.OpenJournal(n.StateDir()); err != nil {
			return err
		}
	}
	if pass.Role == member.Hub {
		if n.storage.DB == nil {
			return errNoStore
		}
		env.Journal = n.storage.DB.Outcomes()
		env.Late = func(ctx context.Context, r *tool.Record) error { return n.storage.DB.Audit().Append(ctx, r, true) }
		env.Rows = func(ctx context.Context, f audit.Filter, visit func(*tool.Record) error) error {
			return n.storage.DB.Audit().Log(ctx, f, true, visit)
		}
		env.Config, env.Register, env.Alone = n.sharedSections, n.storage.DB.Fleet(), !n.storage.DB.Served()
	}
	joined, err := fleet.Start(ctx, env)
	if err != nil {
		n.closeJournal()
		return err
	}
	n.fleet.Store(joined)
	n.Rebind() // nodes may have connected already
	return nil
}

// sharedSections are the digests of what the configs of all hubs should have in common.
func (n *Node) sharedSections() map[string]string {
	cfg, _ := n.Current()
	sections := cfg.Digests()
	delete(sections, fleet.Section().Name)
	return sections
}

var errNoStore = tool.Errorf(tool.CodeInvalidInput, "a hub needs a store, and this config has none; the hubs of a fleet share a PostgreSQL: "+
	"store: {url: postgres://…}")

// followFleet tells the fleet when the tools of this node change, until ctx ends.
func (n *Node) followFleet(ctx context.Context) {
	joined := n.fleet.Load()
	for joined != nil {
		changed := n.engine.Changed()
		joined.Retold(ctx)
		select {
		case <-changed:
		case <-ctx.Done():
			n.drainFleet(ctx, joined)
			return
		}
	}
}

// drainFleet takes no more calls of hubs, and waits until those that run have ended, or the time to drain is over.
func (n *Node) drainFleet(ctx context.Context, joined *fleet.Node) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(cmp.Or(n.fleetOptions.Drain, config.Duration(30*time.Second))))
	defer stop()
	joined.Drain(ctx)
}

// leaveFleet comes last: until the calls of its doors have ended, a hub sends them to other nodes.
func (n *Node) leaveFleet(ctx context.Context) {
	if joined := n.fleet.Load(); joined != nil {
		joined.Close(ctx)
	}
	n.closeJournal()
}

// closeJournal closes the journal of a worker.
func (n *Node) closeJournal() {
	if n.endJournal == nil {
		return
	}
	if err := n.endJournal(); err != nil {
		n.o.Log.Warn("the journal of this worker was not closed", "error", err)
	}
	n.endJournal = nil
}

// noticeFor is how long a hub that leaves takes calls, while /readyz says that it leaves: load balancers look about every second.
const noticeFor = 2 * time.Second

var errLeaves = tool.Errorf(tool.CodeUnavailable, "the server is about to shut down").Because("draining")

// lastCalls returns a context that ends somewhat later than ctx if other hubs can take the calls of this one.
func (n *Node) lastCalls(ctx context.Context) (context.Context, context.CancelFunc) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		n.leaves.Store(true)
		if joined := n.fleet.Load(); joined != nil {
			joined.Drain(ctx) // which has ended: it begins to drain, and waits for nothing
			if expelled(ctx) == nil && !joined.Alone() {
				tool.Sleep(late, noticeFor)
			}
		}
		end()
	})
	return late, func() { stop(); end() }
}

// usable reports why this server should get no calls, for /readyz.
func (n *Node) usable() error {
	if n.leaves.Load() {
		return errLeaves
	}
	if err := n.storage.Usable(); err != nil {
		return err
	}
	return n.fleet.Load().Ready()
}

// Fleet returns this node's part of its fleet, or nil.
func (n *Node) Fleet() *fleet.Node { return n.fleet.Load() }

// nodeName is the name of this node in its fleet; empty without one.
func (n *Node) nodeName() string { return n.Fleet().Name() }

// fleetSources are the sources that other nodes bring.
func (n *Node) fleetSources() (all []engine.Binding) {
	for _, s := range n.fleet.Load().Sources() {
		all = append(all, engine.Binding{Name: s.Name, Protocol: s.Protocol(), Runner: s, Upstream: s.Upstream(), Remote: true})
	}
	return all
}

// InitFleet makes the fleet of a config as FoundFleet does, and writes the section fleet into the config, with the address listen. If
// that was given, there must be no such section yet.
func InitFleet(ctx context.Context, cfg *config.Config, name, listen string, given bool) error {
	if cfg.Path == "" {
		return tool.Errorf(tool.CodeInvalidInput, "a hub needs a config; `toolpost init --empty` writes one")
	}
	own, err := config.OpenOwn(cfg.Path)
	if err != nil {
		return err
	}
	defer own.Close()
	text := own.Text
	if cfg.Section(fleet.Section().Name).Equal(config.Section{}) {
		if text, err = config.AddSection(cfg.Path, own.Text, fleet.Section().Name, "listen", listen); err != nil {
			return err
		}
	} else if given {
		return tool.Errorf(tool.CodeInvalidInput, "the config has a section `fleet` already: write `listen: %q` there instead of --listen", listen)
	}
	if err := FoundFleet(ctx, cfg, name); err != nil {
		return err
	}
	return own.Replace(text, own.Mode)
}

// FoundFleet makes the fleet of a config, with its server as the first hub.
func FoundFleet(ctx context.Context, cfg *config.Config, name string) error {
	db, _, err := storage.Open(cfg)
	if err != nil {
		return err
	}
	if db == nil {
		return errNoStore
	}
	defer func() { _ = db.Close() }()
	o, err := fleetOptions(cfg)
	if err != nil {
		return err
	}
	_, err = fleet.Found(ctx, db.Fleet(), chosenName(cfg, name), cfg.StateDir(), o)
	return err
}

// JoinFleet makes this machine a member of a fleet, by the line of an invitation; without a line it stays what it is.
func JoinFleet(ctx context.Context, cfg *config.Config, line, name string, role member.Role) error {
	before, err := membership.Load(cfg.StateDir())
	if err != nil {
		return err
	}
	if before != nil && name != "" && name != before.Name {
		return tool.Errorf(tool.CodeConflict, "this node is called %s in its fleet, and keeps its name; to join as %s, evict it, remove "+
			"fleet.json from %s, and use a new token", before.Name, name, cfg.StateDir())
	}
	if line == "" {
		return nil
	}
	invitation, err := invite.Parse(line)
	if err != nil {
		return err
	}
	if before != nil { // a unit file that names a token must start again after a restart
		return before.Renew(invitation, cfg.StateDir())
	}
	pass, err := fleet.Join(ctx, invitation, chosenName(cfg, name), role)
	if err != nil {
		return err
	}
	return pass.Save(cfg.StateDir())
}

// chosenName returns the name of this node: as given, of the config, or of the machine.
func chosenName(cfg *config.Config, given string) string {
	o, _ := fleetOptions(cfg) // an error is told at the start
	host, _ := os.Hostname()
	return cmp.Or(given, o.Name, host, "node")
}

// Work runs calls of hubs until ctx ends or the node has to leave its fleet, and the running calls have ended.
func (n *Node) Work(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := n.joinFleet(ctx, stop); err != nil {
		return err
	}
	defer GCBallast()()
	n.Settle(ctx)
	if len(machine{n.engine, n.own}.Offers(ctx)) == 0 {
		n.o.Log.Warn("this worker has no tools for its hubs: its config has no sources, or none could be opened", "config", n.cfg.Path)
	}
	n.followFleet(ctx)
	n.leaveFleet(ctx)
	return expelled(ctx)
}

// expelled returns why a node can be a member of its fleet no more, or nil if it was told to end.
func expelled(ctx context.Context) error {
	var why *tool.Error
	if errors.As(context.Cause(ctx), &why) {
		return why
	}
	return nil
}
