package node

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/approval"
	"toolpost/engine/breaker"
	"toolpost/engine/cache"
	"toolpost/engine/calls"
	"toolpost/engine/cassette"
	"toolpost/engine/connection"
	"toolpost/engine/lease"
	"toolpost/engine/notify"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/engine/quota"
	"toolpost/engine/redact"
	"toolpost/engine/telemetry"
	"toolpost/fleet"
	"toolpost/identity"
	"toolpost/model"
	"toolpost/node/catalogue"
	"toolpost/plan"
	"toolpost/plan/planner"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// A section is a section of the config that changes how calls run. Most belong to a stage.
type section struct {
	place string // of its stage in the engine's chain, which explains the order
	config.Part
	open func(*Node) (setting, error)
}

// A setting is an open section.
type setting struct {
	// The stage in the chain; nil if there is none, or the engine knows it by a field of its options.
	stage engine.Stage
	// Reads another config, which takes effect only when apply is called; nil if a change needs a restart.
	read func(*config.Config) (apply func(), err error)
}

// sections lists the sections. Those of the store, the callers and the secrets are not among them.
func sections() []section {
	return []section{
		{"calls", calls.Section(), func(n *Node) (setting, error) { return setting{n.calls.Stage(n.o.Log), n.calls.Read}, nil }},
		{"telemetry", telemetry.Section(), (*Node).openTelemetry},
		{"policy", policy.Section(), func(n *Node) (setting, error) { return setting{read: n.policy.Read}, nil }},
		{"approval", approval.Section(), func(n *Node) (setting, error) {
			return setting{n.storage.Approvals.For, n.storage.Approvals.Read}, nil
		}},
		{"connection", connection.Section(), func(n *Node) (setting, error) { return setting{n.connections.For, n.connections.Read}, nil }},
		{"quota", quota.Section(), func(n *Node) (setting, error) { return setting{n.quotas.For, n.quotas.Read}, nil }},
		{"queue", queue.Section(), (*Node).openQueue},
		{"lease", lease.Section(), (*Node).openLeases},
		{"breaker", breaker.Section(), (*Node).openBreaker},
		{"cache", cache.Section(), func(n *Node) (setting, error) { return setting{n.cache.For, n.cache.Read}, nil }},
		{"", model.Section(), func(n *Node) (setting, error) { return setting{read: n.models.Read}, nil }},
		{"", planner.Section(), func(n *Node) (setting, error) { return setting{read: n.planners.Read}, nil }},
		{"", plan.Section(), (*Node).openPlans},
		{"", identity.Section(), func(*Node) (setting, error) { return setting{read: readElsewhere}, nil }},
		{"", notify.Section(), (*Node).openNotify},
		{"", fleet.Section(), (*Node).openFleet},
	}
}

// readElsewhere is for a section that ReadCallers reads.
func readElsewhere(*config.Config) (apply func(), err error) { return func() {}, nil }

// plainStages returns the stages without a section, by their places in the engine's chain; the others are the engine's own.
func (n *Node) plainStages() map[string]engine.Stage {
	stages := map[string]engine.Stage{
		"redact":      redact.Stage(n.redactor),
		"answers":     n.storage.Questions.Answers,
		"idempotency": n.storage.Idempotency,
		"ask":         n.storage.Questions.Carry,
		"session":     n.storage.Session,
	}
	if n.o.Tape != nil {
		n.o.Tape.In(cassette.Env{
			Args: n.storage.RedactArgs, Clean: n.redactor.JSON, Bytes: n.redactor.Bytes, Asset: n.storage.Assets.Open, Log: n.o.Log,
		})
		stages["cassette"] = n.o.Tape.For
	}
	return stages
}

// configParts describes the sections, for the schema and the check for unknown ones.
func configParts() (list []config.Part) {
	for _, s := range sections() {
		list = append(list, s.Part)
	}
	return list
}

// Load reads a config and refuses unknown sections.
func Load(path string) (*config.Config, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	return cfg, cfg.Only(configParts())
}

// openSections opens the sections, and returns all stages that the engine knows only by their places.
func (n *Node) openSections() (map[string]engine.Stage, error) {
	doors := doorNames(n.o.Protocols)
	n.policy = policy.NewCurrent(policy.Env{Doors: doors, Log: n.o.Log, Redact: n.storage.RedactArgs})
	n.quotas, n.cache = quota.New(quota.Options{Doors: doors, Shared: n.storage.Quotas()}), cache.New(cache.Options{})
	n.models = model.NewRegistry(model.Env{Secrets: n.Catalogue, Redactor: n.redactor})
	n.planners = planner.New(planner.Env{Secrets: n.Catalogue, OffLimits: n.OffLimits(), Redactor: n.redactor})
	n.connections = connection.New(connection.Env{
		Store: n.storage.Connections, Keys: n.storage.Sealing, Marks: n.storage.Marks(), Secrets: n.Catalogue, Redactor: n.redactor,
		Shared: n.anonymous(), Console: n.ConsoleURL, Log: n.o.Log,
	})
	stages := n.plainStages()
	for _, s := range sections() {
		opened, err := s.open(n)
		if err != nil {
			return nil, err
		}
		if opened.stage != nil {
			stages[s.place] = opened.stage
		}
		n.settings = append(n.settings, opened)
	}
	return stages, nil
}

// readSettings reads what a config says besides its sources: the sections that can be reread, and the callers.
func (n *Node) readSettings(cfg *config.Config) (to catalogue.Settings, err error) {
	if err := cfg.Only(configParts()); err != nil {
		return to, err
	}
	if err := cfg.KeepStateIn(n.cfg.StateDir()); err != nil { // the state folder is fixed at the start
		return to, err
	}
	var apply []func()
	for _, s := range n.settings {
		if s.read == nil {
			continue
		}
		one, err := s.read(cfg)
		if err != nil {
			return to, err
		}
		apply = append(apply, one)
	}
	callers, err := n.ReadCallers(cfg)
	return catalogue.Settings{
		Restart:  n.fixed(cfg),
		Announce: func(ctx context.Context) { n.ExpectCallers(ctx, callers) },
		Publish: func(bind func()) {
			for _, one := range apply {
				one()
			}
			bind()
			n.UseCallers(callers) // new callers come in under the new policy
		},
	}, err
}

// fixed lists the parts that differ in another config and hold from start to end: a change of them needs a restart. All
// others can change while the node runs.
func (n *Node) fixed(cfg *config.Config) (changed []string) {
	part := func(name string, same bool) {
		if !same {
			changed = append(changed, name)
		}
	}
	part("doors", slices.EqualFunc(n.cfg.Doors, cfg.Doors, config.Door.Equal))
	part("state", n.cfg.State == cfg.State)
	part("store", n.cfg.Store.Equal(cfg.Store))
	part("limits.timeout", n.cfg.Limits.Timeout == cfg.Limits.Timeout)
	part("limits.drain", n.cfg.Limits.Drain == cfg.Limits.Drain)
	for i, s := range sections() {
		if n.settings[i].read == nil {
			part(s.Name, n.cfg.Section(s.Name).Equal(cfg.Section(s.Name)))
		}
	}
	return changed
}

func (n *Node) openTelemetry() (s setting, err error) {
	n.telemetry, err = telemetry.Open(n.cfg, telemetry.Env{
		Version: n.o.Version, Log: n.o.Log, Lookup: n.lookup, Secret: n.Secret, Redact: n.redactor.String, Samples: n.samples,
		Node: n.nodeName,
	})
	return setting{stage: n.telemetry.For}, err
}

func (n *Node) openQueue() (s setting, err error) {
	n.queue, err = queue.From(n.cfg)
	return setting{}, err
}

// openPlans reads the limits of plans, which are not a stage: their calls pass all of them.
func (n *Node) openPlans() (s setting, err error) {
	n.storage.Plans.Limits, err = plan.LimitsOf(n.cfg)
	return setting{}, err
}

func (n *Node) openLeases() (setting, error) {
	return rereading(func(cfg *config.Config) (engine.Stage, error) {
		tier, err := lease.From(cfg, n.o.LeaseTier)
		return lease.Stage{From: tier, Consume: n.storage.Leases, Tiers: n.o.Tiers}.For, err
	}), nil
}

func (n *Node) openBreaker() (setting, error) {
	return rereading(func(cfg *config.Config) (engine.Stage, error) {
		o, err := breaker.From(cfg)
		return o.For, err
	}), nil
}

// rereading makes the setting of a stage that keeps nothing between two configs: each config makes it anew.
func rereading(from func(*config.Config) (engine.Stage, error)) setting {
	var now atomic.Pointer[engine.Stage]
	return setting{
		stage: func(spec *tool.Spec) tool.Middleware { return (*now.Load())(spec) },
		read: func(cfg *config.Config) (apply func(), err error) {
			next, err := from(cfg)
			return func() { now.Store(&next) }, err
		},
	}
}

// doorNames lists the possible doors of a call: those of a config, the command line, and each protocol that can be spoken on
// stdin and stdout.
func doorNames(protocols []Protocol) []string {
	names := []string{"cli"}
	for _, d := range all.DoorParts() {
		names = append(names, d.Name)
	}
	for _, p := range protocols {
		names = append(names, p.Name)
	}
	return names
}

// anonymous returns the function that reports whether a caller is that of clients without credentials, at any door. The doors are
// fixed at the start.
func (n *Node) anonymous() func(tool.Principal) bool {
	names := sync.OnceValue(func() map[string]bool {
		names := map[string]bool{}
		for _, a := range n.Anonymous() {
			names[a.Name] = true
		}
		return names
	})
	return func(p tool.Principal) bool { return names()[p.ID] }
}

// CheckDoor refuses a name that is not a possible door of a call.
func (n *Node) CheckDoor(name string) error {
	if err := nearest.Check("door", tool.Globs{tool.Glob(name)}, doorNames(n.o.Protocols)); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%w", err)
	}
	return nil
}

// Explain returns the policy's decision about a call, as of a time, with the reason.
func (n *Node) Explain(c *tool.Call, at time.Time) (policy.Explanation, error) {
	e, err := n.engine.Explain(c, at)
	return e, n.redactor.Error(err)
}

// Spec finds a tool for an operator, even if the policy hides it.
func (n *Node) Spec(name string) (*tool.Spec, error) { return n.engine.Spec(name) }

// lookup finds a tool in the engine, which is opened after the telemetry.
func (n *Node) lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	return n.engine.Lookup(ctx, p, name)
}

// Metrics writes the metrics in the format of Prometheus.
func (n *Node) Metrics(w io.Writer) error { return n.telemetry.Metrics(w) }

// samples returns the metrics that are not about calls.
func (n *Node) samples() []telemetry.Sample {
	states := map[bool]float64{}
	for _, s := range n.Sources() {
		states[s.Err == nil]++
	}
	of := func(s telemetry.Sample, label, value string, count float64) telemetry.Sample {
		s.Labels, s.Value = map[string]string{label: value}, count
		return s
	}
	sources := telemetry.Sample{Name: "toolpost_sources", Help: "Sources of the config."}
	c, lookups := n.cache.Stats(), telemetry.Sample{
		Name: "toolpost_cache_lookups_total", Help: "Calls that could be answered from memory.",
	}
	return append(n.fleetSamples(of), []telemetry.Sample{
		of(sources, "state", "open", states[true]), of(sources, "state", "failed", states[false]),
		of(lookups, "result", "hit", float64(c.Hits)), of(lookups, "result", "miss", float64(c.Misses)),
		{Name: "toolpost_cache_results", Help: "Results that are kept.", Value: float64(c.Entries)},
		{Name: "toolpost_cache_size_bytes", Help: "Size of the results that are kept.", Value: float64(c.Bytes)},
	}...)
}

// fleetSamples are those of a hub.
func (n *Node) fleetSamples(of func(s telemetry.Sample, label, value string, count float64) telemetry.Sample) (all []telemetry.Sample) {
	states, sent := n.Fleet().Counts()
	for state, count := range states {
		all = append(all, of(telemetry.Sample{Name: "toolpost_fleet_nodes", Help: "Nodes of the fleet."}, "state", state, float64(count)))
	}
	calls := telemetry.Sample{Name: "toolpost_fleet_calls_total", Help: "Calls that this hub sent to the node."}
	for node, count := range sent {
		all = append(all, of(calls, "node", node, float64(count)))
	}
	return all
}
