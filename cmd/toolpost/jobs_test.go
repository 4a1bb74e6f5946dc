package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	jobs "toolpost/engine/job"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

const jobsConfig = `sources:
  - {name: once, protocol: narratoria, command: [sh, append.sh], effects: {writes: true}, walls: {write: [out]}}
  - {name: again, protocol: narratoria, command: [sh, append.sh], effects: {writes: true, idempotent: true},
     walls: {write: [out]}}
store: {}
limits: {timeout: 20s}
`

// appendScript appends its request to a file, in one write, and ends.
const appendScript = `read -r request
echo "$request" >> out/log.txt
echo '{"version":"0","type":"done","ok":true}'
`

// A jobsYard is a folder whose servers run jobs, one after the other.
type jobsYard struct {
	t    *testing.T
	dir  string
	node *node.Node  // starts jobs, and runs none
	jobs interface { // those of the store
		All(ctx context.Context, state string, most int) ([]jobs.Job, error)
		Find(ctx context.Context, caller, id string, after int64, most int) (jobs.Job, [][]byte, error)
	}
	ids map[string]string // job: its tool and number, as in the log
}

func newJobsYard(t *testing.T) *jobsYard {
	t.Helper()
	y := &jobsYard{t: t, dir: t.TempDir(), ids: map[string]string{}}
	for name, text := range map[string]string{"toolpost.yaml": jobsConfig, "append.sh": appendScript, "out/log.txt": ""} {
		path := filepath.Join(y.dir, name)
		kit.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		kit.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	cfg, err := config.Load(filepath.Join(y.dir, "toolpost.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if y.node, err = node.Open(t.Context(), cfg, node.Options{}); err != nil {
		t.Fatal(err)
	}
	db, _, err := storage.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	y.jobs = db.Jobs()
	t.Cleanup(func() {
		kit.Check(t, y.node.Close(context.Background()))
		kit.Check(t, db.Close())
	})
	return y
}

// start starts a job.
func (y *jobsYard) start(name string) {
	y.t.Helper()
	mark := fmt.Sprintf("%s-%04d", name, len(y.ids))
	r, err := y.node.Handler().Invoke(y.t.Context(), &tool.Call{
		Tool: startJob, Args: raw(map[string]any{"tool": name, "arguments": map[string]string{"mark": mark}}), Caller: me(),
	}, tool.Discard)
	if err != nil {
		y.t.Fatal(err)
	}
	var j job
	kit.OK(y.t, strictjson.Unmarshal(r.Output, &j))
	y.ids[j.ID] = mark
}

// serve starts a server, and returns a function that kills it.
func (y *jobsYard) serve() (kill func()) {
	y.t.Helper()
	cmd := exec.Command(os.Args[0], "serve", "--listen", "127.0.0.1:0")
	cmd.Dir = y.dir
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 10*time.Second
	kit.OK(y.t, cmd.Start())
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if y.t.Failed() {
			y.t.Log(out.String())
		}
	}
}

// effects counts the entries of the log, by mark.
func (y *jobsYard) effects() (total int, each map[string]int) {
	b := kit.Must(os.ReadFile(filepath.Join(y.dir, "out", "log.txt")))(y.t)
	each = map[string]int{}
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(line, `"mark":"`)
		mark, _, _ := strings.Cut(rest, `"`)
		each[mark]++
		total++
	}
	return total, each
}

// open counts the jobs that have not ended.
func (y *jobsYard) open() int {
	n := 0
	for _, state := range []string{"queued", "running"} {
		some := kit.Must(y.jobs.All(y.t.Context(), state, 0))(y.t)
		n += len(some)
	}
	return n
}

func (y *jobsYard) until(what string, happened func() bool) {
	y.t.Helper()
	kit.Until(y.t, func() error {
		if !happened() {
			return fmt.Errorf("it did not happen that %s: %d jobs have not ended", what, y.open())
		}
		return nil
	})
}

// check compares what the jobs report with the log.
func (y *jobsYard) check() {
	y.t.Helper()
	_, ran := y.effects()
	states := map[string]int{}
	for id, mark := range y.ids {
		x, _, err := y.jobs.Find(y.t.Context(), me().ID, id, 0, 0)
		if err != nil {
			y.t.Fatalf("job %s was acknowledged, and is not there: %v", mark, err)
		}
		states[x.State]++
		once := strings.HasPrefix(mark, "once")
		switch times := ran[mark]; {
		case x.State != "done" && x.State != "lost" || x.Outcome == nil:
			y.t.Errorf("job %s is %s: %s", mark, x.State, x.Outcome)
		case once && (times > 1 || x.Attempts > 1):
			y.t.Errorf("job %s may not run twice, and ran %d times in %d attempts", mark, times, x.Attempts)
		case x.State == "done" && times == 0:
			y.t.Errorf("job %s succeeded and did nothing", mark)
		case !once && x.State == "lost" && x.Attempts < 3:
			y.t.Errorf("job %s was lost after %d attempts", mark, x.Attempts)
		}
	}
	y.t.Logf("%d jobs: %v", len(y.ids), states)
}

// However often the server is killed, no job is lost silently, none is stuck, and none that must not run twice does.
func TestJobsSurviveTheKillOfTheirServer(t *testing.T) {
	tooltest.NoLeaks(t)
	y := newJobsYard(t)
	for range rounds.Of(3, 50) {
		for range 6 {
			y.start("once")
			y.start("again")
		}
		before, _ := y.effects()
		target := before + 1 + rand.IntN(8)
		kill := y.serve()
		y.until("the server runs jobs", func() bool { n, _ := y.effects(); return n >= target || y.open() == 0 })
		kill()
	}
	kill := y.serve()
	defer kill()
	y.until("all jobs end", func() bool { return y.open() == 0 })
	y.check()
}

// If two servers share a store, each job is run by one.
func TestTwoServersRunEachJobOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	y := newJobsYard(t)
	for range 12 {
		y.start("once")
		y.start("again")
	}
	first, second := y.serve(), y.serve()
	y.until("all jobs end", func() bool { return y.open() == 0 })
	first()
	second()
	if total, each := y.effects(); total != 24 || len(each) != 24 {
		t.Errorf("24 jobs ran %d times", total)
	}
	y.check()
}
