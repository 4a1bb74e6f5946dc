package storetest

import (
	"context"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/job"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/tool"
)

const (
	manyJobs  = 1 << 20
	jobResult = `{"result":{"ok":true}}`
)

// aJob returns a waiting job of ada's.
func aJob(again bool) job.Job {
	return job.Job{
		ID: tool.NewID(), Caller: "ada", Tool: "t", Made: time.Now(), Again: again, Lease: "tok_x",
		Call: []byte(`{"tool":"t"}`),
	}
}

// added adds such a job.
func added(t *testing.T, j *store.JobTable, again bool) job.Job {
	t.Helper()
	x := aJob(again)
	works(t, j.Add(t.Context(), x, manyJobs, manyJobs))
	return x
}

// begun begins the oldest waiting job.
func begun(t *testing.T, j *store.JobTable) *job.Job {
	t.Helper()
	jobs := must[[]job.Job](t)(j.Claim(t.Context(), 1, nil))
	needs(t, len(jobs) == 1, "no job waits")
	return &jobs[0]
}

func find(t *testing.T, j *store.JobTable, id string) job.Job {
	t.Helper()
	x, _, err := j.Find(t.Context(), "ada", id, 0, 0)
	works(t, err)
	return x
}

func jobQuestions(t *testing.T, k Kind) {
	ctx := t.Context()
	db, other := k.two(t)
	mine, theirs := db.Jobs(), other.Jobs()
	added(t, mine, false)
	x := begun(t, mine)
	_, err := mine.Asked(ctx, "ada", x.ID)
	gives(t, err, tool.CodeConflict, "one that runs")
	works(t, mine.Settle(ctx, x, job.Asked, []byte(`{"q":1}`), nil))
	_, err = theirs.Asked(ctx, "eve", x.ID)
	gives(t, err, tool.CodeNotFound, "that of another caller")
	got := must[job.Job](t)(theirs.Asked(ctx, "ada", x.ID))
	needs(t, string(got.Call) == string(x.Call) && string(got.Outcome) == `{"q":1}` && !got.Ended.IsZero(), "it waits: %+v", got)
	got = must[job.Job](t)(theirs.Answer(ctx, "ada", x.ID, got.Outcome, nil, []byte(`{"q":2}`), ""))
	needs(t, got.State == job.Asked && string(got.Outcome) == `{"q":2}`, "a part of the answer is kept: %+v", got)
	_, err = mine.Answer(ctx, "ada", x.ID, []byte(`{"q":1}`), []byte(`{}`), nil, "")
	gives(t, err, tool.CodeConflict, "an answer to what it asked before")
	_, err = mine.Answer(ctx, "eve", x.ID, []byte(`{"q":2}`), []byte(`{}`), nil, "")
	gives(t, err, tool.CodeNotFound, "an answer of another caller")
	got = must[job.Job](t)(mine.Answer(ctx, "ada", x.ID, []byte(`{"q":2}`), []byte(`{"tool":"t","answers":1}`), nil, "tok_y"))
	needs(t, got.State == job.Queued && got.Outcome == nil && got.Ended.IsZero(), "it waits to be run: %+v", got)
	_, err = theirs.Answer(ctx, "ada", x.ID, []byte(`{"q":2}`), []byte(`{}`), nil, "")
	gives(t, err, tool.CodeConflict, "an answer to one that was answered")
	again := must[[]job.Job](t)(theirs.Claim(ctx, 1, nil))
	needs(t, len(again) == 1 && string(again[0].Call) == `{"tool":"t","answers":1}` && again[0].Attempts == 1 && again[0].Lease == "tok_y",
		"it is begun with the answer: %+v", again)
	works(t, theirs.Settle(ctx, &again[0], job.Asked, []byte(`{"q":3}`), nil))
	got = must[job.Job](t)(mine.Cancel(ctx, "ada", x.ID, []byte(`{}`)))
	needs(t, got.State == job.Cancelled, "one that asked can be cancelled: %+v", got)
}

func jobLife(t *testing.T, k Kind) {
	ctx := t.Context()
	db, otherDB := k.two(t)
	mine, other := db.Jobs(), otherDB.Jobs()
	first, second := aJob(true), aJob(false)
	second.Made = first.Made.Add(time.Millisecond)
	for _, x := range []job.Job{second, first} {
		works(t, mine.Add(ctx, x, 2, manyJobs))
	}
	gives(t, mine.Add(ctx, aJob(true), 2, manyJobs), tool.CodeQuotaExceeded, "one too many of a caller")
	gives(t, mine.Add(ctx, aJob(true), manyJobs, 2), tool.CodeQuotaExceeded, "one too many in all")
	bad := aJob(true)
	bad.Caller = "a\x00"
	gives(t, mine.Add(ctx, bad, manyJobs, manyJobs), tool.CodeInvalidInput, "a caller that is not text")
	got := must[[]job.Job](t)(mine.Claim(ctx, 1, nil))
	needs(t, len(got) == 1 && got[0].ID == first.ID && got[0].Lease == "tok_x" &&
		string(got[0].Call) == string(first.Call) && got[0].Attempts == 1 && got[0].Again,
		"the oldest comes first: %+v", got)
	rest := must[[]job.Job](t)(other.Claim(ctx, 9, nil))
	needs(t, len(rest) == 1 && rest[0].ID == second.ID, "what is begun is not begun again: %+v", rest)
	jobEvents(t, mine, other, &got[0])
	gives(t, other.Settle(ctx, &got[0], "done", []byte(jobResult), nil), tool.CodeConflict,
		"who has not begun it settles it")
	wrong := got[0]
	wrong.Began = wrong.Began.Add(time.Microsecond)
	gives(t, mine.Settle(ctx, &wrong, "done", []byte(jobResult), nil), tool.CodeConflict, "a beginning that never was")
	works(t, mine.Settle(ctx, &got[0], "done", []byte(jobResult), nil))
	x := find(t, other, first.ID)
	holds(t, x.State == "done" && string(x.Outcome) == jobResult && !x.Ended.IsZero() && !x.Began.IsZero(), "%+v", x)
	works(t, other.Settle(ctx, &rest[0], "queued", nil, nil))
	x = find(t, mine, second.ID)
	holds(t, x.State == "queued" && x.Attempts == 0, "one that was put back: %+v", x)
	jobsOfCallers(t, mine, first.ID, second.ID)
	equal(t, must[int](t)(mine.Expire(ctx, time.Now().Add(time.Hour))), 2, "jobs are old")
	equal(t, must[[]job.Job](t)(mine.All(ctx, "", 0)), []job.Job{})
}

// The end of a job and the record of its call are written together: if the record is refused, the job has not ended.
func jobRecorded(t *testing.T, k Kind) {
	ctx := t.Context()
	address, db := k.made(t)
	raw, jobs := k.Raw(t, address), db.Jobs()
	noted := func() (x *job.Job, r *tool.Record) {
		t.Helper()
		added(t, jobs, false)
		x, r = begun(t, jobs), full()
		r.Call = x.ID
		works(t, db.Audit().Begin(ctx, r))
		r.Begun = true
		return x, r
	}
	x, r := noted()
	heads := readTables(t, raw, "audit_head")
	run(t, raw, `UPDATE audit_head SET mac = hash`)
	together(9, func(i int) { // in one group with writes that are not refused
		if i > 0 {
			works(t, db.Sessions().Patch(context.Background(), "ada", "s", []object{{name("k%d", i): true}}))
			return
		}
		err := jobs.Settle(context.Background(), x, job.Done, []byte(jobResult), r)
		gives(t, err, tool.CodeUnavailable, "the log is forged")
	})
	equal(t, find(t, jobs, x.ID).State, job.Running, "without its record")
	putBack(t, raw, heads...)
	works(t, jobs.Settle(ctx, x, job.Done, []byte(jobResult), r))
	equal(t, find(t, jobs, x.ID).State, job.Done)
	x, r = noted()
	run(t, raw, `UPDATE job SET owner = 'another'`)
	err := jobs.Settle(ctx, x, job.Done, []byte(jobResult), r)
	gives(t, err, tool.CodeConflict, "another program has taken it")
	equal(t, len(logOf(t, db, audit.Filter{})), 2, "records of calls that ran")
	sound(t, db)
}

func jobNeeds(t *testing.T, k Kind) {
	ctx := t.Context()
	db, other := k.two(t)
	for _, needs := range []string{"d a", " b", "d c", "d ä", "d a"} {
		x := aJob(true)
		x.Needs = needs
		works(t, db.Jobs().Add(ctx, x, manyJobs, manyJobs))
	}
	some := must[[]job.Job](t)(db.Jobs().Claim(ctx, 9, func(needs string) bool { return needs == "d a" || needs == " b" || needs == "d ä" }))
	holds(t, len(some) == 4 && some[1].Needs == " b", "%+v", some)
	equal(t, must[[]job.Job](t)(db.Jobs().Claim(ctx, 9, func(string) bool { return false })), nil, "what it cannot run")
	rest := must[[]job.Job](t)(other.Jobs().Claim(ctx, 9, nil))
	holds(t, len(rest) == 1 && rest[0].Needs == "d c", "%+v", rest)
}

// A program that is stopped by another, or that others made jobs for, hears of it.
func jobsHeard(t *testing.T, k Kind) {
	db, other := k.two(t)
	mine, theirs := db.Jobs(), other.Jobs()
	x := added(t, mine, true)
	must[[]job.Job](t)(mine.Claim(t.Context(), 1, nil))
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan bool, 64), make(chan bool)
	go func() { db.Listen(ctx, func() { heard <- true }); close(ended) }()
	<-heard // it listens
	must[job.Job](t)(theirs.Cancel(t.Context(), "ada", x.ID, nil))
	<-heard
	equal(t, must[[]string](t)(mine.Stops(t.Context())), []string{x.ID})
	other.Ring(t.Context())
	<-heard
	cancel()
	<-ended
}

func jobEvents(t *testing.T, mine, other *store.JobTable, x *job.Job) {
	t.Helper()
	for _, after := range []int{0, 2, 2} { // the last repeats a write after an unclear outcome
		works(t, mine.Append(t.Context(), x, after, [][]byte{[]byte(`{"a":"ä"}`), []byte(`{"b":"\u0000"}`)}))
	}
	gives(t, other.Append(t.Context(), x, 4, [][]byte{[]byte(`{}`)}), tool.CodeConflict,
		"who has not begun it adds events")
	for after, want := range []string{"abab", "bab", "ab", "b", ""} {
		_, events, err := other.Find(t.Context(), "ada", x.ID, int64(after), 10)
		text := ""
		for _, e := range events {
			text += string(e[2])
		}
		holds(t, err == nil && text == want, "after %d: %q, not %q, %v", after, text, want, err)
	}
	_, events, err := other.Find(t.Context(), "ada", x.ID, 1, 2)
	holds(t, err == nil && len(events) == 2, "two at the most: %d, %v", len(events), err)
}

// jobsOfCallers: one job has ended and one waits.
func jobsOfCallers(t *testing.T, j *store.JobTable, ended, waits string) {
	t.Helper()
	ctx := t.Context()
	for _, who := range []string{"eve", "", "a\x00", "%"} {
		_, _, err := j.Find(ctx, who, waits, 0, 0)
		_, cancel := j.Cancel(ctx, who, waits, nil)
		list, _ := j.List(ctx, who, "", 9)
		holds(t, tool.CodeOf(err) == tool.CodeNotFound && tool.CodeOf(cancel) == tool.CodeNotFound && len(list) == 0,
			"%q: %v, %v, %+v", who, err, cancel, list)
	}
	equal(t, must[string](t)(j.Of(ctx, waits)), "ada")
	all := must[[]job.Job](t)(j.List(ctx, "ada", "", 9))
	holds(t, len(all) == 2 && all[0].ID == waits && all[1].ID == ended && all[1].Outcome == nil, "%+v", all)
	some := must[[]job.Job](t)(j.All(ctx, "queued", 9))
	holds(t, len(some) == 1 && some[0].ID == waits, "%+v", some)
	gives(t, errOf(j.Cancel(ctx, "ada", ended, nil)), tool.CodeConflict, "one that has ended")
	x := must[job.Job](t)(j.Cancel(ctx, "ada", waits, []byte(`{"error":{}}`)))
	holds(t, x.State == "cancelled" && !x.Ended.IsZero(), "%+v", x)
}

// Each job is begun by one of four programs.
func jobsRaced(t *testing.T, k Kind) {
	address, db := k.made(t)
	jobs := db.Jobs()
	var ids []string
	for range rounds.Of(40, 3000) {
		ids = append(ids, added(t, jobs, true).ID)
	}
	done := raceOver(t, address, nil, "work", "work", "work", "work")
	for _, id := range ids {
		x := find(t, jobs, id)
		holds(t, done[id] == "began" && x.State == "done" && x.Attempts == 1, "%q by its program: %+v", done[id], x)
	}
	holds(t, len(done) == len(ids), "%d of %d jobs were begun", len(done), len(ids))
}

// work begins jobs until there are none, and ends them.
func (w *worker) work() {
	for ctx := context.Background(); ; {
		jobs, err := w.jobs.Claim(ctx, 3, nil)
		if w.works(err); len(jobs) == 0 {
			return
		}
		for _, x := range jobs {
			w.say("began %s", x.ID)
			w.works(w.jobs.Settle(ctx, &x, "done", []byte(jobResult), nil))
		}
	}
}

// hold begins a job and waits.
func (w *worker) hold() {
	jobs, err := w.jobs.Claim(context.Background(), 1, nil)
	w.works(err)
	w.say("began %d", len(jobs))
	select {}
}

// Jobs of a program that is gone are found, once, and those of a living program are left alone.
func jobsFound(t *testing.T, k Kind) {
	address, db := k.made(t)
	jobs := db.Jobs()
	again := added(t, jobs, true)
	p := start(t, "hold", address)
	p.wait("began 1")
	asked := 0
	decide := func(x job.Job) (string, []byte) {
		asked++
		holds(t, x.ID == again.ID && x.Again && x.Stop && x.Attempts == 1 && x.Tool == "t", "%+v", x)
		return "queued", nil
	}
	equal(t, must[int](t)(jobs.Recover(t.Context(), decide, resumed)), 0, "jobs are lost while their program lives")
	equal(t, asked, 0, "jobs are decided about while their program lives")
	x := must[job.Job](t)(jobs.Cancel(t.Context(), "ada", again.ID, nil))
	holds(t, x.State == "running" && x.Stop, "%+v", x)
	equal(t, must[[]string](t)(jobs.Stops(t.Context())), []string{}, "a program is asked to end the jobs of another")
	p.end()
	until(t, func() bool { return must[int](t)(jobs.Recover(t.Context(), decide, resumed)) == 1 })
	equal(t, asked, 1, "one job was found, and so many decided about")
	equal(t, must[int](t)(k.open(t, address).Jobs().Recover(t.Context(), decide, resumed)), 0, "jobs were found a second time")
	got := must[[]job.Job](t)(jobs.Claim(t.Context(), 9, nil))
	holds(t, len(got) == 1 && got[0].Attempts == 2 && got[0].Lease == "" && got[0].Stop, "%+v", got)
	equal(t, must[[]string](t)(jobs.Stops(t.Context())), []string{again.ID})
}

// oneJob adds a job, begins some waiting ones and ends them, and reports it.
func (w *worker) oneJob(ctx context.Context) {
	x := aJob(false)
	w.works(w.jobs.Add(ctx, x, manyJobs, manyJobs))
	w.say("queued %s", x.ID)
	jobs, err := w.jobs.Claim(ctx, 2, nil)
	w.works(err)
	for _, x := range jobs {
		w.works(w.jobs.Settle(ctx, &x, "done", []byte(jobResult), nil))
		w.say("settled %s", x.ID)
	}
}

// checkJobs: each acknowledged job exists, settled jobs stay so, and none is stuck.
func checkJobs(t *testing.T, db *store.DB, said map[string]string) {
	t.Helper()
	jobs := db.Jobs()
	states := map[string]string{}
	until(t, func() bool {
		must[int](t)(jobs.Recover(t.Context(), lost, resumed))
		running := 0
		for _, x := range must[[]job.Job](t)(jobs.All(t.Context(), "", 0)) {
			if states[x.ID] = x.State; x.State == "running" {
				running++
			}
		}
		return running == 0
	})
	for id, word := range said {
		got := states[id]
		holds(t, got == "done" || word != "settled" && got != "" && got != "running", "job %s was %s, and is %q", id,
			word, got)
	}
}
