package storetest

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/job"
	"toolpost/store"
	"toolpost/tool"
)

// otherPids returns the command that runs another one in its own PID namespace, as in a container: it has number 1
// there, which another program may have too.
func otherPids(t *testing.T) []string {
	t.Helper()
	words := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Getuid() != 0 {
		words = append(words, "--user", "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), words[0],
		append(words[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("this machine gives no PID namespace: %v: %s", err, out)
	}
	return words
}

// Programs that cannot see each other's processes are not taken for dead, and a killed one is found soon.
func otherNamespaces(t *testing.T, k Kind) {
	apart := otherPids(t)
	address, db := k.made(t)
	job := added(t, db.Jobs(), false)
	began, holds := start(t, "begin", address, apart...), start(t, "hold", address, apart...)
	began.wait("begun")
	holds.wait("began 1")
	check := watch(t, db)
	for range 20 {
		check(0, 0)
		time.Sleep(50 * time.Millisecond)
	}
	began.kill()
	until(t, func() bool { return check(-1, 0) == 1 })
	holds.kill()
	until(t, func() bool { check(0, -1); return find(t, db.Jobs(), job.ID).State == "lost" })
}

// A stopped program is not dead: what it has begun is still its own when it continues.
func stopped(t *testing.T, k Kind) {
	address, db := k.made(t)
	p := start(t, "pause", address)
	p.wait("begun")
	works(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	check := watch(t, db)
	for range 20 {
		check(0, 0)
		time.Sleep(50 * time.Millisecond)
	}
	works(t, p.cmd.Process.Signal(syscall.SIGCONT))
	works(t, p.in.Close())
	p.wait("recorded")
	got := logOf(t, db, audit.Filter{})
	holds(t, len(got) == 1 && got[0].Outcome != tool.OutcomeLost, "%+v", got)
}

// lost returns the outcome of a job whose program is gone.
func lost(job.Job) (state string, outcome []byte) { return "lost", []byte(`{"error":{}}`) }

// watch looks for the remains of programs that are gone, and compares the numbers found with those wanted; -1 means
// any. It returns the number of calls.
func watch(t *testing.T, db *store.DB) func(calls, jobs int) int {
	return func(calls, jobs int) int {
		t.Helper()
		found := len(must[[]*tool.Record](t)(db.Audit().Recover(t.Context())))
		needs(t, calls < 0 || found == calls, "%d calls are lost while their programs live", found)
		n := must[int](t)(db.Jobs().Recover(t.Context(), lost, resumed))
		needs(t, jobs < 0 || n == jobs, "%d jobs are lost while their programs live", n)
		return found
	}
}

// until waits for a condition that is met within a bounded time.
func until(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !what(); time.Sleep(50 * time.Millisecond) {
		needs(t, !time.Now().After(end), "it does not happen")
	}
}

// A program that was wrongly taken for dead adds nothing: what it has begun is recorded as lost, once.
func takenForDead(t *testing.T, k Kind) {
	address, mine := k.made(t)
	other, r, scope := k.open(t, address), full(), [32]byte{3}
	jobs, outcomes := mine.Jobs(), mine.Outcomes()
	works(t, mine.Audit().Begin(t.Context(), r))
	added(t, jobs, false)
	accepted := begun(t, jobs)
	must[idempotency.Claim](t)(outcomes.Claim(t.Context(), scope, scope, "", time.Minute))
	run(t, k.Raw(t, address), `UPDATE audit_open SET owner = 'gone'`, `UPDATE job SET owner = 'gone'`,
		`UPDATE outcome SET owner = 'gone'`) // as if it had been away for too long
	equal(t, watch(t, other)(1, 1), 1, "calls are lost")
	c := must[idempotency.Claim](t)(other.Outcomes().Claim(t.Context(), scope, scope, "", time.Minute))
	holds(t, c.Lost, "%+v", c)
	r.Begun = true
	gives(t, mine.Audit().Append(t.Context(), r, true), tool.CodeConflict, "a record")
	gives(t, jobs.Settle(t.Context(), accepted, "done", []byte(jobResult), nil), tool.CodeConflict, "a job")
	gives(t, outcomes.Settle(t.Context(), scope, []byte(`{}`), time.Minute), tool.CodeUnavailable,
		"an outcome that counts as lost")
	got := logOf(t, mine, audit.Filter{})
	holds(t, len(got) == 1 && got[0].Outcome == tool.OutcomeLost, "%+v", got)
	sound(t, mine)
}

// claim claims a key for a moment and waits.
func (w *worker) claim() {
	c, err := w.db.Outcomes().Claim(context.Background(), lostKey(), [32]byte{2}, "killed", time.Microsecond)
	w.works(err)
	w.say("claimed %v", c.Mine)
	select {}
}

func lostKey() [32]byte { return [32]byte{1, 2, 3} }

// A call whose program was killed does not run again because time has passed: the next caller learns that it is lost,
// and from then on that is remembered for as long as an outcome.
func lostOutcome(t *testing.T, k Kind) {
	address, db := k.made(t)
	o := db.Outcomes()
	claim := func(o *store.OutcomeTable) idempotency.Claim {
		return must[idempotency.Claim](t)(o.Claim(t.Context(), lostKey(), [32]byte{2}, "", time.Hour))
	}
	p := start(t, "claim", address)
	p.wait("claimed true")
	time.Sleep(time.Millisecond) // longer than the outcome would have been remembered
	p.end()
	until(t, func() bool {
		c := claim(o)
		needs(t, !c.Mine, "a call that may have run is run again")
		needs(t, c.Away || !c.Lost, "it is gone, and can be seen")
		return c.Lost
	})
	another := k.open(t, address).Outcomes()
	holds(t, claim(another).Lost, "another program does not know")
	is, as := must[bool](t), func(call string, at int64) idempotency.Claim { return idempotency.Claim{Call: call, At: at} }
	takes := func(c idempotency.Claim) bool { return is(o.Take(t.Context(), lostKey(), c, "repeat", time.Hour)) }
	holding := func(call string) bool { return is(o.Hold(t.Context(), lostKey(), call)) }
	at := claim(o).At
	holds(t, !takes(as("another", at)) && !takes(as("killed", at-1)) && takes(as("killed", at)) && !takes(as("killed", at)), "one repeat gets the key of the call that has it")
	at = claim(o).At
	holds(t, !holding("killed") && holding("repeat") && !takes(as("repeat", at)), "a key is taken from a call that holds it")
	c := claim(another)
	holds(t, !c.Lost && !c.Away && c.Call == "repeat", "another program: %+v", c)
	works(t, o.Lose(t.Context(), lostKey(), time.Second))
	until(t, func() bool { return claim(o).Mine })
}
