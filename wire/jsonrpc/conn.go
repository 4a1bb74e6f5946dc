package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"toolpost/wire/strictjson"
)

// A Reader returns one message after the other, within its bounds. Each is valid until the next call.
type Reader interface {
	Next() ([]byte, error)
}

// A Writer sends whole messages to the other side. Several goroutines may use it.
type Writer interface {
	// Send waits until the message is on its way. It gives up when ctx ends, and, with ErrUnsent, when stop is closed or
	// the other side is gone.
	Send(ctx context.Context, stop <-chan struct{}, line []byte) error
}

// The errors of a request without an answer. An abandoned request was sent, and may still be answered, but its caller
// no longer waits. An unsent request did nothing: it may be sent on another connection.
var (
	ErrAbandoned = errors.New("not answered in time")
	ErrUnsent    = errors.New("not sent: the connection takes no more requests")
)

// Reasons why a message cannot be used, beside those of Decode and Check.
var (
	ErrNotMessage = errors.New("a line is not a message")
	ErrUnasked    = errors.New("an answer to an unknown request is dropped")
)

// An InvalidError is the error of a request whose answer is not strict JSON.
type InvalidError struct{ Err error }

// Error implements error.
func (e *InvalidError) Error() string { return "the answer is not valid: " + Misread(e.Err) }

// An Incoming is a request of the other side, or, if ID is nil, a notification. The id is of the other side's own
// numbering.
type Incoming struct {
	ID     []byte
	Method string
	Params json.RawMessage
}

// A Request is one of ours.
type Request struct {
	ID     uint64
	Method string
	Tag    any // set by the caller

	news chan struct{} // capacity 1: something below has changed
	room chan struct{} // capacity 1: there is more room in asked, or no use for it

	// Guarded by the mutex of the connection.
	asked     []*Incoming // requests that belong to it and have not been served yet
	size      int         // of asked, in bytes
	answered  bool
	result    json.RawMessage
	err       error
	abandoned bool
}

// Abandoned reports whether the caller no longer waits for the answer. It is for the functions of Options that get a
// Request.
func (r *Request) Abandoned() bool { return r.abandoned }

func (r *Request) tell() { signal(r.news) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // the receiver looks at everything
	}
}

// full reports whether there is no room for another incoming message. The sender of a request waits for an answer, and
// sends few at once; the sender of notifications may send many.
func (r *Request) full(in *Incoming) bool {
	if in.ID != nil {
		return len(r.asked) >= maxAsked
	}
	return len(r.asked) >= maxNotes || r.size >= maxNoted
}

// Bounds on what waits.
const (
	maxAsked = 64              // incoming messages that wait for one of our requests to serve them
	maxNotes = 1024            // the same including notifications
	maxNoted = 16 << 20        // bytes of those
	tellTime = 2 * time.Second // for sending a message in the background
)

// Options of a Conn. Writer, Take and Unusable are required; see the others for when they are.
type Options struct {
	Writer Writer

	// Take handles what the other side sends. Read calls it once for each message, in order: while it blocks, nothing is
	// read. An error ends Read.
	Take func(*Incoming) error

	// Unusable is called with a message that cannot be used, and why: it is not strict JSON, not a message, not a valid
	// request (an *Error), or an answer to an unknown request. The message has the parts that could be read.
	Unusable func(m *Message, line []byte, why error)

	// Names returns the id of our request that an incoming message belongs to, or 0 if the message does not name one.
	// Such a message belongs to the only pending request. A message that belongs to a request does not go to Take: the
	// goroutine that waits for the request serves it with Serve, so that everything sent before an answer is done before
	// the answer is returned. If Names is nil, no message belongs to a request.
	Names func(*Incoming) uint64
	Serve func(context.Context, *Incoming, *Request)
	// Early is called by Read with every incoming message before all others, and reports whether it has handled it. It
	// is for messages that must not queue behind a slow one. It must not block. It may be nil.
	Early func(*Incoming) bool
	// Owns reports whether a message that names no request may belong to this one. It is called with the connection
	// locked: it must not block, nor use it. If it is nil, a message may belong to any.
	Owns func(*Request) bool

	// Abandoned is called when the caller of a request no longer waits, and Answered when its answer has come, however
	// late. They are called in the order of these events, with the connection locked: they must not block, nor use it.
	// Without Abandoned, an abandoned request is forgotten, and so is its answer. With Forget likewise, for a side that
	// does not answer cancelled requests.
	Abandoned, Answered func(*Request)
	Forget              bool

	// NullIDs treats a null id as an id, as the specification does. Otherwise it counts as no id, as some senders mean
	// it.
	NullIDs bool
	// Lenient reads messages that are JSON but not strict as strictjson.Mend does.
	Lenient bool

	// Go runs background work that must not block, for at most two seconds each. The owner of the connection waits for
	// it in the end; if Go is nil, nothing does.
	Go func(func())
}

// A Conn is one end of a connection on which both sides send requests and answers, each with its own ids. Requests are
// multiplexed: any number may be pending, and each gets its own answer.
type Conn struct {
	o       Options
	leaving chan struct{} // closed when no further request is sent
	ended   chan struct{} // closed when no further answer can come
	retire  sync.Once

	mu      sync.Mutex
	last    uint64 // the id of the last request
	pending map[uint64]*Request
	err     error // why there will be no answer
}

// NewConn makes a connection. Its owner must call Read.
func NewConn(o Options) *Conn {
	if o.Go == nil {
		o.Go = func(f func()) { go f() }
	}
	return &Conn{o: o, leaving: make(chan struct{}), ended: make(chan struct{}), pending: map[uint64]*Request{}}
}

// Ask sends a request and waits for its answer. Meanwhile it serves the messages that belong to the request. An error
// from the other side is an *Error. If ctx ends first the request is abandoned.
func (c *Conn) Ask(ctx context.Context, method string, params []byte, tag any) (json.RawMessage, error) {
	return c.Put(ctx, Query{Method: method, Params: func(uint64) []byte { return params }, Tag: tag})
}

// A Query is a request before it has its id.
type Query struct {
	Method string
	Params func(id uint64) []byte // some params contain the id
	Tag    any                    // set by the caller
	// Send sends the request; nil means with the Writer. It must not wait for the answer, which arrives through Hear or
	// Fail.
	Send func(ctx context.Context, id uint64, line []byte) error
}

// Put is Ask for requests with more options.
func (c *Conn) Put(ctx context.Context, q Query) (json.RawMessage, error) {
	r, err := c.enter(q.Method, q.Tag)
	if err != nil {
		return nil, err
	}
	if q.Send == nil {
		q.Send = func(ctx context.Context, _ uint64, line []byte) error { return c.o.Writer.Send(ctx, c.leaving, line) }
	}
	if err := q.Send(ctx, r.ID, EncodeRequest(r.ID, q.Method, q.Params(r.ID))); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pending, r.ID) // it was never sent
		return nil, err
	}
	for {
		select {
		case <-r.news:
		case <-ctx.Done():
			return c.abandon(r)
		}
		if c.catchUp(ctx, r) {
			return r.result, r.err
		}
	}
}

func (c *Conn) enter(method string, tag any) (*Request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.leaving:
		return nil, ErrUnsent
	default:
	}
	c.last++
	r := &Request{ID: c.last, Method: method, Tag: tag, news: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	c.pending[r.ID] = r
	return r, nil
}

// catchUp serves the messages received so far, and then reports whether the answer has come. It stops when ctx ends:
// the other side may send messages without end.
func (c *Conn) catchUp(ctx context.Context, r *Request) bool {
	for {
		in, answered := c.next(r)
		if in == nil {
			return answered
		}
		c.o.Serve(ctx, in, r)
		if ctx.Err() != nil {
			r.tell() // there may be more
			return false
		}
	}
}

// next takes a message that has not been served. If there is none it reports whether the answer has come.
func (c *Conn) next(r *Request) (in *Incoming, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(r.asked) == 0 {
		return nil, r.answered
	}
	in, r.asked = r.asked[0], r.asked[1:]
	r.size -= len(in.Params)
	signal(r.room)
	return in, false
}

// abandon gives a request up, unless its answer has just come.
func (c *Conn) abandon(r *Request) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.answered:
		return r.result, r.err
	case c.pending[r.ID] != r: // the connection has ended
		return nil, ErrAbandoned
	}
	r.abandoned = true
	for _, in := range r.asked {
		c.refuse(in, requestEnded)
	}
	r.asked = nil
	signal(r.room)
	if c.o.Abandoned == nil || c.o.Forget {
		delete(c.pending, r.ID)
	}
	if c.o.Abandoned != nil {
		c.o.Abandoned(r)
	}
	return nil, ErrAbandoned
}

// Retire stops sending requests. Pending requests are still answered, and so are those of the other side.
func (c *Conn) Retire() { c.retire.Do(func() { close(c.leaving) }) }

// End ends all our requests with an error, and stops sending: no answer can come any more. The other side's requests
// may still be answered.
func (c *Conn) End(why error) {
	c.Retire()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = why
		for _, r := range c.pending {
			if !r.abandoned {
				r.answered, r.err = true, why
				r.tell()
			}
		}
		clear(c.pending)
		close(c.ended)
	}
}

// Only returns the tag of the only pending request, if its caller still waits for it.
func (c *Conn) Only() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.only(); r != nil && !r.abandoned {
		return r.Tag
	}
	return nil
}

// only returns the pending request that may own messages, if there is exactly one.
func (c *Conn) only() (one *Request) {
	if c.o.Owns == nil && len(c.pending) != 1 {
		return nil
	}
	for _, r := range c.pending {
		switch {
		case c.o.Owns != nil && !c.o.Owns(r):
		case one != nil:
			return nil
		default:
			one = r
		}
	}
	return one
}

// Pending returns how many requests are pending, and those among them that were abandoned.
func (c *Conn) Pending() (n int, abandoned []*Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.pending {
		if r.abandoned {
			abandoned = append(abandoned, r)
		}
	}
	return len(c.pending), abandoned
}

// Read takes messages until there are no more, Take ends it, or ctx ends.
func (c *Conn) Read(ctx context.Context, in Reader) error {
	var scan strictjson.Scanner
	return ReadLines(ctx, in, func(line []byte) error { return c.Hear(&scan, line, 0) })
}

// ReadLines calls take with one message after another, until there are no more, take returns an error, or ctx ends. A
// reader cannot be interrupted: if ctx ends first, the goroutine that waits for a message stays until its input ends.
func ReadLines(ctx context.Context, in Reader, take func(line []byte) error) error {
	var taking sync.Mutex
	read := func() error {
		for {
			line, err := in.Next()
			if err != nil {
				return err
			}
			taking.Lock()
			if err = ctx.Err(); err == nil {
				err = take(line)
			}
			taking.Unlock()
			if err != nil {
				return err
			}
		}
	}
	if ctx.Done() == nil { // the owner of the reader ends it
		return read()
	}
	ended := make(chan error, 1)
	go func() { ended <- read() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		taking.Lock() // the current message is the last
		defer taking.Unlock()
		return ctx.Err()
	}
}

// Hear takes one message, for callers that do not get all of them from one Reader. Of is the id of our request that it
// came with, or 0 if that is unknown. Several goroutines may use it, each with its own scanner. Blank lines are
// skipped.
func (c *Conn) Hear(scan *strictjson.Scanner, line []byte, of uint64) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	m, err := Decode(scan, line)
	if err != nil && c.o.Lenient {
		if mended, bad := strictjson.Mend(line); bad == nil {
			m, err = Decode(scan, mended)
		}
	}
	switch {
	case err != nil:
		if id, ok := brokenAnswer(line); !ok || !c.answer(id, nil, &InvalidError{err}) {
			c.o.Unusable(&m, line, err)
		}
	case m.Method != nil:
		return c.takeAsked(&m, line, of)
	case m.Result == nil && m.Err == nil:
		c.o.Unusable(&m, line, ErrNotMessage)
	default:
		c.takeAnswer(&m, line)
	}
	return nil
}

func (c *Conn) takeAnswer(m *Message, line []byte) {
	var result json.RawMessage
	var failed error
	if m.Err != nil {
		failed = m.Failure()
	} else {
		result = bytes.Clone(m.Result)
	}
	if id, ok := m.number(); !ok || !c.answer(id, result, failed) {
		c.o.Unusable(m, line, ErrUnasked)
	}
}

// Fail ends a request of ours that will not be answered. It has no effect on a request that was already answered.
func (c *Conn) Fail(id uint64, why error) { c.answer(id, nil, why) }

// Waits reports whether the caller of a request still waits for its answer.
func (c *Conn) Waits(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.pending[id]
	return r != nil && !r.abandoned
}

// answer delivers an answer to its request, and reports whether there was one.
func (c *Conn) answer(id uint64, result json.RawMessage, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.pending[id]
	if r == nil {
		return false
	}
	delete(c.pending, id)
	if !r.abandoned {
		r.answered, r.result, r.err = true, result, err
		r.tell()
	}
	if c.o.Answered != nil {
		c.o.Answered(r)
	}
	return true
}

// takeAsked routes an incoming message to what serves it.
func (c *Conn) takeAsked(m *Message, line []byte, of uint64) error {
	if e := m.Check(); e != nil {
		c.o.Unusable(m, line, e)
		return nil
	}
	in := &Incoming{ID: m.ReplyID(), Method: Text(m.Method), Params: bytes.Clone(m.Params)}
	if in.ID == nil && m.ID != nil && c.o.NullIDs {
		in.ID = bytes.Clone(m.ID)
	}
	if c.o.Early != nil && c.o.Early(in) {
		return nil
	}
	if c.o.Names != nil && c.owned(in, of) {
		return nil
	}
	return c.o.Take(in)
}

const requestEnded = "the call that this belongs to was ended"

// owned passes an incoming message to the request that it belongs to, if there is one. If several are pending and it
// names none it belongs to none, so that no request sees a message of another. A message that came with a request, and
// so delays no other, waits for room.
func (c *Conn) owned(in *Incoming, of uint64) bool {
	named := c.o.Names(in)
	for {
		r, taken := c.own(in, named, of)
		if r == nil {
			return taken
		}
		select {
		case <-r.room:
		case <-c.ended:
			return true
		}
	}
}

// own tries it once. It returns a request that has no room for a message that came with it.
func (c *Conn) own(in *Incoming, named, of uint64) (wait *Request, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.pending[named]
	switch {
	case r == nil && of != 0:
		r = c.pending[of]
	case r == nil && named == 0:
		r = c.only()
	}
	switch {
	case r == nil && of != 0, r != nil && r.abandoned:
		c.refuse(in, requestEnded)
	case r == nil:
		return nil, false
	case r.full(in) && r.ID == of:
		return r, false
	case r.full(in):
		c.refuse(in, tooMany)
	default:
		r.asked = append(r.asked, in)
		r.size += len(in.Params)
		r.tell()
	}
	return nil, true
}

const tooMany = "too many calls at once; wait for the answers"

// Reply answers an incoming request; a notification never gets an answer. It waits until the other side takes the
// answer, but not longer than ctx: then it is sent in the background.
func (c *Conn) Reply(ctx context.Context, in *Incoming, result []byte, err *Error) {
	if in.ID == nil {
		return
	}
	line := EncodeReply(in.ID, result, err)
	if sent := c.Send(ctx, line); sent != nil && !errors.Is(sent, ErrUnsent) {
		c.Tell(line)
	}
}

// Send sends a line, and waits until the other side takes it or ctx ends.
func (c *Conn) Send(ctx context.Context, line []byte) error { return c.o.Writer.Send(ctx, nil, line) }

// TooMany refuses an incoming request for which there is no room, without blocking.
func (c *Conn) TooMany(in *Incoming) { c.refuse(in, tooMany) }

func (c *Conn) refuse(in *Incoming, why string) {
	if in.ID != nil {
		c.Tell(EncodeReply(in.ID, nil, Errorf(CodeServer, "%s: %s", in.Method, why)))
	}
}

// Tell sends a line in the background, such as a notification, and never blocks.
func (c *Conn) Tell(line []byte) {
	c.o.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tellTime)
		defer cancel()
		_ = c.Send(ctx, line) // the other side is gone, or does not read
	})
}

// A Stream is the Writer for an io.Writer that takes whole messages, such as standard output: one write each. After the
// first failure it sends nothing more.
type Stream struct {
	w    io.Writer
	gone func(error)

	mu  sync.Mutex
	err error
}

// NewStream makes a Stream. Gone is called once, on the first failed write.
func NewStream(w io.Writer, gone func(error)) *Stream { return &Stream{w: w, gone: gone} }

// Send implements Writer. It blocks for as long as the write takes.
func (s *Stream) Send(_ context.Context, _ <-chan struct{}, line []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return ErrUnsent
	}
	if _, err := s.w.Write(line); err != nil {
		s.err = fmt.Errorf("the other side went away: %w", err)
		s.gone(s.err)
		return ErrUnsent
	}
	return nil
}

// Err returns why the other side no longer takes messages, or nil.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
