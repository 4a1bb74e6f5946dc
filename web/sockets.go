package web

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"toolpost/tool"
)

// Sockets are the listening sockets of all fronts of a program. Some may have been given to it, by systemd or by the
// server that it replaces, and a server that replaces this one gets all of them. So a client that connects while one
// server follows another is not refused: its connection waits in the socket. A nil *Sockets has none to give or take.
type Sockets struct {
	mu      sync.Mutex
	given   []socket      // not used yet
	open    []socket      // of fronts
	due     int           // fronts that do not listen yet
	ready   chan struct{} // closed when all fronts listen
	settled bool          // ready is closed without fronts
	handed  bool          // a server that replaces this one has them, too
	follows bool          // this one replaces a server
	before  *net.UnixConn // to the server that this one replaces; nil if there is none
}

// A socket is a listener, which systemd may hold as well.
type socket struct {
	net.Listener
	systemd bool
}

// Bounds of the handover.
const (
	handTime   = time.Minute // for the successor to start
	maxHanded  = 64          // sockets
	taken      = 'y'         // the successor listens
	firstGiven = 3           // the first descriptor of systemd's
)

// Activated returns the sockets that systemd gave to this program, or none. No child of this program gets them.
func Activated() (*Sockets, error) {
	s := &Sockets{ready: make(chan struct{})}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	mine := os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid())
	for _, name := range []string{"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name)
	}
	if err != nil || !mine {
		return s, nil
	}
	for fd := firstGiven; fd < firstGiven+n; fd++ {
		if err := s.add(fd, true); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "descriptor %d of systemd is no socket that listens: %w; "+
				"a socket unit needs ListenStream=, and Accept=no", fd, err)
		}
	}
	return s, nil
}

// add adds a socket that was given to this program, as a descriptor.
func (s *Sockets) add(fd int, systemd bool) error {
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close() // the listener has its own
	ln, err := net.FileListener(f)
	if u, ok := ln.(*net.UnixListener); ok && !systemd {
		ln = &unixSocket{UnixListener: u, path: u.Addr().String()}
	}
	if err == nil {
		s.given = append(s.given, socket{ln, systemd})
	}
	return err
}

// listen returns the socket of an address: one that was given to this program, or a new one.
func (s *Sockets) listen(ctx context.Context, listen string, mode fs.FileMode) (net.Listener, error) {
	if s == nil {
		return newListener(ctx, listen, mode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var one socket
	if i := slices.IndexFunc(s.given, func(g socket) bool { return g.at(listen) }); i >= 0 {
		one = s.given[i]
		s.given = slices.Delete(s.given, i, i+1)
	} else {
		var err error
		if one.Listener, err = newListener(ctx, listen, mode); err != nil {
			return nil, err
		}
	}
	s.open = append(s.open, one)
	if s.due--; s.due > 0 {
		return one.Listener, nil
	}
	for _, g := range s.given { // of an address that the config no longer has
		if g.systemd {
			return nil, tool.Errorf(tool.CodeInvalidInput, "systemd listens on %s, and no door does: ListenStream= of the "+
				"socket unit and `listen` of a door must be the same", g.Addr())
		}
		_ = g.Close()
	}
	close(s.ready)
	return one.Listener, nil
}

// Settle is called when a door that is no front serves. If there are no fronts, that is when the server that this one
// replaces can end.
func (s *Sockets) Settle() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due == 0 && len(s.open) == 0 && !s.settled {
		s.settled = true
		close(s.ready)
	}
}

// Replaces reports whether this program takes over from a server that still runs.
func (s *Sockets) Replaces() bool { return s != nil && s.before != nil }

// relieve lets the server that this one replaces end, and waits until it offers nothing any more.
func (s *Sockets) relieve(ctx context.Context) {
	before := s.before // not the field, which is cleared while ctx may end
	_, _ = before.Write([]byte{taken})
	_ = before.SetReadDeadline(time.Now().Add(handTime))
	stop := context.AfterFunc(ctx, func() { _ = before.Close() })
	_, _ = before.Read(make([]byte, 1))
	stop()
	_ = before.Close()
	s.before = nil
}

// complete waits until every front listens; it returns false if ctx ends first. No front accepts a connection before: if
// another one cannot listen, this program ends, and the server that it would replace goes on.
func (s *Sockets) complete(ctx context.Context) bool {
	if s == nil {
		return true
	}
	select {
	case <-s.ready:
		return true
	case <-ctx.Done():
		return false
	}
}

func newListener(ctx context.Context, listen string, mode fs.FileMode) (net.Listener, error) {
	if path, ok := strings.CutPrefix(listen, UnixPrefix); ok {
		return listenUnix(ctx, path, mode)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", listen)
}

// at reports whether a socket listens on an address of a config; port 0 is any.
func (s socket) at(listen string) bool {
	if path, ok := strings.CutPrefix(listen, UnixPrefix); ok {
		path, err := filepath.Abs(path)
		return err == nil && s.Addr().Network() == "unix" && s.Addr().String() == path
	}
	is, ok := s.Addr().(*net.TCPAddr)
	want, err := net.ResolveTCPAddr("tcp", listen)
	if !ok || err != nil || want.Port != 0 && is.Port != want.Port {
		return false
	}
	return is.IP.Equal(want.IP) || is.IP.IsUnspecified() && (want.IP == nil || want.IP.IsUnspecified())
}

// outlives reports whether another program has a socket when this one closes it, and whether that one serves already.
func (s *Sockets) outlives(ln net.Listener) (outlives, served bool) {
	if s == nil {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handed || slices.Contains(s.open, socket{ln, true}), s.handed
}

// Replace takes the sockets of the server that offers them at path; that server goes on until Serve has told it that
// every front listens. It returns false if there is no such server.
func (s *Sockets) Replace(ctx context.Context, path string) (bool, error) {
	short, release, err := ShortPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer release()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", short)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c := conn.(*net.UnixConn)
	if err = sameUser(c); err == nil {
		err = s.receive(c)
	}
	if err != nil {
		_ = c.Close()
		return false, tool.Errorf(tool.CodeUnavailable, "the server that offers its sockets at %s cannot be replaced: %w", path, err)
	}
	s.follows, s.before = true, c
	return true, nil
}

// Follows reports whether this server replaces another one, which may not have ended yet.
func (s *Sockets) Follows() bool { return s != nil && s.follows }

func (s *Sockets) receive(c *net.UnixConn) error {
	_ = c.SetReadDeadline(time.Now().Add(handTime))
	oob := make([]byte, syscall.CmsgSpace(4*maxHanded))
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:n])
	for i := range messages {
		fds, _ := syscall.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			err = errors.Join(err, s.add(fd, false))
		}
	}
	return err
}

// Serve lets the server that this one replaces end once every front listens, and offers the sockets at path to the
// next one, until ctx ends. If that one takes them, Serve calls leave.
func (s *Sockets) Serve(ctx context.Context, path string, leave func()) error {
	if !s.complete(ctx) {
		return nil
	}
	if s.before != nil {
		s.relieve(ctx)
	}
	ln, err := listenUnix(ctx, path, 0o600)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		if s.hand(ctx, conn.(*net.UnixConn)) {
			_ = ln.Close()
			_ = conn.Close() // after ln: the next server then offers its own
			leave()
			return nil
		}
		_ = conn.Close()
	}
}

// hand gives the sockets to a program of the same user, and reports whether it listens on them within a bounded time.
func (s *Sockets) hand(ctx context.Context, c *net.UnixConn) bool {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(handTime))
	if sameUser(c) != nil || s.send(c) != nil {
		return false
	}
	var answer [1]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil || answer[0] != taken {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed = true
	for _, one := range s.open {
		if u, ok := one.Listener.(*unixSocket); ok {
			u.kept.Store(true)
		}
	}
	return true
}

func (s *Sockets) send(c *net.UnixConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fds []int
	for _, one := range s.open {
		raw, err := one.Listener.(syscall.Conn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return err
		}
	}
	_, _, err := c.WriteMsgUnix([]byte{taken}, syscall.UnixRights(fds...), nil)
	return err
}

// sameUser refuses a peer that runs as another user: it could listen in our place.
func sameUser(c *net.UnixConn) error {
	if p := peerOf(withPeer(context.Background(), c)); p == nil || int(p.UID) != os.Geteuid() {
		return errors.New("it runs as another user")
	}
	return nil
}
