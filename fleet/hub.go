package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/fleet/bound"
	"toolpost/fleet/lent"
	"toolpost/fleet/roster"
	"toolpost/fleet/spool"
	"toolpost/tool"
	"toolpost/wire/receipt"
	"toolpost/wire/strictjson"
)

// Waits of a hub.
const (
	announceEvery = time.Second
	silentFor     = 5 * time.Second // a node that says nothing for so long is gone
	askWithin     = 10 * time.Second
	publishEvery  = 50 * time.Millisecond // at most, since it takes a while if the nodes are many
)

// A hub knows the nodes that are connected to its server, and sends them calls.
type hub struct {
	id      string
	run     string        // of this program: the names of streams begin with it
	opened  atomic.Uint64 // streams
	nc      connection
	log     *slog.Logger
	changed func() // the tools of the fleet may have changed
	doubted func(r *tool.Record)
	roster  *roster.Roster
	routes  []Route
	room    bound.Budget // of the streams

	mu      sync.Mutex
	peers   map[string]*peer
	streams map[string]*stream     // by the subject of the answers
	ending  map[string][]*stream   // of nodes that are gone, by the subject of a message of this hub to itself; see endStreams
	sources map[string]*Source     // of the fleet, by name
	stale   bool                   // the nodes offer something else than the sources that were published
	dirty   chan struct{}          // likewise
	heard   map[string]int         // announcements of the last second, by subject
	lists   map[string]*bound.Pace // how often nodes were asked for their tools
	stray   map[string]int         // messages of the last second that were of no use, less those of calls that have just ended, by node
	bar     func(node string)      // cuts a node off for a while
}

// A peer is another node, as a hub knows it.
type peer struct {
	announcement
	mark     uint64    // the digest of its id
	met      time.Time // when this hub first heard of it
	seen     time.Time
	tools    map[string]*offered // by toolKey
	inflight int                 // calls that this hub has there
	sent     int                 // calls that it has sent there
	asking   bool                // for its tools
	room     *bound.Budget       // of its streams, half of that of all
	listed   string              // the digest of the list that tools are from
	refused  string              // why it gets no calls, or ""
}

// An announcement is what a node says of itself every second, and when it changes.
type announcement struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Role    string   `json:"role"`
	Run     string   `json:"run"`
	Link    int      `json:"link"`
	Version string   `json:"version"`
	Labels  []string `json:"labels,omitempty"`
	Digest  string   `json:"digest"` // of its list of tools
	Tools   int      `json:"tools"`
	Running int      `json:"running"`
	Places  int      `json:"places"` // how many calls it takes at once
	// Of a hub: the digests of the sections of its config, which all hubs should share.
	Config   map[string]string `json:"config,omitzero"`
	Draining bool              `json:"draining,omitzero"`
	Since    time.Time         `json:"since"`          // when it started, by its own clock
	Seal     []byte            `json:"seal,omitempty"` // the public key of this run, for the keys of calls
}

func newHub(n *Node) *hub {
	return &hub{
		id: n.pass.ID, run: rand.Text(), nc: n.nc, log: n.env.Log, changed: n.env.Changed, doubted: n.Doubted, roster: n.roster, routes: n.env.Routes,
		room:  bound.Budget{Most: mostHeld, Full: crowded("the nodes of the fleet send")},
		peers: map[string]*peer{}, streams: map[string]*stream{}, ending: map[string][]*stream{}, sources: map[string]*Source{},
		dirty: make(chan struct{}, 1), heard: map[string]int{}, lists: map[string]*bound.Pace{}, stray: map[string]int{}, bar: n.server.bar,
	}
}

// crowded is the error of a call whose answer this hub has no room for.
func crowded(who string) error {
	return tool.Errorf(tool.CodeUnavailable, "%s more at once than this hub has room for; call again later", who).Because(reasonLink)
}

// maxAnnouncement bounds the bytes of an announcement.
const maxAnnouncement = 16 << 10

// mostAnnouncements is how many of them a hub reads in a second, of one node: it must not keep the hub from the others.
const mostAnnouncements = 50

// tooMany counts an announcement.
func (h *hub) tooMany(subject string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard[subject]++
	return h.heard[subject] > mostAnnouncements
}

// announced notes what a node says of itself. Its name, its role and the labels of its ticket are in the store.
func (h *hub) announced(m *nats.Msg) {
	var a announcement
	if h.tooMany(m.Subject) {
		h.strayed(strings.TrimPrefix(m.Subject, subjectUp))
		return
	}
	if len(m.Data) > maxAnnouncement || strictjson.Unmarshal(m.Data, &a) != nil ||
		a.ID != strings.TrimPrefix(m.Subject, subjectUp) || a.ID == h.id {
		return
	}
	as, ok := h.roster.ByID(a.ID)
	if !ok || !as.Evicted.IsZero() {
		return
	}
	h.mu.Lock()
	p := h.peers[a.ID]
	if p == nil || p.Run != a.Run {
		if p != nil {
			h.endStreams(p)
		}
		a.Name, a.Role, a.Labels = as.Name, string(as.Role), slices.Concat(as.Labels, a.Labels)
		p = &peer{announcement: a, met: time.Now(), mark: markOf(a.ID), tools: map[string]*offered{}}
		p.room = &bound.Budget{Most: h.room.Most / 2, Full: crowded("the node " + a.Name + " sends"), Of: &h.room}
		if p.refused = incompatible(a.Link); p.refused != "" {
			h.log.Warn("a node gets no calls: "+p.refused, "node", a.Name, "version", a.Version)
		}
		h.peers[a.ID] = p
	}
	if p.Draining != a.Draining {
		h.change()
	}
	p.renew(a)
	ask := p.listed != a.Digest && !p.asking && incompatible(p.Link) == "" && h.listDue(a.ID)
	p.asking = p.asking || ask
	h.mu.Unlock()
	if ask {
		go h.list(p)
	}
}

// listDue reports whether a node, in whichever run, may be asked for its tools now; it announces itself again in a second. The caller
// holds mu.
func (h *hub) listDue(id string) bool {
	if h.lists[id] == nil {
		h.lists[id] = &bound.Pace{}
	}
	return h.lists[id].Due(time.Now())
}

// renew notes what may change while a node's program runs. The rest is read without mu.
func (p *peer) renew(a announcement) {
	p.Digest, p.Tools, p.Running, p.Places, p.Draining, p.Config = a.Digest, a.Tools, a.Running, a.Places, a.Draining, a.Config
	p.seen = time.Now()
}

// incompatible returns why a node of another version is refused, or "".
func incompatible(link int) string {
	switch {
	case link > linkVersion+1:
		return "it is more than one version newer than this hub; upgrade the hubs"
	case link < linkVersion-1:
		return "it is more than one version older than this hub; upgrade it"
	}
	return ""
}

// list asks a node for its tools. A list that breaks the rules is refused as a whole, and asked for again when it has changed.
func (h *hub) list(p *peer) {
	ctx, stop := context.WithTimeout(context.Background(), askWithin)
	defer stop()
	body, err := h.ask(ctx, p, kindList, nil, tool.Discard)
	if err != nil {
		h.log.Warn("a node did not list its tools; it is asked again", "node", p.Name, "error", tool.AsError(err).Message)
		h.mu.Lock()
		defer h.mu.Unlock()
		p.asking = false
		return
	}
	all, err := decodeList(body)
	refused := ""
	if err != nil {
		refused = "its list of tools breaks the rules: " + err.Error()
		h.log.Warn("a node gets no calls: "+refused, "node", p.Name)
	}
	h.mu.Lock()
	p.asking, p.listed, p.tools, p.refused = false, digestBytes(body), map[string]*offered{}, refused
	for _, o := range all {
		p.tools[toolKey(o.Spec.Source, o.Spec.Name)] = o
	}
	h.change()
	h.mu.Unlock()
}

// ask sends a message to a node, and returns the answer. Events before that go to out.
func (h *hub) ask(ctx context.Context, p *peer, k kind, body []byte, out tool.Sink) ([]byte, error) {
	s := h.open(p)
	defer h.close(s)
	return s.exchange(ctx, k, body, out)
}

// exchange sends the hub's only message, and returns the last one of the node. Events before that go to out.
func (s *stream) exchange(ctx context.Context, k kind, body []byte, out tool.Sink) ([]byte, error) {
	if err := s.send(ctx, k, body); err != nil {
		return nil, err
	}
	in := &spool.File{}
	defer in.Close()
	for {
		f, err := s.message(ctx, in.Write)
		if err == nil && f.kind == kindEvent {
			if err = emit(in, f.body, out); err == nil {
				continue
			}
		}
		if err == nil && f.kind == kindReceipt && k == kindCall && s.receipt == nil {
			s.receipt = bytes.Clone(f.body[:min(len(f.body), receipt.Most+1)]) // the budget does not count it; a longer one is wrong
			continue
		}
		if err == nil && f.kind == kindUses && k == kindCall && s.uses == nil {
			s.uses = bytes.Clone(f.body[:min(len(f.body), lent.Most)])
			continue
		}
		switch {
		case err == nil && f.kind == kindError:
			s.last = f
			return nil, answered{ended(f.body)}
		case err == nil && f.kind == kindResult:
			s.last = f
			return f.body, nil
		case err == nil:
			err = s.garbled("a message of the unknown kind %q", f.kind)
		}
		s.end(err)
		return nil, err
	}
}

// open begins a stream with a node.
func (h *hub) open(p *peer) *stream {
	subject, reply := subjectNode+p.ID, h.answers(p, h.next())
	s := newStream(p.Name, p.room, func(b []byte) error { return h.nc.PublishRequest(subject, reply, b) })
	s.reply = reply
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[reply] = s
	if h.peers[p.ID] != p {
		s.fail(goneError(p.Name, true))
	}
	return s
}

// next is the name of another stream.
func (h *hub) next() string { return h.run + strconv.FormatUint(h.opened.Add(1), 36) }

// answers is the subject of what a node sends to this hub on a stream.
func (h *hub) answers(p *peer, stream string) string {
	return subjectStreams + h.id + "." + p.ID + "." + stream
}

func (h *hub) close(s *stream) {
	h.mu.Lock()
	delete(h.streams, s.reply)
	h.stray[h.sender(s.reply)] -= window // they may be on their way
	h.mu.Unlock()
	s.forget()
}

// goneError is the error of a call whose node is gone.
func goneError(node string, before bool) error {
	e := tool.Errorf(tool.CodeUnavailable, "the node %s is gone", node).Because(reasonGone)
	if before {
		return tool.BeforeRun(e)
	}
	return e
}

// answered gets a message of a node. The subject proves which node sent it: the server lets no other use it.
func (h *hub) answered(m *nats.Msg) {
	h.mu.Lock()
	s, ending := h.streams[m.Subject], h.ending[m.Subject]
	delete(h.ending, m.Subject)
	h.mu.Unlock()
	for _, s := range ending {
		s.fail(goneError(s.peer, false))
	}
	if s != nil && s.late() > window {
		s = nil
	}
	switch {
	case s != nil && len(m.Data) == 0 && m.Header.Get("Status") == "503": // the node does not read its subject any more
		s.fail(goneError(s.peer, !s.heard()))
	case s != nil && s.deliver(m.Data) || ending != nil:
	default:
		h.strays(m, s == nil)
	}
}

// strays counts a message that was of no use, and tells the node if it belongs to no stream: the node may have taken up a call just after
// it lost the connection by which that came, and so would wait for this hub.
func (h *hub) strays(m *nats.Msg, lost bool) {
	node := h.sender(m.Subject)
	h.strayed(node)
	if lost && len(m.Data) > 0 && kind(m.Data[0]) != kindTaken && kind(m.Data[0]) != kindEnd {
		_ = h.nc.PublishRequest(subjectNode+node, m.Subject, encodeFrame(kindEnd, 0, encodeError(goneError(node, false))))
	}
}

// sender is the node that may send messages on a subject.
func (h *hub) sender(subject string) string {
	node, _, _ := strings.Cut(strings.TrimPrefix(subject, subjectStreams+h.id+"."), ".")
	return node
}

// mostStray is how many messages of a node in a second may be of no use. They cost a hub little, but others wait behind them.
const mostStray = 1024

// strayed notes a message of a node that was of no use.
func (h *hub) strayed(node string) {
	h.mu.Lock()
	h.stray[node]++
	flood := h.stray[node] == mostStray+1
	h.mu.Unlock()
	if flood {
		h.bar(node)
	}
}

// gone forgets a node that has left or was cut off. Its calls end.
func (h *hub) gone(id string) {
	h.mu.Lock()
	p := h.peers[id]
	if p == nil {
		h.mu.Unlock()
		return
	}
	delete(h.peers, id)
	h.endStreams(p)
	h.change()
	h.mu.Unlock()
	h.log.Info("a node of the fleet is gone", "node", p.Name, "drained", p.Draining)
}

// endStreams ends the streams with a node, once the last answers that it sent have been read: they come by another way than the
// news that it is gone, and a message of this hub to itself comes behind them. The caller holds mu.
func (h *hub) endStreams(p *peer) {
	end := h.answers(p, h.next()) // of no text of the node, which might not be one that a subject can have
	of := h.answers(p, "")
	for reply, s := range h.streams {
		if strings.HasPrefix(reply, of) {
			h.ending[end] = append(h.ending[end], s)
		}
	}
	_ = h.nc.Publish(end, nil) // the connection is within this program
}

// watch forgets nodes that are silent, until ctx ends.
func (h *hub) watch(ctx context.Context) {
	for n := 1; tool.Sleep(ctx, announceEvery); n++ {
		if n%60 == 0 {
			h.publish() // forgets tools that no node has
		}
		var silent []*peer
		h.mu.Lock()
		clear(h.heard)
		for node, n := range h.stray {
			if h.stray[node] = min(n, 0) / 2; n >= -1 {
				delete(h.stray, node)
			}
		}
		for _, p := range h.peers {
			if time.Since(p.seen) > silentFor {
				silent = append(silent, p)
			}
		}
		h.mu.Unlock()
		for _, p := range silent {
			h.log.Warn("a node of the fleet is silent; it gets no calls", "node", p.Name)
			h.gone(p.ID)
		}
	}
}

// change notes that the nodes offer something else. The caller holds mu.
func (h *hub) change() {
	h.stale = true
	signal(h.dirty)
}

// follow publishes after changes, until ctx ends: many nodes that come or go at once cost little more than one.
func (h *hub) follow(ctx context.Context) {
	for {
		select {
		case <-h.dirty:
			h.publish()
			tool.Sleep(ctx, publishEvery)
		case <-ctx.Done():
			return
		}
	}
}

// publish derives the sources of the fleet from what its nodes offer.
func (h *hub) publish() {
	h.mu.Lock()
	offers := h.offers()
	var told []*Source
	added := false
	h.keepOrphans(offers)
	for name, tools := range offers {
		s := h.sources[name]
		if len(tools) == 0 {
			delete(h.sources, name)
			added = true
			continue
		}
		if s == nil {
			s = &Source{Name: name, hub: h}
			s.tools.Store(&map[string]*shared{})
			h.sources[name], added = s, true
		}
		if s.set(tools) {
			told = append(told, s)
		}
	}
	h.mu.Unlock()
	for _, s := range told {
		s.Tell()
	}
	if added {
		h.changed()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = len(h.dirty) > 0
}

// offers groups what the nodes offer by source and name. If nodes define a tool differently, the definition of most of them
// counts, and the others get no calls of it but for a share that an operator gave them: they drift. The caller holds mu.
func (h *hub) offers() map[string]map[string]*shared {
	all := map[string]map[string]*shared{}
	for _, id := range slices.Sorted(maps.Keys(h.peers)) {
		p := h.peers[id]
		for _, o := range p.tools {
			tools := all[o.Spec.Source]
			if tools == nil {
				tools = map[string]*shared{}
				all[o.Spec.Source] = tools
			}
			t := tools[o.Spec.Name]
			if t == nil {
				t = &shared{versions: map[string]*version{}}
				tools[o.Spec.Name] = t
			}
			if t.versions[o.digest] == nil {
				t.versions[o.digest] = &version{offered: o}
			}
			t.versions[o.digest].have = append(t.versions[o.digest].have, p)
		}
	}
	for source, tools := range all {
		for name, t := range tools {
			t.settle(toolKey(source, name), h.routes, h.sources[source].tool(name), func(digest string) bool { return h.roster.Shared(source, name, digest) })
		}
	}
	for _, s := range h.roster.Shares() {
		if t := all[s.Source][s.Tool]; t != nil {
			if v := t.versions[s.Digest]; v != nil {
				h.share(t, v, s.Percent)
			}
			t.shared += s.Percent // also if no node takes it now: the sessions of the others stay
		}
	}
	return all
}

// orphanFor is how long a tool is known that no connected node has: its node may be starting again.
const orphanFor = 10 * time.Minute

// keepOrphans keeps the tools whose nodes have all gone, so that a call of one says so. The caller holds mu.
func (h *hub) keepOrphans(offers map[string]map[string]*shared) {
	here := func(p *peer) bool { return h.peers[p.ID] == p }
	for source, s := range h.sources {
		if offers[source] == nil {
			offers[source] = map[string]*shared{}
		}
		for name, t := range *s.tools.Load() {
			if offers[source][name] != nil || slices.ContainsFunc(t.have, here) || len(offers[source]) >= mostTools {
				continue
			}
			if t.orphaned.IsZero() {
				v := &version{offered: t.offered, why: errGone}
				t = &shared{version: v, orphaned: time.Now(), versions: map[string]*version{t.digest: v}}
			}
			if time.Since(t.orphaned) < orphanFor {
				offers[source][name] = t
			}
		}
	}
}

// A shared is a tool that some nodes have.
type shared struct {
	*version                     // the definition that counts
	orphaned time.Time           // since when no node has it; zero if some have
	versions map[string]*version // all its definitions, by their digests
	further  []*version          // those that get a share of the calls, ordered
	shared   int                 // percent of the shares so far
}

// A version is a definition of a tool, and the nodes that have it.
type version struct {
	*offered
	have    []*peer
	peers   []*peer // of these, those that can run it
	why     error   // why there are none
	from    int     // the first of a hundred draws that is its own
	percent int     // of the calls, beside the definition that counts
}

// settle chooses the definition that counts: of those without a share, if there are any, the one that most nodes have; if two are as
// frequent, the one that counted before, else the one with the lesser digest. So what has a tenth of the calls never gets all of them,
// whichever nodes a hub meets first.
func (t *shared) settle(key string, routes []Route, before *shared, shares func(digest string) bool) {
	best := ""
	if before != nil && t.versions[before.digest] != nil {
		best = before.digest
	}
	for _, d := range slices.Sorted(maps.Keys(t.versions)) {
		v := t.versions[d]
		v.settle(key, routes)
		switch {
		case best == "", shares(best) && !shares(d):
			best = d
		case shares(best) == shares(d) && len(v.have) > len(t.versions[best].have):
			best = d
		}
	}
	t.version = t.versions[best]
}

// share gives a further definition of a tool its share of the calls, if a node takes them. One that a third party describes gets none: it
// is not pinned. The caller holds mu.
func (h *hub) share(t *shared, v *version, percent int) {
	if v != t.version && !v.Upstream && slices.ContainsFunc(v.peers, h.takes) {
		v.from, v.percent, t.further = t.shared, percent, append(t.further, v)
	}
}

// same reports whether hubs publish two states of a tool alike.
func (t *shared) same(as *shared) bool {
	return t.digest == as.digest && (t.why == nil) == (as.why == nil) &&
		slices.EqualFunc(t.further, as.further, func(a, b *version) bool { return a.digest == b.digest && a.from == b.from && a.percent == b.percent })
}

// spec is the definition, with its digest.
func (v *version) spec() *tool.Spec {
	spec := *v.Spec
	spec.Digest = v.digest
	return &spec
}

// settle finds the nodes that can run the tool: they say so, and have the labels of the routes.
func (v *version) settle(key string, routes []Route) {
	labels := labelsFor(routes, v.Spec)
	for _, p := range v.have {
		why := p.tools[key].Why
		if missing := slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return slices.Contains(p.Labels, l) }); len(missing) > 0 {
			why = tool.Errorf(tool.CodeUnavailable, "no node that has it has the labels %s, which fleet.routes wants", strings.Join(labels, ", "))
		}
		if why == nil {
			v.peers = append(v.peers, p)
		}
		v.why = cmp.Or(v.why, why)
	}
	if len(v.peers) > 0 {
		v.why = nil
	}
}

// labelsFor are those that a node must have to run a tool.
func labelsFor(routes []Route, s *tool.Spec) (labels []string) {
	for _, r := range routes {
		if r.Tools.Match(s.Ref()) {
			labels = append(labels, r.Labels...)
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}
