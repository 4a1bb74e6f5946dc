package config

import (
	"reflect"
	"slices"
)

// EmptyList names the first field of a struct, which of points to, that is a list and was given without anything in it,
// but for those that may be; empty: there is none.
func EmptyList(of any, may ...string) string {
	v := reflect.ValueOf(of).Elem()
	for _, f := range fieldsOf(v.Type()) {
		list := v.FieldByIndex(f.Index)
		if list.Kind() == reflect.Slice && !list.IsNil() && list.Len() == 0 && !slices.Contains(may, f.Name) {
			return f.Name
		}
	}
	return ""
}
