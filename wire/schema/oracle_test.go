package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// A grammar draws small schemas and values from the same few words, so that they are often related.
type grammar struct {
	t     *rapid.T
	older bool // draft 7
}

func (g grammar) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(g.t, label)
}

func (g grammar) number() json.Number {
	return json.Number(g.pick("number", "0", "1", "2", "3", "-1", "1.0", "0.5", "1.5", "2e0", "1e2", "100", "1e-2", "12345678901234567890", "-0.0", "1e30", "0.1"))
}

func (g grammar) name() string { return g.pick("name", "a", "b", "c", "ab", "é") }

func (g grammar) value(depth int) any {
	kind := rapid.IntRange(0, 7).Draw(g.t, "kind of value")
	switch {
	case kind == 0:
		return nil
	case kind == 1:
		return rapid.Bool().Draw(g.t, "bool")
	case kind == 2 || kind > 2 && depth == 0:
		return g.number()
	case kind == 3:
		return g.pick("string", "", "a", "ab", "abc", "é", "éé", "1", "a b")
	case kind <= 5:
		items := []any{}
		for range rapid.IntRange(0, 4).Draw(g.t, "items") {
			items = append(items, g.value(depth-1))
		}
		return items
	}
	members := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(g.t, "members") {
		members[g.name()] = g.value(depth - 1)
	}
	return members
}

func (g grammar) schema(depth int) any {
	if rapid.IntRange(0, 9).Draw(g.t, "boolean schema") == 0 {
		return rapid.Bool().Draw(g.t, "which")
	}
	return g.object(depth)
}

func (g grammar) object(depth int) map[string]any {
	s := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(g.t, "keywords") {
		if depth == 0 || rapid.Bool().Draw(g.t, "plain") {
			g.plainKeyword(s)
		} else {
			g.keyword(s, depth-1)
		}
	}
	if ref, ok := s["$ref"]; ok && g.older {
		return map[string]any{"$ref": ref} // the oracle evaluates some keywords beside it that must be ignored
	}
	return s
}

func (g grammar) plainKeyword(s map[string]any) {
	word := g.pick("keyword", "type", "types", "enum", "const", "number", "count", "required", "uniqueItems", "pattern", "ref", "dependentRequired")
	switch word {
	case "type":
		s["type"] = g.kind()
	case "types":
		s["type"] = []any{"null", g.pick("second type", "string", "integer", "object", "array")}
	case "enum":
		s["enum"] = []any{g.value(1), "other"}
	case "const":
		s["const"] = g.value(2)
	case "number":
		s[g.pick("bound", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")] = g.number()
		if rapid.Bool().Draw(g.t, "multiple") {
			s["multipleOf"] = json.Number(g.pick("factor", "1", "2", "0.1", "1.5", "1e-2", "3e1", "7"))
		}
	case "count":
		s[g.pick("bound", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")] = rapid.IntRange(0, 3).Draw(g.t, "count")
	case "required":
		s["required"] = []any{g.name()}
	case "uniqueItems":
		s["uniqueItems"] = true
	case "pattern":
		s["pattern"] = g.regexp()
	case "ref":
		s["$ref"] = g.ref()
	case "dependentRequired":
		if !g.older {
			s["dependentRequired"] = map[string]any{g.name(): []any{g.name()}}
		}
	}
}

func (g grammar) kind() string {
	return g.pick("type", "null", "boolean", "integer", "number", "string", "array", "object")
}

func (g grammar) regexp() string { return g.pick("pattern", "^a", "b$", "^.$", "^[a-c]+$", "é", "") }

func (g grammar) ref() string {
	if g.older {
		return g.pick("ref", "root#/definitions/a", "root#/definitions/b", "#", "root", "a")
	}
	return g.pick("ref", "root#/$defs/a", "#", "#x", "a", "a#x", "root", "root#/$defs/b", "schema:///root#x")
}

func (g grammar) keyword(s map[string]any, depth int) {
	words := []string{"allOf", "anyOf", "oneOf", "not", "if", "items", "contains", "properties", "patternProperties", "additionalProperties", "propertyNames"}
	if g.older {
		words = append(words, "tuple", "dependencies")
	} else {
		words = append(words, "prefixItems", "unevaluatedItems", "unevaluatedProperties", "dependentSchemas", "dynamicRef", "contains bounds")
	}
	switch word := g.pick("keyword", words...); word {
	case "allOf", "anyOf", "oneOf", "prefixItems":
		s[word] = []any{g.schema(depth), g.schema(depth)}
	case "tuple":
		s["items"], s["additionalItems"] = []any{g.schema(depth), g.schema(depth)}, g.schema(depth)
	case "if":
		s["if"], s["then"], s["else"] = g.schema(depth), g.schema(depth), g.schema(depth)
	case "properties":
		s[word] = map[string]any{g.name(): g.schema(depth), g.name(): g.schema(depth)}
	case "patternProperties":
		s[word] = map[string]any{g.regexp(): g.schema(depth)}
	case "dependentSchemas":
		s[word] = map[string]any{g.name(): g.schema(depth)}
	case "dependencies":
		s[word] = map[string]any{g.name(): g.schema(depth), g.name(): []any{g.name()}}
	case "dynamicRef":
		s["$dynamicRef"] = g.pick("dynamicRef", "#x", "a#x", "root#/$defs/b")
	case "contains bounds":
		s["contains"] = g.schema(depth)
		s[g.pick("bound", "minContains", "maxContains")] = rapid.IntRange(0, 2).Draw(g.t, "count")
	default:
		s[word] = g.schema(depth)
	}
}

// document returns a schema with two others inside, one of which is a resource of its own.
func (g grammar) document() any {
	root, a, b := g.object(3), g.object(2), g.object(2)
	root["$id"], a["$id"] = "schema:///root", "a"
	if g.older {
		delete(root, "$ref") // it would hide the name
		delete(a, "$ref")
		root["$schema"], root["definitions"] = "http://json-schema.org/draft-07/schema#", map[string]any{"a": a, "b": b}
		return root
	}
	root["$dynamicAnchor"], a["$dynamicAnchor"], root["$defs"] = "x", "x", map[string]any{"a": a, "b": b}
	return root
}

func agrees(t *rapid.T) {
	g := grammar{t, rapid.Bool().Draw(t, "older")}
	doc := kit.Must(json.Marshal(g.document()))(t)
	ours, err := schema.Compile(doc)
	theirs, theirErr := oracle(t, string(doc))
	if err != nil && strings.Contains(err.Error(), "refers back to itself") {
		return // the oracle notices only at run time
	}
	if err != nil || theirErr != nil {
		t.Fatalf("%s\nours: %v\ntheirs: %v", doc, err, theirErr)
	}
	for range 5 {
		v := g.value(3)
		faults, theirErr := ours.Validate(v), theirs.Validate(v)
		if theirErr != nil && strings.Contains(theirErr.Error(), "infinite loop") || len(faults) == 1 && strings.Contains(faults[0].Problem, "without end") {
			return
		}
		if (faults == nil) != (theirErr == nil) {
			b, _ := json.Marshal(v)
			t.Fatalf("%s\nwith %s\nours: %v\ntheirs: %v", doc, b, faults, theirErr)
		}
	}
}

func TestVerdictAgreesWithTheOracle(t *testing.T) { rapid.Check(t, agrees) }

func FuzzAgainstOracle(f *testing.F) { f.Fuzz(rapid.MakeFuzz(agrees)) }

// Compile and Validate terminate, and a schema's faults are the same each time.
func FuzzCompile(f *testing.F) {
	for _, files := range loadSuite(f) {
		for _, groups := range files {
			for _, g := range groups[:min(len(groups), 4)] {
				f.Add([]byte(g.Schema), []byte(g.Tests[0].Data))
			}
		}
	}
	f.Add([]byte(`{"pattern":"^[\\s\\p{L}]{1,2000}(?<x>a)$"}`), []byte(`"a"`))
	f.Add([]byte(`{"$ref":"#/%zz~2","multipleOf":1e-9999}`), []byte(`1e9999`))
	f.Fuzz(func(t *testing.T, raw, value []byte) {
		s, err := schema.Compile(raw)
		if err != nil {
			return
		}
		v, err := strictjson.Decode(value)
		if err != nil {
			return
		}
		kit.Equal(t, say(s.Validate(v)), say(s.Validate(v)), "and then")
	})
}
