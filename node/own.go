package node

import (
	"context"
	"errors"
	"slices"

	assettools "toolpost/builtin/asset"
	jobtools "toolpost/builtin/job"
	statetools "toolpost/builtin/state"
	tokentools "toolpost/builtin/token"
	"toolpost/engine"
	"toolpost/secret"
	"toolpost/store"
	"toolpost/tool"
)

// ownTools gives the source of the tools that Toolpost itself brings: for assets; for leases, where calls need them; for
// sessions and jobs, where these last; and for tokens, for the command that wants them. They are one source, so that a
// policy can name it.
func (n *Node) ownTools(leaseTier int, keep keepers) []engine.Binding {
	all := bundle{assettools.New(keep.assets)}
	if leaseTier > 0 {
		all = append(all, n.issuer(keep.leases))
	}
	if n.store != nil {
		all = append(all, statetools.New(sessions{n.store.Sessions(), n.redactor}), jobtools.New(n.jobs))
	}
	if n.store != nil && n.o.Tokens {
		all = append(all, tokentools.New(tokens{n}))
	}
	return []engine.Binding{{Name: ownSource, Protocol: "builtin", Runner: &all}}
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
type bundle []tool.Runner

// Tools implements tool.Source. They are tools about calls, which nobody looks for among those that do something.
func (b *bundle) Tools(ctx context.Context) (all []*tool.Spec, err error) {
	for _, r := range *b {
		specs, err := toolsOf(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, s := range specs {
			s.Unlisted = true
		}
		all = append(all, specs...)
	}
	return all, nil
}

func toolsOf(ctx context.Context, r tool.Runner) ([]*tool.Spec, error) {
	if s, ok := r.(tool.Source); ok {
		return s.Tools(ctx)
	}
	return nil, nil
}

// Invoke implements tool.Handler.
func (b *bundle) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	for _, r := range *b {
		specs, err := toolsOf(ctx, r)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(specs, func(s *tool.Spec) bool { return s.Name == c.Tool }) {
			return r.Invoke(ctx, c, out)
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", c.Tool)
}

// Close implements tool.Runner.
func (b *bundle) Close(ctx context.Context) error {
	var errs []error
	for _, r := range *b {
		errs = append(errs, r.Close(ctx))
	}
	return errors.Join(errs...)
}
