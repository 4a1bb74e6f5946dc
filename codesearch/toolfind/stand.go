package toolfind

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
	"toolpost/wire/typeschema"
)

// The tools that replace all others if these are too many for a model's context.
const (
	NameSearch   = "search_tools"
	NameDescribe = "describe_tool"
	NameCall     = "call_tool"
)

// Many is the number of tools above which a door offers a search in place of a list; below 0 it never does. The zero
// value is the default.
type Many int

// usualMany is about how many tools a model can still choose well from: each costs a hundred tokens or more.
const usualMany = 60

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Many) UnmarshalText(b []byte) error {
	n, err := strconv.Atoi(string(b))
	switch {
	case string(b) == "off" || err == nil && n == 0:
		*m = -1
	case err != nil || n < 0:
		return tool.Errorf(tool.CodeInvalidInput, "expected a number of tools, or off, got %q", b)
	default:
		*m = Many(n)
	}
	return nil
}

// Are reports whether a number of tools is too many to be listed.
func (m Many) Are(tools int) bool { return m >= 0 && tools > int(cmp.Or(m, usualMany)) }

// Search is the configuration of a door with many tools.
type Search struct {
	Above  Many     `yaml:"search_above" schema:"default=60" doc:"if a caller sees more tools than this, list three search tools instead of all of them; 0 or off: never"`
	Always []string `yaml:"always" doc:"tools to list in addition to the three"`
}

// A Named is a tool with its name on a wire.
type Named struct {
	Name string
	Spec *tool.Spec
}

// Sort sorts tools by name.
func Sort(list []Named) {
	slices.SortFunc(list, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
}

// Find returns the tool with a name on the wire, or nil.
func Find(list []Named, name string) *tool.Spec {
	i := slices.IndexFunc(list, func(t Named) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return list[i].Spec
}

// Few returns the tools to list. If there are too many, that is those that are always listed, and the three by which the
// caller finds and calls the others. A tool that has the name of one of the three is called through call_tool.
func (c Search) Few(all []Named) []Named {
	if !c.Above.Are(len(all)) {
		return all
	}
	var few []Named
	for _, spec := range three() {
		few = append(few, Named{spec.Name, spec})
	}
	for _, t := range all {
		always := slices.ContainsFunc([]string{t.Name, t.Spec.Name, t.Spec.Ref().String()},
			func(name string) bool { return slices.Contains(c.Always, name) })
		if always && Find(few, t.Name) == nil {
			few = append(few, t)
		}
	}
	Sort(few)
	return few
}

// Stands reports whether a name means one of the three stand-ins. If there are few tools it may be the name of an
// ordinary tool. If no tool has that name, the caller may hold a list from when there were more.
func (c Search) Stands(name string, all []Named) bool {
	return c.Above >= 0 && IsStandIn(name) && (c.Above.Are(len(all)) || Find(all, name) == nil)
}

// IsStandIn reports whether a name is that of one of the three stand-ins.
func IsStandIn(name string) bool {
	return name == NameSearch || name == NameDescribe || name == NameCall
}

// The arguments of the three stand-ins.
type (
	searchArgs struct {
		Query string `json:"query" schema:"required minLength=1 maxLength=1000" doc:"what the tool should do, in a few words"`
		Limit int    `json:"limit" schema:"minimum=1 maximum=50" doc:"maximum number of tools; default: 10"`
	}
	describeArgs struct {
		Name string `json:"name" schema:"required minLength=1" doc:"its name, as search_tools gives it"`
	}
	callArgs struct {
		describeArgs
		Arguments json.RawMessage `json:"arguments" doc:"what the tool takes, an object"`
	}
)

// usuallyFound is the default maximum number of tools that a search returns.
const usuallyFound = 10

// three returns the stand-ins. Their descriptions do not mention the number of tools: a list that stays the same can be
// cached.
func three() []*tool.Spec {
	reads := tool.Effects{Reads: true, Idempotent: true}
	return []*tool.Spec{
		{
			Name: NameSearch, Effects: reads, Input: takes[searchArgs](),
			Description: "Finds tools by what they do. There are more tools here than are listed: say in a few words what " +
				"you want to do, and get the names of tools that fit, what each does and what it takes.",
		},
		{
			Name: NameDescribe, Effects: reads, Input: takes[describeArgs](),
			Description: "Gives all there is to know about one tool: its whole description and the schema of its arguments.",
		},
		{
			Name: NameCall, Input: takes[callArgs](),
			Description: "Calls a tool that search_tools has found, with arguments as describe_tool describes them.",
		},
	}
}

func takes[A any]() json.RawMessage {
	s := typeschema.Input(reflect.TypeFor[A]())
	if p := s.At("properties"); reflect.TypeFor[A]() == reflect.TypeFor[callArgs]() {
		p.At("arguments").Set("type", "object")
	}
	b, err := s.MarshalJSON()
	if err != nil {
		panic(err) // the type is ours
	}
	return b
}

// read decodes arguments. Its errors are for the model, which can correct the arguments.
func read[A any](name string, args json.RawMessage) (a A, err error) {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	s, err := schema.Compile(takes[A]())
	if err != nil {
		return a, err
	}
	v, err := strictjson.Decode(args)
	if err != nil {
		return a, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not JSON: %w", name, err)
	}
	if faults := s.Validate(v); len(faults) > 0 {
		return a, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %s", name, schema.Words(faults))
	}
	return a, strictjson.Unmarshal(args, &a)
}

// Meant returns the call that a call_tool call means. It replaces that call, so that all rules for calls apply to it.
func Meant(args json.RawMessage) (name string, arguments json.RawMessage, err error) {
	a, err := read[callArgs](NameCall, args)
	return a.Name, a.Arguments, err
}

// Answer answers a search_tools or a describe_tool call. Describe describes a tool in the format of the wire. It returns
// nil for a tool that is missing or that the caller may not see: the caller cannot tell the two apart.
func (f *Finder) Answer(
	ctx context.Context, name string, args json.RawMessage, all []Named, describe func(name string) json.RawMessage,
) (string, error) {
	if name == NameSearch {
		return f.find(ctx, args, all)
	}
	a, err := read[describeArgs](NameDescribe, args)
	if err != nil {
		return "", err
	}
	text := describe(a.Name)
	if text == nil {
		return "", tool.Errorf(tool.CodeNotFound, "no tool named %.100q: %s finds names", a.Name, NameSearch)
	}
	return string(text), nil
}

// find returns the names of tools, what each does and what it takes, as briefly as possible.
func (f *Finder) find(ctx context.Context, args json.RawMessage, all []Named) (string, error) {
	a, err := read[searchArgs](NameSearch, args)
	if err != nil {
		return "", err
	}
	specs, nameOf := make([]*tool.Spec, len(all)), make(map[*tool.Spec]string, len(all))
	for i, t := range all {
		specs[i], nameOf[t.Spec] = t.Spec, t.Name
	}
	hits, err := f.Search(ctx, specs, a.Query, cmp.Or(a.Limit, usuallyFound))
	if err != nil {
		return "", err
	}
	if len(hits) == 0 {
		return "No tool is like that: say it in other words.", nil
	}
	text := ""
	for _, h := range hits {
		var takes []string
		for _, p := range schema.Properties(h.Spec.Input) {
			takes = append(takes, shortly(p))
		}
		text += nameOf[h.Spec] + "(" + strings.Join(takes, ", ") + "): " + Brief(h.Spec) + "\n"
	}
	return text, nil
}

// shortly formats an argument for a list: with a ? if it is optional, and its type.
func shortly(p schema.Property) string {
	text := p.Name
	if !p.Required {
		text += "?"
	}
	if len(p.Type) > 0 {
		text += ": " + strings.Join(p.Type, "|")
	}
	return text
}
