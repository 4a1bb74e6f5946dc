package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"toolpost/fleet/bound"
	"toolpost/tool"
)

// A frame is one message of a stream. The two ends of a stream number their frames apart, so a lost one is noticed.
type frame struct {
	kind kind
	body []byte
}

// A kind says what is in a frame.
type kind byte

// The kinds. Frames that are not numbered may come between those that are: they concern the stream, and wait for nothing.
const (
	kindPart    kind = 'p' // the beginning of the body of the next frame of another kind
	kindFile    kind = 'b' // bytes of the file of the next event
	kindCall    kind = 'c' // to a node: a request
	kindTouches kind = 't' // to a node: what would this request touch?
	kindList    kind = 'l' // to a node: which tools are there?
	kindOrder   kind = 'o' // to a node: an order
	kindEvent   kind = 'e' // to a hub
	kindReceipt kind = 's' // to a hub: the receipt of the call, if it asked for one
	kindUses    kind = 'u' // to a hub: the hosts that got the keys of the call, if it had some
	kindResult  kind = 'r' // to a hub: the last one
	kindError   kind = 'f' // to a hub: the last one, in place of a result
	kindEnd     kind = 'x' // not numbered: the other end wants nothing more; the body is the error
	kindTaken   kind = 'w' // not numbered: how many frames the other end has taken
)

const (
	chunk      = 64 << 10 // bytes of a frame; a larger body goes in parts
	window     = 32       // frames that the other end has not taken yet; more wait, which slows the tool down
	takenEvery = window / 2
	largest    = 128 << 20 // bytes of a body in parts
	mostHeld   = 512 << 20 // bytes of all streams of a node
	headSize   = 5
)

// A connection is what streams use of a *nats.Conn.
type connection interface {
	Publish(subject string, data []byte) error
	PublishRequest(subject, reply string, data []byte) error
}

// A stream is one exchange between a hub and a node, such as a call. Both ends send at once.
type stream struct {
	peer    string // the name of the node, for messages
	room    *bound.Budget
	put     func(frame []byte) error
	moved   chan struct{} // the other end has taken something
	arrived chan struct{}
	done    chan struct{} // the stream is broken

	mu    sync.Mutex
	sent  uint32
	taken uint32 // of those that were sent
	got   uint32
	in    []frame
	muted bool        // nothing reads what is sent
	holds int         // bytes that count in the budget
	err   error       // why the stream is broken
	after int         // frames that came since then
	stop  func(error) // is told so; may be nil

	consumed uint32     // used by the receiving goroutine alone, like the next
	used     int        // bytes of the last message
	counted  bool       // it is one of the calls of its node
	over     connection // of a node: what it came by
	reply    string     // of a hub: the subject of the answers
	// Of a node: the call goes on to its end if its hub took the node for gone, as it does if the hub is gone.
	lasts   atomic.Bool
	receipt []byte // of the call; a node sends it before the last message
	uses    []byte // of the keys of the call, likewise
	last    frame  // of a hub: the last message, once it came
}

func newStream(peer string, room *bound.Budget, put func([]byte) error) *stream {
	return &stream{peer: peer, room: room, put: put, moved: make(chan struct{}, 1), arrived: make(chan struct{}, 1), done: make(chan struct{})}
}

func encodeFrame(k kind, number uint32, body []byte) []byte {
	b := make([]byte, headSize, headSize+len(body))
	b[0] = byte(k)
	binary.BigEndian.PutUint32(b[1:], number)
	return append(b, body...)
}

// send sends a body, in parts if it is large, and waits while the other end has not taken the frames before.
func (s *stream) send(ctx context.Context, k kind, body []byte) error {
	for len(body) > chunk {
		if err := s.one(ctx, kindPart, body[:chunk]); err != nil {
			return err
		}
		body = body[chunk:]
	}
	return s.one(ctx, k, body)
}

func (s *stream) one(ctx context.Context, k kind, body []byte) error {
	for {
		s.mu.Lock()
		if s.err != nil {
			s.mu.Unlock()
			return s.err
		}
		if s.muted {
			s.mu.Unlock()
			return errUnheard
		}
		if s.sent-s.taken < window {
			s.sent++
			err := s.put(encodeFrame(k, s.sent, body)) // under the lock: frames leave in the order of their numbers
			s.mu.Unlock()
			return err
		}
		s.mu.Unlock()
		select {
		case <-s.moved:
		case <-s.done:
		case <-ctx.Done():
			return tool.Ended(ctx)
		}
	}
}

// errUnheard means that the connection to the other end was lost.
var errUnheard = tool.Errorf(tool.CodeUnavailable, "the connection to the hub was lost").Because(reasonLink)

// mute sends nothing more, and waits for nothing more.
func (s *stream) mute() {
	s.mu.Lock()
	s.muted = true
	s.mu.Unlock()
	signal(s.moved)
	signal(s.arrived)
}

// deliver takes a frame from the connection, and reports whether it was of use. It never blocks. The other end learns of a frame
// that breaks the rules.
func (s *stream) deliver(b []byte) bool {
	if len(b) < headSize {
		s.end(s.garbled("a message of %d bytes", len(b)))
		return false
	}
	k, number, body := kind(b[0]), binary.BigEndian.Uint32(b[1:]), b[headSize:]
	switch k {
	case kindTaken:
		return s.acknowledged(number)
	case kindEnd:
		if err := ended(body); s.lasts.Load() && tool.AsError(err).Reason == reasonGone {
			s.mute()
		} else {
			s.fail(quit{err})
		}
		return true
	}
	if err := s.queue(frame{k, body}, number); err != nil {
		s.end(err)
		return false
	}
	signal(s.arrived)
	return true
}

// A quit is the error with which the other end has ended a stream.
type quit struct{ error }

func (q quit) Unwrap() error { return q.error }

func (s *stream) queue(f frame, number uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil
	}
	s.got++
	switch {
	case number != s.got:
		return s.garbled("message %d came in place of message %d", number, s.got)
	case len(s.in) == window:
		return s.garbled("more than %d messages at once", window)
	case len(f.body) > chunk:
		return s.garbled("a message of %d bytes", len(f.body))
	}
	if err := s.room.Take(len(f.body)); err != nil {
		return err
	}
	s.holds += len(f.body)
	s.in = append(s.in, f)
	return nil
}

// heard reports whether a numbered frame came. A hub that got one has sent its whole message, and since then only what is not
// numbered: if that finds nobody, the node may have begun the call.
func (s *stream) heard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got > 0
}

// late returns how many frames have come since the stream broke, with the one that has just come. As many as the window may have been
// on their way.
func (s *stream) late() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.after++
	}
	return s.after
}

// release gives bytes back to the budget.
func (s *stream) release(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds -= bytes
	s.room.Give(bytes)
}

var errCut = errors.New("a stream of the fleet is not used any more")

// forget ends a stream that is not used any more, and what it holds.
func (s *stream) forget() {
	s.fail(errCut)
	s.mu.Lock()
	holds := s.holds
	s.mu.Unlock()
	s.release(holds)
}

// signal wakes the goroutine that waits for c, or the next one that will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *stream) garbled(format string, args ...any) error {
	return tool.Errorf(tool.CodeProtocol, "the connection with %s broke the rules of the fleet: "+format, append([]any{s.peer}, args...)...).
		Because(reasonLink)
}

func (s *stream) acknowledged(number uint32) (news bool) {
	s.mu.Lock()
	if news = number != s.taken && number-s.taken <= s.sent-s.taken; news { // it cannot take what was not sent
		s.taken = number
	}
	s.mu.Unlock()
	signal(s.moved)
	return news
}

// fail ends the stream; the first reason counts.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	close(s.done)
	if s.stop != nil {
		s.stop(err)
	}
}

// stops calls stop once the stream is broken.
func (s *stream) stops(stop func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
	if s.err != nil {
		stop(s.err)
	}
}

// end breaks the stream, and tells the other end why.
func (s *stream) end(err error) {
	_ = s.put(encodeFrame(kindEnd, 0, encodeError(err))) // if it is lost, so is the other end
	s.fail(err)
}

// receive returns the next frame. What arrived before the stream broke is returned first.
func (s *stream) receive(ctx context.Context) (frame, error) {
	for {
		f, ok, err := s.next()
		switch {
		case ok:
			return s.took(f), nil
		case err != nil:
			return frame{}, err
		}
		select {
		case <-s.arrived:
		case <-s.done:
		case <-ctx.Done():
			return frame{}, tool.Ended(ctx)
		}
	}
}

func (s *stream) next() (f frame, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.in) > 0:
		f, s.in = s.in[0], s.in[1:]
		return f, true, nil
	case s.err == nil && s.muted:
		return f, false, errUnheard
	}
	return f, false, s.err
}

func (s *stream) took(f frame) frame {
	if s.consumed++; s.consumed%takenEvery == 0 {
		_ = s.put(encodeFrame(kindTaken, s.consumed, nil))
	}
	return f
}

// message returns the next frame that is not a part, with its whole body. Bytes of a file go to file.
func (s *stream) message(ctx context.Context, file func([]byte) error) (f frame, err error) {
	var whole []byte
	s.release(s.used)
	s.used = 0
	for err == nil {
		if f, err = s.receive(ctx); err != nil {
			break
		}
		if f.kind == kindFile && file != nil {
			err = file(f.body)
			s.release(len(f.body))
			continue
		}
		s.used += len(f.body)
		switch {
		case f.kind != kindPart && whole == nil:
			return f, nil
		case len(whole)+len(f.body) > largest:
			return f, s.garbled("a message of more than %d bytes", largest)
		}
		if whole = append(whole, f.body...); f.kind != kindPart {
			f.body = whole
			return f, nil
		}
	}
	return f, err
}
