package kills

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/audit"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/internal/served"
	"toolpost/node/storage"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

const yaml = `
sources:
- {name: files, protocol: builtin, roots: [{path: data, write: true}]}
- {name: mark, protocol: narratoria, command: [sh, mark.sh], walls: {write: [out]}}
- {name: risky, protocol: narratoria, command: [sh, mark.sh], tier: 3, walls: {write: [out]}}
limits: {lease_tier: 3}
doors: {http: {}}
callers: {owner: false, roles: {issuer: {}}, list: {tester: {roles: [issuer], tokens: [%x]}}}
`

// Each run of the tool appends a line to a file, which the kernel does atomically.
const mark = `read -r r; echo "$r" | grep -o '"id": *"[^"]*"' | head -n 1 >> out/marks; echo '{"version":"0","type":"done","ok":true}'`

// A model is what the callers of a server were told. A call without an answer may or may not have happened.
type model struct {
	mu    sync.Mutex
	calls map[string]bool   // ids of calls that were acknowledged
	used  map[string]int    // leases: how many calls with each were answered as having run
	tried map[string]int64  // sessions: the last number that was sent
	told  map[string]int64  // and the last that was acknowledged
	jobs  map[string]string // jobs that were accepted -> their marks
}

func newModel() *model {
	return &model{calls: map[string]bool{}, used: map[string]int{}, tried: map[string]int64{}, told: map[string]int64{}, jobs: map[string]string{}}
}

func (m *model) note(change func(*model)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func TestAcknowledgedWritesSurviveAKill(t *testing.T) {
	tooltest.NoLeaks(t)
	often := rounds.Of(12, 500)
	dir := newFolder(t)
	bin := served.Build(t)
	m := newModel()
	for round := range often {
		s := served.Start(t, bin, dir)
		ctx, stop := context.WithCancel(t.Context())
		var load sync.WaitGroup
		for w := range 3 {
			load.Go(func() { m.write(ctx, t, s, w) })
			load.Go(func() { m.patch(ctx, t, s, w) })
		}
		load.Go(func() { m.lease(ctx, t, s) })
		load.Go(func() { m.start(ctx, t, s) })
		m.struck(rand.IntN(20), rand.IntN(2), 1-round%2) // the point is how many things were acknowledged by then
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
		s.Kill()
		stop()
		load.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	s := served.Start(t, bin, dir)
	defer s.Kill()
	m.check(t, dir)
	t.Logf("%d kills: %d calls, %d leases, %d jobs acknowledged", often, len(m.calls), len(m.used), len(m.jobs))
}

// struck waits until a number of further things, jobs and runs of a tool were acknowledged: a program takes longer to
// start than twenty acknowledgements. How long that takes depends on the machine; it gives up after a minute.
func (m *model) struck(things, jobs, runs int) {
	count := func() (things, jobs, runs int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, n := range m.used {
			runs += n
		}
		return len(m.calls) + len(m.used), len(m.jobs), runs
	}
	t0, j0, r0 := count()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if t, j, r := count(); t >= t0+things && j >= j0+jobs && r >= r0+runs {
			return
		}
	}
}

func newFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"data", "out"} {
		kit.OK(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), fmt.Appendf(nil, yaml, sha256.Sum256([]byte(served.Token))), 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "mark.sh"), []byte(mark), 0o600))
	return dir
}

// write makes calls that change something, and calls that do not.
func (m *model) write(ctx context.Context, t *testing.T, s *served.Server, w int) {
	for n := 0; ctx.Err() == nil; n++ {
		name, args := "writeFile", fmt.Sprintf(`{"path":"f%d","content":"%d"}`, w, n)
		if n%2 == 1 {
			name, args = "readFile", fmt.Sprintf(`{"path":"f%d"}`, w)
		}
		id := tool.NewID()
		switch o, err := s.Call(ctx, name, args, "Toolpost-Call", id); {
		case err != nil: // the server is dead
			return
		case !o.OK:
			t.Errorf("%s: %+v", name, o.Error)
			return
		}
		m.note(func(m *model) { m.calls[id] = true })
	}
}

// patch counts up in its own session.
func (m *model) patch(ctx context.Context, t *testing.T, s *served.Server, w int) {
	session := fmt.Sprint("s", w)
	m.mu.Lock()
	n := m.tried[session]
	m.mu.Unlock()
	for ctx.Err() == nil {
		n++
		m.note(func(m *model) { m.tried[session] = n })
		id := tool.NewID()
		o, err := s.Call(ctx, "state.patch", fmt.Sprintf(`{"session":%q,"patch":{"n":%d}}`, session, n), "Toolpost-Call", id)
		if err != nil {
			return
		}
		if !o.OK {
			t.Errorf("state.patch: %+v", o.Error)
			return
		}
		m.note(func(m *model) { m.told[session], m.calls[id] = n, true })
	}
}

// lease uses each lease in two concurrent calls.
func (m *model) lease(ctx context.Context, t *testing.T, s *served.Server) {
	for ctx.Err() == nil {
		o, err := s.Call(ctx, "lease.issue", `{"tool":"risky","ttl_ms":300000}`)
		if err != nil {
			return
		}
		lease, _ := o.Output["token"].(string)
		if !o.OK || lease == "" {
			t.Errorf("lease.issue: %+v", o)
			return
		}
		m.note(func(m *model) { m.used[lease] = 0 })
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { m.use(ctx, t, s, lease) })
		}
		both.Wait()
	}
}

func (m *model) use(ctx context.Context, t *testing.T, s *served.Server, lease string) {
	id := tool.NewID()
	o, err := s.Call(ctx, "risky", fmt.Sprintf(`{"id":%q}`, lease), "Toolpost-Lease", lease, "Toolpost-Call", id)
	switch {
	case err != nil:
	case o.OK:
		m.note(func(m *model) { m.used[lease]++; m.calls[id] = true })
	case o.Error.Code == string(tool.CodeLeaseRejected):
		m.note(func(m *model) { m.calls[id] = true })
	default:
		t.Errorf("risky: %+v", o.Error)
	}
}

// start starts jobs.
func (m *model) start(ctx context.Context, t *testing.T, s *served.Server) {
	for ctx.Err() == nil {
		id := tool.NewID()
		o, err := s.Call(ctx, "startJob", fmt.Sprintf(`{"tool":"mark","arguments":{"id":%q}}`, id))
		if err != nil {
			return
		}
		job, _ := o.Output["job"].(string)
		if !o.OK || job == "" {
			t.Errorf("startJob: %+v", o)
			return
		}
		m.note(func(m *model) { m.jobs[job] = id })
		time.Sleep(10 * time.Millisecond) // leave room for the others
	}
}

// check compares the stored state with what was acknowledged.
func (m *model) check(t *testing.T, dir string) {
	t.Helper()
	cfg := kit.Must(config.Load(filepath.Join(dir, "toolpost.yaml")))(t)
	db, _, err := storage.Open(cfg)
	kit.OK(t, err)
	defer db.Close()
	m.checkLog(t, db)
	m.checkSessions(t, db)
	ended := m.waitForJobs(t, db)
	marks := marksOf(t, dir)
	for job, id := range m.jobs {
		if n := marks[id]; n > 1 || ended[job] == "done" && n != 1 {
			t.Errorf("job %s is %s, and ran %d times", job, ended[job], n)
		}
	}
	for lease, told := range m.used {
		if n := marks[lease]; told > 1 || n > 1 || told > n {
			t.Errorf("a lease: %d calls were told that they ran, and %d ran", told, n)
		}
	}
	if len(m.calls) < 100 || len(m.jobs) < 5 || len(m.used) < 5 {
		t.Errorf("only %d calls, %d jobs and %d leases: there was no load", len(m.calls), len(m.jobs), len(m.used))
	}
}

func (m *model) checkLog(t *testing.T, db *store.DB) {
	t.Helper()
	rows := map[string]int{}
	kit.OK(t, db.Audit().Log(t.Context(), audit.Filter{}, false, func(r *tool.Record) error {
		rows[r.Call]++
		return nil
	}))
	for id := range m.calls {
		kit.Equal(t, rows[id], 1, "rows of an acknowledged call")
	}
	report, err := db.Audit().Verify(t.Context())
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("the log does not verify: %v, %+v", err, report)
	}
}

func (m *model) checkSessions(t *testing.T, db *store.DB) {
	t.Helper()
	for session, tried := range m.tried {
		st := kit.Must(db.Sessions().Get(t.Context(), "tester", session))(t)
		told, ok := m.told[session], false
		for n := told; n <= tried; n++ {
			ok = ok || strings.ReplaceAll(string(st.State), " ", "") == fmt.Sprintf(`{"n":%d}`, n)
		}
		if !ok {
			t.Errorf("session %s is %s; %d was acknowledged, and %d was the last that was asked for", session, st.State, told, tried)
		}
	}
}

// waitForJobs returns how each job ended, once all have.
func (m *model) waitForJobs(t *testing.T, db *store.DB) map[string]string {
	t.Helper()
	states := map[string]string{}
	kit.Until(t, func() error {
		open := 0
		all := kit.Must(db.Jobs().All(t.Context(), "", 0))(t)
		for _, j := range all {
			if states[j.ID] = j.State; j.State == "queued" || j.State == "running" {
				open++
			}
		}
		for job := range m.jobs {
			if states[job] == "" {
				t.Fatalf("job %s is lost", job)
			}
		}
		if open > 0 {
			return fmt.Errorf("%d jobs of %d are stuck", open, len(all))
		}
		return nil
	})
	return states
}

// marksOf counts the runs of the tool, by id.
func marksOf(t *testing.T, dir string) map[string]int {
	t.Helper()
	text := kit.Must(os.ReadFile(filepath.Join(dir, "out", "marks")))(t)
	marks := map[string]int{}
	for line := range strings.Lines(string(text)) {
		_, id, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), `"`), `:`)
		marks[strings.Trim(id, ` "`)]++
	}
	return marks
}
