package node

import (
	"context"
	"slices"
	"time"

	"toolpost/config"
	"toolpost/engine/job"
	"toolpost/identity"
	"toolpost/tool"
)

// openJobs makes the queue of jobs, where there is a store to keep them in. It runs while the node serves.
func (n *Node) openJobs() {
	if n.store == nil {
		return
	}
	n.jobs = job.New(job.Options{
		Store:     n.store.Jobs(),
		Handler:   n.engine,
		Lookup:    n.catalog.Lookup,
		Own:       func(s *tool.Spec) bool { return s.Source == config.OwnSource },
		Known:     func(id string) (*tool.Rights, bool) { return n.callers.Load().Known(id) },
		Admit:     n.stillAdmitted,
		Available: n.engine.WhyNot, Settling: openTimeout + lastRetry,
		Drain: time.Duration(n.cfg.Limits.Drain),
		Keep:  time.Duration(n.storing.Jobs),
		Log:   n.o.Log,
	})
}

// stillAdmitted refuses a caller of a job who had a token, has none any more, and whom the config does not list
// either. One who was never given a token here is known by something else.
func (n *Node) stillAdmitted(ctx context.Context, p tool.Principal) error {
	if p.Rights == nil { // whoever runs this
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
