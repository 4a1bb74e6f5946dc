// Package running has the tools for running and recent calls: listCalls, watchCalls, showCall and cancelCall. They are
// ordinary tools, so that every door has them, and policy, quotas and the record apply to them.
package running

import (
	"cmp"
	"context"
	"slices"

	"toolpost/builtin/define"
	"toolpost/engine/audit"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/fleet"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options of the tools.
type Options struct {
	Calls     *calls.Log
	Followers *follow.Followers
	Log       Log // nil if no records are kept
	Fleet     fleet.In
}

// Log has the records of calls that ended long ago.
type Log interface {
	// Log visits the calls that match a filter, the newest or the oldest first. An error of visit ends it, and is returned.
	Log(ctx context.Context, f audit.Filter, newestFirst bool, visit func(*tool.Record) error) error
}

// New makes the tools.
func New(o Options) *define.Set {
	return define.NewSet(
		define.New(tool.Spec{
			Name: "watchCalls", Effects: tool.Effects{Reads: true}, Timeout: follow.Timeout,
			Description: "Follows your calls: a log event for each that begins, reports something or ends, with the details " +
				"in its fields. It starts with those that are running and those that ran last, and ends after an hour at " +
				"most. Operators see those of all callers. Calls of tools that only look at calls are left out.",
		}, define.Following(o.Followers, o.watch)),
		define.New(tool.Spec{
			Name: "showCall", Effects: tool.Effects{Reads: true},
			Description: "Shows one of your calls, while it runs or afterwards: its arguments, its events, its outcome, how " +
				"long each stage took, the walls around its tool and what they stopped. Of older calls only what the audit " +
				"log has is left. Operators see those of all callers.",
		}, o.show),
		define.New(tool.Spec{
			Name: "listCalls", Effects: tool.Effects{Reads: true},
			Description: "Lists your calls that are running, the oldest first, with the last event of each. " +
				"Operators see those of all callers.",
		}, o.list),
		define.New(tool.Spec{
			Name: "cancelCall", Effects: tool.Effects{Idempotent: true},
			Description: "Cancels a running call by its id, whichever door it came in by: one of yours, or anybody's for " +
				"operators.",
		}, o.cancel),
	)
}

// Listed is the output of listCalls.
type Listed struct {
	Calls   []calls.Running `json:"calls"`
	Missing []string        `json:"missing,omitempty" doc:"hubs of the fleet that did not answer: their calls are not listed"`
}

// ListArgs are the arguments of listCalls.
type ListArgs struct {
	Kind string `json:"kind,omitzero" schema:"enum=call|operator|all default=call" doc:"kind of calls: operator (read-only calls of Toolpost's own tools, such as those of the console), call (all others) or all"`
}

// list leaves out the call that asks: it would be in every list, to no use.
func (o Options) list(ctx context.Context, c *define.Call, a ListArgs) (Listed, error) {
	of := audit.Filter{Kind: cmp.Or(a.Kind, audit.OnlyCalls)}
	l := Listed{Calls: o.Calls.List(c.Caller)}
	for _, answer := range o.ask(ctx, c, "listCalls") {
		var theirs Listed
		if answer.Err != nil || strictjson.Unmarshal(answer.Output, &theirs) != nil {
			l.Missing = append(l.Missing, answer.Node)
			continue
		}
		l.Calls = append(l.Calls, theirs.Calls...)
	}
	l.Calls = slices.DeleteFunc(l.Calls, func(one calls.Running) bool {
		return one.ID == c.ID && one.Caller == c.Caller.ID || !of.Fits(&tool.Record{Kind: one.Kind})
	})
	slices.SortStableFunc(l.Calls, func(a, b calls.Running) int { return a.Since.Compare(b.Since) })
	return l, nil
}

// ask asks the other hubs what this one is asked, unless another one asks.
func (o Options) ask(ctx context.Context, c *define.Call, name string) []fleet.Answer {
	if c.FromHub {
		return nil
	}
	return o.Fleet.Node().AskHubs(ctx, fleet.Ask(c.Call, name))
}

// CancelArgs are the arguments of cancelCall.
type CancelArgs struct {
	Call   string `json:"call" schema:"required minLength=1 maxLength=256" doc:"the id of the call"`
	Caller string `json:"caller" schema:"minLength=1" doc:"the caller, if several callers have a call with this id; for operators"`
}

type cancelled struct {
	Call string `json:"call"`
}

// cancel returns when the call has been told to end, not when it has ended.
func (o Options) cancel(_ context.Context, c *define.Call, a CancelArgs) (cancelled, error) {
	c.Summary = "call " + a.Call + " is cancelled"
	if c.FromHub {
		return cancelled{a.Call}, o.Calls.CancelHere(c.Caller, a.Caller, a.Call)
	}
	return cancelled{a.Call}, o.Calls.Cancel(c.Caller, a.Caller, a.Call)
}
