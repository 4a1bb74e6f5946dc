package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/wire/schema"
)

func TestPropertiesAreListedAsFarAsTheyArePlainToSee(t *testing.T) {
	for raw, want := range map[string]string{
		`{"properties":{"b":{"type":"string"},"a":{"type":["string","null"],"description":"x"},"c":{}},"required":["c","b"]}`: "b! string, c! , a string|null x",
		`{"properties":{"a":true,"b":{"type":7,"enum":[1,"x"]}}}`:                                                             "a , b  1 \"x\"",
		`{"properties":{"a":{"$ref":"#/$defs/x~1y","description":"mine"},"b":{"$ref":"#/$defs/r"},"c":{"$ref":"#/$defs/none"}},
			"$defs":{"x/y":{"type":"object","description":"theirs"},"r":{"$ref":"#/$defs/r","type":"string"}}}`: "a object mine, b string, c ",
		`{"$ref":"#/$defs/o","$defs":{"o":{"properties":{"a":{"type":"integer"}},"required":["a"]}}}`: "a! integer",
		`{"properties":7}`: "", `{}`: "", `true`: "", ``: "", `{"required":["a"]}`: "",
	} {
		var list []string
		for _, p := range schema.Properties(json.RawMessage(raw)) {
			one := p.Name + map[bool]string{true: "!"}[p.Required] + " " + strings.Join(p.Type, "|")
			if p.Description != "" {
				one += " " + p.Description
			}
			for _, v := range p.Enum {
				one += fmt.Sprintf(" %s", v)
			}
			list = append(list, one)
		}
		kit.Equal(t, strings.Join(list, ", "), want, raw)
	}
}

func TestWordsListsTheFirstFaults(t *testing.T) {
	faults := []schema.Fault{{At: "", Problem: "a"}, {At: "/b", Problem: "b"}, {At: "/c", Problem: "c"}, {At: "/d", Problem: "d"}}
	kit.Equal(t, schema.Words(faults), "a; /b: b; /c: c; and 1 more")
	kit.Equal(t, schema.Words(faults[1:2]), "/b: b")
}
