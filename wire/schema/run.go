package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

const (
	// baseWork is how many steps any value may take: well under a second. A large value may take workPerByte more for
	// each of its bytes. A schema of a few lines can multiply work without end.
	baseWork    = 2_000_000
	workPerByte = 10
	workPerNote = 20 // making the message
	// patternSteps is how many steps of a pattern cost as much as one look at a schema.
	patternSteps = 16
	// maxSteps bounds how many schemas may be nested at once; a value is at most strictjson.MaxDepth deep.
	maxSteps = 5_000
)

// A run is one pass over a value. A quiet run stops at the first fault and does not allocate; any other collects
// findings.
type run struct {
	quiet    bool
	left     int64 // steps
	extended bool  // whether left has been raised for a large value
	steps    int   // nested schemas
	stopped  string
	value    any         // the whole of it
	scopes   []*resource // the resources entered so far, for $dynamicRef
	path     []step      // the position in the value; not kept when quiet
	found    []finding
}

// A step goes into a member of an object, or into an item of an array.
type step struct {
	name  string
	index int
	item  bool
}

// spend charges for work, and reports whether any is left.
func (r *run) spend(cost int64) bool {
	if r.left -= cost; r.left >= 0 {
		return r.stopped == ""
	}
	if !r.extended {
		r.extended = true
		r.left += workPerByte * sizeOf(r.value)
		return r.spend(0)
	}
	r.stopped = "it could not be checked: the schema asks for too much work"
	return false
}

// more reports whether to go on after some rule: a quiet run ends with the first fault, any other with as many as are
// shown. A caller controls how many faults there are.
func (r *run) more(ok bool) bool {
	return (ok || !r.quiet) && len(r.found) < MaxFaults && r.stopped == ""
}

// check validates v against n. If marks is not nil, it notes there what n evaluated.
func (r *run) check(n *node, v any, marks *evaluated) bool {
	if !r.spend(n.cost) || !r.more(true) {
		return false
	}
	if n.never {
		return r.failBy(ruleNever, n, func() string { return "nothing is allowed here" })
	}
	if r.steps++; r.steps > maxSteps {
		r.stopped = "it could not be checked: the schema refers to itself without end"
	}
	outside := len(r.scopes)
	if n.res != nil && (outside == 0 || r.scopes[outside-1] != n.res) {
		r.scopes = append(r.scopes, n.res)
	}
	ok := r.rules(n, v, marks)
	r.scopes = r.scopes[:outside]
	r.steps--
	return ok
}

func (r *run) rules(n *node, v any, marks *evaluated) bool {
	if n.types != 0 && !n.types.hold(v) {
		return r.failBy(ruleType, n, func() string { return n.typeWords(v) }) // other faults of the value would say less
	}
	outer := marks
	if n.unevaluatedItems != nil || n.unevaluatedProperties != nil {
		marks = &evaluated{}
	}
	ok := r.listed(n, v)
	if r.more(ok) {
		ok = r.byKind(n, v, marks) && ok
	}
	if n.logic != nil && r.more(ok) {
		ok = r.logic(n, v, marks) && ok
	}
	if marks != outer && r.more(ok) {
		ok = r.unevaluated(n, v, marks) && ok
		outer.merge(marks)
	}
	return ok
}

func (r *run) listed(n *node, v any) bool {
	if n.constant != nil && !n.constant.hold(v) {
		return r.failBy(ruleConst, n, func() string { return "is not " + listing(n.constant.listed) })
	}
	if n.enum != nil && !n.enum.hold(v) {
		return r.failBy(ruleEnum, n, n.enumWords)
	}
	return true
}

func (r *run) byKind(n *node, v any, marks *evaluated) bool {
	switch value := v.(type) {
	case string:
		return n.str == nil || r.text(n.str, value)
	case json.Number:
		return r.number(n.bounds, string(value))
	case []any:
		return n.arr == nil || r.array(n.arr, value, marks)
	case map[string]any:
		return n.obj == nil || r.object(n.obj, value, marks)
	}
	return true
}

func (r *run) number(bounds []bound, s string) bool {
	ok := true
	for i := range bounds {
		if b := &bounds[i]; b.broken(b.limit, s) {
			ok = r.fail(func() string { return brief(s) + b.words + brief(b.limit.text) })
		}
	}
	return ok
}

func (r *run) text(rules *stringRules, s string) bool {
	ok := true
	if !rules.length.any() {
		r.spend(int64(len(s) / 64))
		ok = r.length(rules.length, s)
	}
	if rules.pattern != nil && r.more(ok) && !r.matches(rules.pattern, s) {
		ok = r.fail(func() string { return "does not match the pattern " + brief(rules.pattern.text) })
	}
	return ok
}

// length counts code points, and only if the number of bytes does not decide.
func (r *run) length(l span, s string) bool {
	if len(s) < l.min || l.min > 0 && len(s) < 4*l.min && utf8.RuneCountInString(s) < l.min {
		return r.fail(func() string { return "shorter than " + count(l.min, "character", "characters") })
	}
	if len(s) > l.max && utf8.RuneCountInString(s) > l.max {
		return r.fail(func() string { return "longer than " + count(l.max, "character", "characters") })
	}
	return true
}

// within checks a count against its limits.
func (r *run) within(s span, n int, one, many string) bool {
	ok := true
	if n < s.min {
		ok = r.fail(func() string { return "fewer than " + count(s.min, one, many) })
	}
	if n > s.max {
		ok = r.fail(func() string { return "more than " + count(s.max, one, many) })
	}
	return ok
}

// matches pays for the work in advance, since a pattern of Go's regexp cannot be stopped. A pattern that needs
// backtracking can, and pays for the time that it took. A pattern that is not checked matches everything.
func (r *run) matches(p *pattern, s string) bool {
	switch {
	case p.unread:
		return true
	case p.tries == nil:
		return r.spend(int64(len(s))*p.size/patternSteps) && p.re.MatchString(s)
	case !r.spend(1):
		return false
	}
	began := time.Now()
	ok, err := p.tries.MatchString(s)
	if err != nil {
		r.stopped = "it could not be checked: the pattern " + brief(p.text) + " asks for too much work"
		return false
	}
	return r.spend(int64(time.Since(began)/timeOfAStep)) && ok
}

func (r *run) array(rules *arrayRules, items []any, marks *evaluated) bool {
	ok := r.within(rules.size, len(items), "item", "items")
	if r.more(ok) {
		ok = r.items(rules, items, marks) && ok
	}
	if rules.contains != nil && r.more(ok) {
		ok = r.contains(rules, items, marks) && ok
	}
	if rules.unique && r.more(ok) {
		if i, k, twins := r.firstTwins(items); twins {
			ok = r.fail(func() string { return fmt.Sprintf("items %d and %d are equal", i, k) })
		}
	}
	return ok
}

func (r *run) items(rules *arrayRules, items []any, marks *evaluated) bool {
	ok := true
	for i, item := range items {
		n := rules.rest
		if i < len(rules.prefix) {
			n = rules.prefix[i]
		}
		if n == nil {
			marks.items(i)
			return ok
		}
		if !r.child(n, item, step{index: i, item: true}) {
			if ok = false; !r.more(ok) {
				return false
			}
		}
	}
	marks.items(len(items))
	return ok
}

func (r *run) contains(rules *arrayRules, items []any, marks *evaluated) bool {
	found := 0
	for i, item := range items {
		if !r.silently(rules.contains, item, nil) {
			continue
		}
		found++
		if rules.marks {
			marks.item(i)
		}
	}
	switch {
	case found < rules.found.min:
		return r.fail(func() string {
			return "fewer than " + count(rules.found.min, "item is", "items are") + " of the kind it must contain"
		})
	case found > rules.found.max:
		return r.fail(func() string {
			return "more than " + count(rules.found.max, "item is", "items are") + " of the kind it may contain"
		})
	}
	return true
}

// child checks a value one level deeper.
func (r *run) child(n *node, v any, s step) bool {
	if r.quiet {
		return r.check(n, v, nil)
	}
	r.path = append(r.path, s)
	ok := r.check(n, v, nil)
	r.path = r.path[:len(r.path)-1]
	return ok
}

// silently only reports whether v matches, without findings.
func (r *run) silently(n *node, v any, marks *evaluated) bool {
	was := r.quiet
	r.quiet = true
	ok := r.check(n, v, marks)
	r.quiet = was
	return ok
}

// branch is silently for one of several schemas: what it evaluated counts only if it matches.
func (r *run) branch(n *node, v any, marks *evaluated) bool {
	if marks == nil {
		return r.silently(n, v, nil)
	}
	var own evaluated
	ok := r.silently(n, v, &own)
	if ok {
		marks.merge(&own)
	}
	return ok
}

func (r *run) object(rules *objectRules, obj map[string]any, marks *evaluated) bool {
	ok := true
	for _, name := range rules.required {
		if _, there := obj[name]; !there && r.more(ok) {
			ok = r.fail(func() string { return "missing property " + quoted(name) })
		}
	}
	ok = r.within(rules.size, len(obj), "property", "properties") && ok
	if r.more(ok) {
		ok = r.members(rules, obj, marks) && ok
	}
	if rules.dependent != nil && r.more(ok) {
		ok = r.dependent(rules, obj, marks) && ok
	}
	return ok
}

func (r *run) members(rules *objectRules, obj map[string]any, marks *evaluated) bool {
	if !r.spend(int64(len(obj) * (1 + len(rules.patterns)))) {
		return false
	}
	if !r.quiet {
		ok := true
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			if ok = r.member(rules, name, obj[name], marks) && ok; !r.more(ok) {
				break
			}
		}
		return ok
	}
	for name, v := range obj {
		if !r.member(rules, name, v, marks) {
			return false
		}
	}
	return true
}

func (r *run) member(rules *objectRules, name string, v any, marks *evaluated) bool {
	known, ok := false, true
	if rules.names != nil && !r.silently(rules.names, name, nil) {
		ok = r.fail(func() string {
			return "property name " + quoted(name) + ": " + r.collect(rules.names, name)[0].Problem
		})
	}
	if p := rules.properties[name]; p != nil {
		known = true
		ok = r.child(p, v, step{name: name}) && ok
	}
	for i := range rules.patterns {
		if p := &rules.patterns[i]; r.matches(p.pattern, name) {
			known = true
			ok = (p.pattern.unread || r.child(p.node, v, step{name: name})) && ok
		}
	}
	if !known && rules.additional != nil {
		known = true
		ok = r.extra(rules.additional, name, v, rules.allowed) && ok
	}
	if known {
		marks.property(name)
	}
	return ok
}

// extra checks a property that is not among the known ones. A property that is not allowed is a fault of the object;
// hint lists those that are.
func (r *run) extra(others *node, name string, v any, hint func() string) bool {
	if others.never {
		return r.fail(func() string { return "property " + quoted(name) + " is not allowed" + hint() })
	}
	return r.child(others, v, step{name: name})
}

func (r *run) dependent(rules *objectRules, obj map[string]any, marks *evaluated) bool {
	ok := true
	for i := range rules.dependent {
		d := &rules.dependent[i]
		if _, there := obj[d.name]; !there {
			continue
		}
		for _, name := range d.also {
			if _, there := obj[name]; !there && r.more(ok) {
				ok = r.fail(func() string {
					return "missing property " + quoted(name) + ", which " + quoted(d.name) + " needs"
				})
			}
		}
		if d.node != nil && r.more(ok) {
			ok = r.check(d.node, obj, marks) && ok
		}
	}
	return ok
}

func (r *run) logic(n *node, v any, marks *evaluated) bool {
	l, ok := n.logic, true
	if l.ref != nil {
		ok = r.check(l.ref, v, marks)
	}
	if l.dynamic != nil && r.more(ok) {
		ok = r.check(r.dynamic(l.dynamic), v, marks) && ok
	}
	for _, part := range l.all {
		if r.more(ok) {
			ok = r.check(part, v, marks) && ok
		}
	}
	if r.more(ok) {
		ok = r.choices(n, v, marks) && ok
	}
	if l.cond != nil && r.more(ok) {
		ok = r.conditional(l, v, marks) && ok
	}
	return ok
}

func (r *run) dynamic(d *dynamicRef) *node {
	for _, res := range r.scopes {
		if n := res.dynamic[d.anchor]; n != nil {
			return n
		}
	}
	return d.fallback
}

func (r *run) choices(n *node, v any, marks *evaluated) bool {
	l, ok := n.logic, true
	if l.any != nil && r.matching(l.any, v, marks, 1) == 0 {
		ok = false
		r.noteNearest(l.any, v)
	}
	if l.one != nil && r.more(ok) {
		switch r.matching(l.one, v, marks, 2) {
		case 0:
			ok = false
			r.noteNearest(l.one, v)
		case 1:
		default:
			ok = r.fail(func() string { return "matches more than one of the choices, and must match exactly one (oneOf)" })
		}
	}
	if l.not != nil && r.more(ok) && r.branch(l.not, v, nil) {
		ok = r.fail(func() string { return "is what the schema rules out (not)" })
	}
	return ok
}

// matching counts the schemas that v matches, up to enough; if marks are kept, it checks all of them.
func (r *run) matching(nodes []*node, v any, marks *evaluated, enough int) int {
	count := 0
	for _, n := range nodes {
		if r.branch(n, v, marks) {
			if count++; count >= enough && marks == nil {
				return count
			}
		}
	}
	return count
}

func (r *run) conditional(l *logicRules, v any, marks *evaluated) bool {
	next := l.otherwise
	if r.branch(l.cond, v, marks) {
		next = l.then
	}
	return next == nil || r.check(next, v, marks)
}

func (r *run) unevaluated(n *node, v any, marks *evaluated) bool {
	switch value := v.(type) {
	case []any:
		return n.unevaluatedItems == nil || r.unevaluatedItems(n, value, marks)
	case map[string]any:
		return n.unevaluatedProperties == nil || r.unevaluatedProperties(n, value, marks)
	}
	return true
}

func (r *run) unevaluatedItems(n *node, items []any, marks *evaluated) bool {
	ok := r.spend(int64(len(items)))
	for i := marks.upTo; i < len(items); i++ {
		if marks.each[i] {
			continue
		}
		if !r.child(n.unevaluatedItems, items[i], step{index: i, item: true}) {
			if ok = false; !r.more(ok) {
				return false
			}
		}
	}
	marks.items(len(items))
	return ok
}

func (r *run) unevaluatedProperties(n *node, obj map[string]any, marks *evaluated) bool {
	ok := r.spend(int64(len(obj)))
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		if marks.names[name] {
			continue
		}
		if ok = r.extra(n.unevaluatedProperties, name, obj[name], func() string { return "" }) && ok; !r.more(ok) {
			return false
		}
		marks.property(name)
	}
	return ok
}
