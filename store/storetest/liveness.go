package storetest

import (
	"context"
	"errors"
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

// otherPids returns the words in front of a command that run it among process numbers of its own, as in a container: it
// is number 1 there, and so may be another one.
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

// Programs that cannot see each other's processes are not taken for dead, and one that is killed is found soon.
func otherNamespaces(t *testing.T, k Kind) {
	address, apart := k.New(t), otherPids(t)
	db := k.open(t, address)
	job := aJob(false)
	if err := db.Jobs().Add(t.Context(), job, manyJobs, manyJobs); err != nil {
		t.Fatal(err)
	}
	began, holds := start(t, "begin", address, apart...), start(t, "hold", address, apart...)
	began.wait("begun")
	holds.wait("began 1")
	still := k.watch(t, db)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		still(0, 0)
	}
	began.kill()
	k.until(t, func() bool { return still(-1, 0) == 1 })
	holds.kill()
	k.until(t, func() bool { still(0, -1); return find(t, db.Jobs(), job.ID).State == "lost" })
}

// A program that is stopped for a while is not dead: what it has begun is its own when it goes on.
func stopped(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	p := start(t, "pause", address)
	p.wait("begun")
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	still := k.watch(t, db)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		still(0, 0)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	p.wait("recorded")
	if got := logOf(t, db, audit.Filter{}); len(got) != 1 || got[0].Outcome == tool.OutcomeLost {
		t.Errorf("%+v", got)
	}
}

// watch looks for what programs that are gone have left, and holds how much was found against what is wanted; -1: any
// number. It gives the number of calls.
func (k Kind) watch(t *testing.T, db *store.DB) func(calls, jobs int) int {
	lost := func(job.Job) (string, []byte) { return "lost", []byte(`{"error":{}}`) }
	return func(calls, jobs int) int {
		t.Helper()
		found := must[int](t)(db.Audit().Recover(t.Context()))
		if calls >= 0 && found != calls {
			t.Fatalf("%d calls are lost while their programs live", found)
		}
		if n := must[int](t)(db.Jobs().Recover(t.Context(), lost)); jobs >= 0 && n != jobs {
			t.Fatalf("%d jobs are lost while their programs live", n)
		}
		return found
	}
}

// until waits for something that happens within a bounded time.
func (k Kind) until(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !what(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}

// A program that was taken for dead and is not adds nothing: what it has begun is recorded as lost, once.
func takenForDead(t *testing.T, k Kind) {
	address := k.New(t)
	mine, other := k.open(t, address), k.open(t, address)
	r, accepted, scope := full(), aJob(false), [32]byte{3}
	err := errors.Join(mine.Audit().Begin(t.Context(), r), mine.Jobs().Add(t.Context(), accepted, manyJobs, manyJobs))
	if err != nil {
		t.Fatal(err)
	}
	jobs, outcomes := mine.Jobs(), mine.Outcomes()
	must[[]job.Job](t)(jobs.Claim(t.Context(), 1))
	must[idempotency.Claim](t)(outcomes.Claim(t.Context(), scope, scope, time.Minute))
	raw := k.Raw(t, address)
	for _, table := range []string{"audit_open", "job", "outcome"} { // as if it had been away for too long
		if _, err := raw.ExecContext(t.Context(), `UPDATE `+table+` SET owner = 'gone'`); err != nil {
			t.Fatal(err)
		}
	}
	if n := k.watch(t, other)(1, 1); n != 1 {
		t.Errorf("%d calls are lost", n)
	}
	if c := must[idempotency.Claim](t)(other.Outcomes().Claim(t.Context(), scope, scope, time.Minute)); !c.Lost {
		t.Errorf("%+v", c)
	}
	r.Begun = true
	if err := mine.Audit().Append(t.Context(), r, true); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("a record: %v", err)
	}
	if err := jobs.Settle(t.Context(), accepted.ID, 1, "done",
		[]byte(jobResult)); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("a accepted: %v", err)
	}
	if err := outcomes.Settle(t.Context(), scope, []byte(`{}`), time.Minute); err == nil {
		t.Error("an outcome that counts as lost was remembered")
	}
	if got := logOf(t, mine, audit.Filter{}); len(got) != 1 || got[0].Outcome != tool.OutcomeLost {
		t.Errorf("%+v", got)
	}
	sound(t, mine)
}

// claim claims a key for a moment and waits.
func (w *worker) claim() error {
	c, err := w.db.Outcomes().Claim(context.Background(), lostKey(), [32]byte{2}, time.Microsecond)
	if err != nil {
		return err
	}
	w.say("claimed %v", c.Mine)
	select {}
}

func lostKey() [32]byte { return [32]byte{1, 2, 3} }

// A call whose program was killed does not run again because time has passed: that it is lost is said first, and is
// remembered for as long as an outcome from then on.
func lostOutcome(t *testing.T, k Kind) {
	address := k.New(t)
	o := k.open(t, address).Outcomes()
	p := start(t, "claim", address)
	p.wait("claimed true")
	time.Sleep(time.Millisecond) // longer than the outcome would have been remembered
	p.kill()
	p.rest()
	_ = p.cmd.Wait()
	claim := func() idempotency.Claim {
		c := must[idempotency.Claim](t)(o.Claim(t.Context(), lostKey(), [32]byte{2}, 5*time.Second))
		if c.Mine {
			t.Fatal("a call that may have run is run again")
		}
		return c
	}
	k.until(t, func() bool { return claim().Lost })
	if c := must[idempotency.Claim](t)(k.open(t, address).Outcomes().Claim(t.Context(), lostKey(), [32]byte{2},
		time.Hour)); !c.Lost {
		t.Errorf("another program: %+v", c)
	}
	k.until(t, func() bool {
		return must[idempotency.Claim](t)(o.Claim(t.Context(), lostKey(), [32]byte{2}, time.Hour)).Mine
	})
}
