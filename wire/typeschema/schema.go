package typeschema

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"toolpost/wire/strictjson"
)

// Input writes the schema of a document that is decoded into a value of type t: an object has the fields of its struct
// and no others.
//
// The name of a field is its json tag and its description the doc tag. Further constraints are in the tag schema, as
// keywords of JSON Schema separated by spaces:
//
//	Limit int      `json:"limit" schema:"required minimum=1 maximum=100 default=10" doc:"Maximum number of results."`
//	Mode  string   `json:"mode" schema:"enum=fast|exact"`
//	Names []string `json:"names" schema:"maxItems=8 items.minLength=1"`
//
// A value that is JSON is used as it is and any other as a string. Keywords that begin with items. are about the
// elements of a list, and those of a blank field, `_ struct{}`, about the whole object.
func Input(t reflect.Type) *Object { return writer{closed: true}.typ(t) }

// Output writes the schema of an encoded value of type t. A field is required unless its json tag omits it when it is
// empty; a reader has to expect fields that do not exist yet.
func Output(t reflect.Type) *Object { return writer{}.typ(t) }

type writer struct{ closed bool }

func (w writer) typ(t reflect.Type) *Object {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &Object{}
	case reflect.TypeFor[[]byte]():
		return one("string").Set("contentEncoding", "base64")
	case reflect.TypeFor[time.Time]():
		return one("string").Set("format", "date-time")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.typ(t.Elem())
	case reflect.Struct:
		return w.object(t)
	case reflect.Slice:
		return one("array").Set("items", w.typ(t.Elem()))
	case reflect.Map:
		return one("object").Set("additionalProperties", w.typ(t.Elem()))
	case reflect.Bool:
		return one("boolean")
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return one("integer")
	case reflect.Float64:
		return one("number")
	case reflect.Interface:
		return &Object{}
	}
	return one("string")
}

func one(kind string) *Object {
	return &Object{append(make([]member, 0, 4), member{"type", kind})}
}

func (w writer) object(t reflect.Type) *Object {
	props, needed := new(Object), []string(nil)
	for _, f := range Fields(t, "json") {
		words := strings.Fields(f.Tag.Get("schema"))
		if w.requires(f, words) {
			needed = append(needed, f.Name)
		}
		props.Set(f.Name, describe(w.typ(f.Type), words, f.Doc))
	}
	o := one("object")
	if len(props.members) > 0 {
		o.Set("properties", props)
	}
	if len(needed) > 0 {
		o.Set(required, needed)
	}
	if w.closed {
		o.Set("additionalProperties", false)
	}
	if whole, ok := t.FieldByName("_"); ok {
		describe(o, strings.Fields(whole.Tag.Get("schema")), "")
	}
	return o
}

// required is the one keyword of a field that goes into the schema of the object around it.
const required = "required"

func (w writer) requires(f Field, words []string) bool {
	if w.closed {
		return len(words) > 0 && words[0] == required
	}
	return !strings.Contains(f.Tag.Get("json"), ",omit")
}

// describe adds the keywords of a tag. The values of an enum or a const imply their type.
func describe(o *Object, words []string, doc string) *Object {
	for _, w := range Words(words) {
		at := o
		if w.Items {
			at = o.At("items")
		}
		switch w.Name {
		case required:
			continue
		case "enum", "const":
			at.Delete("type")
		}
		at.Set(w.Name, w.Value)
	}
	if doc != "" {
		o.Set("description", doc)
	}
	return o
}

// A Word is one keyword of the tag schema.
type Word struct {
	Name  string // such as enum
	Items bool   // it is about the elements of a list
	Value any    // a list of strings for enum, else JSON or a string
}

// Words parses the keywords of a tag.
func Words(words []string) []Word {
	read := make([]Word, 0, len(words))
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		name, items := strings.CutPrefix(name, "items.")
		w := Word{name, items, literal(value)}
		if name == "enum" {
			w.Value = strings.Split(value, "|")
		}
		read = append(read, w)
	}
	return read
}

func literal(s string) any {
	if raw := json.RawMessage(s); strictjson.Check(raw) == nil {
		return raw
	}
	return s
}
