package node

import (
	"context"
	"encoding/json"
	"io"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/audit"
	"toolpost/engine/breaker"
	"toolpost/engine/cache"
	"toolpost/engine/calls"
	"toolpost/engine/cassette"
	"toolpost/engine/lease"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/engine/quota"
	"toolpost/engine/redact"
	"toolpost/engine/telemetry"
	"toolpost/model"
	"toolpost/plan"
	"toolpost/plan/planner"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// A stageKind describes a stage and how to open it.
type stageKind struct {
	place   string      // in the engine's chain, which explains the order
	section config.Part // of the config, which belongs to the stage; without a name if there is none
	open    func(*Node) (stage, error)
}

// A stage is an open stage.
type stage struct {
	// The stage in the chain; nil if the engine knows it by a field of its options.
	in engine.Stage
	// Reads another config, which takes effect only when apply is called; nil if a change needs a restart.
	read func(*config.Config) (apply func(), err error)
}

// stages lists every stage that depends on a config, the store or the secrets; the others are the engine's own.
func stages() []stageKind {
	return []stageKind{
		{"calls", calls.Section(), func(n *Node) (stage, error) { return stage{n.calls.Stage(n.o.Log), n.calls.Read}, nil }},
		{place: "redact", open: func(n *Node) (stage, error) { return stage{in: redact.Stage(n.redactor)}, nil }},
		{"telemetry", telemetry.Section(), (*Node).openTelemetry},
		{place: "cassette", open: (*Node).openCassette},
		{place: "answers", open: func(n *Node) (stage, error) { return stage{in: n.keep.questions.Answers}, nil }},
		{"policy", policy.Section(), (*Node).openPolicy},
		{place: "approval", open: func(n *Node) (stage, error) { return stage{in: n.keep.approvals.For}, nil }},
		{place: "idempotency", open: func(n *Node) (stage, error) { return stage{in: n.keep.idempotency}, nil }},
		{"quota", quota.Section(), (*Node).openQuotas},
		{"queue", queue.Section(), (*Node).openQueue},
		{place: "ask", open: func(n *Node) (stage, error) { return stage{in: n.keep.questions.Carry}, nil }},
		{"lease", lease.Section(), (*Node).openLeases},
		{"breaker", breaker.Section(), (*Node).openBreaker},
		{"cache", cache.Section(), (*Node).openCache},
		{"models", model.Section(), (*Node).openModels},
		{"planners", planner.Section(), (*Node).openPlanners},
		{"plans", plan.Section(), (*Node).openPlans},
		{place: "session", open: func(n *Node) (stage, error) { return stage{in: n.keep.session}, nil }},
	}
}

// stageSections lists the config sections of the stages.
func stageSections() (list []config.Part) {
	for _, kind := range stages() {
		if kind.section.Name != "" {
			list = append(list, kind.section)
		}
	}
	return list
}

// Load reads a config and refuses unknown sections.
func Load(path string) (*config.Config, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	return cfg, cfg.Only(stageSections())
}

// openStages opens the stages, and returns those that the engine knows only by their places.
func (n *Node) openStages() (map[string]engine.Stage, error) {
	placed := map[string]engine.Stage{}
	for _, kind := range stages() {
		s, err := kind.open(n)
		if err != nil {
			return nil, err
		}
		if s.in != nil {
			placed[kind.place] = s.in
		}
		n.stages = append(n.stages, s)
	}
	return placed, nil
}

// readStages reads a config for the stages that can reread it.
func (n *Node) readStages(cfg *config.Config) (apply []func(), err error) {
	for _, s := range n.stages {
		if s.read == nil {
			continue
		}
		one, err := s.read(cfg)
		if err != nil {
			return nil, err
		}
		apply = append(apply, one)
	}
	return apply, nil
}

func (n *Node) openTelemetry() (s stage, err error) {
	n.telemetry, err = telemetry.Open(n.cfg, telemetry.Env{
		Version: n.o.Version, Log: n.o.Log, Lookup: n.lookup, Secret: n.secret, Redact: n.redactor.String, Samples: n.samples,
	})
	return stage{in: n.telemetry.For}, err
}

// openCassette opens the cassette stage, if there is a tape.
func (n *Node) openCassette() (stage, error) {
	if n.o.Tape == nil {
		return stage{}, nil
	}
	n.o.Tape.In(cassette.Env{
		Args:  func(args json.RawMessage) json.RawMessage { return n.redactor.JSON(n.redactByName(args)) },
		Clean: n.redactor.JSON, Bytes: n.redactor.Bytes, Asset: n.keep.assets.Open, Log: n.o.Log,
	})
	return stage{in: n.o.Tape.For}, nil
}

// redactByName removes the values of arguments whose names suggest secrets.
func (n *Node) redactByName(args json.RawMessage) json.RawMessage {
	return audit.Redacted(args, n.storing.Audit.Redact)
}

func (n *Node) openPolicy() (stage, error) {
	n.policy = policy.NewCurrent(policy.Env{
		Doors: doorNames(n.o.Protocols), Log: n.o.Log,
		Redact: func(args json.RawMessage) json.RawMessage { return n.redactor.JSON(n.redactByName(args)) },
	})
	return stage{read: n.policy.Read}, nil
}

// openModels makes the registry of models. It is not a stage of a call, but its config section is read like theirs.
func (n *Node) openModels() (stage, error) {
	n.models = model.NewRegistry(model.Env{Secrets: current{n}, Redactor: n.redactor})
	return stage{read: n.models.Read}, nil
}

// openPlanners makes the registry of planners, which is not a stage either.
func (n *Node) openPlanners() (stage, error) {
	n.planners = planner.New(planner.Env{Secrets: current{n}, OffLimits: &n.checker, Redactor: n.redactor})
	return stage{read: n.planners.Read}, nil
}

// current provides the secrets of the current config.
type current struct{ n *Node }

// Secret implements config.Secrets.
func (c current) Secret(name string) (string, error) { return c.n.secret(name) }

func (n *Node) openQuotas() (stage, error) {
	n.quotas = quota.New(quota.Options{Doors: doorNames(n.o.Protocols)})
	return stage{n.quotas.For, n.quotas.Read}, nil
}

func (n *Node) openQueue() (s stage, err error) {
	n.queue, err = queue.From(n.cfg)
	return stage{}, err
}

// openPlans reads the limits of plans, which are not a stage: their calls pass all of them.
func (n *Node) openPlans() (s stage, err error) {
	n.plans = new(plan.Executor)
	n.plans.Limits, err = plan.LimitsOf(n.cfg)
	return stage{}, err
}

func (n *Node) openLeases() (stage, error) {
	return rereading(func(cfg *config.Config) (engine.Stage, error) {
		tier, err := lease.From(cfg, n.o.LeaseTier)
		return lease.Stage{From: tier, Consume: n.keep.leases, Tiers: n.o.Tiers}.For, err
	}), nil
}

func (n *Node) openBreaker() (stage, error) {
	return rereading(func(cfg *config.Config) (engine.Stage, error) {
		o, err := breaker.From(cfg)
		return o.For, err
	}), nil
}

// rereading makes a stage that keeps nothing between two configs: each config makes it anew.
func rereading(from func(*config.Config) (engine.Stage, error)) stage {
	var now atomic.Pointer[engine.Stage]
	return stage{
		in: func(spec *tool.Spec) tool.Middleware { return (*now.Load())(spec) },
		read: func(cfg *config.Config) (apply func(), err error) {
			next, err := from(cfg)
			return func() { now.Store(&next) }, err
		},
	}
}

func (n *Node) openCache() (stage, error) {
	n.cache = cache.New(cache.Options{})
	return stage{n.cache.For, n.cache.Read}, nil
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

// secret returns a secret of the current config.
func (n *Node) secret(name string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.vault.Secret(name)
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
	return []telemetry.Sample{
		of(sources, "state", "open", states[true]), of(sources, "state", "failed", states[false]),
		of(lookups, "result", "hit", float64(c.Hits)), of(lookups, "result", "miss", float64(c.Misses)),
		{Name: "toolpost_cache_results", Help: "Results that are kept.", Value: float64(c.Entries)},
		{Name: "toolpost_cache_size_bytes", Help: "Size of the results that are kept.", Value: float64(c.Bytes)},
	}
}
