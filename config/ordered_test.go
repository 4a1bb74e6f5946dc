package config

import (
	"encoding/json"
	"testing"

	"toolpost/internal/kit"
)

func TestOrderedKeepsTheOrderOfTheFile(t *testing.T) {
	var v struct {
		Roles Ordered[[]string] `yaml:"roles"`
	}
	kit.OK(t, PeekYAML("f", []byte("roles: {z: [a], b: [c, d], a: []}\n"), &v))
	kit.DeepEqual(t, v.Roles, Ordered[[]string]{{"z", []string{"a"}}, {"b", []string{"c", "d"}}, {"a", []string{}}})
	kit.Fails(t, PeekYAML("f", []byte("roles: {z: 7}\n"), &v), "expected a list, got the number")
	kit.Fails(t, PeekYAML("f", []byte("roles: [z]\n"), &v), "expected a mapping")
	kit.Fails(t, PeekYAML("f", []byte("roles: {z: [a], z: [b]}\n"), &v), "z")
	schema := kit.Must(Schema(nil, nil, []Part{{Name: "people", Options: v}}))(t)
	var doc struct {
		Properties map[string]struct{ Properties map[string]json.RawMessage }
	}
	kit.OK(t, json.Unmarshal(schema, &doc))
	kit.Contains(t, string(doc.Properties["people"].Properties["roles"]), `"additionalProperties": {`)
}
