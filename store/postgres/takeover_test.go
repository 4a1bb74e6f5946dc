package postgres_test

import (
	"syscall"
	"testing"
	"time"

	"toolpost/engine/job"
	"toolpost/engine/persist"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/store"
	"toolpost/tool"
)

// The lock of one program goes, and the program does not come back: what it has begun is taken over within ten seconds by programs that
// look as often as dispatchers of jobs do.
func TestJobsOfAProgramThatIsGoneAreTakenOverWithinTheGrace(t *testing.T) {
	const grace, look = 10 * time.Second, time.Second
	address := pg.New(t).Database(t)
	w, through := newWire(t, address)
	db, begins := open(t, address, store.Options{}), open(t, through, store.Options{})
	begun(t, db, begins)
	recovered := recovery(t, db)
	for here := time.Now(); time.Since(here) < grace; time.Sleep(look) {
		n, err := recovered()
		kit.OK(t, err)
		kit.Equal(t, n, 0, "its program lives")
	}
	w.cut.Store(true)
	defer w.cut.Store(false) // so that it ends in good order
	kit.Equal(t, number(t, address, `SELECT COUNT(pg_terminate_backend(pid)) FROM pg_locks
		WHERE locktype = 'advisory' AND mode = 'ShareLock' AND (classid::bigint << 32 | objid::bigint) = `+begins.Owner), 1)
	gone := time.Now()
	for kit.Must(recovered())(t) == 0 {
		time.Sleep(look)
	}
	took := time.Since(gone)
	t.Log("taken over after", took)
	if took > grace {
		t.Errorf("it took %v", took)
	}
}

// After the server was away, a program that comes back to it later than others keeps what it has begun.
func TestProgramThatComesBackLaterThanOthersKeepsItsJobs(t *testing.T) {
	const grace, look = 5 * time.Second, 100 * time.Millisecond
	s := pg.New(t)
	address := s.Database(t)
	w, through := newWire(t, address)
	db, late := open(t, address, store.Options{Grace: grace}), open(t, through, store.Options{})
	x, jobs := begun(t, db, late)
	recovered := recovery(t, db)
	for here := time.Now(); time.Since(here) < grace; time.Sleep(look) {
		kit.Equal(t, kit.Must(recovered())(t), 0, "its program lives")
	}
	w.cut.Store(true)
	s.Stop(syscall.SIGINT)
	s.Start(t)
	kit.OK(t, patch(db, "a"))
	for back := time.Now(); time.Since(back) < grace*4/5; time.Sleep(look) {
		n, err := recovered()
		kit.Equal(t, n, 0, "others have had the time to come back")
		kit.Equal(t, err == nil || persist.Away(err), true, err)
	}
	w.cut.Store(false)
	kit.OK(t, jobs.Settle(t.Context(), x, job.Done, []byte(`{}`), nil))
}

// begun lets a program begin a job.
func begun(t *testing.T, adds, begins *store.DB) (*job.Job, *store.JobTable) {
	t.Helper()
	x := job.Job{ID: tool.NewID(), Caller: "ada", Tool: "t", Made: time.Now(), Call: []byte(`{}`), Again: true}
	kit.OK(t, adds.Jobs().Add(t.Context(), x, 9, 9))
	jobs := begins.Jobs()
	all := kit.Must(jobs.Claim(t.Context(), 1, nil))(t)
	kit.Equal(t, len(all), 1)
	return &all[0], jobs
}

// recovery returns a function that looks once for jobs of programs that are gone.
func recovery(t *testing.T, db *store.DB) func() (int, error) {
	jobs, decide := db.Jobs(), func(job.Job) (string, []byte) { return job.Queued, nil }
	resume := func(call []byte, _ string) ([]byte, error) { return call, nil }
	return func() (int, error) { return jobs.Recover(t.Context(), decide, resume) }
}
