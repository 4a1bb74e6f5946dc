package plan

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// A Graph is a checked plan: its tools are found, and sorted in the order in which they run.
type Graph struct {
	Plan  *Plan
	steps []*step
}

// A step is a tool of a plan.
type step struct {
	*Tool
	place    int // index in the plan's list
	order    int // index among the steps
	spec     *tool.Spec
	needs    []*step // that come first: dependencies, and the tools that it refers to
	wanted   []*step // that it comes before
	input    *template
	required bool
	overlaps bool
	alone    string // why it does not, if half of what that takes is there
	retries  int
	backoff  time.Duration
}

// Order lists the tools in the order in which they run one after the other: that of the plan, except that a tool comes
// after those it depends on.
func (g *Graph) Order() (ids []string) {
	for _, s := range g.steps {
		ids = append(ids, s.ID)
	}
	return ids
}

// Check finds what is wrong with a plan before anything runs: ids that are missing or used twice, tools that the caller
// cannot see or that the plan itself forbids, arguments that do not match, and tools that wait for each other. An error
// is an *Error, which lists all of it, so that a plan can be corrected in one go.
//
// A tool that refers to the output of another depends on it, whether its dependencies list it or not: otherwise the
// reference could have no value, and planners forget to list it.
func Check(ctx context.Context, c tool.Catalog, p tool.Principal, pl *Plan) (*Graph, error) {
	if len(pl.Tools) > MaxTools {
		return nil, invalid("a plan has at most %d tools, not %d", MaxTools, len(pl.Tools))
	}
	k := &checker{plan: pl, byID: make(map[string]*step, len(pl.Tools)), found: map[string]*found{}}
	k.faults.category = InvalidJSON
	k.name()
	k.connect()
	k.faults.category = CircularDependency
	ordered := k.order()
	k.faults.category = ToolFailure
	k.resolve(ctx, c, p)
	if err := k.faults.err(); err != nil {
		return nil, err
	}
	for _, s := range ordered {
		s.alone = s.whyAlone(pl.Parallel)
	}
	return &Graph{pl, ordered}, nil
}

// whyAlone says why a tool waits for tools that it does not need, and what to add so that it does not; "" if it overlaps.
func (s *step) whyAlone(parallel bool) string {
	switch {
	case s.overlaps:
	case parallel:
		return "runs alone: add async: true"
	case s.Async:
		return "runs alone: add parallel: true to the plan"
	case s.order > 0 && len(s.needs) == 0:
		return "runs after the tools before it: add async: true to them and to it, and parallel: true to the plan"
	}
	return ""
}

// Waits lists the first of the tools that wait for others without need, and what to add so that they do not.
func (g *Graph) Waits() []Fault {
	f := new(faults)
	for _, s := range g.steps {
		if s.alone != "" {
			f.add(s.ID, s.at("async"), "%s", s.alone)
		}
	}
	return f.list
}

// A checker is the state of one Check.
type checker struct {
	plan   *Plan
	steps  []*step // in the order of the plan
	byID   map[string]*step
	found  map[string]*found // by the name as written
	faults faults
}

// wrong records a fault of a step.
func (k *checker) wrong(s *step, member, format string, args ...any) {
	k.faults.add(s.ID, s.at(member), format, args...)
}

// maxHints limits how many names a mistyped one is compared with: a plan may have thousands of both.
const maxHints = 1000

// hint suggests what was probably meant, if there is still room for it.
func (k *checker) hint(word string, known func() []string) string {
	if k.faults.full() {
		return ""
	}
	names := known()
	return nearest.Hint(word, names[:min(len(names), maxHints)])
}

// ids lists the ids that a tool may depend on.
func (k *checker) ids() (all []string) {
	for _, s := range k.steps {
		all = append(all, s.ID)
	}
	return all
}

// visible lists the tools that a caller can see.
func visible(ctx context.Context, c tool.Catalog, p tool.Principal) (names []string) {
	for spec, err := range c.Specs(ctx, p) {
		if err == nil {
			names = append(names, spec.Name)
		}
	}
	return names
}

// order puts the steps in the order in which they run.
func (k *checker) order() []*step {
	ordered, circle := inOrder(k.steps)
	for _, s := range circle {
		k.faults.cycle = append(k.faults.cycle, s.ID)
	}
	if circle != nil {
		k.faults.add("", "", "tools wait for each other: %s", strings.Join(append(k.faults.cycle, circle[0].ID), " -> "))
	}
	return ordered
}

// name makes the steps, by their ids.
func (k *checker) name() {
	if k.plan.RequestID == "" {
		k.faults.add("", "/requestId", "is empty")
	}
	for i := range k.plan.Tools {
		t := &k.plan.Tools[i]
		s := &step{Tool: t, place: i, required: t.Required == nil || *t.Required, overlaps: k.plan.Parallel && t.Async}
		s.retries, s.backoff = t.Retry.policy()
		k.steps = append(k.steps, s)
		switch {
		case t.ID == "" || len(t.ID) > maxID:
			k.wrong(s, "toolId", "has from 1 to %d bytes, not %d", maxID, len(t.ID))
		case strings.ContainsFunc(t.ID, func(r rune) bool { return unicode.IsControl(r) || strings.ContainsRune("{}", r) }):
			k.wrong(s, "toolId", "%q has characters that an id cannot have", t.ID)
		case k.byID[t.ID] != nil:
			k.wrong(s, "toolId", "%q is the id of /tools/%d already", t.ID, k.byID[t.ID].place)
		default:
			k.byID[t.ID] = s
		}
		if n := s.retries; n < 0 || n > maxRetries {
			k.wrong(s, "retryPolicy/maxRetries", "is from 0 to %d, not %d", maxRetries, n)
		}
		if s.backoff < 0 {
			k.wrong(s, "retryPolicy/backoffMs", "cannot be negative")
		}
	}
}

// The defaults and limits of a retryPolicy.
const (
	defaultRetries = 3
	defaultBackoff = 100 // ms
	maxRetries     = 10
	maxBackoff     = int(time.Hour / time.Millisecond) // longer than any plan
)

func (r *Retry) policy() (retries int, backoff time.Duration) {
	retries, ms := defaultRetries, defaultBackoff
	if r != nil && r.Most != nil {
		retries = *r.Most
	}
	if r != nil && r.BackoffMs != nil {
		ms = min(*r.BackoffMs, maxBackoff)
	}
	return retries, time.Duration(ms) * time.Millisecond
}

// at returns the place of a member of a step in the plan.
func (s *step) at(member string) string { return "/tools/" + strconv.Itoa(s.place) + "/" + member }

// connect adds the edges.
func (k *checker) connect() {
	for _, s := range k.steps {
		seen := map[*step]bool{}
		need := func(id, member, what string) {
			on := k.byID[id]
			switch {
			case on == nil:
				k.wrong(s, member, "%s %q, which is no tool of the plan%s", what, id, k.hint(id, k.ids))
			case !seen[on]:
				seen[on] = true
				s.needs, on.wanted = append(s.needs, on), append(on.wanted, s)
			}
		}
		for i, id := range s.Dependencies {
			need(id, "dependencies/"+strconv.Itoa(i), "names")
		}
		var err error
		if s.input, err = templateOf(s.Input); err != nil {
			k.wrong(s, "input", "is not JSON: %v", err)
			s.input = nil
			continue
		}
		if _, ok := s.input.value.(map[string]any); !ok {
			k.wrong(s, "input", "must be an object, not %s", strictjson.KindOf(s.Input))
			s.input = nil
			continue
		}
		for _, r := range s.input.refs {
			need(r.tool, "input", "refers with "+r.String()+" to")
		}
	}
}

// found is a tool by its name in a plan.
type found struct {
	spec  *tool.Spec
	input *schema.Schema // nil if anything is allowed, or the call will fail with the reason
	loose bool           // whether one argument can decide what another may be
	err   error
}

// resolve finds the tools, and checks their arguments against their schemas.
func (k *checker) resolve(ctx context.Context, c tool.Catalog, p tool.Principal) {
	disabled := map[string]bool{}
	for _, name := range k.plan.DisabledSkills {
		disabled[name] = true
	}
	for _, s := range k.steps {
		names, at := s.names()
		if len(names) == 0 {
			k.wrong(s, "tool", "is missing: name a tool with tool or toolPath")
			continue
		}
		f := k.find(ctx, c, p, names)
		if f.err != nil {
			k.wrong(s, at, "%s", tool.AsError(f.err).Message)
			continue
		}
		s.spec = f.spec
		all := append([]string{f.spec.Name, f.spec.Ref().String(), s.Path, s.Name}, f.spec.Aliases...)
		if i := slices.IndexFunc(all, func(name string) bool { return disabled[name] }); i >= 0 {
			k.wrong(s, at, "uses %s, which is among the disabledSkills", all[i])
			continue
		}
		for _, fault := range f.check(s.input) {
			k.wrong(s, "input"+fault.At, "%s", fault.Problem)
		}
	}
}

// names lists the names under which a step's tool is looked up, and the member that has them. A toolPath is the path of
// a tool in Narratoria. Here tools are registered by name, so it names a tool if the whole path is a name, or else by
// its last part, with or without the extension: tools/torch-lighter/torch.py is torch.py or torch.
func (s *step) names() (names []string, at string) {
	if s.Name != "" {
		return []string{s.Name}, "tool"
	}
	if s.Path == "" {
		return nil, "tool"
	}
	base := path.Base(strings.ReplaceAll(s.Path, `\`, "/"))
	return []string{s.Path, base, strings.TrimSuffix(base, path.Ext(base))}, "toolPath"
}

func (k *checker) find(ctx context.Context, c tool.Catalog, p tool.Principal, names []string) *found {
	if f := k.found[names[0]]; f != nil {
		return f
	}
	f := new(found)
	k.found[names[0]] = f
	for _, name := range names {
		if f.spec, f.err = c.Lookup(ctx, p, name); tool.CodeOf(f.err) != tool.CodeNotFound {
			break
		}
	}
	if tool.CodeOf(f.err) == tool.CodeNotFound {
		meant := k.hint(names[len(names)-1], func() []string { return visible(ctx, c, p) })
		f.err = fmt.Errorf("%q is no tool%s", names[0], cmp.Or(meant, "; `toolpost tools` lists the tools"))
	}
	if f.err == nil {
		f.input, _ = schema.Compile(f.spec.Input) // an invalid schema is reported when the tool is called
		v, _ := strictjson.Decode(f.spec.Input)
		f.loose = loose(v)
	}
	return f
}

// loose reports whether a schema, or one inside it, lets one value decide what another may be. Then arguments cannot be
// checked while some of them are unknown.
func loose(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			switch name {
			case "anyOf", "oneOf", "not", "if", "contains", "dependentSchemas", "dependencies", "unevaluatedProperties",
				"unevaluatedItems", "$dynamicRef", "$recursiveRef":
				return true
			case "const":
				if compound(member) {
					return true
				}
			case "enum":
				if list, ok := member.([]any); ok && slices.ContainsFunc(list, compound) {
					return true
				}
			}
			if loose(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, loose)
	}
	return false
}

func compound(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// check checks arguments against the schema of their tool. If they have references, only what is wrong for every value
// of these is a fault; the engine checks everything when the tool is called. A nil template was reported already.
func (f *found) check(t *template) []schema.Fault {
	if f.input == nil || t == nil {
		return nil
	}
	if len(t.at) == 0 {
		return f.input.Validate(t.value)
	}
	if f.loose {
		return nil
	}
	var always []schema.Fault
	for i, stand := range []any{"", true, nil, map[string]any{}, []any{}, strictNumber} {
		now := f.input.Validate(t.standing(stand))
		if i == 0 {
			always = slices.DeleteFunc(now, func(fault schema.Fault) bool { return t.unknown(fault.At) })
		}
		always = slices.DeleteFunc(always, func(fault schema.Fault) bool { return !slices.Contains(now, fault) })
	}
	return always
}

// unknown reports whether a place is a reference, or inside one.
func (t *template) unknown(at string) bool {
	return slices.ContainsFunc(t.at, func(ref string) bool { return at == ref || strings.HasPrefix(at, ref+"/") })
}
