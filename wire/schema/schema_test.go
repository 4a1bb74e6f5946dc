package schema_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

func compile(t testing.TB, raw string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(json.RawMessage(raw))
	kit.OK(t, err, raw)
	return s
}

func decode(t testing.TB, raw string) any {
	t.Helper()
	v, err := strictjson.Decode([]byte(raw))
	kit.OK(t, err, raw)
	return v
}

// say returns the faults as they read in an error.
func say(faults []schema.Fault) string {
	var words []string
	for _, f := range faults {
		words = append(words, strings.TrimPrefix(f.At+": "+f.Problem, ": "))
	}
	return strings.Join(words, "; ")
}

func TestFaultsAreInWordsForPeople(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"type":"integer"}`, `"x"`, "got string, want integer"},
		{`{"type":"integer"}`, `1.5`, "got number, want integer"},
		{`{"type":["string","null"]}`, `1`, "got number, want null or string"},
		{`{"properties":{"age":{"type":"integer"}}}`, `{"age":"x"}`, "/age: got string, want integer"},
		{`{"required":["name","age"]}`, `{}`, "missing property 'name'; missing property 'age'"},
		{`{"properties":{"name":{"minLength":1}}}`, `{"name":""}`, "/name: shorter than 1 character"},
		{`{"minLength":2}`, `"é"`, "shorter than 2 characters"},
		{`{"maxLength":2}`, `"ééé"`, "longer than 2 characters"},
		{`{"pattern":"^a+$"}`, `"b"`, "does not match the pattern ^a+$"},
		{`{"properties":{"steps":{"maximum":100}}}`, `{"steps":500}`, "/steps: 500 is more than the maximum 100"},
		{`{"minimum":0.5}`, `0.25`, "0.25 is less than the minimum 0.5"},
		{`{"exclusiveMinimum":0}`, `0`, "0 is not more than 0"},
		{`{"exclusiveMaximum":7}`, `7.0`, "7.0 is not less than 7"},
		{`{"minimum":3,"exclusiveMinimum":true}`, `3`, "3 is not more than 3"},
		{`{"multipleOf":5}`, `7`, "7 is not a multiple of 5"},
		{`{"enum":["a","b","c"]}`, `"x"`, "is not one of a, b, c"},
		{`{"enum":["a b",1,null,{"x":[]}]}`, `"x"`, `is not one of "a b", 1, null, {"x":[]}`},
		{`{"enum":[1,2,3,4,5,6,7,8,9,10,11,12]}`, `0`, "is not one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, or 2 more"},
		{`{"const":"yes"}`, `"no"`, "is not yes"},
		{`{"minItems":2}`, `[1]`, "fewer than 2 items"},
		{`{"maxItems":1}`, `[1,2]`, "more than 1 item"},
		{`{"uniqueItems":true}`, `[1,{"a":1},2,{"a":1.0}]`, "items 1 and 3 are equal"},
		{`{"contains":{"type":"string"}}`, `[1]`, "fewer than 1 item is of the kind it must contain"},
		{`{"contains":{"type":"number"},"maxContains":1}`, `[1,2]`, "more than 1 item is of the kind it may contain"},
		{`{"items":{"type":"string"}}`, `["a",1]`, "/1: got number, want string"},
		{`{"prefixItems":[true],"items":false}`, `["a",1]`, "/1: nothing is allowed here"},
		{`{"minProperties":1}`, `{}`, "fewer than 1 property"},
		{`{"maxProperties":1}`, `{"a":1,"b":2}`, "more than 1 property"},
		{`{"propertyNames":{"maxLength":2}}`, `{"abc":1}`, "property name 'abc': longer than 2 characters"},
		{`{"properties":{"b":{},"a":{}},"additionalProperties":false}`, `{"c":1}`, "property 'c' is not allowed; allowed: a, b"},
		{`{"additionalProperties":false}`, `{"c":1}`, "property 'c' is not allowed; none is"},
		{`{"patternProperties":{"^x":{}},"additionalProperties":false}`, `{"c":1}`, "property 'c' is not allowed"},
		{`{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, `{"a":1,"b":1}`, "property 'b' is not allowed"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "missing property 'b', which 'a' needs"},
		{`{"not":{"type":"string"}}`, `"x"`, "is what the schema rules out (not)"},
		{`{"if":{"type":"string"},"then":{"minLength":3}}`, `"x"`, "shorter than 3 characters"},
		{`{"properties":{"a/b~c":{"type":"null"}}}`, `{"a/b~c":1}`, "/a~1b~0c: got number, want null"},
		{`{"allOf":[{"type":"string"},{"type":"string"}]}`, `1`, "got number, want string"},
		{`{"properties":{"a\n":false}}`, `{"a\n":1}`, "/a\n: nothing is allowed here"},
		{`{"required":["` + strings.Repeat("é", 100) + `"]}`, `{}`, "missing property '" + strings.Repeat("é", 60) + "...'"},
		{`{"required":["a\u0000b"]}`, `{}`, `missing property 'a\x00b'`},
	} {
		kit.Equal(t, say(compile(t, c.schema).Validate(decode(t, c.value))), c.want, c.schema, c.value)
	}
}

func TestNearestAlternativeIsExplained(t *testing.T) {
	const shapes = `{"anyOf":[
		{"type":"object","properties":{"kind":{"const":"circle"},"radius":{"type":"number"}},"required":["kind","radius"]},
		{"type":"object","properties":{"kind":{"const":"square"},"side":{"type":"number"},"name":{"type":"string"}},"required":["kind","side","name"]},
		{"type":"string"}]}`
	for _, c := range []struct{ schema, value, want string }{
		{shapes, `{"kind":"square"}`, "missing property 'side'; missing property 'name'"},
		{shapes, `{"kind":"circle","radius":"x"}`, "/radius: got string, want number"},
		{shapes, `{"kind":"circle"}`, "missing property 'radius'"},
		{shapes, `1`, "got number, want string or object"},
		{`{"anyOf":[{"type":"string","minLength":3},{"type":"null"}]}`, `"x"`, "shorter than 3 characters"},
		{`{"oneOf":[{"type":"string"},{"type":"null"}]}`, `1`, "got number, want null or string"},
		{`{"oneOf":[{"const":"a"},{"enum":["b","c"]}]}`, `"x"`, "is not one of a, b, c"},
		{`{"oneOf":[{"minimum":1},{"maximum":5}]}`, `3`, "matches more than one of the choices, and must match exactly one (oneOf)"},
		{`{"anyOf":[{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"integer"}]}},{"type":"null"}]}`, `["a",true]`, "/1: got boolean, want integer or string"},
		{`{"anyOf":[{"$ref":"#/$defs/s"},{"type":"null"}],"$defs":{"s":{"type":"string","maxLength":1}}}`, `"xx"`, "longer than 1 character"},
	} {
		kit.Equal(t, say(compile(t, c.schema).Validate(decode(t, c.value))), c.want, c.schema, c.value)
	}
}

func TestFaultsAreBoundedAndInOrder(t *testing.T) {
	s := compile(t, `{"additionalProperties":{"type":"string"}}`)
	members := map[string]any{}
	for i := range 1000 {
		members[fmt.Sprintf("k%04d", i)] = true
	}
	faults := s.Validate(members)
	if len(faults) != schema.MaxFaults || faults[0].At != "/k0000" || faults[19].At != "/k0019" {
		t.Errorf("%d faults: %v", len(faults), faults)
	}
	names, _ := json.Marshal(slices.Sorted(maps.Keys(members)))
	if faults := compile(t, `{"required":`+string(names)+`}`).Validate(map[string]any{}); len(faults) != schema.MaxFaults {
		t.Errorf("%d faults: %v", len(faults), faults)
	}
	kit.Equal(t, cmp.Diff(faults, s.Validate(members)), "")
}

func TestAWrongSchemaIsRefusedWithItsPlace(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":7}`:                            "/type: 7 is not a type",
		`{"type":"text"}`:                       "/type: text is not a type",
		`{"type":[]}`:                           "/type: it names no type",
		`{"properties":[]}`:                     "/properties: got array, want object of schemas",
		`{"properties":{"a":7}}`:                "/properties/a: a schema is an object or a boolean, not number",
		`{"properties":{"a":{"minLength":-1}}}`: "/properties/a/minLength: -1 is not a count",
		`{"minLength":1.5}`:                     "/minLength: 1.5 is not a count",
		`{"maxItems":"3"}`:                      "/maxItems: got string, want integer",
		`{"minimum":"3"}`:                       "/minimum: got string, want number",
		`{"exclusiveMinimum":[]}`:               "/exclusiveMinimum: got array, want number",
		`{"multipleOf":0}`:                      "/multipleOf: 0 is not more than 0",
		`{"multipleOf":-1e-5}`:                  "/multipleOf: -1e-5 is not more than 0",
		`{"enum":"a"}`:                          "/enum: got string, want array",
		`{"required":"a"}`:                      "/required: got string, want array of property names",
		`{"required":[1]}`:                      "/required: got number in it",
		`{"allOf":[]}`:                          "/allOf: it is empty",
		`{"anyOf":{}}`:                          "/anyOf: got object, want array of schemas",
		`{"items":7}`:                           "/items: a schema is an object or a boolean",
		`{"items":[true],"prefixItems":[true]}`: "/items: got array beside prefixItems",
		`{"uniqueItems":1}`:                     "/uniqueItems: got number, want boolean",
		`{"pattern":1}`:                         "/pattern: got number, want string",
		`{"dependentRequired":{"a":"b"}}`:       "/dependentRequired: got string, want array of property names",
		`{"dependentRequired":[]}`:              "/dependentRequired: got array, want object",
		`{"$ref":7}`:                            "/$ref: got number, want string",
		`{"$ref":"#/$defs/x"}`:                  `/$ref: "#/$defs/x" points at nothing in this schema`,
		`{"$ref":"#x"}`:                         `/$ref: "#x" points at nothing`,
		`{"$ref":"other.json"}`:                 "put it under $defs",
		`{"$ref":"file:///etc/passwd"}`:         "put it under $defs",
		`{"$ref":"%zz"}`:                        `/$ref: "%zz" is not a URI reference`,
		`{"$ref":"#/title","title":"x"}`:        "/title: a schema is an object or a boolean, not string",
		`{"$id":7}`:                             "/$id: got number, want string",
		`{"$id":"http://x/y#z"}`:                `/$id: "http://x/y#z" has a fragment; use $anchor`,
		`{"$anchor":"1"}`:                       "/$anchor: want a name",
		`{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`: `/$defs/b/$anchor: the anchor "x" is at /$defs/a too`,
		`{"$defs":{"a":{"$id":"x"},"b":{"$id":"x"}}}`:         `/$defs/b/$id: "x" is the name of another schema too`,
		`{"$schema":7}`:                         "/$schema: got number, want string",
		`{"$schema":"http://example.com/mine"}`: "/$schema: \"http://example.com/mine\" is not known",
		`{"$ref":"#"}`:                          "the schema: it refers back to itself",
		`{"properties":{"a":{"not":{"$ref":"#/properties/a"}}}}`:                  "it refers back to itself",
		`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#"}]}}}`: "it refers back to itself",
		`7`:               "the schema: a schema is an object or a boolean, not number",
		`{"a":1,"a":2}`:   "it is not JSON: duplicate",
		`{"items":{"not"`: "it is not JSON: the JSON ends too early",
		`{"properties":{` + strings.Repeat(`"a":{"properties":{`, 300): "it is not JSON: nested deeper",
	} {
		kit.Fails(t, kit.Err(schema.Compile(json.RawMessage(raw))), want, raw, want)
	}
}

func TestAnnotationsAreNotLookedInto(t *testing.T) {
	for _, raw := range []string{
		`{"title":7,"description":[],"format":"no such","default":{"$ref":"x"},"examples":"x","x-mine":{"type":7}}`,
		`{"const":{"$ref":"other.json","$id":7}}`,
		`{"properties":{"$ref":{"type":"string"},"$id":{},"enum":{"type":"array"}}}`,
	} {
		compile(t, raw)
	}
}

func TestOlderDraftsAreRead(t *testing.T) {
	const draft7 = `"$schema":"http://json-schema.org/draft-07/schema#"`
	for _, c := range []struct {
		schema, value string
		ok            bool
	}{
		{`{` + draft7 + `,"$ref":"#/definitions/a","minimum":9,"definitions":{"a":{"type":"integer"}}}`, `1`, true},
		{`{"$ref":"#/definitions/a","minimum":9,"definitions":{"a":{"type":"integer"}}}`, `1`, false},
		{`{` + draft7 + `,"items":[{"type":"string"}],"additionalItems":false}`, `["a",1]`, false},
		{`{"items":[{"type":"string"}],"additionalItems":{"type":"integer"}}`, `["a",1]`, true},
		{`{"items":[{"type":"string"}],"additionalItems":{"type":"integer"}}`, `["a","b"]`, false},
		{`{"items":{},"additionalItems":false}`, `["a"]`, true},
		{`{"dependencies":{"a":["b"],"c":{"required":["d"]}}}`, `{"a":1,"b":1,"c":1,"d":1}`, true},
		{`{"dependencies":{"a":["b"],"c":{"required":["d"]}}}`, `{"a":1}`, false},
		{`{"dependencies":{"a":["b"],"c":{"required":["d"]}}}`, `{"c":1}`, false},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://x/y","properties":{"a":{"$ref":"y#/definitions/n"}},"definitions":{"n":{"maximum":3,"exclusiveMaximum":true}}}`, `{"a":3}`, false},
		{`{"$schema":"http://json-schema.org/draft-07/schema","definitions":{"n":{"$id":"#n","type":"null"}},"items":{"$ref":"#n"}}`, `[1]`, false},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"properties":{"a":{"$recursiveRef":"#"}},"additionalProperties":false}`, `{"a":{"b":1}}`, false},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","contains":{"type":"string"},"unevaluatedItems":false}`, `["a"]`, false},
		{`{"contains":{"type":"string"},"unevaluatedItems":false}`, `["a"]`, true},
		{`{"$ref":"http://json-schema.org/draft-07/schema#"}`, `{"minLength":-1}`, false},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"properties":{"a":{"type":"text"}}}`, false},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"properties":{"a":{"type":"string"}}}`, true},
	} {
		if faults := compile(t, c.schema).Validate(decode(t, c.value)); (faults == nil) != c.ok {
			t.Errorf("%s with %s: %v", c.schema, c.value, faults)
		}
	}
}

func TestNumbersAreExact(t *testing.T) {
	for _, c := range []struct {
		schema, value string
		ok            bool
	}{
		{`{"const":1}`, `1.0`, true},
		{`{"const":1}`, `1e0`, true},
		{`{"const":0}`, `-0.0e5`, true},
		{`{"enum":[{"a":[100]}]}`, `{"a":[1E2]}`, true},
		{`{"const":9007199254740993}`, `9007199254740992`, false},
		{`{"const":12345678901234567890123}`, `12345678901234567890123.0`, true},
		{`{"type":"integer"}`, `1e400`, true},
		{`{"type":"integer"}`, `1.5e1`, true},
		{`{"type":"integer"}`, `1e-1`, false},
		{`{"type":"integer"}`, `0e-5`, true},
		{`{"maximum":0.1}`, `0.1000000000000000000000000001`, false},
		{`{"minimum":-5}`, `-5.0000000000000000001`, false},
		{`{"maximum":1e9999}`, `9.99e9998`, true},
		{`{"minimum":1e9999}`, `9.99e9998`, false},
		{`{"minimum":-1e9999}`, `-1e-9999`, true},
		{`{"maximum":0}`, `1e-9999`, false},
		{`{"minimum":0}`, `-1e-9999`, false},
		{`{"multipleOf":0.01}`, `19.99`, true},
		{`{"multipleOf":0.0001}`, `0.00751`, false},
		{`{"multipleOf":1e-9999}`, `1e9999`, true},
		{`{"multipleOf":3}`, `1e9999`, false},
		{`{"multipleOf":7e9999}`, `7e-9999`, false},
		{`{"multipleOf":7e9999}`, `0`, true},
		{`{"multipleOf":1e9999}`, `3e9999`, true},
		{`{"multipleOf":9007199254740993}`, `-9007199254740993`, true},
		{`{"uniqueItems":true}`, `[1,1.0]`, false},
		{`{"uniqueItems":true}`, `[0,1,2,3,4,5,6,7,8,9,10,11,12,13,1.30e1]`, false},
		{`{"uniqueItems":true}`, `[0,1,2,3,4,5,6,7,8,9,10,11,12,13,"13",[13],{"a":13},null,false,true,"true",[],{}]`, true},
		{`{"uniqueItems":true}`, `[0,1,2,3,4,5,6,7,8,9,10,11,12,{"a":1,"b":[2]},{"b":[2],"a":1}]`, false},
		{`{"minLength":1e0,"maxLength":1e500}`, `"a"`, true},
	} {
		if faults := compile(t, c.schema).Validate(decode(t, c.value)); (faults == nil) != c.ok {
			t.Errorf("%s with %s: %v", c.schema, c.value, faults)
		}
	}
}

func TestPatternsAreThoseOfECMAScript(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		ok            bool
	}{
		{`^\d+$`, "12", true}, {`^\d+$`, "१२", false}, {`^\w$`, "é", false},
		{`^\s$`, "\u00a0", true}, {`^\s$`, "\ufeff", true}, {`^\S$`, "\u2003", false}, {`^[\S]$`, "a", true},
		{`^[\s\d]$`, "\u3000", true}, {`^[^\s]$`, "\v", false}, {`^[\S]$`, "\u3000", false},
		{`^\cA\x41\u0042\u{1F600}\uD83D\uDE00\0$`, "\x01AB😀😀\x00", true},
		{`^\/\-\_\é$`, "/-_é", true}, {`^a.c$`, "a\rc", false}, {`^a.c$`, "a😀c", true}, {`^[.]$`, "x", false},
		{`^\p{L}+$`, "aé", true}, {`^\p{Letter}\P{Nd}$`, "éx", true}, {`^\p{Script=Greek}$`, "α", true}, {`^[\p{gc=Lu}]$`, "a", false},
		{`^[^]$`, "\n", true}, {`[]`, "a", false}, {`^[[a]$`, "[", true}, {`^[[:alpha:]$`, ":", true}, {`^[\b]$`, "\b", true},
		{`a\nb`, "a\nb", true}, {`^a$`, "a\n", false}, {`b`, "abc", true}, {`^(?<year>\d{4})$`, "2026", true},
		{`^.{1,2000}$`, strings.Repeat("é", 2000), true}, {`^.{1,2000}$`, strings.Repeat("é", 2001), false},
		{`^(ab|[}\]]){1500,}$`, strings.Repeat("ab", 1499), false}, {`^(ab|[}\]]){1500,}$`, strings.Repeat("ab]}", 800), true},
		{`^x\{2000}$`, "x{2000}", true}, {`^[{2000}]$`, "{", true}, {`^a{1200}$`, strings.Repeat("a", 1200), true}, {`^a{1200}?b$`, strings.Repeat("a", 1200) + "b", true},
	} {
		raw, _ := json.Marshal(map[string]string{"pattern": c.pattern})
		if faults := compile(t, string(raw)).Validate(c.text); (faults == nil) != c.ok {
			t.Errorf("%s with %q: %v", c.pattern, c.text, faults)
		}
	}
}

// A pattern that needs backtracking is run by an engine that is stopped if it takes too long.
func TestPatternsMayLookAroundAndBack(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		ok            bool
	}{
		{`^(?!\s*$).+`, "a", true}, {`^(?!\s*$).+`, "  ", false}, {`^(?=.*\d)(?=.*[a-z]).{4,}$`, "abc1", true}, {`^(?=.*\d).+$`, "abc", false},
		{`(?<=a)b`, "ab", true}, {`(?<!a)b`, "ab", false}, {`^(a|b)\1$`, "aa", true}, {`^(a|b)\1$`, "ab", false}, {`^(?<x>.)\k<x>$`, "😀😀", true},
		{`^(?!x)\d$`, "१", false}, {`^(?!x)\w$`, "é", false}, {`^(?!x).$`, "\n", false}, {`^(?!x)\u{1F600}$`, "😀", true},
		{`^(?=a)((a{900}){900}){900}$`, "a", false}, {`^(?!b).{99999999}$`, "aaa", false},
	} {
		raw, _ := json.Marshal(map[string]string{"pattern": c.pattern})
		s := compile(t, string(raw))
		if faults := s.Validate(c.text); (faults == nil) != c.ok || len(s.Unchecked()) > 0 {
			t.Errorf("%s with %q: %v %v", c.pattern, c.text, faults, s.Unchecked())
		}
	}
	evil := compile(t, `{"items":{"pattern":"^(?=(a+)+$)((a+)+)+$"}}`)
	quickly(t, "patterns that never end", func() {
		texts := strings.Repeat(`"`+strings.Repeat("a", 40)+`!",`, 10_000)
		if faults := evil.Validate(decode(t, "["+texts+`"a"]`)); len(faults) != 1 || !strings.Contains(faults[0].Problem, "asks for too much work") {
			t.Errorf("%v", faults)
		}
	})
	slow := compile(t, `{"items":{"pattern":"^(?=(a|aa)+$)a+$"}}`)
	quickly(t, "patterns that nearly never end", func() {
		texts := strings.Repeat(`"`+strings.Repeat("a", 22)+`",`, 100_000)
		_ = slow.Validate(decode(t, "["+texts+`"a"]`))
	})
}

// A pattern that cannot be parsed is not checked, and everything else is.
func TestAPatternThatCannotBeReadIsNotChecked(t *testing.T) {
	for _, pattern := range []string{`(`, `\p{No_Such}`, `a\`, `a{2,1}`, `*`, `[b-a]`, `(?=` + strings.Repeat("a", 5000) + `)`} {
		raw, _ := json.Marshal(map[string]any{"properties": map[string]any{"a": map[string]any{"pattern": pattern, "maxLength": 3}}})
		s := compile(t, string(raw))
		if got := s.Unchecked(); len(got) != 1 || !strings.HasPrefix(got[0], "/properties/a/pattern: the pattern ") || len(got[0]) > 300 {
			t.Errorf("%s: %q", pattern, got)
		}
		if faults := s.Validate(decode(t, `{"a":"zzz"}`)); faults != nil {
			t.Errorf("%s: %v", pattern, faults)
		}
		if faults := s.Validate(decode(t, `{"a":"zzzz"}`)); len(faults) != 1 {
			t.Errorf("%s: %v", pattern, faults)
		}
	}
	s := compile(t, `{"patternProperties":{"[":{"type":"string"}},"properties":{"n":{"type":"number"}},"additionalProperties":false}`)
	if got := s.Unchecked(); len(got) != 1 || !strings.HasPrefix(got[0], "/patternProperties: the pattern [ is not checked") {
		t.Errorf("%q", got)
	}
	if faults := s.Validate(decode(t, `{"any":1,"n":1}`)); faults != nil {
		t.Error(faults)
	}
	if faults := s.Validate(decode(t, `{"n":"1"}`)); len(faults) != 1 {
		t.Error(faults)
	}
}

// quickly guards against a hang; it does not measure speed.
func quickly(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	kit.Receive(t, what+" comes to an end", done)
}

func numbers(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint(i))
	}
	return strings.Join(list, ",")
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestASchemaCannotMakeUsWorkWithoutBound(t *testing.T) {
	var doubling strings.Builder
	for i := range 60 {
		fmt.Fprintf(&doubling, `"a%d":{"anyOf":[{"allOf":[{"$ref":"#/$defs/a%d"},false]},{"allOf":[{"$ref":"#/$defs/a%d"},false]}]},`, i, i+1, i+1)
	}
	long := strings.Repeat("a", 1_000_000)
	for name, c := range map[string]struct{ schema, value string }{
		"doubling":          {`{"$ref":"#/$defs/a0","$defs":{` + doubling.String() + `"a60":true}}`, `1`},
		"doubling by depth": {`{"not":{"items":{"$ref":"#"}},"anyOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`, nested(200)},
		"dynamic circle":    {`{"$id":"a","$dynamicAnchor":"x","$ref":"b","$defs":{"b":{"$id":"b","$dynamicAnchor":"x","$defs":{"y":{}},"anyOf":[{"$dynamicRef":"#x"},{"$dynamicRef":"#x"}]}}}`, `1`},
		"all over again":    {`{"allOf":[` + strings.Repeat(`{"uniqueItems":true},`, 5000) + `true]}`, `[` + numbers(5000) + `]`},
		"few but large":     {`{"allOf":[` + strings.Repeat(`{"uniqueItems":true},`, 5000) + `true]}`, `[[` + numbers(5000) + `],[` + numbers(5001) + `]]`},
		"heavy pattern":     {`{"pattern":"^(a|[ab]|a.{0,900}|.{0,999}){0,1}c"}`, `"` + long + `"`},
	} {
		quickly(t, name, func() {
			faults := compile(t, c.schema).Validate(decode(t, c.value))
			if len(faults) != 1 || !strings.Contains(faults[0].Problem, "it could not be checked: the schema") {
				t.Errorf("%s: %v", name, faults)
			}
		})
	}
}

func TestExplainingFaultsIsBounded(t *testing.T) {
	var doubling strings.Builder
	for i := range 60 {
		fmt.Fprintf(&doubling, `"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	s := compile(t, `{"const":1,"anyOf":[{"const":2,"$ref":"#/$defs/a0"}],"$defs":{`+doubling.String()+`"a60":{"minimum":3,"multipleOf":5}}}`)
	quickly(t, "finding the words", func() {
		if got := say(s.Validate(json.Number("0.5"))); !strings.HasPrefix(got, "is not 1; is not 2") {
			t.Error(got)
		}
	})
}

func TestLargeValuesAreChecked(t *testing.T) {
	items := make([]any, 40_000)
	for i := range items {
		items[i] = map[string]any{"id": json.Number(fmt.Sprint(i)), "name": "item"}
	}
	quickly(t, "a large array", func() {
		s := compile(t, `{"uniqueItems":true,"items":{"type":"object","properties":{"id":{"type":"integer","minimum":0},"name":{"type":"string","pattern":"^[a-z]+$"}},"required":["id"],"additionalProperties":false}}`)
		if faults := s.Validate(items); faults != nil {
			t.Error(faults)
		}
		items[len(items)-1] = items[7]
		kit.Equal(t, say(s.Validate(items)), "items 7 and 39999 are equal")
	})
	quickly(t, "a long text", func() {
		if faults := compile(t, `{"pattern":"^[a-z]+$","maxLength":5000000}`).Validate(strings.Repeat("a", 5_000_000)); faults != nil {
			t.Error(faults)
		}
	})
	quickly(t, "a deep value", func() {
		if faults := compile(t, `{"type":"array","items":{"$ref":"#"}}`).Validate(decode(t, nested(strictjson.MaxDepth))); faults != nil {
			t.Error(faults)
		}
	})
}

func TestTheNumberOfSubschemasIsBounded(t *testing.T) {
	of := func(n int) json.RawMessage {
		return json.RawMessage(`{"anyOf":[` + strings.Repeat("true,", n-2) + `true]}`)
	}
	kit.Check(t, kit.Err(schema.Compile(of(schema.MaxSubschemas))))
	kit.Fails(t, kit.Err(schema.Compile(of(schema.MaxSubschemas+1))), "more than 10000 schemas in one")
}

func TestTheSizeOfAllPatternsIsBounded(t *testing.T) {
	of := func(n int) json.RawMessage {
		schemas := map[string]any{}
		for i := range n {
			schemas[fmt.Sprint(i)] = map[string]any{"pattern": fmt.Sprintf("^%d.{500,1000}$", i)}
		}
		raw, _ := json.Marshal(map[string]any{"properties": schemas})
		return raw
	}
	kit.Check(t, kit.Err(schema.Compile(of(20))))
	// Patterns that are too large for Go's regexp, which expands counts, are run by the other engine.
	quickly(t, "many large patterns", func() {
		if s := compile(t, string(of(500))); len(s.Unchecked()) > 0 || s.Validate(decode(t, `{"7":"7"}`)) == nil {
			t.Errorf("%v", s.Unchecked())
		}
	})
}

func TestDanglingReferencesInUnusedSchemasAreHarmless(t *testing.T) {
	s := compile(t, `{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"},"b":{"$ref":"#/components/c"},"c":{"$ref":"#/$defs/c"}}}`)
	if faults := s.Validate("x"); faults != nil {
		t.Error(faults)
	}
	kit.Fails(t, kit.Err(schema.Compile(json.RawMessage(`{"$defs":{"b":{"type":7}}}`))),
		"", "a mistake where nobody goes was not found")
}

func TestAReferenceMayLeadAnywhereInTheDocument(t *testing.T) {
	s := compile(t, `{"properties":{"a":{"$ref":"#/components/schemas/x~1y%25"}},"components":{"schemas":{"x/y%":{"items":{"$ref":"#/components/n"}}},"n":{"type":"null"}}}`)
	kit.Equal(t, say(s.Validate(decode(t, `{"a":[null,1]}`))), "/a/1: got number, want null")
}

func TestAMatchingValueAllocatesNothing(t *testing.T) {
	s, v := compile(t, smallSchema), decode(t, smallValue)
	if n := testing.AllocsPerRun(100, func() {
		if s.Validate(v) != nil {
			t.Error("it does not match")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A name may be as long as a document; it must not come back in a fault or an error.
func TestLongNamesDoNotComeBack(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	v := kit.Must(strictjson.Decode([]byte(`{"` + long + `": {"` + long + `": 1}}`)))(t)
	for _, text := range []string{
		`{"additionalProperties": {"additionalProperties": {"type": "string"}}}`, `{"additionalProperties": {"propertyNames": {"maxLength": 3}}}`,
		`{"additionalProperties": false}`, `{"required": ["` + long + `x"]}`, `{"patternProperties": {"n": {"const": "` + long + `"}}}`,
	} {
		s := kit.Must(schema.Compile([]byte(text)))(t)
		faults := s.Validate(v)
		if len(faults) != 1 || len(faults[0].At) > 1000 || len(faults[0].Problem) > 1000 {
			t.Errorf("%.60s: %d faults, the first is at %d bytes", text, len(faults), len(faults[0].At))
		}
	}
	for _, text := range []string{
		`{"$ref": "#/` + long + `"}`, `{"$id": "` + long + `#x"}`, `{"properties": {"` + long + `": 7}}`,
		`{"properties": {"` + long + `": {"type": 7}}}`,
	} {
		if _, err := schema.Compile([]byte(text)); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.20s: %.40v", text, err)
		}
	}
}

func TestAnyTextIsTrueOnlyWithoutStringConstraints(t *testing.T) {
	for text, want := range map[string]bool{
		`true`: true, `false`: true, `{"type":"string"}`: true, `{"type":"object","properties":{"a":{"const":"x"}}}`: true,
		`{"oneOf":[{"type":"string"},{"type":"object","properties":{"a":{"minLength":1}}}]}`:                                true,
		`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"not":{"type":"number"}}}}`: true,
		`{"maxLength":1}`: false, `{"pattern":"a"}`: false, `{"const":"a"}`: false, `{"enum":["a",1]}`: false,
		`{"oneOf":[{"type":"object"},{"minLength":1}]}`: false, `{"not":{"const":"a"}}`: false, `{"if":{"pattern":"a"}}`: false,
		`{"if":true,"then":{"maxLength":1}}`: false, `{"if":true,"else":{"maxLength":1}}`: false, `{"allOf":[{"enum":["a"]}]}`: false,
		`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"minLength":3}}}`: false,
		`{"$dynamicRef":"#a","$defs":{"a":{"$dynamicAnchor":"a","minLength":1}}}`:                                 false,
	} {
		s, err := schema.Compile([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		kit.Equal(t, s.AnyText(), want, text)
	}
}
