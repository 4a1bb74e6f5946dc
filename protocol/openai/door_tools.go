package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"toolpost/codesearch/toolfind"
	"toolpost/model"
	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// A toolset holds the tools that a caller may use, by their names on these wires.
type toolset map[string]*tool.Spec

// toolset returns the tools that a caller can call now.
func (s *server) toolset(ctx context.Context, p tool.Principal) toolset {
	var specs []*tool.Spec
	for spec, err := range s.catalog.Specs(ctx, p) {
		if err == nil {
			specs = append(specs, spec)
		}
	}
	return tool.Slugs(specs)
}

// sorted lists the tools by name.
func (all toolset) sorted() (list []toolfind.Named) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, toolfind.Named{Name: name, Spec: all[name]})
	}
	return list
}

// find returns a tool and its name on the wire, also if the caller used the tool's name in the engine.
func (s *server) find(ctx context.Context, p tool.Principal, all toolset, name string) (string, *tool.Spec) {
	if spec := all[name]; spec != nil {
		return name, spec
	}
	spec, err := s.catalog.Lookup(ctx, p, name)
	if err != nil {
		return "", nil
	}
	for wire, other := range all {
		if other.Name == spec.Name {
			return wire, other
		}
	}
	return tool.Slug(spec.Name), spec // an unlisted tool
}

// ours returns the tool of ours that a request's tool refers to, by its name alone or by the definition that we offer, or
// nil if it is the caller's own.
func (s *server) ours(ctx context.Context, p tool.Principal, all toolset, w requestedTool) *tool.Spec {
	if w.origin != nil || w.hosted {
		return nil
	}
	_, spec := s.find(ctx, p, all, w.name)
	if spec == nil || w.bare {
		return spec
	}
	offered := define(w.name, spec)
	own, err := strictjson.Decode(w.own.Input)
	listed, _ := strictjson.Decode(offered.Input)
	if err != nil || w.own.Description != offered.Description || !reflect.DeepEqual(own, listed) {
		return nil
	}
	return spec
}

// isBare reports whether a definition says nothing beside its name. Clients write a schema without members if an API asks
// for one.
func isBare(description string, input json.RawMessage) bool {
	if len(input) == 0 || string(input) == "null" {
		return description == ""
	}
	all := members(input)
	if own, has := all["properties"]; has && len(members(own)) == 0 {
		delete(all, "properties")
	}
	return description == "" && len(all) == 1 && schema.Is(input, "object")
}

// A toolOrigin is the original place of a caller's tool that a model of another API knows as a function.
type toolOrigin struct {
	namespace, name string
	custom          bool // it takes a text
	search          bool // it finds further tools
}

// define describes a tool to a model.
func define(name string, spec *tool.Spec) model.Tool {
	input := schema.Object(spec.Input)
	return model.Tool{Name: name, Description: cmp.Or(spec.Description, spec.Title), Input: input, Strict: strict(input)}
}

// listTools is GET /v1/openai/tools.
func (s *server) listTools(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	form, known := map[string]func(model.Tool) object{
		"": functionDefinition, "chat": functionDefinition, "responses": flatDefinition, "messages": toolDefinition,
	}[r.URL.Query().Get("form")]
	if !known {
		return tool.Errorf(tool.CodeInvalidInput, "form is chat, responses or messages, not %.60q", r.URL.Query().Get("form"))
	}
	list := []object{}
	for _, t := range s.toolset(r.Context(), p).sorted() {
		list = append(list, form(define(t.Name, t.Spec)))
	}
	return s.replyWith(w, object{"tools": list})
}

// flatDefinition encodes a tool for responses. Strict is always written: that API defaults to true.
func flatDefinition(t model.Tool) object {
	return object{"type": "function", "name": t.Name, "description": t.Description, "parameters": t.Input,
		"strict": t.Strict}
}

// functionDefinition encodes a tool for chat completions.
func functionDefinition(t model.Tool) object {
	inner := flatDefinition(t)
	delete(inner, "type")
	return object{"type": "function", "function": inner}
}

// toolDefinition encodes a tool for messages.
func toolDefinition(t model.Tool) object {
	return object{"name": t.Name, "description": t.Description, "input_schema": t.Input}
}

// Bounds of a schema in strict mode, and the keywords that it may have; with any other the server refuses the tool.
const (
	maxStrictDepth = 10
	maxStrictNames = 5_000
)

func strictWords() []string {
	return []string{
		"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
		"description", "title", "$schema", "$id", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
		"exclusiveMaximum", "multipleOf", "minItems", "maxItems",
	}
}

// strict reports whether a schema is valid in strict mode as it is: each object requires all of its members and allows
// no others, with keywords that strict mode supports.
func strict(raw json.RawMessage) bool {
	v, err := strictjson.Decode(raw)
	top, ok := v.(map[string]any)
	names := maxStrictNames
	return err == nil && ok && top["type"] == "object" && top["anyOf"] == nil && strictObject(top, maxStrictDepth, &names)
}

func strictObject(s map[string]any, depth int, names *int) bool {
	if depth == 0 {
		return false
	}
	for word := range s {
		if !slices.Contains(strictWords(), word) {
			return false
		}
	}
	members, _ := s["properties"].(map[string]any)
	if describesObjects(s) && (s["additionalProperties"] != false || !requires(s["required"], members)) {
		return false
	}
	if *names -= len(members); *names < 0 {
		return false
	}
	defs, _ := s["$defs"].(map[string]any)
	inner := slices.Concat(slices.Collect(maps.Values(members)), slices.Collect(maps.Values(defs)))
	if choices, ok := s["anyOf"].([]any); ok {
		inner = append(inner, choices...)
	}
	if items, there := s["items"]; there {
		inner = append(inner, items)
	}
	for _, one := range inner {
		if o, ok := one.(map[string]any); !ok || !strictObject(o, depth-1, names) {
			return false
		}
	}
	return s["type"] != nil || s["anyOf"] != nil || s["$ref"] != nil || s["enum"] != nil || s["const"] != nil
}

// describesObjects reports whether a schema allows an object.
func describesObjects(s map[string]any) bool {
	switch t := s["type"].(type) {
	case string:
		return t == "object"
	case []any:
		return slices.Contains(t, any("object"))
	}
	return s["properties"] != nil
}

// requires reports whether all members are required.
func requires(required any, members map[string]any) bool {
	list, _ := required.([]any)
	for name := range members {
		if !slices.Contains(list, any(name)) {
			return false
		}
	}
	return true
}
