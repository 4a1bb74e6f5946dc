package kills

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	hang  = time.Minute // the bound of waits that only guard against a hang
	token = "kills-token-0123456789abcdef"
)

// A server is a `toolpost serve` of its own program.
type server struct {
	cmd  *exec.Cmd
	url  string
	web  http.Client
	work sync.WaitGroup // reads its output
	once sync.Once
}

// build builds the program, as people have it.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "toolpost")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "toolpost/cmd/toolpost")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// serve starts a server over a folder, and waits until it takes calls.
func serve(t *testing.T, bin, dir string) *server {
	t.Helper()
	s := &server{cmd: exec.Command(bin, "serve", "--listen", "127.0.0.1:0")}
	s.cmd.Dir, s.cmd.Stderr = dir, t.Output()
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	out, err := s.cmd.StdoutPipe()
	must(t, err)
	must(t, s.cmd.Start())
	s.web = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: hang}
	ready := make(chan string, 1)
	s.work.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if url, ok := strings.CutPrefix(lines.Text(), "serving on "); ok {
				ready <- url
			}
		}
	})
	t.Cleanup(s.kill)
	select {
	case s.url = <-ready:
	case <-time.After(hang):
		t.Fatal("the server does not start")
	}
	return s
}

// kill ends the server with -9.
func (s *server) kill() {
	s.once.Do(func() {
		_ = s.cmd.Process.Kill()
		s.work.Wait()
		_ = s.cmd.Wait()
		s.web.CloseIdleConnections()
	})
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

// call calls a tool. An error means that the caller was told nothing.
func (s *server) call(ctx context.Context, name, args string, headers ...string) (o outcome, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/tools/"+name+"/call", strings.NewReader(args))
	if err != nil {
		return o, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.web.Do(req)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	return o, json.NewDecoder(resp.Body).Decode(&o)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
