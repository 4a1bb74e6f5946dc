package fleet

import (
	"cmp"
	"context"
	"slices"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/tool"
)

// Calls whose outcome this hub does not know. They are few, unless a node hangs; of more, the newest are left out.
const (
	mostDoubts = 4096
	doubtEvery = 5 * time.Second // looks at what the nodes know
	doubtRests = 5 * time.Minute // at most, between two looks for one call
)

// A doubt is a call that may have run to its end, or run still, though it has ended here.
type doubt struct {
	of     tool.Record
	asked  time.Duration
	next   time.Time
	giveUp time.Time
	row    *tool.Record // of its outcome: one row, however often the store has to be told
}

// Doubted notes a call whose outcome nobody here knows: this hub has lost sight of it, or its own hub has ended. Once its node can be
// asked, the outcome becomes a row of the record: rows are not altered, and the one of the call stays as it is.
func (n *Node) Doubted(r *tool.Record) {
	if n == nil || n.hub == nil || r == nil || r.Call == "" || r.ReadOnly {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.doubts) < mostDoubts {
		now := time.Now()
		n.doubts = append(n.doubts, &doubt{of: *r, asked: doubtEvery, next: now.Add(doubtEvery), giveUp: now.Add(idempotency.LostFor)})
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

// settleDoubts looks for the outcomes of such calls, until the node ends.
func (n *Node) settleDoubts() {
	for tool.Sleep(n.life, doubtEvery) {
		now := time.Now()
		n.mu.Lock()
		all := slices.Clone(n.doubts)
		n.mu.Unlock()
		for _, d := range all {
			if now.Before(d.next) || n.life.Err() != nil {
				continue
			}
			d.asked = min(2*d.asked, doubtRests)
			d.next = now.Add(d.asked)
			if n.settle(n.life, d) || now.After(d.giveUp) {
				n.mu.Lock()
				n.doubts = slices.DeleteFunc(n.doubts, func(one *doubt) bool { return one == d })
				n.mu.Unlock()
			}
		}
	}
}

// settle looks for the outcome of one call, and reports whether there is nothing more to look for.
func (n *Node) settle(ctx context.Context, d *doubt) bool {
	of := &d.of
	again := &tool.Call{Caller: tool.Principal{ID: of.Caller}, Session: of.Session, Key: of.Key, Spec: n.hub.specOf(of)}
	again.Record = of
	if again.Spec == nil { // its nodes are gone, or it ran at a hub
		return false
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
	return len(silent) == 0 && (of.Node != "" || d.asked == doubtRests)
}

// late adds the outcome of a call to the record, and reports whether it is there. It may be the error that the record has: that was a
// guess.
func (n *Node) late(ctx context.Context, d *doubt, spec *tool.Spec, node string, p past) bool {
	r, err := p.outcome(node, d.of.Call)
	if d.row == nil {
		d.row = n.lateRow(&d.of, spec, node, p, r, err)
	}
	if err := n.env.Late(ctx, d.row); err != nil {
		return false
	}
	n.env.Log.Info("the outcome of a call that was lost is known now", "call", d.of.Call, "tool", d.of.Tool, "node", node, "outcome", d.row.Outcome)
	return true
}

// lateRow makes the row of an outcome that came late.
func (n *Node) lateRow(of *tool.Record, spec *tool.Spec, node string, p past, r *tool.Result, err error) *tool.Record {
	row := &tool.Record{
		Time: time.Now(), Call: tool.NewID(), Parent: of.Call, Trace: of.Trace, Tool: of.Tool, Source: of.Source, Protocol: of.Protocol,
		Tier: of.Tier, Door: of.Door, Caller: of.Caller, Session: of.Session, Run: of.Run, Key: of.Key, Node: node, Kind: tool.LateOutcome,
	}
	row.Outcome, row.Code, row.Reason = tool.OutcomeOf(r, err)
	if r != nil {
		row.Out = int64(len(r.Output))
	}
	n.hub.attestedLate(of, row, spec, &p)
	return row
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
