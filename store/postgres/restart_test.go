package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/job"
	"toolpost/engine/persist"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/store/postgres"
	"toolpost/tool"
)

// A load writes until it is stopped, and retries what could not be written, as the stages do.
type load struct {
	db   *store.DB
	jobs *store.JobTable

	mu      sync.Mutex
	records map[string]bool // calls whose records were added
	settled map[string]bool
	longest time.Duration // the longest wait for an answer
	unclear int
}

func newLoad(db *store.DB) *load {
	return &load{db: db, jobs: db.Jobs(), records: map[string]bool{}, settled: map[string]bool{}}
}

func TestARestartOfTheServerUnderLoadLosesAndDoublesNothing(t *testing.T) {
	s := pg.New(t)
	db, err := postgres.Open(s.Database(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l := newLoad(db)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() { l.record(ctx, t, i) })
	}
	for range 4 {
		work.Go(func() { l.run(ctx, t) })
	}
	for n := range rounds.Of(4, 60) {
		l.goOn(t)
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond) // the moment is the point
		s.Stop([]syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}[n%2])
		s.Start(t)
	}
	l.goOn(t)
	stop()
	work.Wait()
	l.check(t)
}

// goOn waits until something is written again.
func (l *load) goOn(t *testing.T) {
	t.Helper()
	count := func() (records, jobs int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.records), len(l.settled)
	}
	records, jobs := count()
	kit.Eventually(t, "something is written again", func() bool {
		r, j := count()
		return r >= records+10 && j > jobs
	})
}

// again retries until the store accepts a write.
func (l *load) again(t *testing.T, what string, write func() error) bool {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		begun := time.Now()
		err := write()
		l.mu.Lock()
		l.longest = max(l.longest, time.Since(begun))
		if e := tool.AsError(err); e != nil && e.Reason == persist.Unclear {
			l.unclear++
		}
		l.mu.Unlock()
		if !persist.Away(err) || time.Now().After(end) {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			return err == nil
		}
	}
}

// record makes calls that change something: a note, and a record.
func (l *load) record(ctx context.Context, t *testing.T, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		r := &tool.Record{
			Time: time.Now(), Call: fmt.Sprintf("%d-%d", worker, n), Tool: "t", Caller: "ada", Outcome: tool.OutcomeOK,
		}
		if n%2 == 0 {
			if l.db.Audit().Begin(context.Background(), r) != nil {
				continue // it is not run
			}
			r.Begun = true
		}
		if l.again(t, "a record", func() error { return l.db.Audit().Append(context.Background(), r, r.Begun) }) {
			l.mu.Lock()
			l.records[r.Call] = true
			l.mu.Unlock()
		}
	}
}

// run adds jobs, begins some and ends them.
func (l *load) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		x := job.Job{ID: tool.NewID(), Caller: "ada", Tool: "t", Made: time.Now(), Call: []byte(`{}`)}
		_ = l.jobs.Add(context.Background(), x, 1<<20, 1<<20) // an error is ignored: the job may be missing
		var begun []job.Job
		if !l.again(t, "a claim", func() (err error) { begun, err = l.jobs.Claim(context.Background(), 3, nil); return err }) {
			return
		}
		for _, x := range begun {
			events := func(after int) func() error {
				return func() error {
					return l.jobs.Append(context.Background(), &x, after, [][]byte{[]byte(`1`), []byte(`2`)})
				}
			}
			settle := func() error {
				return l.jobs.Settle(context.Background(), &x, "done", []byte(`{}`), nil)
			}
			if l.again(t, "events", events(0)) && l.again(t, "events", events(2)) && l.again(t, "a job's end", settle) {
				l.mu.Lock()
				l.settled[x.ID] = true
				l.mu.Unlock()
			}
		}
	}
}

func (l *load) check(t *testing.T) {
	rows := map[string]int{}
	count := func(r *tool.Record) error { rows[r.Call]++; return nil }
	kit.OK(t, l.db.Audit().Log(t.Context(), audit.Filter{}, false, count))
	for call, n := range rows {
		if n != 1 {
			t.Errorf("call %s has %d rows", call, n)
		}
	}
	for call := range l.records {
		if rows[call] == 0 {
			t.Errorf("call %s has no row", call)
		}
	}
	report, err := l.db.Audit().Verify(t.Context())
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("%v, %+v", err, report)
	}
	jobs, err := l.jobs.All(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range jobs {
		_, events, err := l.jobs.Find(t.Context(), "ada", x.ID, 0, 100)
		if err != nil || x.State == "running" || x.State == "done" && len(events) != 4 {
			t.Errorf("a job is %s with %d events, %v", x.State, len(events), err)
		}
	}
	if len(l.records) < 50 || len(l.settled) < 5 || l.longest > time.Minute {
		t.Errorf("%d records, %d jobs, and somebody waited %v for a word", len(l.records), len(l.settled), l.longest)
	}
	t.Logf("%d records, %d jobs; %d times it was unclear whether a write happened; the longest wait was %v",
		len(l.records), len(l.settled), l.unclear, l.longest)
}
