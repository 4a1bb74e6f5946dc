package machina

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/kernel"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// A session is a warm toolhost. It has one call at a time, and answers each request with one line.
type session struct {
	child *process.Child
	out   *counted
	lines *bounded.Lines
	given int64 // bytes of the lines that were read
	known slots // the state that the toolhost has; nil if unknown
	watch walls.Watch
	call  atomic.Pointer[tool.Relay] // whose events standard error belongs to, or nil
}

// startSession starts a toolhost. It is a process.Worker.
func (r *Runner) startSession(ctx context.Context) (*session, error) {
	s := &session{known: slots{}}
	child, err := r.host.Start(ctx, spawn.Run{
		Name: "the toolhost", Args: []string{"--serve", r.o.Plugin}, Guarantees: r.o.Guarantees, Watch: &s.watch,
		Stderr: s.stderr, StderrLimit: process.LifeLog,
	})
	if err != nil {
		return nil, err
	}
	s.child, s.out = child, &counted{r: child.Stdout}
	s.lines = bounded.NewLines(s.out, bounded.LineLimits{Line: r.o.MaxReply})
	return s, nil
}

// Close implements process.Worker: closing its input ends a toolhost cleanly.
func (s *session) Close() {
	s.child.Stop(process.Ladder{Stdin: process.LastBreath, Term: process.LastBreath})
	s.child.Close()
}

// counted counts the bytes that are read through it.
type counted struct {
	r *os.File
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// idle reports whether the toolhost is alive and has no unread output. Surplus output would be taken for the answer to the
// next request.
func (s *session) idle() bool {
	select {
	case <-s.child.Exited():
		return false
	default:
	}
	return s.out.n == s.given && unread(s.child.Stdout) == 0
}

// unread returns how many bytes wait in a pipe.
func unread(f *os.File) (n int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1
	}
	n = -1
	_ = conn.Control(func(fd uintptr) {
		if waiting, err := kernel.Waiting(int(fd)); err == nil {
			n = waiting
		}
	})
	return n
}

// stderr passes a line on to the running call.
func (s *session) stderr(line []byte) {
	if call := s.call.Load(); call != nil {
		call.Stderr(line)
	}
}

// askSession asks a warm session. broken means that the session is gone, and another one may answer the same call.
func (r *Runner) askSession(ctx context.Context, c *call) (a *answer, broken bool, err error) {
	s, err := r.checkout(ctx)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			r.sessions.Put(s, true)
		}
		return nil, false, interrupted(ctx, c.aid)
	case tool.CodeOf(err) == tool.CodeUnavailable:
		return nil, false, missing(c.aid, err)
	case err != nil:
		return nil, false, err
	}
	s.call.Store(c.events)
	s.watch.Follow(c.events, walls.Sources(r.o.Guarantees, c.guarantees))
	a, err = s.ask(ctx, c)
	c.layers, c.checks = s.child.Layers(), s.watch.Checks()
	s.call.Store(nil)
	s.watch.Follow(nil, nil)
	switch {
	case err == nil:
		s.child.Sweep()
		r.sessions.Put(s, true)
	case ctx.Err() != nil: // nothing is wrong with it, but there is no other way to end a call
		s.child.Stop(process.Ladder{Term: process.LastBreath})
		r.sessions.Retire(s)
		return nil, false, interrupted(ctx, c.aid)
	case tool.CodeOf(err) == tool.CodeInvalidInput: // nothing was sent
		r.sessions.Put(s, true)
	default:
		r.sessions.Put(s, false)
		_, tooLong := errors.AsType[*bounded.LimitError](err) // it would be too long again
		return nil, !tooLong, err
	}
	return a, false, err
}

// checkout gets a session that is fit for a call. Waiting for one does not count as the call's time.
func (r *Runner) checkout(ctx context.Context) (*session, error) {
	defer tool.Waiting(ctx)()
	for {
		s, err := r.sessions.Get(ctx)
		if err != nil || s.idle() {
			return s, err
		}
		r.log.Warn("a session of the toolhost died or said more than it was asked; it is replaced")
		r.sessions.Put(s, false)
	}
}

// ask makes one request and reads its answer. After an error the session is unusable, unless the code is invalid_input.
func (s *session) ask(ctx context.Context, c *call) (*answer, error) {
	request, err := encodeRequest(c.aid, c, s.tell(c.state))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", c.aid, err)
	}
	line, err := s.exchange(ctx, request)
	if err != nil {
		return nil, s.broke(c.aid, err)
	}
	a, err := c.decode(line)
	if err != nil {
		return nil, err
	}
	s.known = c.after
	if a.Hit || !a.dispatched() {
		s.known = nil // it is unknown whether the toolhost applied the change
	}
	return a, nil
}

// tell returns what to send to the toolhost so that it has this state: nothing, a delta, or all of it.
func (s *session) tell(state slots) *change {
	if s.known == nil {
		return &change{Slots: state}
	}
	if d := s.known.delta(state); !d.empty() {
		return d
	}
	return nil
}

// exchange writes a line and reads a line, until ctx ends.
func (s *session) exchange(ctx context.Context, request []byte) ([]byte, error) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = s.child.Stdin.SetWriteDeadline(time.Now())
		_ = s.child.Stdout.SetReadDeadline(time.Now())
	})
	defer func() {
		if !stop() {
			<-over
			_ = s.child.Stdin.SetWriteDeadline(time.Time{})
			_ = s.child.Stdout.SetReadDeadline(time.Time{})
		}
	}()
	if _, err := s.child.Stdin.Write(request); err != nil {
		return nil, err
	}
	line, err := s.lines.Next()
	if err != nil {
		return nil, err
	}
	s.given += int64(len(line)) + 1
	return line, nil
}

// broke returns how a session that gave no answer ended.
func (s *session) broke(aid string, err error) error {
	if limit, ok := errors.AsType[*bounded.LimitError](err); ok {
		return structured(typeParseError, aid, "the reply to %s: %w", aid, limit)
	}
	exit := s.child.Stop(process.Ladder{Term: process.LastBreath})
	if exit.Code == 0 && errors.Is(err, io.EOF) {
		return structured(typeEmptyOutput, aid, "the toolhost ended without a reply to %s", aid)
	}
	return structured(typeCrash, aid, "the toolhost crashed in %s: %s", aid, s.child.Describe(exit))
}
