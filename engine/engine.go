// Package engine stands between the doors and the runners: every call passes one chain of stages, and
// no door can go around it.
package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/tool"
)

// Options has useful zero values.
type Options struct {
	Log     *slog.Logger
	Timeout time.Duration // of a call whose tool says nothing; 0: 30 s
	// Policy gives the policy of the tools that are being published. It is asked once for each Replace, so
	// that tools and policy change together; nil: everything is allowed.
	Policy func() *policy.Policy
	Audit  *audit.Trail // keeps a record of every call; nil: nobody does
	// The stages that keep something between calls; nil: there is none.
	Idempotency tool.Middleware // answers a repeated call again without running it again
	// Quota gives the stage that keeps the calls of a tool within limits, or nil. It is asked once for each tool and
	// each Replace.
	Quota func(*tool.Spec) tool.Middleware
	Lease tool.Middleware // lets tools of a high tier run only with a lease
	// Breaker gives the stage that refuses the calls of a tool which keeps breaking, or nil. It is asked likewise.
	Breaker func(*tool.Spec) tool.Middleware
	// Cache gives the stage that answers the calls of a tool from memory, or nil. It is asked once for each tool and each
	// Replace.
	Cache   func(*tool.Spec) tool.Middleware
	Session tool.Middleware // keeps state patches and assets
	// Queue bounds the lines in which calls wait for a place, where a runner has only so many.
	Queue queue.Options
}

// An Engine runs calls (tool.Handler) and shows what can be called (tool.Catalog).
type Engine struct {
	log    *slog.Logger
	outer  tool.Handler
	ofTool func(*item) tool.Handler
	policy func() *policy.Policy

	shelf     atomic.Pointer[shelf] // what is published now
	deadlines deadlines             // of the calls that run

	replacing sync.Mutex     // one Replace at a time
	retiring  sync.WaitGroup // sources that are draining
}

var (
	_ tool.Handler = (*Engine)(nil)
	_ tool.Catalog = (*Engine)(nil)
)

// New makes an engine without any tools; see Replace.
func New(o Options) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	o.Queue = o.Queue.WithDefaults()
	if o.Policy == nil {
		o.Policy = func() *policy.Policy { return nil }
	}
	if o.Quota == nil {
		o.Quota = func(*tool.Spec) tool.Middleware { return nil }
	}
	if o.Breaker == nil {
		o.Breaker = func(*tool.Spec) tool.Middleware { return nil }
	}
	if o.Cache == nil {
		o.Cache = func(*tool.Spec) tool.Middleware { return nil }
	}
	e := &Engine{log: o.Log, policy: o.Policy}
	e.outer, e.ofTool = e.chain(o)
	e.shelf.Store(e.newShelf(nil))
	return e
}

// chain is the way of every call, outermost stage first: from the door to resolve, and from there
// through the stages of the tool that was found to its runner. The order is the design:
//
//   - recover and trace come first, so that whatever happens inside has one outcome and a name.
//   - audit stands outside policy: refusals are recorded too. Inside it notes which tool was found, what the
//     call touches, and, in front of everything that has an effect, that it begins.
//   - resolve gives unknown and invisible tools the same not_found.
//   - validate comes before policy: the bytes validated are the bytes that policy sees and the runner gets.
//   - policy also ends a dry run: what stands behind it does not learn of one.
//   - idempotency stands after policy: a replay is never shown to someone not allowed; and before quota
//     and lease: a replay is free.
//   - quota stands before what has an effect, and before lease: a call that is too much uses none up.
//   - queue, where calls wait for a place, stands in front of all that notes or uses up: a call that waits has not begun.
//   - breaker stands behind lease: what a lease refuses says nothing about the tool, and is never the one call that an
//     open breaker lets through.
//   - cache stands behind all that may refuse: nobody gets an answer from memory who would not have got one.
//   - session is innermost: only what really ran changes state.
func (e *Engine) chain(o Options) (outer tool.Handler, ofTool func(*item) tool.Handler) {
	outer = wrap(tool.HandlerFunc(e.resolve),
		recovered(o.Log),
		traced,
		o.Audit.Stage,
	)
	ofTool = func(it *item) tool.Handler {
		return wrap(it.runner(o.Timeout, o.Queue.Wait, &e.deadlines),
			o.Audit.Named(),
			validate(it.schema),
			o.Audit.Touching(it.toucher()),
			it.judge.Stage,
			o.Idempotency,
			o.Quota(it.spec),
			it.line(o.Queue),
			o.Audit.Begun(),
			o.Lease,
			o.Breaker(it.spec),
			o.Cache(it.spec),
			o.Session,
		)
	}
	return outer, ofTool
}

// wrap puts stages around h; the first is the outermost. A stage that is nil is not there.
func wrap(h tool.Handler, stages ...tool.Middleware) tool.Handler {
	for i := len(stages) - 1; i >= 0; i-- {
		if stages[i] != nil {
			h = stages[i](h)
		}
	}
	return h
}

// Invoke runs a call through the whole chain. Its error is always a *tool.Error.
func (e *Engine) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	return e.outer.Invoke(ctx, c, out)
}
