package store_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/store"
	"toolpost/tool"
)

func reason(err error) string {
	if err == nil {
		return ""
	}
	if e := tool.AsError(err); e.Code == tool.CodeLeaseRejected {
		return e.Reason
	}
	return err.Error()
}

func issue(t *testing.T, l *store.Leases, name string, tier int) string {
	t.Helper()
	token, err := l.Issue(t.Context(), "", name, tier, 0)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestALeaseFitsOneToolUpToItsTierOnce(t *testing.T) {
	l := &store.Leases{Dir: filepath.Join(t.TempDir(), "leases")}
	one, any := issue(t, l, "rm", 2), issue(t, l, "*", 1)
	for _, c := range []struct {
		token, name string
		tier        int
		want        string
	}{
		{"tok_unknown", "rm", 1, "not_found"},
		{"../../etc/passwd", "rm", 1, "not_found"},
		{one, "ls", 1, "tool_mismatch"},
		{one, "rm", 3, "tier_too_low"},
		{one, "rm", 2, ""}, // what did not fit has not used it up
		{one, "rm", 2, "already_consumed"},
		{any, "rm", 2, "tier_too_low"},
		{any, "whatever", 1, ""},
		{any, "whatever", 1, "already_consumed"},
	} {
		if got := reason(l.Consume(t.Context(), c.token, "ada", c.name, c.tier)); got != c.want {
			t.Errorf("%s for %s of tier %d: %q, want %q", c.token, c.name, c.tier, got, c.want)
		}
	}
	counts, err := l.GC(t.Context())
	if want := (store.LeaseCounts{Issued: 2, Consumed: 2, Rejected: 7}); err != nil || counts != want {
		t.Errorf("%+v, %v", counts, err)
	}
}

func TestALeaseOfACallerIsNobodyElses(t *testing.T) {
	l := &store.Leases{Dir: t.TempDir()}
	unknown := l.Consume(t.Context(), "tok_unknown", "eve", "rm", 1)
	token, err := l.Issue(t.Context(), "ada", "rm", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // while it can be used, and when it was
		for _, caller := range []string{"eve", ""} {
			if err := l.Consume(t.Context(), token, caller, "rm", 1); reason(err) != "not_found" || err.Error() != unknown.Error() {
				t.Errorf("%q has the lease of ada: %v", caller, err)
			}
		}
		if got := reason(l.Consume(t.Context(), token, "ada", "rm", 1)); got != "" && got != "already_consumed" {
			t.Error(got)
		}
	}
	if _, err := l.Issue(t.Context(), "a\x00", "rm", 1, 0); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Error(err)
	}
}

func TestALeaseExpires(t *testing.T) {
	dir := t.TempDir()
	l := &store.Leases{Dir: dir}
	token := issue(t, l, "rm", 1)
	age(t, dir, time.Minute)
	if got := reason(l.Consume(t.Context(), token, "ada", "rm", 1)); got != "expired" {
		t.Error(got)
	}
	if counts, _ := l.GC(t.Context()); counts.Active != 0 {
		t.Errorf("%+v", counts)
	}
	age(t, dir, time.Hour)
	used := issue(t, l, "rm", 1)
	if err := l.Consume(t.Context(), used, "ada", "rm", 1); err != nil {
		t.Fatal(err)
	}
	age(t, dir, time.Hour)
	issue(t, l, "rm", 1)
	if counts, _ := l.GC(t.Context()); counts.Active != 1 {
		t.Errorf("%+v", counts)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files are left of the past", len(entries)-1)
	}
}

// age makes every lease of a folder older.
func age(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		var doc map[string]any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		doc["expires_ms"] = int64(doc["expires_ms"].(float64)) - by.Milliseconds()
		b, _ = json.Marshal(doc)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALeaseLastsFromOneTo300Seconds(t *testing.T) {
	l := &store.Leases{Dir: t.TempDir()}
	for ttl, ok := range map[time.Duration]bool{
		0: true, time.Second: true, 300 * time.Second: true,
		-1: false, 999 * time.Millisecond: false, 301 * time.Second: false,
	} {
		if _, err := l.Issue(t.Context(), "", "rm", 1, ttl); (err == nil) != ok || err != nil && tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%v: %v", ttl, err)
		}
	}
	for _, tier := range []int{-1, 4} {
		if _, err := l.Issue(t.Context(), "", "rm", tier, 0); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("tier %d: %v", tier, err)
		}
	}
	if _, err := l.Issue(t.Context(), "", "", 1, 0); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Errorf("no tool: %v", err)
	}
}

func TestTheTokenIsNotOnDiskAndNobodyElseCanRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "leases")
	l := &store.Leases{Dir: dir}
	a, b := issue(t, l, "rm", 1), issue(t, l, "rm", 1)
	if a == b || len(a) < len("tok_")+26 || !strings.HasPrefix(a, "tok_") {
		t.Errorf("%s, %s", a, b)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		content, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		if strings.Contains(e.Name(), a) || bytes.Contains(content, []byte(a)) {
			t.Errorf("%s has the token", e.Name())
		}
		if info, _ := e.Info(); info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
}

func TestAFileThatIsNoLeaseIsAnError(t *testing.T) {
	dir := t.TempDir()
	l := &store.Leases{Dir: dir}
	token := issue(t, l, "rm", 1)
	paths, _ := filepath.Glob(filepath.Join(dir, "*.lease"))
	if err := os.WriteFile(paths[0], []byte(`{"tool":"*"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Consume(t.Context(), token, "ada", "rm", 1); tool.CodeOf(err) != tool.CodeInternal {
		t.Error(err)
	}
	if counts, err := l.GC(t.Context()); err != nil || counts.Active != 0 {
		t.Errorf("%+v, %v", counts, err)
	}
}

const (
	racedLeases  = 2000
	racers       = 4
	racerThreads = 8
)

// Every lease is tried by every goroutine of every process, and consumed by one of them.
func TestExactlyOneConsumerAcrossProcessesWins(t *testing.T) {
	dir := t.TempDir()
	l := &store.Leases{Dir: dir}
	var tokens bytes.Buffer
	for range racedLeases {
		token, err := l.Issue(t.Context(), "", "rm", 1, store.MaxLeaseTTL)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&tokens, token)
	}
	outputs := make([]bytes.Buffer, racers)
	var wg sync.WaitGroup
	for i := range racers {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRacer$")
		cmd.Env = append(os.Environ(), "TOOLPOST_TEST_LEASES="+dir)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(tokens.Bytes()), &outputs[i], os.Stderr
		wg.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	total := 0
	for i := range outputs {
		var won, lost int
		if _, err := fmt.Sscanf(outputs[i].String(), "won %d lost %d", &won, &lost); err != nil {
			t.Fatalf("racer %d said %q", i, outputs[i].String())
		}
		t.Logf("racer %d consumed %d", i, won)
		total += won
		if won+lost != racedLeases*racerThreads {
			t.Errorf("racer %d: %d won and %d lost of %d tries", i, won, lost, racedLeases*racerThreads)
		}
	}
	if total != racedLeases {
		t.Errorf("%d leases were consumed %d times", racedLeases, total)
	}
}

// TestRacer is one process of the race.
func TestRacer(t *testing.T) {
	dir := os.Getenv("TOOLPOST_TEST_LEASES")
	if dir == "" {
		t.Skip("only a part of TestExactlyOneConsumerAcrossProcessesWins")
	}
	var tokens []string
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		tokens = append(tokens, in.Text())
	}
	l := &store.Leases{Dir: dir}
	var won, lost atomic.Int64
	var wg sync.WaitGroup
	for range racerThreads {
		wg.Go(func() {
			for _, token := range tokens {
				switch got := reason(l.Consume(t.Context(), token, "ada", "rm", 1)); got {
				case "":
					won.Add(1)
				case "already_consumed":
					lost.Add(1)
				default:
					t.Errorf("%s", got)
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("won %d lost %d\n", won.Load(), lost.Load())
}
