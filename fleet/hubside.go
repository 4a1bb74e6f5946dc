package fleet

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/member"
	"toolpost/fleet/roster"
	"toolpost/host/broker"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// startHub starts the server of a hub, and what listens on it.
func (n *Node) startHub(ctx context.Context) (err error) {
	n.roster = roster.New(n.env.Register, n.env.Log, func() {
		if n.hub != nil {
			signal(n.hub.dirty)
		}
	})
	if err := n.roster.Refresh(ctx); err != nil {
		return err
	}
	if m, ok := n.roster.ByID(n.pass.ID); !ok || !m.Evicted.IsZero() {
		return tool.Errorf(tool.CodeAccessDenied, "the store of this hub does not know it as a member of its fleet: all hubs of a fleet "+
			"share one PostgreSQL (store: {url: postgres://…}), or this one was evicted; to join again, remove fleet.json from the "+
			"state folder and use a new token")
	}
	if err := n.listen(); err != nil {
		return err
	}
	if n.nc, err = n.server.dial(accountFleet, nats.NoCallbacksAfterClientClose()); err != nil {
		return err
	}
	n.hub = newHub(n)
	err = subscribe(n.nc, map[string]nats.MsgHandler{subjectUp + "*": n.hub.announced, subjectStreams + n.pass.ID + ".*.*": n.hub.answered})
	if err != nil {
		return err
	}
	if n.system, err = n.server.dial(accountSystem); err != nil {
		return err
	}
	if err := n.server.disconnected(n.system, n.hub.gone); err != nil {
		return err
	}
	sub, err := n.nc.Subscribe(subjectJoin, n.receive)
	if err != nil {
		return err
	}
	_ = sub.SetPendingLimits(mostJoining, mostJoining*maxJoining) // more are lost: they come from strangers
	if err := n.env.Register.SetAddress(ctx, n.pass.ID, n.address()); err != nil {
		return err
	}
	n.tasks.Go(func() { n.hub.watch(n.life) })
	n.tasks.Go(func() { n.hub.follow(n.life) })
	n.tasks.Go(n.watchRoster)
	n.tasks.Go(n.settleDoubts)
	n.env.Log.Info("the fleet is open", "address", n.address())
	return n.roster.Refresh(ctx)
}

// listen starts the server, on a free port if another program has its own.
func (n *Node) listen() error {
	certificate, err := n.certificate()
	if err != nil {
		return err
	}
	n.server, err = startServer(n.env.Listen, certificate, n.roster.Known, n.env.Log)
	if errors.Is(err, errTaken) {
		host, _, _ := net.SplitHostPort(n.env.Listen)
		n.env.Log.Warn("another program has the port of the fleet; this hub takes a free one", "listen", n.env.Listen)
		n.server, err = startServer(net.JoinHostPort(host, "0"), certificate, n.roster.Known, n.env.Log)
	}
	return err
}

func (n *Node) closeHub() {
	if n.hub != nil {
		n.hub.mu.Lock()
		for _, s := range n.hub.streams {
			s.fail(goneError(s.peer, false))
		}
		n.hub.mu.Unlock()
	}
	for _, nc := range []*nats.Conn{n.nc, n.system} {
		if nc != nil {
			nc.Close()
		}
	}
	if n.server != nil {
		broker.Stop(n.server.srv)
	}
}

// hubAddresses lists the addresses of the hubs, this one among them.
func (n *Node) hubAddresses() []string {
	list := []string{n.address()}
	for _, m := range n.roster.All() {
		if m.Role == roleHub && m.Evicted.IsZero() && m.Address != "" && m.ID != n.pass.ID {
			list = append(list, m.Address)
		}
	}
	slices.Sort(list)
	return list
}

// tellHubs tells the nodes of this hub the addresses of all hubs.
func (n *Node) tellHubs() {
	if body, err := strictjson.Marshal(n.hubAddresses()); err == nil {
		_ = n.nc.Publish(subjectHubs, body)
	}
}

// watchRoster follows the members in the store, connects to new hubs, and cuts off evicted nodes.
func (n *Node) watchRoster() {
	for {
		n.connect(n.hubAddresses())
		n.tellHubs()
		if !tool.Sleep(n.life, rosterEvery) {
			return
		}
		if err := n.roster.Refresh(n.life); err != nil && n.life.Err() == nil {
			n.env.Log.Warn("the members of the fleet cannot be read; those that were read last count", "error", err)
		}
		n.expel()
	}
}

// rosterEvery is how often a hub reads the members; other hubs tell it of evictions at once.
const rosterEvery = 5 * time.Second

// expel cuts off nodes that are no members any more.
func (n *Node) expel() {
	members := map[string]bool{}
	for _, m := range n.roster.All() {
		members[m.ID] = m.Evicted.IsZero()
	}
	if here, known := members[n.pass.ID]; known && !here {
		n.env.Stop(tool.Errorf(tool.CodeAccessDenied, "this hub was evicted from its fleet"))
		return
	}
	for _, id := range n.server.keep(members) {
		n.hub.gone(id)
	}
}

// gatherFor is how long a hub waits for the other nodes: another hub may have to tell them that it is there.
const gatherFor = rosterEvery + 3*time.Second

// Ready reports why a hub that has just started should get no calls yet: it does not know the tools of all nodes. It waits for
// hubs too, so that whoever restarts them one after the other can drain the next one here. Once it was ready, a node that leaves
// changes nothing.
func (n *Node) Ready() error {
	if n == nil || n.hub == nil || n.gathered.Load() || time.Since(n.since) > gatherFor {
		return nil
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	missing := func(m member.Member) bool {
		p := n.hub.peers[m.ID]
		return m.ID != n.pass.ID && m.Evicted.IsZero() && (p == nil || p.listed == "" && p.refused == "")
	}
	if n.hub.stale || slices.ContainsFunc(n.roster.All(), missing) {
		return tool.Errorf(tool.CodeUnavailable, "the hub waits for the other nodes").RetryAfter(time.Second)
	}
	n.gathered.Store(true)
	return nil
}

// Alone reports that no other hub is connected, which could take calls instead of this one.
func (n *Node) Alone() bool {
	if n == nil || n.hub == nil {
		return true
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for _, p := range n.hub.peers {
		if p.Role == string(roleHub) && !p.Draining {
			return false
		}
	}
	return true
}

func (h *hub) knows(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.peers[id] != nil
}
