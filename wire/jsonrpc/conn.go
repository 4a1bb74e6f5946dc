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

// A Reader gives one message after the other, within its bounds. Each is good until the next call.
type Reader interface {
	Next() ([]byte, error)
}

// A Writer sends messages to the other side, each whole. Several goroutines may use it.
type Writer interface {
	// Send waits until the message is on its way. It gives up when ctx ends, and, with ErrUnsent, when stop is closed
	// or the other side is gone.
	Send(ctx context.Context, stop <-chan struct{}, line []byte) error
}

// What becomes of a request without an answer. One that was abandoned was sent, and may still be answered; nobody
// waits for that. One that was not sent did nothing: another connection may have it.
var (
	ErrAbandoned = errors.New("not answered in time")
	ErrUnsent    = errors.New("not sent: the connection takes no more requests")
)

// Reasons why a message cannot be used, beside those of Decode and Check.
var (
	ErrNotMessage = errors.New("a line is not a message")
	ErrUnasked    = errors.New("an answer to an unknown request is dropped")
)

// An InvalidError is the end of a request whose answer is not strict JSON.
type InvalidError struct{ Err error }

// Error implements error.
func (e *InvalidError) Error() string { return "the answer is not valid: " + Misread(e.Err) }

// An Incoming is what the other side asks of us: a request, or with an ID that is nil a notification. The id is of the
// other side's own numbering.
type Incoming struct {
	ID     []byte
	Method string
	Params json.RawMessage
}

// A Request is one of ours.
type Request struct {
	ID     uint64
	Method string
	Tag    any // the asker's own

	news chan struct{} // one: something below has changed
	room chan struct{} // one: there is more room in asked, or no use for it

	// Guarded by the mutex of the connection.
	asked     []*Incoming // what belongs to it and nobody has served yet
	size      int         // of it, in bytes
	answered  bool
	result    json.RawMessage
	err       error
	abandoned bool
}

// Abandoned reports whether nobody waits for the answer any more. It is for the functions of Options that get a
// Request.
func (r *Request) Abandoned() bool { return r.abandoned }

func (r *Request) tell() { signal(r.news) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // who waits for it looks at everything
	}
}

// full reports whether there is no room for something more that waits to be served. Who asks waits for an answer, and
// asks little at once; who only says something may say a lot.
func (r *Request) full(in *Incoming) bool {
	if in.ID != nil {
		return len(r.asked) >= maxAsked
	}
	return len(r.asked) >= maxNotes || r.size >= maxNoted
}

// Bounds on what waits.
const (
	maxAsked = 64              // things asked that wait for one of our requests to serve them
	maxNotes = 1024            // the same with notifications among them
	maxNoted = 16 << 20        // bytes of those
	tellTime = 2 * time.Second // for an answer that nobody waits for to be taken
)

// Options of a Conn. Writer, Take and Odd are needed; see the others for when they are.
type Options struct {
	Writer Writer

	// Take takes what the other side asks. Read calls it, once for each and one after the other: while it waits,
	// nothing is read. An error ends Read.
	Take func(*Incoming) error

	// Odd hears of a message that cannot be used, and why: it is not strict JSON, not a message, not a valid request
	// (an *Error), or an answer to nothing that was asked. The message has what could be read of it.
	Odd func(m *Message, line []byte, why error)

	// Names gives the id of the request of ours that something asked belongs to; 0: it does not say. What does not
	// say belongs to the only request that is on its way. What belongs to one does not come to Take: whoever waits
	// for that request serves it with Serve, so that everything asked before an answer is done before the answer is
	// given. Nil: nothing belongs to a request.
	Names func(*Incoming) uint64
	Serve func(context.Context, *Incoming, *Request)
	// Early hears everything that the other side asks before all others, from Read, and reports whether it has dealt
	// with it: what must not stand in a line behind something that takes long to serve. It must not wait. Nil: nothing
	// is that urgent.
	Early func(*Incoming) bool
	// Owns reports whether what names no request may belong to this one. It is called with the connection locked: it
	// must not wait, nor use it. Nil: it may belong to any.
	Owns func(*Request) bool

	// Abandoned hears that nobody waits for a request any more, and Answered that its answer has come, however late.
	// They are called in the order in which these things happen, with the connection locked: they must not wait, nor
	// use it. Without Abandoned a request that is abandoned is forgotten, and so is its answer; with Forget likewise,
	// for a side that does not answer what it was told to leave.
	Abandoned, Answered func(*Request)
	Forget              bool

	// NullIDs takes an id that is null for an id, as the specification does. Otherwise it is none, as some mean it.
	NullIDs bool

	// Go runs in the background what must not wait, for at most two seconds each. Whoever owns the connection waits
	// for it in the end; nil: nobody does.
	Go func(func())
}

// A Conn is one end of a connection on which both sides ask and answer, each in ids of its own numbering. Requests are
// multiplexed: any number may be on their way, and each gets its own answer.
type Conn struct {
	o       Options
	leaving chan struct{} // closed: no further request is sent
	ended   chan struct{} // closed: no further answer can come
	retire  sync.Once

	mu      sync.Mutex
	last    uint64 // the id of the last request
	pending map[uint64]*Request
	err     error // why there will be no answer
}

// NewConn makes a connection. Somebody must Read it.
func NewConn(o Options) *Conn {
	if o.Go == nil {
		o.Go = func(f func()) { go f() }
	}
	return &Conn{o: o, leaving: make(chan struct{}), ended: make(chan struct{}), pending: map[uint64]*Request{}}
}

// Ask makes a request and waits for its answer. Meanwhile it serves what belongs to the request. An error that the
// other side answers is an *Error. When ctx ends first the request is abandoned.
func (c *Conn) Ask(ctx context.Context, method string, params []byte, tag any) (json.RawMessage, error) {
	return c.Put(ctx, Query{Method: method, Params: func(uint64) []byte { return params }, Tag: tag})
}

// A Query is a request before it has its id.
type Query struct {
	Method string
	Params func(id uint64) []byte // some name the request in them
	Tag    any                    // the asker's own
	// Send sends this one; nil: the Writer does. It must not wait for the answer, which Hear or Fail brings.
	Send func(ctx context.Context, id uint64, line []byte) error
}

// Put is Ask for requests that know more about themselves.
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
	for ended := false; ; {
		select {
		case <-r.news:
		case <-c.ended:
			ended = true
		case <-ctx.Done():
			return c.abandon(r)
		}
		switch {
		case c.catchUp(ctx, r):
			return r.result, r.err
		case ended:
			return nil, c.err
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

// catchUp serves what was asked so far, and then tells whether the answer has come. It stops when ctx ends: the other
// side may ask without end.
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

// next takes something asked that nobody has served. Where there is nothing it tells whether the answer has come.
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

// abandon gives a request up, unless its answer has come this moment.
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

// Retire lets no further request out. Those on their way are still answered, and so is the other side.
func (c *Conn) Retire() { c.retire.Do(func() { close(c.leaving) }) }

// End ends every request of ours with an error, and lets no further one out: no answer can come any more. The other
// side may still be answered.
func (c *Conn) End(why error) {
	c.Retire()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = why
		clear(c.pending)
		close(c.ended)
	}
}

// Only returns the tag of the request that alone is on its way, where somebody waits for it.
func (c *Conn) Only() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.only(); r != nil && !r.abandoned {
		return r.Tag
	}
	return nil
}

// only returns the request that is on its way and may own things, if there is exactly one.
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

// Pending returns how many requests are on their way, and those among them that nobody waits for.
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

// Read takes messages until there are no more, Take ends it, or ctx ends. A reader cannot be interrupted: where ctx
// ends first, the goroutine that waits for a message is left to the end of what it reads from.
func (c *Conn) Read(ctx context.Context, in Reader) error {
	var scan strictjson.Scanner
	var taking sync.Mutex
	read := func() error {
		for {
			line, err := in.Next()
			if err != nil {
				return err
			}
			taking.Lock()
			if err = ctx.Err(); err == nil {
				err = c.Hear(&scan, line, 0)
			}
			taking.Unlock()
			if err != nil {
				return err
			}
		}
	}
	if ctx.Done() == nil { // whoever owns the reader ends it
		return read()
	}
	ended := make(chan error, 1)
	go func() { ended <- read() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		taking.Lock() // the message that is being taken is the last
		defer taking.Unlock()
		return ctx.Err()
	}
}

// Hear takes one message, for whoever does not have all of them from one Reader. Of is the request of ours that it came
// with, 0 where that is not known. Several goroutines may use it, each with a scanner of its own. Blank lines are
// skipped.
func (c *Conn) Hear(scan *strictjson.Scanner, line []byte, of uint64) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	m, err := Decode(scan, line)
	switch {
	case err != nil:
		if id, ok := brokenAnswer(line); !ok || !c.answer(id, nil, &InvalidError{err}) {
			c.o.Odd(&m, line, err)
		}
	case m.Method != nil:
		return c.takeAsked(&m, line, of)
	case m.Result == nil && m.Err == nil:
		c.o.Odd(&m, line, ErrNotMessage)
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
		c.o.Odd(m, line, ErrUnasked)
	}
}

// Fail ends a request of ours that will not be answered. One that was answered already stays so.
func (c *Conn) Fail(id uint64, why error) { c.answer(id, nil, why) }

// Waits reports whether somebody waits for the answer to a request of ours.
func (c *Conn) Waits(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.pending[id]
	return r != nil && !r.abandoned
}

// answer gives an answer to whoever waits for it, and reports whether it was asked for.
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

// takeAsked puts what the other side asks where it is served.
func (c *Conn) takeAsked(m *Message, line []byte, of uint64) error {
	if e := m.Check(); e != nil {
		c.o.Odd(m, line, e)
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

// owned hands something asked to the request that it belongs to, if there is one. Where several are on their way and
// it names none it belongs to none: nobody gets to see what is another's. What came with a request, and so holds nobody
// else up, waits for room.
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

// own tries it once. The request that it gives has no room for what came with it.
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

// Reply answers something asked; a notification gets no answer, whatever happens. It waits until the other side takes
// the answer, but not longer than ctx: then it is told in the background.
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

// TooMany refuses something asked that there is no place for, without waiting.
func (c *Conn) TooMany(in *Incoming) { c.refuse(in, tooMany) }

func (c *Conn) refuse(in *Incoming, why string) {
	if in.ID != nil {
		c.Tell(EncodeReply(in.ID, nil, Errorf(CodeServer, "%s: %s", in.Method, why)))
	}
}

// Tell sends a line that nobody waits for, such as a notification, and in no case waits itself.
func (c *Conn) Tell(line []byte) {
	c.o.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tellTime)
		defer cancel()
		_ = c.Send(ctx, line) // the other side is gone, or does not read: nobody is left to be told of it
	})
}

// A Stream is the Writer for an io.Writer that takes whole messages, such as standard output: one write each. The
// first that fails is the last.
type Stream struct {
	w    io.Writer
	gone func(error)

	mu  sync.Mutex
	err error
}

// NewStream makes a Stream. Gone is called once, when the other side does not take a message.
func NewStream(w io.Writer, gone func(error)) *Stream { return &Stream{w: w, gone: gone} }

// Send implements Writer. It waits for as long as the write takes.
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

// Err is why the other side no longer takes messages, or nil.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
