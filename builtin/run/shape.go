package run

import (
	"encoding/json"
	"slices"
	"strings"

	"toolpost/wire/strictjson"
)

// A shape is a JSON Schema as a type: the input or output of a function. Constraints that a type cannot express are left
// out.
type shape struct {
	kind     string // string, integer, number, boolean, null, array, object, union, literal; empty means anything
	doc      string
	members  []member // of an object that names some
	items    *shape   // of an array, or of the unnamed members of an object
	choices  []*shape // of a union
	literals []json.RawMessage
}

// A member is a part of an object.
type member struct {
	name     string
	shape    *shape
	required bool
}

// A schemaNode holds the parts of a schema that become a type.
type schemaNode struct {
	Type        json.RawMessage   `json:"type"`
	Enum        []json.RawMessage `json:"enum"`
	Const       json.RawMessage   `json:"const"`
	Items       json.RawMessage   `json:"items"`
	Properties  json.RawMessage   `json:"properties"`
	Additional  json.RawMessage   `json:"additionalProperties"`
	Required    []string          `json:"required"`
	AnyOf       []json.RawMessage `json:"anyOf"`
	OneOf       []json.RawMessage `json:"oneOf"`
	AllOf       []json.RawMessage `json:"allOf"`
	Ref         string            `json:"$ref"`
	Description string            `json:"description"`
}

// A shaper reads schemas. They may be foreign, and refer to themselves: it descends only to a bounded depth.
type shaper struct {
	root json.RawMessage
	deep int // levels that are described; below them is anything
}

// maxMembers bounds the members of an object, and the choices of a union, in a type.
const maxMembers = 200

func shapeOf(schema json.RawMessage, deep int) *shape {
	s := shaper{root: schema, deep: deep}
	return s.read(schema, 0)
}

func (s *shaper) read(raw json.RawMessage, depth int) *shape {
	var n schemaNode
	if len(raw) == 0 || depth > s.deep || strictjson.Unmarshal(raw, &n) != nil {
		return &shape{}
	}
	one := s.typed(n, depth)
	if n.Description != "" {
		one.doc = n.Description
	}
	return one
}

func (s *shaper) typed(n schemaNode, depth int) *shape {
	switch {
	case n.Ref != "":
		return s.read(s.definition(n.Ref), depth+1)
	case len(n.Const) > 0:
		return &shape{kind: "literal", literals: []json.RawMessage{n.Const}}
	case len(n.Enum) > 0:
		return &shape{kind: "literal", literals: n.Enum[:min(len(n.Enum), maxMembers)]}
	case len(n.AnyOf)+len(n.OneOf) > 0:
		return s.union(slices.Concat(n.AnyOf, n.OneOf), depth)
	case len(n.AllOf) == 1 && len(n.Properties) == 0:
		return s.read(n.AllOf[0], depth+1)
	}
	var kinds []string
	var kind string
	if strictjson.Unmarshal(n.Type, &kinds) == nil && len(kinds) > 0 {
		u := &shape{kind: "union"}
		for _, k := range kinds[:min(len(kinds), maxMembers)] {
			u.choices = append(u.choices, s.plain(k, n, depth))
		}
		return u
	}
	_ = strictjson.Unmarshal(n.Type, &kind) // a type that is not text is ignored
	if kind == "" && len(n.Properties) > 0 {
		kind = "object"
	}
	return s.plain(kind, n, depth)
}

func (s *shaper) union(parts []json.RawMessage, depth int) *shape {
	u := &shape{kind: "union"}
	for _, part := range parts[:min(len(parts), maxMembers)] {
		u.choices = append(u.choices, s.read(part, depth+1))
	}
	return u
}

func (s *shaper) plain(kind string, n schemaNode, depth int) *shape {
	switch kind {
	case "string", "integer", "number", "boolean", "null":
		return &shape{kind: kind}
	case "array":
		return &shape{kind: kind, items: s.read(n.Items, depth+1)}
	case "object":
		one := &shape{kind: kind, items: s.read(n.Additional, depth+1)}
		if depth < s.deep {
			one.members = s.members(n, depth)
		}
		return one
	}
	return &shape{}
}

// members returns the members of an object, the required ones first, otherwise in their order.
func (s *shaper) members(n schemaNode, depth int) (all []member) {
	_ = strictjson.Object(n.Properties, func(name, value []byte) error { // a value that is not an object has none
		if len(all) < maxMembers {
			one := s.read(slices.Clone(value), depth+1)
			all = append(all, member{string(name), one, slices.Contains(n.Required, string(name))})
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b member) int {
		switch {
		case a.required == b.required:
			return 0
		case a.required:
			return -1
		}
		return 1
	})
	return all
}

// definition resolves a reference within the schema, or returns nil if its target does not exist.
func (s *shaper) definition(ref string) json.RawMessage {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	at := s.root
	for _, step := range strings.Split(path, "/") {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		m, err := strictjson.ReadMembers(at, step)
		if err != nil {
			return nil
		}
		at = m.Get(step)
	}
	return at
}
