package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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

// mostKept bounds the bytes of an outcome in a journal.
const mostKept = 1 << 20

// The states of a call, as the journal of a node has them.
const (
	callUnknown = "unknown" // it did not begin there
	callRuns    = "runs"
	callDied    = "died" // it began, and its program ended before it
	callEnded   = "ended"
	callRefused = "refused" // it will never begin there: a call that repeats it runs in its place
)

// A past is what a node knows of a call.
type past struct {
	State string `json:"state"`
	Whose []byte `json:"whose,omitempty"`
	Kind  kind   `json:"kind,omitempty"` // of the last message of the call: kindResult or kindError
	Body  []byte `json:"body,omitempty"`
	Cut   bool   `json:"cut,omitempty"` // the outcome was too large, and the body says so

	Receipt []byte `json:"receipt,omitempty"`
	Node    string `json:"node,omitempty"` // in the store of the hubs: the one that said so
}

// page is the key of a call of a node in a journal, which hubs share.
func page(node, call string) [32]byte {
	return sha256.Sum256([]byte("fleet call\x00" + node + "\x00" + call))
}

// whose identifies the caller of a call and its key. Callers may choose the ids of their calls: a repeat gets the outcome of its own
// alone, and a node that never had the call cannot tell whose it was.
func whose(c *tool.Call) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q", []string{c.Caller.ID, c.Session, c.Key}))
}

// once runs a call that may change something, unless it has begun here before, and notes what becomes of it: before it runs that it
// begins, and before the answer is sent what it is.
func (h *host) once(ctx context.Context, a accepted, s *stream, out *remoteSink) ([]byte, error) {
	if a.Record == nil {
		a.Record = &tool.Record{}
	}
	begin := time.Now()
	if h.journal != nil {
		s.lasts.Store(true)
		switch claim, err := h.journal.Claim(ctx, page(h.id, a.ID), whose(a.Call), a.ID, idempotency.LostFor); {
		case err != nil:
			return nil, busy("cannot write its journal: %w", err)
		case !claim.Mine && of(claim).State == callRefused:
			return nil, tool.BeforeRun(tool.Errorf(tool.CodeConflict, "another call has the idempotency key of the call %s by now; call again with "+
				"the key to get its outcome", a.ID).Because(idempotency.Unknown))
		case !claim.Mine:
			err := tool.Errorf(tool.CodeConflict, "the call %s has begun on this node before; it is not run again", a.ID).Because(reasonLink)
			s.receipt = h.receipt(a, out, begin, &past{Kind: kindError, Body: encodeError(err)}, nil, err)
			return nil, err
		}
	}
	r, failed := h.machine.Invoke(ctx, a.Call, out)
	p, keep := past{State: callEnded, Kind: kindResult}, past{}
	if failed == nil {
		h.keepQuestion(r)
		p.Body, failed = encodeResult(r)
	}
	if failed != nil {
		p.Kind, p.Body = kindError, encodeError(failed)
	}
	if !tool.NotRun(failed) {
		s.receipt = h.receipt(a, out, begin, &p, r, failed)
		if p.Receipt = s.receipt; failed != nil || r.Ask == nil {
			keep = p
		}
	}
	if h.journal != nil {
		h.keep(ctx, a, keep)
	}
	return p.Body, failed
}

// keep notes in the journal how a call has ended; an empty past is that of one that was refused, and has not begun, or that asks a
// question, and has not ended.
func (h *host) keep(ctx context.Context, a accepted, p past) {
	kept, err := keptOf(a.Tool, p)
	if err == nil {
		err = h.journal.Settle(context.WithoutCancel(ctx), page(h.id, a.ID), kept, idempotency.LostFor)
	}
	if err != nil {
		h.log.Warn("the outcome of a call cannot be written to the journal yet; it is lost if this program ends before", "call", a.ID, "error", err)
	}
}

// keptOf returns what the journal keeps of the end of a call.
func keptOf(name string, p past) ([]byte, error) {
	switch {
	case p.State == "":
		return nil, nil
	case len(p.Body) > mostKept:
		p.Cut, p.Kind = true, kindError
		p.Body = encodeError(tool.Errorf(tool.CodeUnsupported, "%s has ended, and its outcome was too large to be kept", name))
	}
	return strictjson.Marshal(p)
}

// past returns what the journal of this node knows of a call at a node: this one, or another hub.
func (h *host) past(ctx context.Context, node, call string) (p past, err error) {
	if h.journal == nil {
		return past{State: callUnknown}, nil
	}
	claim, known, err := h.journal.Known(ctx, page(node, call), idempotency.LostFor)
	if err != nil || !known {
		return past{State: callUnknown}, err
	}
	return of(claim), nil
}

// of returns what a journal has of a call.
func of(claim idempotency.Claim) (p past) {
	switch {
	case claim.Input == [32]byte{}: // of no caller: see refuse
		return past{State: callRefused}
	case claim.Lost:
		p.State = callDied
	case claim.Result == nil:
		p.State = callRuns
	default:
		if err := strictjson.Unmarshal(claim.Result, &p); err != nil {
			p = past{State: callEnded, Kind: kindError, Body: encodeError(tool.Errorf(tool.CodeInternal, "the journal cannot be read: %w", err))}
		}
	}
	p.Whose = claim.Input[:]
	return p
}

// refuse lets a call never begin at a node, unless it has begun. A journal that may have forgotten a call of that age does not say so.
func (h *host) refuse(ctx context.Context, node, call string, age time.Duration) (past, error) {
	if h.journal == nil {
		return past{State: callUnknown}, nil
	}
	claim, err := h.journal.Claim(ctx, page(node, call), [32]byte{}, call, idempotency.LostFor)
	if err != nil || !claim.Mine {
		return of(claim), err
	}
	reach, err := h.journal.Reach(ctx)
	if err != nil || age+askWithin >= min(reach, idempotency.LostFor) { // an order may be on its way for askWithin
		return past{State: callUnknown}, cmp.Or(h.journal.Settle(ctx, page(node, call), nil, 0), err)
	}
	return past{State: callRefused}, h.journal.Settle(ctx, page(node, call), []byte("true"), idempotency.LostFor)
}

// Outcome asks the nodes what became of a call of which its hub has lost sight. It returns its outcome, or why none is known:
// not_found if no node has begun it.
func (n *Node) Outcome(ctx context.Context, call string) (r *tool.Result, node string, err error) {
	return n.outcome(ctx, idempotency.First{Call: call}, nil, false)
}

// outcome is Outcome for a call that repeats it: only nodes are believed that have its tool, and know whose it is, as another one must
// not make up the outcomes of calls that it would never get. If the call is to be refused, not_found means that it never will begin.
func (n *Node) outcome(ctx context.Context, first idempotency.First, again *tool.Call, refuse bool) (r *tool.Result, node string, err error) {
	ctx, stop := context.WithTimeout(ctx, askWithin)
	defer stop()
	call := first.Call
	all, silent := n.pasts(ctx, first, again, refuse)
	names := slices.Sorted(maps.Keys(all))
	switch {
	case len(names) == 1:
		r, err := all[names[0]].outcome(names[0], call)
		return r, names[0], err
	case len(names) > 1:
		err = tool.Errorf(tool.CodeConflict, "several nodes say that they have begun the call %s, of which one may lie: %s", call, strings.Join(names, ", "))
	case len(silent) > 0:
		err = tool.Errorf(tool.CodeConflict, "what became of the call %s is not known while these nodes cannot be asked: %s; they remember it for a day", call, strings.Join(silent, ", "))
	default:
		return nil, "", tool.Errorf(tool.CodeNotFound, "no node of the fleet remembers the call %s: it is older than a day, or could not change "+
			"anything, or ran at its hub; `toolpost audit log` has those that ended", call)
	}
	return nil, "", tool.AsError(err).Because(idempotency.Unknown)
}

// Late implements idempotency.Late. A call that repeats another one under its id cannot run in its place. By which definition the repeat
// would run does not matter: shares may have changed since.
func (n *Node) Late(ctx context.Context, first idempotency.First, again *tool.Call) (r *tool.Result, never bool, err error) {
	if n == nil || again.Spec == nil {
		return nil, false, nil
	}
	refuse := again.Spec.Digest != "" && again.ID != first.Call
	by, spec := *again, *again.Spec
	by.Spec, spec.Digest = &spec, cmp.Or(first.Digest, spec.Digest)
	if refuse { // a node that has just joined may have it
		if err := n.roster.Refresh(ctx); err != nil {
			return nil, false, err
		}
	}
	r, node, err := n.outcome(ctx, first, &by, refuse)
	if node == "" && tool.CodeOf(err) == tool.CodeNotFound {
		return nil, refuse, nil
	}
	return r, false, err
}

// ErrRuns is in the error of a call that has not ended.
var ErrRuns = errors.New("still runs")

// outcome returns the result of a call, or why there is none.
func (p past) outcome(node, call string) (*tool.Result, error) {
	switch {
	case p.State == callRuns:
		return nil, tool.Errorf(tool.CodeConflict, "the call %s %w at the node %s; ask again later", call, ErrRuns, node).
			Because(idempotency.Unknown).RetryAfter(time.Second)
	case p.State == callDied:
		return nil, tool.Errorf(tool.CodeConflict, "the node %s ended while it ran the call %s: whether it had an effect is not known; look "+
			"before you call again with a new key", node, call).Because(idempotency.Unknown)
	case p.Kind == kindError && !tool.NotRun(ended(p.Body)):
		return nil, ended(p.Body)
	}
	r, _, err := decodeResult(p.Body)
	if err == nil && r.Ask != nil {
		err = errors.New("it asks a question")
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "what the node %s knows of the call %s cannot be read: %w", node, call, err).Because(reasonLink)
	}
	return r, nil
}

// pasts returns what those know that have begun a call, and who cannot be asked. What a hub has learnt of its end is in the store.
func (n *Node) pasts(ctx context.Context, first idempotency.First, again *tool.Call, refuse bool) (all map[string]past, silent []string) {
	if p, err := n.host.past(ctx, pageLate, first.Call); err == nil && p.State == callEnded && p.fits(again) {
		return map[string]past{p.Node: p}, nil
	}
	all, silent = n.askAll(ctx, first, again, refuse)
	for node, p := range all {
		if len(all) != 1 || p.State != callEnded || again == nil {
			break
		}
		if err := n.remember(ctx, node, first.Call, p); err != nil { // no caller is told what the next one may not learn
			n.env.Log.Warn("the outcome of a lost call is not told yet: the store does not take it", "call", first.Call, "error", err)
			return nil, append(silent, node)
		}
	}
	return all, silent
}

// fits reports whether a past may be that of a call which another one repeats.
func (p past) fits(again *tool.Call) bool {
	if again == nil {
		return true
	}
	w := whose(again)
	return bytes.Equal(p.Whose, w[:])
}

// askAll asks members at once, and returns what those know that have begun the call, and who cannot be asked. What hubs know is
// in the store that they share. If the call is to be refused, a node that can still begin it counts as one that cannot be asked.
func (n *Node) askAll(ctx context.Context, first idempotency.First, again *tool.Call, refuse bool) (all map[string]past, silent []string) {
	all = map[string]past{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, m := range n.roster.All() {
		if !m.Evicted.IsZero() && time.Since(m.Evicted) > idempotency.LostFor {
			continue
		}
		asking.Go(func() {
			p, err := n.pastAt(ctx, m, first, again, refuse)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, m.Name+map[bool]string{false: " (evicted)"}[m.Evicted.IsZero()])
			} else if p.State != callUnknown && p.State != callRefused {
				all[m.Name] = p
			}
		})
	}
	asking.Wait()
	slices.Sort(silent)
	return all, slices.Compact(silent)
}

func (n *Node) pastAt(ctx context.Context, m member.Member, first idempotency.First, again *tool.Call, refuse bool) (p past, err error) {
	has, err := n.hub.has(m, again)
	switch {
	case !has && !refuse:
		return past{State: callUnknown}, err
	case m.Role == roleHub && refuse:
		p, err = n.host.refuse(ctx, m.ID, first.Call, first.Age)
	case m.Role == roleHub:
		p, err = n.host.past(ctx, m.ID, first.Call)
	default:
		var answer []byte
		if answer, err = n.order(ctx, m, order{Do: orderPast, Call: first.Call, Refuse: refuse, Age: first.Age}, tool.Discard); err == nil {
			err = strictjson.Unmarshal(answer, &p)
		}
	}
	switch {
	case err != nil || again == nil || p.State == callRefused:
		return p, err
	case refuse && (!has || p.State == callUnknown):
		return p, tool.Errorf(tool.CodeUnavailable, "the node %s cannot say that it will never begin the call", m.Name)
	}
	if !p.fits(again) {
		p.State = callUnknown
	}
	return p, nil
}

// has reports whether a worker has the tool of a call, as the hub knows it: one that has another definition now may have had this one,
// and one that had the call has not opened the source of the tool yet.
// What hubs say is in the store.
func (h *hub) has(m member.Member, c *tool.Call) (bool, error) {
	if c == nil || m.Role == roleHub {
		return true, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peers[m.ID]
	if p == nil || p.listed == "" {
		return false, tool.Errorf(tool.CodeUnavailable, "the node %s has not said which tools it has", m.Name)
	}
	o := p.tools[toolKey(c.Spec.Source, ownName(c.Spec))]
	if o == nil && c.Record != nil && c.Record.Node == m.Name {
		return false, tool.Errorf(tool.CodeUnavailable, "the node %s, which had the call, does not offer %s now", m.Name, c.Spec.Ref())
	}
	if o != nil && o.digest != c.Spec.Digest {
		return false, tool.Errorf(tool.CodeUnavailable, "the node %s has another definition of %s now", m.Name, c.Spec.Ref())
	}
	return o != nil, nil
}
