// Package served starts real servers for tests: the program as people run it, in a folder with a config. They can be
// called, stopped and killed.
package served

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

const (
	// Hang is the bound of waits that only guard against a hang.
	Hang = time.Minute
	// Token is the owner's token.
	Token = "served-token-0123456789abcdef"
)

// Build builds the program, as make build does, and returns a copy of it. All tests of a checkout build it in one place,
// so that the go command links it again only after a change; each test copies it while it holds the lock of that place.
func Build(t *testing.T) string { return BuildWith(t, nil) }

// BuildWith builds it with other texts in place of some files of the checkout, or with files more, by their paths in it.
func BuildWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	place := lockedPlace(t)
	defer place.Close()
	shared, bin, replaced := filepath.Join(filepath.Dir(place.Name()), "toolpost"), filepath.Join(dir, "toolpost"), map[string]string{}
	for name, text := range files {
		shared = filepath.Join(dir, "linked")
		own := filepath.Join(dir, fmt.Sprint(len(replaced), filepath.Ext(name)))
		kit.OK(t, os.WriteFile(own, []byte(text), 0o600))
		replaced[filepath.Join(filepath.Dir(place.Name()), "../..", name)] = own
	}
	overlay := filepath.Join(dir, "overlay.json")
	kit.OK(t, os.WriteFile(overlay, kit.Must(json.Marshal(map[string]any{"Replace": replaced}))(t), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-overlay", overlay, "-o", shared, "toolpost/cmd/toolpost")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	// A file that this process had open for writing could not be started while another test forks.
	take := exec.CommandContext(t.Context(), "cp", shared, bin)
	for _, cmd := range []*exec.Cmd{build, take} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	return bin
}

// lockedPlace locks the folder in which the program is built, until the returned file is closed.
func lockedPlace(t *testing.T) *os.File {
	t.Helper()
	mod := kit.Must(exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output())(t)
	// Below the root of the checkout, so as not to wait for the tests of another checkout.
	dir := filepath.Join(filepath.Dir(string(mod)), "build", "tests")
	kit.OK(t, os.MkdirAll(dir, 0o700))
	lock := kit.Must(os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600))(t)
	kit.OK(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	return lock
}

// A Server is a running `toolpost serve`.
type Server struct {
	cmd   *exec.Cmd
	url   string
	ready chan string // its address
	web   http.Client
	log   kit.Buffer
	work  sync.WaitGroup // reads its output
	once  sync.Once
}

// Start starts a server in a folder, with further environment variables, and waits until it accepts calls.
func Start(t *testing.T, bin, dir string, env ...string) *Server {
	t.Helper()
	return StartBy(t, []string{bin}, dir, env...)
}

// StartBy is Start with a command in front of the program, which is the last of the words.
func StartBy(t *testing.T, words []string, dir string, env ...string) *Server {
	t.Helper()
	return start(t, words, setting{}, dir, env)
}

// StartOn is Start on a socket that the server is given, as systemd does it.
func StartOn(t *testing.T, socket net.Listener, bin, dir string, env ...string) *Server {
	t.Helper()
	file := kit.Must(socket.(*net.TCPListener).File())(t)
	defer file.Close()
	words := []string{"sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"`, "sh", bin}
	return start(t, words, setting{listen: socket.Addr().String(), sockets: []*os.File{file}}, dir, env)
}

// Replace starts a server that takes over from another one, which ends.
func Replace(t *testing.T, before *Server, bin, dir string, env ...string) *Server {
	t.Helper()
	s := start(t, []string{bin}, setting{flags: []string{"--replace"}}, dir, env)
	before.Await(t)
	return s
}

// StartAgain is Start at the address of a server that has ended.
func StartAgain(t *testing.T, ended *Server, bin, dir string, env ...string) *Server {
	t.Helper()
	return start(t, []string{bin}, setting{listen: strings.TrimPrefix(ended.url, "http://")}, dir, env)
}

// Work starts a worker of a fleet, with a command in front of the program, and does not wait until it has joined.
func Work(t *testing.T, words []string, dir string, env ...string) *Server {
	t.Helper()
	return launch(t, append(slices.Clone(words), "worker"), nil, dir, env)
}

// A setting is how a server is started. Its zero value has useful defaults.
type setting struct {
	listen  string
	flags   []string
	sockets []*os.File
}

func start(t *testing.T, words []string, how setting, dir string, env []string) *Server {
	t.Helper()
	words = slices.Concat(words, []string{"serve", "--listen", cmp.Or(how.listen, "127.0.0.1:0")}, how.flags)
	s := launch(t, words, how.sockets, dir, env)
	select {
	case s.url = <-s.ready:
	case <-time.After(Hang):
		t.Fatalf("the server does not start: %s", s.log.String())
	}
	return s
}

// launch starts a program, and reads its output.
func launch(t *testing.T, words []string, sockets []*os.File, dir string, env []string) *Server {
	t.Helper()
	s := &Server{cmd: exec.CommandContext(context.Background(), words[0], words[1:]...), ready: make(chan string, 1)}
	s.web = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	s.cmd.Dir, s.cmd.Stderr, s.cmd.ExtraFiles = dir, &s.log, sockets
	s.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TOOLPOST_TOKEN=" + Token}, env...)
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	s.work.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(&s.log, lines.Text())
			if url, ok := strings.CutPrefix(lines.Text(), "serving on "); ok && strings.HasPrefix(url, "http") {
				select {
				case s.ready <- url: // the first is the front's; the others are doors on it
				default:
				}
			}
		}
	})
	return s
}

// URL returns the address of its HTTP front.
func (s *Server) URL() string { return s.url }

// Pid returns its process ID.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Log returns what it has logged.
func (s *Server) Log() string { return s.log.String() }

// Kill ends it with SIGKILL, if it still runs.
func (s *Server) Kill() { _ = s.end(syscall.SIGKILL) }

// Stop shuts it down gracefully.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("the server ended badly: %v\n%s", err, s.log.String())
	}
}

// Await waits until it has ended by itself.
func (s *Server) Await(t *testing.T) {
	t.Helper()
	if err := s.end(0); err != nil {
		t.Errorf("the server ended badly: %v\n%s", err, s.log.String())
	}
}

func (s *Server) end(how syscall.Signal) (err error) {
	s.once.Do(func() {
		_ = s.cmd.Process.Signal(how) // 0 does nothing
		s.work.Wait()
		err = s.cmd.Wait()
		s.web.CloseIdleConnections()
	})
	return err
}

// An Outcome is a caller's answer to a call.
type Outcome struct {
	OK     bool           `json:"ok"`
	Output map[string]any `json:"output"`
	Error  struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// Call calls a tool, with further headers by name and value. An error means that the caller got no answer.
func (s *Server) Call(ctx context.Context, name, args string, headers ...string) (o Outcome, err error) {
	body, err := s.Raw(ctx, name, args, headers...)
	if err != nil {
		return o, err
	}
	return o, strictjson.Unmarshal([]byte(body), &o)
}

// Raw is Call, but returns the answer undecoded.
func (s *Server) Raw(ctx context.Context, name, args string, headers ...string) (string, error) {
	return s.Ask(ctx, http.MethodPost, "/v1/tools/"+name+"/call", args, headers...)
}

// Ask sends a request with the owner's token, and returns the body of the answer.
func (s *Server) Ask(ctx context.Context, method, path, text string, headers ...string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(text))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+Token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.web.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
