package plan

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// Ignored lists the first of the members of a document that are not part of a plan. They are not faults, because
// planners may be newer than this program. But most of them are typing errors, which would go unnoticed otherwise.
func Ignored(document []byte) []Fault {
	v, err := strictjson.Decode(document)
	if err != nil {
		return nil
	}
	f := new(faults)
	members, _ := v.(map[string]any)
	f.ignored(reflect.TypeFor[Plan](), members, "", "")
	f.ignored(reflect.TypeFor[Metadata](), members["metadata"], "", "/metadata")
	tools, _ := members["tools"].([]any)
	for i := 0; i < len(tools) && !f.full(); i++ {
		at := "/tools/" + strconv.Itoa(i)
		of, _ := tools[i].(map[string]any)
		f.ignored(reflect.TypeFor[Tool](), of, idAt(members, at), at)
		f.ignored(reflect.TypeFor[Retry](), of["retryPolicy"], idAt(members, at), at+"/retryPolicy")
	}
	return f.list
}

// ignored adds the members of an object that its type does not have.
func (f *faults) ignored(t reflect.Type, object any, id, at string) {
	members, _ := object.(map[string]any)
	var known []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		known = append(known, name)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(known, name) {
			f.add(id, at+"/"+escaped.Replace(name), "is ignored%s", nearest.Hint(name, known))
		}
	}
}
