package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"toolpost/engine/approval"
	"toolpost/engine/job"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/tool"
)

// anEntry returns an approval that waits.
func anEntry(again string) approval.Entry {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return approval.Entry{
		Approval: approval.Approval{
			ID: "apr_" + strings.ToLower(rand.Text())[:20], State: approval.Waiting, Tool: "rm", Source: "files", Tier: 3,
			Effects: []string{"writes"}, Origin: approval.Origin{Caller: "ada", Door: "http", Session: "s", Run: "r"}, Call: "c", Parent: "p",
			Args:    []byte(`{"path":"it's \\ \"a\"\n"}`),
			Touches: tool.Touches{Reads: []string{"/a"}, Writes: []string{"/b"}, Commands: [][]string{{"ls", "-l"}}},
			Walls:   "no network", Guarantees: tool.Guarantees{NoNetwork: true},
			Rules: []tool.ConsentRule{{
				Name: "rule", Reason: "why", Approvers: []tool.Glob{"owner", "b*"}, Self: true, Remember: []string{"hour"},
			}},
			Asked: now, Until: now.Add(time.Minute),
		},
		Ref: "files.rm", Bound: "bound", Input: "input", Key: again, Again: again, Patience: 60_000_000,
	}
}

func manyApprovals() approval.Bounds { return approval.Bounds{PerCaller: 100_000, All: 100_000} }

func approvals(t *testing.T, k Kind) {
	db, other := k.two(t)
	approvalsOf(t, db.Approvals(), other.Approvals())
	memory := new(store.Approvals)
	approvalsOf(t, memory, memory)
}

func approvalsOf(t *testing.T, mine, other approval.Store) {
	ctx := t.Context()
	first := anEntry("same")
	equal(t, must[approval.Entry](t)(mine.Add(ctx, first, manyApprovals())), first, "added")
	equal(t, must[approval.Entry](t)(other.Find(ctx, first.ID)), first, "found by another program")
	equal(t, must[approval.Entry](t)(other.Add(ctx, anEntry("same"), manyApprovals())), first, "the same call asks twice")
	_, err := other.Find(ctx, "apr_\x00")
	gives(t, err, tool.CodeNotFound, "an id that is none")
	_, err = mine.Change(ctx, "apr_none", func(*approval.Entry) error { return nil })
	gives(t, err, tool.CodeNotFound, "a change of one that is not there")
	_, err = mine.Add(ctx, anEntry("more"), approval.Bounds{PerCaller: 1, All: 9})
	gives(t, err, tool.CodeQuotaExceeded, "too many of a caller")
	foreign := anEntry("more")
	foreign.Caller = "eve"
	_, err = mine.Add(ctx, foreign, approval.Bounds{PerCaller: 9, All: 1})
	gives(t, err, tool.CodeQuotaExceeded, "too many in all")
	works(t, errOf(mine.Add(ctx, foreign, manyApprovals())))

	e, ok, err := other.Open(ctx, "same")
	needs(t, err == nil && ok && e.ID == first.ID, "picked up: %+v, %v", e, err)
	for _, none := range []string{"", "other"} {
		_, ok, err = other.Open(ctx, none)
		needs(t, err == nil && !ok, "picked up by %q: %v", none, err)
	}
	_, err = other.Change(ctx, first.ID, func(e *approval.Entry) error {
		e.State = approval.Denied
		return errors.New("no")
	})
	needs(t, err != nil, "a change that fails")
	equal(t, must[approval.Entry](t)(mine.Find(ctx, first.ID)), first, "after a change that failed")
	changed := must[approval.Entry](t)(other.Change(ctx, first.ID, func(e *approval.Entry) error {
		e.State, e.By, e.For, e.Again = approval.Approved, "bob", approval.ForArguments, ""
		return nil
	}))
	equal(t, must[approval.Entry](t)(mine.Find(ctx, first.ID)), changed, "after a change")
	_, ok, err = mine.Open(ctx, "same")
	needs(t, err == nil && !ok, "one that was used is picked up: %v", err)
	for _, c := range []struct {
		f    approval.Filter
		want []string
	}{
		{approval.Filter{}, []string{foreign.ID, first.ID}},
		{approval.Filter{Most: 1}, []string{foreign.ID}},
		{approval.Filter{Keep: func(e *approval.Entry) bool { return e.Caller == "ada" }, Most: 1}, []string{first.ID}},
		{approval.Filter{State: approval.Waiting}, []string{foreign.ID}},
		{approval.Filter{Remembered: true, Caller: "ada", Ref: "files.rm"}, []string{first.ID}},
		{approval.Filter{Remembered: true, Caller: "eve", Ref: "files.rm"}, nil},
		{approval.Filter{Remembered: true, Caller: "ada", Ref: "other.rm"}, nil},
	} {
		var got []string
		for _, e := range must[[]approval.Entry](t)(other.List(ctx, c.f)) {
			got = append(got, e.ID)
		}
		equal(t, got, c.want, "%+v", c.f)
	}
	for _, name := range []string{"a", "b"} {
		agent := anEntry(name)
		agent.Caller = tool.SelfPrefix + name
		if _, err = mine.Add(ctx, agent, approval.Bounds{PerCaller: 1, All: 9}); name == "b" {
			gives(t, err, tool.CodeQuotaExceeded, "agents that name themselves count as one")
		}
	}
}

// approve uses the approvals on stdin, as programs that share a store do.
func (w *worker) approve() {
	table := w.db.Approvals()
	w.race("used", func(id string) (refused bool, err error) {
		_, err = table.Change(context.Background(), id, func(e *approval.Entry) error {
			if e.State != approval.Waiting {
				return tool.Errorf(tool.CodeConflict, "it is %s", e.State)
			}
			e.State = approval.Used
			return nil
		})
		return tool.CodeOf(err) == tool.CodeConflict, err
	})
}

func approvalsRaced(t *testing.T, k Kind) {
	address, db := k.made(t)
	var ids []string
	for i := range rounds.Of(16, 5000) {
		e := must[approval.Entry](t)(db.Approvals().Add(t.Context(), anEntry(name("%d", i)), manyApprovals()))
		ids = append(ids, e.ID)
	}
	done := raceOver(t, address, ids, "approve", "approve", "approve", "approve")
	holds(t, len(done) == len(ids), "%d of %d approvals were used", len(done), len(ids))
}

// asking makes a job whose call waits for an approval.
func asking(t *testing.T, db *store.DB, jobs *store.JobTable) (x *job.Job, e approval.Entry) {
	t.Helper()
	added(t, jobs, false)
	x = begun(t, jobs)
	e = anEntry("job " + x.ID)
	e.Job = x.ID
	works(t, errOf(db.Approvals().Add(t.Context(), e, manyApprovals())))
	return x, e
}

func decided(t *testing.T, db *store.DB, id, state string) {
	t.Helper()
	works(t, errOf(db.Approvals().Change(t.Context(), id, func(e *approval.Entry) error {
		e.State = state
		return nil
	})))
}

func approvalsOfJobs(t *testing.T, k Kind) {
	ctx := t.Context()
	db, other := k.two(t)
	jobs := db.Jobs()
	woken := func(want int, what string) {
		t.Helper()
		equal(t, must[int](t)(other.Jobs().Wake(ctx, resumed)), want, "%s", what)
	}
	x, e := asking(t, db, jobs)
	decided(t, db, e.ID, approval.Approved)
	woken(0, "a job that runs")
	works(t, jobs.Settle(ctx, x, job.Asked, []byte(`{"ask":"another question"}`), nil))
	woken(0, "a job that waits for something else")
	x, e = asking(t, db, jobs)
	works(t, jobs.Settle(ctx, x, job.Asked, []byte(`{"ask":"`+e.ID+`"}`), nil))
	woken(0, "a job whose approval waits")
	_, err := other.Jobs().Wake(ctx, func([]byte, string) ([]byte, error) { return nil, errors.New("unreadable") })
	works(t, err)
	for _, state := range []string{approval.Approved, approval.Denied} {
		decided(t, db, e.ID, state)
		woken(1, state)
		woken(0, "woken twice")
		again := begun(t, jobs)
		needs(t, again.ID == x.ID && again.Attempts == 1 && string(again.Call) == `{"resume":"`+e.ID+`"}`, "%+v", again)
		x = again
		works(t, jobs.Settle(ctx, x, job.Asked, []byte(`{"ask":"`+e.ID+`"}`), nil))
	}
	decided(t, db, e.ID, approval.Used)
	woken(0, "a job that has used its approval")
	works(t, errOf(db.Approvals().Change(ctx, e.ID, func(e *approval.Entry) error {
		e.State, e.Until = approval.Waiting, time.Now().Add(-time.Second)
		return nil
	})))
	woken(1, "a job that waited in vain")
}

// resumed returns the call of a job with the id of its approval, as package job does.
func resumed(_ []byte, id string) ([]byte, error) { return []byte(`{"resume":"` + id + `"}`), nil }

// A run that was wrongly taken for dead does not end the run that goes on with its approval, even in the same program.
func approvalsTakenOver(t *testing.T, k Kind) {
	ctx := t.Context()
	address, db := k.made(t)
	jobs := db.Jobs()
	first, e := asking(t, db, jobs)
	decided(t, db, e.ID, approval.Approved)
	run(t, k.Raw(t, address), `UPDATE job SET owner = 'gone'`) // as if it had been away for too long
	until(t, func() bool { return must[int](t)(jobs.Recover(ctx, lost, resumed)) == 1 })
	second := begun(t, jobs)
	gives(t, jobs.Append(ctx, first, 0, [][]byte{[]byte(`{}`)}), tool.CodeConflict, "an event of the first run")
	gives(t, jobs.Settle(ctx, first, job.Asked, []byte(`{"ask":"`+e.ID+`"}`), nil), tool.CodeConflict, "its end")
	works(t, jobs.Settle(ctx, second, job.Done, []byte(jobResult), nil))
	equal(t, find(t, jobs, second.ID).State, job.Done)
}

func approvalsOfOrphans(t *testing.T, k Kind) {
	address, db := k.made(t)
	jobs := db.Jobs()
	never := func(x job.Job) (string, []byte) { return job.Lost, []byte(`{}`) }
	states := map[string]string{
		approval.Waiting: job.Queued, approval.Approved: job.Queued, approval.Denied: job.Queued, approval.Used: job.Lost,
	}
	entries := map[string]approval.Entry{}
	for state := range states {
		x := added(t, jobs, false)
		p := start(t, "hold", address)
		p.wait("began 1")
		e := anEntry("job " + x.ID)
		e.Job = x.ID
		works(t, errOf(db.Approvals().Add(t.Context(), e, manyApprovals())))
		decided(t, db, e.ID, state)
		entries[state] = e
		p.end()
	}
	found := 0
	until(t, func() bool {
		found += must[int](t)(jobs.Recover(t.Context(), never, resumed))
		return found == len(states)
	})
	resumes := map[string]string{}
	for state, want := range states {
		e := entries[state]
		equal(t, find(t, jobs, e.Job).State, want, "a job whose approval is %s", state)
		if want == job.Queued {
			resumes[e.Job] = `{"resume":"` + e.ID + `"}`
		}
	}
	for _, x := range must[[]job.Job](t)(jobs.Claim(t.Context(), 9, nil)) {
		needs(t, x.Attempts == 1 && string(x.Call) == resumes[x.ID],
			"it continues with its approval, as if for the first time: %+v", x)
		delete(resumes, x.ID)
		works(t, jobs.Settle(t.Context(), &x, job.Done, []byte(`{}`), nil))
	}
	equal(t, len(resumes), 0, "jobs that do not continue: %v", resumes)
}
