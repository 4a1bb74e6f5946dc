package fleet

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/engine/member"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Journal remembers what became of the calls of hubs that may change something.
type Journal interface {
	idempotency.Outcomes
	Known(ctx context.Context, scope [32]byte, ttl time.Duration) (c idempotency.Claim, known bool, err error)
}

// journalFor is how long an outcome is remembered. The key of a call is, at most, as long.
const journalFor = 24 * time.Hour

// mostKept bounds the bytes of an outcome in a journal.
const mostKept = 1 << 20

// The states of a call, as the journal of a node has them.
const (
	callUnknown = "unknown" // it did not begin there
	callRuns    = "runs"
	callDied    = "died" // it began, and its program ended before it
	callEnded   = "ended"
)

// A past is what a node knows of a call.
type past struct {
	State string `json:"state"`
	Kind  kind   `json:"kind,omitempty"` // of the last message of the call: kindResult or kindError
	Body  []byte `json:"body,omitempty"`
}

// page is the key of a call of a node in a journal, which hubs share.
func page(node, call string) [32]byte {
	return sha256.Sum256([]byte("fleet call\x00" + node + "\x00" + call))
}

// A journaled runs calls that may change something, unless they have begun here before, and notes what becomes of each: before it
// runs that it begins, and before the answer is sent what it is.
type journaled struct{ *host }

func (j journaled) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	claim, err := j.journal.Claim(ctx, page(j.id, c.ID), sha256.Sum256(c.Args), c.ID, journalFor)
	switch {
	case err != nil:
		return nil, busy("cannot write its journal: %w", err)
	case !claim.Mine:
		return nil, tool.Errorf(tool.CodeConflict, "the call %s has begun on this node before; it is not run again", c.ID).Because(reasonLink)
	}
	r, failed := j.machine.Invoke(ctx, c, out)
	keep, err := keptOf(c, r, failed)
	if err == nil {
		err = j.journal.Settle(context.WithoutCancel(ctx), page(j.id, c.ID), keep, journalFor)
	}
	if err != nil {
		j.log.Warn("the outcome of a call cannot be written to the journal: if its hub does not get it now, it is lost", "call", c.ID, "error", err)
	}
	return r, failed
}

// keptOf returns what the journal keeps of an outcome: nothing of a call that was refused, which has not begun, or that asks a
// question, which has not ended.
func keptOf(c *tool.Call, r *tool.Result, failed error) ([]byte, error) {
	if tool.NotRun(failed) || failed == nil && r.Ask != nil {
		return nil, nil
	}
	p := past{State: callEnded, Kind: kindError, Body: encodeError(failed)}
	if failed == nil {
		body, err := encodeResult(r)
		if err != nil {
			return nil, err
		}
		p.Kind, p.Body = kindResult, body
	}
	if len(p.Body) > mostKept {
		p.Kind, p.Body = kindError, encodeError(tool.Errorf(tool.CodeUnsupported, "%s has ended, and its outcome was too large to be kept", c.Tool))
	}
	return strictjson.Marshal(p)
}

// past returns what the journal of this node knows of a call at a node: this one, or another hub.
func (h *host) past(ctx context.Context, node, call string) (p past, err error) {
	if h.journal == nil {
		return past{State: callUnknown}, nil
	}
	claim, known, err := h.journal.Known(ctx, page(node, call), journalFor)
	switch {
	case err != nil:
		return p, err
	case !known:
		return past{State: callUnknown}, nil
	case claim.Lost:
		return past{State: callDied}, nil
	case claim.Result == nil:
		return past{State: callRuns}, nil
	}
	return p, strictjson.Unmarshal(claim.Result, &p)
}

// Outcome asks the nodes what became of a call of which its hub has lost sight. It returns its outcome, or why none is known:
// not_found if no node has begun it. If the tool is given, only nodes that may run it are believed: another one must not make up the
// outcomes of calls that it would never get.
func (n *Node) Outcome(ctx context.Context, call string, of *tool.Spec) (r *tool.Result, node string, err error) {
	ctx, stop := context.WithTimeout(ctx, askWithin)
	defer stop()
	all, silent := n.pasts(ctx, call, of)
	names := slices.Sorted(maps.Keys(all))
	switch {
	case len(names) == 1:
		r, err := all[names[0]].outcome(names[0], call)
		return r, names[0], err
	case len(names) > 1:
		err = tool.Errorf(tool.CodeConflict, "several nodes say that they have begun the call %s, of which one may lie: %s", call, strings.Join(names, ", "))
	case len(silent) > 0:
		err = tool.Errorf(tool.CodeConflict, "what became of the call %s is not known while these nodes cannot be asked: %s", call, strings.Join(silent, ", "))
	default:
		return nil, "", tool.Errorf(tool.CodeNotFound, "no node of the fleet remembers the call %s: it is older than a day, or could not change "+
			"anything, or ran at its hub; `toolpost audit log` has those that ended", call)
	}
	return nil, "", tool.AsError(err).Because(idempotency.Unknown)
}

// outcome returns the result of a call, or why there is none.
func (p past) outcome(node, call string) (*tool.Result, error) {
	switch {
	case p.State == callRuns:
		return nil, tool.Errorf(tool.CodeConflict, "the call %s still runs at the node %s; ask again later", call, node).
			Because(idempotency.Unknown).RetryAfter(time.Second)
	case p.State == callDied:
		return nil, tool.Errorf(tool.CodeConflict, "the node %s ended while it ran the call %s: whether it had an effect is not known; look "+
			"before you call again with a new key", node, call).Because(idempotency.Unknown)
	case p.Kind == kindError:
		return nil, ended(p.Body)
	}
	r, _, err := decodeResult(p.Body)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "what the node %s knows of the call %s cannot be read: %w", node, call, err).Because(reasonLink)
	}
	return r, nil
}

// pasts asks members at once, and returns what those know that have begun the call, and who cannot be asked. What hubs know is
// in the store that they share.
func (n *Node) pasts(ctx context.Context, call string, of *tool.Spec) (all map[string]past, silent []string) {
	all = map[string]past{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, m := range n.roster.all() {
		if !m.Evicted.IsZero() && time.Since(m.Evicted) > journalFor || of != nil && n.hub.lacks(m.ID, of) {
			continue
		}
		asking.Go(func() {
			p, err := n.pastAt(ctx, m, call)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, m.Name)
			} else if p.State != callUnknown {
				all[m.Name] = p
			}
		})
	}
	asking.Wait()
	slices.Sort(silent)
	return all, silent
}

// lacks reports that a connected node does not have a tool as the hub knows it.
func (h *hub) lacks(node string, of *tool.Spec) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peers[node]
	if p == nil || p.listed == "" {
		return false
	}
	o := p.tools[toolKey(of.Source, ownName(of))]
	return o == nil || o.digest != of.Digest
}

func (n *Node) pastAt(ctx context.Context, m member.Member, call string) (p past, err error) {
	if m.Role == roleHub {
		return n.host.past(ctx, m.ID, call)
	}
	answer, err := n.order(ctx, m, order{Do: orderPast, Call: call}, tool.Discard)
	if err == nil {
		err = strictjson.Unmarshal(answer, &p)
	}
	return p, err
}
