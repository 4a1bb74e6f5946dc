package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/idempotency"
	"toolpost/engine/member"
	"toolpost/engine/persist"
	"toolpost/fleet/late"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// journal lets workers keep journals, each in a file of its own. That of the hub is in its store.
func (f *fleetTest) journal() {
	f.hub.host.journal = f.store.Outcomes()
	f.with = func(e *Env) {
		if e.Pass.Role == roleWorker {
			db := kit.Must(sqlite.Kind().Open(filepath.Join(e.State, "journal.db"), store.Options{}))(f.t)
			f.t.Cleanup(func() { kit.OK(f.t, db.Close()) })
			e.Journal = db.Outcomes()
		}
	}
}

// The record has the name of a tool as people see it.
func TestALostCallOfAToolWithAHiddenNameIsFound(t *testing.T) {
	const name = "a\u200bb"
	s := &Source{}
	v := &version{offered: &offered{Offer: Offer{Spec: &tool.Spec{Name: name}}}}
	s.tools.Store(&map[string]*shared{name: {version: v}})
	h := &hub{sources: map[string]*Source{"std": s}}
	for _, seen := range []string{tool.VisibleName(name), "std." + tool.VisibleName(name)} {
		kit.MustEqual(t, h.specOf(&tool.Record{Source: "std", Tool: seen}) != nil, true, seen)
	}
}

// cut cuts the connection of a node, which connects again.
func (f *fleetTest) cut(id string) {
	f.hub.server.mu.Lock()
	defer f.hub.server.mu.Unlock()
	for cid, of := range f.hub.server.conns {
		if of == id {
			go func() { _ = f.hub.server.srv.DisconnectClientByID(cid) }()
		}
	}
}

// writes makes a call of the tool wait, which may change something.
func (f *fleetTest) writes(id, args string) error {
	specs := kit.Must(f.source().Tools(f.t.Context()))(f.t)
	c := &tool.Call{ID: id, Tool: "wait", Spec: specs[0], Args: []byte(args)}
	c.Record = &tool.Record{Call: id, Tool: specs[0].Name, Source: specs[0].Source}
	return kit.Err(f.source().Invoke(f.t.Context(), c, tool.Discard))
}

// A worker knows what became of a call that may change something, and of which its hub has lost sight.
func TestAWorkerKnowsWhatBecameOfACall(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	n := f.work("one", b)
	ended := make(chan error, 1)
	go func() { ended <- f.writes("c1", `{}`) }()
	kit.Receive(t, "the call", b.began)
	f.cut(n.pass.ID)
	err := kit.Receive(t, "the end of the call at the hub", ended)
	kit.Refused(t, err, tool.CodeUnavailable, "whether the call had an effect is not known")
	kit.Equal(t, tool.InDoubt(err), true)

	var running error
	kit.Eventually(t, "the worker is back", func() bool {
		_, _, running = f.hub.Outcome(t.Context(), "c1")
		return f.hub.hub.knows(n.pass.ID) && !strings.Contains(running.Error(), "cannot be asked")
	})
	kit.Refused(t, running, tool.CodeConflict, "the call c1 still runs at the node one; ask again later")
	kit.Equal(t, tool.AsError(running).Reason, idempotency.Unknown)
	kit.Equal(t, errors.Is(running, ErrRuns), true)
	close(b.leave)
	kit.Eventually(t, "it has ended", func() bool { r, _, _ := f.hub.Outcome(t.Context(), "c1"); return r != nil })
	r, node, err := f.hub.Outcome(t.Context(), "c1")
	kit.OK(t, err)
	kit.Equal(t, string(r.Output)+" "+node, `"one" one`)
	late := kit.Receive(t, "the outcome for the record", f.late)
	kit.Equal(t, strings.Join([]string{late.Parent, late.Kind, string(late.Outcome), late.Node}, " "), "c1 late ok one")
	kit.Refused(t, f.writes("c1", `{}`), tool.CodeConflict, "the call c1 has begun on this node before; it is not run again")
	kit.Equal(t, len(b.began), 0)
	_, _, err = f.hub.Outcome(t.Context(), "c2")
	kit.Refused(t, err, tool.CodeNotFound, "no node of the fleet remembers the call c2")

	past := func(id string) error { _, _, err := f.hub.Outcome(t.Context(), id); return err }
	does := func(r *tool.Result, err error) {
		b.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return r, err })
	}
	does(nil, tool.Errorf(tool.CodeCrash, "it broke"))
	kit.Refused(t, f.writes("c3", `{}`), tool.CodeCrash, "it broke")
	kit.Refused(t, past("c3"), tool.CodeCrash, "it broke")
	does(&tool.Result{OK: true, Output: []byte(`"` + strings.Repeat("x", mostKept) + `"`)}, nil)
	kit.OK(t, f.writes("c4", `{}`))
	kit.Refused(t, past("c4"), tool.CodeUnsupported, "its outcome was too large to be kept")
	does(nil, tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "no")))
	err = f.writes("c5", `{}`)
	kit.Refused(t, err, tool.CodeAccessDenied, "no")
	kit.Equal(t, tool.InDoubt(err), false)
	kit.Refused(t, past("c5"), tool.CodeNotFound, "no node of the fleet remembers")

	does(&tool.Result{Ask: &tool.Ask{ID: "q"}}, nil)
	for range 2 { // the answer to a question comes with the same id
		kit.OK(t, f.writes("c6", `{}`))
	}

	n.Close(t.Context())
	kit.Eventually(t, "it is gone", func() bool { return !f.hub.hub.knows(n.pass.ID) })
	kit.Refused(t, past("c3"), tool.CodeConflict, "is not known while these nodes cannot be asked: one")
	r, node, err = f.hub.Outcome(t.Context(), "c1")
	kit.OK(t, err)
	kit.Equal(t, string(r.Output)+" "+node, `"one" one`, "the hubs remember what they have learnt")
}

// A worker that cannot write its journal begins nothing that may change something.
func TestAWorkerWithoutItsJournalBeginsNothing(t *testing.T) {
	f := open(t)
	f.with = func(e *Env) {
		e.Journal = kit.Must(sqlite.Kind().Open("/dev/null/journal.db", store.Options{}))(t).Outcomes()
	}
	b := block("one", tool.Effects{Writes: true})
	f.work("one", b)
	err := f.writes("c1", `{}`)
	kit.Refused(t, err, tool.CodeUnavailable, "the node cannot write its journal")
	kit.Equal(t, tool.NotRun(err), true)
	kit.Equal(t, len(b.began), 0)
}

// A worker makes up no outcome of a call of a tool that it does not have, and none beside that of the worker that ran it.
func TestAWorkerMakesUpNoOutcome(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	f.work("one", b)
	kit.OK(t, f.writes("c1", `{}`))
	again := &tool.Call{Spec: kit.Must(f.source().Tools(t.Context()))(t)[0]}
	r, node, err := f.hub.outcome(t.Context(), idempotency.First{Call: "c1"}, again, false)
	kit.OK(t, err)
	kit.Equal(t, string(r.Output)+node, `"one"one`)

	kit.OK(t, f.writes("c3", `{}`))
	other := func(name string, effects tool.Effects) {
		liar := f.work(name, block(name, effects))
		for _, call := range []string{"c1", "c2", "c3"} {
			forged := kit.Must(keptOf("wait", past{State: callEnded, Kind: kindResult, Body: kit.Must(encodeResult(&tool.Result{OK: true, Output: []byte(`"forged"`)}))(t)}))(t)
			kit.Must(liar.host.journal.Claim(t.Context(), page(liar.pass.ID, call), whose(again), call, idempotency.LostFor))(t)
			kit.OK(t, liar.host.journal.Settle(t.Context(), page(liar.pass.ID, call), forged, idempotency.LostFor))
		}
	}
	other("stranger", tool.Effects{Reads: true}) // its tool has another definition
	r, _, err = f.hub.outcome(t.Context(), idempotency.First{Call: "c1"}, again, false)
	kit.OK(t, err)
	kit.Equal(t, string(r.Output), `"one"`)
	_, _, err = f.hub.outcome(t.Context(), idempotency.First{Call: "c2"}, again, false)
	kit.Refused(t, err, tool.CodeConflict, "is not known while these nodes cannot be asked: stranger")
	other("twin", tool.Effects{Writes: true})
	_, _, err = f.hub.outcome(t.Context(), idempotency.First{Call: "c3"}, again, false)
	kit.Refused(t, err, tool.CodeConflict, "several nodes say that they have begun the call c3, of which one may lie: one, twin")
}

// A worker that has not said which tools it has makes up no outcome, and no worker asks a question late, or says that nothing was done.
func TestWhatAWorkerSaysOfAPastIsChecked(t *testing.T) {
	f := open(t)
	f.journal()
	again := &tool.Call{Key: "guessed"}
	owner := whose(again)
	says := func(k kind, body []byte) func(put func(kind, uint32, []byte)) {
		said := kit.Must(strictjson.Marshal(past{State: callEnded, Whose: owner[:], Kind: k, Body: body}))(t)
		return func(put func(kind, uint32, []byte)) { put(kindResult, 1, said) }
	}
	var answer func(put func(kind, uint32, []byte))
	f.hostile("liar", func(put func(kind, uint32, []byte)) { answer(put) })
	again.Spec = kit.Must(f.source().Tools(t.Context()))(t)[0]
	calls := 0
	late := func() (*tool.Result, error) {
		calls++ // what is believed once is remembered
		r, never, err := f.hub.Late(t.Context(), idempotency.First{Call: fmt.Sprint("c", calls)}, again)
		kit.Equal(t, never, false)
		return r, err
	}
	result := func(r *tool.Result) []byte { return kit.Must(encodeResult(r))(t) }
	answer = says(kindResult, result(&tool.Result{OK: true, Output: []byte(`1`)}))
	kit.Equal(t, string(kit.Must(late())(t).Output), "1", "it has the tool")
	answer = says(kindError, encodeError(tool.Errorf(tool.CodeNotFound, "no such file")))
	kit.Refused(t, kit.Err(late()), tool.CodeNotFound, "no such file")
	for what, a := range map[string]func(put func(kind, uint32, []byte)){
		"an approval": says(kindResult, result(&tool.Result{Ask: &tool.Ask{ID: "1", Kind: tool.AskApproval, Awaits: &tool.Awaited{}}})),
		"not run":     says(kindError, encodeError(tool.BeforeRun(tool.Errorf(tool.CodeUnavailable, "x")))),
	} {
		answer = a
		r, err := late()
		kit.Refused(t, err, tool.CodeProtocol, "cannot be read", what, r)
		kit.Equal(t, tool.NotRun(err), false, what)
	}

	p := f.join("mute", member.Worker)
	nc := kit.Must(raw(t, f.hub, p))(t)
	_ = kit.Must(nc.Subscribe(subjectNode+p.ID, func(m *nats.Msg) {
		if kind(m.Data[0]) == kindOrder {
			says(kindResult, result(&tool.Result{OK: true}))(func(k kind, number uint32, body []byte) {
				_ = nc.Publish(m.Reply, encodeFrame(k, number, body))
			})
		}
	}))(t)
	f.announce(nc, announcement{ID: p.ID, Run: "mute", Link: linkVersion, Digest: "d", Places: 1})
	kit.Eventually(t, "the hub knows the node", func() bool { return f.hub.hub.knows(p.ID) })
	answer = func(put func(kind, uint32, []byte)) {
		put(kindResult, 1, kit.Must(strictjson.Marshal(past{State: callRefused}))(t))
	}
	r, err := late()
	kit.Refused(t, err, tool.CodeConflict, "cannot be asked: mute", r)
	answer = func(put func(kind, uint32, []byte)) {
		put(kindResult, 1, kit.Must(strictjson.Marshal(past{State: callUnknown}))(t))
	}
	r, err = late()
	kit.Refused(t, err, tool.CodeConflict, "cannot be asked: liar, mute", "the first does not say that it will never begin it", r)
}

// What became of a call of one caller is no other caller's business, who may have given a call of her own the same id.
func TestNobodyGetsTheOutcomeOfAnothersCall(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	b.Handler = tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: []byte(`"of ` + c.Caller.ID + `"`)}, nil
	})
	f.work("one", b)
	spec, cut := kit.Must(f.source().Tools(t.Context()))(t)[0], false
	stage := idempotency.New(idempotency.Options{Outcomes: f.store.Outcomes(), Late: f.hub.Late}).For(nil)(tool.HandlerFunc(
		func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			r, err := f.source().Invoke(ctx, c, out)
			if cut { // as if the caller had left, or the connection was lost
				return nil, tool.Doubt(tool.Errorf(tool.CodeCancelled, "cut"))
			}
			return r, err
		}))
	call := func(caller string) (*tool.Result, error) {
		return stage.Invoke(t.Context(), &tool.Call{
			ID: "c1", Key: "k", Tool: "wait", Spec: spec, Args: []byte(`{}`), Caller: tool.Principal{ID: caller}}, tool.Discard)
	}
	cut = true
	kit.Refused(t, kit.Err(call("ada")), tool.CodeCancelled, "cut")
	kit.Equal(t, string(kit.Must(call("ada"))(t).Output), `"of ada"`)
	kit.Refused(t, kit.Err(call("eve")), tool.CodeCancelled, "cut")
	r, err := call("eve")
	kit.Refused(t, err, tool.CodeConflict, "its outcome is unknown", r)
}

// A node that was evicted long ago is not waited for: its eviction does not begin again with each look at the members.
func TestAnEvictionStaysAsOldAsItIs(t *testing.T) {
	f := open(t)
	p := f.join("one", member.Worker)
	kit.OK(t, f.hub.Evict(t.Context(), "one"))
	kit.OK(t, f.hub.roster.Refresh(t.Context()))
	first, _ := f.hub.roster.ByID(p.ID)
	kit.OK(t, f.hub.roster.Refresh(t.Context()))
	again, _ := f.hub.roster.ByID(p.ID)
	kit.Equal(t, again.Evicted, first.Evicted)
	kit.Equal(t, first.Evicted.IsZero(), false)
}

// What no worker has begun never begins: a call with its key runs in its place.
func TestACallThatIsRepeatedNeverBegins(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	n := f.work("one", b)
	f.work("other", block("other", tool.Effects{Reads: true})) // its tool has another definition, and it might have had this one
	again := &tool.Call{ID: "c2", Spec: kit.Must(f.source().Tools(t.Context()))(t)[0]}
	late := func(call string) (*tool.Result, bool) {
		r, never, err := f.hub.Late(t.Context(), idempotency.First{Call: call}, again)
		kit.OK(t, err)
		return r, never
	}
	for range 2 {
		_, never := late("c1")
		kit.Equal(t, never, true)
	}
	err := f.writes("c1", `{}`)
	kit.Refused(t, err, tool.CodeConflict, "another call has the idempotency key of the call c1 by now")
	kit.Equal(t, tool.NotRun(err), true)
	kit.Equal(t, len(b.began), 0)
	_, _, err = f.hub.Outcome(t.Context(), "c1")
	kit.Refused(t, err, tool.CodeNotFound, "no node of the fleet remembers")

	kit.OK(t, f.writes("c3", `{}`))
	r, never := late("c3")
	kit.MustEqual(t, r != nil, true)
	kit.Equal(t, string(r.Output), `"one"`)
	kit.Equal(t, never, false)
	_, never, _ = f.hub.Late(t.Context(), idempotency.First{Call: "c2"}, again)
	kit.Equal(t, never, false, "its repeat has the same id, and would be refused with it")
	kit.OK(t, f.writes("c2", `{}`))

	n.Close(t.Context())
	kit.Eventually(t, "it is gone", func() bool { return !f.hub.hub.knows(n.pass.ID) })
	_, never, err = f.hub.Late(t.Context(), idempotency.First{Call: "c4"}, again)
	kit.Refused(t, err, tool.CodeConflict, "is not known while these nodes cannot be asked: one")
	kit.Equal(t, never, false)
}

// A hub that has lost a key to another one does not send its call to a node which that one could not tell.
func TestACallThatHasLostItsKeyGoesToNoNewNode(t *testing.T) {
	f := open(t)
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	f.work("one", b)
	c := &tool.Call{ID: "c1", Tool: "wait", Spec: kit.Must(f.source().Tools(t.Context()))(t)[0], Args: []byte(`{}`)}
	c.Began, c.Holds = time.Now(), func() error { return tool.BeforeRun(tool.Errorf(tool.CodeConflict, "lost")) }
	kit.OK(t, kit.Err(f.source().Invoke(t.Context(), c, tool.Discard)))
	c.Began = time.Now().Add(-time.Hour)
	err := kit.Err(f.source().Invoke(t.Context(), c, tool.Discard))
	kit.Refused(t, err, tool.CodeConflict, "lost")
	kit.Equal(t, tool.NotRun(err), true)
	kit.Equal(t, len(b.began), 1)
}

// A late outcome has one row, also if the store could not say whether it has it.
func TestALateOutcomeHasOneRow(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	n := f.work("one", b)
	rec, _, err := f.writing("c1", `{}`)
	kit.OK(t, err)
	p := kit.Must(n.host.past(t.Context(), n.pass.ID, "c1"))(t)
	spec := kit.Must(f.source().Tools(t.Context()))(t)[0]
	var rows []tool.Record
	f.hub.env.Late = func(_ context.Context, r *tool.Record) error {
		if rows = append(rows, *r); len(rows) == 1 {
			return tool.Errorf(tool.CodeUnavailable, "the connection broke at the commit").Because(persist.Unclear)
		}
		return nil
	}
	d := &late.Call{Of: *rec}
	for n := 0; !f.hub.late(t.Context(), d, spec, "one", p); n++ {
		kit.MustEqual(t, n, 0)
	}
	kit.DeepEqual(t, rows[0], rows[1])
}

// A worker that is back, and whose source is not open yet, has not said that it knows nothing.
func TestADoubtWaitsForTheToolOfItsWorker(t *testing.T) {
	f := open(t)
	f.journal()
	b, other := block("one", tool.Effects{Writes: true}), block("two", tool.Effects{Writes: true})
	n := f.work("one", b)
	ended := make(chan *tool.Record, 1)
	go func() { r, _, _ := f.writing("c1", `{}`); ended <- r }()
	kit.Receive(t, "the call", b.began)
	f.work("two", other) // it has the tool, and knows nothing of the call
	f.cut(n.pass.ID)
	rec := kit.Receive(t, "the end of the call at the hub", ended)
	close(b.leave)
	specs := b.specs
	b.specs = nil // as if its program had started again
	n.Retold(t.Context())
	kit.Eventually(t, "the worker is back without the tool", func() bool {
		p := f.peer("one")
		return p.listed != "" && p.listed == p.Digest && len(p.tools) == 0
	})
	killed := *rec
	killed.Node = "hub" // as it was noted when it began
	f.hub.Recovered([]*tool.Record{&killed})
	doubts := map[string]*late.Call{"its node": {Of: *rec}, "any node": f.hub.doubts.All()[1]}
	for what, d := range doubts {
		kit.Equal(t, f.hub.settle(t.Context(), d), false, what)
	}
	b.specs = specs
	n.Retold(t.Context())
	for what, d := range doubts {
		kit.Eventually(t, "the outcome, of "+what, func() bool { return f.hub.settle(t.Context(), d) })
	}
	kit.Equal(t, kit.Receive(t, "the row", f.late).Outcome, tool.OutcomeOK)
	kit.Equal(t, len(f.late), 0, "one row for both")
}

// A call whose hub was killed has the code crash in the record, which may be how it ended, too.
func TestLateOutcomeIsRecordedWhateverItsCode(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	b.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return nil, tool.Errorf(tool.CodeCrash, "it broke")
	})
	f.work("one", b)
	rec, _, err := f.writing("c1", `{}`)
	kit.Refused(t, err, tool.CodeCrash, "it broke")
	killed := *rec
	killed.Node, killed.Outcome, killed.Code = "hub", tool.OutcomeLost, tool.CodeCrash
	f.hub.Recovered([]*tool.Record{&killed})
	kit.Equal(t, f.hub.settle(t.Context(), f.hub.doubts.All()[0]), true)
	row := kit.Receive(t, "the row", f.late)
	said := strings.Join([]string{row.Parent, string(row.Outcome), string(row.Code), row.Node}, " ")
	kit.Equal(t, said, "c1 error crash one")
	kit.Equal(t, len(row.Receipt) > 0, true, "its receipt")
}

// A key is that of the definition by which its first call ran, also after most nodes have another one.
func TestRepeatAsksByTheDefinitionOfTheFirstCall(t *testing.T) {
	f := open(t)
	f.journal()
	old, now := block("old", tool.Effects{Writes: true}), block("now", tool.Effects{Writes: true})
	close(old.leave)
	f.work("old", old)
	kit.OK(t, f.writes("c1", `{}`))
	first := kit.Must(f.source().Tools(t.Context()))(t)[0]
	now.specs[0].Description = "newer"
	f.work("now", now)
	spec := *first
	spec.Digest = "newer"
	again := &tool.Call{ID: "c2", Spec: &spec}
	r, never, err := f.hub.Late(t.Context(), idempotency.First{Call: "c1", Digest: first.Digest}, again)
	kit.OK(t, err)
	kit.MustEqual(t, r != nil, true)
	kit.Equal(t, string(r.Output), `"old"`)
	kit.Equal(t, never, false)
	_, never, err = f.hub.Late(t.Context(), idempotency.First{Call: "c3", Digest: first.Digest}, again)
	kit.OK(t, err)
	kit.Equal(t, never, true, "no node has begun it")
	kit.Equal(t, again.Spec.Digest, "newer")
}

// A forgetful is a journal that has forgotten what is older than an hour.
type forgetful struct{ idempotency.Outcomes }

func (forgetful) Reach(context.Context) (time.Duration, error) { return time.Hour, nil }

// A worker that may have forgotten a call does not say that it never will begin it, or the call might run twice.
func TestAJournalThatMayHaveForgottenACallDoesNotRefuseIt(t *testing.T) {
	f := open(t)
	f.journal()
	with := f.with
	f.with = func(e *Env) {
		with(e)
		e.Journal = forgetful{e.Journal}
	}
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	n := f.work("one", b)
	again := &tool.Call{ID: "c2", Spec: kit.Must(f.source().Tools(t.Context()))(t)[0]}
	ages := map[time.Duration]bool{time.Minute: true, time.Hour - time.Second: false, time.Hour: false, 25 * time.Hour: false}
	for age, never := range ages {
		first := idempotency.First{Call: age.String(), Age: age}
		_, got, err := f.hub.Late(t.Context(), first, again)
		kit.Equal(t, got, never, age)
		if !never {
			kit.Refused(t, err, tool.CodeConflict, "is not known while these nodes cannot be asked: ", age)
			p := kit.Must(n.host.past(t.Context(), n.pass.ID, first.Call))(t)
			kit.Equal(t, p.State, callUnknown, "it keeps no refusal")
		}
	}
	n.host.journal = n.host.journal.(forgetful).Outcomes
	_, never, err := f.hub.Late(t.Context(), idempotency.First{Call: "old", Age: 25 * time.Hour}, again)
	kit.Refused(t, err, tool.CodeConflict, "cannot be asked: hub, one", never)
	kit.OK(t, f.writes("c3", `{}`))
	r, _, err := f.hub.Late(t.Context(), idempotency.First{Call: "c3", Age: 25 * time.Hour}, again)
	kit.OK(t, err)
	kit.Equal(t, string(r.Output), `"one"`, "what it knows, it says")
}
