package node

import (
	"context"
	"slices"

	assettools "toolpost/builtin/asset"
	jobtools "toolpost/builtin/job"
	statetools "toolpost/builtin/state"
	tokentools "toolpost/builtin/token"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/host/secret"
	"toolpost/store"
	"toolpost/tool"
)

// ownTools gives the source of the tools that Toolpost itself brings: for assets; for leases, where calls need them; for
// sessions and jobs, where these last; and for tokens, for the command that wants them. They are one source, so that a
// policy can name it.
func (n *Node) ownTools(ctx context.Context) ([]engine.Binding, error) {
	all := []ownRunner{assettools.New(n.keep.assets)}
	if n.leaseTier > 0 {
		all = append(all, n.issuer(n.keep.leases))
	}
	if n.store != nil {
		all = append(all, statetools.New(sessions{n.store.Sessions(), n.redactor}), jobtools.New(n.jobs))
	}
	if n.store != nil && n.o.Tokens {
		all = append(all, tokentools.New(tokens{n}))
	}
	one, err := bundled(ctx, all)
	return []engine.Binding{{Name: config.OwnSource, Protocol: "builtin", Runner: one}}, err
}

// An ownRunner is one of those that Toolpost itself brings.
type ownRunner interface {
	tool.Runner
	tool.Source
}

// sessions are those of the store, as the tools about them see them: nothing that they keep has a secret.
type sessions struct {
	*store.SessionTable
	redactor *secret.Redactor
}

// Get implements statetools.Sessions.
func (s sessions) Get(ctx context.Context, caller, session string) (statetools.State, error) {
	st, err := s.SessionTable.Get(ctx, caller, session)
	return statetools.State(st), err
}

// Next implements statetools.Sessions.
func (s sessions) Next(ctx context.Context, caller, session string, seen int64) (statetools.State, bool, error) {
	st, more, err := s.SessionTable.Next(ctx, caller, session, seen)
	return statetools.State(st), more, err
}

// PatchAt implements statetools.Sessions.
func (s sessions) PatchAt(ctx context.Context, caller, session string, seen int64, patches []map[string]any) (int64, error) {
	clean := make([]map[string]any, len(patches))
	for i, p := range patches {
		clean[i], _ = s.redactor.Value(p).(map[string]any) // it stays an object
	}
	return s.SessionTable.PatchAt(ctx, caller, session, seen, clean)
}

// A bundle is several runners as one.
type bundle struct {
	specs []*tool.Spec
	of    map[string]ownRunner // by the names of their tools
}

// bundled puts runners together. Their tools are about calls: nobody looks for them among those that do something.
func bundled(ctx context.Context, runners []ownRunner) (*bundle, error) {
	b := &bundle{of: map[string]ownRunner{}}
	for _, r := range runners {
		specs, err := r.Tools(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range specs {
			s.Unlisted, b.of[s.Name] = true, r
		}
		b.specs = append(b.specs, specs...)
	}
	return b, nil
}

// Tools implements tool.Source.
func (b *bundle) Tools(context.Context) ([]*tool.Spec, error) { return slices.Clone(b.specs), nil }

// Invoke implements tool.Handler.
func (b *bundle) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	r := b.of[c.Tool]
	if r == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", c.Tool)
	}
	return r.Invoke(ctx, c, out)
}

// Close implements tool.Runner. What these tools use is the node's, which closes it.
func (b *bundle) Close(context.Context) error { return nil }
