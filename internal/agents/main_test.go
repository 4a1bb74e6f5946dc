package agents

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// patience bounds how long an agent may run: it only guards against a hang.
const patience = 5 * time.Minute

// long reports whether every agent is to be tried in every way.
func long() bool { return os.Getenv("TOOLPOST_LONG") != "" }

// program returns the path of a program that `.ci/setup agents` has installed.
func program(t *testing.T, name string) string {
	t.Helper()
	lock := kit.Must(os.ReadFile(filepath.Join("testdata", "js", "package-lock.json")))(t)
	cache := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(os.Getenv("HOME"), ".cache"))
	sum := sha256.Sum256(lock)
	path := filepath.Join(cache, "toolpost", "agents-"+hex.EncodeToString(sum[:6]), "node_modules", ".bin", name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed; run `.ci/setup agents`: %v", name, err)
		}
		t.Skipf("%s is not installed; `.ci/setup agents` installs it", name)
	}
	return path
}

// A room is the environment of one agent: its home, its folder, and its variables.
type room struct {
	t          *testing.T
	home, work string
	env        []string
	outside    *outside
	mcp        *mcpServer // if it is given tools
}

func newRoom(t *testing.T) *room {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	r := &room{t: t, home: filepath.Join(dir, "home"), work: filepath.Join(dir, "work"), outside: newOutside(t)}
	for _, dir := range []string{r.home, r.work} {
		kit.OK(t, os.Mkdir(dir, 0o700))
	}
	r.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.home, "XDG_CONFIG_HOME=" + r.home + "/config", "XDG_CACHE_HOME=" + r.home + "/cache",
		"XDG_DATA_HOME=" + r.home + "/data", "XDG_STATE_HOME=" + r.home + "/state", "TMPDIR=" + t.TempDir(), "TERM=dumb", "LANG=C.UTF-8",
		"HTTP_PROXY=" + r.outside.url, "HTTPS_PROXY=" + r.outside.url, "http_proxy=" + r.outside.url, "https_proxy=" + r.outside.url,
		"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost",
	}
	return r
}

// write writes a file in the home.
func (r *room) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.home, name)
	kit.Write(r.t, path, text)
}

// run runs an agent until it and all its processes have ended, and returns its output.
func (r *room) run(argv ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.work, r.env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	group := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = group, 5*time.Second
	err := cmd.Run()
	if cmd.Process != nil {
		_ = group() // it is gone, unless the agent left something behind
	}
	r.clear()
	if asked := r.outside.list(); len(asked) > 0 {
		r.t.Logf("it asked for the network: %s", strings.Join(asked, ", "))
	}
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", filepath.Base(argv[0]), err, out.String())
	}
	return out.String()
}

// clear waits until the processes that an agent started in their own groups have ended too.
func (r *room) clear() {
	r.t.Helper()
	end := time.Now().Add(served.Hang)
	for {
		left := r.processes()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			r.t.Errorf("the agent left programs behind: %v", left)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processes returns the processes with the home of the room.
func (r *room) processes() (all []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range found {
		env, _ := os.ReadFile(path) // the process may be gone
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && bytes.Contains(env, []byte("HOME="+r.home+"\x00")) {
			all = append(all, pid)
		}
	}
	return all
}

// An outside is the rest of the network: a proxy that lets nothing through and remembers the requests.
type outside struct {
	url   string
	mu    sync.Mutex
	asked []string
}

func newOutside(t *testing.T) *outside {
	o := &outside{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.asked = append(o.asked, r.Host)
		o.mu.Unlock()
		http.Error(w, "there is no network in this test", http.StatusForbidden)
	}))
	t.Cleanup(srv.Close)
	o.url = srv.URL
	return o
}

func (o *outside) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

// A post is a Toolpost server in a folder with a config.
type post struct {
	*served.Server
	t        *testing.T
	bin, dir string
}

// newPost writes a config, with files beside it by name and text, and serves it.
func newPost(t *testing.T, bin, config string, files map[string]string) *post {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	p := &post{t: t, bin: bin, dir: dir}
	for name, text := range files {
		p.write(name, text)
	}
	p.write("toolpost.yaml", config)
	p.Server = served.Start(t, bin, dir)
	return p
}

func (p *post) write(name, text string) {
	p.t.Helper()
	kit.OK(p.t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o700))
}

// toolpost runs a command of the program there, with the owner's token for requests to the server.
func (p *post) toolpost(words ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.bin, words...)
	cmd.Dir, cmd.Env = p.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "TOOLPOST_TOKEN=" + served.Token}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		p.t.Errorf("toolpost %s: %v\n%s", strings.Join(words, " "), err, errs.String())
	}
	return string(out)
}
