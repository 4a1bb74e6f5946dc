package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"toolpost/codesearch/toolfind"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
	"toolpost/wire/typeschema"
)

// The tools that stand for all others where these are too many for a model's context.
const (
	nameSearch   = "search_tools"
	nameDescribe = "describe_tool"
	nameCall     = "call_tool"
)

// Many is above how many tools a door offers a search in place of a list; below 0: never. The zero value is the
// default.
type Many int

// usualMany is about what a model still chooses well among: each tool costs a hundred tokens and more.
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

// are reports whether so many tools are too many to be listed.
func (m Many) are(tools int) bool { return m >= 0 && tools > int(cmp.Or(m, usualMany)) }

// Search is what a config says of a door with many tools.
type Search struct {
	Above  Many     `yaml:"search_above" schema:"default=60" doc:"if a caller sees more tools than this, list three search tools instead of all of them; 0 or off: never"`
	Always []string `yaml:"always" doc:"tools to list in addition to the three"`
}

// few gives what a caller is listed who sees too many tools: those that are always listed, and the three by which it
// finds and calls the others. A tool that is called like one of the three is called through call_tool.
func (s *server) few(all []named) []named {
	if !s.Above.are(len(all)) {
		return all
	}
	var few []named
	for _, spec := range finders() {
		few = append(few, named{spec.Name, spec})
	}
	for _, t := range all {
		if slices.ContainsFunc([]string{t.name, t.spec.Name, t.spec.Ref().String()}, s.always) && find(few, t.name) == nil {
			few = append(few, t)
		}
	}
	sortNamed(few)
	return few
}

// find gives the tool of a name on the wire; nil: there is none.
func find(list []named, name string) *tool.Spec {
	i := slices.IndexFunc(list, func(t named) bool { return t.name == name })
	if i < 0 {
		return nil
	}
	return list[i].spec
}

func (s *server) always(name string) bool { return slices.Contains(s.Always, name) }

// What the three take.
type (
	searchArgs struct {
		Query string `json:"query" schema:"required minLength=1 maxLength=1000" doc:"what the tool should do, in a few words"`
		Limit int    `json:"limit" schema:"minimum=1 maximum=50" doc:"at most so many; default: 10"`
	}
	describeArgs struct {
		Name string `json:"name" schema:"required minLength=1" doc:"its name, as search_tools gives it"`
	}
	callArgs struct {
		describeArgs
		Arguments json.RawMessage `json:"arguments" doc:"what the tool takes, an object"`
	}
)

// usuallyFound is how many tools a search gives at the most where nobody says otherwise.
const usuallyFound = 10

// finders are the three. Their descriptions do not say how many tools there are: a list that stays the same can be
// kept.
func finders() []*tool.Spec {
	reads := tool.Effects{Reads: true, Idempotent: true}
	return []*tool.Spec{
		{
			Name: nameSearch, Effects: reads, Input: takes[searchArgs](),
			Description: "Finds tools by what they do. There are more tools here than are listed: say in a few words what " +
				"you want to do, and get the names of tools that fit, what each does and what it takes.",
		},
		{
			Name: nameDescribe, Effects: reads, Input: takes[describeArgs](),
			Description: "Gives all there is to know about one tool: its whole description and the schema of its arguments.",
		},
		{
			Name: nameCall, Input: takes[callArgs](),
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

// instead answers a call of one of the three. A call_tool becomes the call that it means, and goes on as if the client
// had made that one: from here on nobody knows the difference, so that nothing which holds for a call can be gone
// around.
func (s *server) instead(ctx context.Context, r *request) (w *strictjson.Writer, answered bool) {
	if s.Above < 0 || r.name != nameSearch && r.name != nameDescribe && r.name != nameCall {
		return nil, false
	}
	all := s.tools(ctx, r.caller)
	if !s.Above.are(len(all)) && find(all, r.name) != nil {
		return nil, false // it is somebody's tool; else a client may still have a list from when there were more
	}
	var err error
	switch r.name {
	case nameSearch:
		w, err = s.search(ctx, r, all)
	case nameDescribe:
		w, err = s.describeOne(ctx, r, all)
	default:
		if err = r.means(); err == nil {
			return nil, false
		}
	}
	if err != nil {
		return failure(r, tool.AsError(err)), true
	}
	return w, true
}

// means puts the call that a call_tool means in its place.
func (r *request) means() error {
	a, err := read[callArgs](r)
	if err == nil {
		r.name, r.arguments, r.tool, r.spec = a.Name, a.Arguments, "", nil
	}
	return err
}

// read takes arguments apart. What is wrong with them is for the model, which can do better.
func read[A any](r *request) (a A, err error) {
	s, err := schema.Compile(takes[A]())
	if err != nil {
		return a, err
	}
	v, err := strictjson.Decode(orEmpty(r.arguments))
	if err != nil {
		return a, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not JSON: %w", r.name, err)
	}
	if faults := s.Validate(v); len(faults) > 0 {
		return a, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %s", r.name, schema.Words(faults))
	}
	return a, strictjson.Unmarshal(orEmpty(r.arguments), &a)
}

// search is search_tools: names, what each does and what it takes, in as few words as will do.
func (s *server) search(ctx context.Context, r *request, all []named) (*strictjson.Writer, error) {
	a, err := read[searchArgs](r)
	if err != nil {
		return nil, err
	}
	specs, nameOf := make([]*tool.Spec, len(all)), make(map[*tool.Spec]string, len(all))
	for i, t := range all {
		specs[i], nameOf[t.spec] = t.spec, t.name
	}
	hits, err := s.finder.Search(ctx, specs, a.Query, cmp.Or(a.Limit, usuallyFound))
	if err != nil {
		return nil, err
	}
	text := ""
	for _, h := range hits {
		var takes []string
		for _, p := range schema.Properties(h.Spec.Input) {
			takes = append(takes, shortly(p))
		}
		text += nameOf[h.Spec] + "(" + strings.Join(takes, ", ") + "): " + toolfind.Brief(h.Spec) + "\n"
	}
	if len(hits) == 0 {
		text = "No tool is like that: say it in other words."
	}
	return said(r, text), nil
}

// shortly is an argument as a list has it: with a ? where it may be left out, and its type.
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

// describeOne is describe_tool. A tool that is not there and one that the caller does not see are the same to it.
func (s *server) describeOne(ctx context.Context, r *request, all []named) (*strictjson.Writer, error) {
	a, err := read[describeArgs](r)
	if err != nil {
		return nil, err
	}
	spec := find(all, a.Name)
	if spec == nil {
		spec = s.spec(ctx, r.caller, a.Name)
	}
	if spec == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q: %s finds names", jsonrpc.Clip(a.Name), nameSearch)
	}
	return said(r, string(describe(a.Name, spec, r.modern))), nil
}

// said is a result in words.
func said(r *request, text string) *strictjson.Writer {
	w := begun(r, len(text))
	w.Raw("content", append(appendText([]byte{'['}, text), ']'))
	return w
}
