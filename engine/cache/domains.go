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
	changes atomic.Uint64 // one more than how often a call has ended that may have changed something
	running atomic.Int64  // calls that run and may be changing something
}

func (d *domain) begin() { d.running.Add(1) }

// end counts the change before the call is gone: whoever sees nobody run sees all that was changed.
func (d *domain) end() {
	d.changes.Add(1)
	d.running.Add(-1)
}

// seen returns the number of changes; 0: somebody may be changing something.
func (d *domain) seen() uint64 {
	if d.running.Load() > 0 {
		return 0
	}
	return 1 + d.changes.Load()
}

// A stamp says how often what a result depends on has changed. The zero value is of a moment at which somebody may be
// changing it: no result of such a moment is kept or given.
type stamp struct{ source, named uint64 }

// A rule is a Rule with what its results depend on beside their source.
type rule struct {
	Rule
	named domain
}

// domains are all that results depend on. Calls take the lock only while there are rules.
type domains struct {
	some    atomic.Bool // there are rules
	mu      sync.Mutex
	rules   []*rule
	sources map[string]*domain
	refused []string // tools that rules name and that may do more than read
}

// replace goes over to other rules. One that says the same as before stays, with the calls that it waits for.
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

// changes reports whether calls of a tool can make any result old. One that may do more than read can always: rules may
// come while it runs.
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

// Misplaced is the error of a rule that names a tool which may do more than read; nil: there is none. Patterns may meet
// such tools: then these are left alone.
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

// source returns the domain of a source, the same for ever. There are as many as a config has sources.
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

// touched lists what a call makes old beside its source, by the current rules.
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

// begin says that a call begins.
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

// end says that the call has ended. Rules that came meanwhile learn of it too.
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
