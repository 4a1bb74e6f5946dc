package node

import (
	"context"

	assettools "toolpost/builtin/asset"
	audittools "toolpost/builtin/audit"
	"toolpost/builtin/define"
	jobtools "toolpost/builtin/job"
	statetools "toolpost/builtin/state"
	tokentools "toolpost/builtin/token"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/host/secret"
	"toolpost/store"
)

// ownTools gives the source of the tools that Toolpost itself brings: for assets; for leases, where calls need them or
// others that share the store may; and for sessions, jobs, tokens and the log of calls, where these last. They are one
// source, so that a policy can name it.
func (n *Node) ownTools(ctx context.Context) ([]engine.Binding, error) {
	all := []*define.Set{assettools.New(n.keep.assets)}
	if n.leaseTier > 0 || n.store != nil {
		all = append(all, n.issuer(n.keep.leases))
	}
	if n.store != nil {
		all = append(all, statetools.New(sessions{n.store.Sessions(), n.redactor}), jobtools.New(n.jobs),
			tokentools.New(tokens{n.store.Tokens(), n}), audittools.New(n.store.Audit()))
	}
	one := define.Join(all...)
	specs, err := one.Tools(ctx)
	for _, s := range specs {
		s.Unlisted = true // they are about calls: nobody looks for them among tools that do something
	}
	return []engine.Binding{{Name: config.OwnSource, Protocol: "builtin", Runner: one}}, err
}

// sessions are those of the store, as the tools about them see them: nothing that they keep has a secret.
type sessions struct {
	*store.SessionTable
	redactor *secret.Redactor
}

// PatchAt implements statetools.Sessions.
func (s sessions) PatchAt(ctx context.Context, caller, session string, seen int64, patches []map[string]any) (int64, error) {
	clean := make([]map[string]any, len(patches))
	for i, p := range patches {
		clean[i], _ = s.redactor.Value(p).(map[string]any) // it stays an object
	}
	return s.SessionTable.PatchAt(ctx, caller, session, seen, clean)
}
