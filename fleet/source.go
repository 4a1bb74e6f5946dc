package fleet

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/fleet/lent"
	"toolpost/fleet/spool"
	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/packed"
	"toolpost/wire/strictjson"
)

// A Source is a source of the fleet, for the catalogue of a hub: it runs calls on the nodes that have the tool.
type Source struct {
	Name string
	hub  *hub
	tool.Changes
	tools atomic.Pointer[map[string]*shared]
}

var (
	_ tool.Runner   = (*Source)(nil)
	_ tool.Source   = (*Source)(nil)
	_ tool.Changing = (*Source)(nil)
	_ tool.Toucher  = (*Source)(nil)
)

// holdsFor is for how long after its begin a call has its key without a look: nodes remember for longer what they refuse.
const holdsFor = 10 * time.Second

// attempts is how often a call that can be repeated is sent to a node.
const attempts = 3

// set replaces the tools, and reports whether their definitions changed.
func (s *Source) set(tools map[string]*shared) (changed bool) {
	before := s.tools.Swap(&tools)
	if len(*before) != len(tools) {
		return true
	}
	for name, t := range tools {
		if old := (*before)[name]; old == nil || !t.same(old) {
			return true
		}
	}
	return false
}

// tool returns a tool, or nil. The next call may give something else.
func (s *Source) tool(name string) *shared {
	if s == nil {
		return nil
	}
	return (*s.tools.Load())[name]
}

// Upstream reports whether third parties describe the tools.
func (s *Source) Upstream() bool {
	for _, t := range *s.tools.Load() {
		if t.Upstream {
			return true
		}
	}
	return false
}

// Protocol is that of its tools.
func (s *Source) Protocol() string {
	for _, t := range *s.tools.Load() {
		return t.Spec.Protocol
	}
	return ""
}

// Tools implements tool.Source.
func (s *Source) Tools(context.Context) ([]*tool.Spec, error) {
	var specs []*tool.Spec
	for _, t := range *s.tools.Load() {
		spec := t.spec()
		for _, v := range t.further {
			spec.Versions = append(spec.Versions, tool.Version{Spec: v.spec(), From: v.from, Percent: v.percent})
		}
		specs = append(specs, spec)
	}
	slices.SortFunc(specs, func(a, b *tool.Spec) int { return strings.Compare(a.Name, b.Name) })
	return specs, nil
}

// errGone is why a tool whose nodes are gone cannot be called.
var errGone = tool.Errorf(tool.CodeUnavailable, "the nodes that have it are gone; `toolpost fleet` shows those that are up").Because(reasonGone)

// errNowhere is why a tool cannot be called that was there a moment ago.
func errNowhere(name string) error {
	return tool.Errorf(tool.CodeNotFound, "no node of the fleet has the tool %s now", name)
}

// Unavailable reports why a tool cannot be called now: no node has it, or none can run it.
func (s *Source) Unavailable(name string) error {
	t := s.tool(name)
	if t == nil {
		return errNowhere(name)
	}
	return t.why
}

// judged returns the definition by which a call was let through, if nodes still have it: a node must not offer a tool that only
// reads, and leave, so that the call runs another node's tool that writes.
func (s *Source) judged(c *tool.Call) (*version, error) {
	t := s.tool(ownName(c.Spec))
	if t == nil {
		return nil, tool.BeforeRun(errNowhere(ownName(c.Spec)))
	}
	if v := t.versions[c.Spec.Digest]; v != nil {
		return v, nil
	}
	return nil, tool.BeforeRun(tool.Errorf(tool.CodeUnavailable, "the definition of %s has just changed; call it again", c.Tool).Because(reasonGone))
}

// versionOf returns the nodes of a definition, or nil if none has it.
func (s *Source) versionOf(spec *tool.Spec) *version {
	if t := s.tool(ownName(spec)); t != nil {
		return t.versions[spec.Digest]
	}
	return nil
}

// takes reports whether a node takes calls. The caller holds mu.
func (h *hub) takes(p *peer) bool { return h.peers[p.ID] == p && !p.Draining && p.refused == "" }

// Close implements tool.Runner. The nodes belong to the hub.
func (s *Source) Close(context.Context) error { return nil }

// Knows reports whether the runner of a tool knows what a call will touch, by a definition.
func (s *Source) Knows(spec *tool.Spec) bool {
	v := s.versionOf(spec)
	return v != nil && v.Touches
}

// A foreseen is what a call will touch, and on which node. A call keeps it, so that the node is asked once.
type foreseen struct {
	peer    *peer
	touches tool.Touches
	err     error
}

// Touches implements tool.Toucher: the node that will run the call says what it touches.
func (s *Source) Touches(c *tool.Call) (tool.Touches, error) {
	if c.Memo != nil {
		if f, ok := c.Memo.View.(*foreseen); ok {
			return f.touches, f.err
		}
	}
	p, touches, err := s.foresee(c)
	if c.Memo != nil && p != nil {
		c.Memo.View = &foreseen{p, touches, err}
	}
	return touches, err
}

func (s *Source) foresee(c *tool.Call) (p *peer, touches tool.Touches, err error) {
	t, err := s.judged(c)
	if err != nil {
		return nil, touches, err
	}
	if p, err = s.choose(t, c, nil); err != nil {
		return nil, touches, err
	}
	defer s.leave(p)
	ctx, stop := context.WithTimeout(context.Background(), askWithin)
	defer stop()
	st := s.hub.open(p)
	defer s.hub.close(st)
	body, err := s.request(ctx, c, p, st.reply, t.digest, 0, nil)
	if err == nil {
		body, err = st.exchange(ctx, kindTouches, body, tool.Discard)
	}
	if err != nil {
		return nil, touches, err
	}
	touches, err = decodeTouches(body)
	return p, touches, err
}

// Invoke implements tool.Handler.
func (s *Source) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	r, err := s.send(ctx, c, out)
	if tool.InDoubt(err) {
		s.hub.doubted(c.Record)
	}
	return r, err
}

// send sends a call to a node, and to another one if its node is gone, or its breaker there is open, provided that nothing was
// begun, or that it may be repeated.
func (s *Source) send(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if ctx.Err() != nil {
		return nil, tool.Ended(ctx)
	}
	var tried []*peer
	var busy error   // of the node that refused it last
	var unsure error // of the node that was gone last after it may have run it: no later refusal means that it did not run
	begun := 0
	for n := 1; ; n++ {
		t, err := s.judged(c)
		if err != nil {
			return nil, cmp.Or(unsure, busy, err)
		}
		p, err := s.choose(t, c, tried)
		if err != nil {
			return nil, cmp.Or(unsure, busy, err)
		}
		r, err := s.try(ctx, c, p, t.digest, n, out)
		s.leave(p)
		if !c.Spec.Effects.Repeatable() && !errors.As(err, new(answered)) {
			err = tool.Doubt(err)
		}
		e := tool.AsError(err)
		idle := tool.NotRun(err)
		if e == nil || ctx.Err() != nil || e.Reason != reasonGone && !(idle && e.Code == tool.CodeBreakerOpen) {
			if idle {
				err = cmp.Or(unsure, err)
			}
			return r, err
		}
		tried, busy = append(tried, p), nil
		if idle {
			busy = err
			continue
		}
		unsure = lost(c, p)
		if begun++; begun == attempts || !c.Spec.Effects.Repeatable() {
			return nil, tool.Doubt(unsure)
		}
	}
}

// An answered is an error that a node gave as the outcome of a call.
type answered struct{ error }

func (a answered) Unwrap() error { return a.error }

// lost is the error of a call whose node is gone for good.
func lost(c *tool.Call, p *peer) error {
	return tool.Errorf(tool.CodeUnavailable, "the node %s left while it ran %s: whether the call had an effect is not known", p.Name, c.Tool).Because(reasonGone)
}

// choose picks the node for a call, and counts the call as one of its own until leave.
func (s *Source) choose(v *version, c *tool.Call, tried []*peer) (*peer, error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := pick(v.peers, c, func(p *peer) bool { return h.takes(p) && !slices.Contains(tried, p) })
	switch {
	case err != nil:
		return nil, err
	case p == nil && v.why != nil:
		return nil, tool.BeforeRun(v.why)
	case p == nil:
		return nil, tool.BeforeRun(tool.Errorf(tool.CodeUnavailable, "no node of the fleet can run %s now; `toolpost fleet` shows them", c.Tool).
			Because(reasonGone))
	}
	p.inflight++
	p.sent++
	return p, nil
}

func (s *Source) leave(p *peer) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	p.inflight--
}

// pick chooses among nodes: the one that asked the question which the call answers, the one that was asked what the call
// touches, the one of its session, or of two at random the less busy one. Those that seem full are the last choice: their hub
// learns each second how many calls they run.
func pick(peers []*peer, c *tool.Call, able func(*peer) bool) (*peer, error) {
	if node, _, ok := strings.Cut(c.Resume, resumeMark); ok {
		for _, p := range peers {
			if p.ID == node && able(p) {
				return p, nil
			}
		}
		return nil, tool.Errorf(tool.CodeConflict, "the node that asked this question is gone; call %s again without the answers", c.Tool)
	}
	if c.Memo != nil {
		if f, ok := c.Memo.View.(*foreseen); ok && slices.Contains(peers, f.peer) && able(f.peer) {
			return f.peer, nil // the files are those of this node
		}
	}
	if c.Session != "" {
		return ofSession(peers, c.Session, able), nil
	}
	for _, fit := range []func(*peer) bool{func(p *peer) bool { return able(p) && p.load() < 1 }, able} {
		if a, b := anyOf(peers, fit), anyOf(peers, fit); a != nil {
			if a.load() <= b.load() {
				return a, nil
			}
			return b, nil
		}
	}
	return nil, nil
}

// anyOf returns one of the nodes at random that fit, or nil. It looks at all of them only if few fit: they may be a thousand.
func anyOf(peers []*peer, fit func(*peer) bool) *peer {
	n := len(peers)
	for range min(n, 8) {
		if p := peers[rand.IntN(n)]; fit(p) { //nolint:gosec // which node runs a call is no secret
			return p
		}
	}
	if fitting := slices.DeleteFunc(slices.Clone(peers), func(p *peer) bool { return !fit(p) }); len(fitting) > 0 {
		return fitting[rand.IntN(len(fitting))] //nolint:gosec // likewise
	}
	return nil
}

// ofSession returns the node of a session, by rendezvous hashing: a session moves if its node leaves, or to a new one.
func ofSession(peers []*peer, session string, able func(*peer) bool) (best *peer) {
	most, mark := uint64(0), markOf(session)
	for _, p := range peers {
		if w := p.affinity(mark); (best == nil || w > most) && able(p) {
			best, most = p, w
		}
	}
	return best
}

// affinity is the weight of a node for a session, by the digests of both: they are mixed as SplitMix64 does.
func (p *peer) affinity(session uint64) uint64 {
	h := p.mark ^ session
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// markOf is the digest of an id, or of a session. All hubs have the same.
func markOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// load is how busy a node is, in parts of its places.
func (p *peer) load() float64 { return float64(max(p.inflight, p.Running)) / float64(max(p.Places, 1)) }

// resumeMark separates the node that asked a question from the question's id there.
const resumeMark = "|"

// request writes a call for a node.
func (s *Source) request(
	ctx context.Context, c *tool.Call, p *peer, reply, digest string, attempt int, keys []*tool.Credential,
) ([]byte, error) {
	r, err := newRequest(c, p.Run, reply, attempt, digest, envelope.Left(ctx))
	if err == nil && len(keys) > 0 {
		if len(p.Seal) == 0 {
			err := tool.Errorf(tool.CodeUnavailable, "the node %s has an earlier version, which takes no keys of callers; upgrade it", p.Name)
			return nil, tool.BeforeRun(err.Because(reasonGone))
		}
		r.Keys, err = lent.Seal(ctx, p.Seal, r.purpose(), keys)
	}
	if err != nil {
		return nil, answered{tool.BeforeRun(err)}
	}
	if _, id, ok := strings.Cut(c.Resume, resumeMark); ok {
		r.Resume = id
	}
	return packed.Write(&r, c.Args, c.Answers, c.State)
}

// try runs a call on one node.
func (s *Source) try(ctx context.Context, c *tool.Call, p *peer, digest string, attempt int, out tool.Sink) (*tool.Result, error) {
	if c.Holds != nil && (p.met.After(c.Began) || time.Since(c.Began) > holdsFor) {
		if err := c.Holds(); err != nil {
			return nil, answered{err}
		}
	}
	st := s.hub.open(p)
	defer s.hub.close(st)
	body, err := s.request(ctx, c, p, st.reply, digest, attempt, c.Credentials)
	if err != nil {
		return nil, err
	}
	if c.Record != nil {
		c.Record.Node, c.Record.Receipt = p.Name, nil
	}
	if c.Watch.By != nil {
		c.Watch.By.Sent(p.Name)
	}
	var r *tool.Result
	if body, err = st.exchange(ctx, kindCall, body, out); err == nil {
		r, err = s.result(body, p)
	}
	lent.Note(st.uses, c.Credentials)
	s.hub.attested(c, p, st, digest, attempt, r, err)
	return r, err
}

// result reads the outcome of a call.
func (s *Source) result(body []byte, p *peer) (*tool.Result, error) {
	r, drops, err := decodeResult(body)
	if err == nil && r.Ask != nil && r.Ask.Kind != "" {
		err = errors.New("only hubs ask for approvals")
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the result of the node %s cannot be read: %w", p.Name, err).Because(reasonLink)
	}
	if r.Ask != nil {
		id := r.Ask.ID
		r.Ask.ID = p.ID + resumeMark + id
		if drops {
			r.Ask.Drop = func() { go s.hub.drop(p, id) }
		}
	}
	return r, nil
}

// drop tells a node that the answer to a question will not come.
func (h *hub) drop(p *peer, id string) {
	ctx, stop := context.WithTimeout(context.Background(), askWithin)
	defer stop()
	body, err := strictjson.Marshal(order{Do: orderDrop, Question: id})
	if err == nil {
		_, err = h.ask(ctx, p, kindOrder, body, tool.Discard)
	}
	if err != nil {
		h.log.Debug("a node was not told that its question is not answered", "node", p.Name, "error", err)
	}
}

// emit passes an event on, with its file, which came before it.
func emit(in *spool.File, body []byte, out tool.Sink) error {
	var head event
	raw, err := packed.Read(body, &head)
	if err == nil {
		err = checkJSON(raw...)
	}
	if err != nil {
		return tool.Errorf(tool.CodeProtocol, "an event of a node cannot be read: %w", err).Because(reasonLink)
	}
	ev := tool.Event{Kind: head.Kind, Time: head.Time, Blocked: head.Blocked, Ours: head.Ours, Data: at(raw, 0)}
	if head.File {
		if ev.File, err = in.Whole(head.SHA256); err != nil {
			return err
		}
		defer in.Close()
	}
	return out.Emit(ev)
}
