// Package engine connects the doors with the runners: every call passes one chain of stages, and no door can go around
// it.
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
	"toolpost/engine/hint"
	"toolpost/engine/pin"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/host/secret"
	"toolpost/tool"
)

// A Stage returns the middleware for the calls of one tool, or nil if they skip this stage. It is called once for each
// tool and each Replace. In front of resolve no tool is known yet: there it is called once, with nil.
type Stage = func(*tool.Spec) tool.Middleware

// Options has useful zero values.
type Options struct {
	Log     *slog.Logger
	Timeout time.Duration // of a call whose tool has none; 0 means 30 s
	// Policy returns the policy of the tools that are being published. It is called once for each Replace, so that tools
	// and policy change together. If it is nil, everything is allowed.
	Policy func() *policy.Policy
	Audit  *audit.Trail  // keeps a record of every call; nil means no records
	Pins   *pin.Registry // keeps the descriptions of upstream tools; nil means no pins
	// Queue bounds the queues in which calls wait if their runner takes only so many at once.
	Queue queue.Options
	// Stages are the other stages, by the name of their place in the chain. A place without a stage is skipped.
	Stages map[string]Stage
	// Open opens waiting sources by name, and replaces them, whether or not they could be opened. After an error nothing
	// was opened, and the calls that need these sources fail. If Open is nil, no source waits.
	Open func(ctx context.Context, names []string) error
	// Asked returns the digest of the definition that asked a question, or whose call has to be approved, if the tool is one of
	// other nodes, which may have several. If it is nil, that is unknown.
	Asked func(ctx context.Context, question string) (definition string)
}

// An Engine runs calls (tool.Handler) and shows what can be called (tool.Catalog).
type Engine struct {
	log    *slog.Logger
	outer  tool.Handler
	ofTool []place
	policy func() *policy.Policy
	pins   *pin.Registry
	audit  *audit.Trail
	open   func(ctx context.Context, names []string) error
	asked  func(ctx context.Context, question string) (definition string)

	timeout time.Duration // of a call whose tool has none
	wait    time.Duration // how long a call that has begun may wait for a worker

	shelf     atomic.Pointer[shelf] // what is published now
	changes   tool.Changes          // of the shelf
	deadlines deadlines             // of the calls that run

	replacing sync.Mutex     // held while a new shelf is made
	retiring  sync.WaitGroup // sources that are draining, and listen goroutines
}

var (
	_ tool.Handler  = (*Engine)(nil)
	_ tool.Catalog  = (*Engine)(nil)
	_ tool.Changing = (*Engine)(nil)
	_ tool.Reasoner = (*Engine)(nil)
	_ tool.Offering = (*Engine)(nil)
)

// New makes an engine without any tools; see Replace. It panics if a stage has no place in the chain: otherwise a check
// could be configured that no call passes.
func New(o Options) *Engine {
	o.Queue = o.Queue.WithDefaults()
	e := &Engine{
		log: o.Log, policy: o.Policy, pins: o.Pins, audit: o.Audit, open: o.Open, asked: o.Asked,
		timeout: cmp.Or(o.Timeout, 30*time.Second), wait: o.Queue.Wait,
	}
	if e.asked == nil {
		e.asked = func(context.Context, string) string { return "" }
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

// A place is a named position in the chain, for one stage. Several places may share a name.
type place struct {
	name string
	at   func(*item) tool.Middleware // the item is nil in front of resolve
	// What calls that a hub of the fleet has forwarded pass in place of the stage; nil means the stage.
	forwarded tool.Middleware
}

// atHub marks a stage that is about the caller and what it has at this program. A call of a hub has passed it there.
func atHub(p place) place {
	p.forwarded = func(next tool.Handler) tool.Handler { return next }
	return p
}

// atNode marks a stage that is about the tool where it runs: calls that other nodes run pass it there.
func atNode(p place) place {
	at := p.at
	p.at = func(it *item) tool.Middleware {
		if it.source.Remote {
			return nil
		}
		return at(it)
	}
	return p
}

// approvedAtHub is atHub for the stage of approvals. A call of a hub that needs one by the policy of this node is refused:
// approvers are at the hubs.
func approvedAtHub(p place) place {
	p.forwarded = unapproved
	return p
}

func unapproved(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if c.Consent != nil {
			return nil, tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "the policy of the node that has %s asks for an approval, and only "+
				"hubs have approvers: give the hubs this rule", c.Tool))
		}
		return next.Invoke(ctx, c, out)
	})
}

// chain is the path of every call, outermost stage first: from the door to resolve, and from there through the stages of
// the tool to its runner. The order is the design; the comment on each line explains the position of its stage. The
// stages marked given come with the options. The others are the engine's own, or need more of a tool than its spec.
func chain(o Options, log *slog.Logger) (outer, ofTool []place) {
	given := func(name string) place {
		return place{name: name, at: func(it *item) tool.Middleware {
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
		return place{name: name, at: func(*item) tool.Middleware { return m }}
	}
	of := func(name string, at func(*item) tool.Middleware) place { return place{name: name, at: at} }
	outer = []place{
		// Every call has exactly one outcome, and every error has a code: doors rely on it.
		always("recover", tool.Recovered(log, "the log")),
		// Outside redact, so that it never keeps a secret. resolve reports the tool to it, and asks it whether another call
		// has the id: a call that is refused for that is on record.
		// A call of a hub is among the calls of that hub.
		atHub(given("calls")),
		// No secret leaves the engine, whichever stage or tool brought it.
		given("redact"),
		// Refused calls are measured too.
		given("telemetry"),
		// The stages inside know the call by its id.
		always("trace", traced),
		// Outside all stages that refuse: refusals are recorded too.
		atHub(always("audit", o.Audit.Stage)),
	}
	// resolve runs here. Unknown tools and tools that are hidden from the caller get the same not_found.
	ofTool = []place{
		// Records the tool, even if its arguments are wrong.
		atHub(always("audit", o.Audit.Named())),
		// Around all stages that decide about this tool: a replay is exactly what the caller got.
		given("cassette"),
		// Before policy: the bytes validated are the bytes that policy sees and the runner gets.
		of("validate", func(it *item) tool.Middleware { return validate(it.schema) }),
		// As with arguments: the answers to a question are the ones that were checked.
		atHub(given("answers")),
		// Records what the call would touch, even if policy refuses it.
		atHub(of("audit", func(it *item) tool.Middleware { return o.Audit.Touching(it.toucher()) })),
		// Also ends a dry run, which no later stage sees.
		of("policy", func(it *item) tool.Middleware { return it.judge.Stage }),
		// Right behind policy, which decides what has to be approved. Before every stage that counts or consumes
		// something: a call that waits for its approval has not begun.
		approvedAtHub(given("approval")),
		// Behind approval: no person is asked to connect an account for a call that is refused. In front of idempotency and all
		// that counts: a call that waits for a person has not begun. A call of a hub has brought the keys.
		given("connection"),
		// Behind policy: a caller that is not allowed never sees a replay. Before quota and lease: a replay is free.
		atHub(given("idempotency")),
		// Before lease: a call over its quota uses up no lease.
		atHub(given("quota")),
		// In front of every stage that records or consumes something: a call that waits has not begun.
		of(placeQueue, func(it *item) tool.Middleware { return it.line(o.Queue) }),
		// In front of everything that has an effect: a call that cannot be recorded does not run.
		atHub(always("audit", o.Audit.Begun())),
		// Behind idempotency, whose replays ask nothing again, and before lease: a lease is dearer than a question.
		atHub(given("ask")),
		// Behind the stages above, so that a call that they refuse uses up no lease.
		atHub(given("lease")),
		// Behind lease: a call that a lease refuses proves nothing about the tool, and is never the one call that an
		// open breaker lets through. A node that fails closes the tool at no other one.
		atNode(given("breaker")),
		// Behind all stages that may refuse: a caller that would be refused gets no cached answer.
		atHub(given("cache")),
		// Only a call that really ran changes state.
		atHub(given("session")),
		// Inside all stages that keep an outcome: none of them keeps a secret that a tool printed.
		given("redact"),
		// Innermost: what the walls stopped is reported where it happens, and paths in the report are redacted like all
		// else.
		of("hint", func(it *item) tool.Middleware { return hint.Stage(it.spec) }),
	}
	return outer, ofTool
}

// wrap puts the stages of a tool around h; the first place is the outermost.
func wrap(h tool.Handler, chain []place, it *item) tool.Handler {
	for _, p := range slices.Backward(chain) {
		if stage := p.at(it); stage != nil {
			h = p.either(h, watched(p.name, stage(h)))
		}
	}
	return h
}

// either returns what runs the calls of callers by the stage, and those of hubs by what they pass in place of it.
func (p place) either(next, stage tool.Handler) tool.Handler {
	if p.forwarded == nil {
		return stage
	}
	forwarded := p.forwarded(next)
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if c.FromHub {
			return forwarded.Invoke(ctx, c, out)
		}
		return stage.Invoke(ctx, c, out)
	})
}

// Invoke runs a call through the whole chain. Its error is always a *tool.Error.
//
// The chain gets its own copy of the call. Stages write their findings there: calls its Watch, audit its Record,
// resolve its Spec. For any other change a stage makes a copy: the stages outside still read theirs.
func (e *Engine) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	own := &struct {
		tool.Call
		memo    tool.Memo
		secrets secret.Redactor
	}{Call: *c}
	own.Began, own.Memo, own.memo.Secrets = time.Now(), &own.memo, &own.secrets
	own.Name()
	return e.outer.Invoke(ctx, &own.Call, out)
}

// Explain returns what the policy would decide about a call at a time, and why. It is for operators: unlike a call it
// also finds tools that are hidden from the caller. Without arguments it reports what does not depend on them.
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

// Spec returns a tool for operators, including one that is hidden from every caller.
func (e *Engine) Spec(name string) (*tool.Spec, error) {
	it := e.shelf.Load().byName[name]
	if it == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
	}
	return it.spec, nil
}
