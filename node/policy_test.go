package node_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

func TestThePolicyOfTheConfigHolds(t *testing.T) {
	n := open(t, parse(t, t.TempDir(), writes+`policy: {rules: [{name: d, effect: deny, callers: guest, tiers: '>= 1', when: has(args.x), reason: not you}]}`), node.Options{})
	defer shut(t, n)
	guest := tool.Principal{ID: "guest", Door: "http"}
	if _, code := invoke(t, n, tool.Call{Tool: "w", Args: []byte(`{"x":1}`), Caller: guest}); code != tool.CodeAccessDenied {
		t.Errorf("a guest: %q", code)
	}
	if _, code := invoke(t, n, tool.Call{Tool: "w", Args: []byte(`{"x":1}`)}); code != "" {
		t.Errorf("somebody else: %q", code)
	}
}

func TestADryRunWritesNothingAndUsesNoLeaseUp(t *testing.T) {
	dir := t.TempDir()
	n := open(t, parse(t, dir, writes+"limits: {lease_tier: 1}"), node.Options{})
	defer shut(t, n)
	out, _ := invoke(t, n, tool.Call{Tool: "lease.issue", Args: []byte(`{"tool":"w"}`)})
	var lease struct {
		Token string `json:"token"`
	}
	kit.OK(t, json.Unmarshal([]byte(out), &lease))
	for range 2 {
		out, code := invoke(t, n, tool.Call{Tool: "w", Lease: lease.Token, Key: "k", DryRun: true})
		if code != "" || !strings.Contains(out, `"dry_run":true,"allowed":true`) {
			t.Errorf("%s, %q", out, code)
		}
	}
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(dir, "ran"))), "", "it ran")
	if out, code := invoke(t, n, tool.Call{Tool: "w", Lease: lease.Token, Key: "k"}); code != "" || strings.Contains(out, "dry_run") {
		t.Errorf("the call itself: %s, %q", out, code)
	}
}

func TestAMistakeInThePolicyStopsTheStart(t *testing.T) {
	for text, want := range map[string]string{
		"policy: {rules: [{name: d, effect: deny, doors: [ntas]}]}": `there is no door "ntas"; did you mean "nats"?`,
		"policy: {rules: [{name: d, effect: deny, sources: [v]}]}":  `there is no source "v"`,
		"policy: {rules: [{name: d, effect: deny, when: 'x'}]}":     "undeclared reference to 'x'",
	} {
		_, err := node.Open(t.Context(), parse(t, t.TempDir(), writes+text), node.Options{})
		kit.Refused(t, err, tool.CodeInvalidInput, want, text)
	}
}

// A hub does not have the sources of its workers in its config, and its rules can be about them.
func TestRulesOfAHubNameSourcesOfWorkers(t *testing.T) {
	rules := `
fleet: {listen: "127.0.0.1:0"}
callers: {roles: {r: {tools: [far.look]}}}
limits: {quotas: [{name: q, rate: 1/s, sources: [far]}]}
policy: {rules: [{name: d, effect: deny, sources: [far]}]}
`
	n := kit.Must(node.Open(t.Context(), parse(t, t.TempDir(), writes+rules), node.Options{}))(t)
	n.Close(t.Context())
}

func TestThePolicyFollowsTheConfig(t *testing.T) {
	dir := t.TempDir()
	var logged kit.Buffer
	n := open(t, parse(t, dir, writes), node.Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	defer shut(t, n)
	try := func() tool.Code {
		_, code := invoke(t, n, tool.Call{Tool: "w"})
		return code
	}
	kit.Equal(t, try(), "")
	n.Reload(t.Context(), parse(t, dir, writes+"policy: {default: deny}"))
	kit.Equal(t, try(), tool.CodeAccessDenied, "under a strict policy")
	n.Reload(t.Context(), parse(t, dir, writes+"policy: {rules: [{name: x, effect: deny, when: nonsense}]}"))
	if code := try(); code != tool.CodeAccessDenied || !strings.Contains(logged.String(), "the one before it stays") {
		t.Errorf("after a policy that cannot be read: %q\n%s", code, logged.String())
	}
	n.Reload(t.Context(), parse(t, dir, writes))
	kit.Equal(t, try(), "", "without a policy again")
}

// Over NATS a refusal is one of the contract's error types, with the path as it was written.
func TestARefusalOverNATSIsInTheWordsOfTheContract(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "secret.txt"), []byte("x"), 0o600))
	const token = "sixteen-letters-or-more"
	ready := make(chan node.Listening, 8)
	n := open(t, parse(t, dir, `
sources: [{name: files, protocol: builtin, roots: [{path: .}]}]
doors: {nats: {listen: "127.0.0.1:0"}}
policy: {rules: [{name: quiet, effect: deny, doors: nats, paths: secret.txt, reason: it is secret}]}`),
		node.Options{Token: token, Ready: func(l node.Listening) { ready <- l }})
	defer shut(t, n)
	stop := serve(t, n)
	defer stop()
	c := kit.Must(nats.Connect((<-ready).URL, nats.Token(token), nats.Timeout(time.Minute)))(t)
	defer c.Close()
	ctx := kit.Context(t)
	for path, want := range map[string]string{
		"./secret.txt": `{"data":null,"error":"AccessDenied: ./secret.txt is not allowed: it is secret (rule \"quiet\")"}`,
		"/etc/passwd":  `{"data":null,"error":"AccessDenied: /etc/passwd is not allowed`,
		".env":         `{"data":null,"error":"AccessDenied: .env is not allowed`,
	} {
		msg := kit.Must(c.RequestWithContext(ctx, "tools.file.read", []byte(`{"path":"`+path+`"}`)))(t)
		if !strings.HasPrefix(string(msg.Data), want) {
			t.Errorf("%s: %s", path, msg.Data)
		}
	}
}

func TestTheSchemaKnowsThePolicyAndTheQuotas(t *testing.T) {
	b := kit.Must(node.Schema())(t)
	s := kit.Must(schema.Compile(b))(t)
	for text, ok := range map[string]bool{
		`{"policy":{}}`: true,
		`{"policy":{"default":"deny","record":"x","limits":{"arguments":5},"rules":[{"name":"a","effect":"allow","callers":"x","tools":["a","b"],"tiers":[1,">= 2"],"paths":"src/**","access":"read","commands":["git **"],"time":{"days":["mon"],"from":"08:00","zone":"UTC"},"when":"true","reason":"r"}]}}`: true,
		`{"policy":{"rules":[{"name":"a","effect":"deny","tiers":2}]}}`:       true,
		`{"policy":{"rules":[{"name":"a","efect":"deny"}]}}`:                  false,
		`{"policy":{"rules":[{"name":"a","effect":"deny","paths":{}}]}}`:      false,
		`{"policy":{"rules":[{"name":"a","effect":"deny","when":["true"]}]}}`: false,
		`{"policy":{"rule":[]}}`: false,
		`{"limits":{"quotas":[{"name":"q","per":["caller","tool"],"rate":"100/m","burst":20,"concurrency":8,"units":"9/h","cost":{"a":5},"tools":["a"],"callers":"b","reason":"r"}]}}`: true,
		`{"limits":{"quotas":[{"name":"q","per":"caller","rate":"100/m"}]}}`:  true,
		`{"limits":{"quotas":[{"name":"q","rat":"100/m"}]}}`:                  false,
		`{"limits":{"quotas":[{"name":"q","rate":["100/m"]}]}}`:               false,
		`{"limits":{"quotas":[{"name":"q","units":"9/h","cost":{"a":"b"}}]}}`: false,
	} {
		v := kit.Must(strictjson.Decode([]byte(text)))(t)
		if faults := s.Validate(v); (faults == nil) != ok {
			t.Errorf("%s: %v", text, faults)
		}
	}
}
