package typeschema

import (
	"encoding/json"
	"slices"
	"strconv"

	"toolpost/wire/strictjson"
)

// An Object is a JSON object whose members are written in the order in which they were set. People and models read a
// schema from the top: the order of a struct's fields tells them more than the alphabetical order of a map.
type Object struct{ members []member }

type member struct {
	name  string
	value any
}

// Set sets the value of a member. An existing member keeps its position.
func (o *Object) Set(name string, value any) *Object {
	if i := o.find(name); i >= 0 {
		o.members[i].value = value
	} else {
		o.members = append(o.members, member{name, value})
	}
	return o
}

// Delete removes a member.
func (o *Object) Delete(name string) {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.name == name })
}

// At returns the object at the path of names. It panics if there is none: schemas are written by programmers.
func (o *Object) At(path ...string) *Object {
	for _, name := range path {
		o = o.members[o.find(name)].value.(*Object)
	}
	return o
}

func (o *Object) find(name string) int {
	return slices.IndexFunc(o.members, func(m member) bool { return m.name == name })
}

// MarshalJSON implements json.Marshaler. A program writes the schemas of all its tools when it starts, so the usual
// parts of a schema are appended here, and only the rest uses the general encoder: that is several times as fast.
func (o *Object) MarshalJSON() ([]byte, error) { return o.appendTo(make([]byte, 0, 1<<10)) }

func (o *Object) appendTo(b []byte) (_ []byte, err error) {
	b = append(b, '{')
	for _, m := range o.members {
		b = strictjson.AppendName(b, m.name)
		switch v := m.value.(type) {
		case *Object:
			b, err = v.appendTo(b)
		case string:
			b = strictjson.AppendString(b, v)
		case bool:
			b = strconv.AppendBool(b, v)
		case json.RawMessage:
			b = append(b, v...)
		default:
			var rest []byte
			rest, err = strictjson.Marshal(v)
			b = append(b, rest...)
		}
		if err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}
