package forks

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/kernel"
)

// Ends are what leads to one child, which is forked with Theirs and the writing ends of Out, in this order.
type Ends struct {
	Ours   Teller   // where it is told its call
	Theirs *os.File // where it reads that
	Out    *Pipes   // what it says
	Held   bool     // Theirs is kept open, to see whether it was read; else we learn from Ours when the child closes it
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

// Write implements io.Writer: it tells the child something of its call.
func (f *Fork) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.Ours.Write(b)
	f.told += n
	return n, err
}

// Early reports whether it was forked before there was a call. What has become of it since is not that of the call.
func (f *Fork) Early() bool { return f.early }

// hush ends whoever still writes to a child that has ended.
func (f *Fork) hush() { _ = f.Ours.SetWriteDeadline(time.Unix(1, 0)) }

// unread reports whether it is known that a dead child had read nothing of its call: all that it was told is still
// there.
func (f *Fork) unread() bool {
	if !f.Held {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := kernel.Waiting(int(f.Theirs.Fd()))
	return err == nil && n == f.told
}

// Take gives the child of the next call: the one that waits for it, or one that is forked now. The caller closes it,
// after Await. One that has died while it waited is replaced: it had no call.
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

// Prepare forks a child for the next call, before that comes, where calls have come one after the other lately. The
// caller has just had a call of the server, and nothing is left of that: a child that waits is alone with its server.
func (s *Server) Prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait, soon := s.rhythm.ends(time.Now())
	if !soon || s.spent || s.ahead != nil {
		return
	}
	f, err := s.fork()
	if err != nil {
		return // the next call tries again, and says why
	}
	f.early = true
	s.ahead = f
	s.count(1)
	s.nap = time.AfterFunc(wait, func() { s.dismiss(f) })
}

// Lost notes that a child has died while it waited. The next one is forked for its call, which is told what it dies of.
func (s *Server) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rhythm = rhythm{}
}

// called takes the child that waits, if there is one.
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

// bury lets a child that has no call end, and takes note of it.
func (s *Server) bury(f *Fork) {
	f.Close() // it sees that nobody will call
	ctx, cancel := context.WithTimeout(context.Background(), reportTime)
	defer cancel()
	_, healthy, err := s.await(ctx)
	s.over = !healthy || err != nil
}

// reports reports whether the server has something to say, or is gone: the child that waited is dead.
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

// How long a child waits for its call.
const (
	inRow     = 2 // so many calls that followed another one soon, until there will be a next
	patience  = 8 // times as long as the calls before were apart
	leastWait = 100 * time.Millisecond
	mostWait  = 10 * time.Second
)

// A rhythm tells from the calls of a server whether the next one will come soon.
type rhythm struct {
	ended time.Time     // when the last call did
	row   int           // how many calls began soon after the one before
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

// ends notes that a call has ended. It says how long the next one is worth waiting for.
func (r *rhythm) ends(now time.Time) (wait time.Duration, soon bool) {
	r.ended = now
	return min(max(patience*r.gap, leastWait), mostWait), r.row >= inRow
}
