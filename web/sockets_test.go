package web

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

func newSockets(fronts int) *Sockets {
	return &Sockets{ready: make(chan struct{}), due: fronts}
}

func TestSocketIsMatchedWithTheAddressOfADoor(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		network, on string
		listen      string // PORT is the socket's
		want        bool
	}{
		{"tcp", "127.0.0.1:0", "127.0.0.1:PORT", true},
		{"tcp", "127.0.0.1:0", "localhost:PORT", true},
		{"tcp", "127.0.0.1:0", ":PORT", false},
		{"tcp", "127.0.0.1:0", "127.0.0.1:0", true}, // which port does not matter
		{"tcp", "127.0.0.1:0", "127.0.0.1:1", false},
		{"tcp", "127.0.0.1:0", "unix:" + dir + "/s", false},
		{"tcp", ":0", ":PORT", true},
		{"tcp", ":0", "0.0.0.0:PORT", true},
		{"tcp", ":0", "127.0.0.1:PORT", false}, // the config would serve this machine alone
		{"unix", dir + "/s", "unix:" + dir + "/s", true},
		{"unix", dir + "/s", "unix:" + dir + "/other", false},
	} {
		ln := kit.Must(net.Listen(c.network, c.on))(t)
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		listen := strings.ReplaceAll(c.listen, "PORT", port)
		kit.Equal(t, socket{Listener: ln}.at(listen), c.want, c.on+" at "+c.listen)
		_ = ln.Close()
	}
}

func TestSocketOfSystemdThatNoDoorUsesIsAnError(t *testing.T) {
	s := newSockets(1)
	other := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer other.Close()
	s.given = []socket{{Listener: other, systemd: true}}
	_, err := s.listen(t.Context(), UnixPrefix+filepath.Join(t.TempDir(), "s"), 0)
	kit.Refused(t, err, "invalid_input", "systemd listens on "+other.Addr().String())
	_ = s.open[0].Close()
}

func TestSocketsOfAnotherProcessAreNotTaken(t *testing.T) {
	t.Setenv("LISTEN_FDS", "1")
	t.Setenv("LISTEN_PID", "1")
	s := kit.Must(Activated())(t)
	kit.Equal(t, len(s.given), 0, "sockets")
	kit.Equal(t, os.Getenv("LISTEN_FDS"), "", "what children would read")
}

// Without a front there are no sockets to hand over: the server that is replaced ends when the next one serves at its other
// doors.
func TestServerWithoutFrontsIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "successor.sock")
	first, second := newSockets(0), newSockets(0)
	left, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- first.Serve(t.Context(), path, func() { close(left) }) }()
	first.Settle()
	kit.Eventually(t, "the first can be replaced", func() bool { return kit.Must(second.Replace(t.Context(), path))(t) })
	ctx, stop := context.WithCancel(t.Context())
	next := make(chan error, 1)
	go func() {
		second.Settle()
		next <- second.Serve(ctx, path, func() {})
	}()
	kit.Receive(t, "the first is told to leave", left)
	kit.Check(t, kit.Receive(t, "the end of the first", ended))
	kit.Eventually(t, "the second can be replaced", func() bool { return kit.Must(newSockets(0).Replace(t.Context(), path))(t) })
	stop()
	kit.Check(t, kit.Receive(t, "the end of the second", next))
}

// A server gives its sockets away once; one that asks for them and does not listen gets nothing.
func TestSocketsAreHandedToAServerThatListens(t *testing.T) {
	dir := t.TempDir()
	path, door := filepath.Join(dir, "successor.sock"), "unix:"+filepath.Join(dir, "door.sock")
	first := newSockets(2)
	tcp := kit.Must(first.listen(t.Context(), "127.0.0.1:0", 0o600))(t)
	unix := kit.Must(first.listen(t.Context(), door, 0o600))(t)
	left, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- first.Serve(t.Context(), path, func() { close(left) }) }()
	var gone, second *Sockets
	kit.Eventually(t, "the sockets are offered", func() bool {
		gone = newSockets(2)
		return kit.Must(gone.Replace(t.Context(), path))(t)
	})
	_ = gone.before.Close()
	second = newSockets(2)
	kit.Equal(t, kit.Must(second.Replace(t.Context(), path))(t), true, "the second asks")
	handed := func() bool { _, served := first.outlives(tcp); return served }
	kit.Equal(t, handed(), false, "handed over before the second listens")
	again := kit.Must(second.listen(t.Context(), "127.0.0.1:0", 0o600))(t)
	kit.Equal(t, again.Addr().String(), tcp.Addr().String(), "the address")
	kit.Must(second.listen(t.Context(), door, 0o600))(t)
	ctx, stop := context.WithCancel(t.Context())
	next := make(chan error, 1)
	go func() { next <- second.Serve(ctx, path, func() {}) }()
	kit.Receive(t, "the first is told to leave", left)
	kit.Check(t, kit.Receive(t, "the end of the first", ended))
	kit.Equal(t, handed(), true, "handed over")
	_, _ = tcp.Close(), unix.Close()
	conn := kit.Must(net.Dial("unix", strings.TrimPrefix(door, UnixPrefix)))(t) // the kernel accepts it for the second
	_ = conn.Close()
	stop()
	kit.Check(t, kit.Receive(t, "the end of the second", next))
	for _, one := range second.open {
		_ = one.Close()
	}
}

// The successor may be told to end at the very moment when the server before it has ended.
func TestSuccessorMayEndWhileItTakesOver(t *testing.T) {
	for range 200 {
		path := filepath.Join(t.TempDir(), "s")
		ln := kit.Must(net.Listen("unix", path))(t)
		conn := kit.Must(net.Dial("unix", path))(t)
		s := newSockets(0)
		s.before = conn.(*net.UnixConn)
		ctx, cancel := context.WithCancel(t.Context())
		peer := kit.Must(ln.Accept())(t)
		go func() { _ = peer.Close() }()
		go cancel()
		s.relieve(ctx)
		kit.OK(t, ln.Close())
	}
}
