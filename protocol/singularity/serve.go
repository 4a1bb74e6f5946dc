package singularity

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
)

// caller is who calls over NATS, as far as a message tells.
func caller() tool.Principal { return tool.Principal{ID: "nats", Door: "nats"} }

const (
	maxBacklogBytes = 64 << 20  // of requests that wait
	maxUnread       = 512 << 10 // messages that the client may hold for us; we read on without waiting
	maxUnreadBytes  = 128 << 20
	grace           = 5 * time.Second // for cancelled calls to be answered, and for the last answers to leave
)

// A serving is a door while it is open.
type serving struct {
	o       DoorOptions
	nc      *nats.Conn
	handler tool.Handler
	catalog tool.Catalog
	service *service

	subs   []*nats.Subscription
	closed sync.WaitGroup // subscriptions whose last message has been taken
	crew   crew
	calls  calls
	base   context.Context // of every call
	end    context.CancelCauseFunc
}

// A job is a request that waits for its turn, or has it.
type job struct {
	msg      *nats.Msg
	endpoint *endpoint
	came     time.Time
	called   *called // nil: the caller gave the call no name
	bytes    int     // that it takes of the room for those that wait
}

func newServing(o DoorOptions, nc *nats.Conn, h tool.Handler, c tool.Catalog) *serving {
	s := &serving{o: o, nc: nc, handler: h, catalog: c, service: newService(o)}
	s.base, s.end = context.WithCancelCause(context.Background())
	s.calls.running = map[string]*called{}
	s.crew = crew{run: s.run, most: o.Workers, backlog: o.Backlog, maxBytes: maxBacklogBytes}
	return s
}

// subscribe opens every subject. The endpoints are those that $SRV.INFO and $SRV.STATS tell of.
func (s *serving) subscribe() error {
	for _, e := range s.service.endpoints {
		take := func(m *nats.Msg) { s.take(e, m) }
		if e.subject == subjectCatalog {
			take = func(m *nats.Msg) { s.list(e, m) }
		}
		if err := s.add(s.nc.QueueSubscribe(e.subject, s.o.Queue, take)); err != nil {
			return err
		}
	}
	if err := s.add(s.nc.Subscribe(subjectCancel, func(m *nats.Msg) { s.calls.cancel(string(m.Data)) })); err != nil {
		return err
	}
	for _, subject := range s.service.control() {
		if err := s.add(s.nc.Subscribe(subject, func(m *nats.Msg) { s.monitor(m) })); err != nil {
			return err
		}
	}
	return s.nc.FlushTimeout(connectWithin)
}

func (s *serving) add(sub *nats.Subscription, err error) error {
	if err != nil {
		return err
	}
	s.closed.Add(1)
	sub.SetClosedHandler(func(string) { s.closed.Done() })
	s.subs = append(s.subs, sub)
	return sub.SetPendingLimits(maxUnread, maxUnreadBytes)
}

// take hands a request to the crew. It never waits, so that the client's own buffer stays short: one that finds
// no room is answered.
func (s *serving) take(e *endpoint, m *nats.Msg) {
	j := job{msg: m, endpoint: e, came: time.Now()}
	if m.Reply != "" && !mayAnswer(m.Reply) {
		s.o.Log.Warn("a request was not run: its answer would go where requests go", "subject", m.Subject, "reply", m.Reply)
		e.count(tool.Errorf(tool.CodeInvalidInput, "bad reply subject"), j.came)
		return
	}
	j.called = s.calls.expect(s.base, m)
	var refused *tool.Error
	switch {
	case j.called != nil && j.called.twice:
		refused = tool.Errorf(tool.CodeConflict, "a call %s is running already: choose another id, or none", j.called.id).Because("duplicate_call")
	case s.crew.submit(j):
		return
	default:
		refused = tool.Errorf(tool.CodeUnavailable, "busy: more requests than can wait here; try again in a moment").Because("busy")
	}
	s.calls.forget(j.called)
	r, name, _ := s.read(j, &tool.Call{})
	s.answer(j, r, name, nil, refused)
}

// run makes the call that a message asks for, and answers it.
func (s *serving) run(j job) {
	defer s.calls.forget(j.called)
	c := &tool.Call{Caller: caller()}
	r, name, err := s.read(j, c)
	if err != nil {
		s.answer(j, r, name, nil, tool.AsError(err))
		return
	}
	res, err := s.call(j, r, c)
	if err == nil && res == nil {
		err = tool.Errorf(tool.CodeInternal, "%s ended with neither a result nor an error", name)
	}
	if err != nil {
		s.answer(j, r, name, nil, tool.AsError(err))
		return
	}
	s.answer(j, r, name, res, nil)
}

// read decodes a message into a request, and the request into a call. The name is the one to answer with.
func (s *serving) read(j job, c *tool.Call) (r request, name string, err error) {
	where, err := routeOf(j.msg.Subject)
	switch style, _ := single(j.msg.Header, headerStyle); {
	case err != nil:
	case style == nativeStyle:
		r, err = decodeNativeRequest(j.msg.Data)
	default:
		r, err = decodeRequest(where, j.msg.Data)
	}
	r.limit = where.limit
	name = r.name
	if name == "" {
		name = where.tool
	}
	c.Tool, name = name, shown(name)
	if err != nil {
		return r, name, tool.Errorf(tool.CodeInvalidInput, "the request to %s: %w", j.msg.Subject, err)
	}
	if where.tool != "" && r.name != "" && !s.same(where, r.name) {
		return r, name, tool.Errorf(tool.CodeInvalidInput, "a call of %q came on %s, which is %s; send it there, or to %s", r.name, j.msg.Subject, where.tool, subjectExecute)
	}
	if where.tool != "" {
		c.Tool = where.tool // the subject decides: a caller may be allowed to use this one alone
	}
	c.Args, c.State, c.Answers = r.args, r.state, r.answers
	return r, name, nil
}

// same reports whether a request's name means the tool of its subject.
func (s *serving) same(where route, name string) bool {
	if where.names(name) {
		return true
	}
	asked, err := s.catalog.Lookup(s.base, caller(), name)
	if err != nil {
		return false
	}
	meant, err := s.catalog.Lookup(s.base, caller(), where.tool)
	return err == nil && meant.Name == asked.Name
}

// call runs c under the limits of its subject and of its caller.
func (s *serving) call(j job, r request, c *tool.Call) (*tool.Result, error) {
	w, err := readHeaders(j.msg.Header, c)
	if err != nil {
		return nil, err
	}
	ctx := s.base
	if j.called != nil {
		c.ID, ctx = w.id, j.called.ctx
	}
	c.Name()
	limit, whose := r.limit, j.msg.Subject
	if w.timeout > 0 && (limit == 0 || w.timeout < limit) {
		limit, whose = w.timeout, "its caller"
	}
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, j.came.Add(limit),
			tool.Errorf(tool.CodeTimeout, "%s ran longer than the %v that %s gives it", c.Tool, limit, whose))
		defer stop()
	}
	if ctx.Err() != nil { // while it waited for its turn
		return nil, interrupted(ctx)
	}
	out := tool.Discard
	if w.stream != "" {
		out = &stream{ctx: ctx, nc: s.nc, subject: w.stream, ack: w.ack}
	}
	return s.invoke(ctx, c, out)
}

// invoke keeps a panic of the handler from costing the caller its answer.
func (s *serving) invoke(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.o.Log.Error("a call panicked", "tool", c.Tool, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			r, err = nil, tool.Errorf(tool.CodeInternal, "%s: an internal error; the server's log has the details", c.Tool)
		}
	}()
	r, err = s.handler.Invoke(ctx, c, out)
	if err != nil && ctx.Err() != nil {
		if code := tool.CodeOf(err); code == tool.CodeTimeout || code == tool.CodeCancelled {
			why := interrupted(ctx)
			why.Details = tool.AsError(err).Details
			return nil, why
		}
	}
	return r, err
}

// answer sends the one reply to a request. A message without a reply subject has been run and gets none.
func (s *serving) answer(j job, r request, name string, res *tool.Result, e *tool.Error) {
	defer func() { j.endpoint.count(problem(res, e), j.came) }()
	if j.msg.Reply == "" {
		return
	}
	body, err := encodeReply(r, name, res, e)
	if err != nil {
		e = tool.Errorf(tool.CodeProtocol, "the result of %s cannot be written as JSON: %w", name, err)
	} else if err = s.nc.Publish(j.msg.Reply, body); errors.Is(err, nats.ErrMaxPayload) {
		e = tool.Errorf(tool.CodeUnsupported, "the result of %s makes a reply of %d bytes, and this NATS server carries %d: ask for less, or raise its max_payload",
			name, len(body), s.nc.MaxPayload()).Because("too_large")
	}
	if body == nil || errors.Is(err, nats.ErrMaxPayload) {
		body, _ = encodeReply(r, name, nil, e) // words alone can always be written
		err = s.nc.Publish(j.msg.Reply, body)
	}
	if err != nil {
		s.o.Log.Warn("an answer could not be sent", "tool", name, "subject", j.msg.Subject, "error", err)
	}
}

// problem is what $SRV.STATS counts as an error.
func problem(res *tool.Result, e *tool.Error) *tool.Error {
	if e == nil && res != nil {
		e = res.Failure
	}
	return e
}

// shown is a name as an answer can carry it, whatever a caller wrote.
func shown(name string) string { return strings.ToValidUTF8(name[:min(len(name), maxField)], "\uFFFD") }

// finish takes no more requests, lets those that are here end, and has every answer sent.
func (s *serving) finish() {
	leave := (*nats.Subscription).Drain
	if !s.nc.IsConnected() {
		leave = (*nats.Subscription).Unsubscribe // nobody could say which message is the last
	}
	for _, sub := range s.subs {
		_ = leave(sub) // fails where the connection is closed, and the subscription with it
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.closed.Wait()
		s.crew.finish()
	}()
	ended := within(drained, s.o.Drain)
	s.end(tool.Errorf(tool.CodeCancelled, "the call was cancelled because the server shut down before it had ended"))
	if !ended && !within(drained, grace) {
		s.nc.Close() // a connection that is being waited for keeps its subscriptions open
		if !within(drained, grace) {
			s.o.Log.Error("calls over NATS go on although they were cancelled")
		}
		return
	}
	err := nats.ErrDisconnected
	if s.nc.IsConnected() {
		err = s.nc.FlushTimeout(grace)
	}
	if err != nil {
		s.o.Log.Warn("the last answers of the NATS door may not have been sent", "error", err)
	}
}

// within waits for an end, but not for ever.
func within(end <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-end:
		return true
	case <-timer.C:
		return false
	}
}
