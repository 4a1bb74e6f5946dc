package node

import (
	"context"
	"time"

	approvaltools "toolpost/builtin/approval"
	assettools "toolpost/builtin/asset"
	audittools "toolpost/builtin/audit"
	connectiontools "toolpost/builtin/connection"
	consoletools "toolpost/builtin/console"
	"toolpost/builtin/define"
	healthtools "toolpost/builtin/health"
	jobtools "toolpost/builtin/job"
	leasetools "toolpost/builtin/lease"
	logtools "toolpost/builtin/logs"
	nodetools "toolpost/builtin/nodes"
	operatetools "toolpost/builtin/operate"
	plantools "toolpost/builtin/plan"
	reloadtools "toolpost/builtin/reload"
	runningtools "toolpost/builtin/running"
	statetools "toolpost/builtin/state"
	storytools "toolpost/builtin/story"
	tokentools "toolpost/builtin/token"
	trusttools "toolpost/builtin/trust"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/plan"
	"toolpost/tool"
)

// ownTools returns the source of Toolpost's own tools: for assets, running calls, the condition of the program and changes
// of upstream tools; for leases, which calls need as soon as the config says so; and for sessions, jobs, tokens and the log
// of calls, if there is a store. They are one source, so that a policy can name it.
func (n *Node) ownTools(ctx context.Context) (engine.Binding, error) {
	running := runningtools.Options{Calls: n.calls, Followers: n.followers, Fleet: n.Fleet}
	plans := plantools.Options{Executor: n.storage.Plans, Planner: func(p tool.Principal, name string) (plan.Planner, error) {
		return n.planners.Named(p, name)
	}}
	stories := storytools.Options{Planners: n.planners, Plans: n.storage.Plans, State: n.storage.State}
	var stored []*define.Set
	if db := n.storage.DB; db != nil { // older calls, plans of other programs, and past plans as the history of stories
		running.Log, plans.Store, stories.Past = db.Audit(), db.Plans(), n.storage.PastPlans
		stored = []*define.Set{statetools.New(n.storage.Sessions()), jobtools.New(n.storage.Jobs, n.storage.Jobs),
			tokentools.New(n.Tokens()), audittools.New(db.Audit(), db.Audit(), n.followers)}
	}
	one := define.Join(append([]*define.Set{
		assettools.New(n.storage.Assets), runningtools.New(running),
		healthtools.New(healthtools.Options{
			Sources: n.Health, Metrics: n.Metrics, Started: time.Now(), Calls: n.calls, Counts: n.telemetry.Counts,
			Followers: n.followers, Fleet: n.Fleet,
		}),
		logtools.New(logtools.Options{Log: n.calls, Followers: n.followers, Fleet: n.Fleet}), trusttools.New(n.Upstream()),
		n.issuer(), reloadtools.New(n.Refresh), operatetools.New(n), operatetools.Adding(n.o.AddSource), consoletools.New(n.Console, n.ConsoleURL), plantools.New(plans),
		connectiontools.New(n.connections, n.storage.DB != nil),
		storytools.New(stories), approvaltools.New(n.storage.Approvals, n.followers), nodetools.New(n.Fleet, n.engine.Spec),
	}, stored...)...)
	specs, err := one.Tools(ctx)
	for _, s := range specs {
		s.Unlisted = true // they are about calls: clients do not look for them among tools that do something
		if !s.TierDeclared() {
			s.Declare(new(int), tool.TierTool) // a lease to issue leases could never be obtained
		}
	}
	return engine.Binding{Name: config.OwnSource, Protocol: "builtin", Runner: one, Overall: true}, err
}

// issuer returns the tools that issue leases.
func (n *Node) issuer() *define.Set {
	return leasetools.New(leasetools.Options{
		Leases: n.storage.Leases,
		Resolve: func(ctx context.Context, p tool.Principal, name string) (string, int, error) {
			spec, err := n.engine.Lookup(ctx, p, name)
			if err != nil {
				return "", 0, err
			}
			return spec.Ref().String(), n.o.Tiers.Of(spec), nil
		},
	})
}
