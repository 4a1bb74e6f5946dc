package stormfleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
)

// sound is the evidence of a storm that broke no promise.
func sound() evidence {
	began := time.Unix(1_700_000_000, 0)
	at := func(millis int) time.Time { return began.Add(time.Duration(millis) * time.Millisecond) }
	h, e := &history{}, evidence{kills: map[string][]time.Time{}}
	e.history = h
	add := func(tool, id string, key bool, how, said, why string) {
		n := len(h.attempts)
		a := attempt{
			id: id, call: fmt.Sprintf("%s-%d", id, n), tool: tool, door: "http", hub: "hub-1", key: key,
			begun: at(1000 * n), ended: at(1000*n + 20), how: how, said: said, why: why,
		}
		h.attempts = append(h.attempts, a)
		if how == ran {
			e.records = append(e.records, record{Call: a.call, Tool: tool})
		}
	}
	trace := func(tool, id, said string) {
		e.traces = append(e.traces, trace{tool, id, said, "worker-1", at(1000*len(h.attempts) - 990)})
	}
	add("read", "r", false, ran, "ran:r:1", "")
	trace("read", "r", "ran:r:1")
	trace("read", "r", "ran:r:2") // it may run again
	add("mark", "k", true, silent, "", "no answer in time")
	add("mark", "k", true, unknown, "", "conflict idempotency_unknown")
	add("mark", "k", true, ran, "ran:k:1", "")
	trace("mark", "k", "ran:k:1")
	add("mark", "k", true, ran, "ran:k:1", "")
	add("startJob", "j", true, ran, "job-1", "")
	trace("mark", "j", "ran:j:1")
	h.jobs = []begunJob{{id: "j", tool: "mark", job: "job-1", state: "done"}}
	e.records = append(e.records, record{Call: "job-1", Tool: "mark"})
	for i := range 20 {
		id := fmt.Sprint("m", i)
		add("meter", id, false, ran, "ran:"+id+":1", "")
		trace("meter", id, "ran:"+id+":1")
	}
	h.plans = []begunPlan{{id: "p", how: ran}}
	for i := range 3 {
		trace("mark", fmt.Sprint("p-", i), fmt.Sprint("ran:p:", i))
	}
	h.pays = []payment{{id: "yes", approval: "apr_1", yes: true, how: ran}, {id: "no", approval: "apr_2", how: refused}}
	trace("pay", "yes", "ran:yes:1")
	var body strings.Builder
	for n := range lines {
		fmt.Fprintf(&body, "id: %d\nevent: log\ndata: {\"fields\":{\"n\":%d}}\n\n", n+1, n)
	}
	body.WriteString("event: result\ndata: {\"ok\":true}\n\n")
	h.streams = []stream{streamOf("s", body.String())}
	return e
}

// Each check finds what it is for, and nothing else is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	kit.Equal(t, len(sound().judged()), 0, sound().judged())
	plants := map[string]struct {
		promise string
		plant   func(e *evidence)
	}{
		"a line that is there twice": {"nothing runs twice that must not", func(e *evidence) {
			i := slices.IndexFunc(e.traces, func(l trace) bool { return l.id == "k" })
			e.traces = append(e.traces, e.traces[i])
		}},
		"another outcome for a key": {"a key has one outcome", func(e *evidence) {
			e.attempts[4].said = "ran:r:2"
		}},
		"an outcome that is forgotten": {"a key has one outcome", func(e *evidence) {
			e.attempts[4].how, e.attempts[4].said, e.attempts[4].why = unknown, "", "conflict idempotency_unknown"
		}},
		"a failure after an outcome": {"a key has one outcome", func(e *evidence) {
			e.attempts[4].how, e.attempts[4].said = failed, "failed"
		}},
		"another job for a key": {"a key has one outcome", func(e *evidence) {
			a := e.attempts[5]
			a.said = "job-2"
			e.attempts = append(e.attempts, a)
		}},
		"an outcome that no tool gave": {"what was answered is what ran", func(e *evidence) {
			e.attempts[0].said = "ran:r:3"
		}},
		"a tool of a plan that did not run": {"what was answered is what ran", func(e *evidence) {
			e.traces = slices.DeleteFunc(e.traces, func(l trace) bool { return l.id == "p-1" })
		}},
		"a record that is missing": {"no acknowledged call is lost", func(e *evidence) {
			e.records = slices.DeleteFunc(e.records, func(r record) bool { return r.Call == e.attempts[3].call })
		}},
		"a record of a read that is missing without a reason": {"no acknowledged call is lost", func(e *evidence) {
			e.records = slices.DeleteFunc(e.records, func(r record) bool { return r.Call == e.attempts[0].call })
		}},
		"a job that nobody knows": {"no acknowledged job is lost", func(e *evidence) { e.jobs[0].state = `{"ok":false}` }},
		"a job that never ends":   {"no acknowledged job is lost", func(e *evidence) { e.jobs[0].state = "running" }},
		"a job without a record": {"no acknowledged job is lost", func(e *evidence) {
			e.records = slices.DeleteFunc(e.records, func(r record) bool { return r.Call == "job-1" })
		}},
		"a lost job that ran, without a record": {"no acknowledged job is lost", func(e *evidence) {
			e.jobs[0].state = "lost"
			e.records = slices.DeleteFunc(e.records, func(r record) bool { return r.Call == "job-1" })
		}},
		"a job that is done and did nothing": {"no acknowledged job is lost", func(e *evidence) {
			e.traces = slices.DeleteFunc(e.traces, func(l trace) bool { return l.id == "j" })
		}},
		"a job that could have run again": {"no acknowledged job is lost", func(e *evidence) {
			e.jobs[0].tool, e.jobs[0].state = "put", "lost"
		}},
		"an event that is missing":    {"events come without gaps", func(e *evidence) { e.streams[0].ids[7]++ }},
		"a line that was not told":    {"events come without gaps", func(e *evidence) { e.streams[0].told[7]++ }},
		"an end that was not told":    {"events come without gaps", func(e *evidence) { e.streams[0].told = e.streams[0].told[:12] }},
		"calls that are too many":     {"a quota is never exceeded", func(e *evidence) { e.quicken() }},
		"a denied call that ran":      {"a decision about an approval counts", func(e *evidence) { e.pays[0].yes = false }},
		"an approved one that didn't": {"a decision about an approval counts", func(e *evidence) { e.pays[1].how = ran }},
		"one that nobody asked about": {"a decision about an approval counts", func(e *evidence) {
			e.traces = append(e.traces, trace{tool: "pay", id: "unasked", said: "ran:unasked:1"})
		}},
	}
	for name, p := range plants {
		e := sound()
		p.plant(&e)
		found := e.judged()
		if len(found) == 0 || slices.ContainsFunc(found, func(b broken) bool { return b.promise != p.promise }) {
			t.Errorf("%s: not %q is found broken, but %v", name, p.promise, found)
		}
	}
	for promise := range checks() {
		found := false
		for _, p := range plants {
			found = found || p.promise == promise
		}
		kit.Equal(t, found, true, "a planted fault for:", promise)
	}
}

// quicken lets all metered calls run at once.
func (e *evidence) quicken() {
	for i, a := range e.attempts {
		if a.tool == "meter" {
			e.attempts[i].begun = e.attempts[10].begun
		}
	}
	for i, l := range e.traces {
		if l.tool == "meter" {
			e.traces[i].at = e.attempts[10].ended
		}
	}
}

// The record of a read may be missing if its hub was killed while it waited, but not if that of a later one was written.
func TestPlantedKillExcusesTheLastRecordsOfReads(t *testing.T) {
	e := sound()
	e.attempts[0].hub = "hub-2"
	e.records = slices.DeleteFunc(e.records, func(r record) bool { return r.Call == e.attempts[0].call })
	e.kills["hub-2"] = []time.Time{e.attempts[9].ended}
	kit.Equal(t, len(e.judged()), 0, e.judged())
	later := e.attempts[0]
	later.call, later.begun, later.ended = "later", e.attempts[2].begun, e.attempts[2].ended
	e.attempts, e.records = append(e.attempts, later), append(e.records, record{Call: later.call})
	kit.Equal(t, len(e.judged()), 1, e.judged())
}

// What breaks when depends on the seed alone; every kind of fault comes up, none after the end, and the tracks are in order.
func TestAScheduleIsAFunctionOfItsSeed(t *testing.T) {
	hubs, workers := []string{"hub-1", "hub-2", "hub-3"}, []string{"worker-1", "worker-2", "worker-3"}
	kinds := map[string]bool{}
	for seed := range uint64(20) {
		one, two := schedule(seed, 5*time.Minute, hubs, workers), schedule(seed, 5*time.Minute, hubs, workers)
		kit.Equal(t, fmt.Sprint(one), fmt.Sprint(two))
		if seed > 0 && fmt.Sprint(one) == fmt.Sprint(schedule(seed-1, 5*time.Minute, hubs, workers)) {
			t.Errorf("the seeds %d and %d are one storm", seed-1, seed)
		}
		for _, f := range one {
			kinds[f.kind] = true
			if f.at+f.lasts > 5*time.Minute || f.lasts <= 0 {
				t.Errorf("seed %d: %v", seed, f)
			}
		}
	}
	for _, kind := range slices.Concat(ofNodes(), between()) {
		kit.Equal(t, kinds[kind], true, kind)
	}
}
