// Package fleet makes several machines one Toolpost: hubs take calls, and workers run them.
//
// NATS moves what the nodes say to each other, and keeps nothing. Every hub has a NATS server of its own, and every other node,
// hubs included, connects to each of them: a hub sees at first hand which nodes are there, and no hub is needed by another.
// A node subscribes to one subject; a hub opens a stream of numbered frames on it for each call. What lasts is in the store.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/engine/idempotency"
	"toolpost/engine/member"
	"toolpost/fleet/certs"
	"toolpost/fleet/late"
	"toolpost/fleet/lent"
	"toolpost/fleet/membership"
	"toolpost/fleet/outward"
	"toolpost/fleet/roster"
	"toolpost/host/broker"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	roleHub    = member.Hub
	roleWorker = member.Worker
)

// DefaultListen is the address of a hub's server.
const DefaultListen = ":7422"

// Section is the part of the config that a node reads.
func Section() config.Part {
	return config.Part{Name: "fleet", Doc: "this server as a hub of a fleet, or this worker; `toolpost fleet init` writes it", Options: Options{}}
}

// Options is the section fleet of a config.
type Options struct {
	Listen    string          `yaml:"listen" schema:"default=:7422" doc:"where the hub takes connections of other nodes; if another program has the port, it takes a free one"`
	TLS       certs.Files     `yaml:"tls" doc:"a certificate of your own, from fleet init on; default: the fleet makes its own"`
	Advertise string          `yaml:"advertise" doc:"HOST or HOST:PORT at which other nodes reach this hub; default: an address of this machine"`
	Name      string          `yaml:"name" doc:"of this node; default: the name of the machine"`
	Labels    []string        `yaml:"labels" doc:"labels of this node, such as gpu, beside those of its token; they route calls, and grant nothing"`
	Routes    []Route         `yaml:"routes" doc:"of a hub: which nodes run calls of which tools; default: any node that has the tool"`
	Places    int             `yaml:"places" schema:"default=1024" doc:"how many calls of hubs this node takes at once"`
	Drain     config.Duration `yaml:"drain" schema:"default=30s" doc:"how long running calls may take to end when the node drains"`
}

// Check reports what cannot be meant.
func (o Options) Check() error {
	if o.Listen != "" && broker.Listen(&server.Options{}, o.Listen) != nil {
		return tool.Errorf(tool.CodeInvalidInput, "fleet.listen is %q; write HOST:PORT or :PORT, such as %s", o.Listen, DefaultListen)
	}
	if o.Places < 0 || o.Places > maxStreams {
		return tool.Errorf(tool.CodeInvalidInput, "fleet.places is %d; write a number from 1 to %d", o.Places, maxStreams)
	}
	host, _ := o.advertised()
	if o.TLS != (certs.Files{}) && (o.TLS.Cert == "" || o.TLS.Key == "" || o.TLS.CA == "" || host == "") {
		return tool.Errorf(tool.CodeInvalidInput, "fleet.tls needs a cert, a key and a ca, and fleet.advertise: other nodes connect to that name")
	}
	return nil
}

// advertised returns the parts of Advertise. The port is "" if it is the one on which the hub listens.
func (o Options) advertised() (host, port string) {
	if host, port, err := net.SplitHostPort(o.Advertise); err == nil {
		return host, port
	}
	return o.Advertise, ""
}

// A Route names the nodes for the calls of some tools.
type Route struct {
	Tools  tool.Patterns `yaml:"tools" doc:"tools by name or as source.name, with * and ?; default: all. A tool that the hub itself has runs there"`
	Labels []string      `yaml:"labels" doc:"labels that a node must have, all of them, each in its config or of its token"`
}

// Env is what a node is made of.
type Env struct {
	Options
	Pass     *membership.Pass
	State    string // the folder of the pass
	Version  string
	Log      *slog.Logger
	Machine  Machine
	Register member.Store         // of a hub
	Journal  idempotency.Outcomes // of the calls of hubs that may change something; may be nil
	Changed  func()               // the sources of the fleet may have changed; of a hub
	// Config returns the digests of the sections of the config that all hubs should share; of a hub.
	Config func() map[string]string
	Late   func(context.Context, *tool.Record) error // adds the outcome of a call that was lost to the record; of a hub
	Rows   late.Log                                  // reads the record; of a hub
	Alone  bool                                      // no other hub can use its store
	// Stop ends the program that the node is a part of: without an error once an operator drains it, otherwise because it
	// cannot be a member any more.
	Stop func(why error)
}

// A Node is a member of a fleet that runs.
type Node struct {
	env    Env
	host   *host
	life   context.Context
	end    context.CancelCauseFunc
	tasks  sync.WaitGroup
	since  time.Time
	server *natsServer // of a hub, like the following
	nc     *nats.Conn
	system *nats.Conn
	hub    *hub
	roster *roster.Roster
	nudge  chan struct{} // something to announce
	lock   *os.File      // on the state folder: one program is this node

	gathered atomic.Bool // of a hub: it has known all nodes

	linking sync.Mutex // one connect at a time

	mu    sync.Mutex
	links map[string]*link // by address
	pass  membership.Pass

	doubts late.List // of a hub
}

// Sources are those of the fleet, for the catalogue of a hub, in the order of their names.
func (n *Node) Sources() (all []*Source) {
	if n == nil || n.hub == nil {
		return nil
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n.hub.sources)) {
		all = append(all, n.hub.sources[name])
	}
	return all
}

// Start connects a node to its fleet. It returns at once: hubs that cannot be reached are tried again.
func Start(ctx context.Context, env Env) (*Node, error) {
	box, err := lent.NewBox()
	if err != nil {
		return nil, err
	}
	lock, err := membership.Lock(env.State)
	if err != nil {
		return nil, err
	}
	n := &Node{env: env, lock: lock, links: map[string]*link{}, pass: *env.Pass, since: time.Now(), nudge: make(chan struct{}, 1)}
	n.env.Listen, n.env.Places = cmp.Or(env.Listen, DefaultListen), cmp.Or(env.Places, 1024)
	n.life, n.end = context.WithCancelCause(context.WithoutCancel(ctx))
	n.host = newHost(n, box)
	if err := n.listTools(ctx); err != nil {
		_ = lock.Close()
		return nil, err
	}
	if n.pass.Role == roleHub {
		if err := n.startHub(ctx); err != nil {
			n.Close(ctx)
			return nil, err
		}
	} else {
		n.connect(n.pass.Hubs) // a hub finds them in the store
	}
	n.tasks.Go(n.announce)
	return n, nil
}

// listTools notes what this node offers now.
func (n *Node) listTools(ctx context.Context) error {
	l, err := newList(sorted(n.env.Machine.Offers(ctx)))
	if err == nil {
		n.host.list.Store(l)
	}
	return err
}

// Retold tells the hubs that the tools of this node may have changed.
func (n *Node) Retold(ctx context.Context) {
	if err := n.listTools(ctx); err != nil {
		n.env.Log.Warn("the tools of this node cannot be described to the fleet", "error", err)
	}
	signal(n.nudge)
}

// announcement says what this node is now.
func (n *Node) announcement() announcement {
	running, draining := n.host.running()
	l := n.host.list.Load()
	var sections map[string]string
	if n.env.Config != nil {
		sections = n.env.Config()
	}
	return announcement{
		ID: n.pass.ID, Name: n.pass.Name, Role: string(n.pass.Role), Run: n.host.run, Link: linkVersion, Version: n.env.Version,
		Labels: n.env.Labels, Digest: l.digest, Tools: len(l.tools), Running: running, Places: n.env.Places, Draining: draining,
		Since: n.since, Config: sections, Seal: n.host.box.Public(),
	}
}

// announce tells every hub what this node is, each second and when that changes.
func (n *Node) announce() {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		n.tell(n.announcement())
		select {
		case <-tick.C:
		case <-n.nudge:
		case <-n.life.Done():
			return
		}
	}
}

func (n *Node) tell(a announcement) {
	body, err := strictjson.Marshal(a)
	if err != nil {
		return
	}
	for _, l := range n.all() {
		_ = l.nc.Publish(subjectUp+a.ID, body) // a hub that cannot be reached has forgotten this node
	}
}

func (n *Node) all() []*link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.links))
}

// A link is the connection of a node to a hub.
type link struct {
	address string
	key     string // that it was opened with
	nc      *nats.Conn
	missed  sync.Once // that the hub cannot be reached
}

// connect connects to hubs, and leaves those that are not among them.
func (n *Node) connect(addresses []string) {
	n.linking.Lock()
	defer n.linking.Unlock()
	n.mu.Lock()
	before, links := n.links, map[string]*link{}
	n.mu.Unlock()
	for _, a := range addresses {
		if a == n.address() || n.life.Err() != nil {
			continue
		}
		l := before[a]
		if now, err := n.key(); l == nil || err == nil && l.key != now && !l.nc.IsConnected() {
			if l, err = n.dial(a); err != nil {
				n.env.Log.Warn("a hub cannot be connected to", "hub", a, "error", err)
				continue
			}
		}
		links[a] = l
	}
	n.mu.Lock()
	n.links = links
	n.mu.Unlock()
	for a, l := range before {
		if links[a] != l {
			l.nc.Close()
		}
	}
}

func (n *Node) dial(address string) (*link, error) {
	trust, err := n.pass.Trust()
	if err != nil {
		return nil, err
	}
	public, err := n.key()
	if err != nil {
		return nil, err
	}
	l := &link{address: address, key: public}
	l.nc, err = nats.Connect("nats://"+address, nats.Secure(trust), nats.TLSHandshakeFirst(),
		nats.Nkey(public, n.sign), nats.Name(n.pass.Name), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(tries int) time.Duration { return n.pause(l, tries) }),
		nats.ReconnectBufSize(-1), nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(1), nats.Timeout(5*time.Second),
		nats.IgnoreDiscoveredServers(), nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(func(*nats.Conn) { n.connected(address) }), nats.ReconnectHandler(func(*nats.Conn) { n.connected(address) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { n.troubled(l, err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { n.missed(l, err) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			n.host.unheard(func(c connection) bool { u, ok := c.(uplink); return ok && u.endedOf(nc) })
			if err != nil {
				n.env.Log.Warn("the connection to a hub is lost; it is tried again", "hub", address, "error", err)
			}
			go n.redial(l)
		}))
	if err != nil {
		return nil, err
	}
	err = subscribe(l.nc, map[string]nats.MsgHandler{
		subjectNode + n.pass.ID: func(m *nats.Msg) { n.host.take(uplink{l.nc, l.nc.Stats().Reconnects}, m) }, subjectHubs: n.learn,
	})
	if err != nil {
		l.nc.Close()
	}
	return l, err
}

// An uplink is a connection to a hub, until the client connects again.
type uplink struct {
	*nats.Conn
	times uint64 // that it had connected again
}

// endedOf reports whether it is over. The client says late that a connection has ended, maybe after it has another one.
func (u uplink) endedOf(nc *nats.Conn) bool {
	return u.Conn == nc && (u.times < nc.Stats().Reconnects || !nc.IsConnected())
}

// subscribe reads subjects, with as much room as all streams need: they bound what is on its way.
func subscribe(nc *nats.Conn, to map[string]nats.MsgHandler) error {
	for subject, take := range to {
		sub, err := nc.Subscribe(subject, take)
		if err != nil {
			return err
		}
		_ = sub.SetPendingLimits(-1, mostHeld)
	}
	return nil
}

// key returns the public key of this node.
func (n *Node) key() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pass.Public()
}

// redial replaces a link that has ended, if the node has another key by now.
func (n *Node) redial(l *link) {
	if now, err := n.key(); err != nil || now == l.key {
		return
	}
	n.mu.Lock()
	hubs := n.pass.Hubs
	n.mu.Unlock()
	n.connect(hubs)
}

func (n *Node) sign(nonce []byte) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pass.Sign(nonce)
}

func (n *Node) connected(address string) {
	n.env.Log.Info("connected to a hub", "hub", address)
	signal(n.nudge)
}

// patience is how many connections a hub may close at once before the log of a node says so.
const patience = 5

// pause is the time until a node tries again to connect. A hub closes connections that it cannot admit now, which is no error to the
// client once it was connected.
func (n *Node) pause(l *link, tries int) time.Duration {
	if tries == patience {
		n.missed(l, io.EOF)
	}
	return 250*time.Millisecond + rand.N(250*time.Millisecond) //nolint:gosec // no secret
}

// missed notes an attempt to connect that failed. Other errors of the first connect are reported here alone.
func (n *Node) missed(l *link, err error) {
	if errors.Is(err, nats.ErrAuthorization) {
		n.troubled(l, err)
		return
	}
	what := "a hub cannot be reached; it is tried again"
	if errors.Is(err, io.EOF) {
		what = "a hub does not admit this node now, and its log says why; it is tried again"
	}
	l.missed.Do(func() { n.env.Log.Warn(what, "hub", l.address, "error", err) })
}

// troubled notes an error of a connection. A hub refuses a node if the fleet has no member with its key, so the node was evicted, unless
// it was not told that its new key is in use.
func (n *Node) troubled(l *link, err error) {
	if !errors.Is(err, nats.ErrAuthorization) {
		n.env.Log.Warn("a connection of the fleet has a problem", "hub", l.address, "error", err)
		return
	}
	n.mu.Lock()
	waits := n.pass.Next != ""
	n.mu.Unlock()
	if now, bad := n.key(); bad == nil && (waits || now != l.key) {
		go func() { _ = n.useKey(); n.redial(l) }()
		return
	}
	n.env.Stop(tool.Errorf(tool.CodeAccessDenied, "the hub at %s refuses this node: it was evicted, or joined again elsewhere; "+
		"to join again, remove %s and use a new token", l.address, filepath.Join(n.env.State, membership.File)))
}

// learn gets the addresses of the hubs, and remembers them for the next start.
func (n *Node) learn(m *nats.Msg) {
	var hubs []string
	if strictjson.Unmarshal(m.Data, &hubs) != nil || len(hubs) == 0 {
		return
	}
	n.mu.Lock()
	same := slices.Equal(hubs, n.pass.Hubs)
	n.mu.Unlock()
	if same {
		return
	}
	if err := n.change(func(p *membership.Pass) { p.Hubs = hubs }); err != nil {
		n.env.Log.Warn("the addresses of the hubs cannot be kept", "error", err)
	}
	go n.connect(hubs) // not on the goroutine of a connection that it may close
}

// change edits the pass, and saves it before another change: an earlier state must not replace a later one. The edit counts even if
// it cannot be saved.
func (n *Node) change(edit func(*membership.Pass)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	edit(&n.pass)
	return n.pass.Save(n.env.State)
}

// address is the address of this hub for other nodes; "" of a worker.
func (n *Node) address() string {
	if n.server == nil {
		return ""
	}
	if host, port := n.env.advertised(); host != "" {
		return net.JoinHostPort(host, cmp.Or(port, n.server.port))
	}
	host, _, _ := net.SplitHostPort(n.env.Listen)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = outward.Address()
	}
	return net.JoinHostPort(host, n.server.port)
}

// Drain takes no more calls, and waits until those that run have ended, or ctx ends.
func (n *Node) Drain(ctx context.Context) {
	idle := n.host.drain()
	signal(n.nudge)
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// Close leaves: calls that run here are cancelled.
func (n *Node) Close(context.Context) {
	n.host.close()
	n.end(tool.Errorf(tool.CodeUnavailable, "the node shuts down").Because(reasonGone))
	n.tasks.Wait()
	n.host.tasks.Wait()
	for _, l := range n.all() {
		l.close()
	}
	n.closeHub()
	_ = n.lock.Close()
}

// close ends the connection once what is on its way to this node has been answered: its hub learns that it began no call of
// these.
func (l *link) close() {
	closed := make(chan struct{})
	l.nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	if l.nc.Drain() == nil {
		tool.Within(closed, time.Second)
	}
	l.nc.Close()
}
