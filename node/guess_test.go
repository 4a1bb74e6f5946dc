package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

// The id of something of another caller is answered like one that no one has, and is no call that only looks.
func TestGuessedIDsAreUnknown(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.Mkdir(filepath.Join(dir, "papers"), 0o700))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "papers", ".env"), []byte("KEY=hunter2"), 0o600))
	n := open(t, parse(t, dir, asking), node.Options{})
	ada, bob := tool.Principal{ID: "ada", Door: "http"}, tool.Principal{ID: "bob", Door: "http"}
	call := func(who tool.Principal, name, args string) (string, error) {
		r, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: name, Args: json.RawMessage(args), Caller: who}, tool.Discard)
		if err == nil && r.Ask != nil {
			return r.Ask.ID, nil
		}
		return "", err
	}
	approval := kit.Must(call(ada, "deleteFile", `{"path":"a"}`))(t)
	job := startJob(t, n, ada, `{"tool":"listFiles"}`)
	_ = kit.Must(call(ada, "state.patch", `{"session":"draft","patch":{"a":1}}`))(t)
	for _, c := range []struct{ tool, args, id string }{
		{"approvals.show", `{"id":"ID"}`, approval},
		{"approvals.decide", `{"id":"ID","approve":false}`, approval},
		{"approvals.revoke", `{"id":"ID"}`, approval},
		{"showJob", `{"job":"ID"}`, job},
		{"cancelJob", `{"job":"ID"}`, job},
		{"watchJob", `{"job":"ID"}`, job},
		{"answerJob", `{"job":"ID","answers":{}}`, job},
		{"showCall", `{"call":"ID"}`, job},
		{"plan.show", `{"plan":"ID"}`, job},
		{"state.get", `{"session":"ID","caller":"ada"}`, "draft"},
	} {
		made := "apr_" + strings.Repeat("a", 20)
		if c.id != approval {
			made = strings.Repeat("0", len(c.id))
		}
		_, real := call(bob, c.tool, strings.ReplaceAll(c.args, "ID", c.id))
		_, none := call(bob, c.tool, strings.ReplaceAll(c.args, "ID", made))
		if real == nil || strings.ReplaceAll(real.Error(), c.id, "ID") != strings.ReplaceAll(none.Error(), made, "ID") {
			t.Errorf("%s: %v, and for a made-up id %v", c.tool, real, none)
		}
	}
	secret := kit.Must(call(ada, "deleteFile", `{"path":".env"}`))(t)
	owner := tool.Principal{ID: "local", Door: "cli", Operates: true}
	r := kit.Must(n.Handler().Invoke(t.Context(), &tool.Call{Tool: "approvals.show", Args: json.RawMessage(`{"id":"` + secret + `"}`), Caller: owner}, tool.Discard))(t)
	if strings.Contains(string(r.Output), "hunter2") {
		t.Errorf("what is in .env is kept: %s", r.Output)
	}
	shut(t, n)
	for _, r := range records(t, dir, asking) {
		if r.Caller == "bob" && r.Kind != "" {
			t.Errorf("%s of bob is a call of kind %q", r.Tool, r.Kind)
		}
	}
}
