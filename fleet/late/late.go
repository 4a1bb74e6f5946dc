// Package late keeps the calls whose outcome a hub does not know, and looks for each of them again after pauses that grow.
package late

import (
	"context"
	"slices"
	"sync"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/tool"
)

// Such calls are few, unless a node hangs; of more, the newest are left out.
const (
	most  = 4096
	Every = 5 * time.Second // the first pause for a call
	rests = 5 * time.Minute // the longest
)

// A Call may have run to its end, or run still, though it has ended at its hub.
type Call struct {
	Of  tool.Record
	Row *tool.Record // of its outcome: one row, however often the store has to be told

	pause  time.Duration
	next   time.Time
	giveUp time.Time
}

// Rarely reports whether the call has been looked for a while, and is looked for as seldom as possible now.
func (c *Call) Rarely() bool { return c.pause == rests }

// A List has the calls of a hub.
type List struct {
	mu  sync.Mutex
	all []*Call
}

// Add adds a call, unless there are too many.
func (l *List) Add(of *tool.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) < most {
		now := time.Now()
		l.all = append(l.all, &Call{Of: *of, pause: Every, next: now.Add(Every), giveUp: now.Add(idempotency.LostFor)})
	}
}

// All returns the calls of the list.
func (l *List) All() []*Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// Settle looks for the calls until ctx ends. settled looks for one, and reports whether there is nothing more to look for.
func (l *List) Settle(ctx context.Context, settled func(context.Context, *Call) bool) {
	for tool.Sleep(ctx, Every) {
		now := time.Now()
		for _, c := range l.All() {
			if now.Before(c.next) || ctx.Err() != nil {
				continue
			}
			c.pause = min(2*c.pause, rests)
			c.next = now.Add(c.pause)
			if settled(ctx, c) || now.After(c.giveUp) {
				l.mu.Lock()
				l.all = slices.DeleteFunc(l.all, func(one *Call) bool { return one == c })
				l.mu.Unlock()
			}
		}
	}
}

// A Log visits the rows of the record that a filter selects, the newest first.
type Log func(ctx context.Context, f audit.Filter, visit func(*tool.Record) error) error

// Unknown returns the calls of the last day whose outcome the record does not have: their program has ended, or they ended at a hub with
// an error, and without a receipt of the node that had them. If there are very many errors, the newest are looked at.
func Unknown(ctx context.Context, log Log) (all []*tool.Record, err error) {
	since := time.Now().Add(-idempotency.LostFor)
	known := map[string]bool{}
	err = log(ctx, audit.Filter{Since: since, Kind: tool.LateOutcome}, func(r *tool.Record) error {
		known[r.Parent] = true
		return nil
	})
	for _, o := range []tool.Outcome{tool.OutcomeLost, tool.OutcomeError} {
		if err == nil {
			err = log(ctx, audit.Filter{Since: since, Outcome: o, Counts: true, Limit: 16 * most}, func(r *tool.Record) error {
				if r.Source != "" && len(r.Receipt) == 0 && !known[r.Call] && len(all) < most {
					all = append(all, r)
				}
				return nil
			})
		}
	}
	return all, err
}

// Has reports whether the record has the late outcome of a call.
func Has(ctx context.Context, log Log, call string) (has bool, err error) {
	f := audit.Filter{Since: time.Now().Add(-2 * idempotency.LostFor), Parent: call, Kind: tool.LateOutcome, Limit: 1}
	err = log(ctx, f, func(*tool.Record) error { has = true; return nil })
	return has, err
}

// Row makes the row of an outcome that came late, of a call that a node had.
func Row(of *tool.Record, node string, r *tool.Result, err error) *tool.Record {
	row := &tool.Record{
		Time: time.Now(), Call: tool.NewID(), Parent: of.Call, Trace: of.Trace, Tool: of.Tool, Source: of.Source, Protocol: of.Protocol,
		Tier: of.Tier, Door: of.Door, Caller: of.Caller, Session: of.Session, Run: of.Run, Key: of.Key, Node: node, Kind: tool.LateOutcome,
	}
	row.Outcome, row.Code, row.Reason = tool.OutcomeOf(r, err)
	if r != nil {
		row.Out = int64(len(r.Output))
	}
	return row
}
