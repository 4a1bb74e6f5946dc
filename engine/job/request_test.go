package job

import (
	"reflect"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestStoredCallKeepsExactlyItsCallersRights(t *testing.T) {
	for name, r := range map[string]*tool.Rights{
		"all":          nil,
		"no tools":     {Tools: tool.Patterns{}},
		"every tool":   {Roles: []string{"dev"}},
		"some tools":   {Roles: []string{"dev", "ops"}, Tools: tool.Patterns{"a*", "s.b"}},
		"only a role":  {Roles: []string{"dev"}, Tools: tool.Patterns{}},
		"nothing said": {},
	} {
		c := &tool.Call{
			Tool: "t", Args: []byte(`{"a":1}`), Session: "s", Trace: "tr", Span: "sp", Run: "r",
			Caller: tool.Principal{ID: "ada", Door: "http", Rights: r},
			Depth:  2, Guarantees: tool.Guarantees{NoNetwork: true, SecretsAllowed: []string{}, Sandbox: true},
		}
		b := kit.Must(encode(c, true))(t)
		got, known, err := decode(&Job{ID: "j", Caller: "ada", Lease: "l", Call: b})
		c.ID, c.Lease = "j", "l"
		if err != nil || !known || !reflect.DeepEqual(got, c) {
			t.Errorf("%s: %s became %+v with %+v, %v", name, b, got, got.Caller.Rights, err)
		}
	}
	old, _, err := decode(&Job{Caller: "agent/pen", Call: []byte(`{"tool":"t","self_named":true}`)})
	kit.OK(t, err)
	kit.Equal(t, old.Caller.ID, "agent/~pen", "a job of an earlier version, of an agent that named itself")
	for _, text := range []string{"", "{", `{"tool":1}`, `{"tool":"t","tool":"u"}`, `{"tool":"t","more":1}`} {
		if _, _, err := decode(&Job{Call: []byte(text)}); tool.CodeOf(err) != tool.CodeInternal {
			t.Errorf("%s: %v", text, err)
		}
	}
}
