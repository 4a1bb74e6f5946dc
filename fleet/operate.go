package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"toolpost/engine/member"
	"toolpost/fleet/membership"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An order is what a hub tells a node to do.
type order struct {
	Do       string `json:"do"`
	Question string `json:"question,omitempty"` // of orderDrop
	Node     string `json:"node,omitempty"`     // of orderMembers
	Call     string `json:"call,omitempty"`     // of orderPast
	Refuse   bool   `json:"refuse,omitempty"`   // likewise: if it has not begun, it never will
	// Likewise: since the call could begin. A node that may have forgotten it does not say that it will never begin it.
	Age   time.Duration `json:"age,omitempty"`
	About *Question     `json:"about,omitempty"` // of orderAnswer
}

// The orders.
const (
	orderDrain   = "drain"
	orderDrop    = "drop"    // a question will not be answered
	orderRotate  = "rotate"  // make another key; the answer has it
	orderRotated = "rotated" // use the new key
	orderMembers = "members" // to another hub: keys of members or shares of calls changed, or a node was evicted
	orderAnswer  = "answer"  // a question about the node
	orderPast    = "past"    // what does the node know of a call?
)

// obey carries out an order.
func (n *Node) obey(ctx context.Context, o order, out tool.Sink) ([]byte, error) {
	switch o.Do {
	case orderDrain:
		n.drainSelf()
	case orderDrop:
		n.host.dropQuestion(o.Question)
	case orderRotate:
		return n.makeKey()
	case orderRotated:
		return []byte("{}"), n.useKey()
	case orderAnswer:
		if o.About == nil {
			break
		}
		if o.About.Follow { // so that the hub knows that it follows, while there is nothing to report
			if err := out.Emit(tool.Event{Kind: tool.KindProgress}); err != nil {
				return nil, err
			}
		}
		return n.env.Machine.Answer(ctx, *o.About, out)
	case orderPast:
		p, err := n.host.past(ctx, n.pass.ID, o.Call)
		if o.Refuse {
			p, err = n.host.refuse(ctx, n.pass.ID, o.Call, o.Age)
		}
		if err != nil {
			return nil, err
		}
		return strictjson.Marshal(p)
	case orderMembers:
		if n.hub == nil {
			break
		}
		if o.Node != "" { // the store may be away
			n.roster.Evict(o.Node)
			n.expel()
			break
		}
		return []byte("{}"), n.roster.Refresh(ctx)
	default:
		return nil, tool.Errorf(tool.CodeUnsupported, "this node does not know the order %.40q; is it older than the hub?", o.Do)
	}
	return []byte("{}"), nil
}

// A rotated is the answer to orderRotate.
type rotated struct {
	Old   string `json:"old"`
	Key   string `json:"key"`
	Proof []byte `json:"proof"` // that the node has it: a signature of the old one
}

// makeKey makes another key, which is in use once the hub says that the store has it.
func (n *Node) makeKey() ([]byte, error) {
	seed, public, err := membership.NewKey()
	if err != nil {
		return nil, err
	}
	old, err := n.key()
	if err != nil {
		return nil, err
	}
	proof, err := (&membership.Pass{Seed: seed}).Sign([]byte(old))
	if err = errors.Join(err, n.change(func(p *membership.Pass) { p.Next = seed })); err != nil {
		return nil, err
	}
	return strictjson.Marshal(rotated{old, public, proof})
}

// useKey switches to the new key, for connections to come: the present ones carry calls.
func (n *Node) useKey() error {
	return n.change(func(p *membership.Pass) {
		if p.Next != "" {
			p.Seed, p.Next = p.Next, ""
		}
	})
}

// A Status describes a node of the fleet.
type Status struct {
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Role    string    `json:"role"`
	State   string    `json:"state" doc:"up, draining, gone, or refused"`
	Version string    `json:"version,omitempty"`
	Labels  []string  `json:"labels,omitempty"`
	Tools   int       `json:"tools"`
	Running int       `json:"running" doc:"calls of hubs that run there"`
	Places  int       `json:"places,omitempty" doc:"how many it takes at once"`
	Load    float64   `json:"load" doc:"the part of its places that is taken, from 0 to 1"`
	Since   time.Time `json:"since,omitzero" doc:"when it started, by its own clock; not of one that is gone"`
	Drift   []string  `json:"drift,omitempty" doc:"tools that most other nodes define differently, of which it gets no calls; config.NAME: a section that the configs of most hubs have differently"`
	Refused string    `json:"refused,omitempty" doc:"why it gets no calls"`
	Here    bool      `json:"here,omitempty" doc:"it is the hub that answers"`
	Address string    `json:"address,omitempty" doc:"of a hub: where others reach it"`
}

// The states of a node.
const (
	stateUp       = "up"
	stateDraining = "draining"
	stateGone     = "gone"
	stateRefused  = "refused"
)

// Nodes describes the members, as this hub sees them.
func (n *Node) Nodes(ctx context.Context) ([]Status, error) {
	_ = n.roster.Refresh(ctx) // else those that were read last count
	return n.statuses(), nil
}

func (n *Node) statuses() (all []Status) {
	drift := n.configDrift()
	for _, m := range n.roster.All() {
		if !m.Evicted.IsZero() {
			continue
		}
		s := Status{Name: m.Name, ID: m.ID, Role: string(m.Role), State: stateGone, Labels: m.Labels, Address: m.Address}
		if m.ID == n.pass.ID {
			s.fill(n.announcement())
			s.Here = true
		} else {
			n.hub.describe(&s)
		}
		s.Drift = append(s.Drift, drift[m.ID]...)
		all = append(all, s)
	}
	return all
}

// Counts returns how many nodes are in each state, and how many calls this hub has sent to each that is connected.
func (n *Node) Counts() (states, sent map[string]int) {
	if n == nil || n.hub == nil {
		return nil, nil
	}
	states, sent = map[string]int{stateUp: 0, stateDraining: 0, stateGone: 0, stateRefused: 0}, map[string]int{}
	for _, s := range n.statuses() {
		states[s.State]++
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for _, p := range n.hub.peers {
		sent[p.Name] = p.sent
	}
	return states, sent
}

func (s *Status) fill(a announcement) {
	s.Version, s.Tools, s.Running, s.Places, s.Since = a.Version, a.Tools, a.Running, a.Places, a.Since
	s.Labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.Labels, a.Labels))))
	s.Load = float64(a.Running) / float64(max(a.Places, 1))
	if s.State = stateUp; a.Draining {
		s.State = stateDraining
	}
}

// describe fills in what a hub sees of another node.
func (h *hub) describe(s *Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peers[s.ID]
	if p == nil {
		return
	}
	s.fill(p.announcement)
	s.Tools = len(p.tools) // that this hub knows: a node is there a moment before its tools are
	if p.refused != "" {
		s.State, s.Refused = stateRefused, p.refused
	}
	for _, o := range p.tools {
		if t := h.sources[o.Spec.Source].tool(o.Spec.Name); t != nil {
			if t.digest != o.digest && !slices.ContainsFunc(t.further, func(v *version) bool { return v.digest == o.digest }) {
				s.Drift = append(s.Drift, o.Spec.Source+"."+o.Spec.Name)
			}
		}
	}
	slices.Sort(s.Drift)
}

// configDrift lists, by the ids of hubs, the sections of their configs that most hubs have differently. If two are as many, this
// one is right, else the one with the lesser digest.
func (n *Node) configDrift() map[string][]string {
	self := n.announcement()
	hubs, sections := map[string]map[string]string{self.ID: self.Config}, map[string]string{}
	maps.Copy(sections, self.Config)
	n.hub.mu.Lock()
	for id, p := range n.hub.peers {
		if p.Role == string(roleHub) && p.Config != nil {
			hubs[id] = p.Config
			maps.Copy(sections, p.Config)
		}
	}
	n.hub.mu.Unlock()
	drift := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		counts, most := map[string]int{}, self.Config[name]
		for _, c := range hubs {
			counts[c[name]]++
		}
		for _, digest := range slices.Sorted(maps.Keys(counts)) {
			if counts[digest] > counts[most] {
				most = digest
			}
		}
		for id, c := range hubs {
			if c[name] != most {
				drift[id] = append(drift[id], "config."+name)
			}
		}
	}
	return drift
}

// Token makes an invitation, as one line.
func (n *Node) Token(ctx context.Context, t member.Ticket, ttl time.Duration) (string, error) {
	if n.env.Alone && t.Role == roleHub {
		return "", tool.Errorf(tool.CodeUnsupported, "further hubs need a store that several machines can use, and this hub has SQLite; "+
			"move it with `toolpost store copy` to PostgreSQL first")
	}
	i, err := n.pass.Invite(ctx, n.env.Register, t, ttl, n.hubAddresses())
	return i.String(), err
}

// DrainNode lets a node take no more calls.
func (n *Node) DrainNode(ctx context.Context, name string) error {
	m, err := n.roster.Named(ctx, name)
	if err != nil {
		return err
	}
	if m.ID == n.pass.ID {
		n.drainSelf()
		return nil
	}
	_, err = n.command(ctx, m, order{Do: orderDrain})
	if e := tool.AsError(err); e != nil && e.Reason == reasonGone && !tool.NotRun(err) {
		return nil // it had no calls, and left before its answer did
	}
	return err
}

// drainSelf takes no more calls, and lets the program end as a signal does.
func (n *Node) drainSelf() {
	n.host.drain()
	signal(n.nudge)
	n.env.Stop(nil)
}

// command gives an order to a node, which does it soon.
func (n *Node) command(ctx context.Context, m member.Member, o order) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, askWithin)
	defer stop()
	return n.order(ctx, m, o, tool.Discard)
}

// order gives an order to a node, whose events go to out.
func (n *Node) order(ctx context.Context, m member.Member, o order, out tool.Sink) ([]byte, error) {
	n.hub.mu.Lock()
	p := n.hub.peers[m.ID]
	n.hub.mu.Unlock()
	if p == nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the node %s is not connected to this hub", m.Name)
	}
	body, err := strictjson.Marshal(o)
	if err != nil {
		return nil, err
	}
	return n.hub.ask(ctx, p, kindOrder, body, out)
}

// Evict ends the membership of a node: its key is refused from now on, and its connections end.
func (n *Node) Evict(ctx context.Context, name string) error {
	m, err := n.roster.Named(ctx, name)
	if err != nil {
		return err
	}
	if m.ID == n.pass.ID {
		return tool.Errorf(tool.CodeConflict, "%s is the hub that answers; evict it through another one", m.Name)
	}
	if err := n.env.Register.Evict(ctx, m.ID); err != nil {
		return err
	}
	n.roster.Evict(m.ID)
	n.expel()
	n.tellMembers(ctx, m.ID)
	return nil
}

// tellMembers tells the other hubs that a node was evicted, or that the keys of members or the shares of calls changed. One that it does not reach
// reads the members of the store within rosterEvery.
func (n *Node) tellMembers(ctx context.Context, evicted string) {
	n.eachPeer(func(other member.Member) error {
		if other.Role != roleHub {
			return nil
		}
		_, err := n.command(ctx, other, order{Do: orderMembers, Node: evicted})
		return err
	})
}

// eachPeer does something with every connected node at once, and returns the names of those with which it failed.
func (n *Node) eachPeer(do func(member.Member) error) (failed []string) {
	var mu sync.Mutex
	var doing sync.WaitGroup
	for _, m := range n.others(true) {
		if !n.hub.knows(m.ID) {
			continue
		}
		doing.Go(func() {
			if err := do(m); err != nil {
				n.env.Log.Warn("a node did not carry out an order", "node", m.Name, "error", tool.AsError(err).Message)
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, m.Name)
			}
		})
	}
	doing.Wait()
	slices.Sort(failed)
	return failed
}

// Name is the name of this node, or "" if there is none.
func (n *Node) Name() string {
	if n == nil {
		return ""
	}
	return n.pass.Name
}

// Rotate lets every connected node make another key; the old ones are refused. It returns the nodes that did not.
func (n *Node) Rotate(ctx context.Context) (failed []string, err error) {
	if err := n.roster.Refresh(ctx); err != nil {
		return nil, err
	}
	failed = n.eachPeer(func(m member.Member) error {
		answer, err := n.command(ctx, m, order{Do: orderRotate})
		if err == nil {
			err = n.rekey(ctx, m, answer)
		}
		if err == nil {
			_, err = n.command(ctx, m, order{Do: orderRotated})
		}
		return err
	})
	self, _ := n.roster.ByID(n.pass.ID)
	answer, err := n.makeKey()
	if err == nil {
		err = n.rekey(ctx, self, answer)
	}
	if err == nil {
		err = n.useKey()
	}
	err = errors.Join(err, n.roster.Refresh(ctx))
	n.tellMembers(ctx, "")
	return failed, err
}

// rekey stores the new key of a node, which has to prove that it has it.
func (n *Node) rekey(ctx context.Context, m member.Member, answer []byte) error {
	var r rotated
	if err := strictjson.Unmarshal(answer, &r); err != nil {
		return err
	}
	if r.Old != m.Key || !proves(r.Key, r.Proof, []byte(r.Old)) {
		return tool.Errorf(tool.CodeAccessDenied, "the node %s has not proven that it has its new key", m.Name)
	}
	return n.env.Register.SetKey(ctx, m.ID, m.Key, r.Key)
}
