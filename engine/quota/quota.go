// Package quota is the stage that keeps calls within limits: how many there are in a time, how many units they cost, and
// how many run at once. Nothing waits here: a call over the limit is refused, with a time to try again.
package quota

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options has useful zero values.
type Options struct {
	Now   func() time.Time // nil means time.Now
	Doors []string         // that rules can name; nil means any
	// for how many callers, tools ... the rules count together; 0 means 100,000. The least recently used are dropped
	// first
	Keys   int
	Shared Shared // counts for other programs, too; nil if there are none
}

// Quotas count the calls of one engine. They start without rules; see Replace.
type Quotas struct {
	o     Options
	start time.Time
	seeds [2]maphash.Seed

	mu       sync.Mutex
	limiters []*limiter
	last     int64 // the latest time that was seen
}

// New makes quotas.
func New(o Options) *Quotas {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Keys = cmp.Or(o.Keys, 100_000)
	return &Quotas{o: o, start: o.Now(), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{
		Name: "limits.quotas", Options: []Rule(nil),
		Doc: "how many calls there may be, how many units they may cost, and how many may run at once; default: " +
			"any number",
	}
}

// Read reads the rules of a config; apply switches to them.
func (q *Quotas) Read(cfg *config.Config) (apply func(), err error) {
	var rules []Rule
	if err := cfg.Section(Section().Name).Decode(&rules); err != nil {
		return nil, err
	}
	return func() { q.Replace(rules) }, check(rules, q.o.Doors, cfg.RuleSources())
}

// Replace switches to other rules, which must be valid. An unchanged rule keeps its counts. The stages that For returned
// before keep the rules they were made with.
func (q *Quotas) Replace(rules []Rule) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := make([]*limiter, len(rules))
	for i, r := range rules {
		at := slices.IndexFunc(q.limiters, func(l *limiter) bool { return reflect.DeepEqual(l.Rule, r) })
		if at < 0 {
			next[i] = newLimiter(r)
		} else {
			next[i] = q.limiters[at]
		}
		next[i].most = max(1, q.o.Keys/len(rules)) // no rule evicts the counts of another
	}
	q.limiters = next
}

// For is an engine.Stage. It runs behind idempotency, so that a replay is free, and in front of leases, so that a
// refused call uses up none. It returns nil if no rule applies to the tool.
func (q *Quotas) For(spec *tool.Spec) tool.Middleware {
	if t := q.of(spec); len(t.limits) > 0 {
		return t.stage
	}
	return nil
}

func (q *Quotas) of(spec *tool.Spec) *toolLimits {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &toolLimits{quotas: q}
	for _, l := range q.limiters {
		if l.Tools.Mentions(spec) && l.Sources.Match(spec.Source) {
			t.limits = append(t.limits, toolLimit{l, costOf(l.Cost, spec), spec.Ref()})
		}
	}
	if len(t.limits) > 0 {
		t.codebase = codebaseArguments(spec.Input)
	}
	return t
}

// costOf returns the cost of a call of a tool. A tool with several names costs as much as the dearest of them: its
// source chooses the aliases, and a cheap one must not help.
func costOf(costs map[string]int, spec *tool.Spec) int64 {
	most := -1
	for name, cost := range costs {
		if name != otherTools && tool.Pattern(name).Mentions(spec) {
			most = max(most, cost)
		}
	}
	if others, ok := costs[otherTools]; most < 0 && ok {
		most = others
	}
	if most < 0 {
		most = 1
	}
	return int64(most)
}

// A toolLimit is a rule that applies to a tool.
type toolLimit struct {
	*limiter
	cost int64
	tool tool.Ref
}

// toolLimits is the stage of one tool: the rules that apply to it.
type toolLimits struct {
	quotas   *Quotas
	limits   []toolLimit
	codebase []string // the arguments that name a codebase
}

// A claim is what one call needs of one rule.
type claim struct {
	*toolLimit
	who   counted
	key   key
	entry *entry
}

// usualClaims is how many rules can apply to a call without an allocation.
const usualClaims = 8

func (t *toolLimits) stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		var room [usualClaims]claim
		claims := t.claims(c, room[:0])
		if len(claims) == 0 {
			return next.Invoke(ctx, c, out)
		}
		at, wait, reason, err := t.quotas.admit(ctx, claims)
		switch {
		case err != nil:
			return nil, tool.BeforeRun(err)
		case wait > 0:
			return nil, tool.BeforeRun(claims[at].refusal(c, wait, reason))
		}
		defer t.quotas.leave(claims)
		return next.Invoke(ctx, c, out)
	})
}

// claims adds a claim for each rule that applies to a call.
func (t *toolLimits) claims(c *tool.Call, claims []claim) []claim {
	var codebase string
	looked := false
	for i := range t.limits {
		l := &t.limits[i]
		if !c.Caller.Concerns(l.Callers) || !l.Doors.Match(c.Caller.Door) {
			continue
		}
		if !looked && slices.Contains(l.Per, PerCodebase) {
			codebase, looked = codebaseOf(c.Args, t.codebase), true
		}
		who := l.counted(c, codebase)
		claims = append(claims, claim{toolLimit: l, who: who, key: t.quotas.key(who)})
	}
	return claims
}

// key identifies what a rule counts a call for. It is a digest that cannot be predicted: callers choose the length of
// some of the texts, and must not be able to choose how much memory they take, or to cause collisions.
func (q *Quotas) key(who counted) key {
	return key{maphash.Comparable(q.seeds[0], who), maphash.Comparable(q.seeds[1], who)}
}

// counted is what a rule counts a call for.
type counted struct {
	tool                                    tool.Ref
	caller, source, door, session, codebase string
}

func (l *toolLimit) counted(c *tool.Call, codebase string) (who counted) {
	for _, p := range l.Per {
		switch p {
		case PerCaller:
			who.caller = c.Caller.ID
		case PerTool:
			who.tool = l.tool
		case PerSource:
			who.source = l.tool.Source
		case PerDoor:
			who.door = c.Caller.Door
		case PerSession:
			who.session = c.Session
		case PerCodebase:
			who.codebase = codebase
		}
	}
	return who
}

func (q *Quotas) admit(ctx context.Context, claims []claim) (at int, wait time.Duration, reason string, err error) {
	if q.o.Shared != nil {
		return q.enterShared(ctx, claims)
	}
	at, wait, reason = q.enter(claims)
	return at, wait, reason, nil
}

// enter counts a call with every rule, or with none. In the latter case it returns the rule with the longest wait.
func (q *Quotas) enter(claims []claim) (at int, wait time.Duration, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for i := range claims {
		c := &claims[i]
		c.entry = c.limiter.entry(c.key)
		if c.entry.who == "" {
			c.entry.who = c.who.words(c.Per)
		}
		if w, r := c.judge(c.entry, c.cost, now); w > wait {
			at, wait, reason = i, w, r
		}
	}
	for _, c := range claims {
		if wait == 0 {
			c.charge(c.entry, c.cost, now)
		}
		c.forget(now) // not this entry if it counts
	}
	return at, wait, reason
}

// now returns the microseconds since the start, and never goes back. The caller holds mu.
func (q *Quotas) now() int64 {
	q.last = max(q.last, q.o.Now().Sub(q.start).Microseconds())
	return q.last
}

// leave records that a call has ended.
func (q *Quotas) leave(claims []claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range claims {
		c.entry.running--
	}
}

// refusal returns the error of a call over the limit.
func (c *claim) refusal(call *tool.Call, wait time.Duration, reason string) error {
	ms := (wait + time.Millisecond - 1) / time.Millisecond
	allows, hint := "", ""
	switch reason {
	case reasonRate:
		allows = c.Rate.words("calls")
		if c.Burst > 0 {
			allows += fmt.Sprintf(", %d of them at once,", c.Burst)
		}
	case reasonUnits:
		allows, hint = c.Units.words("units"), fmt.Sprintf(", and this call costs %d", c.cost)
	case reasonConcurrency:
		allows, hint = amount(c.Concurrency, "calls")+" at the same time", ", and as many are running"
	}
	e := tool.Errorf(tool.CodeQuotaExceeded, "%s was not run: quota %q allows %s %s%s; try again in %v",
		call.Tool, c.Name, allows, c.forWhom(), hint, ms*time.Millisecond).Because(reason)
	if c.Reason != "" {
		e.Message += " (" + c.Reason + ")"
	}
	e.Details, _ = strictjson.Marshal(map[string]any{"rule": c.Name, "retry_after_ms": int64(ms)})
	return e
}

// codebaseArguments lists the arguments of a tool that may name a codebase. Arguments that are not in its schema are
// ignored: a caller could send a different one in every call.
func codebaseArguments(schema json.RawMessage) []string {
	names := []string{"codebase_id", "codebaseId"}
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if strictjson.Unmarshal(schema, &s) != nil || s.Properties == nil {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool { return s.Properties[name] == nil })
}

// codebaseOf returns the codebase that the arguments name, or "".
func codebaseOf(args json.RawMessage, names []string) string {
	var given map[string]json.RawMessage
	if len(names) == 0 || strictjson.Unmarshal(args, &given) != nil {
		return ""
	}
	for _, name := range names {
		var id string
		if raw, ok := given[name]; ok && strictjson.Unmarshal(raw, &id) == nil && id != "" {
			return id
		}
	}
	return ""
}
