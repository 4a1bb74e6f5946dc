// Package forks keeps interpreters warm that fork a clean child for each call. A Python process imports what every call
// needs, waits, and forks: the child begins where a fresh interpreter would be after a tenth of a second, is confined on
// its own, and leaves nothing to the next one. If calls follow each other, the child of the next one is forked in
// advance; see Server.Prepare.
//
// The Python side is server.py, which a protocol puts in front of its own code; see Python.
package forks

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/process"
	"toolpost/kernel"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

//go:embed server.py
var python string

// Python returns the part of the Python side that all servers share. A protocol appends its own.
func Python() string { return python }

// Bootstrap is the program that runs the Python side from descriptor 3, the first inherited one. It uses pread: there may
// be no path to the file, and other processes read it at the same time. Its name is not a path: a traceback that wants to
// show a line of it must not open whatever descriptor 3 has become.
const Bootstrap = `import posix; exec(compile(posix.pread(3, posix.fstat(3).st_size, 0), "<toolpost>", "exec"))`

// NoWalls is the exit status of a child that could not be confined, so that it ran nothing.
const NoWalls = 71

// reportTime is how long a server may take to report the end of a child that we killed.
const reportTime = 5 * time.Second

// A Server is an interpreter that forks. It serves one call at a time.
type Server struct {
	Child *process.Child

	o       Options
	control *net.UnixConn
	lines   *bounded.Lines // its messages on control
	spent   bool

	mu     sync.Mutex // between calls, both the next call and the end of the wait for it may use the state below
	ahead  *Fork      // waits for its call; nil if there is none
	nap    *time.Timer
	over   bool // it has ended, or is about to
	rhythm rhythm
}

// Options of a server.
type Options struct {
	Start func(process.Command) (*process.Child, error) // process.Start, or a wrapper of it
	Ends  func() (*Ends, error)                         // makes the connections to a child
	Ahead *atomic.Int64                                 // counts the children that wait for their call; may be nil
}

// Start starts a server: descriptor 3 is the source of its Python side, descriptor 4 its control connection, and
// descriptor 5 the confinement of its children, if they have any.
func Start(cmd process.Command, source, room *os.File, o Options) (*Server, error) {
	ours, theirs, err := SocketPair()
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no socket for the fork server: %w", err)
	}
	cmd.Files = []*os.File{source, theirs}
	if room != nil {
		cmd.Files = append(cmd.Files, room)
	}
	child, err := o.Start(cmd)
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	child.CloseStdin()
	return &Server{
		Child: child, o: o, control: ours, lines: bounded.NewLines(ours, bounded.LineLimits{}),
	}, nil
}

// SocketPair makes two connected sockets: one for us, and one for a child.
func SocketPair() (*net.UnixConn, *os.File, error) {
	fds, err := kernel.SocketPair()
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close() // FileConn has its own
	conn, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// Hello waits for the first message of a server.
func (s *Server) Hello(ctx context.Context) ([]byte, error) {
	defer context.AfterFunc(ctx, func() { _ = s.control.SetReadDeadline(time.Now()) })()
	line, err := s.lines.Next()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return line, err
}

// Close implements process.Worker.
func (s *Server) Close() {
	_ = s.control.Close()
	s.Child.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.called(); f != nil {
		f.Close()
	}
}

// ErrGone means that a server had ended before it got the call. Nothing was run: another server may run it.
var ErrGone = errors.New("the fork server is gone")

// ErrStale means that a server ran nothing because an earlier call has left something: another server may run it.
var ErrStale = fmt.Errorf("%w: an earlier call has left something", ErrGone)

// Spent reports whether the server must not take another call, although it is healthy.
func (s *Server) Spent() bool { return s.spent }

// Spend marks the server as not to be used for another call.
func (s *Server) Spend() { s.spent = true }

// Limits returns the limit of its sandbox that a child reached if we did not kill it, or "" if there is none. It ends the
// server, since only an ended sandbox reports its limits.
func (s *Server) Limits(exit process.Exit) string {
	if exit.Signal != syscall.SIGKILL || len(s.Child.Layers()) == 0 {
		return ""
	}
	s.Child.Kill()
	s.spent = true
	return s.Child.Reached(exit)
}

// fork passes the descriptors of a new child to the server; that is its signal to fork a child that has them.
func (s *Server) fork() (*Fork, error) {
	if s.over {
		return nil, ErrGone
	}
	ends, err := s.o.Ends()
	if err != nil {
		return nil, err
	}
	f := &Fork{Ends: ends}
	fds := []int{int(f.Theirs.Fd())}
	for _, w := range f.Out.W {
		fds = append(fds, int(w.Fd()))
	}
	_ = s.control.SetDeadline(time.Now().Add(reportTime))
	_, _, err = s.control.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil)
	_ = s.control.SetDeadline(time.Time{})
	if err != nil {
		f.Close()
		return nil, ErrGone
	}
	process.CloseAll(f.Out.W)
	if !f.Held {
		_ = f.Theirs.Close()
	}
	return f, nil
}

// Await waits for the child's end, or ends it together with ctx. Either way nothing that the call started is left when it
// returns. The server is healthy if it can take another call. If a child that was forked ahead ended before it read
// anything of its call, the error is ErrGone.
func (s *Server) Await(ctx context.Context, f *Fork) (process.Exit, bool, error) {
	exit, healthy, err := s.await(ctx)
	f.hush()
	if err == nil && ctx.Err() == nil && f.early && f.unread() {
		s.Lost()
		return process.Exit{}, healthy, ErrGone
	}
	return exit, healthy, err
}

func (s *Server) await(ctx context.Context) (_ process.Exit, healthy bool, _ error) {
	reported, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.end(reported)
	})
	line, err := s.lines.Next()
	close(reported)
	if !stop() {
		<-ended
		_ = s.control.SetReadDeadline(time.Time{})
	}
	var report struct {
		Exit  int  `json:"exit"`
		Left  bool `json:"left"`
		Stale bool `json:"stale"`
	}
	if err == nil {
		err = strictjson.UnmarshalClosed(line, &report)
	}
	switch {
	case err != nil:
		return s.Child.Kill(), false, nil
	case report.Stale:
		return process.Exit{}, true, ErrStale
	}
	s.Child.Sweep()
	s.spent = report.Left
	if report.Exit < 0 {
		return process.Exit{Code: -1, Signal: syscall.Signal(-report.Exit)}, true, nil
	}
	return process.Exit{Code: report.Exit}, true, nil
}

// end kills the call until the server has reported its end. Once is not enough: the server may be about to fork.
func (s *Server) end(reported <-chan struct{}) {
	_ = s.control.SetReadDeadline(time.Now().Add(reportTime))
	for {
		s.Child.Sweep()
		select {
		case <-reported:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
