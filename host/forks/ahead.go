package forks

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/kernel"
)

// Ends are the connections to one child, which is forked with Theirs and the write ends of Out, in this order.
type Ends struct {
	Ours   Teller   // the child's call is written here
	Theirs *os.File // and read by the child here
	Out    *Pipes   // the child's output
	Held   bool     // Theirs is kept open, to see whether it was read; otherwise Ours reports when the child closes it
}

// A Teller is our end of a pipe or a socket.
type Teller interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// Close closes all of them.
func (e *Ends) Close() {
	_ = e.Ours.Close()
	_ = e.Theirs.Close()
	e.Out.Close()
}

// A Fork is a child of a server, for one call.
type Fork struct {
	*Ends
	early bool // it was forked before there was a call

	mu   sync.Mutex
	told int // bytes
}

// Write implements io.Writer: it sends the child data of its call.
func (f *Fork) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.Ours.Write(b)
	f.told += n
	return n, err
}

// Early reports whether the child was forked before its call came. Whatever happened to it before is not part of the
// call.
func (f *Fork) Early() bool { return f.early }

// hush unblocks writes to a child that has ended.
func (f *Fork) hush() { _ = f.Ours.SetWriteDeadline(time.Unix(1, 0)) }

// unread reports whether a dead child is known to have read nothing of its call: everything sent to it is still there.
func (f *Fork) unread() bool {
	if !f.Held {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := kernel.Waiting(int(f.Theirs.Fd()))
	return err == nil && n == f.told
}

// Take returns the child of the next call: a waiting one, or one that is forked now. The caller closes it, after Await. A
// child that died while it waited is replaced: it had no call.
func (s *Server) Take(ctx context.Context) (*Fork, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rhythm.begins(time.Now())
	f := s.called()
	if f != nil && s.reports() {
		s.bury(f)
		f = nil
	}
	if f == nil {
		var err error
		if f, err = s.fork(); err != nil {
			return nil, err
		}
	}
	f.Out.For(ctx)
	return f, nil
}

// Prepare forks a child for the next call in advance, if calls have recently followed one another. The caller has just
// finished a call of the server, and nothing is left of it: a waiting child is alone with its server.
func (s *Server) Prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait, soon := s.rhythm.ends(time.Now())
	if !soon || s.spent || s.ahead != nil {
		return
	}
	f, err := s.fork()
	if err != nil {
		return // the next call tries again, and reports the reason
	}
	f.early = true
	s.ahead = f
	s.count(1)
	s.nap = time.AfterFunc(wait, func() { s.dismiss(f) })
}

// Lost records that a child has died while it waited. The next child is forked for its call, which gets the cause of its
// death.
func (s *Server) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rhythm = rhythm{}
}

// called takes the waiting child, if there is one.
func (s *Server) called() (f *Fork) {
	if f, s.ahead = s.ahead, nil; f != nil {
		s.nap.Stop()
		s.count(-1)
	}
	return f
}

func (s *Server) count(n int64) {
	if s.o.Ahead != nil {
		s.o.Ahead.Add(n)
	}
}

// dismiss ends a child that has waited for too long.
func (s *Server) dismiss(f *Fork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead == f {
		s.bury(s.called())
	}
}

// bury ends a child that has no call, and records its end.
func (s *Server) bury(f *Fork) {
	f.Close() // it sees that no call will come
	ctx, cancel := context.WithTimeout(context.Background(), reportTime)
	defer cancel()
	_, healthy, err := s.await(ctx)
	s.over = !healthy || err != nil
}

// reports reports whether the server has sent something or is gone: then the waiting child is dead.
func (s *Server) reports() bool {
	raw, err := s.control.SyscallConn()
	if err != nil {
		return true
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	})
	return err != nil || n > 0
}

// The limits on a child's wait for its call.
const (
	inRow     = 2 // calls that soon followed another before a next one is expected
	patience  = 8 // times the average gap between calls
	leastWait = 100 * time.Millisecond
	mostWait  = 10 * time.Second
)

// A rhythm predicts from the calls of a server whether the next one will come soon.
type rhythm struct {
	ended time.Time     // when the last call ended
	row   int           // how many calls began soon after the previous one
	gap   time.Duration // between two of them, on average
}

func (r *rhythm) begins(now time.Time) {
	gap := now.Sub(r.ended)
	switch {
	case r.ended.IsZero() || gap > mostWait:
		r.row, r.gap = 0, 0
	case r.row == 0:
		r.row, r.gap = 1, gap
	default:
		r.row, r.gap = r.row+1, (3*r.gap+gap)/4
	}
}

// ends records that a call has ended. It returns how long to wait for the next one.
func (r *rhythm) ends(now time.Time) (wait time.Duration, soon bool) {
	r.ended = now
	return min(max(patience*r.gap, leastWait), mostWait), r.row >= inRow
}
