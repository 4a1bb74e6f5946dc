package engine_test

import (
	"context"
	"encoding/json"
	"testing"

	"toolpost/engine"
	"toolpost/tool"
)

func TestOpenSchemaStillRequiresAStrictJSONObject(t *testing.T) {
	for _, schema := range []string{``, `{}`, `{"type":"object"}`, `{"title":"t","description":"d","$comment":"c","type":"object"}`, `{"type":"object","properties":{}}`} {
		src := source(echo, "a")
		src.specs[0].Input = json.RawMessage(schema)
		e := start(t, engine.Options{}, bind("one", src))
		for _, args := range []string{`{"a":1,"a":2}`, `{`, `[]`, `"x"`, `null`, `1`, "{\"a\":\"\xff\"}", `{} {}`} {
			if _, err := call(t, e, "a", args); err == nil || err.Code != tool.CodeInvalidInput {
				t.Errorf("schema %s: %s gave %v", schema, args, err)
			}
		}
		if r, err := call(t, e, "a", ` {"b":[1.50]} `); err != nil || string(r.Output) != ` {"b":[1.50]} ` {
			t.Errorf("schema %s: %v, %v", schema, r, err)
		}
	}
}

func TestNarrowSchemaIsEnforced(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","required":["b"]}`, `{"type":"object","maxProperties":0}`, `{"type":"array"}`, `{"type":["array","null"]}`,
		`{"not":{"type":"object"}}`, `{"type":"object","$ref":"#/$defs/x","$defs":{"x":false}}`, `{"ty\u0070e":"string"}`, `false`,
	} {
		src := source(echo, "a")
		src.specs[0].Input = json.RawMessage(schema)
		e := start(t, engine.Options{}, bind("one", src))
		if _, err := call(t, e, "a", `{"a":1}`); err == nil || err.Code != tool.CodeInvalidInput {
			t.Errorf("schema %s: %v", schema, err)
		}
	}
}

// A text is not decoded if its schema accepts any text; otherwise it is checked all the same.
func TestATextAsOutputIsHeldAgainstItsSchema(t *testing.T) {
	for _, c := range []struct {
		schema, output string
		ok             bool
	}{
		{`{"type":"string"}`, `"some\ntext"`, true}, {`{"oneOf":[{"type":"string"},{"type":"object"}]}`, ` "x" `, true},
		{`{"type":"object"}`, `"x"`, false}, {`{"type":"string"}`, `"half`, false}, {`{"type":"string"}`, "\"\xff\"", false},
		{`{"type":"string"}`, `"x" "y"`, false}, {`{"type":"string"}`, `"\x"`, false}, {`{"type":"string","maxLength":2}`, `"abc"`, false},
		{`{"type":"string","minLength":2}`, `"abc"`, true}, {`{"anyOf":[{"const":"a"},{"type":"null"}]}`, `"b"`, false},
		{`{"type":"string"}`, `{}`, false}, {`{"type":"string"}`, `1`, false},
	} {
		src := source(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return &tool.Result{OK: true, Output: json.RawMessage(c.output)}, nil
		}, "a")
		src.specs[0].Output = json.RawMessage(c.schema)
		e := start(t, engine.Options{}, bind("one", src))
		_, err := call(t, e, "a", `{}`)
		if (err == nil) != c.ok || err != nil && err.Code != tool.CodeProtocol {
			t.Errorf("schema %s, output %s: %v", c.schema, c.output, err)
		}
	}
}

// Models write null for arguments that they leave out. It is dropped if the schema permits no other meaning.
func TestANullForAnOptionalArgumentIsLeftOut(t *testing.T) {
	const properties = `{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer","minimum":1},` +
		`"may":{"type":["string","null"]},"any":{},"in":{"type":"object","properties":{"a":{"type":"string"}}},"either":{"anyOf":[{"type":"string"},{"enum":["x",null]}]}},"required":["q"]`
	for _, c := range []struct{ schema, args, want string }{
		{properties + `}`, `{"n":null,"q":"a","in":null}`, `{"q":"a"}`},
		{properties + `}`, `{"q":"a", "may":null,"any":null,"either":null,"n":null,"x":1.50}`, `{"q":"a","may":null,"any":null,"either":null,"x":1.50}`},
		{properties + `}`, ` {"q":"a","may":null} `, ` {"q":"a","may":null} `},        // unchanged if nothing is wrong
		{properties + `}`, `{"n":null,"q":"a","x\",\"y":1}`, `{"q":"a","x\",\"y":1}`}, // a name is any text
		{properties + `}`, `{"q":null,"n":1}`, ""},                                    // required
		{properties + `}`, `{"q":"a","n":null,"in":{"a":null}}`, ""},                  // inside another argument
		{properties + `}`, `{"q":"a","n":null,"in":3}`, ""},                           // something else is wrong
		{properties + `,"additionalProperties":false}`, `{"q":"a","no":null}`, ""},
		{properties + `,"minProperties":2}`, `{"q":"a","n":null}`, ""},
		{properties + `,"allOf":[{"required":["n"]}]}`, `{"q":"a","n":null}`, ""},
	} {
		src := source(echo, "a")
		src.specs[0].Input = json.RawMessage(c.schema)
		e := start(t, engine.Options{}, bind("one", src))
		switch r, err := call(t, e, "a", c.args); {
		case c.want == "" && (err == nil || err.Code != tool.CodeInvalidInput):
			t.Errorf("%s: %v, %v", c.args, r, err)
		case c.want != "" && (err != nil || string(r.Output) != c.want):
			t.Errorf("%s: %v, %v", c.args, r, err)
		}
	}
}
