package kills

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/audit"
	"toolpost/engine/job"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/internal/served"
	"toolpost/node/storage"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const apartYAML = `
sources:
- {name: slow, protocol: narratoria, command: [sh, slow.sh], timeout: 10m, walls: {write: [out]}}
doors: {http: {}}
store: {url: %q}
callers: {owner: false, list: {tester: {tools: "*", tokens: [%x]}}}
`

// slow reports that it has begun, and takes long.
const slow = `read -r r; echo begun >> out/marks; sleep 600; echo '{"version":"0","type":"done","ok":true}'`

// Two servers share a store and do not see each other's processes, as in two containers: neither treats the calls and
// jobs of the other as lost, until it is killed.
func TestServersInOtherPIDNamespacesAreNotTakenForDead(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(*testing.T) string { return "sqlite:shared.db" },
		"postgres": func(t *testing.T) string { return pg.New(t).Database(t) },
	} {
		t.Run(name, func(t *testing.T) { serversApart(t, url(t)) })
	}
}

func serversApart(t *testing.T, url string) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	kit.OK(t, os.Mkdir(filepath.Join(dir, "out"), 0o755))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), fmt.Appendf(nil, apartYAML, url, sha256.Sum256([]byte(served.Token))), 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "slow.sh"), []byte(slow), 0o600))
	bin := served.Build(t)
	words := append(otherPids(t), bin)
	first := served.StartBy(t, words, dir)
	ctx, stop := context.WithCancel(t.Context())
	var call sync.WaitGroup
	defer call.Wait()
	defer stop()
	call.Go(func() { _, _ = first.Call(ctx, "slow", `{}`) })
	o := kit.Must(first.Call(ctx, "startJob", `{"tool":"slow"}`))(t)
	job, _ := o.Output["job"].(string)
	kit.Eventually(t, "both run", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "out", "marks"))
		return strings.Count(string(text), "begun") == 2
	})
	second := served.StartBy(t, words, dir)
	cfg := kit.Must(config.Load(filepath.Join(dir, "toolpost.yaml")))(t)
	db, _, err := storage.Open(cfg)
	kit.OK(t, err)
	defer db.Close()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if n, state := lost(t, db, job); n != 0 || state != "running" {
			t.Fatalf("%d calls are lost and the job is %s, while their server lives\n%s", n, state, second.Log())
		}
	}
	first.Kill()
	kit.Eventually(t, "the other one finds what was lost", func() bool {
		n, state := lost(t, db, job)
		return n >= 2 && state == "lost" // the call, and the one that the job made
	})
}

// lost counts the calls that are recorded as lost, and returns the state of a job.
func lost(t *testing.T, db *store.DB, id string) (calls int, state string) {
	t.Helper()
	kit.OK(t, db.Audit().Log(t.Context(), audit.Filter{Outcome: tool.OutcomeLost}, false, func(*tool.Record) error { calls++; return nil }))
	all := kit.Must(db.Jobs().All(t.Context(), "", 0))(t)
	i := slices.IndexFunc(all, func(x job.Job) bool { return x.ID == id })
	if i < 0 {
		t.Fatalf("there is no job %q", id)
	}
	return calls, all[i].State
}

// otherPids returns the command that starts a program in its own PID namespace.
func otherPids(t *testing.T) []string {
	t.Helper()
	words := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Getuid() != 0 {
		words = append(words, "--user", "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), words[0], append(words[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("this machine gives no PID namespace: %v: %s", err, out)
	}
	return words
}
