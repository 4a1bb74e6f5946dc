package door

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

// A Prompt is a prompt that a tool writes. Its arguments are those of the tool.
type Prompt struct {
	Name        string `yaml:"name" doc:"name of the prompt; default: the tool's name"`
	Tool        string `yaml:"tool" doc:"the tool that writes the prompt: a text, or a list of messages"`
	Description string `yaml:"description" doc:"shown to people who choose a prompt; default: the tool's description"`
}

// A Resource is a resource that a tool returns. The variables of its URI are the arguments of the tool.
type Resource struct {
	URI         string `yaml:"uri" doc:"its URI, or a template whose {variables} are arguments of the tool"`
	Tool        string `yaml:"tool" doc:"the tool that returns it: a text, JSON, or a file"`
	Name        string `yaml:"name" doc:"display name; default: the URI"`
	Description string `yaml:"description" doc:"what it is; default: the tool's description"`
	MediaType   string `yaml:"media_type" doc:"media type; default: text/plain for a text, the file's own for a file, otherwise application/json"`
}

// Offers are the prompts, resources and tasks of a door.
type Offers struct {
	Prompts   []Prompt   `yaml:"prompts" doc:"prompts for MCP clients, each written by a tool"`
	Resources []Resource `yaml:"resources" doc:"resources for MCP clients, each returned by a tool"`
	Tasks     Tasks      `yaml:"tasks" doc:"calls that run as tasks, for MCP clients that support them"`
}

// Check reports the first invalid prompt or resource.
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

// A resourceTemplate is a resource with its parsed template.
type resourceTemplate struct {
	Resource
	*uritemplate.Template
}

// templates parses the templates, which Check has accepted.
func (o Offers) templates() []resourceTemplate {
	list := make([]resourceTemplate, len(o.Resources))
	for i, r := range o.Resources {
		list[i] = resourceTemplate{r, uritemplate.MustNew(r.URI)}
	}
	return list
}

// fixed reports whether the URI is a single resource, not a template for many.
func (t resourceTemplate) fixed() bool { return len(t.Varnames()) == 0 }

func (t resourceTemplate) at(uri string) bool { return t.URI == uri || t.Match(uri) != nil }

// argumentsOf converts texts to arguments: prompts and URIs have nothing but texts. If the tool expects a number or a
// boolean, a text that is one is written as such; the engine reports any other.
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

// spec returns a tool that the caller may call, or nil.
func (s *server) spec(ctx context.Context, p tool.Principal, name string) *tool.Spec {
	spec, err := s.catalog.Lookup(ctx, p, name)
	if err != nil {
		return nil
	}
	return spec
}
