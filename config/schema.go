package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"time"

	"toolpost/wire/strictjson"
)

// A Part is a protocol of sources or a door as the schema knows it: its name, a sentence about it, and
// the zero value of its options.
type Part struct {
	Name    string
	Doc     string
	Options any
}

// Sections are the zero values of what the sections of other packages are decoded into; those of lists are for one
// entry.
type Sections struct {
	Policy, Store, Callers, Telemetry any
	Secret, Quota, Cache              any // an entry of secrets, limits.quotas and limits.cache
}

// Schema writes the JSON Schema of toolpost.yaml, read off the structs that the file is decoded into, so
// that the two cannot disagree. Editors use it to complete and check.
func Schema(protocols, doors []Part, sections Sections) ([]byte, error) {
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
	for name, options := range map[string]any{
		"policy": sections.Policy, "store": sections.Store, "callers": sections.Callers, "telemetry": sections.Telemetry,
	} {
		maps.Copy(props[name].(object), structSchema(reflect.TypeOf(options)))
	}
	maps.Copy(props["secrets"].(object), secretsSchema(reflect.TypeOf(sections.Secret)))
	limits := props["limits"].(object)["properties"].(object)
	for name, entry := range map[string]any{"quotas": sections.Quota, "cache": sections.Cache} {
		maps.Copy(limits[name].(object), object{"type": "array", "items": structSchema(reflect.TypeOf(entry))})
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

type object = map[string]any

func (p Part) source() object {
	s := p.described()
	props := s["properties"].(object)
	props["name"] = object{"type": "string", "pattern": sourceName.String(), "description": "what the source is called"}
	props["protocol"] = object{"const": p.Name}
	s["required"] = []string{"name", "protocol"}
	return s
}

// door may be left without fields: then it has its defaults.
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
		if f.Doc != "" {
			p["description"] = f.Doc
		}
		props[f.Name] = p
	}
	return object{"type": "object", "properties": props, "additionalProperties": false}
}

// secretsSchema is for names that each have one field of a struct.
func secretsSchema(t reflect.Type) object {
	one := structSchema(t)
	one["minProperties"], one["maxProperties"] = 1, 1
	return object{"type": "object", "propertyNames": object{"pattern": secretName}, "additionalProperties": one}
}

func typeSchema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[JSON](), reflect.TypeFor[entry](), reflect.TypeFor[Section]():
		return object{}
	case reflect.TypeFor[Duration](), reflect.TypeFor[time.Duration]():
		return object{"oneOf": []object{{"type": "string"}, {"type": "number", "minimum": 0}}}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return textSchema(t)
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

// textSchema is for what may be written as text alone.
func textSchema(t reflect.Type) object {
	switch {
	case t.Kind() == reflect.Slice:
		item := typeSchema(t.Elem())
		return object{"anyOf": []object{item, {"type": "array", "items": item}}}
	case onlyText(t):
		return object{"type": []string{"string", "number"}}
	case t.Kind() == reflect.Struct:
		return object{"anyOf": []object{{"type": "string"}, structSchema(t)}}
	}
	return object{"type": "string"}
}
