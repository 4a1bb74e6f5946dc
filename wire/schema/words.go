package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A rule is the kind of rule that a value broke, as far as the weight of findings depends on it.
type rule int

const (
	ruleOther rule = iota
	ruleNever
	ruleType
	ruleConst
	ruleEnum
)

// A finding is a fault with what is needed to weigh it against others.
type finding struct {
	Fault
	depth int
	rule  rule
	node  *node
}

// fail is failBy for most rules.
func (r *run) fail(words func() string) bool { return r.failBy(ruleOther, nil, words) }

// failBy notes that the value broke a rule of n. A quiet run notes nothing and does not call words. It always returns
// false, which is the verdict.
func (r *run) failBy(why rule, n *node, words func() string) bool {
	if !r.quiet && r.spend(workPerNote) {
		r.note(why, n, words())
	}
	return false
}

func (r *run) note(why rule, n *node, problem string) {
	r.add(finding{Fault{r.pointer(), problem}, len(r.path), why, n})
}

func (r *run) add(f finding) {
	known := slices.ContainsFunc(r.found, func(g finding) bool { return g.Fault == f.Fault })
	if !known && len(r.found) < MaxFaults {
		r.found = append(r.found, f)
	}
}

// maxName is the maximum length in bytes of a name in a pointer. No schema has longer names, but a value may.
const maxName = 256

func (r *run) pointer() string {
	var b strings.Builder
	for _, s := range r.path {
		b.WriteByte('/')
		if s.item {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			b.WriteString(escape(tool.Brief(s.name, maxName)))
		}
	}
	return b.String()
}

const noMatch = "does not match the schema"

// faults returns the findings. There is always one, since it is called only for a value that does not match.
func (r *run) faults() []Fault {
	if len(r.found) == 0 {
		return []Fault{{Problem: noMatch}}
	}
	faults := make([]Fault, len(r.found))
	for i, f := range r.found {
		faults[i] = f.Fault
	}
	return faults
}

func (n *node) typeWords(v any) string { return fmt.Sprintf("got %s, want %s", kindOf(v), n.types) }

func (n *node) enumWords() string { return "is not one of " + listing(n.enum.listed) }

func quoted(name string) string { return "'" + brief(name) + "'" }

// allowed lists the properties that an object may have, if there are few.
func (o *objectRules) allowed() string {
	if len(o.patterns) > 0 || len(o.properties) > maxListed {
		return ""
	}
	if len(o.properties) == 0 {
		return "; none is"
	}
	names := slices.Sorted(maps.Keys(o.properties))
	for i := range names {
		names[i] = brief(names[i])
	}
	return "; allowed: " + strings.Join(names, ", ")
}

// maxListed is how many items are worth listing, and maxShown how many characters of each.
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

// show writes a string as it is if that cannot mislead, and everything else as JSON.
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

// brief shortens a text, and escapes characters that are not printable.
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

// collect returns the faults of v against a schema, apart from earlier findings.
func (r *run) collect(n *node, v any) []finding {
	was, found := r.quiet, r.found
	r.quiet, r.found = false, nil
	r.check(n, v, nil)
	r.quiet, r.found, found = was, found, r.found
	if len(found) == 0 { // out of steps
		found = []finding{{Fault{r.pointer(), noMatch}, len(r.path), ruleNever, n}}
	}
	return found
}

// noteNearest notes why v matches none of the choices: the faults against the one that was probably meant, or what all
// of them want if they differ only in that.
func (r *run) noteNearest(choices []*node, v any) {
	if r.quiet {
		return
	}
	var best []finding
	every := make([][]finding, len(choices))
	for i, choice := range choices {
		every[i] = r.collect(choice, v)
		if i == 0 || r.distance(every[i]) < r.distance(best) {
			best = every[i]
		}
	}
	if r.noteTogether(every, v) {
		return
	}
	for _, f := range best {
		r.add(f)
	}
}

// distance weighs findings: a value of another type was hardly meant for this choice, nor was an object whose "kind" or
// the like has another value; after that, fewer faults are nearer.
func (r *run) distance(found []finding) int {
	far := len(found)
	for _, f := range found {
		here := f.depth == len(r.path)
		switch f.rule {
		case ruleType, ruleNever:
			if here {
				far += 100 * MaxFaults
			}
		case ruleConst, ruleEnum:
			if here || f.depth == len(r.path)+1 {
				far += 2 * MaxFaults
			}
		}
	}
	return far
}

// noteTogether joins choices that differ only in the type, or only in the values, that they want here.
func (r *run) noteTogether(every [][]finding, v any) bool {
	joined := node{enum: &values{}}
	for _, found := range every {
		f := found[0]
		if len(found) > 1 || f.depth != len(r.path) {
			return false
		}
		switch f.rule {
		case ruleType:
			joined.types |= f.node.types
		case ruleConst:
			joined.enum.listed = append(joined.enum.listed, f.node.constant.listed...)
		case ruleEnum:
			joined.enum.listed = append(joined.enum.listed, f.node.enum.listed...)
		default:
			return false
		}
	}
	switch {
	case len(joined.enum.listed) == 0:
		r.note(ruleType, &joined, joined.typeWords(v))
	case joined.types == 0:
		r.note(ruleEnum, &joined, joined.enumWords())
	default:
		return false
	}
	return true
}
