package storetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"toolpost/engine/job"
	"toolpost/engine/lease"
	"toolpost/engine/quota"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/tool"
)

// A history is what programs do at the same time with keys of one sort, and the model of such a key: which histories there
// could be if only one program acted at a time.
type history struct {
	act   func(*worker)
	model porcupine.Model
	first func(t *testing.T, raw *sql.DB, all []*program, owners []string) (said [][]string) // by each; may be nil
}

func histories() map[string]history {
	return map[string]history{
		"leases":   {(*worker).actOnLeases, model(leaseStep), nil},
		"outcomes": {(*worker).actOnOutcomes, model(outcomeStep), nil},
		"jobs":     {(*worker).actOnJobs, model(jobStep), nil},
		"quotas":   {(*worker).actOnQuotas, model(quotaStep), whileAway},
	}
}

// An event is one operation of a program on a key: what it asked for, and got, between two moments.
type event struct {
	begun, ended     int64
	by, key, in, out string
}

// model makes a model of how an event changes the state of its key; ok is false if it cannot happen in that state.
func model[S comparable](step func(state S, e event) (next S, ok bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return *new(S) },
		Step: func(state, in, _ any) (bool, any) {
			next, ok := step(state.(S), in.(event))
			return ok, next
		},
	}
}

// did reports an operation that began at a time and ends now.
func (w *worker) did(begun time.Time, key, in, out string) {
	w.say("%d %d %s %s %s", begun.UnixNano(), time.Now().UnixNano(), key, in, out)
}

// acting lets several callers act until stdin ends.
func (w *worker) acting(callers int, act func(caller int, rng *mathrand.Rand)) {
	var over atomic.Bool
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); over.Store(true) }()
	together(callers, func(i int) {
		for rng := mathrand.New(mathrand.NewPCG(uint64(i), uint64(time.Now().UnixNano()))); !over.Load(); {
			act(i, rng)
			time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
		}
	})
}

// runsFor waits as a call does that runs: most are quick, and some last longer than a program is away.
func runsFor(rng *mathrand.Rand) {
	time.Sleep(time.Duration(rng.IntN([]int{20, 20, 1500}[rng.IntN(3)])) * time.Millisecond)
}

// answer returns "ok", or why something was refused. It ends the child on any other error.
func (w *worker) answer(err error, refusals ...tool.Code) string {
	if err == nil {
		return "ok"
	}
	if !slices.Contains(refusals, tool.CodeOf(err)) {
		w.works(err)
	}
	return cmp.Or(tool.AsError(err).Reason, "refused")
}

// Programs use and revoke the same leases: in names the state that a lease is to get, out the state that it has if that is
// refused.
func (w *worker) actOnLeases() {
	tokens, leases := strings.Fields(os.Getenv(childTokens)), w.db.Leases()
	w.acting(4, func(_ int, rng *mathrand.Rand) {
		begun, in, err := time.Now(), lease.Used, error(nil)
		token := tokens[begun.UnixMilli()/25%int64(len(tokens))]
		if rng.IntN(4) == 0 {
			in, err = lease.Revoked, leases.Revoke(context.Background(), "", lease.ID(token))
		} else {
			err = leases.Consume(context.Background(), token, "ada", "rm", 1)
		}
		out := w.answer(err, tool.CodeConflict, tool.CodeLeaseRejected)
		w.did(begun, token, in, strings.ReplaceAll(out, "already_consumed", lease.Used))
	})
}

func leaseStep(state string, e event) (string, bool) {
	if e.out == "ok" {
		return e.in, state == ""
	}
	return state, state == e.out
}

// Programs claim the same keys, and settle those that they got with an outcome or without one.
func (w *worker) actOnOutcomes() {
	ctx, outcomes := context.Background(), w.db.Outcomes()
	w.acting(4, func(_ int, rng *mathrand.Rand) {
		begun := time.Now()
		key := name("%d", begun.UnixMilli()/500+rng.Int64N(3))
		scope := sha256.Sum256([]byte(key))
		c, err := outcomes.Claim(ctx, scope, scope, "", time.Hour)
		switch w.works(err); {
		case c.Lost:
			w.did(begun, key, "claim", "lost")
		case c.Result != nil:
			w.did(begun, key, "claim", string(c.Result))
		case !c.Mine:
			w.did(begun, key, "claim", "runs")
		default:
			w.did(begun, key, "claim", "mine")
			runsFor(rng)
			in, result := "nothing", []byte(nil)
			if rng.IntN(4) == 0 {
				in = `"` + rand.Text() + `"`
				result = []byte(in)
			}
			begun = time.Now()
			err := outcomes.Settle(ctx, scope, result, time.Hour)
			w.did(begun, key, in, w.answer(err, tool.CodeUnavailable))
		}
	})
}

// The state of a key is empty, the program that has it, its outcome, or lost.
func outcomeStep(state string, e event) (string, bool) {
	switch {
	case e.out == "mine":
		return e.by, state == ""
	case e.out == "runs":
		return state, isProgram(state)
	case e.out == "lost":
		return e.out, state == e.out || isProgram(state) && state != e.by // its program was taken for dead
	case e.in == "claim":
		return state, state == e.out
	case e.out != "ok":
		return state, state != e.by
	case e.in != "nothing":
		return e.in, state == e.by
	case state == e.by:
		return "", true
	}
	return state, true // what is no longer its own stays
}

// isProgram reports whether a text begins with the number of one of the programs.
func isProgram(text string) bool { return text != "" && text[0] >= '0' && text[0] <= '9' }

// Programs add, begin, settle and put back the same jobs, and recover those of programs that they take for dead. The
// run is part of in.
func (w *worker) actOnJobs() {
	ctx := context.Background()
	w.acting(4, func(_ int, rng *mathrand.Rand) {
		w.adopt(ctx, rng.IntN(2) == 0)
		begun := time.Now()
		jobs, err := w.jobs.Claim(ctx, 1, nil)
		if w.works(err); len(jobs) == 0 {
			x := aJob(true)
			w.works(w.jobs.Add(ctx, x, manyJobs, manyJobs))
			w.did(begun, x.ID, "add", "ok")
			return
		}
		x := &jobs[0]
		w.did(begun, x.ID, "begin/"+runOf(x), "ok")
		runsFor(rng)
		for range 1 + rng.IntN(2) { // the second is too late, in most cases
			begun, state := time.Now(), []string{"done", job.Queued}[rng.IntN(2)]
			err := w.jobs.Settle(ctx, x, state, []byte(jobResult), nil)
			w.did(begun, x.ID, state+"/"+runOf(x), w.answer(err, tool.CodeConflict))
		}
	})
}

// runOf names a run of a job by its number and when it began.
func runOf(x *job.Job) string { return name("%d@%d", x.Attempts, x.Began.UnixMicro()) }

// adopt puts the jobs of programs that are gone back into the queue, directly or as if they had asked and been answered,
// which begins to count their attempts again.
func (w *worker) adopt(ctx context.Context, asked bool) {
	begun, outcome, runs := time.Now(), []byte(`"`+rand.Text()+`"`), map[string]string{}
	n, err := w.jobs.Recover(ctx, func(x job.Job) (string, []byte) {
		runs[x.ID] = runOf(&x)
		return map[bool]string{true: job.Asked, false: job.Queued}[asked], outcome
	}, resumed)
	w.works(err)
	for id, run := range runs {
		in, out := "adopt", "ok"
		if asked {
			in = "answer"
			_, err := w.jobs.Answer(ctx, "ada", id, outcome, []byte(`{"tool":"t"}`), nil, "")
			out = w.answer(err, tool.CodeConflict)
		}
		if n < len(runs) { // another program was faster with some of them
			out = unclear
		}
		w.did(begun, id, in+"/"+run, out)
	}
}

// unclear is the outcome of an operation that may have happened or not. The history of its key is not looked at.
const unclear = "unclear"

// The state of a job is queued/ATTEMPTS, PROGRAM/RUN, or done.
func jobStep(state string, e event) (string, bool) {
	in, run, _ := strings.Cut(e.in, "/")
	number, _, _ := strings.Cut(run, "@")
	attempt, _ := strconv.Atoi(number)
	queued := func(attempts int) string { return name("queued/%d", attempts) }
	mine := e.by + "/" + run
	switch {
	case in == "add":
		return queued(0), state == ""
	case in == "begin":
		return mine, state == queued(attempt-1)
	case in == "adopt", in == "answer":
		next := queued(attempt * flag(in == "adopt"))
		return next, isProgram(state) && state != mine && strings.HasSuffix(state, "/"+run)
	case e.out != "ok":
		return state, state != mine
	case in == job.Queued:
		return queued(attempt - 1), state == mine
	}
	return in, state == mine
}

// The rules of the history of quotas: their burst, and how many calls they restore in a second.
const quotaBurst = 160

func quotaRates() []int { return []int{1, 10} }

// Program 0 uses up most of its share of the first rule, and little of that of the second one, and is then away until both have
// ended. So what it has not reported of the first may not be given out again, and what it still has of the second may not be
// used: its bucket is full again, although the others have called now and then. After that, all programs call as often as they
// may.
func (w *worker) actOnQuotas() {
	var calls []func() error
	run, back := strings.Fields(os.Getenv(childTokens))[0], make(chan struct{})
	for i, rate := range quotaRates() {
		rule := quota.Rule{Name: name("%s %d", run, i), Burst: quotaBurst}
		w.works(rule.Rate.UnmarshalText(fmt.Appendf(nil, "%d/s", rate)))
		some, _ := limited(context.Background(), []*store.DB{w.db}, rule, func() {})
		calls = append(calls, some...)
	}
	call := func(i int) (ok bool) {
		begun := time.Now()
		err := calls[i]()
		w.did(begun, name("%d", quotaRates()[i]), "call", w.answer(err, tool.CodeQuotaExceeded))
		return err == nil
	}
	go func() {
		w.works(errOf(io.ReadFull(os.Stdin, make([]byte, len(backAgain)))))
		close(back)
	}()
	if os.Getenv(childLane) == "0" {
		const first, second = 1 + 2 + 4 + 8 + 16 + 20 + 15, 1 + 2 + 4 + 8 + 16 + 1 // shares double, up to an eighth of the burst
		for n, begun := 0, time.Now(); n < first+second && time.Since(begun) < 20*time.Second; n++ {
			call(flag(n >= first))
		}
		w.say(isAway)
		<-back
	}
	for waits := true; waits; {
		call(0)
		call(1)
		select {
		case <-back:
			waits = false
		case <-time.After(time.Second):
		}
	}
	w.acting(len(calls), func(i int, _ *mathrand.Rand) {
		if !call(i) {
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// What program 0 says before it is away, and what all are told when it is back.
const isAway, backAgain = "away", "back\n"

// whileAway waits until the shares of program 0 have ended and the bucket of the second rule is full again, and then until
// each program has found it empty.
func whileAway(t *testing.T, raw *sql.DB, all []*program, owners []string) (said [][]string) {
	said = make([][]string, programs)
	said[0] = all[0].wait(isAway)
	said[0] = said[0][:len(said[0])-1]
	until(t, func() bool { // a call has 1,000,000 parts
		return count(t, raw, `SELECT COUNT(*) FROM quota WHERE missing <= 2000000 AND NOT EXISTS (SELECT 1 FROM quota_share `+
			`WHERE owner = '`+owners[0]+`')`) > 0
	})
	for _, p := range all {
		works(t, errOf(io.WriteString(p.in, backAgain)))
	}
	for i, p := range all {
		for refused := 0; refused < 20 && len(said[i]) < enough; { // without a guard it may never be empty
			line, ok := <-p.lines
			needs(t, ok, "a program has ended")
			said[i], refused = append(said[i], line), refused+flag(strings.HasSuffix(line, " 10 call rate"))
		}
	}
	return said
}

// A bucket has the calls that are not restored at a time.
type bucket struct {
	calls float64
	at    int64
}

// quotaStep counts a call from its begin on, and looks at its end whether there is room for it: so it allows a call if any
// moment between the two does.
func quotaStep(b bucket, e event) (bucket, bool) {
	rate, _ := strconv.Atoi(e.key)
	if e.out != "ok" {
		return b, true
	}
	restored := func(from, to int64) float64 { return float64(rate) * time.Duration(to-from).Seconds() }
	at := max(b.at, e.begun)
	b = bucket{max(0, b.calls-restored(b.at, at)) + 1, at}
	return b, b.calls-restored(at, max(at, e.ended)) <= quotaBurst+0.01
}

// How many programs there are, and how many events at least.
const programs, enough = 3, 300

// lasts is how long programs are disturbed, at least.
const lasts = 1500 * time.Millisecond

// wrong lets three programs act on the same keys, while each is stopped and cut off now and then, for longer than its grace:
// so it is taken for dead, and comes back. It returns the histories that the model does not allow.
func (h history) wrong(t *testing.T, k Kind, work, address string, before ...string) (found []string) {
	db, raw := k.open(t, address), k.Raw(t, address)
	tokens := childTokens + "=" + strings.Join(issued(t, db.Leases(), 64), " ")
	var all []*program
	var owners []string
	for i := range programs {
		p := start(t, work, address, append([]string{"env", tokens, name("%s=%d", childLane, i)}, before...)...)
		all = append(all, p)
	}
	for _, p := range all {
		ready := p.wait("ready")
		owners = append(owners, strings.Fields(ready[len(ready)-1])[1])
	}
	lines, said := make([][]string, programs), 0
	if h.first != nil {
		lines = h.first(t, raw, all, owners)
	}
	for n, begun := 0, time.Now(); said < enough || time.Since(begun) < lasts; n++ {
		i := n % programs
		p := all[i]
		works(t, p.cmd.Process.Signal(syscall.SIGSTOP))
		run(t, raw, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND `+
			`(classid::bigint << 32) | objid::bigint = `+owners[i])
		time.Sleep(6 * shortGrace)
		lines[i] = append(lines[i], p.so()...)
		works(t, p.cmd.Process.Signal(syscall.SIGCONT))
		lines[i] = append(lines[i], <-p.lines) // it is back
		time.Sleep(shortGrace)
		said = len(lines[0]) + len(lines[1]) + len(lines[2])
	}
	keys, outs := map[string][]porcupine.Operation{}, map[string]int{}
	for i, p := range all {
		works(t, p.in.Close())
		for _, line := range append(lines[i], p.rest()...) {
			e := event{by: name("%d", i)}
			_, err := fmt.Sscan(line, &e.begun, &e.ended, &e.key, &e.in, &e.out)
			works(t, err, "%q", line)
			keys[e.key] = append(keys[e.key], porcupine.Operation{ClientId: i, Input: e, Call: e.begun, Return: e.ended})
			if what, _, _ := strings.Cut(e.in+" "+e.out, "/"); !strings.Contains(what, `"`) {
				outs[what]++
			}
		}
	}
	t.Logf("%d keys: %v", len(keys), outs)
	for key, events := range keys {
		if slices.ContainsFunc(events, func(o porcupine.Operation) bool { return o.Input.(event).out == unclear }) {
			continue
		}
		switch porcupine.CheckOperationsTimeout(h.model, events, time.Minute) {
		case porcupine.Illegal:
			slices.SortFunc(events, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
			text := key + ":\n"
			for _, o := range events {
				text += fmt.Sprintf("%+v\n", o.Input)
			}
			found = append(found, text)
		case porcupine.Unknown:
			t.Errorf("the history of %s takes too long to check: %d events", key, len(events))
		}
	}
	return found
}

// linearizable checks the histories.
func linearizable(t *testing.T, k Kind) {
	for work, h := range histories() {
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			for range rounds.Of(1, 20) {
				for _, text := range h.wrong(t, k, work, k.New(t)) { // a new one: what was before is not in the history
					t.Error(text)
				}
			}
		})
	}
}

// A guard is something in the program that a history needs: edits are the pairs of texts in a file that let it be left out.
type guard struct {
	name, work, file string
	edits            []string
}

func guards() []guard {
	const jobs, outcomes = "store/jobtable.go", "store/outcometable.go"
	return []guard{
		{"lease", "leases", "store/leasetable.go", []string{
			"err == nil && n == 0 { // the key", "err == nil && n == 0 && !without(`lease`) { // the key",
			"return err\n\t}, \"lease \"+id))", "return err\n\t}, lock(`lease`, id)))",
		}},
		{"key", "outcomes", outcomes, []string{
			`[]string{"outcome " + string(scope[:])}`, "[]string{lock(`key`, `outcome ` + string(scope[:]))}",
		}},
		{"row", "outcomes", outcomes, []string{"case !known ||", "case !known || without(`row`) ||"}},
		{"lost", "outcomes", "store/outcomeends.go", []string{
			"owner = ? AND lost_at IS NULL`,\n\t\t\tstring(e.result)",
			"owner = ? AND (lost_at IS NULL` + or(`lost`) + `)`, string(e.result)",
		}},
		{"queue", "jobs", jobs, []string{"{queueKey}, Late", "{lock(`queue`, queueKey)}, Late"}},
		{"began", "jobs", jobs, []string{
			"AND began_at = ` + began\n", "AND (began_at = ` + began + or(`began`) + `)`\n",
		}},
		{"state", "jobs", jobs, []string{
			"id + ` AND state = '` + job.Running + `'", "id + ` AND (state = '` + job.Running + `'` + or(`state`) + `)",
		}},
		{"share", "quotas", "engine/quota/shared.go", []string{"&& now < s.until\n", "&& (now < s.until || without(`share`))\n"}},
		{"unreported", "quotas", "store/quotatable.go", []string{
			"ended += s.held", "if !without(`unreported`) { ended += s.held }",
		}},
		{"reported", "quotas", "store/quotatable.go", []string{"&& mine > 0 {", "&& mine > 0 && !without(`reported`) {"}},
	}
}

// leftOut is added to the packages of guards.
const leftOut = `
import ("crypto/rand"; "os")

func without(guard string) bool { return os.Getenv("` + childWithout + `") == guard }

func or(guard string) string {
	if without(guard) {
		return " OR TRUE"
	}
	return ""
}

func lock(guard, key string) string {
	if without(guard) {
		return key + rand.Text()
	}
	return key
}
`

// unguarded builds the tests of this package so that each guard can be left out.
func unguarded(t *testing.T) (binary string) {
	t.Helper()
	dir, root := t.TempDir(), must[string](t)(filepath.Abs("../.."))
	replace, texts := map[string]string{}, map[string]string{}
	for _, g := range guards() {
		file := filepath.Join(root, g.file)
		if texts[file] == "" {
			texts[file] = string(must[[]byte](t)(os.ReadFile(file)))
		}
		pkg := filepath.Dir(file)
		texts[filepath.Join(pkg, "without.go")] = "package " + filepath.Base(pkg) + leftOut
		for pair := range slices.Chunk(g.edits, 2) {
			needs(t, strings.Count(texts[file], pair[0]) == 1, "%s has no longer one %q, without which guard %s can be left out",
				g.file, pair[0], g.name)
			texts[file] = strings.Replace(texts[file], pair[0], pair[1], 1)
		}
	}
	for file, text := range texts {
		replace[file] = filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		works(t, os.WriteFile(replace[file], []byte(text), 0o600))
	}
	overlay := filepath.Join(dir, "overlay.json")
	works(t, os.WriteFile(overlay, must[[]byte](t)(json.Marshal(map[string]any{"Replace": replace})), 0o600))
	binary = filepath.Join(dir, "unguarded")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-vet=off", "-overlay", overlay, "-o", binary,
		".").CombinedOutput()
	works(t, err, "%s", out)
	return binary
}

// Guards leaves out each guard in turn, in the short round one for each history: the history must be wrong then.
func Guards(t *testing.T, k Kind) {
	binary := unguarded(t)
	tried := map[string]bool{}
	for _, g := range guards() {
		if tried[g.work] && rounds.Of(0, 1) == 0 {
			continue
		}
		tried[g.work] = true
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for range 30 { // most are found at once, a late one may take ten
				if len(histories()[g.work].wrong(t, k, g.work, k.New(t), childWithout+"="+g.name, binary)) > 0 {
					return
				}
			}
			t.Errorf("without the guard %s, the history of %s is right", g.name, g.work)
		})
	}
}
