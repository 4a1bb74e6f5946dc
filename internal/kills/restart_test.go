package kills

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/audit"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/internal/served"
	"toolpost/node/storage"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const restartYAML = `
sources:
- {name: files, protocol: builtin, roots: [{path: data, write: true}]}
- {name: mark, protocol: narratoria, command: [sh, mark.sh], walls: {write: [out]}}
doors: {http: {}}
store: {url: %q}
callers: {owner: false, list: {tester: {tools: "*", tokens: [%x]}}}
`

// quick records its input, and changes the state of its session.
const quick = `read -r r; echo "$r" | grep -o '"id": *"[^"]*"' | head -n 1 >> out/marks
echo '{"version":"0","type":"state_patch","patch":{"ran":true}}'; echo '{"version":"0","type":"done","ok":true}'`

// heard collects the answers to callers while the database restarted.
type heard struct {
	mu      sync.Mutex
	ok      map[string]bool   // calls that were answered as having run
	all     map[string]bool   // calls that were made
	jobs    map[string]string // jobs that were accepted -> their marks
	waited  time.Duration     // the longest
	refused int
}

// PostgreSQL restarts under a load of calls and jobs: accepted jobs run once and do not fail, nothing is recorded
// twice, and no caller waits long for an answer.
func TestARestartOfPostgreSQLUnderLoad(t *testing.T) {
	tooltest.NoLeaks(t)
	database := pg.New(t)
	dir := newFolder(t)
	text := fmt.Appendf(nil, restartYAML, database.Database(t), sha256.Sum256([]byte(served.Token)))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), text, 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "mark.sh"), []byte(quick), 0o600))
	s := served.Start(t, served.Build(t), dir)
	h := &heard{ok: map[string]bool{}, all: map[string]bool{}, jobs: map[string]string{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	for w := range 3 {
		load.Go(func() { h.write(ctx, t, s, w) })
	}
	load.Go(func() { h.start(ctx, t, s) })
	for n, how := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGQUIT} {
		h.goOn(t)
		database.Stop(how)
		if n == 1 { // for longer than a write waits
			h.refuses(t)
		}
		database.Start(t)
	}
	h.goOn(t)
	stop()
	load.Wait()
	h.check(t, dir)
	t.Logf("%d of %d calls ran, %d were refused, %d jobs; the longest wait was %v", len(h.ok), len(h.all), h.refused,
		len(h.jobs), h.waited)
}

// goOn waits until calls and jobs are accepted again.
func (h *heard) goOn(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	ok, jobs := len(h.ok), len(h.jobs)
	h.mu.Unlock()
	kit.Eventually(t, "calls and jobs are taken again", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.ok) >= ok+5 && len(h.jobs) >= jobs+3
	})
}

// refuses waits until calls are refused, because the store has been away for too long.
func (h *heard) refuses(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "calls are refused", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.refused > 0
	})
}

// call makes a call, and records how long its caller waited.
func (h *heard) call(t *testing.T, s *served.Server, name, args string, headers ...string) (o served.Outcome, ok bool) {
	begun := time.Now()
	o, err := s.Call(context.WithoutCancel(t.Context()), name, args, headers...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waited = max(h.waited, time.Since(begun))
	switch {
	case err != nil:
		t.Errorf("%s was told nothing: %v", name, err)
	case !o.OK && o.Error.Code != string(tool.CodeUnavailable):
		t.Errorf("%s: %+v", name, o.Error)
	case !o.OK:
		h.refused++
	}
	return o, err == nil && o.OK
}

func (h *heard) write(ctx context.Context, t *testing.T, s *served.Server, w int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := tool.NewID()
		name, args := "writeFile", fmt.Sprintf(`{"path":"f%d","content":"%d"}`, w, n)
		if n%3 == 1 {
			name, args = "listJobs", `{}`
		}
		h.mu.Lock()
		h.all[id] = true
		h.mu.Unlock()
		if _, ok := h.call(t, s, name, args, "Toolpost-Call", id); ok {
			h.mu.Lock()
			h.ok[id] = true
			h.mu.Unlock()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (h *heard) start(ctx context.Context, t *testing.T, s *served.Server) {
	for ctx.Err() == nil {
		id := tool.NewID()
		o, ok := h.call(t, s, "startJob", fmt.Sprintf(`{"tool":"mark","session":"s","arguments":{"id":%q}}`, id))
		if job, _ := o.Output["job"].(string); ok && job != "" {
			h.mu.Lock()
			h.jobs[job] = id
			h.mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (h *heard) check(t *testing.T, dir string) {
	t.Helper()
	cfg := kit.Must(config.Load(filepath.Join(dir, "toolpost.yaml")))(t)
	db, _, err := storage.Open(cfg)
	kit.OK(t, err)
	defer db.Close()
	m := newModel()
	m.jobs = h.jobs
	ended, marks := m.waitForJobs(t, db), marksOf(t, dir)
	for job, id := range h.jobs {
		if ended[job] != "done" || marks[id] != 1 {
			x, _, err := db.Jobs().Find(t.Context(), "tester", job, 0, 0)
			t.Errorf("a job that was accepted is %s, and ran %d times: %s, %v", ended[job], marks[id], x.Outcome, err)
		}
	}
	rows := map[string]int{}
	kit.Eventually(t, "what waited in memory is recorded", func() bool {
		clear(rows)
		kit.OK(t, db.Audit().Log(t.Context(), audit.Filter{}, false, func(r *tool.Record) error {
			rows[r.Call]++
			return nil
		}))
		for id := range h.all {
			if rows[id] == 0 {
				return false
			}
		}
		return true
	})
	for id, n := range rows {
		if n > 1 && id != "" {
			t.Errorf("call %s has %d rows", id, n)
		}
	}
	report, err := db.Audit().Verify(t.Context())
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("the log does not verify: %v, %+v", err, report)
	}
	// A call waits five seconds for an unavailable store, and a call that has run waits ten seconds longer. Starting its
	// program, and the database, takes a busy machine as long again.
	if h.waited > served.Hang {
		t.Errorf("a caller waited %v for a word", h.waited)
	}
}
