package schema

import (
	"encoding/json"
	"math"
	"strings"
)

// A node is one compiled schema. The schema true is the node without rules.
type node struct {
	at    string    // its pointer
	res   *resource // its resource; nil if no $dynamicRef needs it
	cost  int64     // the cost of one look at it; see run.spend
	never bool      // the schema false

	types    kinds // 0 means any
	constant *values
	enum     *values
	bounds   []bound
	str      *stringRules
	arr      *arrayRules
	obj      *objectRules
	logic    *logicRules

	unevaluatedItems, unevaluatedProperties *node
}

// A bound is a limit on numbers.
type bound struct {
	limit  *number
	broken func(limit *number, v string) bool
	words  string // between a value that breaks it and the limit, in messages
}

type stringRules struct {
	length  span
	pattern *pattern
}

type arrayRules struct {
	size     span
	unique   bool
	prefix   []*node
	rest     *node // for the items after the prefix
	contains *node
	found    span // how many items contains may match
	marks    bool // whether items that contains matches count as evaluated
}

type objectRules struct {
	size       span
	required   []string
	properties map[string]*node
	patterns   []patternRule
	additional *node
	names      *node
	dependent  []dependency
}

type patternRule struct {
	pattern *pattern
	node    *node
}

// A dependency is a requirement if a property is present.
type dependency struct {
	name string
	also []string // further properties
	node *node    // the schema that the object must match then
}

// logicRules are the rules that apply further schemas to the same value.
type logicRules struct {
	ref                   *node
	dynamic               *dynamicRef
	all, any, one         []*node
	not                   *node
	cond, then, otherwise *node
}

// A dynamicRef refers to the outermost resource entered so far that has its anchor.
type dynamicRef struct {
	anchor   string
	fallback *node
}

// again lists the schemas that n applies to the same value: a cycle of these never ends.
func (n *node) again() []*node {
	var next []*node
	if l := n.logic; l != nil {
		next = append(next, l.ref, l.not, l.cond, l.then, l.otherwise)
		next = append(append(append(next, l.all...), l.any...), l.one...)
	}
	if n.obj != nil {
		for _, d := range n.obj.dependent {
			next = append(next, d.node)
		}
	}
	return next
}

// anyText reports whether no schema that n applies to the same value depends on the content of a string.
func anyText(n *node) bool {
	seen := map[*node]bool{nil: true}
	for queue := []*node{n}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		if seen[n] {
			continue
		}
		seen[n] = true
		if n.str != nil || n.constant != nil || n.enum != nil || n.logic != nil && n.logic.dynamic != nil {
			return false
		}
		queue = append(queue, n.again()...)
	}
	return true
}

// A span is an inclusive range of counts.
type span struct{ min, max int }

func (s span) any() bool { return s == span{0, math.MaxInt} }

// kinds is a set of JSON types.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBoolean
	kindInteger
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"null", "boolean", "integer", "number", "string", "array", "object"}

func kindOf(v any) kinds {
	switch v.(type) {
	case string:
		return kindString
	case json.Number:
		return kindNumber
	case map[string]any:
		return kindObject
	case []any:
		return kindArray
	case bool:
		return kindBoolean
	case nil:
		return kindNull
	}
	return 0
}

func (k kinds) hold(v any) bool {
	have := kindOf(v)
	if k&have != 0 {
		return true
	}
	return have == kindNumber && k&kindInteger != 0 && isInteger(string(v.(json.Number)))
}

func (k kinds) String() string {
	var names []string
	for i, name := range kindNames {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}
