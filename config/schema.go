package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"

	"toolpost/strictjson"
)

// A SourceType is a protocol as the schema knows it: its name, a sentence about it, and the zero value
// of its Options.
type SourceType struct {
	Protocol string
	Doc      string
	Options  any
}

// Schema writes the JSON Schema of toolpost.yaml, read off the structs that the file is decoded into, so
// that the two cannot disagree. Editors use it to complete and check.
func Schema(types []SourceType) ([]byte, error) {
	s := structSchema(reflect.TypeFor[layout]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = FileName
	var sources []any
	for _, t := range types {
		sources = append(sources, t.schema())
	}
	s["properties"].(object)["sources"].(object)["items"] = object{"oneOf": sources}
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

func (t SourceType) schema() object {
	s := structSchema(reflect.TypeOf(t.Options))
	props := s["properties"].(object)
	props["name"] = object{"type": "string", "pattern": sourceName.String(), "description": "what the source is called"}
	props["protocol"] = object{"const": t.Protocol}
	s["required"] = []string{"name", "protocol"}
	s["title"] = t.Protocol
	if t.Doc != "" {
		s["description"] = t.Doc
	}
	return s
}

func structSchema(t reflect.Type) object {
	props := object{}
	for _, f := range fieldsOf(t) {
		p := typeSchema(f.typ)
		if f.doc != "" {
			p["description"] = f.doc
		}
		props[f.name] = p
	}
	return object{"type": "object", "properties": props, "additionalProperties": false}
}

func typeSchema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[JSON](), reflect.TypeFor[entry]():
		return object{}
	case reflect.TypeFor[Duration](), reflect.TypeFor[time.Duration]():
		return object{"oneOf": []object{{"type": "string"}, {"type": "number", "minimum": 0}}}
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
