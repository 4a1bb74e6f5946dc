package fleet

import (
	"cmp"
	"context"

	"toolpost/engine/idempotency"
	"toolpost/fleet/late"
	"toolpost/tool"
)

// Doubted notes a call whose outcome nobody here knows: this hub has lost sight of it, or its own hub has ended. Once its node can be
// asked, the outcome becomes a row of the record: rows are not altered, and the one of the call stays as it is.
func (n *Node) Doubted(r *tool.Record) {
	if n != nil && n.hub != nil && r != nil && r.Call != "" && !r.ReadOnly {
		n.doubts.Add(r)
	}
}

// Recovered notes calls whose own hub has ended. Their records name that hub, and not the node that had the call.
func (n *Node) Recovered(lost []*tool.Record) {
	for _, r := range lost {
		of := *r
		of.Node = ""
		n.Doubted(&of)
	}
}

// settleDoubts looks for the outcomes of such calls, until the node ends, and first for those of which this program, or another hub, knew
// before it ended: the record is the list of them.
func (n *Node) settleDoubts() {
	for again := n.env.Rows != nil; again; again = tool.Sleep(n.life, late.Every) {
		if n.doubtAgain() == nil {
			break
		}
	}
	n.doubts.Settle(n.life, n.settle)
}

func (n *Node) doubtAgain() error {
	all, err := late.Unknown(n.life, n.env.Rows)
	if err != nil {
		return err
	}
	hubs := map[string]bool{}
	for _, m := range n.roster.All() {
		hubs[m.Name] = m.Role == roleHub
	}
	for _, r := range all {
		if r.Outcome == tool.OutcomeLost {
			n.Recovered([]*tool.Record{r})
		} else if isHub, member := hubs[r.Node]; member && !isHub {
			n.Doubted(r)
		}
	}
	return nil
}

// settle looks for the outcome of one call, and reports whether there is nothing more to look for.
func (n *Node) settle(ctx context.Context, d *late.Call) bool {
	of := &d.Of
	again := &tool.Call{Caller: tool.Principal{ID: of.Caller}, Session: of.Session, Key: of.Key, Spec: n.hub.specOf(of)}
	again.Record = of
	if again.Spec == nil { // its nodes are gone, or it ran at a hub
		return n.host.brings(of.Source)
	}
	ctx, stop := context.WithTimeout(ctx, askWithin)
	defer stop()
	all, silent := n.pasts(ctx, idempotency.First{Call: of.Call}, again, false)
	for node, p := range all {
		if len(all) == 1 && p.State == callEnded {
			return n.late(ctx, d, again.Spec, node, p)
		}
		return p.State != callRuns || len(all) > 1 // it died, or one of several nodes lies
	}
	// If it is not known which node had it, as after the end of its own hub, the node may be one that has not opened its sources yet.
	return len(silent) == 0 && (of.Node != "" || d.Rarely())
}

// What hubs share of calls in their store, in place of the id of a node, of which there is none such.
const (
	pageLate = "late" // the outcome of a call as a worker knew it
	pageRow  = "row"  // who adds it to the record
)

// remember copies an outcome from the journal of a worker to the store of the hubs: the worker may be gone when it is asked for again.
func (n *Node) remember(ctx context.Context, node, call string, p past) error {
	if n.host.journal == nil {
		return nil
	}
	p.Node = node
	scope := page(pageLate, call)
	claim, err := n.host.journal.Claim(ctx, scope, [32]byte(p.Whose), call, idempotency.LostFor)
	if err == nil && claim.Lost { // a hub ended while it did this
		claim.Mine, err = n.host.journal.Take(ctx, scope, claim, call, idempotency.LostFor)
	}
	switch {
	case err != nil || claim.Result != nil:
		return err
	case !claim.Mine:
		return tool.Errorf(tool.CodeUnavailable, "another hub keeps the outcome of the call %s", call)
	}
	kept, err := keptOf(call, p)
	if err == nil {
		err = n.host.journal.Settle(ctx, scope, kept, idempotency.LostFor)
	}
	return err
}

// late adds the outcome of a call to the record, and reports whether it is there. It may be the error that the record has: that was a
// guess. Several hubs may look for one call.
func (n *Node) late(ctx context.Context, d *late.Call, spec *tool.Spec, node string, p past) bool {
	r, err := p.outcome(node, d.Of.Call)
	scope := page(pageRow, d.Of.Call)
	if d.Row == nil {
		mine, there := n.takeRow(ctx, scope, d.Of.Call, p)
		if !mine {
			return there
		}
		d.Row = late.Row(&d.Of, node, r, err)
		n.hub.attestedLate(&d.Of, d.Row, spec, &p)
	}
	if err := n.env.Late(ctx, d.Row); err != nil {
		return false
	}
	_ = n.host.journal.Settle(ctx, scope, []byte("true"), idempotency.LostFor) // likewise
	n.env.Log.Info("the outcome of a call that was lost is known now", "call", d.Of.Call, "tool", d.Of.Tool, "node", node, "outcome", d.Row.Outcome)
	return true
}

// takeRow lets this hub add the outcome of a call to the record, unless another one does, or it is there.
func (n *Node) takeRow(ctx context.Context, scope [32]byte, call string, p past) (mine, there bool) {
	claim, err := n.host.journal.Claim(ctx, scope, [32]byte(p.Whose), call, idempotency.LostFor)
	if err != nil || claim.Mine || claim.Result != nil || !claim.Lost {
		return err == nil && claim.Mine, claim.Result != nil
	}
	there, err = late.Has(ctx, n.env.Rows, call) // its hub ended before it could say so
	if err == nil && !there {
		mine, err = n.host.journal.Take(ctx, scope, claim, call, idempotency.LostFor)
	}
	return mine && err == nil, there
}

// specOf returns the tool of a call as the nodes define it, or nil.
func (h *hub) specOf(r *tool.Record) *tool.Spec {
	h.mu.Lock()
	s := h.sources[r.Source]
	h.mu.Unlock()
	if s == nil {
		return nil
	}
	for name, t := range *s.tools.Load() {
		if name = tool.VisibleName(name); r.Tool == name || r.Tool == r.Source+"."+name {
			return cmp.Or(t.versions[r.Definition], t.version).spec()
		}
	}
	return nil
}
