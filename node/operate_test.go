package node_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/builtin/operate"
	"toolpost/config"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

// asked calls one of the tools for operators.
func asked[T any](t *testing.T, n *node.Node, name, args string) (out T) {
	t.Helper()
	c := &tool.Call{Tool: "toolpost." + name, Args: json.RawMessage(args), Caller: tool.Principal{ID: identity.Owner, Door: "http", Operates: true}}
	r, err := n.Handler().Invoke(t.Context(), c, tool.Discard)
	kit.OK(t, err, "%s %s", name, args)
	kit.OK(t, json.Unmarshal(r.Output, &out))
	return out
}

const operated = `sources: [{name: one, protocol: fake}]
store: {url: "sqlite:store.db"}
secrets: {KEY: {env: TOOLPOST_TEST_KEY}}
callers:
  roles: {reader: {tools: [one]}}
  list:
    ada: {roles: reader, users: [12345], tokens: [aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]}
policy:
  rules:
    - {name: not-ada, effect: deny, callers: ada, tools: one, reason: not today}
limits: {quotas: [{name: each, per: caller, rate: 10/d}]}
`

// opened opens a node of a config that is on disk.
func opened(t *testing.T, text string) (n *node.Node, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "toolpost.yaml")
	kit.Write(t, path, text)
	cfg := kit.Must(node.Load(path))(t)
	n = open(t, cfg, node.Options{Protocols: newFake().protocol()})
	t.Cleanup(func() { shut(t, n) })
	return n, path
}

func TestOperatorsSeeTheConfigAndItsErrors(t *testing.T) {
	t.Setenv("TOOLPOST_TEST_KEY", "correct-horse-battery")
	n, path := opened(t, operated)
	c := asked[operate.Config](t, n, "showConfig", `{}`)
	if c.Path != path || c.Differs || len(c.Errors)+len(c.Problems) != 0 || !strings.HasPrefix(c.Text, "sources: ") || c.Taken.IsZero() {
		t.Errorf("as it was started: %+v", c)
	}
	kit.Write(t, path, operated+"# correct-horse-battery\nlimit: {}\n")
	c = asked[operate.Config](t, n, "showConfig", `{}`)
	if len(c.Errors) != 1 || c.Errors[0].Line != strings.Count(operated, "\n")+2 || !c.Differs ||
		!strings.HasPrefix(c.Errors[0].Message, `unknown field "limit"`) || strings.Contains(c.Errors[0].Message, "\n") {
		t.Errorf("with a mistake: %+v", c)
	}
	if strings.Contains(c.Text, "horse") || !strings.Contains(c.Text, "limit: {}") {
		t.Errorf("the text:\n%s", c.Text)
	}
	// A mistake in a line with a secret does not show the line.
	kit.Write(t, path, operated+"  password: [hunter2}\n")
	if c = asked[operate.Config](t, n, "showConfig", `{}`); len(c.Errors) != 1 || c.Errors[0].Line == 0 {
		t.Errorf("no YAML: %+v", c)
	}
	if b, _ := json.Marshal(c); strings.Contains(string(b), "hunter2") {
		t.Errorf("a secret: %s", b)
	}
	kit.Write(t, path, strings.Replace(operated, "callers: ada", "callers: adda", 1))
	cfg := kit.Must(config.Load(path))(t)
	n.Reload(t.Context(), cfg)
	c = asked[operate.Config](t, n, "showConfig", `{}`)
	if c.Differs || len(c.Problems) != 1 || c.Problems[0].About != "rule not-ada" || !strings.Contains(c.Problems[0].Message, `did you mean "ada"`) {
		t.Errorf("a slip in a rule: %+v", c)
	}
	kit.Write(t, path, operated+"state: elsewhere\n")
	if c = asked[operate.Config](t, n, "showConfig", `{}`); len(c.Errors) != 0 || !c.Differs || strings.Join(c.Restart, " ") != "state" {
		t.Errorf("what takes a restart: %+v", c)
	}
	kit.OK(t, os.Remove(path))
	if c = asked[operate.Config](t, n, "showConfig", `{}`); len(c.Errors) != 1 || c.Text != "" {
		t.Errorf("without its file: %+v", c)
	}
}

func TestOperatorsSeeCallersAndTokens(t *testing.T) {
	t.Setenv("TOOLPOST_TEST_KEY", "correct-horse-battery")
	n, _ := opened(t, operated)
	type issued struct {
		Secret string `json:"token"`
		ID     string `json:"id"`
	}
	ada := asked[issued](t, n, "token.issue", `{"caller":"ada"}`)
	ci := asked[issued](t, n, "token.issue", `{"caller":"ci","tools":["one"],"note":"nightly"}`)
	gone := asked[issued](t, n, "token.issue", `{"caller":"gone","tools":["one"]}`)
	asked[map[string]any](t, n, "token.revoke", `{"id":"`+gone.ID+`"}`)
	all := asked[operate.Callers](t, n, "listCallers", `{}`)
	got := map[string]operate.Caller{}
	for _, c := range all.Callers {
		got[c.Name] = c
	}
	if len(got) != 4 || !got["owner"].All || got["ada"].All || got["owner"].Kind != operate.KindOperator || got["local"].Kind != operate.KindOperator {
		t.Errorf("%+v", all)
	}
	if c := got["ada"]; c.Kind != operate.KindListed || strings.Join(c.Roles, " ") != "reader" || len(c.Tools) != 1 ||
		strings.Join(c.By, "; ") != "tokens of the config: 1; user 12345" || len(c.Tokens) != 1 || c.Tokens[0].ID != ada.ID {
		t.Errorf("ada: %+v", c)
	}
	if c := got["ci"]; c.Kind != operate.KindToken || len(c.Tokens) != 1 || c.Tokens[0].Note != "nightly" || c.Tokens[0].ID != ci.ID {
		t.Errorf("ci: %+v", c)
	}
	if len(all.Roles) != 1 || all.Roles[0].Name != "reader" {
		t.Errorf("%+v", all.Roles)
	}
	b, _ := json.Marshal(all)
	for _, secret := range []string{ada.Secret, ci.Secret, "aaaa"} {
		if strings.Contains(string(b), secret) {
			t.Errorf("a token is shown: %s", b)
		}
	}
}

func TestOperatorsSeePolicyDecisionsAndUsage(t *testing.T) {
	t.Setenv("TOOLPOST_TEST_KEY", "correct-horse-battery")
	n, _ := opened(t, operated)
	x := asked[operate.Explanation](t, n, "explainPolicy", `{"tool":"one","caller":"ada","door":"http"}`)
	if x.Allowed || x.Rule != "not-ada" || x.Unlisted || x.Caller != "ada" {
		t.Errorf("ada: %+v", x)
	}
	if x = asked[operate.Explanation](t, n, "explainPolicy", `{"tool":"one"}`); !x.Allowed || x.Caller != "owner" || x.Door != "http" {
		t.Errorf("who asks: %+v", x)
	}
	if x = asked[operate.Explanation](t, n, "explainPolicy", `{"tool":"one","caller":"nobody"}`); !x.Unlisted {
		t.Errorf("somebody: %+v", x)
	}
	kit.OK(t, call(n, "one"))
	u := asked[operate.Usage](t, n, "showUsage", `{}`)
	if len(u.Quotas) != 1 || u.Quotas[0].Counted != 2 || u.Quotas[0].Fullest[0].Of != 10 || u.Quotas[0].Fullest[0].Used < 1 {
		t.Errorf("quotas: %+v", u.Quotas)
	}
	if u.Store == nil || u.Store.Kind != "sqlite" || u.Store.Bytes < 4096 || u.Store.Calls < 4 || u.Disk == nil || u.Disk.Free > u.Disk.Total || u.Disk.Total == 0 {
		t.Errorf("store and disk: %+v, %+v", u.Store, u.Disk)
	}
	for _, name := range []string{"showConfig", "listCallers", "showUsage"} {
		_, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: "toolpost." + name, Caller: tool.Principal{ID: "eve", Door: "http"}}, tool.Discard)
		kit.Refused(t, err, tool.CodeAccessDenied, "", "%s by somebody else", name)
	}
	_, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: "toolpost.explainPolicy", Args: json.RawMessage(`{"tool":"one"}`), Caller: tool.Principal{ID: "eve", Door: "http"}}, tool.Discard)
	kit.Refused(t, err, tool.CodeAccessDenied, "")
}
