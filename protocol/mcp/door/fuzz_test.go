package door

import (
	"testing"

	"toolpost/protocol/mcp"
	"toolpost/wire/strictjson"
)

// Any input is read, or refused with an answer that is JSON.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":[1]},"_meta":{"progressToken":"t","toolpost/session":"s",` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"ask","requestState":"x","inputResponses":{"answer":{"action":"accept"}}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`,
		`{"jsonrpc":"2.0","id":"toolpost-1","result":{"action":"decline"}}`,
		`{"jsonrpc":"2.0","id":1.5e3,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`,
		`[{"jsonrpc":"2.0"}]`, `{"jsonrpc":"2.0","id":null,"method":""}`, `{"id":1,"id":2}`, `{"Method":"ping"}`, "\xff", ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, bad := decode(body)
		if r == nil {
			t.Fatal("nothing was read")
		}
		if r.id != nil && strictjson.Check(r.id) != nil {
			t.Errorf("the id is %q", r.id)
		}
		if bad != nil {
			if b := refusal(r, bad); strictjson.CheckObject(b) != nil {
				t.Errorf("it is refused with %q", b)
			}
			return
		}
		if r.params != nil && strictjson.CheckObject(r.params) != nil {
			t.Errorf("the params are %q", r.params)
		}
		(&session{conn: newConn()}).take(body)
		_, _ = r.readResponses()
		all, _ := mcp.Mirrors(r.arguments)
		for _, one := range all {
			_ = one.In(r.params)
		}
	})
}
