// Package typeschema reads Go structs as documents see them: what their fields are called, what is said about them,
// and the JSON Schema that follows. What a document is decoded into and what its author is told come from one place,
// so that the two cannot disagree.
package typeschema

import (
	"reflect"
	"strings"
)

// A Field is a field of a struct as a document writes it.
type Field struct {
	Name  string // in the document
	Doc   string // what is said about it: the tag doc
	Index []int  // for reflect's FieldByIndex
	Type  reflect.Type
	Tag   reflect.StructTag
}

// Fields lists the fields of a struct. A name comes from the first of the tags that a field has, such as yaml or
// json; a field without one has its Go name in lower case. Embedded structs without a name are part of theirs.
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
