package fleet

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/engine/member"
	"toolpost/tool"
	"toolpost/wire/receipt"
)

// signsSince is the version of the link from which on nodes sign receipts.
const signsSince = 2

// attest signs bytes with the key of this node.
func (n *Node) attest(b []byte) (key string, signature []byte, err error) {
	n.mu.Lock()
	p := n.pass
	n.mu.Unlock()
	if key, err = p.Public(); err == nil {
		signature, err = p.Sign(b)
	}
	return key, signature, err
}

// receipt signs what became of a call that ran here, for a hub that can read that.
func (h *host) receipt(a accepted, out *remoteSink, begin time.Time, p *past, r *tool.Result, failed error) []byte {
	if a.of.Receipt < receipt.Version {
		return nil
	}
	doc := receipt.Receipt{
		Begin: begin, End: time.Now(), Node: h.name, Call: a.ID, Attempt: a.of.Attempt, Source: a.of.Source, Tool: a.of.Tool, Definition: a.of.Digest,
		Walls: strings.FieldsFunc(a.Record.Walls, func(r rune) bool { return r == ',' }), Stopped: out.stopped.List(),
	}
	doc.Outcome, doc.Code, _ = tool.OutcomeOf(r, failed)
	b, err := receipt.Sign(&doc, a.Args, p.answer(), h.attest)
	if err != nil {
		h.log.Warn("a call has no receipt", "call", a.ID, "error", err)
	}
	return b
}

// answer is what a receipt has a digest of: the last message of a call, in parts, since it may be large.
func (p *past) answer() [][]byte { return [][]byte{{byte(p.Kind)}, p.Body} }

// attested notes the receipt of a call that has ended at a node. Without one, or with a bad one, the outcome counts nevertheless: it
// is real.
func (h *hub) attested(c *tool.Call, p *peer, st *stream, digest string, attempt int, r *tool.Result, err error) {
	said := st.last.kind != 0 || errors.As(err, new(quit)) // the node, and not this hub, says how the call has ended
	if c.Record == nil || !said || c.Spec.Effects.Repeatable() || tool.NotRun(err) || p.Link < signsSince && st.receipt == nil {
		return
	}
	want := receipt.Receipt{Node: p.Name, Call: c.ID, Attempt: attempt, Source: c.Spec.Source, Tool: ownName(c.Spec), Definition: digest}
	want.Outcome, want.Code, _ = tool.OutcomeOf(r, err)
	ended := past{Kind: st.last.kind, Body: st.last.body}
	h.judge(&receipt.Claim{Receipt: want, Args: [][]byte{c.Args}, Answer: ended.answer()}, st.receipt, c.Record, time.Now())
}

// attestedLate notes the receipt of an outcome that came late, in its row. The tool may have another definition since, and
// the call may have begun by another one than the note says, whose nodes were gone.
func (h *hub) attestedLate(of, row *tool.Record, spec *tool.Spec, p *past) {
	if !h.signs(row.Node) && p.Receipt == nil {
		return
	}
	want := receipt.Claim{Receipt: receipt.Receipt{Node: row.Node, Call: of.Call, Source: of.Source, Tool: ownName(spec)}}
	if !p.Cut {
		want.Outcome, want.Code, want.Answer = row.Outcome, row.Code, p.answer()
	}
	h.judge(&want, p.Receipt, row, time.Now().Add(-idempotency.LostFor))
}

// judge puts a receipt into a record, with what is wrong about it. The node must have had its key since a time.
func (h *hub) judge(want *receipt.Claim, came []byte, into *tool.Record, since time.Time) {
	want.Held = func(key string) bool {
		if member.Held(h.roster.All(), want.Node, key, since, time.Now()) {
			return true
		}
		m, _ := h.roster.Known(key) // it may be new
		return m.Name == want.Node
	}
	var err error
	if into.Receipt, err = want.Judge(came, into.Args); err != nil {
		h.log.Warn("the receipt of a call is wrong; its record says so", "node", want.Node, "call", want.Call, "tool", want.Tool, "error", err)
	}
}

// signs reports whether a node should sign receipts.
func (h *hub) signs(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Values(h.peers)), func(p *peer) bool { return p.Name == node && p.Link >= signsSince })
}
