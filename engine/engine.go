// Package engine stands between the doors and the runners: every call passes one chain of stages, and
// no door can go around it.
package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/pin"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/engine/wayout"
	"toolpost/tool"
)

// A Stage gives what stands at its place of the chain for the calls of one tool; nil: they go past it. It is asked once
// for each tool and each Replace. In front of resolve there is no tool yet: there it is asked once, with nil.
type Stage = func(*tool.Spec) tool.Middleware

// Options has useful zero values.
type Options struct {
	Log     *slog.Logger
	Timeout time.Duration // of a call whose tool says nothing; 0: 30 s
	// Policy gives the policy of the tools that are being published. It is asked once for each Replace, so
	// that tools and policy change together; nil: everything is allowed.
	Policy func() *policy.Policy
	Audit  *audit.Trail // keeps a record of every call; nil: nobody does
	Pins   *pin.Book    // keeps what upstream tools said of themselves; nil: nobody does
	// Queue bounds the lines in which calls wait for a place, where a runner has only so many.
	Queue queue.Options
	// Stages are the others, by the names that the chain has for their places. A place without a stage is passed by.
	Stages map[string]Stage
	// Open opens sources that wait, by their names, and replaces them, whether they could be opened or not. An error is for
	// whoever needs them: nothing was opened. Nil: none waits.
	Open func(ctx context.Context, names []string) error
}

// An Engine runs calls (tool.Handler) and shows what can be called (tool.Catalog).
type Engine struct {
	log    *slog.Logger
	outer  tool.Handler
	ofTool []place
	policy func() *policy.Policy
	pins   *pin.Book
	open   func(ctx context.Context, names []string) error

	timeout time.Duration // of a call whose tool says nothing
	wait    time.Duration // for somebody who runs a call that has begun

	shelf     atomic.Pointer[shelf] // what is published now
	changes   tool.Changes          // of the shelf
	deadlines deadlines             // of the calls that run

	replacing sync.Mutex     // one shelf at a time is made
	retiring  sync.WaitGroup // sources that are draining, and those that are listened to
}

var (
	_ tool.Handler  = (*Engine)(nil)
	_ tool.Catalog  = (*Engine)(nil)
	_ tool.Changing = (*Engine)(nil)
	_ tool.Reasoner = (*Engine)(nil)
	_ tool.Offering = (*Engine)(nil)
)

// New makes an engine without any tools; see Replace. It panics where a stage has no place in the chain: a check that
// nobody passes must not look like one that everybody passes.
func New(o Options) *Engine {
	o.Queue = o.Queue.WithDefaults()
	e := &Engine{
		log: o.Log, policy: o.Policy, pins: o.Pins, open: o.Open, timeout: cmp.Or(o.Timeout, 30*time.Second),
		wait: o.Queue.Wait,
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	outer, ofTool := chain(o, e.log)
	for name := range o.Stages {
		if !slices.ContainsFunc(slices.Concat(outer, ofTool), func(p place) bool { return p.name == name }) {
			panic("engine: the chain has no place for a stage named " + name)
		}
	}
	e.outer, e.ofTool = wrap(watched("resolve", tool.HandlerFunc(e.resolve)), outer, nil), ofTool
	e.shelf.Store(e.newShelf(nil, nil))
	return e
}

// A place in the chain is where a stage stands, or several of one name one behind the other.
type place struct {
	name string
	at   func(*item) tool.Middleware // the item is nil in front of resolve
}

// chain is the way of every call, outermost stage first: from the door to resolve, and from there through the stages
// of the tool that was found to its runner. The order is the design; each line says why the stage stands where it
// stands. Those whose lines begin with given come with the options. The others are the engine's own, or need to know
// more of a tool than its spec.
func chain(o Options, log *slog.Logger) (outer, ofTool []place) {
	given := func(name string) place {
		return place{name, func(it *item) tool.Middleware {
			stage := o.Stages[name]
			switch {
			case stage == nil:
				return nil
			case it == nil:
				return stage(nil)
			}
			return stage(it.spec)
		}}
	}
	always := func(name string, m tool.Middleware) place {
		return place{name, func(*item) tool.Middleware { return m }}
	}
	of := func(name string, at func(*item) tool.Middleware) place { return place{name, at} }
	outer = []place{
		// Whatever happens inside has one outcome, and its error has a code.
		always("recover", recovered(log)),
		// Outside redact: it keeps nothing that nobody outside may see. See also the place behind resolve.
		given("recent"),
		// Nobody outside sees a secret, whoever inside brought it.
		given("redact"),
		// What is refused is measured too.
		given("telemetry"),
		// Those inside know the call by its id.
		always("trace", traced),
		// Outside all that refuses: refusals are recorded too.
		always("audit", o.Audit.Stage),
		// Inside audit, whose record knows the tool's name. Those who follow are told of refusals too.
		given("journal"),
		// Behind trace, which gives the id by which it can be cancelled. In front of all that a call could wait for.
		given("running"),
	}
	// Here stands resolve. Unknown tools and those that a caller may not know of get the same not_found.
	ofTool = []place{
		// Which tool it was, also where its arguments are wrong.
		always("audit", o.Audit.Named()),
		given("recent"),
		// Around all that decides about this tool: what is played again is what its caller got.
		given("cassette"),
		// Before policy: the bytes validated are the bytes that policy sees and the runner gets.
		of("validate", func(it *item) tool.Middleware { return validate(it.schema) }),
		// As with arguments: answers to a question are those that were checked.
		given("answers"),
		// What the call would touch, also where policy refuses it.
		of("audit", func(it *item) tool.Middleware { return o.Audit.Touching(it.toucher()) }),
		// It also ends a dry run: those behind it learn of none.
		of("policy", func(it *item) tool.Middleware { return it.judge.Stage }),
		// Right behind policy, which says what has to be approved. Before all that counts or uses something up: a call that
		// waits for somebody has not begun.
		given("approval"),
		// Behind policy: a replay is never shown to someone not allowed. Before quota and lease: a replay is free.
		given("idempotency"),
		// Before lease: a call that is too much uses none up.
		given("quota"),
		// In front of all that notes or uses up: a call that waits has not begun.
		of(placeQueue, func(it *item) tool.Middleware { return it.line(o.Queue) }),
		// In front of everything that has an effect: a call that cannot be noted does not run.
		always("audit", o.Audit.Begun()),
		// Behind idempotency, whose replays answer nothing again, and before lease: a lease is dearer than a question.
		given("ask"),
		// Used up by calls that nobody refuses any more.
		given("lease"),
		// Behind lease: what a lease refuses says nothing about the tool, and is never the one call that an open breaker
		// lets through.
		given("breaker"),
		// Behind all that may refuse: nobody gets an answer from memory who would not have got one.
		given("cache"),
		// Only what really ran changes state.
		given("session"),
		// Behind all that answers in the place of a tool: a replay says nothing new. Outside redact: it keeps no secret.
		given("journal"),
		// Inside all that keeps an outcome: none of those above keeps a secret that a tool printed.
		given("redact"),
		// Innermost: what the walls stopped is told where it happens, and paths in that are redacted like all else.
		of("wayout", func(it *item) tool.Middleware { return wayout.Stage(it.spec) }),
	}
	return outer, ofTool
}

// wrap puts the stages of a tool around h; the first is the outermost.
func wrap(h tool.Handler, chain []place, it *item) tool.Handler {
	for _, p := range slices.Backward(chain) {
		if stage := p.at(it); stage != nil {
			h = watched(p.name, stage(h))
		}
	}
	return h
}

// Invoke runs a call through the whole chain. Its error is always a *tool.Error.
//
// The chain gets a copy, which is the engine's own. What stages find out about a call, they set there: recent its Watch,
// audit its Record, resolve its Spec. For everything else a stage makes a copy: those outside it still look at theirs.
func (e *Engine) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	own := &struct {
		tool.Call
		memo tool.Memo
	}{Call: *c}
	own.Began, own.Memo = time.Now(), &own.memo
	own.Name()
	return e.outer.Invoke(ctx, &own.Call, out)
}

// Explain says what the policy would decide about a call at a time, and why. It is for those who run the
// engine: unlike a call it also finds tools that the caller may not know of. Without arguments it says what
// does not depend on them.
func (e *Engine) Explain(c *tool.Call, at time.Time) (policy.Explanation, error) {
	it := e.shelf.Load().byName[c.Tool]
	switch {
	case it == nil:
		return policy.Explanation{}, tool.Errorf(tool.CodeNotFound, "no tool named %q", c.Tool)
	case it.err != nil:
		return policy.Explanation{}, whyUnavailable(it.spec.Name, it.err)
	case !it.source.acquire():
		return policy.Explanation{}, tool.Errorf(tool.CodeUnavailable, "%s: shutting down", c.Tool)
	}
	defer it.source.release()
	found := *c
	found.Spec = it.spec
	if found.Args == nil {
		return it.judge.Explain(&found, at), nil
	}
	s, err := it.schema.compiled()
	if err != nil {
		return policy.Explanation{}, err
	}
	checked, err := withArgs(&found, s.input)
	if err != nil {
		return policy.Explanation{}, err
	}
	return it.judge.Explain(checked, at), nil
}

// Spec finds a tool for those who run the engine, including one that no caller may know of.
func (e *Engine) Spec(name string) (*tool.Spec, error) {
	it := e.shelf.Load().byName[name]
	if it == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
	}
	return it.spec, nil
}
