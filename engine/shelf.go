package engine

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"toolpost/engine/pin"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/tool"
)

// A Binding is a source as it was opened: with a runner, or with the reason why there is none.
type Binding struct {
	Name     string
	Protocol string
	Runner   tool.Runner
	Err      error
	// Upstream says that somebody else decides what its tools say of themselves. They are pinned, and take no name that
	// another tool has.
	Upstream bool
	// Waits says that it is opened when there is a need for it, see Options.Open; it has neither a runner nor an error.
	Waits bool
	// Comes says of one that waits that it is being opened already, and published when it is open.
	Comes bool
	// Asks says that it cannot be opened without starting a program or asking a server.
	Asks bool
	// Overall says that its tools are about all the others: whoever calls one needs every source.
	Overall bool
}

// A Runner may say that one of its tools cannot be called now, and why; the others are not harmed. It is
// asked at every call and listing, so it looks and does not wait.
type unavailable interface{ Unavailable(name string) error }

// A Runner may run only so many calls at once: those of tools with the same pool together. Without a pool, and with a
// 0, that is any number. The number is asked for at every call, so it looks and does not wait.
type crowded interface {
	Places(name string) (pool string, calls int)
}

// A shelf is everything that is published at one moment. It is never changed: Replace puts up another.
type shelf struct {
	items   []*item            // by name; dead sources that know no tools come as an item without a name
	byName  map[string]*item   // names, qualified names (source.name) and aliases
	alike   map[string]*source // who has a name that looks like this one; see looks
	bound   []*source          // in their order
	sources map[string]*source // the same by name
	policy  *policy.Policy     // nil: everything is allowed
	waits   bool               // some of the sources wait
	comes   bool               // those that wait come by themselves
}

// An item is one tool on the shelf.
type item struct {
	spec    *tool.Spec // as published: the name may differ, and nothing in it is hidden
	own     *tool.Spec // as its runner knows it
	source  *source
	schema  *contract
	judge   *policy.Judge
	handler tool.Handler // the stages of this tool, down to its runner
	err     error        // why it cannot be called, however often one asks
	held    *pin.Held    // it is held back; nil: it is not
	gone    bool         // its source does not bring it now; its names are kept for it
}

// back reports whether the tool is on no list. Its names are still its own.
func (it *item) back() bool { return it.held != nil || it.gone }

// why says why the tool cannot be called now, or nil.
func (it *item) why() error {
	if it.err != nil {
		return it.err
	}
	return Unavailable(it.source.Runner, it.own.Name)
}

// A source counts the calls that run on it, so that it is closed after the last of them.
type source struct {
	Binding
	// What it brought, or brought when it last lived, and what pins say of it; with Err under Engine.replacing.
	specs   []*tool.Spec
	verdict *pin.Verdict // nil: its tools are not pinned
	// Of those tools, for the next shelf.
	contracts map[*tool.Spec]*contract

	life context.Context // ends when the source retires
	end  context.CancelFunc

	mu      sync.Mutex
	calls   int
	retired bool
	idle    chan struct{}          // closed when retired and no call is left
	lines   map[string]*queue.Line // where calls wait, by pool
}

// line is where the calls of a tool wait for each other; nil: they do not.
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
	return s.lines[pool].Stage
}

// Crowds tells how full the lines are in which calls wait, in the order of the config.
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

// retire lets no new call in. The channel that it returns is closed when the last one has ended.
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
	var ours, theirs []batch
	for _, src := range bound {
		if batches := sh.take(src); src.Upstream {
			theirs = append(theirs, batches...)
		} else {
			ours = append(ours, batches...)
		}
	}
	// Stable: of those that were first seen together the order of the config decides.
	slices.SortStableFunc(theirs, func(a, b batch) int { return a.seen.Compare(b.seen) })
	inOrder := slices.Concat(ours, theirs)
	sh.name(inOrder)
	sh.slug(inOrder)
	for _, b := range inOrder {
		for _, it := range b.items {
			it.judge = sh.policy.For(it.spec, it.toucher())
			it.handler = e.handler(it)
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

// take makes the items of a source. A dead source that knows no tools comes as an item without a name.
func (sh *shelf) take(src *source) []batch {
	if src.Err != nil && len(src.specs) == 0 {
		nameless := &tool.Spec{Source: src.Name, Protocol: src.Protocol}
		sh.items = append(sh.items, &item{
			spec: nameless, source: src, judge: sh.policy.For(nameless, nil), err: src.Err,
		})
	}
	items, contracts := make([]*item, len(src.specs)), make(map[*tool.Spec]*contract, len(src.specs))
	for i, own := range src.specs {
		items[i] = newItem(src, own)
		contracts[own] = items[i].schema
	}
	src.contracts = contracts
	if src.verdict == nil {
		return []batch{{items: items}}
	}
	return src.inBatches(items)
}

// newItem publishes a tool. Its tier is settled here, once: whoever asks for leases, judges, records or shows a tool
// reads the same number.
func newItem(src *source, given *tool.Spec) *item {
	own := *given
	own.Source, own.Protocol, own.Own, own.Slug = src.Name, src.Protocol, "", ""
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
	return it
}

// rename publishes the tool under another name than its source has for it.
func (it *item) rename(name string) {
	published := *it.spec
	published.Name, published.Own = name, it.spec.Name
	it.spec = &published
}

// renamed returns a call in the name that the tool's source has for it.
func (it *item) renamed(c *tool.Call) *tool.Call {
	if c.Tool == it.own.Name && c.Spec == it.own {
		return c
	}
	own := *c
	own.Tool, own.Spec = it.own.Name, it.own
	return &own
}

// A toucher asks the runner of a tool, in the runner's own words, what a call is going to touch.
type toucher struct {
	it     *item
	runner tool.Toucher
}

// Touches implements tool.Toucher.
func (t toucher) Touches(c *tool.Call) (tool.Touches, error) {
	return t.runner.Touches(t.it.renamed(c))
}

// toucher returns nil where the runner cannot tell.
func (it *item) toucher() tool.Toucher {
	if t, ok := it.source.Runner.(tool.Toucher); ok {
		return toucher{it, t}
	}
	return nil
}

// borrow finds a tool that can be called and holds its source; the caller releases it.
func (e *Engine) borrow(ctx context.Context, p tool.Principal, name string) (*item, error) {
	for {
		sh, err := e.ready(ctx, name)
		if err != nil {
			return nil, err
		}
		it, err := sh.find(p, name)
		if err != nil {
			return nil, err
		}
		if err := it.why(); err != nil {
			return nil, whyUnavailable(it.spec.Name, err)
		}
		if it.source.acquire() {
			return it, nil
		}
		// The source retired between the two steps: by then a newer shelf is up, or none ever will be.
		if e.shelf.Load() == sh {
			return nil, tool.Errorf(tool.CodeUnavailable, "%s: shutting down", name)
		}
	}
}

func whyUnavailable(name string, why error) *tool.Error {
	e := *tool.AsError(why)
	e.Message = name + " is unavailable: " + e.Message
	if e.Code == tool.CodeInternal {
		e.Code = tool.CodeUnavailable
	}
	return &e
}

// visible reports whether a caller gets to know of the tool: the one decision of listing and of calling.
func (it *item) visible(p tool.Principal) bool { return p.May(it.spec) && it.judge.Visible(p) }

// find finds a tool that the caller may know of.
func (sh *shelf) find(p tool.Principal, name string) (*item, error) {
	if it := sh.byName[name]; it != nil && it.visible(p) && (!it.gone || it.err != nil) {
		return it, nil
	}
	source, _, _ := strings.Cut(name, ".")
	for _, it := range sh.items { // a source that could not be opened says why: which tools it has is not known
		if it.spec.Name == "" && it.spec.Source == source && name != source && it.visible(p) {
			return nil, whyUnavailable(name, it.err)
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
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

// Changed implements tool.Changing: sources came or went, one of them has other tools, or there is another policy.
func (e *Engine) Changed() <-chan struct{} { return e.changes.Changed() }

// Specs implements tool.Catalog.
func (e *Engine) Specs(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, error] {
	items := e.complete(ctx).items
	return func(yield func(*tool.Spec, error) bool) {
		for _, it := range items {
			if !it.spec.Unlisted && it.visible(p) && !yield(it.spec, it.why()) {
				return
			}
		}
	}
}

// Offers implements tool.Offering.
func (e *Engine) Offers(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, tool.Follower] {
	items := e.complete(ctx).items
	return func(yield func(*tool.Spec, tool.Follower) bool) {
		for _, it := range items {
			if it.spec.Method != "" && it.visible(p) && it.why() == nil {
				if f, _ := it.source.Runner.(tool.Follower); !yield(it.spec, f) {
					return
				}
			}
		}
	}
}
