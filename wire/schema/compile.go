package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fillAll compiles the root and everything reachable from it, and then, only to find mistakes, the rest.
func (c *compiler) fillAll() error {
	c.use(c.places[""])
	if err := c.fillQueue(); err != nil {
		return err
	}
	if at := c.circle(); at != "" {
		return fmt.Errorf("%s: it refers back to itself without going deeper into the value; that never ends", at)
	}
	c.unused = true
	for i := 0; i < len(c.order); i++ {
		c.use(c.order[i])
		if err := c.fillQueue(); err != nil {
			return err
		}
	}
	c.forgetResources()
	return nil
}

func (c *compiler) fillQueue() error {
	for len(c.queue) > 0 {
		p := c.queue[0]
		c.queue = c.queue[1:]
		if err := c.fill(p); err != nil {
			return err
		}
	}
	return nil
}

// forgetResources spares a schema without $dynamicRef, which is nearly every schema, from tracking them.
func (c *compiler) forgetResources() {
	if slices.ContainsFunc(c.order, func(p *place) bool { return p.node.logic != nil && p.node.logic.dynamic != nil }) {
		return
	}
	for _, p := range c.order {
		p.node.res = nil
	}
}

func (c *compiler) fill(p *place) error {
	n := p.node
	obj, isObject := p.value.(map[string]any)
	if !isObject {
		n.never = p.value == false
		return nil
	}
	s := source{c: c, place: p, obj: obj}
	if s.has("$ref") && p.res.draft <= draft7 {
		n.logic = &logicRules{ref: s.ref("$ref")}
		return s.err
	}
	n.types = s.types()
	n.constant, n.enum = s.values()
	n.bounds, n.str, n.arr, n.obj = s.bounds(), s.stringRules(), s.arrayRules(), s.objectRules()
	n.logic = s.logicRules()
	n.unevaluatedItems, n.unevaluatedProperties = s.schema("unevaluatedItems"), s.schema("unevaluatedProperties")
	n.res = p.res
	n.cost = costOf(n)
	return s.err
}

// costOf weighs the lists that each check goes through.
func costOf(n *node) int64 {
	cost := int64(1)
	for _, vs := range []*values{n.constant, n.enum} {
		if vs != nil {
			cost += sizeOf(vs.others) / 16
		}
	}
	if n.obj != nil {
		cost += int64(len(n.obj.required))
		for _, d := range n.obj.dependent {
			cost += int64(1 + len(d.also))
		}
	}
	return cost
}

// circle finds a schema that refers back to itself on the same value. The target of a $dynamicRef is known only at run
// time; run.check bounds that.
func (c *compiler) circle() string {
	const entered, left = 1, 2
	state := make(map[*node]int, len(c.order))
	var visit func(n *node) string
	visit = func(n *node) string {
		if n == nil || state[n] == left {
			return ""
		}
		if state[n] == entered {
			return nameOf(n.at)
		}
		state[n] = entered
		for _, next := range n.again() {
			if at := visit(next); at != "" {
				return at
			}
		}
		state[n] = left
		return ""
	}
	for _, p := range c.order {
		if at := visit(p.node); at != "" {
			return at
		}
	}
	return ""
}

// A source reads the keywords of one schema. After the first error its results do not matter.
type source struct {
	c     *compiler
	place *place
	obj   map[string]any
	err   error
}

func (s *source) fail(keyword, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%s/%s: %w", s.place.at, escape(keyword), fmt.Errorf(format, args...))
	}
}

// read returns the value of a keyword, if it is present and has the right type.
func read[T any](s *source, keyword, want string) (value T, ok bool) {
	v, there := s.obj[keyword]
	if value, ok = v.(T); there && !ok {
		s.fail(keyword, "got %s, want %s", kindOf(v), want)
	}
	return value, ok
}

// has reports whether one of the keywords is present.
func (s *source) has(keywords ...string) bool {
	return slices.ContainsFunc(keywords, func(k string) bool { _, ok := s.obj[k]; return ok })
}

// at returns the schema at the pointer, which index has found.
func (s *source) at(pointer string) *node { return s.c.use(s.c.places[s.place.at+pointer]) }

func (s *source) schema(keyword string) *node {
	if !s.has(keyword) {
		return nil
	}
	return s.at("/" + keyword)
}

func (s *source) schemas(keyword string) []*node {
	list, ok := s.obj[keyword].([]any)
	if !ok {
		return nil
	}
	if len(list) == 0 && keyword != "items" {
		s.fail(keyword, "it is empty; list at least one schema or leave it out")
	}
	nodes := make([]*node, len(list))
	for i := range list {
		nodes[i] = s.at("/" + keyword + "/" + strconv.Itoa(i))
	}
	return nodes
}

// named returns the schemas under a keyword by name.
func (s *source) named(keyword string) map[string]*node {
	members, ok := s.obj[keyword].(map[string]any)
	if !ok {
		return nil
	}
	nodes := make(map[string]*node, len(members))
	for name := range members {
		nodes[name] = s.at("/" + keyword + "/" + escape(name))
	}
	return nodes
}

func (s *source) types() kinds {
	v, ok := s.obj["type"]
	if !ok {
		return 0
	}
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	var set kinds
	for _, v := range list {
		name, _ := v.(string)
		kind := slices.Index(kindNames[:], name)
		if kind < 0 {
			s.fail("type", "%s is not a type; the types are string, number, integer, boolean, object, array and null",
				show(v))
			return 0
		}
		set |= 1 << kind
	}
	if set == 0 {
		s.fail("type", "it names no type")
	}
	return set
}

func (s *source) values() (constant, enum *values) {
	if v, ok := s.obj["const"]; ok {
		constant = newValues([]any{v})
	}
	if listed, ok := read[[]any](s, "enum", "array"); ok {
		enum = newValues(listed)
	}
	return constant, enum
}

// number reads a bound, or returns nil if there is none.
func (s *source) number(keyword string) *number {
	text, ok := read[json.Number](s, keyword, "number")
	if !ok {
		return nil
	}
	return newNumber(string(text))
}

// both reads a bound and its exclusive counterpart, which in draft-04 was a flag of the first.
func (s *source) both(keyword, exclusive string) (bound, beyond *number) {
	bound = s.number(keyword)
	if flag, isFlag := s.obj[exclusive].(bool); isFlag {
		if flag {
			return nil, bound
		}
		return bound, nil
	}
	return bound, s.number(exclusive)
}

func (s *source) bounds() []bound {
	least, above := s.both("minimum", "exclusiveMinimum")
	most, below := s.both("maximum", "exclusiveMaximum")
	factor := s.number("multipleOf")
	if factor != nil && factor.exact.sign() <= 0 {
		s.fail("multipleOf", "%s is not more than 0", brief(factor.text))
	}
	var bounds []bound
	for _, b := range [...]bound{
		{least, func(n *number, v string) bool { return n.compare(v) < 0 }, " is less than the minimum "},
		{above, func(n *number, v string) bool { return n.compare(v) <= 0 }, " is not more than "},
		{most, func(n *number, v string) bool { return n.compare(v) > 0 }, " is more than the maximum "},
		{below, func(n *number, v string) bool { return n.compare(v) >= 0 }, " is not less than "},
		{factor, func(n *number, v string) bool { return !n.divides(v) }, " is not a multiple of "},
	} {
		if b.limit != nil {
			bounds = append(bounds, b)
		}
	}
	return bounds
}

// count reads a non-negative integer.
func (s *source) count(keyword string, otherwise int) int {
	text, ok := read[json.Number](s, keyword, "integer")
	if !ok {
		return otherwise
	}
	n := parseDecimal(string(text))
	if n.negative || !n.isInteger() {
		s.fail(keyword, "%s is not a count; use 0, 1, 2 ...", brief(string(text)))
		return otherwise
	}
	return n.count()
}

// count returns a decimal that is a non-negative integer; one that does not fit becomes the largest int.
func (d decimal) count() int {
	if d.exp > 18 {
		return math.MaxInt
	}
	n, _ := strconv.Atoi(d.digits + strings.Repeat("0", int(d.exp)-len(d.digits))) // no digits mean 0
	return n
}

func (s *source) span(min, max string) span {
	return span{s.count(min, 0), s.count(max, math.MaxInt)}
}

func (s *source) stringRules() *stringRules {
	if !s.has("minLength", "maxLength", "pattern") {
		return nil
	}
	rules := &stringRules{length: s.span("minLength", "maxLength")}
	if text, ok := read[string](s, "pattern", "string"); ok {
		rules.pattern = s.pattern("pattern", text)
	}
	return rules
}

func (s *source) pattern(keyword, text string) *pattern {
	p, err := s.c.pattern(text)
	if err != nil && p.unread {
		s.c.unchecked = append(s.c.unchecked, fmt.Sprintf("%s/%s: the pattern %s is not checked: %v", s.place.at, escape(keyword), brief(text), err))
	}
	return p
}

func (s *source) arrayRules() *arrayRules {
	if !s.has("minItems", "maxItems", "uniqueItems", "prefixItems", "items", "contains", "minContains", "maxContains") {
		return nil
	}
	rules := &arrayRules{
		size: s.span("minItems", "maxItems"), prefix: s.schemas("prefixItems"), contains: s.schema("contains"),
	}
	rules.unique, _ = read[bool](s, "uniqueItems", "boolean")
	rules.marks = s.place.res.draft >= draft2020
	rules.found = span{s.count("minContains", 1), s.count("maxContains", math.MaxInt)}
	if _, older := s.obj["items"].([]any); !older {
		rules.rest = s.schema("items")
		return rules
	}
	if rules.prefix != nil {
		s.fail("items", "got array beside prefixItems, want a schema")
	}
	rules.prefix, rules.rest = s.schemas("items"), s.schema("additionalItems")
	return rules
}

func (s *source) objectRules() *objectRules {
	if !s.has("properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
		"maxProperties", "dependentRequired", "dependentSchemas", "dependencies") {
		return nil
	}
	rules := &objectRules{
		size:       s.span("minProperties", "maxProperties"),
		properties: s.named("properties"),
		additional: s.schema("additionalProperties"),
		names:      s.schema("propertyNames"),
	}
	if v, ok := s.obj["required"]; ok {
		rules.required = s.names(v, "required")
	}
	byPattern := s.named("patternProperties")
	for _, text := range slices.Sorted(maps.Keys(byPattern)) {
		rules.patterns = append(rules.patterns, patternRule{s.pattern("patternProperties", text), byPattern[text]})
	}
	for _, keyword := range []string{"dependentRequired", "dependentSchemas", "dependencies"} {
		rules.dependent = append(rules.dependent, s.dependencies(keyword)...)
	}
	return rules
}

// names reads an array of property names.
func (s *source) names(v any, keyword string) []string {
	list, ok := v.([]any)
	if !ok {
		s.fail(keyword, "got %s, want array of property names", kindOf(v))
	}
	names := make([]string, len(list))
	for i, v := range list {
		if names[i], ok = v.(string); !ok {
			s.fail(keyword, "got %s in it, want only property names", kindOf(v))
		}
	}
	return names
}

func (s *source) dependencies(keyword string) []dependency {
	members, _ := read[map[string]any](s, keyword, "object")
	var found []dependency
	for _, name := range slices.Sorted(maps.Keys(members)) {
		d := dependency{name: name}
		if p := s.c.places[s.place.at+"/"+keyword+"/"+escape(name)]; p != nil && keyword != "dependentRequired" {
			d.node = s.c.use(p)
		} else {
			d.also = s.names(members[name], keyword)
		}
		found = append(found, d)
	}
	return found
}

func (s *source) logicRules() *logicRules {
	if !s.has("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if") {
		return nil
	}
	rules := &logicRules{
		ref: s.ref("$ref"), dynamic: s.dynamicRef(),
		all: s.schemas("allOf"), any: s.schemas("anyOf"), one: s.schemas("oneOf"),
		not: s.schema("not"), cond: s.schema("if"),
	}
	if rules.cond != nil {
		rules.then, rules.otherwise = s.schema("then"), s.schema("else")
	}
	if d := rules.dynamic; d != nil && d.anchor == "" {
		rules.all = append(rules.all, d.fallback)
		rules.dynamic = nil
	}
	return rules
}

func (s *source) ref(keyword string) *node {
	p, _ := s.target(keyword)
	if p == nil {
		return nil
	}
	return s.c.use(p)
}

// target returns nil if there is no reference, and after an error.
func (s *source) target(keyword string) (p *place, fragment string) {
	ref, ok := read[string](s, keyword, "string")
	if !ok {
		return nil, ""
	}
	p, fragment, err := s.c.resolve(ref, s.place)
	if err != nil && !s.c.unused {
		s.fail(keyword, "%w", err)
	}
	return p, fragment
}

// dynamicRef reads $dynamicRef and 2019-09's $recursiveRef. If the target is not a dynamic anchor it is a plain
// reference and has no anchor.
func (s *source) dynamicRef() *dynamicRef {
	keyword, anchor := "$dynamicRef", ""
	if s.has("$recursiveRef") {
		keyword = "$recursiveRef"
	}
	p, fragment := s.target(keyword)
	if p == nil {
		return nil
	}
	if keyword == "$recursiveRef" {
		fragment = recursiveAnchor
	}
	if p.res.dynamic[fragment] == p.node {
		anchor = fragment
	}
	return &dynamicRef{anchor: anchor, fallback: s.c.use(p)}
}
