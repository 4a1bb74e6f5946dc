package singularity

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

const (
	maxBacklogBytes = 64 << 20  // of waiting requests
	maxUnread       = 512 << 10 // messages that the client may hold for us; we read on without waiting
	maxUnreadBytes  = 128 << 20
	grace           = 5 * time.Second // for cancelled calls to be answered, and for the last answers to leave
)

// A serving is a door while it is open. It has a desk for each caller; all desks share the crew and its limits.
type serving struct {
	o       DoorOptions
	handler tool.Handler
	catalog tool.Catalog
	crew    crew
	base    context.Context // of every call
	end     context.CancelCauseFunc
	closed  sync.WaitGroup // subscriptions whose last message has not been taken

	mu      sync.Mutex
	desks   map[*desk]bool
	closing bool
	opening sync.WaitGroup // desks that are being opened
}

// A delivery is a message with a request that is waiting or running.
type delivery struct {
	desk     *desk // that received it and sends its answer
	msg      *nats.Msg
	endpoint *endpoint
	received time.Time
	ctx      context.Context // of the call
	end      func()          // called once it is over
	bytes    int             // that it takes of the room for waiting requests
}

func newServing(o DoorOptions, h tool.Handler, c tool.Catalog) *serving {
	s := &serving{o: o, handler: tool.Recovered(o.Log, "the server's log")(h), catalog: c, desks: map[*desk]bool{}}
	s.base, s.end = context.WithCancelCause(context.Background())
	s.crew = crew{run: func(j delivery) { j.desk.run(j) }, most: o.Workers, backlog: o.Backlog, maxBytes: maxBacklogBytes}
	return s
}

// take hands a request to the crew. It never waits, so that the client's own buffer stays short; a request for which there
// is no room is answered.
func (d *desk) take(e *endpoint, m *nats.Msg) {
	j := delivery{desk: d, msg: m, endpoint: e, received: time.Now()}
	if m.Reply != "" && !mayAnswer(m.Reply) {
		d.o.Log.Warn("a request was not run: its answer would go where requests go", "subject", m.Subject,
			"reply", m.Reply)
		e.count(tool.Errorf(tool.CodeInvalidInput, "bad reply subject"), j.received)
		return
	}
	refused := d.expect(&j)
	d.busy.Add(1)
	if refused == nil {
		if d.crew.submit(j) {
			return
		}
		refused = tool.Errorf(tool.CodeUnavailable,
			"busy: more requests than can wait here; try again in a moment").Because("busy")
	}
	defer d.busy.Add(-1)
	j.end()
	r, name, _ := d.read(j, &tool.Call{})
	d.answer(j, r, name, nil, refused)
}

// run makes the call of a message, and answers it.
func (d *desk) run(j delivery) {
	defer j.end()
	defer d.busy.Add(-1)
	c := &tool.Call{Caller: d.who()}
	r, name, err := d.read(j, c)
	var res *tool.Result
	if err == nil {
		if res, err = d.call(j, r, c); err == nil && res == nil {
			err = tool.Errorf(tool.CodeInternal, "%s ended with neither a result nor an error", name)
		} else if err == nil && r.style != styleNative {
			res = contractRows(c.Tool, c.Args, res)
		}
	}
	d.answer(j, r, name, res, tool.AsError(err))
}

// read decodes a message into a request, and the request into a call. The answer uses the returned name.
func (d *desk) read(j delivery, c *tool.Call) (r request, name string, err error) {
	where, err := routeOf(j.msg.Subject)
	switch style, _ := envelope.Single(j.msg.Header, headerStyle); {
	case err != nil:
	case style == nativeStyle:
		r, err = decodeNativeRequest(j.msg.Data)
	default:
		r, err = decodeRequest(where, j.msg.Data)
	}
	r.limit = where.limit
	c.Tool = cmp.Or(r.name, where.tool)
	name = shown(c.Tool)
	if err != nil {
		return r, name, tool.Errorf(tool.CodeInvalidInput, "the request to %s: %w", j.msg.Subject, err)
	}
	if where.tool != "" && r.name != "" && !d.same(where, r.name) {
		return r, name, tool.Errorf(tool.CodeInvalidInput,
			"a call of %q came on %s, which is %s; send it there, or to %s", r.name, j.msg.Subject, where.tool,
			subjectExecute)
	}
	if where.tool != "" {
		c.Tool = where.tool // the subject decides: a caller may be allowed to use this tool alone
	}
	c.Args, c.State = r.args, r.state
	return r, name, nil
}

// same reports whether a request's name means the tool of its subject.
func (d *desk) same(where route, name string) bool {
	if where.names(name) {
		return true
	}
	asked, unknown := d.catalog.Lookup(d.base, d.who(), name)
	meant, missing := d.catalog.Lookup(d.base, d.who(), where.tool)
	return unknown == nil && missing == nil && meant.Name == asked.Name
}

// call runs c under the limits of its subject and of its caller.
func (d *desk) call(j delivery, r request, c *tool.Call) (*tool.Result, error) {
	w, err := readHeaders(j.msg.Header, c)
	if err != nil {
		return nil, err
	}
	if r.answers != nil && c.Answers != nil {
		return nil, envelope.BadHeader(envelope.HeaderAnswers,
			"is there, and the body has answers too: send one of them")
	}
	if r.answers != nil {
		c.Answers = r.answers
	}
	c.Name()
	ctx := j.ctx
	limit, whose := r.limit, j.msg.Subject
	if w.timeout > 0 && (limit == 0 || w.timeout < limit) {
		limit, whose = w.timeout, "its caller"
	}
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, j.received.Add(limit),
			tool.Errorf(tool.CodeTimeout, "%s ran longer than the %v that %s gives it", c.Tool, limit, whose))
		defer stop()
	}
	if ctx.Err() != nil { // while it waited for its turn
		return nil, tool.Ended(ctx)
	}
	out := tool.Discard
	if w.stream != "" {
		out = &stream{ctx: ctx, nc: d.nc, subject: w.stream, ack: w.ack}
	}
	return d.invoke(ctx, c, out)
}

// invoke makes a call. If the call's time is over or it was cancelled, its error says by whom.
func (d *desk) invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	r, err := d.handler.Invoke(ctx, c, out)
	if err != nil && ctx.Err() != nil {
		if code := tool.CodeOf(err); code == tool.CodeTimeout || code == tool.CodeCancelled {
			why := tool.Ended(ctx)
			why.Details = tool.AsError(err).Details
			return nil, why
		}
	}
	return r, err
}

// answer sends the one reply to a request. A request without a reply subject has run and gets none.
func (d *desk) answer(j delivery, r request, name string, res *tool.Result, e *tool.Error) {
	defer func() {
		if e == nil {
			e = res.Failure
		}
		j.endpoint.count(e, j.received)
	}()
	if j.msg.Reply == "" {
		return
	}
	body, err := encodeReply(r, name, res, e)
	if err != nil {
		e = tool.Errorf(tool.CodeProtocol, "the result of %s cannot be written as JSON: %w", name, err)
	} else if err = d.nc.Publish(j.msg.Reply, body); errors.Is(err, nats.ErrMaxPayload) {
		e = tool.Errorf(tool.CodeUnsupported,
			"the result of %s makes a reply of %d bytes, and this NATS server carries %d: ask for less, or raise its "+
				"max_payload",
			name, len(body), d.nc.MaxPayload()).Because("too_large")
	}
	if body == nil || errors.Is(err, nats.ErrMaxPayload) {
		body, _ = encodeReply(r, name, nil, e) // text alone can always be written
		err = d.nc.Publish(j.msg.Reply, body)
	}
	if err != nil {
		d.o.Log.Warn("an answer could not be sent", "tool", name, "subject", j.msg.Subject, "error", err)
	}
}

// shown returns a name in a form that an answer can carry, whatever a caller wrote.
func shown(name string) string { return strings.ToValidUTF8(name[:min(len(name), maxField)], "\uFFFD") }

// finish accepts no more requests, lets the present ones end, and has every answer sent.
func (s *serving) finish() {
	desks := s.leave()
	for _, d := range desks {
		d.drain()
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.closed.Wait()
		s.crew.finish()
	}()
	ended := tool.Within(drained, s.o.Drain)
	s.end(tool.Errorf(tool.CodeCancelled, "the call was cancelled because the server shut down before it had ended"))
	if ended || tool.Within(drained, grace) {
		s.flush(desks)
	}
	for _, d := range desks {
		d.close() // a connection that is being waited for keeps its subscriptions open
	}
	if !tool.Within(drained, grace) {
		s.o.Log.Error("calls over NATS go on although they were cancelled")
	}
}

// leave prevents further desks from being opened, and returns the open ones.
func (s *serving) leave() []*desk {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.opening.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.desks))
}

// flush has the last answers sent.
func (s *serving) flush(desks []*desk) {
	deadline := time.Now().Add(grace)
	for _, d := range desks {
		err := nats.ErrDisconnected
		if d.nc.IsConnected() {
			err = d.nc.FlushTimeout(max(time.Until(deadline), time.Millisecond))
		}
		if err != nil && !errors.Is(err, nats.ErrConnectionClosed) { // a closed connection had none to send
			s.o.Log.Warn("the last answers of the NATS door may not have been sent", "error", err)
		}
	}
}

// Bounds on how far a stream may be ahead of a caller that acknowledges: NATS itself would let it run until the caller is
// cut off as a slow consumer.
const (
	maxAheadEvents = 64
	maxAheadBytes  = 256 << 10
)

// A stream sends the events of one call to a subject. Events and reply leave on the same connection, so that every event
// arrives before the reply.
//
// If the caller asked for it, an event has a reply subject every so often; the stream goes on once the caller has answered
// it.
type stream struct {
	ctx     context.Context
	nc      *nats.Conn
	subject string
	ack     bool

	mu            sync.Mutex
	seq           uint64
	events, bytes int // since the last acknowledgement
}

// Emit implements tool.Sink.
func (s *stream) Emit(e tool.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return tool.Ended(s.ctx)
	}
	s.seq++
	if e.Seq == 0 {
		e.Seq = s.seq
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	body, err := strictjson.Marshal(e)
	if most := s.nc.MaxPayload(); err == nil && most > 0 && int64(len(body)) > most {
		err = errors.New("it is larger than this NATS server carries")
	}
	if err != nil {
		body = s.lost(e, err)
	}
	return s.send(body)
}

// lost encodes an event that replaces one that cannot be sent.
func (s *stream) lost(e tool.Event, why error) []byte {
	said := tool.NewEvent(tool.KindError, tool.ErrorEvent{
		Code: "event_lost", Message: "an event of kind " + string(e.Kind) + " could not be sent: " + why.Error(),
	})
	said.Seq, said.Time = e.Seq, e.Time
	body, _ := strictjson.Marshal(said) // text alone
	return body
}

func (s *stream) send(body []byte) error {
	s.events++
	s.bytes += len(body)
	if !s.ack || s.events < maxAheadEvents && s.bytes < maxAheadBytes {
		return s.nc.Publish(s.subject, body)
	}
	s.events, s.bytes = 0, 0
	_, err := s.nc.RequestWithContext(s.ctx, s.subject, body)
	switch {
	case s.ctx.Err() != nil:
		return tool.Ended(s.ctx)
	case err != nil:
		return tool.Errorf(tool.CodeCancelled, "the events of this call are no longer received: %w", err)
	}
	return nil
}
