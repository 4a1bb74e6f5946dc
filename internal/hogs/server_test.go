package hogs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	hang  = time.Minute // the bound of waits that only guard against a hang
	token = "hogs-token-0123456789abcdef"
)

// A server is a `toolpost serve` of its own program.
type server struct {
	cmd  *exec.Cmd
	url  string
	web  http.Client
	work sync.WaitGroup // reads its output
	log  journal
}

// build builds the program, as people have it.
func build(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	bin := filepath.Join(dir, "toolpost")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "toolpost/cmd/toolpost")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// serve starts a server over a folder, and waits until it takes calls.
func serve(t *testing.T, p place) *server {
	t.Helper()
	s := &server{cmd: exec.Command(p.bin, "serve", "--listen", "127.0.0.1:0")}
	s.cmd.Dir, s.cmd.Stderr = p.dir, &s.log
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "TMPDIR=" + p.temp(), "TOOLPOST_TOKEN=" + token}
	out, err := s.cmd.StdoutPipe()
	must(t, err)
	must(t, s.cmd.Start())
	ready := make(chan string, 1)
	s.work.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(&s.log, lines.Text())
			if url, ok := strings.CutPrefix(lines.Text(), "serving on "); ok {
				ready <- url
			}
		}
	})
	t.Cleanup(func() { s.kill(); s.web.CloseIdleConnections() })
	s.web.Transport = &http.Transport{}
	select {
	case s.url = <-ready:
	case <-time.After(hang):
		t.Fatalf("the server does not start: %s", s.log.String())
	}
	return s
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// kill ends the server with -9, if it is still there.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	s.work.Wait()
	_ = s.cmd.Wait()
}

// stop lets the server end in good order.
func (s *server) stop(t *testing.T) {
	t.Helper()
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.work.Wait()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended badly: %v\n%s", err, s.log.String())
	}
}

// An outcome is what a caller hears of a call.
type outcome struct {
	OK     bool           `json:"ok"`
	Output map[string]any `json:"output"`
	Error  struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// call calls a tool.
func (s *server) call(ctx context.Context, name, args string) (o outcome, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/tools/"+name+"/call", strings.NewReader(args))
	if err != nil {
		return o, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.web.Do(req)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	return o, json.NewDecoder(resp.Body).Decode(&o)
}

// memory gives a number of /proc/PID/status, in bytes: VmRSS is what it has, VmHWM the most that it ever had.
func (s *server) memory(t *testing.T, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid()))
	must(t, err)
	_, rest, _ := strings.Cut(string(status), name+":")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	must(t, err)
	return kib << 10
}

// A journal takes what several write.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until cond gives no error.
func eventually(t *testing.T, cond func() error) {
	t.Helper()
	err := errors.New("not tried")
	for deadline := time.Now().Add(hang); err != nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		err = cond()
	}
	if err != nil {
		t.Error(err)
	}
}
