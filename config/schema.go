package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"time"

	"toolpost/wire/strictjson"
	"toolpost/wire/typeschema"
)

// A Part describes a protocol of sources, a door or a section to the schema: its name (a path such as limits.quotas for
// a section among the limits), a sentence about it, and the zero value of the type that it is decoded into.
type Part struct {
	Name    string
	Doc     string
	Options any
	Pinned  bool // of a protocol: whether the tools of its sources are pinned by default
}

// Schema writes the JSON Schema of toolpost.yaml, derived from the structs that the file is decoded into, so that the
// two cannot disagree. Editors use it to complete and check.
func Schema(protocols, doors, sections []Part) ([]byte, error) {
	s := structSchema(reflect.TypeFor[layout]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = FileName
	var sources []any
	for _, p := range protocols {
		sources = append(sources, p.source())
	}
	known := object{}
	for _, d := range doors {
		known[d.Name] = d.door()
	}
	props := s["properties"].(object)
	props["sources"].(object)["items"] = object{"oneOf": sources}
	props["doors"].(object)["properties"], props["doors"].(object)["additionalProperties"] = known, false
	props["doors"].(object)["type"] = "object"
	limits := structSchema(reflect.TypeFor[Limits]())
	maps.Copy(props["limits"].(object), limits)
	for _, p := range sections {
		p.section(props, limits["properties"].(object))
	}
	b, err := strictjson.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, b, "", "  ")
	out.WriteByte('\n')
	return out.Bytes(), err
}

type object map[string]any

// section puts a section in its place: at the top of the file, or among the limits.
func (p Part) section(top, limits object) {
	s := typeSchema(reflect.TypeOf(p.Options))
	if p.Name == "secrets" {
		s = secretsSchema(reflect.TypeOf(p.Options).Elem())
	}
	if p.Doc != "" {
		s["description"] = p.Doc
	}
	in, name := top, p.Name
	if below, ok := strings.CutPrefix(p.Name, underLimits); ok {
		in, name = limits, below
	}
	if was, ok := in[name].(object); ok { // one of the package's own fields, which has a description already
		maps.Copy(was, s)
		return
	}
	in[name] = s
}

func (p Part) source() object {
	s := p.described()
	props := s["properties"].(object)
	props["name"] = object{"type": "string", "pattern": sourceName().String(), "description": "name of the source"}
	props["protocol"] = object{"const": p.Name}
	props["pin"] = object{
		"enum": []string{"on", "off"}, "default": onOrOff(p.Pinned),
		"description": "whether a tool that changes is held back until an operator approves it",
	}
	props["connections"] = object{
		"type": "array", "items": object{"type": "string"},
		"description": "connections that calls of the tools use, by their names in the section connections: each call that of its caller",
	}
	s["required"] = []string{"name", "protocol"}
	return s
}

func onOrOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// door returns the schema of a door, which may be null: then it has its defaults.
func (p Part) door() object {
	s := p.described()
	s["type"] = []string{"object", "null"}
	return s
}

func (p Part) described() object {
	s := structSchema(reflect.TypeOf(p.Options))
	s["title"] = p.Name
	if p.Doc != "" {
		s["description"] = p.Doc
	}
	return s
}

func structSchema(t reflect.Type) object {
	props := object{}
	for _, f := range fieldsOf(t) {
		p := typeSchema(f.Type)
		switch f.Tag.Get("kind") {
		case kindBytes:
			p["type"] = []string{"integer", "string"}
		case kindListen:
			p["type"] = []string{"string", "integer"}
		}
		p.say(strings.Fields(f.Tag.Get("schema")))
		if f.Doc != "" {
			p["description"] = f.Doc
		}
		props[f.Name] = p
	}
	return object{"type": "object", "properties": props, "additionalProperties": false}
}

// say adds the keywords of the tag schema: the possible values, and the default.
func (o object) say(words []string) {
	for _, w := range typeschema.Words(words) {
		at := o
		if w.Items {
			at = o.element()
		}
		if w.Name == "enum" {
			delete(at, "type") // the values imply it
		}
		at[w.Name] = w.Value
	}
}

// element returns the schema of the elements of a list, also of one that may be written as a single element.
func (o object) element() object {
	if short, ok := o["anyOf"].([]object); ok {
		return short[0]
	}
	return o["items"].(object)
}

// secretsSchema is for a mapping of names, each with exactly one field of a struct.
func secretsSchema(t reflect.Type) object {
	one := structSchema(t)
	one["minProperties"], one["maxProperties"] = 1, 1
	return object{"type": "object", "propertyNames": object{"pattern": secretName}, "additionalProperties": one}
}

func typeSchema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[JSON](), reflect.TypeFor[entry]():
		return object{}
	case reflect.TypeFor[Duration](), reflect.TypeFor[time.Duration]():
		return object{"oneOf": []object{{"type": "string"}, {"type": "number", "minimum": 0, "maximum": 0}}}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return textSchema(t)
	}
	if named, ok := reflect.Zero(t).Interface().(interface{ element() reflect.Type }); ok {
		return object{"type": "object", "additionalProperties": typeSchema(named.element())}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem())
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return object{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": typeSchema(t.Elem())}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	return object{"type": "string"}
}

// textSchema is for types that may be written as text alone.
func textSchema(t reflect.Type) object {
	switch {
	case t.Kind() == reflect.Slice:
		item := typeSchema(t.Elem())
		return object{"anyOf": []object{item, {"type": "array", "items": item}}}
	case onlyText(t), t.Kind() == reflect.Int:
		return object{"type": []string{"string", "number"}}
	case t.Kind() == reflect.Struct:
		return object{"anyOf": []object{{"type": "string"}, structSchema(t)}}
	}
	return object{"type": "string"}
}
