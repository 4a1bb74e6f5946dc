package node

import (
	"context"
	"slices"
	"time"

	approvaltools "toolpost/builtin/approval"
	assettools "toolpost/builtin/asset"
	audittools "toolpost/builtin/audit"
	consoletools "toolpost/builtin/console"
	"toolpost/builtin/define"
	healthtools "toolpost/builtin/health"
	jobtools "toolpost/builtin/job"
	logtools "toolpost/builtin/logs"
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
	"toolpost/engine/job"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/plan"
	"toolpost/store"
	"toolpost/tool"
)

// ownTools returns the source of Toolpost's own tools: for assets, running calls, the condition of the program and changes
// of upstream tools; for leases, which calls need as soon as the config says so; and for sessions, jobs, tokens and the log
// of calls, if there is a store. They are one source, so that a policy can name it.
func (n *Node) ownTools(ctx context.Context) ([]engine.Binding, error) {
	all := []*define.Set{
		assettools.New(n.keep.assets), runningtools.New(n.callTools()),
		healthtools.New(healthtools.Options{
			Sources: n.health, Metrics: n.Metrics, Started: time.Now(), Calls: n.calls, Counts: n.telemetry.Counts,
			Followers: n.followers,
		}),
		logtools.New(logtools.Options{Log: n.calls, Followers: n.followers}), trusttools.New(operators{n}),
		n.issuer(n.keep.leases), reloadtools.New(n.Refresh), operatetools.New(n), consoletools.New(n.console),
		plantools.New(n.planTools()), storytools.New(n.stories()),
		approvaltools.New(n.keep.approvals, n.followers),
	}
	if n.store != nil {
		all = append(all, statetools.New(sessions{n.store.Sessions(), n.redactor}), jobtools.New(n.jobs),
			tokentools.New(tokens{n.store.Tokens(), n}), audittools.New(n.store.Audit(), n.followers))
	}
	one := define.Join(all...)
	specs, err := one.Tools(ctx)
	for _, s := range specs {
		s.Unlisted = true // they are about calls: clients do not look for them among tools that do something
		if !s.TierDeclared() {
			s.Declare(new(int), tool.TierTool) // a lease to issue leases could never be obtained
		}
	}
	return []engine.Binding{{Name: config.OwnSource, Protocol: "builtin", Runner: one, Overall: true}}, err
}

// callTools returns the options of the tools about calls. Without a store there is no log of older calls.
func (n *Node) callTools() runningtools.Options {
	o := runningtools.Options{Calls: n.calls, Followers: n.followers}
	if n.store != nil {
		o.Log = n.store.Audit()
	}
	return o
}

// health describes every source to an operator.
func (n *Node) health(ctx context.Context, p tool.Principal) []healthtools.Source {
	tools, broken := map[string]int{}, map[string][]string{}
	for spec, why := range n.catalog.Specs(ctx, p) {
		switch {
		case spec.Name == "": // its source reports why
		case why == nil:
			tools[spec.Source]++
		default:
			broken[spec.Source] = append(broken[spec.Source], spec.Name+" cannot be called: "+message(why))
		}
	}
	held := map[string]int{}
	for _, h := range n.engine.Held() {
		held[h.Now.Source]++
	}
	list := []healthtools.Source{}
	for _, s := range n.Sources() {
		one := healthtools.Source{
			Name: s.Name, Protocol: s.Protocol, State: healthtools.StateOpen, Since: s.Since, Tools: tools[s.Name],
			Held: held[s.Name], Workers: s.Workers, Unavailable: len(broken[s.Name]),
		}
		switch {
		case s.Opening:
			one.State, one.Error = healthtools.StateOpening, message(s.Err)
		case s.Err != nil:
			one.State, one.Error = healthtools.StateFailed, message(s.Err)
		case s.Stale != nil:
			one.Error = "its files changed and are not taken: " + message(s.Stale)
		case s.Lacks != nil:
			one.Error = message(s.Lacks)
		case one.Unavailable > 0:
			one.Error = broken[s.Name][0]
		}
		list = append(list, one)
	}
	return list
}

// sessions are those of the store, as the session tools see them: nothing that they store contains a secret.
type sessions struct {
	*store.SessionTable
	redactor *secret.Redactor
}

// PatchAt implements statetools.Sessions.
func (s sessions) PatchAt(
	ctx context.Context, caller, session string, seen int64, patches []map[string]any,
) (int64, error) {
	clean := make([]map[string]any, len(patches))
	for i, p := range patches {
		clean[i], _ = s.redactor.Value(p).(map[string]any) // it stays an object
	}
	return s.SessionTable.PatchAt(ctx, caller, session, seen, clean)
}

// resumes reports whether a tool of ours may take a long time, and continues after an interruption.
func resumes(s *tool.Spec) bool { return s.Source == config.OwnSource && s.Name == plantools.Run }

// inside is the engine for tools that call other tools: they set the parents of their calls themselves, and wait for the
// decision on a call that needs an approval.
type inside struct {
	tool.Handler
	tool.Catalog
}

func (n *Node) inside() inside { return inside{n.keep.approvals.Waiting(n.engine), n.catalog} }

// bindPlans gives plans the engine, which receives their calls without a door, and a store to last in.
func (n *Node) bindPlans() {
	in := n.inside()
	n.plans.Handler, n.plans.Catalog = in.Handler, in.Catalog
	if n.store == nil {
		return
	}
	n.plans.Store, n.plans.Settled = n.store.Plans(), time.Now().Add(settling)
	n.plans.Again = func(c *tool.Call, id string) ([]byte, error) {
		on := *c
		on.Tool, on.Args, on.Lease = plantools.Run, plantools.Args(id), ""
		return n.jobs.Request(&on)
	}
}

func (n *Node) planTools() plantools.Options {
	o := plantools.Options{
		Executor: n.plans, Planner: func(p tool.Principal, name string) (plan.Planner, error) {
			return n.planners.Named(p, name)
		},
	}
	if n.store != nil {
		o.Store = n.store.Plans()
	}
	return o
}

// recoverPlans continues the plans of ended programs, as jobs.
func (n *Node) recoverPlans(ctx context.Context) error {
	found, err := n.plans.Recover(ctx, func(ctx context.Context, r plan.Record) error {
		return n.jobs.Later(ctx, r.Call, r.Caller, plantools.Run, r.Request)
	})
	if found > 0 {
		n.o.Log.Warn("a program ended while it ran plans; they go on as jobs", "plans", found)
	}
	return err
}

// openJobs makes the queue of jobs, if there is a store to keep them in. It runs while the node serves.
func (n *Node) openJobs() {
	if n.store == nil {
		return
	}
	n.jobs = job.New(job.Options{
		Store:     n.store.Jobs(),
		Handler:   n.engine,
		Lookup:    n.catalog.Lookup,
		Own:       func(s *tool.Spec) bool { return s.Source == config.OwnSource && !resumes(s) },
		Resumes:   resumes,
		Known:     func(id string) (*tool.Rights, bool) { return n.callers.Load().Known(id) },
		Admit:     n.stillAdmitted,
		Available: n.engine.WhyNot, Settling: settling,
		Drain: time.Duration(n.cfg.Limits.Drain),
		Keep:  time.Duration(n.storing.Jobs),
		Log:   n.o.Log,
	})
}

// stillAdmitted refuses the caller of a job if its token was revoked, it has no live one, and the config does not list it. A
// caller that never had a token here is known by other credentials.
func (n *Node) stillAdmitted(ctx context.Context, p tool.Principal) error {
	if p.Rights == nil { // an operator
		return nil
	}
	tokens, err := n.store.Tokens().Of(ctx, p.ID)
	if err != nil {
		return err
	}
	has := func(state string) bool {
		return slices.ContainsFunc(tokens, func(t identity.Token) bool { return t.State == state })
	}
	if _, listed := n.callers.Load().Known(p.ID); has(identity.Revoked) && !has(identity.Live) && !listed {
		return tool.Errorf(tool.CodeAccessDenied, "the token of %q was revoked", p.ID).Because("caller_gone")
	}
	return nil
}
