package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"toolpost/wire/strictjson"
)

// A rule is what a value broke.
type rule int

const (
	ruleNever rule = iota
	ruleType
	ruleConst
	ruleEnum
	ruleMinimum
	ruleExclusiveMinimum
	ruleMaximum
	ruleExclusiveMaximum
	ruleMultipleOf
	ruleMinLength
	ruleMaxLength
	rulePattern
	ruleMinItems
	ruleMaxItems
	ruleUnique
	ruleMinContains
	ruleMaxContains
	ruleRequired
	ruleMinProperties
	ruleMaxProperties
	ruleNames
	ruleAdditional
	ruleUnevaluated
	ruleDependent
	ruleOneOf
	ruleNot
)

// A finding is a fault with what is needed to weigh it against others.
type finding struct {
	Fault
	depth int
	rule  rule
	node  *node
}

// fail notes that v broke a rule of n, unless the run is quiet. It is always false: the verdict.
func (r *run) fail(n *node, why rule, v any, name string) bool {
	if !r.quiet && r.spend(workPerNote) {
		r.note(n, why, r.words(n, why, v, name))
	}
	return false
}

func (r *run) note(n *node, why rule, problem string) {
	r.add(finding{Fault{r.pointer(), problem}, len(r.path), why, n})
}

func (r *run) add(f finding) {
	known := slices.ContainsFunc(r.found, func(g finding) bool { return g.Fault == f.Fault })
	if !known && len(r.found) < MaxFaults {
		r.found = append(r.found, f)
	}
}

func (r *run) pointer() string {
	var b strings.Builder
	for _, s := range r.path {
		b.WriteByte('/')
		if s.item {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(escape(s.name))
		}
	}
	return b.String()
}

// faults returns what was found. There is always something: whoever asks knows that the value does not match.
func (r *run) faults() []Fault {
	var faults []Fault
	for _, f := range r.found {
		faults = append(faults, f.Fault)
	}
	if len(faults) == 0 {
		faults = []Fault{{Problem: "does not match the schema"}}
	}
	return faults
}

// words says what is wrong. Each kind of value has its own rules; a string also stands for a property's name.
func (r *run) words(n *node, why rule, v any, name string) string {
	switch why {
	case ruleNever:
		return "nothing is allowed here"
	case ruleType:
		return fmt.Sprintf("got %s, want %s", kindOf(v), n.types)
	case ruleConst:
		return "is not " + listing(n.constant.listed)
	case ruleEnum:
		return "is not one of " + listing(n.enum.listed)
	case ruleNot:
		return "is what the schema rules out (not)"
	case ruleOneOf:
		return "matches more than one of the choices, and must match exactly one (oneOf)"
	}
	switch v := v.(type) {
	case json.Number:
		return numberWords(n.num, why, brief(string(v)))
	case []any:
		return r.arrayWords(n.arr, why, v)
	}
	if why <= rulePattern {
		return textWords(n.str, why)
	}
	return r.objectWords(n, why, v, name)
}

func numberWords(b *numberRules, why rule, v string) string {
	switch why {
	case ruleMinimum:
		return v + " is less than the minimum " + brief(b.min.text)
	case ruleExclusiveMinimum:
		return v + " is not more than " + brief(b.above.text)
	case ruleMaximum:
		return v + " is more than the maximum " + brief(b.max.text)
	case ruleExclusiveMaximum:
		return v + " is not less than " + brief(b.below.text)
	}
	return v + " is not a multiple of " + brief(b.multipleOf.text)
}

func textWords(rules *stringRules, why rule) string {
	switch why {
	case ruleMinLength:
		return "shorter than " + count(rules.length.min, "character", "characters")
	case ruleMaxLength:
		return "longer than " + count(rules.length.max, "character", "characters")
	}
	return "does not match the pattern " + brief(rules.pattern.text)
}

func (r *run) arrayWords(rules *arrayRules, why rule, items []any) string {
	switch why {
	case ruleMinItems:
		return "fewer than " + count(rules.size.min, "item", "items")
	case ruleMaxItems:
		return "more than " + count(rules.size.max, "item", "items")
	case ruleMinContains:
		return "fewer than " + count(rules.found.min, "item is", "items are") + " of the kind it must contain"
	case ruleMaxContains:
		return "more than " + count(rules.found.max, "item is", "items are") + " of the kind it may contain"
	}
	i, k, _ := r.firstTwins(items)
	return fmt.Sprintf("items %d and %d are equal", i, k)
}

func (r *run) objectWords(n *node, why rule, v any, name string) string {
	name = "'" + brief(name) + "'"
	switch why {
	case ruleRequired:
		return "missing property " + name
	case ruleDependent:
		return fmt.Sprintf("missing property '%s', which %s needs", brief(v.(string)), name)
	case ruleMinProperties:
		return "fewer than " + count(n.obj.size.min, "property", "properties")
	case ruleMaxProperties:
		return "more than " + count(n.obj.size.max, "property", "properties")
	case ruleNames:
		return "property name " + name + ": " + r.collect(n.obj.names, v)[0].Problem
	}
	return "property " + name + " is not allowed" + allowed(n, why)
}

// allowed lists the properties that an object may have, where there are few.
func allowed(n *node, why rule) string {
	if why != ruleAdditional || len(n.obj.patterns) > 0 || len(n.obj.properties) > maxListed {
		return ""
	}
	if len(n.obj.properties) == 0 {
		return "; none is"
	}
	names := slices.Sorted(maps.Keys(n.obj.properties))
	for i := range names {
		names[i] = brief(names[i])
	}
	return "; allowed: " + strings.Join(names, ", ")
}

// maxListed is how many things it helps to list, and maxShown how many characters of each.
const (
	maxListed = 10
	maxShown  = 60
)

func listing(values []any) string {
	var words []string
	for _, v := range values[:min(len(values), maxListed)] {
		words = append(words, show(v))
	}
	if more := len(values) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("or %d more", more))
	}
	return strings.Join(words, ", ")
}

// show writes a string as it is where that cannot mislead, and everything else as JSON.
func show(v any) string {
	if s, ok := v.(string); ok && s != "" && !strings.ContainsAny(s, " ,\"") {
		return brief(s)
	}
	b, err := strictjson.Marshal(v)
	if err != nil {
		return kindOf(v).String()
	}
	return brief(string(b))
}

// brief cuts a text short, and spells out what would not print.
func brief(s string) string {
	if cut := []rune(s[:min(len(s), 4*maxShown)]); len(cut) > maxShown || len(s) > 4*maxShown {
		s = string(cut[:min(len(cut), maxShown)]) + "..."
	}
	if strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strings.Trim(strconv.Quote(s), `"`)
	}
	return s
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
