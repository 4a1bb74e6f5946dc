package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/plan"
	"toolpost/tool"
)

// The id of something of another caller is answered like one that no one has, and is no call that only looks.
func TestGuessedIDsAreUnknown(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.Mkdir(filepath.Join(dir, "papers"), 0o700))
	paint, _, _ := strings.Cut(strings.TrimPrefix(painter, "sources: ["), "]\nlimits")
	text := strings.Replace(asking, "sources: [", "sources: ["+paint+", ", 1)
	n := open(t, parse(t, dir, text), node.Options{})
	ada, bob := tool.Principal{ID: "ada", Door: "http"}, tool.Principal{ID: "bob", Door: "http"}
	var asset tool.Asset
	sink := tool.SinkFunc(func(ev tool.Event) error {
		if ev.Kind == tool.KindAsset {
			return json.Unmarshal(ev.Data, &asset)
		}
		return nil
	})
	call := func(who tool.Principal, name, args string) (string, error) {
		c := &tool.Call{Tool: name, Args: json.RawMessage(args), Caller: who}
		if name == "paint" {
			c.ID = "call-of-ada"
		}
		r, err := n.Handler().Invoke(t.Context(), c, sink)
		switch {
		case err != nil:
			return "", err
		case r.Ask != nil:
			return r.Ask.ID, nil
		}
		return string(r.Output), nil
	}
	approval := kit.Must(call(ada, "deleteFile", `{"path":"a"}`))(t)
	job := startJob(t, n, ada, `{"tool":"listFiles"}`)
	_ = kit.Must(call(ada, "state.patch", `{"session":"draft","patch":{"a":1}}`))(t)
	_ = kit.Must(call(ada, "paint", `{}`))(t)
	var ran plan.Result
	const aPlan = `{"plan":{"requestId":"r","tools":[{"toolId":"a","tool":"listFiles","input":{}}]}}`
	kit.OK(t, json.Unmarshal([]byte(kit.Must(call(ada, "plan.run", aPlan))(t)), &ran))
	sum, planID := asset.SHA256, ran.PlanID
	for _, c := range []struct{ tool, args, id string }{
		{"approvals.show", `{"id":"ID"}`, approval},
		{"approvals.decide", `{"id":"ID","approve":false}`, approval},
		{"approvals.revoke", `{"id":"ID"}`, approval},
		{"showJob", `{"job":"ID"}`, job},
		{"cancelJob", `{"job":"ID"}`, job},
		{"watchJob", `{"job":"ID"}`, job},
		{"answerJob", `{"job":"ID","answers":{}}`, job},
		{"showCall", `{"call":"ID"}`, "call-of-ada"},
		{"plan.show", `{"plan":"ID"}`, planID},
		{"plan.run", `{"resume":"ID"}`, planID},
		{"readAsset", `{"sha256":"ID"}`, sum},
		{"readAsset", `{"sha256":"ID","content":false}`, sum},
		{"state.get", `{"session":"ID","caller":"ada"}`, "draft"},
	} {
		made := "apr_" + strings.Repeat("a", 20)
		if c.id != approval {
			made = strings.Repeat("0", len(c.id))
		}
		if slices.Contains([]string{"showJob", "showCall", "plan.show", "readAsset"}, c.tool) {
			_, err := call(ada, c.tool, strings.ReplaceAll(c.args, "ID", c.id))
			kit.Check(t, err, c.tool) // else it would prove nothing
		}
		_, real := call(bob, c.tool, strings.ReplaceAll(c.args, "ID", c.id))
		_, none := call(bob, c.tool, strings.ReplaceAll(c.args, "ID", made))
		if real == nil || strings.ReplaceAll(real.Error(), c.id, "ID") != strings.ReplaceAll(none.Error(), made, "ID") {
			t.Errorf("%s: %v, and for a made-up id %v", c.tool, real, none)
		}
	}
	for _, name := range []string{"plan.list", "listJobs", "approvals.list", "listCalls"} {
		list := kit.Must(call(tool.Principal{ID: "eve", Door: "http"}, name, `{}`))(t)
		for _, id := range []string{approval, job, planID, "call-of-ada"} {
			if strings.Contains(list, id) {
				t.Errorf("%s of eve has %s: %s", name, id, list)
			}
		}
	}
	shut(t, n)
	for _, r := range records(t, dir, text) {
		if r.Caller == "bob" && r.Kind != "" {
			t.Errorf("%s of bob is a call of kind %q", r.Tool, r.Kind)
		}
	}
}

// What approvers see of a file, and the store keeps, is what the caller could read itself; and looking at a call costs little.
func TestApproversSeeOnlyWhatTheCallerCouldRead(t *testing.T) {
	dir := t.TempDir()
	papers := filepath.Join(dir, "papers")
	kit.OK(t, os.Mkdir(papers, 0o700))
	for name, text := range map[string]string{
		"outside": "hunter2", "papers/.env": "hunter2", "papers/staff.payroll": "hunter2", "papers/closed": "hunter2",
		"papers/open": "before", "papers/many": strings.Repeat("a", 200_000),
	} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	kit.OK(t, os.Symlink("..", filepath.Join(papers, "up")))
	kit.OK(t, os.Link(filepath.Join(papers, ".env"), filepath.Join(papers, "hard")))
	n := open(t, parse(t, dir, `sources: [{name: files, protocol: builtin, roots: [{path: papers, write: true}], sensitive: {add: ["*.payroll"]}}]
policy: {rules: [{name: closed, effect: deny, paths: papers/closed, access: read}, {name: careful, effect: ask, tools: ["delete*", "edit*"]}]}
`), node.Options{})
	defer shut(t, n)
	shown := func(name, args string) string {
		t.Helper()
		ada, owner := tool.Principal{ID: "ada", Door: "http"}, tool.Principal{ID: "local", Door: "cli", Operates: true}
		r, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: name, Args: json.RawMessage(args), Caller: ada}, tool.Discard)
		if err != nil || r.Ask == nil {
			return "" // it is refused before anyone is asked
		}
		id, _ := json.Marshal(map[string]string{"id": r.Ask.ID})
		return string(kit.Must(n.Handler().Invoke(t.Context(), &tool.Call{Tool: "approvals.show", Args: id, Caller: owner}, tool.Discard))(t).Output)
	}
	kit.Contains(t, shown("deleteFile", `{"path":"open"}`), `-before`)
	for _, path := range []string{"up/outside", ".env", "hard", "staff.payroll", "closed"} {
		if got := shown("deleteFile", `{"path":"`+path+`"}`); strings.Contains(got, "hunter2") {
			t.Errorf("%s is shown: %s", path, got)
		}
	}
	if got := shown("editFile", `{"path":"many","old":"a","new":"`+strings.Repeat("b", 200_000)+`"}`); !strings.Contains(got, "many") || strings.Contains(got, "diff") {
		t.Errorf("an edit that makes a huge file: %.300s", got)
	}
}
