package schema_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"toolpost/internal/kit"
	"toolpost/wire/schema"
)

const (
	smallSchema = `{"type":"object","properties":{"name":{"type":"string","minLength":1},"age":{"type":"integer","minimum":0},
 "tags":{"type":"array","items":{"type":"string"}},"role":{"anyOf":[{"type":"null"},{"enum":["admin","user"]}]}},"required":["name"],"additionalProperties":false}`
	smallValue = `{"name":"Ada","age":36,"tags":["a","b"],"role":"user"}`

	midSchema = `{"type":"object","properties":{"steps":{"type":"array","maxItems":100,"uniqueItems":true,"items":{"$ref":"#/$defs/step"}}},
 "$defs":{"step":{"type":"object","required":["tool","input"],"properties":{"tool":{"type":"string","pattern":"^[a-zA-Z0-9_-]{1,64}$"},
 "input":{"type":"object","additionalProperties":{"type":["string","number","boolean"]}},"after":{"type":"array","items":{"type":"integer","minimum":0}},
 "retry":{"oneOf":[{"type":"integer","minimum":0,"maximum":10},{"type":"object","properties":{"times":{"type":"integer"},"delay":{"type":"number","exclusiveMinimum":0}}}]}}}}}`
)

func midValue() string {
	var b bytes.Buffer
	b.WriteString(`{"steps":[`)
	for i := range 30 {
		if i > 0 {
			b.WriteByte(',')
		}
		n, _ := json.Marshal(i)
		b.WriteString(`{"tool":"read_file","input":{"path":"/a/b/c","limit":` + string(n) + `,"follow":true},"after":[1,2,3],"retry":{"times":3,"delay":0.5}}`)
	}
	b.WriteString(`]}`)
	return b.String()
}

// oracle is the library that this package replaced.
func oracle(t kit.TB, raw string) (*jsonschema.Schema, error) {
	doc := kit.Must(jsonschema.UnmarshalJSON(bytes.NewReader([]byte(raw))))(t)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	kit.OK(t, c.AddResource("schema:///", doc))
	return c.Compile("schema:///")
}

func BenchmarkValidate(b *testing.B) {
	for name, c := range map[string]struct{ schema, value string }{"small": {smallSchema, smallValue}, "mid": {midSchema, midValue()}} {
		v := decode(b, c.value)
		b.Run(name+"/ours", func(b *testing.B) {
			s := compile(b, c.schema)
			b.ReportAllocs()
			for b.Loop() {
				if s.Validate(v) != nil {
					b.Fatal("it does not match")
				}
			}
		})
		b.Run(name+"/oracle", func(b *testing.B) {
			s := kit.Must(oracle(b, c.schema))(b)
			b.ReportAllocs()
			for b.Loop() {
				kit.OK(b, s.Validate(v))
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			kit.Must(schema.Compile(json.RawMessage(smallSchema)))(b)
		}
	})
	b.Run("oracle", func(b *testing.B) {
		for b.Loop() {
			kit.Must(oracle(b, smallSchema))(b)
		}
	})
}
