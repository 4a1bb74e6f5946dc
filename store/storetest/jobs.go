package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"toolpost/engine/job"
	"toolpost/store"
	"toolpost/tool"
)

const (
	manyJobs  = 1 << 20
	jobResult = `{"result":{"ok":true}}`
)

// aJob is one of ada's that waits.
func aJob(again bool) job.Job {
	return job.Job{
		ID: tool.NewID(), Caller: "ada", Tool: "t", Made: time.Now(), Again: again, Lease: "tok_x",
		Call: []byte(`{"tool":"t"}`),
	}
}

func find(t *testing.T, j *store.JobTable, id string) job.Job {
	t.Helper()
	x, _, err := j.Find(t.Context(), "ada", id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func jobLife(t *testing.T, k Kind) {
	ctx := t.Context()
	address := k.New(t)
	db := k.open(t, address)
	mine, other := db.Jobs(), k.open(t, address).Jobs()
	first, second := aJob(true), aJob(false)
	second.Made = first.Made.Add(time.Millisecond)
	for _, x := range []job.Job{second, first} {
		if err := mine.Add(ctx, x, 2, manyJobs); err != nil {
			t.Fatal(err)
		}
	}
	if err := mine.Add(ctx, aJob(true), 2, manyJobs); tool.CodeOf(err) != tool.CodeQuotaExceeded {
		t.Errorf("one too many of a caller: %v", err)
	}
	if err := mine.Add(ctx, aJob(true), manyJobs, 2); tool.CodeOf(err) != tool.CodeQuotaExceeded {
		t.Errorf("one too many in all: %v", err)
	}
	bad := aJob(true)
	bad.Caller = "a\x00"
	if err := mine.Add(ctx, bad, manyJobs, manyJobs); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Errorf("a caller that is not text: %v", err)
	}
	got := must[[]job.Job](t)(mine.Claim(ctx, 1))
	if len(got) != 1 || got[0].ID != first.ID || got[0].Lease != "tok_x" || string(got[0].Call) != string(first.Call) ||
		got[0].Attempts != 1 || !got[0].Again {
		t.Fatalf("the oldest comes first: %+v", got)
	}
	if rest := must[[]job.Job](t)(other.Claim(ctx, 9)); len(rest) != 1 || rest[0].ID != second.ID {
		t.Fatalf("what is begun is not begun again: %+v", rest)
	}
	jobEvents(t, mine, other, first.ID)
	if err := other.Settle(ctx, first.ID, 1, "done", []byte(jobResult)); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("who has not begun it settles it: %v", err)
	}
	if err := mine.Settle(ctx, first.ID, 2, "done", []byte(jobResult)); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("an attempt that never was: %v", err)
	}
	if err := mine.Settle(ctx, first.ID, 1, "done", []byte(jobResult)); err != nil {
		t.Error(err)
	}
	if x := find(t, other, first.ID); x.State != "done" || string(x.Outcome) != jobResult || x.Ended.IsZero() ||
		x.Began.IsZero() {
		t.Errorf("%+v", x)
	}
	if err := other.Settle(ctx, second.ID, 1, "queued", nil); err != nil {
		t.Error(err)
	}
	if x := find(t, mine, second.ID); x.State != "queued" || x.Attempts != 0 {
		t.Errorf("one that was put back: %+v", x)
	}
	jobsOfCallers(t, mine, first.ID, second.ID)
	if n := must[int](t)(mine.Expire(ctx, time.Now().Add(time.Hour))); n != 2 {
		t.Errorf("%d jobs are old", n)
	}
	if left := must[[]job.Job](t)(mine.All(ctx, "", 0)); len(left) != 0 {
		t.Errorf("%+v", left)
	}
}

func jobEvents(t *testing.T, mine, other *store.JobTable, id string) {
	t.Helper()
	for _, after := range []int{0, 2, 2} { // the last is what somebody does who was told that nobody knew
		if err := mine.Append(t.Context(), id, 1, after,
			[][]byte{[]byte(`{"a":"ä"}`), []byte(`{"b":"\u0000"}`)}); err != nil {
			t.Error(err)
		}
	}
	if err := other.Append(t.Context(), id, 1, 4, [][]byte{[]byte(`{}`)}); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("who has not begun it adds events: %v", err)
	}
	for after, want := range []string{"abab", "bab", "ab", "b", ""} {
		_, events, err := other.Find(t.Context(), "ada", id, int64(after), 10)
		text := ""
		for _, e := range events {
			text += string(e[2])
		}
		if err != nil || text != want {
			t.Errorf("after %d: %q, not %q, %v", after, text, want, err)
		}
	}
	if _, events, err := other.Find(t.Context(), "ada", id, 1, 2); err != nil || len(events) != 2 {
		t.Errorf("two at the most: %d, %v", len(events), err)
	}
}

// jobsOfCallers: one job has ended and one waits.
func jobsOfCallers(t *testing.T, j *store.JobTable, ended, waits string) {
	t.Helper()
	ctx := t.Context()
	for _, who := range []string{"eve", "", "a\x00", "%"} {
		_, _, err := j.Find(ctx, who, waits, 0, 0)
		_, cancel := j.Cancel(ctx, who, waits, nil)
		list, _ := j.List(ctx, who, "", 9)
		if tool.CodeOf(err) != tool.CodeNotFound || tool.CodeOf(cancel) != tool.CodeNotFound || len(list) != 0 {
			t.Errorf("%q: %v, %v, %+v", who, err, cancel, list)
		}
	}
	if whose := must[string](t)(j.Of(ctx, waits)); whose != "ada" {
		t.Error(whose)
	}
	if all := must[[]job.Job](t)(j.List(ctx, "ada", "", 9)); len(all) != 2 || all[0].ID != waits ||
		all[1].ID != ended || all[1].Outcome != nil {
		t.Errorf("%+v", all)
	}
	if some := must[[]job.Job](t)(j.All(ctx, "queued", 9)); len(some) != 1 || some[0].ID != waits {
		t.Errorf("%+v", some)
	}
	if _, err := j.Cancel(ctx, "ada", ended, nil); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("one that has ended: %v", err)
	}
	if x := must[job.Job](t)(j.Cancel(ctx, "ada", waits, []byte(`{"error":{}}`))); x.State != "cancelled" ||
		x.Ended.IsZero() {
		t.Errorf("%+v", x)
	}
}

// Each job is begun by one of four programs.
func jobsRaced(t *testing.T, k Kind) {
	address := k.New(t)
	jobs := k.open(t, address).Jobs()
	var ids []string
	for range Rounds(40, 300, 3000) {
		x := aJob(true)
		if err := jobs.Add(t.Context(), x, manyJobs, manyJobs); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, x.ID)
	}
	done := raceOver(t, address, nil, "work", "work", "work", "work")
	for _, id := range ids {
		if x := find(t, jobs, id); done[id] != "began" || x.State != "done" || x.Attempts != 1 {
			t.Errorf("%q by its program: %+v", done[id], x)
		}
	}
	if len(done) != len(ids) {
		t.Errorf("%d of %d jobs were begun", len(done), len(ids))
	}
}

// work begins jobs until there are none, and ends them.
func (w *worker) work() error {
	for {
		jobs, err := w.jobs.Claim(context.Background(), 3)
		if err != nil || len(jobs) == 0 {
			return err
		}
		for _, x := range jobs {
			w.say("began %s", x.ID)
			if err := w.jobs.Settle(context.Background(), x.ID, x.Attempts, "done", []byte(jobResult)); err != nil {
				return err
			}
		}
	}
}

// hold begins a job and waits.
func (w *worker) hold() error {
	jobs, err := w.jobs.Claim(context.Background(), 1)
	if err != nil {
		return err
	}
	w.say("began %d", len(jobs))
	select {}
}

// Jobs of a program that is gone are found, once, and those of one that lives are left alone.
func jobsFound(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	jobs, again := db.Jobs(), aJob(true)
	if err := jobs.Add(t.Context(), again, manyJobs, manyJobs); err != nil {
		t.Fatal(err)
	}
	p := start(t, "hold", address)
	p.wait("began 1")
	asked := 0
	decide := func(x job.Job) (string, []byte) {
		asked++
		if x.ID != again.ID || !x.Again || !x.Stop || x.Attempts != 1 || x.Tool != "t" {
			t.Errorf("%+v", x)
		}
		return "queued", nil
	}
	if n := must[int](t)(jobs.Recover(t.Context(), decide)); n != 0 || asked != 0 {
		t.Errorf("%d jobs are lost while their program lives", n)
	}
	if x := must[job.Job](t)(jobs.Cancel(t.Context(), "ada", again.ID, nil)); x.State != "running" || !x.Stop {
		t.Errorf("%+v", x)
	}
	if stops := must[[]string](t)(jobs.Stops(t.Context())); len(stops) != 0 {
		t.Errorf("a program is asked to end the jobs of another: %v", stops)
	}
	p.kill()
	p.rest()
	_ = p.cmd.Wait()
	k.until(t, func() bool { return must[int](t)(jobs.Recover(t.Context(), decide)) == 1 })
	if asked != 1 {
		t.Errorf("one job was found, %d decided about", asked)
	}
	if n := must[int](t)(k.open(t, address).Jobs().Recover(t.Context(), decide)); n != 0 {
		t.Errorf("%d jobs were found a second time", n)
	}
	if got := must[[]job.Job](t)(jobs.Claim(t.Context(), 9)); len(got) != 1 || got[0].Attempts != 2 ||
		got[0].Lease != "" || !got[0].Stop {
		t.Errorf("%+v", got)
	}
	if stops := must[[]string](t)(jobs.Stops(t.Context())); !slices.Equal(stops, []string{again.ID}) {
		t.Errorf("%v", stops)
	}
}

// oneJob adds a job, begins some that wait and ends them, and says so.
func (w *worker) oneJob(ctx context.Context) error {
	x := aJob(false)
	if err := w.jobs.Add(ctx, x, manyJobs, manyJobs); err != nil {
		return err
	}
	w.say("queued %s", x.ID)
	jobs, err := w.jobs.Claim(ctx, 2)
	if err != nil {
		return err
	}
	for _, x := range jobs {
		if err := w.jobs.Settle(ctx, x.ID, x.Attempts, "done", []byte(jobResult)); err != nil {
			return err
		}
		w.say("settled %s", x.ID)
	}
	return nil
}

// checkJobs: each acknowledged job is there, what was settled stays so, and none is stuck.
func checkJobs(t *testing.T, k Kind, db *store.DB, said map[string]string) {
	t.Helper()
	jobs := db.Jobs()
	states := map[string]string{}
	k.until(t, func() bool {
		must[int](t)(jobs.Recover(t.Context(), func(job.Job) (string, []byte) {
			return "lost", []byte(`{"error":{}}`)
		}))
		running := 0
		for _, x := range must[[]job.Job](t)(jobs.All(t.Context(), "", 0)) {
			if states[x.ID] = x.State; x.State == "running" {
				running++
			}
		}
		return running == 0
	})
	for id, word := range said {
		switch got := states[id]; {
		case got == "" || got == "running" || word == "settled" && got != "done":
			t.Errorf("job %s was %s, and is %q", id, word, got)
		}
	}
}
