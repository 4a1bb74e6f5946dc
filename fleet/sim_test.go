package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/idempotency"
	"toolpost/engine/member"
	"toolpost/fleet/lent"
	"toolpost/fleet/membership"
	"toolpost/fleet/roster"
	"toolpost/host/secret"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/wire/packed"
	"toolpost/wire/strictjson"
)

// A sim is a fleet within a bubble of synctest: hubs and workers, joined by a link that delays, cuts and loses what they say, as
// its seed wants. Each lane and each caller has dice of its own, so that a seed means nearly the same each time: what happens at
// one instant of the simulated clock is in no order.
type sim struct {
	seed  uint64
	plant plant
	began time.Time

	mu      sync.Mutex // held for a moment, and never while the fleet's own code runs
	chaos   bool       // a hostile link: single messages are lost, doubled and overtaken, as NATS never does
	hostile bool       // it is so now, until all is well
	workers []*simWorker
	hubs    []*simHub
	lines   []*simLine
	calls   map[string]*simCall
	runs    []*simRun
	store   *simStore // of the hubs
	lates   []tool.Record
	record  []*tool.Record // of calls whose outcome it does not have
	taken   int            // keys of calls that never began
	log     []string
	wrong   []string
}

// A plant takes out a guard, by changing what nodes get to read.
type plant struct {
	toWorker func(h *host, m *nats.Msg)
	toHub    func(h *hub, m *nats.Msg)
	judge    func(spec *tool.Spec)
	forgets  string // the store that remembers nothing
}

func (s *sim) dice(of string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(of))
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

// note adds a line to the log. The caller holds mu.
func (s *sim) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%9.4f ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

// fail notes what is wrong. The caller holds mu, or is the last one.
func (s *sim) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// between returns a duration that is not less than least.
func between(dice *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(dice.Int64N(int64(most-least)))
}

// A simLane carries messages in one direction. They arrive in their order, unless the link is hostile.
type simLane struct {
	s    *sim
	dice *rand.Rand
	most time.Duration
	last time.Time // when the last one arrives
	cut  bool
	held []func() // what waits for the end of the cut, as TCP sends it again
}

func (s *sim) lane(name string, most time.Duration) *simLane {
	return &simLane{s: s, dice: s.dice(name), most: most}
}

// carry lets a message arrive after a while. The caller holds mu.
func (l *simLane) carry(arrive func()) {
	at := time.Now().Add(between(l.dice, 1, l.most))
	if l.dice.IntN(20) == 0 {
		at = at.Add(between(l.dice, 1, 10*l.most))
	}
	if !at.After(l.last) {
		at = l.last.Add(between(l.dice, 1, l.most/10))
	}
	l.last = at
	l.at(at, arrive)
}

func (l *simLane) at(at time.Time, arrive func()) {
	time.AfterFunc(time.Until(at), func() {
		l.s.mu.Lock()
		if l.cut {
			l.held = append(l.held, arrive)
			l.s.mu.Unlock()
			return
		}
		l.s.mu.Unlock()
		arrive()
	})
}

// risk carries a message that a hostile link may lose, double, or let others overtake. The caller holds mu.
func (l *simLane) risk(arrive func()) {
	dice := 100
	if l.s.hostile {
		dice = l.dice.IntN(100)
	}
	switch {
	case dice < 2:
	case dice < 5:
		l.at(time.Now().Add(between(l.dice, 1, 5*time.Second)), arrive)
	default:
		if l.carry(arrive); dice < 15 {
			l.at(time.Now().Add(between(l.dice, 1, 5*time.Second)), arrive)
		}
	}
}

// heal lets what was held arrive, before what comes later.
func (l *simLane) heal() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.cut = false
	for i, arrive := range l.held {
		l.at(time.Now().Add(time.Duration(i+1)), arrive)
	}
	l.held = nil
}

// A simLine is how a worker and a hub's server are connected. Each end learns by itself that a connection has ended.
type simLine struct {
	s              *sim
	w              *simWorker
	h              *simHub
	up, down       *simLane // the network
	read           *simLane // what came to the worker, and waits for its program
	conn           *simUplink
	client, server int // the number of the connection, as the worker and the server know it; 0: there is none
	count          int
}

// A simUplink is the connection of a worker's program.
type simUplink struct {
	line *simLine
	node *Node
}

func (c *simUplink) PublishRequest(string, string, []byte) error { return errors.ErrUnsupported }

func (c *simUplink) Publish(subject string, data []byte) error {
	l := c.line
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	n := l.client
	if l.conn != c || n == 0 {
		return nats.ErrReconnectBufExceeded
	}
	l.up.risk(func() {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		if l.server == n {
			l.h.deliver(&nats.Msg{Subject: subject, Data: data})
		}
	})
	return nil
}

// arrived gets a message of the hub from the network. The caller holds no lock.
func (l *simLine) arrived(n int, m *nats.Msg) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.client == 0 || l.client != n && !l.s.hostile {
		return
	}
	conn := l.conn
	l.read.carry(func() {
		if conn.node.life.Err() != nil {
			return
		}
		m := &nats.Msg{Subject: m.Subject, Reply: m.Reply, Data: slices.Clone(m.Data)}
		if l.s.plant.toWorker != nil {
			l.s.plant.toWorker(conn.node.host, m)
		}
		l.s.frame(l.w.id, m.Reply, m.Data)
		conn.node.host.take(conn, m)
	})
}

// frame notes a frame that is read.
func (s *sim) frame(by, stream string, data []byte) {
	if len(data) >= headSize {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note("%s reads %c%d of %s", by, data[0], binary.BigEndian.Uint32(data[1:]), stream[strings.LastIndexByte(stream, '.')+27:])
	}
}

// lose tells a worker that its connection has ended, and maybe its server a while later.
func (l *simLine) lose(n int, told bool) {
	l.s.mu.Lock()
	if n == 0 || l.client != n {
		l.s.mu.Unlock()
		return
	}
	l.client = 0
	l.s.note("%s has lost %s", l.w.id, l.h.id)
	if told {
		l.up.carry(func() { l.closed(n) })
	}
	conn := l.conn
	l.s.mu.Unlock()
	conn.node.host.unheard(func(c connection) bool { return c == conn })
	l.connect(conn)
}

// closed tells a server that a connection has ended, and its hub and the worker a while later.
func (l *simLine) closed(n int) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if n == 0 || l.server != n {
		return
	}
	l.server = 0
	l.s.note("%s has lost %s", l.h.id, l.w.id)
	l.down.carry(func() { l.lose(n, true) })
	if hub := l.h.hub; hub != nil {
		l.h.news.carry(func() { hub.gone(l.w.id) })
	}
}

// connect connects a worker's program to the hub in a while. A server that has an earlier connection of it tells its hub first.
func (l *simLine) connect(conn *simUplink) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	time.AfterFunc(between(l.up.dice, 250*time.Millisecond, 600*time.Millisecond), func() {
		l.s.mu.Lock()
		switch {
		case l.conn != conn || l.client != 0 || conn.node.life.Err() != nil:
			l.s.mu.Unlock()
			return
		case l.h.hub == nil || l.up.cut || l.down.cut:
			l.s.mu.Unlock()
			l.connect(conn)
			return
		}
		hub, earlier := l.h.hub, l.server
		l.count++
		l.s.note("%s connects to %s, which had its connection %d", l.w.id, l.h.id, earlier)
		l.client, l.server = l.count, l.count
		l.s.mu.Unlock()
		if earlier != 0 {
			hub.gone(l.w.id)
		}
		conn.announce()
	})
}

func (c *simUplink) announce() {
	if body, err := strictjson.Marshal(c.node.announcement()); err == nil {
		_ = c.Publish(subjectUp+c.line.w.id, body)
	}
}

// A simWorker is a worker, whose program starts again and again.
type simWorker struct {
	s       *sim
	id      string
	lines   []*simLine
	node    *Node // nil while it is down
	version int   // of the definitions of its tools
	journal *simStore
}

func (w *simWorker) start(ctx context.Context) {
	n := &Node{pass: membership.Pass{ID: w.id, Name: w.id, Role: roleWorker}, since: time.Now()}
	n.env = Env{Options: Options{Places: 6}, Machine: &simMachine{w, n}, Log: slog.New(slog.DiscardHandler)}
	n.life, n.end = context.WithCancelCause(ctx)
	n.env.Journal = w.journal.of(n.life)
	box, err := lent.NewBox()
	if err != nil {
		panic(err)
	}
	n.host = newHost(n, box)
	n.host.orders = n.obey
	if err := n.listTools(ctx); err != nil {
		panic(err)
	}
	w.s.mu.Lock()
	w.s.note("%s starts", w.id)
	w.node = n
	var conns []*simUplink
	for _, l := range w.lines {
		l.conn, l.client = &simUplink{l, n}, 0
		conns = append(conns, l.conn)
	}
	w.s.mu.Unlock()
	for _, c := range conns {
		c.line.connect(c)
	}
	n.tasks.Go(func() {
		for tool.Sleep(n.life, announceEvery) {
			for _, c := range conns {
				c.announce()
			}
		}
	})
}

// kill ends the program, whose machine closes its connections. It returns nil if there is none.
func (w *simWorker) kill() *Node {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	n := w.node
	if n == nil {
		return nil
	}
	w.node = nil
	w.s.note("%s is killed", w.id)
	for _, l := range w.lines {
		c := l.client
		l.client = 0
		l.up.carry(func() { l.closed(c) })
	}
	n.end(errors.New("killed"))
	return n
}

// A simMachine runs the tools of one program.
type simMachine struct {
	w *simWorker
	n *Node
}

func simEffects() map[string]tool.Effects {
	return map[string]tool.Effects{"read": {Reads: true}, "set": {Writes: true, Idempotent: true}, "change": {Writes: true}}
}

func (m *simMachine) Offers(context.Context) (all []Offer) {
	m.w.s.mu.Lock()
	defer m.w.s.mu.Unlock()
	for name, effects := range simEffects() {
		all = append(all, Offer{Spec: &tool.Spec{Name: name, Source: "std", Protocol: "go", Effects: effects, Description: strconv.Itoa(m.w.version)}})
	}
	return all
}

func (*simMachine) Touches(context.Context, *tool.Call) (tool.Touches, error) {
	return tool.Touches{}, nil
}
func (*simMachine) Answer(context.Context, Question, tool.Sink) ([]byte, error) { return nil, nil }

// A simRun is one run of a tool.
type simRun struct {
	call, worker, tool, version string
	ended                       bool
}

func (m *simMachine) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	s := m.w.s
	s.mu.Lock()
	if m.n.life.Err() != nil { // the killed do nothing
		s.mu.Unlock()
		return nil, tool.Ended(m.n.life)
	}
	id, r, call := len(s.runs), &simRun{c.ID, m.w.id, c.Tool, strconv.Itoa(m.w.version), false}, s.calls[c.ID]
	s.runs = append(s.runs, r)
	s.note("%s runs %s as %d", m.w.id, c.ID, id)
	s.mu.Unlock()
	for n := range call.events {
		if err := out.Emit(tool.Event{Kind: tool.KindLog, Data: fmt.Appendf(nil, `{"run":%d,"n":%d}`, id, n)}); err != nil {
			return nil, err
		}
		if !tool.Sleep(ctx, call.takes/time.Duration(call.events+1)) {
			break
		}
	}
	if !tool.Sleep(ctx, call.takes/time.Duration(call.events+1)) {
		return nil, tool.Ended(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ended = true
	return &tool.Result{OK: true, Output: []byte(strconv.Itoa(id))}, nil
}

// A simHub is a hub, whose program starts again and again, and its server.
type simHub struct {
	s                   *sim
	id                  string
	inbox, outbox, news *simLane // within the program
	hub                 *hub     // nil while it is down
	node                *Node
	keys                *idempotency.Calls
	life                context.Context
	stop                context.CancelFunc
}

func (h *simHub) start(ctx context.Context) {
	n := &Node{pass: membership.Pass{ID: h.id, Name: h.id, Role: roleHub}}
	n.env = Env{Log: slog.New(slog.DiscardHandler), Changed: func() {}, Late: h.s.late, Rows: h.s.rows}
	var members []member.Member
	for _, w := range h.s.workers {
		members = append(members, member.Member{ID: w.id, Name: w.id, Role: member.Worker})
	}
	n.roster = roster.New(simMembers{all: members}, n.env.Log, nil, members...)
	hub := newHub(n)
	hub.nc = &simServer{h, hub}
	hub.bar = func(node string) {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		h.s.fail("%s floods %s", node, h.id)
	}
	life, stop := context.WithCancel(ctx)
	n.hub, n.life = hub, life
	n.env.Journal = h.s.store.of(life)
	n.host = newHost(n, nil)
	n.host.list.Store(&list{})
	keys := idempotency.New(idempotency.Options{
		TTL: time.Hour, Outcomes: h.s.store.of(life), Late: n.Late, Digests: secret.NewKeyed(func() ([]byte, error) { return make([]byte, 32), nil }),
	})
	h.s.mu.Lock()
	h.hub, h.node, h.keys, h.life, h.stop = hub, n, keys, life, stop
	h.s.note("%s starts", h.id)
	var lost []*tool.Record
	for _, c := range h.s.calls { // the record has their begin, and not their end
		if c.hub == h.id && !c.recorded {
			c.recorded = true
			lost = append(lost, h.s.row(c, tool.OutcomeLost))
		}
	}
	h.s.mu.Unlock()
	n.Recovered(lost)
	go hub.watch(life)
	go hub.follow(life)
	go n.settleDoubts()
}

// kill ends the program, its calls and its connections.
func (h *simHub) kill() bool {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.hub == nil {
		return false
	}
	h.s.note("%s is killed", h.id)
	h.hub = nil
	h.stop()
	for _, l := range h.s.lines {
		if n := l.server; l.h == h {
			l.server = 0
			l.down.carry(func() { l.lose(n, true) })
		}
	}
	return true
}

// deliver lets the program read a message that its server has. The caller holds mu.
func (h *simHub) deliver(m *nats.Msg) {
	hub := h.hub
	if hub == nil {
		return
	}
	h.inbox.carry(func() {
		if strings.HasPrefix(m.Subject, subjectUp) {
			hub.announced(m)
			return
		}
		m := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: slices.Clone(m.Data)}
		if h.s.plant.toHub != nil {
			h.s.plant.toHub(hub, m)
		}
		h.s.frame(h.id, m.Subject, m.Data)
		hub.answered(m)
	})
}

// A simServer is the connection of a hub to its own server.
type simServer struct {
	h  *simHub
	of *hub
}

func (c *simServer) Publish(subject string, data []byte) error {
	return c.PublishRequest(subject, "", data)
}

func (c *simServer) PublishRequest(subject, reply string, data []byte) error {
	h := c.h
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.hub != c.of {
		return nats.ErrConnectionClosed
	}
	h.outbox.carry(func() {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		if h.hub != c.of {
			return
		}
		for _, l := range h.s.lines {
			if l.h == h && subject == subjectNode+l.w.id && l.server != 0 {
				n, m := l.server, &nats.Msg{Subject: subject, Reply: reply, Data: data}
				l.down.risk(func() { l.arrived(n, m) })
				return
			}
		}
		m := &nats.Msg{Subject: subject, Data: data}
		if strings.HasPrefix(subject, subjectNode) { // nobody reads it
			m = &nats.Msg{Subject: reply, Header: nats.Header{"Status": {"503"}}}
		}
		h.deliver(m)
	})
	return nil
}

// A simCall is a call, what its tool does, and what its caller got.
type simCall struct {
	id, tool, version, hub string
	key                    string // of a call that is repeated until it has an outcome
	record                 *tool.Record
	recorded               bool // the record has its end; its hub lived that long
	events, pad            int
	takes, left, cancel    time.Duration // 0: without a deadline, and never cancelled
	slow                   time.Duration // the caller is, for each event
	due, ended             time.Time
	got                    [][2]int // run and number of the events
	result                 *tool.Result
	err                    error
}

// make makes a call at a hub, if that knows the tool.
func (s *sim) make(ctx context.Context, h *simHub, c *simCall) {
	s.mu.Lock()
	hub, life, keys := h.hub, h.life, h.keys
	s.mu.Unlock()
	if hub == nil {
		return
	}
	hub.mu.Lock()
	source := hub.sources["std"]
	hub.mu.Unlock()
	if source == nil {
		return
	}
	specs, _ := source.Tools(ctx)
	i := slices.IndexFunc(specs, func(t *tool.Spec) bool { return t.Name == c.tool })
	if i < 0 {
		return
	}
	spec := specs[i]
	if s.plant.judge != nil {
		s.plant.judge(spec)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(life, stop)()
	if c.cancel > 0 {
		defer time.AfterFunc(c.cancel, stop).Stop()
	}
	if c.left > 0 {
		c.due = time.Now().Add(c.left)
		ctx, stop = context.WithDeadline(ctx, c.due)
		defer stop()
	}
	s.mu.Lock()
	c.version, c.hub = spec.Description, h.id
	s.calls[c.id] = c
	s.note("%s calls %s at %s: %d events, takes %v, has %v, cancelled after %v", c.id, c.tool, h.id, c.events, c.takes, c.left, c.cancel)
	s.mu.Unlock()
	sink := tool.SinkFunc(func(ev tool.Event) error {
		var e [2]int
		if _, err := fmt.Sscanf(string(ev.Data), `{"run":%d,"n":%d}`, &e[0], &e[1]); err != nil {
			return err
		}
		c.got = append(c.got, e)
		tool.Sleep(ctx, c.slow)
		return nil
	})
	args := []byte(`"` + strings.Repeat("x", c.pad) + `"`)
	call := &tool.Call{ID: c.id, Tool: "std." + c.tool, Spec: spec, Session: c.first(), Key: c.key, Args: args}
	c.record = &tool.Record{Time: time.Now(), Call: c.id, Tool: call.Tool, Source: "std", Session: call.Session, Key: c.key}
	call.Record, call.Began = c.record, time.Now()
	r, err := keys.For(spec)(source).Invoke(ctx, call, sink)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.result, c.err, c.ended, c.recorded = r, err, time.Now(), life.Err() == nil
	if c.recorded && tool.InDoubt(err) {
		s.row(c, tool.OutcomeError)
	}
	s.note("%s ends: %v %v, not run: %v", c.id, r != nil, err, tool.NotRun(err))
}

// load makes calls, one after the other.
func (s *sim) load(ctx context.Context, name string) {
	dice := s.dice(name)
	for n := range 5 {
		tool.Sleep(ctx, between(dice, 1, 8*time.Second))
		c := &simCall{id: fmt.Sprint(name, ".", n), tool: []string{"read", "set", "change"}[dice.IntN(3)], takes: between(dice, 1, 4*time.Second)}
		if dice.IntN(2) == 0 {
			c.events = dice.IntN(100)
			c.slow = between(dice, 0, 100*time.Millisecond)
		}
		if dice.IntN(5) == 0 {
			c.pad = dice.IntN(6 * chunk)
		}
		if dice.IntN(10) == 0 {
			c.cancel = between(dice, 1, 5*time.Second)
		}
		if dice.IntN(4) > 0 || s.hostile { // a hostile link loses the last message of a call, which nobody would notice
			c.left = between(dice, time.Second, 20*time.Second)
		}
		if dice.IntN(2) == 0 {
			c.key = c.id
		}
		s.make(ctx, s.hubs[dice.IntN(len(s.hubs))], c)
		s.repeat(ctx, c, dice)
	}
}

// trouble does something bad to the fleet, for a while.
func (s *sim) trouble(ctx context.Context, name string) {
	dice := s.dice(name)
	time.Sleep(between(dice, 2*time.Second, 45*time.Second))
	l, long := s.lines[dice.IntN(len(s.lines))], between(dice, 100*time.Millisecond, []time.Duration{time.Second, 8 * time.Second}[dice.IntN(2)])
	switch dice.IntN(7) {
	case 0: // the connection breaks
		s.mu.Lock()
		n, m := l.client, l.server
		s.mu.Unlock()
		time.AfterFunc(between(dice, 1, 50*time.Millisecond), func() { l.closed(m) })
		time.AfterFunc(between(dice, 1, 50*time.Millisecond), func() { l.lose(n, true) })
	case 1, 2:
		s.cut(l, 1+dice.IntN(3), 2*long)
	case 3:
		if w := l.w; w.kill() != nil {
			time.Sleep(long)
			w.start(ctx)
		}
	case 4:
		if h := l.h; h.kill() {
			time.Sleep(long)
			h.start(ctx)
		}
	case 5: // a firewall forgets the connection, or the worker has another address: its server learns nothing
		s.mu.Lock()
		n := l.client
		s.mu.Unlock()
		l.lose(n, false)
	case 6:
		s.define(ctx, l.w, 1+dice.IntN(2))
	}
}

// define gives the tools of a worker another definition.
func (s *sim) define(ctx context.Context, w *simWorker, version int) {
	s.mu.Lock()
	w.version = version
	n := w.node
	s.note("%s has the version %d", w.id, version)
	s.mu.Unlock()
	if n != nil {
		_ = n.listTools(ctx)
	}
}

// cut cuts one way or both. The worker, which pings, gives the connection up after a while.
func (s *sim) cut(l *simLine, ways int, long time.Duration) {
	s.mu.Lock()
	s.note("cut between %s and %s, ways %d", l.w.id, l.h.id, ways)
	l.up.cut, l.down.cut = l.up.cut || ways&1 > 0, l.down.cut || ways&2 > 0
	n := l.client
	s.mu.Unlock()
	const pings = 10 * time.Second
	if time.Sleep(min(long, pings)); long > pings {
		l.lose(n, true)
		time.Sleep(long - pings)
	}
	l.up.heal()
	l.down.heal()
	s.mu.Lock()
	s.note("healed between %s and %s", l.w.id, l.h.id)
	s.mu.Unlock()
}

// run lets the fleet work for a while amid troubles, heals it, and checks what came of that.
func (s *sim) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	dice := s.dice("all")
	s.began, s.calls, s.hostile = time.Now(), map[string]*simCall{}, dice.IntN(2) == 0
	s.store = newSimStore(s, "keys")
	s.chaos = s.hostile
	s.note("hostile: %v", s.hostile)
	for i := range 2 + dice.IntN(2) {
		s.workers = append(s.workers, &simWorker{s: s, id: fmt.Sprint("worker", i), version: 1, journal: newSimStore(s, "journal")})
	}
	for i := range 1 + dice.IntN(2) {
		h := &simHub{s: s, id: fmt.Sprint("hub", i)}
		in := func(name string) *simLane { return s.lane(h.id+name, time.Millisecond) }
		h.inbox, h.outbox, h.news = in("inbox"), in("outbox"), in("news")
		s.hubs = append(s.hubs, h)
		for _, w := range s.workers {
			name := h.id + w.id
			l := &simLine{s: s, w: w, h: h, up: s.lane(name+"up", 20*time.Millisecond), down: s.lane(name+"down", 20*time.Millisecond), read: in(name)}
			s.lines, w.lines = append(s.lines, l), append(w.lines, l)
		}
		h.start(ctx)
	}
	for _, w := range s.workers {
		w.start(ctx)
	}
	var troubles, load sync.WaitGroup
	for i := range 4 + dice.IntN(9) {
		troubles.Go(func() { s.trouble(ctx, fmt.Sprint("trouble", i)) })
	}
	for i := range 8 {
		load.Go(func() { s.load(ctx, fmt.Sprint("call", i)) })
	}
	troubles.Wait()
	s.mu.Lock()
	s.hostile = false
	s.note("all is well again")
	s.mu.Unlock()
	for _, w := range s.workers {
		s.define(ctx, w, 1)
	}
	done := make(chan struct{})
	go func() { load.Wait(); close(done) }()
	if !tool.Within(done, 2*time.Minute) {
		s.fail("calls hang")
	}
	time.Sleep(45 * time.Second) // no wait of the link is longer, but that for the rest of a request
	if slices.ContainsFunc(s.workers, func(w *simWorker) bool { return w.node.host.room.Held.Load() > 0 }) && s.chaos {
		time.Sleep(wholeWithin)
	}
	for _, h := range s.hubs {
		for name := range simEffects() {
			c := &simCall{id: "last." + h.id + "." + name, tool: name, takes: time.Millisecond, left: 5 * time.Second}
			if s.make(ctx, h, c); c.err != nil || c.result == nil {
				s.fail("%s fails, though all is well: %v", c.id, c.err)
			}
		}
	}
	time.Sleep(time.Second)
	for range 100 { // hubs look for lost calls now and then
		if !slices.ContainsFunc(s.hubs, func(h *simHub) bool { return h.hub.asks() }) {
			break
		}
		time.Sleep(askWithin / 100)
	}
	s.check()
	s.checkLost(ctx)
	for _, h := range s.hubs {
		h.kill()
	}
	for _, w := range s.workers {
		n := w.kill()
		n.host.tasks.Wait()
		n.tasks.Wait()
	}
	<-done
}

// asks reports whether a hub has a stream.
func (h *hub) asks() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.streams) > 0
}

func (s *sim) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		s.checkCall(c)
	}
	s.checkKeys()
	for _, h := range s.hubs {
		h.hub.mu.Lock()
		if n, e, held := len(h.hub.streams), len(h.hub.ending), h.hub.room.Held.Load(); n+e > 0 || held != 0 {
			s.fail("%s has %d streams, %d that end, and %d bytes", h.id, n, e, held)
		}
		for id, p := range h.hub.peers {
			if p.inflight != 0 {
				s.fail("%s has %d calls at %s", h.id, p.inflight, id)
			}
		}
		h.hub.mu.Unlock()
	}
	for _, w := range s.workers {
		h := w.node.host
		h.mu.Lock()
		if n, held := len(h.streams), h.room.Held.Load(); n+h.calls > 0 || held != 0 {
			s.fail("%s has %d streams, %d calls and %d bytes", w.id, n, h.calls, held)
		}
		h.mu.Unlock()
	}
}

// checkCall compares what a caller got with what ran.
func (s *sim) checkCall(c *simCall) {
	ran, most := 0, attempts
	for _, r := range s.runs {
		if r.call == c.id {
			ran++
			if r.tool != "std."+c.tool || r.version != c.version {
				s.fail("%s calls %s of version %s, and %s runs %s of version %s", c.id, c.tool, c.version, r.worker, r.tool, r.version)
			}
		}
	}
	if c.tool == "change" {
		most = 1
	}
	replayed := c.result != nil && c.result.Trace.Details[idempotency.Hit] == true
	switch {
	case ran > most:
		s.fail("%s ran %s %d times", c.id, c.tool, ran)
	case c.ended.IsZero():
		s.fail("%s hangs", c.id)
		return
	case !c.due.IsZero() && c.ended.Sub(c.due) > 100*time.Millisecond:
		s.fail("%s ends %v after its deadline", c.id, c.ended.Sub(c.due))
	case (c.result == nil) == (c.err == nil):
		s.fail("%s has the result %v and the error %v", c.id, c.result, c.err)
	case tool.NotRun(c.err) && ran > 0:
		s.fail("%s of %s ran %d times, and its caller is told that it did not: %v", c.id, c.tool, ran, c.err)
	}
	run, n := -1, 0
	seen := map[int]bool{}
	for _, e := range c.got {
		if e[0] != run {
			run, n = e[0], 0
			if seen[run] || s.runs[run].call != c.id {
				s.fail("%s gets events of run %d", c.id, run)
			}
			seen[run] = true
		}
		if e[1] != n {
			s.fail("%s gets event %d of run %d in place of %d", c.id, e[1], run, n)
		}
		n++
	}
	if c.result == nil {
		return
	}
	of, err := strconv.Atoi(string(c.result.Output))
	if err != nil || s.runs[of].call != c.id && !replayed || !s.runs[of].ended {
		s.fail("%s has the result of run %s", c.id, c.result.Output)
		return
	}
	if c.events > 0 && !replayed && (run != of || n != c.events) {
		s.fail("%s has %d of %d events of run %d, and the result of run %d", c.id, n, c.events, run, of)
	}
}

// simulate runs the schedule of a seed.
func simulate(t *testing.T, seed uint64, p plant) *sim {
	s := &sim{seed: seed, plant: p}
	synctest.Test(t, func(t *testing.T) { s.run(t.Context()) })
	return s
}

// Whatever the link does, a call has one outcome that is true, and nothing is left of it. TOOLPOST_SEED=N go test -v -run TestSimSchedules
// shows what happens in one schedule.
func TestSimSchedules(t *testing.T) {
	if only, err := strconv.ParseUint(os.Getenv("TOOLPOST_SEED"), 10, 64); err == nil {
		s := simulate(t, only, plant{})
		t.Logf("%s\n%d calls, %d runs", strings.Join(s.log, "\n"), len(s.calls), len(s.runs))
		for _, w := range s.wrong {
			t.Error(w)
		}
		return
	}
	for seed := range uint64(rounds.Of(20, 5000)) {
		if s := simulate(t, seed, plant{}); len(s.wrong) > 0 {
			t.Errorf("TOOLPOST_SEED=%d, %s: %s", seed, s.log[0], strings.Join(s.wrong, "\n"))
		}
	}
}

// rewrite changes the request in a frame, if it is whole.
func rewrite(m *nats.Msg, change func(r *request)) {
	var r request
	if len(m.Data) < headSize || kind(m.Data[0]) != kindCall {
		return
	}
	raw, err := packed.Read(m.Data[headSize:], &r)
	if err != nil {
		return
	}
	change(&r)
	if body, err := packed.Write(&r, raw...); err == nil {
		m.Data = append(m.Data[:headSize:headSize], body...)
	}
}

// renumber gives a frame the number that its stream wants.
func renumber(s *stream, data []byte) {
	if s == nil || len(data) < headSize || kind(data[0]) == kindTaken || kind(data[0]) == kindEnd {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	binary.BigEndian.PutUint32(data[1:], s.got+1)
}

// The simulation finds each guard that is taken out. A journal refuses what the first two let through, so it is taken out with them.
func TestPlantedFaultsAreFound(t *testing.T) {
	for what, p := range map[string]struct {
		plant
		says string
	}{
		"a request that comes again runs again": {plant{forgets: "journal", toWorker: func(h *host, _ *nats.Msg) {
			h.mu.Lock()
			defer h.mu.Unlock()
			clear(h.seen)
			clear(h.before)
		}}, "times"},
		"a program takes requests for an earlier one": {plant{forgets: "journal", toWorker: func(h *host, m *nats.Msg) {
			rewrite(m, func(r *request) { r.To = h.run })
		}}, "times"},
		"a node takes requests for another definition": {plant{toWorker: func(h *host, m *nats.Msg) {
			rewrite(m, func(r *request) { r.Digest = h.list.Load().tools[toolKey(r.Source, r.Tool)] })
		}}, "of version"},
		"frames are not numbered": {plant{toHub: func(h *hub, m *nats.Msg) {
			h.mu.Lock()
			defer h.mu.Unlock()
			renumber(h.streams[m.Subject], m.Data)
		}}, "gets event"},
		"hubs remember no keys":                   {plant{forgets: "keys"}, "twice"},
		"workers keep no journal":                 {plant{forgets: "journal"}, "it ran as"},
		"workers forget what they refuse":         {plant{forgets: "refusals"}, "twice"},
		"what may change something is sent again": {plant{judge: func(s *tool.Spec) { s.Effects.Idempotent = true }}, "ran change"},
	} {
		t.Run(what, func(t *testing.T) {
			for seed := range uint64(rounds.Of(200, 5000)) {
				s := simulate(t, seed, p.plant)
				if i := slices.IndexFunc(s.wrong, func(w string) bool { return strings.Contains(w, p.says) }); i >= 0 {
					t.Logf("found after %d schedules: %s", seed+1, s.wrong[i])
					return
				}
			}
			t.Error("not found")
		})
	}
}
