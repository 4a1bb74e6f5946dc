// Package typeschema derives documents from Go structs: the names of their fields, their descriptions, and their JSON
// Schema. Decoding a document and describing it to its author use the same structs, so that the two cannot disagree.
package typeschema

import (
	"reflect"
	"strings"
)

// A Field is a field of a struct as a document writes it.
type Field struct {
	Name  string // in the document
	Doc   string // its description: the tag doc
	Index []int  // for reflect's FieldByIndex
	Type  reflect.Type
	Tag   reflect.StructTag
}

// Fields lists the fields of a struct. A name comes from the first of the tags that a field has, such as yaml or json;
// a field without one has its Go name in lower case. The fields of an embedded struct without a name belong to the
// outer struct.
func Fields(t reflect.Type, tags ...string) []Field {
	var fields []Field
	for f := range t.Fields() {
		name := nameOf(f, tags)
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for _, sub := range Fields(f.Type, tags...) {
				sub.Index = append(append([]int{}, f.Index...), sub.Index...)
				fields = append(fields, sub)
			}
		case !f.IsExported() || name == "-":
		default:
			if name == "" {
				name = strings.ToLower(f.Name)
			}
			fields = append(fields, Field{Name: name, Doc: f.Tag.Get("doc"), Index: f.Index, Type: f.Type, Tag: f.Tag})
		}
	}
	return fields
}

func nameOf(f reflect.StructField, tags []string) string {
	for _, key := range tags {
		if tag, ok := f.Tag.Lookup(key); ok {
			name, _, _ := strings.Cut(tag, ",")
			return name
		}
	}
	return ""
}
