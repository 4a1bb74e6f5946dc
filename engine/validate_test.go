package engine_test

import (
	"encoding/json"
	"testing"

	"toolpost/engine"
	"toolpost/tool"
)

func TestASchemaThatWantsAnyObjectGetsOneThatIsStrictJSON(t *testing.T) {
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

func TestASchemaThatWantsMoreThanAnObjectIsHeld(t *testing.T) {
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
