package cache

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"toolpost/tool"
)

// A domain is something that results depend on: a source, or the tools that a rule names under invalidate.
type domain struct {
	changes atomic.Uint64 // one more than the number of calls that ended and may have changed something
	running atomic.Int64  // running calls that may be changing something
}

func (d *domain) begin() { d.running.Add(1) }

// end counts the change before it counts the call as ended: a reader that sees no running call sees all changes.
func (d *domain) end() {
	d.changes.Add(1)
	d.running.Add(-1)
}

// seen returns the number of changes, or 0 if a running call may be changing something.
func (d *domain) seen() uint64 {
	if d.running.Load() > 0 {
		return 0
	}
	return 1 + d.changes.Load()
}

// A stamp counts the changes of everything that a result depends on. The zero value belongs to a moment at which a call
// may be changing it: no result of such a moment is kept or returned.
type stamp struct{ source, named uint64 }

// A rule is a Rule with the domain that its results depend on beside their source.
type rule struct {
	Rule
	named domain
}

// domains holds everything that results depend on. Calls take the lock only while there are rules.
type domains struct {
	some    atomic.Bool // there are rules
	mu      sync.Mutex
	rules   []*rule
	sources map[string]*domain
	refused []string // tools that rules name and that may do more than read
}

// replace switches to other rules. An unchanged rule stays, with the calls that it waits for.
func (d *domains) replace(rules []Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := make([]*rule, len(rules))
	for i, r := range rules {
		at := slices.IndexFunc(d.rules, func(was *rule) bool { return reflect.DeepEqual(was.Rule, r) })
		if at >= 0 && !slices.Contains(next, d.rules[at]) {
			next[i] = d.rules[at]
			continue
		}
		next[i] = &rule{Rule: r}
	}
	d.rules, d.refused = next, nil
	d.some.Store(len(next) > 0)
}

// changes reports whether calls of a tool can invalidate any result. A tool that may do more than read always can: rules
// may be added while it runs.
func (d *domains) changes(ch *changer) bool { return ch.changes != nil || len(d.touched(ch)) > 0 }

// rule finds the rule of a tool that only reads.
func (d *domains) rule(spec *tool.Spec) *rule {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.rules {
		switch {
		case !r.Tools.Match(spec.Ref()):
		case spec.Effects.ReadOnly():
			return r
		case r.names(spec.Ref()) && !slices.Contains(d.refused, spec.Name):
			d.refused = append(d.refused, spec.Name)
		}
	}
	return nil
}

// Misplaced returns an error if a rule names a tool that may do more than read, or nil. A pattern may match such tools;
// they are ignored.
func (d *domains) Misplaced() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.refused) == 0 {
		return nil
	}
	return tool.Errorf(tool.CodeInvalidInput, "limits: %s cannot be cached, because not declared to read and do "+
		"nothing else; take the name out of limits.cache, or correct the effects of the tool",
		strings.Join(slices.Sorted(slices.Values(d.refused)), ", "))
}

// source returns the domain of a source, always the same one. There are as many as a config has sources.
func (d *domains) source(name string) *domain {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sources == nil {
		d.sources = map[string]*domain{}
	}
	if d.sources[name] == nil {
		d.sources[name] = &domain{}
	}
	return d.sources[name]
}

// seen returns the current stamp.
func seen(source *domain, r *rule) stamp {
	s := stamp{source.seen(), r.named.seen()}
	if s.source == 0 || s.named == 0 {
		return stamp{}
	}
	return s
}

// touched lists the domains that a call invalidates beside its source, by the current rules.
func (d *domains) touched(ch *changer) (list []*domain) {
	if !d.some.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.rules {
		if r != ch.own && len(r.Invalidate) > 0 && r.Invalidate.Mentions(ch.spec) {
			list = append(list, &r.named)
		}
	}
	return list
}

// begin records that a call begins.
func (d *domains) begin(ch *changer) []*domain {
	if ch.changes != nil {
		ch.changes.begin()
	}
	list := d.touched(ch)
	for _, t := range list {
		t.begin()
	}
	return list
}

// end records that the call has ended, also for rules that were added meanwhile.
func (d *domains) end(ch *changer, begun []*domain) {
	if ch.changes != nil {
		ch.changes.end()
	}
	for _, t := range begun {
		t.end()
	}
	for _, t := range d.touched(ch) {
		if !slices.Contains(begun, t) {
			t.changes.Add(1)
		}
	}
}
