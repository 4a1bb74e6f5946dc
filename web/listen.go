package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"toolpost/identity"
	"toolpost/kernel"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// UnixPrefix begins the address of a Unix socket; its path follows.
const UnixPrefix = "unix:"

// maxSocket is the maximum length of the path of a Unix socket in bytes. The kernel's limit includes a zero at the end.
const maxSocket = 107

// CheckListen refuses an invalid address to listen on, before it is used.
func CheckListen(listen string) error {
	if path, ok := strings.CutPrefix(listen, UnixPrefix); ok {
		if path == "" || len(path) > maxSocket {
			return badListen(listen, fmt.Sprintf("the path of a socket has 1 to %d bytes", maxSocket))
		}
		return nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		if why, ok := errors.AsType[*net.AddrError](err); ok {
			err = errors.New(strings.TrimSuffix(why.Err, " in address"))
		}
		return badListen(listen, err.Error())
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return badListen(listen, fmt.Sprintf("a port is a number from 0 to 65535, not %.20q", port))
	}
	_, err = netip.ParseAddr(host)
	if host != "" && err != nil && !hostName().MatchString(host) {
		return badListen(listen, fmt.Sprintf("%.80q is neither an IP address nor a name", host))
	}
	return nil
}

// Try reports whether a front with these options could be opened: it reads its files and listens on its address for a
// moment. An address in use is not an error, since the server in question may be the one that uses it.
func (o Options) Try() error {
	if _, err := newCertificates(o); err != nil {
		return err
	}
	if path, ok := strings.CutPrefix(o.Listen, UnixPrefix); ok {
		if info, err := os.Stat(filepath.Dir(path)); err == nil && !info.IsDir() {
			return badListen(o.Listen, filepath.Dir(path)+" is not a folder")
		}
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", o.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil
	case err != nil:
		return tool.Errorf(tool.CodeUnavailable, "cannot listen on %s: %w", o.Listen, err)
	}
	return ln.Close()
}

// hostName matches the name of a machine; a name whose last part is a number would be an IP address.
var hostName = regex.Lazy(`^([A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?\.)*[A-Za-z_][A-Za-z0-9_-]*\.?$`)

func badListen(listen, why string) error {
	return tool.Errorf(tool.CodeInvalidInput,
		"%.100q is not an address to listen on: %s; write HOST:PORT, such as %s, or unix:PATH", listen, why, DefaultListen)
}

func (f *Front) listen(ctx context.Context) (net.Listener, error) {
	ln, err := f.o.Sockets.listen(ctx, f.o.Listen, f.o.Mode)
	if op, ok := err.(*net.OpError); ok {
		err = op.Err // without the address, which the message below names
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable,
			"cannot serve HTTP on %s: %w; choose another address with `toolpost serve --listen ADDRESS` or in the config, as `listen` "+
				"of the door, or stop what uses this one", f.o.Listen, err)
	}
	for _, d := range f.doors {
		err = errors.Join(err, d.Anonymous.CheckOn(ln.Addr()))
	}
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

// listenUnix makes a socket that has its mode before a client can connect to it. It replaces one that a program left
// behind.
func listenUnix(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	unlock, err := lockFolder(ctx, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	at, release, err := ShortPath(path)
	if err != nil {
		return nil, err
	}
	defer release()
	own, err := bindUnix(ctx, at, private(mode))
	if err != nil {
		return nil, err
	}
	own.SetUnlinkOnClose(false) // it would remove the short path
	s := &unixSocket{UnixListener: own, path: path}
	if err := os.Chmod(at, mode); err != nil { // restores what the umask removed
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// bindUnix binds a socket at a path, in place of what is stale there. A tool that starts at the same time may put an empty
// file there in between (see removeStale), so it tries again, as often as tools may plausibly start meanwhile.
func bindUnix(ctx context.Context, at string, control func(_, _ string, _ syscall.RawConn) error) (*net.UnixListener, error) {
	for tries := 1; ; tries++ {
		if err := removeStale(ctx, at); err != nil {
			return nil, err
		}
		ln, err := (&net.ListenConfig{Control: control}).Listen(ctx, "unix", at)
		if err == nil {
			return ln.(*net.UnixListener), nil
		}
		if tries == 20 || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
}

// A unixSocket is a listener whose file is removed, once, before it closes, unless another program listens on it too.
type unixSocket struct {
	*net.UnixListener
	path string
	kept atomic.Bool // the file stays, or is removed already
}

// Addr implements net.Listener.
func (s *unixSocket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close implements net.Listener.
func (s *unixSocket) Close() error {
	if !s.kept.Swap(true) {
		_ = os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// ShortPath returns a path that is short enough for a socket and leads to the same file until release is called, through the
// descriptor of its folder. Only Linux has such paths.
func ShortPath(path string) (short string, release func(), err error) {
	if len(path) <= maxSocket {
		return path, func() {}, nil
	}
	dir, err := os.OpenFile(filepath.Dir(path), kernel.PathOnly, 0)
	if err != nil {
		return "", nil, err
	}
	short = filepath.Join(kernel.Descriptors, strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	return short, func() { _ = dir.Close() }, nil
}

// private sets the mode of a socket before it is bound, so that the file never has another mode.
func private(mode fs.FileMode) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		failed := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(mode.Perm())) })
		return errors.Join(failed, err)
	}
}

// lockFolder makes two programs that start at once look for a stale socket one after the other: else the second could
// remove the new socket of the first.
func lockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
		}
		if !tool.Sleep(ctx, 10*time.Millisecond) {
			_ = f.Close()
			return nil, &fs.PathError{Op: "lock", Path: dir, Err: errors.New("another program holds it")}
		}
	}
}

// removeStale removes a socket that no program listens on any more, or the empty file that holds its place while tools
// run without the door, and nothing else.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().IsRegular() && info.Size() == 0:
		return os.Remove(path)
	case info.Mode().Type() != fs.ModeSocket:
		return tool.Errorf(tool.CodeConflict, "%s is there and is no socket", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return tool.Errorf(tool.CodeConflict, "another program listens there")
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return tool.Errorf(tool.CodeConflict, "whether another program listens there cannot be told: %w", err)
}

// peerKey is the key of the peer in the context of a connection; net/http has no other place for it.
type peerKey struct{}

// withPeer adds the peer of a Unix socket to the context, as the kernel reports it.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ctx
	}
	var p identity.Peer
	failed := raw.Control(func(fd uintptr) { p.UID, p.GID, p.PID, err = kernel.Peer(int(fd)) })
	if failed != nil || err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, &p)
}

func peerOf(ctx context.Context) *identity.Peer {
	p, _ := ctx.Value(peerKey{}).(*identity.Peer)
	return p
}
