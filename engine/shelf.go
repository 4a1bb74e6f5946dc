package engine

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/engine/pin"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/tool"
)

// A Binding is a source as it was opened: with a runner, or with the reason why it has none.
type Binding struct {
	Name     string
	Protocol string
	Runner   tool.Runner
	Err      error
	// Upstream is set if a third party writes the descriptions of its tools. They are pinned, and take no name that
	// another tool has.
	Upstream bool
	// Waits is set if the source is opened on demand, see Options.Open. It has neither a runner nor an error.
	Waits bool
	// Comes is set if a waiting source will be published once it is open, and names and lists do not wait for it.
	Comes bool
	// Connects is set if opening the source starts a program or sends a request to a server.
	Connects bool
	// Overall is set if its tools are about all the other tools: a call of one needs every source.
	Overall bool
	// Remote is set if other nodes of the fleet run its tools.
	Remote bool
	// Connections of callers that its tools use; those of a tool of other nodes come with the tool.
	Connections []string
}

// A Runner may report that one of its tools cannot be called now, and why; its other tools are unaffected. Unavailable
// is called for every call and listing, so it must not block.
type unavailable interface{ Unavailable(name string) error }

// A Runner may limit how many calls run at once, counted over all tools of a pool. An empty pool or 0 calls means no
// limit. Places is called for every call, so it must not block.
type crowded interface {
	Places(name string) (pool string, calls int)
}

// A Runner may keep its program for calls that ask. While it does, no answer waits for a place: the call that has the place
// may wait for the program.
type keeper interface{ KeepsAsking() bool }

// A shelf is everything that is published at one moment. It is immutable: Replace stores another.
type shelf struct {
	items   []*item            // by name; a dead source without known tools is an item without a name
	byName  map[string]*item   // names, qualified names (source.name) and aliases
	alike   map[string]*source // the source of each name, by its looks; see looks
	bound   []*source          // in their order
	sources map[string]*source // the same by name
	policy  *policy.Policy     // nil means that everything is allowed
	waits   bool               // some of the sources wait
	comes   bool               // the waiting sources come by themselves
	used    atomic.Bool        // a client has listed or called something
}

// An item is one tool on the shelf.
type item struct {
	spec    *tool.Spec // as published: the name may differ, and nothing in it is hidden
	own     *tool.Spec // as its runner knows it
	source  *source
	schema  *contract
	judge   *policy.Judge
	handler tool.Handler // the stages of this tool, down to its runner
	err     error        // why it can never be called
	held    *pin.Held    // nil unless it is held back
	gone    bool         // its source does not bring it now; its names are kept for it
	further []version    // that get a share of the calls
}

// back reports whether the tool is left off every list. It keeps its names.
func (it *item) back() bool { return it.held != nil || it.gone }

// why returns why the tool cannot be called now, or nil if it can.
func (it *item) why() error {
	if it.err != nil {
		return it.err
	}
	return Unavailable(it.source.Runner, it.own.Name)
}

// A source counts its running calls, so that it is closed after the last of them.
type source struct {
	Binding
	// The tools that it brings, or brought while it last lived, and their pins. Like Err, guarded by Engine.replacing.
	specs   []*tool.Spec
	verdict *pin.Verdict         // nil if its tools are not pinned
	known   map[string]time.Time // when clients learned the names of its tools, by their names at the source; if not pinned
	// Kept for the next shelf.
	contracts map[*tool.Spec]*contract

	life context.Context // ends when the source retires
	end  context.CancelFunc

	mu      sync.Mutex
	calls   int
	retired bool
	idle    chan struct{}          // closed when retired and no call is left
	lines   map[string]*queue.Line // the queues of its calls, by pool
}

// line returns the queue in which the calls of a tool wait, or nil if its runner has no limit.
func (it *item) line(o queue.Options) tool.Middleware {
	runner, ok := it.source.Runner.(crowded)
	if !ok {
		return nil
	}
	s, name := it.source, it.own.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	pool, _ := runner.Places(name)
	if pool == "" {
		return nil
	}
	if s.lines == nil {
		s.lines = map[string]*queue.Line{}
	}
	if s.lines[pool] == nil {
		s.lines[pool] = queue.New(o, func() int { _, n := runner.Places(name); return n })
	}
	if k, ok := runner.(keeper); ok {
		return passing(k, s.lines[pool].Stage)
	}
	return s.lines[pool].Stage
}

// passing lets the answers to questions pass a queue, if a program waits for them.
func passing(k keeper, queue tool.Middleware) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		queued := queue(next)
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if c.Resume != "" && k.KeepsAsking() {
				return next.Invoke(ctx, c, out)
			}
			return queued.Invoke(ctx, c, out)
		})
	}
}

// Crowds returns how full the queues are, in the order of the config.
func (e *Engine) Crowds() []queue.Crowd {
	all := []queue.Crowd{}
	for _, s := range e.shelf.Load().bound {
		s.mu.Lock()
		for _, pool := range slices.Sorted(maps.Keys(s.lines)) {
			all = append(all, queue.Crowd{Source: s.Name, Pool: pool, Load: s.lines[pool].Load()})
		}
		s.mu.Unlock()
	}
	return all
}

func (s *source) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false
	}
	s.calls++
	return true
}

func (s *source) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	if s.retired && s.calls == 0 {
		close(s.idle)
	}
}

// retire stops the source from taking calls. The returned channel is closed when its last call has ended.
func (s *source) retire() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.retired {
		s.retired = true
		s.end()
		if s.calls == 0 {
			close(s.idle)
		}
	}
	return s.idle
}

func (e *Engine) newShelf(bound []*source, p *policy.Policy) *shelf {
	sh := &shelf{
		byName: map[string]*item{}, alike: map[string]*source{}, bound: bound, sources: map[string]*source{}, policy: p,
	}
	for _, src := range bound {
		sh.sources[src.Name] = src
		sh.waits, sh.comes = sh.waits || src.Waits, sh.comes || src.Comes
	}
	now := time.Now()
	var ours, theirs, remote []batch // a node takes no name of a tool of its hub
	for _, src := range bound {
		switch batches := sh.take(src, now); {
		case src.Remote:
			remote = append(remote, batches...)
		case src.Upstream:
			theirs = append(theirs, batches...)
		default:
			ours = append(ours, batches...)
		}
	}
	for _, batches := range [][]batch{ours, theirs, remote} { // stable: those first seen together keep the order of the config
		slices.SortStableFunc(batches, func(a, b batch) int { return a.seen.Compare(b.seen) })
	}
	inOrder := slices.Concat(ours, theirs, remote)
	sh.name(inOrder)
	sh.slug(inOrder)
	for _, b := range inOrder {
		for _, it := range b.items {
			e.equip(it, sh.policy)
			for _, v := range it.further {
				v.named(it)
				e.equip(v.item, sh.policy)
			}
			if !it.back() {
				sh.items = append(sh.items, it)
			}
		}
	}
	slices.SortStableFunc(sh.items, func(a, b *item) int {
		return cmp.Or(strings.Compare(a.spec.Name, b.spec.Name), strings.Compare(a.spec.Source, b.spec.Source))
	})
	return sh
}

// equip gives an item its judge and its stages.
func (e *Engine) equip(it *item, p *policy.Policy) {
	it.judge = p.For(it.spec, it.toucher())
	it.handler = e.handler(it)
}

// take makes the items of a source. A dead source without known tools becomes an item without a name.
func (sh *shelf) take(src *source, now time.Time) []batch {
	if src.Err != nil && len(src.specs) == 0 {
		unnamed := &tool.Spec{Source: src.Name, Protocol: src.Protocol}
		sh.items = append(sh.items, &item{
			spec: unnamed, own: unnamed, source: src, judge: sh.policy.For(unnamed, nil), err: src.Err,
		})
	}
	items, contracts := make([]*item, len(src.specs)), make(map[*tool.Spec]*contract, len(src.specs))
	for i, own := range src.specs {
		items[i] = newItem(src, own)
		contracts[own] = items[i].schema
	}
	src.contracts = contracts
	if src.verdict == nil {
		return src.unpinned(items, now)
	}
	return src.inBatches(items)
}

// newItem publishes a tool. Its tier is computed here, once, so that leases, policy, audit and listings use the same
// number.
func newItem(src *source, given *tool.Spec) *item {
	own := *given
	own.Source, own.Protocol, own.Own, own.Slug = src.Name, src.Protocol, "", ""
	if !src.Remote {
		own.Connections = src.Connections
	}
	own.SettleTier()
	it := &item{own: &own, source: src, err: src.Err}
	var hides error
	if it.spec, hides = shown(&own); it.err == nil {
		it.err = hides
	}
	it.schema = src.contract(given, &own)
	if it.err == nil {
		it.err = it.schema.broken
	}
	it.further = src.further(given)
	return it
}

// rename publishes the tool under a name other than its source's.
func (it *item) rename(name string) {
	published := *it.spec
	published.Name, published.Own = name, it.spec.Name
	it.spec = &published
}

// renamed returns the call with the tool's name at its source.
func (it *item) renamed(c *tool.Call) *tool.Call {
	if c.Tool == it.own.Name && c.Spec == it.own {
		return c
	}
	own := *c
	own.Tool, own.Spec = it.own.Name, it.own
	return &own
}

// A toucher asks the runner of a tool what a call is going to touch, using the runner's own name for the tool.
type toucher struct {
	it     *item
	runner tool.Toucher
}

// Touches implements tool.Toucher.
func (t toucher) Touches(c *tool.Call) (tool.Touches, error) {
	return t.runner.Touches(t.it.renamed(c))
}

// A previewer is a toucher whose runner can read files, too.
type previewer struct {
	toucher
	reads tool.Previewer
}

// Preview implements tool.Previewer.
func (p previewer) Preview(c *tool.Call, path string, limit int64) ([]byte, error) {
	return p.reads.Preview(p.it.renamed(c), path, limit)
}

// toucher returns nil if the runner cannot predict what a call touches. One that can for some of its tools says for which.
func (it *item) toucher() tool.Toucher {
	t, ok := it.source.Runner.(tool.Toucher)
	if knows, of := t.(interface{ Knows(*tool.Spec) bool }); !ok || of && !knows.Knows(it.own) {
		return nil
	}
	if reads, ok := t.(tool.Previewer); ok {
		return previewer{toucher{it, t}, reads}
	}
	return toucher{it, t}
}

// borrow returns a tool that can be called and holds its source; the caller must release it.
func (e *Engine) borrow(ctx context.Context, p tool.Principal, name string) (*item, error) {
	for {
		sh, err := e.ready(ctx, p, name)
		if err != nil {
			return nil, err
		}
		it, err := sh.find(p, name)
		if err != nil {
			return nil, err
		}
		if err := it.why(); err != nil {
			return nil, whyUnavailable(it.spec.Name, told(p, err))
		}
		if it.source.acquire() {
			return it, nil
		}
		// The source retired between the two steps: either a newer shelf is stored by now, or the engine is closing.
		if e.shelf.Load() == sh {
			return nil, tool.Errorf(tool.CodeUnavailable, "%s: shutting down", name)
		}
	}
}

// told returns the reason why a source or a tool is unavailable, for a caller. Further lines of it quote the config or what a
// program wrote, and can contain secrets: they are for operators.
func told(p tool.Principal, why error) error {
	if why == nil || p.Operator() || !strings.Contains(why.Error(), "\n") {
		return why
	}
	e := *tool.AsError(why)
	e.Message, _, _ = strings.Cut(e.Message, "\n")
	return &e
}

func whyUnavailable(name string, why error) *tool.Error {
	e := *tool.AsError(why)
	e.Message = name + " is unavailable: " + e.Message
	if e.Code == tool.CodeInternal || e.Code == tool.CodeInvalidInput { // the config's input, and not the caller's
		e.Code = tool.CodeUnavailable
	}
	return &e
}

// visible reports whether a caller may know of the tool. Listing and calling share this one decision.
func (it *item) visible(p tool.Principal) bool { return it.judge.Hidden(p) == nil }

// find returns a tool that the caller may know of.
func (sh *shelf) find(p tool.Principal, name string) (*item, error) {
	if it := sh.byName[name]; it != nil && it.visible(p) && (!it.gone || it.err != nil) {
		if !sh.used.Load() { // nearly every call only reads it: all of them share the shelf
			sh.used.Store(true)
		}
		return it, nil
	}
	first, _, dotted := strings.Cut(name, ".")
	var owner *source // by the name alone: a tool that the caller may not know of is treated as one that does not exist
	if dotted {
		owner = sh.sources[first]
	}
	var may []string
	for _, it := range sh.items { // the tools of a source that failed to open are unknown: the name may be one of them
		switch {
		case it.spec.Name != "" || !it.visible(p):
		case it.source == owner:
			return nil, whyUnavailable(name, told(p, it.err))
		case owner == nil:
			may = append(may, fmt.Sprintf("; source %s, which may have it, failed to open", it.spec.Source))
			if p.Operator() {
				may[len(may)-1] += ": " + tool.AsError(it.err).Message
			}
		}
	}
	if more := len(may) - maxNamed; more > 0 {
		may = append(may[:maxNamed], fmt.Sprintf("; and so did %d more", more))
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q%s", name, strings.Join(may, ""))
}

// Lookup implements tool.Catalog.
func (e *Engine) Lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	it, err := e.lookup(ctx, p, name)
	if err != nil {
		return nil, err
	}
	return it.spec, nil
}

// WhyNot implements tool.Reasoner.
func (e *Engine) WhyNot(ctx context.Context, p tool.Principal, name string) error {
	it, err := e.lookup(ctx, p, name)
	if err != nil {
		return nil //nolint:nilerr // who does not know of a tool does not learn why it is not there
	}
	return it.why()
}

// Has reports whether a tool can be called now, by any caller, and returns the digest of its definition. It opens no source.
func (e *Engine) Has(name string) (digest string, ok bool) {
	it := e.shelf.Load().byName[name]
	if it == nil || it.gone || it.why() != nil {
		return "", false
	}
	p, err := pin.Of(it.source.Name, it.own)
	return p.Digest, err == nil
}

// Changed implements tool.Changing: the sources, the tools of a source, or the policy changed.
func (e *Engine) Changed() <-chan struct{} { return e.changes.Changed() }

// Specs implements tool.Catalog.
func (e *Engine) Specs(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, error] {
	sh := e.complete(ctx)
	sh.used.Store(true)
	return func(yield func(*tool.Spec, error) bool) {
		for _, it := range sh.items {
			if !it.spec.Unlisted && it.visible(p) && !yield(it.spec, told(p, it.why())) {
				return
			}
		}
	}
}

// Listed counts the tools of a source that are on lists, if no right of a caller leaves them out.
func (e *Engine) Listed(source string) (n int) {
	for _, it := range e.shelf.Load().items {
		if it.source.Name == source && it.spec.Name != "" && !it.spec.Unlisted && it.visible(tool.Principal{}) {
			n++
		}
	}
	return n
}

// Offers implements tool.Offering.
func (e *Engine) Offers(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, tool.Follower] {
	sh := e.complete(ctx)
	sh.used.Store(true)
	return func(yield func(*tool.Spec, tool.Follower) bool) {
		for _, it := range sh.items {
			if it.spec.Method != "" && it.visible(p) && it.why() == nil {
				if f, _ := it.source.Runner.(tool.Follower); !yield(it.spec, f) {
					return
				}
			}
		}
	}
}
