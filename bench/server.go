package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"toolpost/bench/attempt"
	"toolpost/node"
)

const benchToken = "only-for-this-bench-0123456789abcdef"

// A served is a server that runs as a separate process, as servers do outside of a benchmark, so that its cost is not
// mixed with that of its client.
type served struct {
	pid  int
	addr string
}

// toolpostServe writes a folder with the files, including toolpost.yaml, and starts the program to serve it.
func (l *lab) toolpostServe(ctx context.Context, dir string, files map[string]string) *served {
	writeFiles(dir, files)
	return l.process(ctx, dir, attempt.Must(filepath.Abs(l.toolpost)), "serve",
		"--config", filepath.Join(dir, "toolpost.yaml"), "--listen", "127.0.0.1:0")
}

// benchServe starts another bench in a role: see role.
func (l *lab) benchServe(ctx context.Context, dir string, words ...string) *served {
	attempt.Check(os.MkdirAll(dir, 0o755))
	return l.process(ctx, dir, append([]string{attempt.Must(os.Executable())}, words...)...)
}

// process starts a server, which prints its address on stdout. At the end of the measurement it is told to exit.
func (l *lab) process(ctx context.Context, dir string, argv ...string) *served {
	ctx, cancel := context.WithCancel(ctx)
	var errs bytes.Buffer
	out := &address{found: make(chan string, 1)}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, &errs
	cmd.Env = append(os.Environ(), "TOOLPOST_TOKEN="+benchToken)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	attempt.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case addr := <-out.found:
		l.atEnd(func() error {
			cancel()
			<-ended
			if bytes.Contains(errs.Bytes(), []byte("level=ERROR")) { // it did not do what was measured
				return fmt.Errorf("%v had errors:\n%.2000s", argv, errs.Bytes())
			}
			return nil
		})
		return &served{cmd.Process.Pid, addr}
	case err := <-ended:
		cancel()
		attempt.Check(fmt.Errorf("%v did not serve: %w\n%s", argv, err, errs.Bytes()))
	}
	return nil
}

// An address finds the address in a server's output.
type address struct {
	found chan string
	text  []byte
	done  bool
}

var _ io.Writer = (*address)(nil)

// Write implements io.Writer.
func (a *address) Write(b []byte) (int, error) {
	if a.done {
		return len(b), nil
	}
	a.text = append(a.text, b...)
	if m := regexp.MustCompile(`serving on http://([^/\s]+)\s`).FindSubmatch(a.text); m != nil {
		a.done = true
		a.found <- string(m[1])
	}
	return len(b), nil
}

// memory returns a number of /proc/PID/status, in bytes: VmRSS, or VmHWM, its maximum so far.
func (s *served) memory(name string) int64 {
	status := attempt.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid)))
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		attempt.Check(fmt.Errorf("the kernel says nothing about %s of process %d", name, s.pid))
	}
	return attempt.Must(strconv.ParseInt(string(m[1]), 10, 64)) << 10
}

// tools counts the tools that a server lists, by source.
func (s *served) tools(ctx context.Context) map[string]int {
	req := attempt.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/v1/tools", nil))
	req.Header.Set("Authorization", "Bearer "+benchToken)
	resp := attempt.Must(http.DefaultClient.Do(req))
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		attempt.Check(fmt.Errorf("the tools could not be listed: %s", resp.Status))
	}
	var list struct {
		Tools []struct {
			Source string `json:"source"`
		} `json:"tools"`
	}
	attempt.Check(json.NewDecoder(resp.Body).Decode(&list))
	count := map[string]int{}
	for _, t := range list.Tools {
		count[t.Source]++
	}
	return count
}

// serveEcho serves the tools of echo, which Toolpost itself does not have, in this process.
func serveEcho(ctx context.Context, l *lab, dir string) error {
	text := attempt.Must(os.ReadFile(filepath.Join(dir, "toolpost.yaml")))
	_, url := l.serveNode(ctx, dir, string(text))
	fmt.Println("serving on", url)
	<-ctx.Done()
	return nil
}

// serveNode opens Toolpost with a config in this process, and serves HTTP.
func (l *lab) serveNode(ctx context.Context, dir, text string) (n *node.Node, url string) {
	ready := make(chan node.Listening, 1)
	n = l.openNode(ctx, dir, map[string]string{"toolpost.yaml": text}, node.Options{
		Listen: "127.0.0.1:0", Token: benchToken, Ready: func(at node.Listening) {
			if at.Door == "http" { // every door reports that it is open
				ready <- at
			}
		},
	})
	return n, serve(ctx, l, ready, n.Serve).URL
}

// serve opens a door and waits until it reports that it is open. The door closes at the end of the measurement.
func serve[T any](ctx context.Context, l *lab, ready <-chan T, door func(context.Context) error) (said T) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- door(ctx) }()
	select {
	case said = <-ready:
		l.atEnd(func() error { cancel(); return <-ended })
	case err := <-ended:
		cancel()
		attempt.Check(fmt.Errorf("the door did not open: %w", err))
	}
	return said
}

// serveHTTP serves HTTP in this process until the end of the measurement.
func (l *lab) serveHTTP(h http.Handler) *httptest.Server {
	srv := httptest.NewServer(h)
	l.atEnd(func() error { srv.Close(); return nil })
	return srv
}

// decode reads the body of a request the obvious way. It refuses one that is not JSON.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

// serveBare answers requests over HTTP and prints its address.
func serveBare(ctx context.Context, answer http.HandlerFunc) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	fmt.Printf("serving on http://%s\n", listener.Addr())
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
