package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/yosida95/uritemplate/v3"

	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// A Prompt is what a tool gives to be told to a model. Its arguments are those of the tool.
type Prompt struct {
	Name        string `yaml:"name" doc:"what clients call it; default: the tool's name"`
	Tool        string `yaml:"tool" doc:"the tool that writes it: a text, or a list of messages"`
	Description string `yaml:"description" doc:"for people who choose among prompts; default: that of the tool"`
}

// A Resource is what a tool gives to be read. The variables of its URI are the arguments of the tool.
type Resource struct {
	URI         string `yaml:"uri" doc:"where it is, or a template with {variables}, which are arguments of the tool"`
	Tool        string `yaml:"tool" doc:"the tool that gives it: a text, JSON, or a file"`
	Name        string `yaml:"name" doc:"for people; default: the URI"`
	Description string `yaml:"description" doc:"what it is; default: what the tool says of itself"`
	MediaType   string `yaml:"media_type" doc:"of what is read; default: text/plain for a text, that of a file, or application/json"`
}

// Offers is what a door has beside tools.
type Offers struct {
	Prompts   []Prompt   `yaml:"prompts" doc:"prompts for clients of MCP, each written by a tool"`
	Resources []Resource `yaml:"resources" doc:"resources for clients of MCP, each given by a tool"`
	Tasks     Tasks      `yaml:"tasks" doc:"calls that run as tasks, for clients of MCP that know them"`
}

// Check finds what cannot be meant.
func (o Offers) Check() error {
	names := map[string]bool{}
	for _, p := range o.Prompts {
		switch name := p.name(); {
		case p.Tool == "":
			return tool.Errorf(tool.CodeInvalidInput, "the prompt %q has no tool that writes it", p.Name)
		case names[name]:
			return tool.Errorf(tool.CodeInvalidInput, "two prompts are called %q: name one of them otherwise", name)
		default:
			names[name] = true
		}
	}
	for _, r := range o.Resources {
		if _, err := uritemplate.New(r.URI); err != nil || r.URI == "" || r.Tool == "" {
			return tool.Errorf(tool.CodeInvalidInput,
				"the resource %q needs a uri, such as notes://{name}, and a tool that gives it", r.URI)
		}
	}
	return nil
}

func (p Prompt) name() string { return cmp.Or(p.Name, p.Tool) }

// A place is a resource whose template was read.
type place struct {
	Resource
	*uritemplate.Template
}

// places reads the templates; Check has seen that they can be read.
func (o Offers) places() []place {
	list := make([]place, len(o.Resources))
	for i, r := range o.Resources {
		list[i] = place{r, uritemplate.MustNew(r.URI)}
	}
	return list
}

// fixed reports whether a resource is one, and not many of a kind.
func (p place) fixed() bool { return len(p.Varnames()) == 0 }

func (p place) at(uri string) bool { return p.URI == uri || p.Match(uri) != nil }

// argumentsOf makes arguments of texts, which is all that prompts and URIs have. What a tool wants as a number or a
// boolean is written as such, if it is one; the engine tells what is wrong with what is not.
func argumentsOf(spec *tool.Spec, texts map[string]string) json.RawMessage {
	w := strictjson.NewWriter(200)
	types := map[string]schema.Types{}
	for _, p := range schema.Properties(spec.Input) {
		types[p.Name] = p.Type
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		value := strictjson.Quote(texts[name])
		if raw := []byte(texts[name]); len(types[name]) > 0 && !slices.Contains(types[name], "string") {
			if kind := strictjson.KindOf(raw); strictjson.Check(raw) == nil && (kind == "number" || kind == "boolean") {
				value = raw
			}
		}
		w.Named(name, value)
	}
	return w.Done()
}

// spec finds a tool that somebody may call; nil: there is none for them.
func (s *server) spec(ctx context.Context, p tool.Principal, name string) *tool.Spec {
	spec, err := s.catalog.Lookup(ctx, p, name)
	if err != nil {
		return nil
	}
	return spec
}
