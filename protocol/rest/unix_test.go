package rest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
)

// peers accepts processes of a user, and puts the kernel's peer credentials into the caller's name.
func peers(uid uint32) identity.Gate {
	return func(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
		if shown.Peer == nil || shown.Peer.UID != uid || shown.Token != "" || shown.Certificate != nil {
			return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "nobody knows you")
		}
		return tool.Principal{ID: fmt.Sprintf("%d/%d/%d", shown.Peer.UID, shown.Peer.GID, shown.Peer.PID), Door: shown.Door}, nil
	}
}

// whoCalls answers with the name of its caller.
var whoCalls = tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: []byte(`"` + c.Caller.ID + `"`)}, nil
})

// openSocket opens a door on a Unix socket.
func openSocket(t testing.TB, path string, s setup) *house {
	t.Helper()
	s.Listen = "unix:" + path
	h := open(t, s)
	if h.base != "unix:"+path || h.addr != path {
		t.Errorf("the door says that it is at %s, %s", h.base, h.addr)
	}
	h.base = "http://any.example.org" // any host name is accepted here
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	h.web.Transport = transport
	return h
}

// shortDir returns a folder whose name leaves room for that of a socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir := kit.Must(os.MkdirTemp("", "s"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func me() string { return fmt.Sprintf("%d/%d/%d", os.Getuid(), os.Getgid(), os.Getpid()) }

func TestAPeerOfAUnixSocketIsKnownByItsUser(t *testing.T) {
	tooltest.NoLeaks(t)
	path := filepath.Join(shortDir(t), "s")
	h := openSocket(t, path, setup{Options: web.Options{Gate: peers(uint32(os.Getuid()))}, handler: whoCalls})
	bare := func(method, at, body string) *http.Request {
		req := h.request(method, at, body)
		req.Header.Del("Authorization")
		return req
	}
	if d := h.do(bare("POST", "/v1/tools/x/call", `{}`)).document(t); string(d.Output) != `"`+me()+`"` {
		t.Errorf("%+v; %s is wanted", d, me())
	}
	h.do(h.request("GET", "/v1/tools", "")).refused(t, 401, tool.CodeAccessDenied) // the token is present, but wrong
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	c := kit.Must(rest.Dial("unix:"+path, "", ""))(t)
	defer c.Close(context.Background())
	kit.Equal(t, string(kit.Must(c.Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard))(t).Output), `"`+me()+`"`)
	if _, err := exec.LookPath("curl"); err == nil {
		out, err := exec.CommandContext(kit.Context(t), "curl", "-sS", "--unix-socket", path, "-d", "{}", "-H", "Content-Type: application/json",
			"http://localhost/v1/tools/x/call").CombinedOutput()
		if want := fmt.Sprintf(`{"ok":true,"output":"%d/%d/`, os.Getuid(), os.Getgid()); err != nil || !strings.HasPrefix(string(out), want) || strings.Contains(string(out), me()) {
			t.Errorf("curl: %v %s; %s is wanted, with its own id", err, out, want)
		}
	}
	h.stop()
	kit.Check(t, <-h.ended)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	kit.Refused(t, kit.Err(c.Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard)), tool.CodeUnavailable, "unix:"+path)
}

func TestUnknownUsersAndTCPClientsAreRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	gate := peers(uint32(os.Getuid()) + 1)
	socket := openSocket(t, filepath.Join(shortDir(t), "s"), setup{Options: web.Options{Gate: gate}})
	wire := open(t, setup{Options: web.Options{Gate: peers(uint32(os.Getuid()))}})
	for _, h := range []*house{socket, wire} {
		for _, at := range []string{"/v1/tools", "/v1/jobs", "/metrics", "/v1/assets/" + strings.Repeat("0", 64)} {
			req := h.request("GET", at, "")
			req.Header.Del("Authorization")
			h.do(req).refused(t, 401, tool.CodeAccessDenied)
		}
	}
}

// stale leaves a socket behind that no process listens on.
func stale(t *testing.T, path string) {
	t.Helper()
	ln := kit.Must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
}

func TestOnlyAStaleSocketIsReplaced(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := shortDir(t)
	left := filepath.Join(dir, "left")
	stale(t, left)
	openSocket(t, left, setup{Options: web.Options{Gate: peers(0)}})
	held := filepath.Join(dir, "held") // a placeholder while there is no door
	kit.OK(t, os.WriteFile(held, nil, 0o600))
	openSocket(t, held, setup{Options: web.Options{Gate: peers(0)}})

	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	kit.OK(t, os.WriteFile(file, []byte("precious"), 0o600))
	other := filepath.Join(dir, "other")
	stale(t, other)
	kit.OK(t, os.Symlink(other, link))
	for name, path := range map[string]string{
		"a door": left, "a file": file, "a link": link, "a folder": dir, "a long name": filepath.Join(dir, strings.Repeat("x", 120)),
		"a file for a folder": filepath.Join(file, "s"),
	} {
		before, _ := os.Lstat(path)
		ctx, cancel := context.WithCancel(kit.Context(t))
		o := web.Options{Listen: "unix:" + path, Gate: peers(0), Ready: func(string) { t.Errorf("%s was replaced", name); cancel() }}
		err := newDoor(o).Serve(ctx, tooltest.Reference{}, tooltest.Reference{})
		cancel()
		kit.Refused(t, err, tool.CodeUnavailable, path, name)
		if after, _ := os.Lstat(path); before != nil && !os.SameFile(before, after) {
			t.Errorf("%s is another one now", name)
		}
	}
	if conn, err := net.Dial("unix", left); err != nil {
		t.Errorf("the first door does not answer any more: %v", err)
	} else {
		_ = conn.Close()
	}
}

func TestConcurrentStartsOpenTheSocketOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	path := filepath.Join(shortDir(t), "s")
	stale(t, path)
	const n = 8
	ctx, cancel := context.WithCancel(kit.Context(t))
	defer cancel()
	ready, ended := make(chan string, n), make(chan error, n)
	for range n {
		go func() {
			o := web.Options{Listen: "unix:" + path, Gate: peers(0), Ready: func(addr string) { ready <- addr }}
			ended <- newDoor(o).Serve(ctx, tooltest.Reference{}, tooltest.Reference{})
		}()
	}
	kit.Receive(t, "the door that comes first", ready) // the others may have seen its socket before it reports ready
	for range n - 1 {
		kit.Refused(t, kit.Receive(t, "a door that comes too late", ended), tool.CodeUnavailable, "")
	}
	if len(ready) > 0 {
		t.Errorf("%d more have opened", len(ready))
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		_ = conn.Close()
	}
	cancel()
	kit.Check(t, kit.Receive(t, "the door", ended))
}

// A door that looks for a stale socket holds a lock: otherwise it could remove one that another door has just made.
func TestADoorWaitsForAnotherThatIsOpening(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := shortDir(t)
	f := kit.Must(os.Open(dir))(t)
	defer f.Close()
	kit.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	o := web.Options{Listen: "unix:" + filepath.Join(dir, "s"), Gate: peers(0), Ready: func(string) { t.Error("it does not wait") }}
	kit.Check(t, newDoor(o).Serve(ctx, tooltest.Reference{}, tooltest.Reference{}), "it was told to end")
	_ = f.Close()
	openSocket(t, filepath.Join(dir, "s"), setup{Options: web.Options{Gate: peers(0)}})
}

func TestTheModeOfASocketIsTheConfigs(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := shortDir(t)
	o := kit.Must(web.Config{Listen: "unix:run/s", Mode: "0666"}.Options(dir))(t)
	o.Gate = peers(0)
	openSocket(t, filepath.Join(dir, "run", "s"), setup{Options: o})
	kit.Equal(t, kit.Must(os.Lstat(filepath.Join(dir, "run", "s")))(t).Mode(), fs.ModeSocket|0o666)
	if info, err := os.Lstat(filepath.Join(dir, "run")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
