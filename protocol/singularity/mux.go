package singularity

import (
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
)

// A mux takes the replies and events of all calls of a runner from one subscription, so that they arrive in the order in
// which they were sent, and a call needs no subscription of its own.
type mux struct {
	prefix string

	mu    sync.Mutex
	next  uint64
	calls map[string]*pending
}

// eventsToken ends the subject for events. The token of a call is a number, so no reply subject ends like this.
const eventsToken = ".e"

// Bounds on what a peer may send ahead of the sink of one call. A peer that respects acknowledgements never reaches them.
const (
	maxHeld      = 4 << 10
	maxHeldBytes = 32 << 20
)

// A pending is a call that waits for messages.
type pending struct {
	token string
	wake  chan struct{}

	mu     sync.Mutex
	held   []*nats.Msg
	bytes  int
	broken error // why no more messages will come
}

func newMux() *mux { return &mux{prefix: nats.NewInbox(), calls: map[string]*pending{}} }

func (m *mux) listen(nc *nats.Conn) error {
	sub, err := nc.Subscribe(m.prefix+".>", m.deliver)
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(maxUnread, maxUnreadBytes)
}

func (m *mux) open() *pending {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	p := &pending{token: strconv.FormatUint(m.next, 10), wake: make(chan struct{}, 1)}
	m.calls[p.token] = p
	return p
}

func (m *mux) close(p *pending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.calls, p.token)
}

func (m *mux) replyTo(p *pending) string  { return m.prefix + "." + p.token }
func (m *mux) eventsTo(p *pending) string { return m.replyTo(p) + eventsToken }

// deliver hands a message to its call. A late message is dropped.
func (m *mux) deliver(msg *nats.Msg) {
	token, _, _ := strings.Cut(strings.TrimPrefix(msg.Subject, m.prefix+"."), ".")
	m.mu.Lock()
	p := m.calls[token]
	m.mu.Unlock()
	if p != nil {
		p.add(msg)
	}
}

// fail ends every call: the connection is lost, and with it all messages in transit.
func (m *mux) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.calls {
		p.stop(err)
	}
}

func (p *pending) add(msg *nats.Msg) {
	p.mu.Lock()
	p.held = append(p.held, msg)
	p.bytes += len(msg.Data)
	flooded := len(p.held) > maxHeld || p.bytes > maxHeldBytes
	p.mu.Unlock()
	if flooded {
		p.stop(tool.Errorf(tool.CodeProtocol, "events came faster than they were acknowledged"))
	}
	p.signal()
}

func (p *pending) stop(err error) {
	p.mu.Lock()
	if p.broken == nil {
		p.broken = err
	}
	p.mu.Unlock()
	p.signal()
}

func (p *pending) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take returns the messages that have arrived, and why no more will come.
func (p *pending) take() ([]*nats.Msg, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.held
	p.held, p.bytes = nil, 0
	return held, p.broken
}
