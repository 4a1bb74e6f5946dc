// Package cache is the stage that answers a call of a read-only tool with the result of an equal earlier call, if the
// config enables it. A result is no longer used once any call begins that may change what was read.
package cache

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options has useful zero values.
type Options struct {
	Now   func() time.Time // nil means time.Now
	Bytes int64            // of all results together; 0 means 64 MiB. The least recently used are evicted first
}

// A Cache keeps the results of one engine. It starts without rules; see Replace.
type Cache struct {
	domains // the rules, and the changes since
	now     func() time.Time
	lru     lru
	last    atomic.Int64 // number of the last reader

	hits, misses atomic.Int64
}

// New makes a cache.
func New(o Options) *Cache {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Cache{now: o.Now, lru: lru{most: cmp.Or(o.Bytes, maxTotal), byKey: map[key]*list.Element{}}}
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{
		Name: "limits.cache", Options: []Rule(nil),
		Doc: "which read-only tools may be answered from memory; default: none",
	}
}

// Read reads the rules of a config; apply switches to them.
func (c *Cache) Read(cfg *config.Config) (apply func(), err error) {
	var rules []Rule
	if err := cfg.Section(Section().Name).Decode(&rules); err != nil {
		return nil, err
	}
	if len(rules) > maxRules { // more than a person can read
		return nil, tool.Errorf(tool.CodeInvalidInput, "limits: there are %d caches, and %d are allowed", len(rules),
			maxRules)
	}
	return func() { c.Replace(rules) }, nil
}

// Replace switches to other rules and forgets every result. The stages that For returned before keep the rules they were
// made with.
func (c *Cache) Replace(rules []Rule) {
	c.replace(rules)
	c.lru.clear()
}

// For is an engine.Stage. It runs behind everything that may refuse a call, so that a caller who could not have called
// the tool never sees a result. It returns nil if the tool only reads and no rule mentions it.
//
// Results are kept for this stage alone: when the tools of an engine are replaced, their stages are new and start empty.
func (c *Cache) For(spec *tool.Spec) tool.Middleware {
	rule := c.rule(spec)
	ch := &changer{cache: c, spec: spec, own: rule}
	if !spec.Effects.ReadOnly() {
		ch.changes = c.source(spec.Source)
	}
	changes := c.changes(ch)
	switch {
	case rule == nil && changes:
		return ch.stage
	case rule == nil:
		return nil
	}
	r := &reader{cache: c, number: c.last.Add(1), rule: rule, spec: spec, source: c.source(spec.Source)}
	if !changes {
		return r.stage
	}
	return func(next tool.Handler) tool.Handler { return ch.stage(r.stage(next)) }
}

// Stats counts the lookups and the contents of a cache.
type Stats struct {
	Hits, Misses   int64
	Entries, Bytes int64
}

// Stats returns the numbers as they are now.
func (c *Cache) Stats() Stats {
	c.lru.mu.Lock()
	defer c.lru.mu.Unlock()
	return Stats{c.hits.Load(), c.misses.Load(), int64(len(c.lru.byKey)), c.lru.bytes}
}

// A reader is the stage of a tool whose results are kept.
type reader struct {
	cache  *Cache
	number int64
	rule   *rule
	spec   *tool.Spec
	source *domain
}

// A key is the same for calls that get the same answer.
type key struct {
	reader       int64
	caller, door string            // empty if the result is for all callers
	walls        [sha256.Size]byte // around the call, in addition to those of the tool
	args         [sha256.Size]byte
	accounts     [sha256.Size]byte // of the caller: another one, which is connected in its place, has other answers
}

func (r *reader) key(ctx context.Context, c *tool.Call) (key, error) {
	k := key{reader: r.number, args: sha256.Sum256(c.Args)}
	if !r.rule.Shared || len(c.Credentials) > 0 { // its answer is about the caller's own account
		k.caller, k.door = c.Caller.ID, c.Caller.Door
	}
	for _, one := range c.Credentials {
		value, err := one.Value(ctx)
		if err != nil {
			return k, err
		}
		k.accounts = sha256.Sum256(append(k.accounts[:], value...))
	}
	if len(c.Guarantees.Asked()) > 0 {
		walls, _ := strictjson.Marshal(c.Guarantees) // names and numbers
		k.walls = sha256.Sum256(walls)
	}
	return k, nil
}

// keepable reports whether a call depends on nothing but its tool, its arguments and its caller. A call that belongs to
// a session, answers a question, uses up a lease or may reach only some files is different each time.
func keepable(c *tool.Call) bool {
	return c.Session == "" && c.State == nil && c.Answers == nil && c.Resume == "" && c.Lease == "" && c.Scope == nil &&
		!c.DryRun
}

func (r *reader) stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if !keepable(c) {
			return next.Invoke(ctx, c, out)
		}
		k, err := r.key(ctx, c)
		if err != nil {
			return nil, tool.BeforeRun(err)
		}
		began, now := seen(r.source, r.rule), r.cache.now()
		if kept := r.cache.lru.get(k, began, now); kept != nil {
			r.cache.hits.Add(1)
			return kept.again(), nil
		}
		r.cache.misses.Add(1)
		seen := &watch{out: out}
		res, err := next.Invoke(ctx, c, seen)
		if err == nil && !seen.more.Load() && r.worth(res) {
			r.cache.lru.put(&entry{
				key: k, stamp: began, until: now.Add(r.rule.TTL), output: slices.Clone(res.Output),
				summary: strings.Clone(res.Summary), content: res.Content, spec: r.spec,
			})
		}
		return res, err
	})
}

// worth reports whether a result can be replayed.
func (r *reader) worth(res *tool.Result) bool {
	return res != nil && res.OK && res.Ask == nil && res.Failure == nil &&
		len(res.Output)+len(res.Summary)+res.Content.Size() <= cmp.Or(r.rule.MaxBytes, maxResult)
}

// again returns the result as a cached one. It has no trace of a run, because the tool did not run.
func (e *entry) again() *tool.Result {
	return &tool.Result{
		OK: true, Output: slices.Clone(e.output), Summary: e.summary, Content: e.content,
		Trace: tool.Trace{Tool: e.spec.Name, Source: e.spec.Source, Protocol: e.spec.Protocol, Cached: true},
	}
}

// A watch notes whether a call leaves more behind than its result. Events are not replayed: if a caller would miss one,
// the result is not kept.
type watch struct {
	out  tool.Sink
	more atomic.Bool
}

// Emit implements tool.Sink.
func (w *watch) Emit(ev tool.Event) error {
	switch ev.Kind {
	case tool.KindLog, tool.KindProgress, tool.KindOutput:
	default:
		w.more.Store(true)
	}
	return w.out.Emit(ev)
}

// A changer is the stage of a tool whose calls may invalidate results.
type changer struct {
	cache   *Cache
	spec    *tool.Spec
	changes *domain // its source, or nil if it changes nothing there
	own     *rule   // the rule that keeps its results and that it does not invalidate, or nil
}

func (ch *changer) stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		touched := ch.cache.begin(ch)
		defer ch.cache.end(ch, touched)
		return next.Invoke(ctx, c, out)
	})
}

// Bounds on the config, and on what is kept.
const (
	maxRules  = 100
	maxTTL    = 24 * time.Hour
	maxResult = 1 << 20  // bytes of one result
	maxTotal  = 64 << 20 // bytes of all
)

// A Rule is an entry of limits.cache. If several match a tool, the first one counts.
type Rule struct {
	Tools      tool.Patterns `yaml:"tools" doc:"tools by name or as source.name; only tools that declare that they read, and nothing else, are cached"`
	TTL        time.Duration `yaml:"ttl" doc:"how old a cached result may be, such as 30s; at most 24h"`
	MaxBytes   int           `yaml:"max_bytes" kind:"bytes" schema:"default=1048576" doc:"size of the largest result that is cached; at most 1 MiB"`
	Shared     bool          `yaml:"shared" doc:"share results between callers; default: each caller has its own"`
	Invalidate tool.Patterns `yaml:"invalidate" doc:"tools of other sources whose calls make the results stale; calls that may change something on the same source always do"`
}

// Validate implements config's validator.
func (r *Rule) Validate() error {
	switch {
	case len(r.Tools) == 0:
		return errors.New("a cache without tools keeps nothing; name them, such as `tools: [readFile]`")
	case r.TTL <= 0 || r.TTL > maxTTL:
		return fmt.Errorf("the cache of %s has no ttl between 0 and %v; say how old a result may be, such as "+
			"`ttl: 30s`", r.Tools, maxTTL)
	case r.MaxBytes < 0 || r.MaxBytes > maxResult:
		return fmt.Errorf("the cache of %s: max_bytes is %d; it must be 1 to %d", r.Tools, r.MaxBytes, maxResult)
	}
	return nil
}

// names reports whether the rule names the tool itself, not by a pattern that may match it by chance.
func (r *Rule) names(ref tool.Ref) bool {
	return slices.ContainsFunc(r.Tools, func(p tool.Pattern) bool { return p.Plain() && p.Match(ref) })
}

// overhead is roughly the memory of a result beside its own bytes: many small ones are not free.
const overhead = 512

// An entry is a kept result.
type entry struct {
	key     key
	stamp   stamp
	until   time.Time
	output  json.RawMessage
	summary string
	content *tool.Content // shared, and must not be changed
	spec    *tool.Spec
}

func (e *entry) bytes() int64 {
	return int64(overhead + len(e.output) + len(e.summary) + e.content.Size() + len(e.key.caller) + len(e.key.door))
}

// An lru holds results, the most recently used first, up to a number of bytes.
type lru struct {
	most int64

	mu    sync.Mutex
	byKey map[key]*list.Element
	used  list.List // of *entry
	bytes int64
}

// get returns the result of an equal call, if nothing has changed since and it is not too old.
func (l *lru) get(k key, now stamp, at time.Time) *entry {
	if now == (stamp{}) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	el := l.byKey[k]
	if el == nil {
		return nil
	}
	e := el.Value.(*entry)
	if e.stamp != now || !at.Before(e.until) {
		l.remove(el)
		return nil
	}
	l.used.MoveToFront(el)
	return e
}

// put keeps a result, in place of an earlier one, and evicts the least recently used.
func (l *lru) put(e *entry) {
	if e.stamp == (stamp{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if el := l.byKey[e.key]; el != nil {
		l.remove(el)
	}
	l.byKey[e.key] = l.used.PushFront(e)
	l.bytes += e.bytes()
	for l.bytes > l.most {
		l.remove(l.used.Back())
	}
}

// remove removes a result; the caller holds the lock.
func (l *lru) remove(el *list.Element) {
	e := el.Value.(*entry)
	l.used.Remove(el)
	delete(l.byKey, e.key)
	l.bytes -= e.bytes()
}

func (l *lru) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.byKey)
	l.used.Init()
	l.bytes = 0
}
