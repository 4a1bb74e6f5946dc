package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/idempotency"
	"toolpost/fleet/bound"
	"toolpost/fleet/lent"
	"toolpost/tool"
	"toolpost/wire/packed"
	"toolpost/wire/receipt"
	"toolpost/wire/strictjson"
)

// A Machine is what a node runs for hubs.
type Machine interface {
	tool.Handler
	// Offers lists the tools. It is called after each change.
	Offers(ctx context.Context) []Offer
	// Touches returns what the runner of the tool says that a call will touch.
	Touches(ctx context.Context, c *tool.Call) (tool.Touches, error)
	// Answer answers a question of a hub about this node.
	Answer(ctx context.Context, q Question, out tool.Sink) ([]byte, error)
}

// maxStreams bounds the calls and questions that hubs have at a node at once; it refuses more, and the hub asks another node.
const maxStreams = 4096

// remembered is how many streams that ended a node remembers, so that a message that is sent again starts nothing.
const remembered = 1 << 16

// A host runs the calls of hubs on this node.
type host struct {
	id      string
	name    string
	attest  func([]byte) (key string, signature []byte, err error)
	journal idempotency.Outcomes // nil: nothing is remembered
	run     string               // of this program: a message for an earlier one is refused
	machine Machine
	orders  func(ctx context.Context, order order, out tool.Sink) ([]byte, error)
	log     *slog.Logger
	life    context.Context
	tasks   sync.WaitGroup
	places  int // calls at once
	list    atomic.Pointer[list]
	resting chan func() // tasks for goroutines that rest
	rests   atomic.Int32
	room    bound.Budget // of the streams
	box     *lent.Box    // opens the keys of calls

	mu       sync.Mutex
	streams  map[string]*stream // by the subject of the answers
	seen     map[string]bool    // of streams that ended
	before   map[string]bool    // likewise, a while ago
	calls    int
	asked    map[string]func() // how the programs that wait for answers learn that none comes, by question
	draining bool
	closed   bool
	idle     chan struct{} // closed once it drains and no call is left
}

func newHost(n *Node, box *lent.Box) *host {
	return &host{
		id: n.pass.ID, name: n.pass.Name, attest: n.attest, journal: n.env.Journal, run: rand.Text(), machine: n.env.Machine, orders: n.obey, log: n.env.Log, life: n.life, places: n.env.Places,
		streams: map[string]*stream{}, seen: map[string]bool{}, resting: make(chan func()),
		room: bound.Budget{Most: mostHeld, Full: busy("has more calls on their way to it than it can hold")},
		box:  box,
	}
}

// take gets a message of a hub, from any of the links. It never blocks.
func (h *host) take(nc connection, m *nats.Msg) {
	h.mu.Lock()
	s := h.streams[m.Reply]
	if s == nil && h.opens(m) {
		s = newStream("the hub", &h.room, func(b []byte) error { return nc.Publish(m.Reply, b) })
		s.over = nc
		if why := h.full(); why != nil {
			h.mu.Unlock()
			s.end(why)
			return
		}
		h.streams[m.Reply] = s
		h.start(func() { h.serve(m.Reply, s) })
	}
	h.mu.Unlock()
	if s != nil {
		s.deliver(m.Data)
	}
}

// full returns why this node takes no stream, or nil. The caller holds mu.
func (h *host) full() error {
	switch {
	case h.closed:
		return busy("leaves")
	case len(h.streams) >= maxStreams:
		return busy("has %d calls and questions already", maxStreams)
	}
	return nil
}

// mostResting is how many goroutines wait for another stream.
const mostResting = 64

// start runs a task on a goroutine that has run one before, if there is one: the stack of a new one would have to grow.
func (h *host) start(task func()) {
	select {
	case h.resting <- task:
	default:
		h.tasks.Go(func() {
			for task != nil {
				task()
				task = h.rest()
			}
		})
	}
}

// rest waits for a task. It returns nil if enough goroutines wait, or none will come.
func (h *host) rest() (task func()) {
	if h.rests.Add(1) <= mostResting {
		select {
		case task = <-h.resting:
		case <-h.life.Done():
		}
	}
	h.rests.Add(-1)
	return task
}

// unheard lets the calls of connections that have ended go on without their hub, which has forgotten them.
func (h *host) unheard(ended func(connection) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.streams {
		if ended(s.over) {
			s.mute()
		}
	}
}

// opens reports whether a message begins a stream, as the first frame does. The caller holds mu.
func (h *host) opens(m *nats.Msg) bool {
	first := len(m.Data) >= headSize && binary.BigEndian.Uint32(m.Data[1:]) == 1
	return first && kind(m.Data[0]) != kindTaken && kind(m.Data[0]) != kindEnd && !h.seen[m.Reply] && !h.before[m.Reply]
}

// busy is the refusal of a node that takes no call now: another one may.
func busy(format string, args ...any) error {
	return tool.BeforeRun(tool.Errorf(tool.CodeUnavailable, "the node "+format, args...).Because(reasonGone))
}

// wholeWithin is how long the first message of a hub may take to arrive, which may be large.
const wholeWithin = 5 * time.Minute

// serve answers one stream.
func (h *host) serve(subject string, s *stream) {
	ctx, stop := context.WithCancelCause(h.life)
	defer stop(nil)
	defer s.forget()
	defer h.forget(subject)
	s.stops(stop)
	whole, late := context.WithTimeout(ctx, wholeWithin)
	f, err := s.message(whole, nil)
	late()
	if err != nil { // the hub is gone, or asked nothing that can be answered, or this node leaves
		_ = s.finish(ctx, nil, busy("leaves"))
		return
	}
	answer, err := h.answer(ctx, subject, s, f)
	defer h.done(s) // its outcome is part of a call: a node that drains sends it before it leaves
	if err := s.finish(h.life, answer, err); err != nil && h.life.Err() == nil && ctx.Err() == nil {
		h.log.Warn("the outcome of a call could not be delivered to its hub", "error", err)
	}
}

// finish sends the last message. Once ctx has ended, it does not wait for the other end to take earlier ones.
func (s *stream) finish(ctx context.Context, answer []byte, err error) error {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	for k, body := range map[kind][]byte{kindReceipt: s.receipt, kindUses: s.uses} {
		if body == nil {
			continue
		}
		if err := s.send(ctx, k, body); err != nil {
			return err
		}
	}
	if err != nil {
		return s.send(ctx, kindError, encodeError(err))
	}
	return s.send(ctx, kindResult, answer)
}

// brings reports whether this node has a source: if other nodes have none of that name, its calls ran at a hub.
func (h *host) brings(source string) bool {
	for key := range h.list.Load().tools {
		if strings.HasPrefix(key, toolKey(source, "")) {
			return true
		}
	}
	return false
}

func (h *host) forget(subject string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, subject)
	if h.seen[subject] = true; len(h.seen) >= remembered {
		h.before, h.seen = h.seen, map[string]bool{}
	}
}

// answer does what the first message of a stream asks for.
func (h *host) answer(ctx context.Context, subject string, s *stream, f frame) ([]byte, error) {
	switch f.kind {
	case kindCall:
		return h.call(ctx, subject, s, f.body)
	case kindTouches:
		a, err := h.accept(subject, f.body)
		if err != nil {
			return nil, err
		}
		t, err := h.machine.Touches(ctx, a.Call)
		return encodeTouches(t, err)
	case kindList:
		return h.list.Load().packed, nil
	case kindOrder:
		var o order
		if err := strictjson.Unmarshal(f.body, &o); err != nil {
			return nil, err
		}
		return h.orders(ctx, o, &remoteSink{ctx: ctx, s: s, log: h.log})
	}
	return nil, s.garbled("a message of the unknown kind %q; is one of the nodes much older than the other?", f.kind)
}

// An accepted is a call that this node takes from a hub.
type accepted struct {
	*tool.Call
	of   *request
	once bool // it must not run again
}

// accept reads a request, and refuses one that is not for this program and this stream, or is for another definition of the
// tool.
func (h *host) accept(subject string, body []byte) (a accepted, err error) {
	var r request
	raw, err := packed.Read(body, &r)
	l, key := h.list.Load(), toolKey(r.Source, r.Tool)
	switch {
	case err != nil:
		return a, tool.BeforeRun(tool.Errorf(tool.CodeProtocol, "a call of a hub cannot be read: %w", err).Because(reasonLink))
	case r.To != h.run:
		return a, busy("has started again since its hub chose it")
	case r.Reply != subject:
		return a, tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "this call belongs to another stream").Because(reasonLink))
	case l.tools[key] != r.Digest:
		return a, busy("has another definition of the tool %s now", r.Tool)
	}
	c, err := r.call(at(raw, 0), at(raw, 1), at(raw, 2))
	if err == nil && len(r.Keys) > 0 {
		c.Record = &tool.Record{}
		c.Credentials, err = h.box.Open(r.Keys, r.purpose())
	}
	return accepted{c, &r, l.once[key]}, tool.BeforeRun(err)
}

// call runs a call, and returns its result.
func (h *host) call(ctx context.Context, subject string, s *stream, body []byte) ([]byte, error) {
	a, err := h.accept(subject, body)
	if err != nil {
		return nil, err
	}
	if err := h.begin(s); err != nil {
		return nil, err
	}
	if a.of.Left > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, a.of.Left, tool.Errorf(tool.CodeTimeout, "%s ran longer than it may", a.Tool))
		defer stop()
	}
	if ctx.Err() != nil { // on its way here
		return nil, tool.BeforeRun(tool.Ended(ctx))
	}
	out := &remoteSink{ctx: ctx, s: s, log: h.log}
	defer func() { s.uses = lent.Uses(a.Record) }()
	if a.once {
		return h.once(ctx, a, s, out)
	}
	r, err := h.machine.Invoke(ctx, a.Call, out)
	if err != nil {
		return nil, err
	}
	h.keepQuestion(r)
	return encodeResult(r)
}

// mostQuestions bounds the questions that a node remembers; older ones are answered, or time out at their program.
const mostQuestions = 4096

// keepQuestion remembers how to tell the program that asked a question that no answer comes.
func (h *host) keepQuestion(r *tool.Result) {
	if r == nil || r.Ask == nil || r.Ask.Drop == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked == nil || len(h.asked) >= mostQuestions {
		h.asked = map[string]func(){}
	}
	h.asked[r.Ask.ID] = r.Ask.Drop
}

func (h *host) dropQuestion(id string) {
	h.mu.Lock()
	drop := h.asked[id]
	delete(h.asked, id)
	h.mu.Unlock()
	if drop != nil {
		drop()
	}
}

func (h *host) begin(s *stream) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.draining:
		return busy("takes no more calls: it drains")
	case h.calls >= h.places:
		return busy("has %d calls already", h.calls)
	}
	h.calls++
	s.counted = true
	return nil
}

func (h *host) done(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.counted {
		return
	}
	if h.calls--; h.calls == 0 && h.draining {
		close(h.idle)
	}
}

// drain takes no more calls; the channel is closed when the last has ended.
func (h *host) drain() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.draining {
		h.draining, h.idle = true, make(chan struct{})
		if h.calls == 0 {
			close(h.idle)
		}
	}
	return h.idle
}

// close begins nothing more.
func (h *host) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

func (h *host) running() (calls int, draining bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls, h.draining
}

// A remoteSink sends the events of a call to its hub. If the hub cannot be reached the call goes on: what it changes, it
// should change as a whole.
type remoteSink struct {
	ctx     context.Context
	s       *stream
	log     *slog.Logger
	lost    bool
	mu      sync.Mutex
	stopped receipt.Stops
}

// Emit implements tool.Sink. It waits while the hub has not taken the events before.
func (r *remoteSink) Emit(ev tool.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped.Add(ev.Blocked)
	if r.lost {
		return nil
	}
	head := event{Kind: ev.Kind, Time: ev.Time, Blocked: ev.Blocked, Ours: ev.Ours}
	err := r.file(ev, &head)
	if err == nil {
		var body []byte
		if body, err = packed.Write(&head, ev.Data); err == nil {
			err = r.s.send(r.ctx, kindEvent, body)
		}
	}
	if errors.Is(err, errUnheard) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionClosed) {
		r.lost = true
		r.log.Warn("a hub cannot be reached: the events of one of its calls are lost", "error", err)
		return nil
	}
	return err
}

// file sends the file of an event ahead.
func (r *remoteSink) file(ev tool.Event, head *event) error {
	if ev.File == nil {
		return nil
	}
	sum, buffer := sha256.New(), make([]byte, chunk)
	for at := int64(0); ; {
		n, err := ev.File.ReadAt(buffer, at)
		if n > 0 {
			_, _ = sum.Write(buffer[:n])
			if err := r.s.one(r.ctx, kindFile, buffer[:n]); err != nil {
				return err
			}
			at += int64(n)
		}
		if errors.Is(err, io.EOF) {
			head.File, head.SHA256 = true, sum.Sum(nil)
			return nil
		}
		if err != nil {
			return tool.Errorf(tool.CodeInternal, "an asset cannot be read: %w", err)
		}
	}
}

// A touched is the answer to kindTouches. An error may come with touches.
type touched struct {
	tool.Touches
	MayRead  []string   `json:"may_read,omitempty"`
	MayWrite []string   `json:"may_write,omitempty"`
	Error    *wireError `json:"error,omitzero"`
}

func encodeTouches(t tool.Touches, err error) ([]byte, error) {
	out := touched{Touches: t, MayRead: t.MayRead, MayWrite: t.MayWrite}
	if err != nil {
		out.Error = &wireError{Error: tool.AsError(err)}
	}
	return strictjson.Marshal(&out)
}

func decodeTouches(b []byte) (tool.Touches, error) {
	var in touched
	if err := strictjson.Unmarshal(b, &in); err != nil {
		return tool.Touches{}, err
	}
	in.Touches.MayRead, in.Touches.MayWrite = in.MayRead, in.MayWrite
	if in.Error != nil {
		return in.Touches, in.Error.Error
	}
	return in.Touches, nil
}
