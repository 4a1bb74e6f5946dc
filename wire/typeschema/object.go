package typeschema

import (
	"slices"

	"toolpost/wire/strictjson"
)

// An Object is a JSON object whose members are written in the order in which they were set. People and models read a
// schema from the top: the order of a struct's fields says more than that of the alphabet, which a map would give.
type Object struct{ members []member }

type member struct {
	name  string
	value any
}

// Set gives a member a value. One that is there already keeps its place.
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

// At gives the object that the path of names leads to. It panics where there is none: schemas are written by
// programmers.
func (o *Object) At(path ...string) *Object {
	for _, name := range path {
		o = o.members[o.find(name)].value.(*Object)
	}
	return o
}

func (o *Object) find(name string) int {
	return slices.IndexFunc(o.members, func(m member) bool { return m.name == name })
}

// MarshalJSON implements json.Marshaler.
func (o *Object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o.members {
		if i > 0 {
			b = append(b, ',')
		}
		value, err := strictjson.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b = append(b, strictjson.Quote([]byte(m.name))...)
		b = append(append(b, ':'), value...)
	}
	return append(b, '}'), nil
}
