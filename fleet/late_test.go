package fleet

import (
	"context"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/fleet/late"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// What hubs have learnt of a call lasts when its worker is gone, and is for the caller of the call alone.
func TestLateOutcomeOutlivesItsWorker(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	n := f.work("one", b)
	kit.OK(t, f.writes("c1", `{}`))
	again := &tool.Call{ID: "c2", Spec: kit.Must(f.source().Tools(t.Context()))(t)[0]}
	asks := func(c *tool.Call) (*tool.Result, error) {
		r, never, err := f.hub.Late(t.Context(), idempotency.First{Call: "c1"}, c)
		kit.Equal(t, never, false)
		return r, err
	}
	kit.OK(t, kit.Err(asks(again)))
	n.Close(t.Context())
	kit.Eventually(t, "it is gone", func() bool { return !f.hub.hub.knows(n.pass.ID) })
	kit.Equal(t, string(kit.Must(asks(again))(t).Output), `"one"`)
	other := *again
	other.Caller.ID = "eve"
	kit.Refused(t, kit.Err(asks(&other)), tool.CodeConflict, "cannot be asked: one")
}

// A hub that starts looks for the calls of which the record does not have the outcome.
func TestHubThatStartsLooksForTheOutcomesThatTheRecordLacks(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	f.work("one", b)
	row := func(call, node string, o tool.Outcome) *tool.Record {
		rec, _, err := f.writing(call, `{}`)
		kit.OK(t, err)
		rec.Node, rec.Outcome, rec.Receipt = node, o, nil
		return rec
	}
	signed := row("signed", "one", tool.OutcomeError)
	signed.Receipt = []byte(`{}`)
	rows := []*tool.Record{
		row("lost", "hub", tool.OutcomeLost), row("cut off", "one", tool.OutcomeError),
		row("known", "one", tool.OutcomeError),
		{Time: time.Now(), Call: "late", Parent: "known", Kind: tool.LateOutcome, Outcome: tool.OutcomeOK},
		signed, row("at a hub", "hub", tool.OutcomeError), row("ended", "one", tool.OutcomeOK),
	}
	f.hub.env.Rows = func(_ context.Context, want audit.Filter, visit func(*tool.Record) error) error {
		for _, r := range rows {
			if want.Fits(r) && time.Since(want.Since) < 25*time.Hour {
				kit.OK(t, visit(r))
			}
		}
		return nil
	}
	kit.OK(t, f.hub.doubtAgain())
	found := map[string]bool{}
	for _, d := range f.hub.doubts.All() {
		kit.Equal(t, f.hub.settle(t.Context(), d), true)
		found[kit.Receive(t, "the row", f.late).Parent] = true
	}
	kit.DeepEqual(t, found, map[string]bool{"lost": true, "cut off": true})
}

// Hubs look for one call at once: one of them adds its outcome to the record. If that one ends meanwhile, another one does what
// it left.
func TestHubsAddOneRowOfALateOutcome(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	f.work("one", b)
	for call, has := range map[string]bool{"c1": false, "c2": true} {
		rec, _, err := f.writing(call, `{}`)
		kit.OK(t, err)
		scope := page(pageRow, call)
		claim := kit.Must(f.hub.host.journal.Claim(t.Context(), scope, [32]byte{1}, call, idempotency.LostFor))(t)
		kit.Equal(t, claim.Mine, true)
		kit.Equal(t, f.hub.settle(t.Context(), &late.Call{Of: *rec}), false, "another hub adds it")
		kit.OK(t, f.hub.host.journal.Lose(t.Context(), scope, idempotency.LostFor))
		f.hub.env.Rows = func(_ context.Context, want audit.Filter, visit func(*tool.Record) error) error {
			kit.Equal(t, want.Parent+want.Kind, call+tool.LateOutcome)
			if has {
				return visit(&tool.Record{})
			}
			return nil
		}
		kit.Equal(t, f.hub.settle(t.Context(), &late.Call{Of: *rec}), true)
		kit.Equal(t, len(f.late) == 0, has, call)
		if !has {
			<-f.late
		}
		kit.Equal(t, f.hub.settle(t.Context(), &late.Call{Of: *rec}), true, "it is there")
		kit.Equal(t, len(f.late), 0)
	}
}

// A refusing store takes no claims.
type refusing struct{ idempotency.Outcomes }

func (refusing) Claim(context.Context, [32]byte, [32]byte, string, time.Duration) (c idempotency.Claim, err error) {
	return c, tool.Errorf(tool.CodeUnavailable, "full")
}

// No caller is told an outcome that the next one may not learn, because the worker is gone by then.
func TestLateOutcomeIsKeptBeforeItIsTold(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	f.work("one", b)
	kit.OK(t, f.writes("c1", `{}`))
	again := &tool.Call{ID: "c2", Spec: kit.Must(f.source().Tools(t.Context()))(t)[0]}
	asks := func() error {
		_, _, err := f.hub.outcome(t.Context(), idempotency.First{Call: "c1"}, again, false)
		return err
	}
	store := f.hub.host.journal
	f.hub.host.journal = refusing{store}
	kit.Refused(t, asks(), tool.CodeConflict, "cannot be asked: one")
	f.hub.host.journal = store
	scope := page(pageLate, "c1")
	kit.Equal(t, kit.Must(store.Claim(t.Context(), scope, whose(again), "c1", time.Hour))(t).Mine, true)
	kit.Refused(t, asks(), tool.CodeConflict, "cannot be asked: one", "another hub keeps it")
	kit.OK(t, store.Lose(t.Context(), scope, time.Hour))
	kit.OK(t, asks())
	kit.OK(t, asks())
}
