package storetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/lease"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/tool"
)

// The environment variables of a child.
const (
	childWork    = "STORETEST_WORK"
	childAddress = "STORETEST_ADDRESS"
	childLane    = "STORETEST_LANE"    // if it is not empty, it is the child's key
	childTokens  = "STORETEST_TOKENS"  // the leases of a history
	childWithout = "STORETEST_WITHOUT" // the guard that is left out
)

// child is another program that uses the same database. It reads its input from stdin and reports on stdout what was
// acknowledged, as soon as it was.
func child(k Kind, work string) int {
	w := &worker{out: os.Stdout}
	o := options()
	if lane := os.Getenv(childLane); lane != "" {
		o.Key = func() ([]byte, error) { return []byte(lane), nil }
	}
	act := histories()[work].act
	if act != nil {
		o.Grace, o.Reach = shortGrace, time.Minute
	}
	db, err := k.Open(os.Getenv(childAddress), o)
	w.works(err)
	w.db, w.jobs = db, db.Jobs()
	w.say("ready %s", db.Owner)
	if act != nil {
		act(w)
		return 0
	}
	map[string]func(){
		"write": w.write, "consume": w.consume, "revoke": w.revoke, "begin": w.begin, "work": w.work, "hold": w.hold,
		"pause": w.pause, "claim": w.claim, "plan": w.plan, "approve": w.approve,
	}[work]()
	return 0
}

// shortGrace is the grace of programs that are taken for dead again and again.
const shortGrace = 50 * time.Millisecond

type worker struct {
	db   *store.DB
	jobs *store.JobTable
	mu   sync.Mutex
	out  io.Writer
}

func (w *worker) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.out, format+"\n", args...)
}

// works ends the child on an error.
func (w *worker) works(err error) {
	if err != nil {
		w.say("error %v", err)
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// write makes calls of all sorts until it is killed.
func (w *worker) write() {
	round := tool.NewID()
	together(8, func(i int) {
		rng := rand.New(rand.NewPCG(uint64(i), uint64(time.Now().UnixNano())))
		for n := 0; ; n++ {
			w.one(rng, name("%s-%d-%d", round, i, n))
		}
	})
}

// one does one thing of each sort, and reports it.
func (w *worker) one(rng *rand.Rand, id string) {
	ctx := context.Background()
	r := random(rng)
	r.Call, r.Begun = id, rng.IntN(2) == 0
	if r.Begun {
		w.works(w.db.Audit().Begin(ctx, r))
	}
	token, err := w.db.Leases().Issue(ctx, "", "rm", 1, 300*time.Second)
	w.works(err)
	w.works(w.db.Leases().Consume(ctx, token, "ada", "rm", 1))
	w.say("used %s", token)
	w.works(w.db.Sessions().Patch(ctx, "ada", id[:36], []object{{id: true}}))
	w.say("patched %s", id)
	if rng.IntN(3) == 0 {
		w.oneJob(ctx)
	}
	w.works(w.db.Audit().Append(ctx, r, r.Begun))
	w.say("recorded %s", id)
}

// consume uses the leases on stdin, by many callers at once, and reports which it got.
func (w *worker) consume() {
	leases := w.db.Leases()
	w.race("used", func(token string) (refused bool, err error) {
		err = leases.Consume(context.Background(), token, "ada", "rm", 1)
		return reason(err) == "already_consumed" || reason(err) == "revoked", err
	})
}

// revoke revokes the leases in the same way.
func (w *worker) revoke() {
	leases := w.db.Leases()
	w.race("revoked", func(token string) (refused bool, err error) {
		err = leases.Revoke(context.Background(), "", lease.ID(token))
		return tool.CodeOf(err) == tool.CodeConflict, err
	})
}

// race tries something with the leases on stdin, and reports with which it succeeded.
func (w *worker) race(done string, try func(token string) (refused bool, err error)) {
	var tokens []string
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		tokens = append(tokens, in.Text())
	}
	together(16, func(i int) { // each lease is tried by four callers of each program, in different orders
		for n := i % 4; n < len(tokens); n += 4 {
			token := tokens[(n+i/4*len(tokens)/4)%len(tokens)]
			refused, err := try(token)
			if refused {
				continue
			}
			w.works(err)
			w.say("%s %s", done, token)
		}
	})
}

// begin begins a call and waits.
func (w *worker) begin() {
	r := full()
	r.Call = "interrupted"
	w.beginAndWait(r)
}

// pause is begin for a call that ends well, after a while.
func (w *worker) pause() {
	r := full()
	w.beginAndWait(r)
	r.Begun = true
	w.works(w.db.Audit().Append(context.Background(), r, true))
	w.say("recorded")
}

func (w *worker) beginAndWait(r *tool.Record) {
	w.works(w.db.Audit().Begin(context.Background(), r))
	w.say("begun")
	w.works(errOf(io.ReadAll(os.Stdin)))
}

// A program is a child as its parent sees it.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// start starts a child, with a command in front of its own, if any.
func start(t *testing.T, work, address string, before ...string) *program {
	t.Helper()
	words := append(slices.Clone(before), os.Args[0])
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), childWork+"="+work, childAddress+"="+address)
	cmd.Stderr = os.Stderr
	p := &program{t: t, cmd: cmd, in: must[io.WriteCloser](t)(cmd.StdinPipe()), lines: make(chan string, 1<<16)}
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	works(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() { // ends with the child
		defer close(p.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	return p
}

// wait reads up to a line with that prefix.
func (p *program) wait(prefix string) (before []string) {
	p.t.Helper()
	for line := range p.lines {
		before = append(before, line)
		if strings.HasPrefix(line, prefix) {
			return before
		}
	}
	p.t.Fatalf("the child ended before it said %q: %v", prefix, before)
	return nil
}

// rest reads the remaining lines until the child has ended.
func (p *program) rest() (lines []string) {
	for line := range p.lines {
		lines = append(lines, line)
	}
	return lines
}

func (p *program) kill() { _ = p.cmd.Process.Kill() }

// end kills the child, and waits until it is gone.
func (p *program) end() {
	p.kill()
	p.rest()
	_ = p.cmd.Wait()
}

// so reads the lines of a child up to now.
func (p *program) so() (lines []string) {
	for n := len(p.lines); n > 0; n-- {
		if line, ok := <-p.lines; ok {
			lines = append(lines, line)
		}
	}
	return lines
}

// acknowledged is what children have said that they did.
type acknowledged struct {
	used, recorded, patched map[string]bool
	jobs                    map[string]string
}

// note adds the lines of a child, of which the last may be torn.
func (a *acknowledged) note(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		word, id, whole := strings.Cut(line, " ")
		switch {
		case word == "error":
			t.Fatal(line)
		case word == "used" && whole && len(id) == 30:
			holds(t, !a.used[id], "a lease was used twice")
			a.used[id] = true
		case word == "patched" && strings.Count(id, "-") == 6:
			a.patched[id] = true
		case word == "recorded" && strings.Count(id, "-") == 6:
			a.recorded[id] = true
		case word == "settled" && a.jobs[id] == word:
			t.Errorf("a job was settled twice")
		case (word == "settled" || word == "queued" && a.jobs[id] == "") && len(id) == 36:
			a.jobs[id] = word
		}
	}
}

// While programs write all the time, another is killed again and again. Some have a lane of their own.
func kills(t *testing.T, k Kind) {
	address, db := k.made(t)
	a := acknowledged{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]string{}}
	rng := rand.New(rand.NewPCG(11, uint64(time.Now().UnixNano())))
	writer := func(lane string) *program {
		t.Setenv(childLane, lane)
		return start(t, "write", address)
	}
	var steady []*program
	if k.Far { // the others have one writer
		steady = []*program{writer(""), writer("a"), writer("b")}
	}
	tries := k.fewer(rounds.Of(50, 500))
	for n := range tries {
		p := writer(strings.Repeat("x", n%2))
		lines := p.wait("recorded")
		for range rng.IntN(40) { // a moment later, counted in events
			if line, ok := <-p.lines; ok {
				lines = append(lines, line)
			}
		}
		p.kill()
		a.note(t, append(lines, p.rest()...))
		for _, p := range steady {
			a.note(t, p.so())
		}
		if n%25 == 24 || n == tries-1 {
			must[[]*tool.Record](t)(db.Audit().Recover(t.Context()))
			sound(t, db)
		}
	}
	for _, p := range steady {
		p.kill()
		a.note(t, p.rest())
	}
	checkRecords(t, db, a.recorded)
	checkPatches(t, db, a.patched)
	checkJobs(t, db, a.jobs)
	equal(t, len(sound(t, db).Lanes), 2+2*flag(k.Far), "lanes")
	for token := range a.used {
		err := db.Leases().Consume(t.Context(), token, "ada", "rm", 1)
		needs(t, reason(err) == "already_consumed", "a lease that was used can be used again: %v", err)
	}
	t.Logf("%d kills: %d records, %d patches, %d jobs and %d leases were acknowledged", tries, len(a.recorded),
		len(a.patched), len(a.jobs), len(a.used))
}

// checkRecords: each acknowledged call has its row, and no call has two.
func checkRecords(t *testing.T, db *store.DB, acknowledged map[string]bool) {
	t.Helper()
	rows := map[string]int{}
	for _, r := range logOf(t, db, audit.Filter{}) {
		rows[r.Call]++
	}
	for call := range acknowledged {
		needs(t, rows[call] != 0, "call %s was acknowledged and has no row", call)
	}
	for call, n := range rows {
		holds(t, n <= 1, "call %s has %d rows", call, n)
	}
}

func checkPatches(t *testing.T, db *store.DB, acknowledged map[string]bool) {
	t.Helper()
	states := map[string]object{}
	for id := range acknowledged {
		name := id[:36]
		if states[name] == nil {
			states[name] = decoded(t, get(t, db.Sessions(), name).State)
		}
		needs(t, states[name][id] == true, "patch %s was acknowledged and is not there", id)
	}
}

func leasesRaced(t *testing.T, k Kind) {
	address, db := k.made(t)
	tokens := issued(t, db.Leases(), rounds.Of(64, 10_000))
	done := raceOver(t, address, tokens, "consume", "consume", "consume", "consume")
	holds(t, len(done) == len(tokens), "%d of %d leases were used", len(done), len(tokens))
}

// If some use a lease and others revoke it, one succeeds, and all see the same result.
func leasesRevoked(t *testing.T, k Kind) {
	address, db := k.made(t)
	leases := db.Leases()
	tokens := issued(t, leases, rounds.Of(64, 3000))
	done := raceOver(t, address, tokens, "consume", "revoke")
	states := map[string]string{}
	for _, l := range must[[]lease.Lease](t)(leases.List(t.Context(), 0)) {
		states[l.ID] = l.State
	}
	for _, token := range tokens {
		got := states[lease.ID(token)]
		holds(t, got != "" && got == done[token], "lease %s is %q; its program said %q", lease.ID(token), got,
			done[token])
		gives(t, leases.Consume(t.Context(), token, "ada", "rm", 1), tool.CodeLeaseRejected,
			"lease %s can be used again", lease.ID(token))
	}
}

// issued returns the tokens of count leases.
func issued(t *testing.T, leases *store.LeaseTable, count int) (tokens []string) {
	t.Helper()
	tokens = make([]string, count)
	together(64, func(i int) {
		for n := i; n < count && !t.Failed(); n += 64 {
			var err error
			tokens[n], err = leases.Issue(context.Background(), "", "rm", 1, lease.MaxTTL)
			gives(t, err, success, "lease %d", n)
		}
	})
	needs(t, !t.Failed(), "not all leases were issued")
	return tokens
}

// raceOver lets programs do their work on the same leases, and returns what was done with each. Nothing is done twice.
func raceOver(t *testing.T, address string, tokens []string, tasks ...string) map[string]string {
	t.Helper()
	var programs []*program
	for _, work := range tasks {
		p := start(t, work, address)
		p.wait("ready")
		programs = append(programs, p)
	}
	for _, p := range programs {
		works(t, errOf(io.WriteString(p.in, strings.Join(tokens, "\n"))))
		works(t, p.in.Close())
	}
	done := map[string]string{}
	for _, p := range programs {
		for _, line := range p.rest() {
			word, token, _ := strings.Cut(line, " ")
			switch {
			case word == "error":
				t.Error(line)
			case done[token] != "":
				t.Errorf("lease %s was %s and %s", lease.ID(token), done[token], word)
			default:
				done[token] = word
			}
		}
	}
	return done
}

func lostCalls(t *testing.T, k Kind) {
	address, db := k.made(t)
	mine := full()
	mine.Call = "still running"
	works(t, db.Audit().Begin(t.Context(), mine))
	p := start(t, "begin", address)
	p.wait("begun")
	equal(t, len(must[[]*tool.Record](t)(db.Audit().Recover(t.Context()))), 0, "calls are lost while their programs live")
	p.end()
	var recorded atomic.Int64
	// If several find it, one records it, and learns of it.
	look := func(int) { recorded.Add(int64(len(must[[]*tool.Record](t)(db.Audit().Recover(context.Background()))))) }
	until(t, func() bool { together(4, look); return len(logOf(t, db, audit.Filter{})) > 0 })
	mine.Begun = true
	add(t, db, mine)
	got := logOf(t, db, audit.Filter{})
	holds(t, recorded.Load() == 1 && len(got) == 2 && got[0].Call == "interrupted" && got[0].Outcome == tool.OutcomeLost &&
		got[0].Tool == "readFile" && got[1].Call == "still running", "%d, %+v", recorded.Load(), got)
	sound(t, db)
}
