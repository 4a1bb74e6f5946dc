package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"toolpost/engine/job"
	"toolpost/plan"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// aPlan returns a plan of ada's that is about to run.
func aPlan(id string) plan.Record {
	return plan.Record{
		ID: id, Caller: "ada", Session: "s1", Prompt: "go\x00", Planner: "stub", Call: "call-" + id, Made: time.Now(),
		Counts: plan.Counts{Tools: 3}, Plan: []byte(`{"tools":["ä\u0000"]}`), Request: []byte(`{"tool":"plan.run"}`),
		Before: []byte(`[{"a":1}]`),
	}
}

func note(place int, state string) plan.Note {
	return plan.Note{Place: place, State: state, Doc: []byte(`{"s":"` + state + `"}`)}
}

func planLife(t *testing.T, k Kind) {
	ctx := t.Context()
	db, otherDB := k.two(t)
	mine, other := db.Plans(), otherDB.Plans()
	bad := aPlan("bad")
	bad.Caller = "a\x00"
	gives(t, mine.Begin(ctx, bad), tool.CodeInvalidInput, "a caller that is not text")
	works(t, mine.Begin(ctx, aPlan("one")))
	works(t, mine.Note(ctx, "one", []plan.Note{note(0, plan.Running), note(2, plan.Failed)}))
	works(t, mine.Note(ctx, "one", []plan.Note{note(0, plan.Success)}))
	gives(t, other.Note(ctx, "one", []plan.Note{note(1, plan.Success)}), tool.CodeConflict, "who has not begun it notes")
	gives(t, other.End(ctx, "one", plan.Done, []byte(`{}`), nil), tool.CodeConflict, "who has not begun it ends it")
	_, _, err := other.Adopt(ctx, "ada", "one", "c2")
	gives(t, err, tool.CodeConflict, "one whose program is there is adopted")
	r, notes, err := other.Of(ctx, "ada", "call-one")
	works(t, err)
	equal(t, notes, []plan.Note{note(0, plan.Success), note(2, plan.Failed)})
	holds(t, r.State == plan.Running && r.Session == "s1" && r.Planner == "stub" && string(r.Plan) == `{"tools":["ä\u0000"]}` &&
		string(r.Request) == `{"tool":"plan.run"}` && string(r.Before) == `[{"a":1}]` && r.Result == nil && r.Prompt == "go\ufffd",
		"%+v", r)
	works(t, mine.End(ctx, "one", plan.Failed, []byte(`{"success":false}`), []plan.Note{note(1, plan.Skipped)}))
	gives(t, mine.Note(ctx, "one", []plan.Note{note(1, plan.Success)}), tool.CodeConflict, "one that has ended")
	gives(t, mine.End(ctx, "one", plan.Done, nil, nil), tool.CodeConflict, "one that has ended ends")
	for _, who := range []string{"eve", "a\x00", "%"} {
		gives(t, errOf2(mine.Find(ctx, who, "one")), tool.CodeNotFound, "that of another caller")
		gives(t, errOf2(mine.Of(ctx, who, "call-one")), tool.CodeNotFound, "that of another caller, by its call")
		gives(t, errOf2(mine.Adopt(ctx, who, "one", "c")), tool.CodeNotFound, "that of another caller is adopted")
	}
	r, notes, err = other.Find(ctx, "", "one")
	holds(t, err == nil && r.State == plan.Failed && string(r.Result) == `{"success":false}` && !r.Ended.IsZero() &&
		len(r.Request) == 0 && len(notes) == 3, "%+v, %v", r, err)
	second := aPlan("two")
	second.Made, second.Session = second.Made.Add(time.Second), "s2"
	second.Plan = []byte(`{"requestId":"r2","title":"Two","narrative":"it has ,\"tools\":","tools":["` + strings.Repeat("x", 2000) + `"]}`)
	works(t, mine.Begin(ctx, second))
	plansListed(t, other)
	listed := must[[]plan.Record](t)(other.List(ctx, "ada", "s2", "", 10))
	holds(t, len(listed) == 1 && listed[0].RequestID == "r2" && listed[0].Title == "Two" && listed[0].Narrative == `it has ,"tools":` && listed[0].Plan == nil,
		"%+v", listed)
	r, _, err = other.Find(ctx, "ada", "two")
	holds(t, err == nil && r.RequestID == "r2" && len(r.Plan) > 2000, "%+v, %v", r, err)
	works(t, mine.End(ctx, "two", plan.Running, nil, nil), "it is handed back")
	r, _, err = other.Adopt(ctx, "ada", "two", "c2")
	holds(t, err == nil && r.Call == "c2", "%+v, %v", r, err)
	gives(t, mine.Note(ctx, "two", nil), tool.CodeConflict, "who handed it back notes")
	equal(t, must[int](t)(mine.Expire(ctx, time.Now().Add(time.Hour))), 1, "plans are old")
	gives(t, errOf2(mine.Find(ctx, "ada", "one")), tool.CodeNotFound, "one that is forgotten")
}

func errOf2[A, B any](_ A, _ B, err error) error { return err }

// plansListed: the newer of two plans is running, and the older one has failed.
func plansListed(t *testing.T, p *store.PlanTable) {
	t.Helper()
	for _, c := range []struct {
		caller, session, state string
		want                   string
	}{
		{"", "", "", "two one "}, {"ada", "", "", "two one "}, {"eve", "", "", ""}, {"ada", "s1", "", "one "},
		{"", "", plan.Running, "two "}, {"ada", "s2", plan.Failed, ""},
	} {
		got := ""
		for _, r := range must[[]plan.Record](t)(p.List(t.Context(), c.caller, c.session, c.state, 0)) {
			must[[]byte](t)(strictjson.Marshal(r))
			if got += r.ID + " "; r.ID == "one" {
				equal(t, r.Counts, plan.Counts{Tools: 3, Done: 1, Failed: 1, Skipped: 1})
			}
		}
		equal(t, got, c.want, "%+v", c)
	}
	equal(t, len(must[[]plan.Record](t)(p.List(t.Context(), "", "", "", 1))), 1)
}

// plan begins a plan, notes something of it, and waits.
func (w *worker) plan() {
	ctx := context.Background()
	w.works(w.db.Plans().Begin(ctx, aPlan("p")))
	w.works(w.db.Plans().Note(ctx, "p", []plan.Note{note(0, plan.Success), note(1, plan.Running)}))
	w.say("began")
	select {}
}

// A plan whose program is gone is found, gets a call that continues it, and is adopted by one program. While a job has
// it, it is left alone, and it ends with the job.
func plansFound(t *testing.T, k Kind) {
	address, db := k.made(t)
	plans, ctx := db.Plans(), t.Context()
	p := start(t, "plan", address)
	p.wait("began")
	ids := 0
	next := func() string { ids++; return name("next-%d", ids) }
	equal(t, len(must[[]plan.Record](t)(plans.Recover(ctx, next))), 0, "plans are found while their program lives")
	p.end()
	var found []plan.Record
	until(t, func() bool { found = must[[]plan.Record](t)(plans.Recover(ctx, next)); return len(found) > 0 })
	holds(t, len(found) == 1 && found[0].ID == "p" && found[0].Call == "next-1" && len(found[0].Request) > 0, "%+v", found)
	x := aJob(true)
	x.ID = found[0].Call
	works(t, db.Jobs().Add(ctx, x, manyJobs, manyJobs))
	equal(t, len(must[[]plan.Record](t)(plans.Recover(ctx, next))), 0, "one that a job has is found")
	r, notes, err := plans.Adopt(ctx, "ada", "p", x.ID)
	holds(t, err == nil && r.State == plan.Running && len(notes) == 2 && notes[1].State == plan.Running, "%+v, %v", notes, err)
	gives(t, errOf2(k.open(t, address).Plans().Adopt(ctx, "ada", "p", "other")), tool.CodeConflict, "it is adopted twice")
	works(t, plans.End(ctx, "p", plan.Running, nil, nil))
	must[job.Job](t)(db.Jobs().Cancel(ctx, "ada", x.ID, []byte(`{}`)))
	equal(t, len(must[[]plan.Record](t)(plans.Recover(ctx, next))), 0, "one whose job has ended is found")
	r, _, err = plans.Find(ctx, "", "p")
	holds(t, err == nil && r.State == plan.Cancelled, "%+v, %v", r, err)
}
