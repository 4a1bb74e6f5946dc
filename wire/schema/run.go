package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"
)

const (
	// baseWork is how many steps any value may take: well under a second. A large value may take workPerByte
	// more for each of its bytes. Schemas that multiply work without end are a few lines long.
	baseWork    = 2_000_000
	workPerByte = 10
	workPerNote = 20 // finding the words
	// patternSteps is how many steps of a pattern weigh as much as one look at a schema.
	patternSteps = 16
	// maxSteps bounds how many schemas may be underway at once; a value is at most strictjson.MaxDepth deep.
	maxSteps = 5_000
)

// A run is one pass over a value. A quiet one stops at the first fault and does not allocate; one that is not
// quiet collects findings.
type run struct {
	quiet    bool
	left     int64 // steps
	extended bool  // whether left has been raised for a large value
	steps    int   // schemas underway
	stopped  string
	value    any         // the whole of it
	scopes   []*resource // the way here, for $dynamicRef
	path     []step      // where in the value; not kept when quiet
	found    []finding
}

// A step goes into a member of an object, or into an item of an array.
type step struct {
	name  string
	index int
	item  bool
}

// spend pays for work, and reports whether there is any left.
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

// more reports whether to look on after some rule.
func (r *run) more(ok bool) bool { return ok || !r.quiet }

// check holds v against n. Where marks are given, it notes there what n evaluated.
func (r *run) check(n *node, v any, marks *evaluated) bool {
	if !r.spend(n.cost) || !r.quiet && len(r.found) >= MaxFaults {
		return false
	}
	if n.never {
		return r.fail(n, ruleNever, v, "")
	}
	if r.steps++; r.steps > maxSteps {
		r.stopped = "it could not be checked: the schema refers to itself without end"
	}
	ok := r.inScope(n, v, marks)
	r.steps--
	return ok
}

func (r *run) inScope(n *node, v any, marks *evaluated) bool {
	if n.res == nil || len(r.scopes) > 0 && r.scopes[len(r.scopes)-1] == n.res {
		return r.rules(n, v, marks)
	}
	r.scopes = append(r.scopes, n.res)
	ok := r.rules(n, v, marks)
	r.scopes = r.scopes[:len(r.scopes)-1]
	return ok
}

func (r *run) rules(n *node, v any, marks *evaluated) bool {
	if n.types != 0 && !n.types.hold(v) {
		return r.fail(n, ruleType, v, "") // what else is wrong with it says less
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
		return r.fail(n, ruleConst, v, "")
	}
	if n.enum != nil && !n.enum.hold(v) {
		return r.fail(n, ruleEnum, v, "")
	}
	return true
}

func (r *run) byKind(n *node, v any, marks *evaluated) bool {
	switch value := v.(type) {
	case string:
		return n.str == nil || r.text(n, value, v)
	case json.Number:
		return n.num == nil || r.number(n, string(value), v)
	case []any:
		return n.arr == nil || r.array(n, value, v, marks)
	case map[string]any:
		return n.obj == nil || r.object(n, value, v, marks)
	}
	return true
}

func (r *run) number(n *node, s string, v any) bool {
	ok, b := true, n.num
	if b.min != nil && b.min.compare(s) < 0 {
		ok = r.fail(n, ruleMinimum, v, "")
	}
	if b.above != nil && b.above.compare(s) <= 0 {
		ok = r.fail(n, ruleExclusiveMinimum, v, "")
	}
	if b.max != nil && b.max.compare(s) > 0 {
		ok = r.fail(n, ruleMaximum, v, "")
	}
	if b.below != nil && b.below.compare(s) >= 0 {
		ok = r.fail(n, ruleExclusiveMaximum, v, "")
	}
	if b.multipleOf != nil && !b.multipleOf.divides(s) {
		ok = r.fail(n, ruleMultipleOf, v, "")
	}
	return ok
}

func (r *run) text(n *node, s string, v any) bool {
	ok, rules := true, n.str
	if !rules.length.any() {
		r.spend(int64(len(s) / 64))
		ok = r.length(n, s, v)
	}
	if rules.pattern != nil && r.more(ok) && !r.matches(rules.pattern, s) {
		ok = r.fail(n, rulePattern, v, "")
	}
	return ok
}

// length counts code points, and only where the number of bytes leaves it open.
func (r *run) length(n *node, s string, v any) bool {
	l := n.str.length
	if len(s) < l.min || l.min > 0 && len(s) < 4*l.min && utf8.RuneCountInString(s) < l.min {
		return r.fail(n, ruleMinLength, v, "")
	}
	if len(s) > l.max && utf8.RuneCountInString(s) > l.max {
		return r.fail(n, ruleMaxLength, v, "")
	}
	return true
}

// matches pays for the work beforehand: a pattern cannot be stopped.
func (r *run) matches(p *pattern, s string) bool {
	return r.spend(int64(len(s))*p.size/patternSteps) && p.re.MatchString(s)
}

func (r *run) array(n *node, items []any, v any, marks *evaluated) bool {
	rules, ok := n.arr, true
	if len(items) < rules.size.min {
		ok = r.fail(n, ruleMinItems, v, "")
	}
	if len(items) > rules.size.max {
		ok = r.fail(n, ruleMaxItems, v, "")
	}
	if r.more(ok) {
		ok = r.items(rules, items, marks) && ok
	}
	if rules.contains != nil && r.more(ok) {
		ok = r.contains(n, items, v, marks) && ok
	}
	if rules.unique && r.more(ok) {
		if _, _, twins := r.firstTwins(items); twins {
			ok = r.fail(n, ruleUnique, v, "")
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
			if ok = false; r.quiet {
				return false
			}
		}
	}
	marks.items(len(items))
	return ok
}

func (r *run) contains(n *node, items []any, v any, marks *evaluated) bool {
	rules, count := n.arr, 0
	for i, item := range items {
		if !r.silently(rules.contains, item, nil) {
			continue
		}
		count++
		if rules.marks {
			marks.item(i)
		}
	}
	if count < rules.found.min {
		return r.fail(n, ruleMinContains, v, "")
	}
	if count > rules.found.max {
		return r.fail(n, ruleMaxContains, v, "")
	}
	return true
}

// child goes one step into the value.
func (r *run) child(n *node, v any, s step) bool {
	if r.quiet {
		return r.check(n, v, nil)
	}
	r.path = append(r.path, s)
	ok := r.check(n, v, nil)
	r.path = r.path[:len(r.path)-1]
	return ok
}

// silently asks only whether v matches.
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

func (r *run) object(n *node, obj map[string]any, v any, marks *evaluated) bool {
	rules, ok := n.obj, true
	for _, name := range rules.required {
		if _, there := obj[name]; !there {
			ok = r.fail(n, ruleRequired, v, name)
		}
	}
	if len(obj) < rules.size.min {
		ok = r.fail(n, ruleMinProperties, v, "")
	}
	if len(obj) > rules.size.max {
		ok = r.fail(n, ruleMaxProperties, v, "")
	}
	if r.more(ok) {
		ok = r.members(n, obj, marks) && ok
	}
	if rules.dependent != nil && r.more(ok) {
		ok = r.dependent(n, obj, v, marks) && ok
	}
	return ok
}

func (r *run) members(n *node, obj map[string]any, marks *evaluated) bool {
	if !r.spend(int64(len(obj) * (1 + len(n.obj.patterns)))) {
		return false
	}
	if !r.quiet {
		ok := true
		for _, name := range slices.Sorted(maps.Keys(obj)) {
			ok = r.member(n, name, obj[name], marks) && ok
		}
		return ok
	}
	for name, v := range obj {
		if !r.member(n, name, v, marks) {
			return false
		}
	}
	return true
}

func (r *run) member(n *node, name string, v any, marks *evaluated) bool {
	rules, known, ok := n.obj, false, true
	if rules.names != nil && !r.silently(rules.names, name, nil) {
		ok = r.fail(n, ruleNames, name, name)
	}
	if p := rules.properties[name]; p != nil {
		known = true
		ok = r.child(p, v, step{name: name}) && ok
	}
	for i := range rules.patterns {
		if p := &rules.patterns[i]; r.matches(p.pattern, name) {
			known = true
			ok = r.child(p.node, v, step{name: name}) && ok
		}
	}
	if !known && rules.additional != nil {
		known = true
		ok = r.extra(n, rules.additional, ruleAdditional, name, v) && ok
	}
	if known {
		marks.property(name)
	}
	return ok
}

// extra checks a property that is not among the known ones. One that may not be there is a fault of the object.
func (r *run) extra(n, others *node, why rule, name string, v any) bool {
	if others.never {
		return r.fail(n, why, nil, name)
	}
	return r.child(others, v, step{name: name})
}

func (r *run) dependent(n *node, obj map[string]any, v any, marks *evaluated) bool {
	ok := true
	for i := range n.obj.dependent {
		d := &n.obj.dependent[i]
		if _, there := obj[d.name]; !there {
			continue
		}
		for _, name := range d.also {
			if _, there := obj[name]; !there {
				ok = r.fail(n, ruleDependent, name, d.name)
			}
		}
		if d.node != nil && r.more(ok) {
			ok = r.check(d.node, v, marks) && ok
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
			ok = r.fail(n, ruleOneOf, v, "")
		}
	}
	if l.not != nil && r.more(ok) && r.branch(l.not, v, nil) {
		ok = r.fail(n, ruleNot, v, "")
	}
	return ok
}

// matching counts the schemas that v matches, up to enough; where marks are kept, each has its say.
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
			if ok = false; r.quiet {
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
		ok = r.extra(n, n.unevaluatedProperties, ruleUnevaluated, name, obj[name]) && ok
		marks.property(name)
	}
	return ok
}
