package node_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

// invoke runs one call and returns its output, or the code of its error.
func invoke(t *testing.T, n *node.Node, c tool.Call) (string, tool.Code) {
	t.Helper()
	if c.Caller == (tool.Principal{}) {
		c.Caller = tool.Principal{ID: "local", Door: "cli", Operates: true}
	}
	r, err := n.Handler().Invoke(t.Context(), &c, tool.Discard)
	if err != nil {
		return "", tool.CodeOf(err)
	}
	return string(r.Output), ""
}

const writes = `sources: [{name: w, protocol: narratoria, command: [sh, -c, 'echo ran >>ran; echo "{\"version\":\"0\",\"type\":\"done\",\"ok\":true}"'], effects: {writes: true}, walls: {write: [.]}}]
`

func TestToolsOfALeasedTierNeedALeaseForEveryCall(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		o      node.Options
	}{
		"the config asks":                     {writes + "limits: {lease_tier: 1}", node.Options{}},
		"the start asks, the config less":     {writes + "limits: {lease_tier: 3}", node.Options{LeaseTier: 1}},
		"the start asks, the config does not": {writes, node.Options{LeaseTier: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			n := open(t, parse(t, t.TempDir(), c.config), c.o)
			defer shut(t, n)
			if _, code := invoke(t, n, tool.Call{Tool: "w"}); code != tool.CodeLeaseRequired {
				t.Errorf("without a lease: %q", code)
			}
			if _, code := invoke(t, n, tool.Call{Tool: "lease.issue", Args: []byte(`{"tool":"w"}`), Caller: tool.Principal{ID: "owner", Door: "http"}}); code != tool.CodeAccessDenied {
				t.Errorf("issued over HTTP: %q", code)
			}
			out, code := invoke(t, n, tool.Call{Tool: "lease.issue", Args: []byte(`{"tool":"w"}`)})
			var lease struct {
				Token string `json:"token"`
			}
			if err := json.Unmarshal([]byte(out), &lease); err != nil || code != "" {
				t.Fatalf("%s, %q, %v", out, code, err)
			}
			if _, code := invoke(t, n, tool.Call{Tool: "w", Lease: lease.Token}); code != "" {
				t.Errorf("with the lease: %q", code)
			}
			if _, code := invoke(t, n, tool.Call{Tool: "w", Lease: lease.Token}); code != tool.CodeLeaseRejected {
				t.Errorf("with the used lease: %q", code)
			}
		})
	}
}

func TestLeaseTierFollowsAReload(t *testing.T) {
	for _, store := range []string{"store: {url: none}\n", ""} {
		dir, logged := t.TempDir(), &kit.Buffer{}
		n := open(t, parse(t, dir, writes+store), node.Options{Log: slog.New(slog.NewTextHandler(logged, nil))})
		defer shut(t, n)
		for limits, want := range map[string]tool.Code{"limits: {lease_tier: 1}": tool.CodeLeaseRequired, "limits: {lease_tier: 3}": "", "": ""} {
			n.Reload(t.Context(), parse(t, dir, writes+store+limits))
			if _, code := invoke(t, n, tool.Call{Tool: "w"}); code != want {
				t.Errorf("%s%s: %q", store, limits, code)
			}
			// The rule may come later, or from another program that shares the store.
			if _, code := invoke(t, n, tool.Call{Tool: "lease.issue", Args: []byte(`{"tool":"w"}`)}); code != "" {
				t.Errorf("%s%s: %q", store, limits, code)
			}
		}
		n.Reload(t.Context(), parse(t, dir, writes+store+"limits: {breaker: {failures: 1}}"))
		if strings.Contains(logged.String(), "restart") {
			t.Errorf("it is said to take a restart: %s", logged)
		}
		n.Reload(t.Context(), parse(t, dir, writes+store+"limits: {lease_tier: many}"))
		kit.Contains(t, logged.String(), "was not reloaded", "a tier that is none is not said: %s", logged)
	}
}

func TestACallWithAKeyRunsOnce(t *testing.T) {
	dir := t.TempDir()
	n := open(t, parse(t, dir, writes+`
`), node.Options{})
	defer shut(t, n)
	for range 3 {
		if _, code := invoke(t, n, tool.Call{Tool: "w", Key: "k"}); code != "" {
			t.Fatal(code)
		}
	}
	if _, code := invoke(t, n, tool.Call{Tool: "w", Key: "k", Args: []byte(`{"other":1}`)}); code != tool.CodeConflict {
		t.Errorf("another input under the key: %q", code)
	}
	if ran := readFile(t, dir, "ran"); strings.Count(ran, "ran") != 1 {
		t.Errorf("it ran %d times", strings.Count(ran, "ran"))
	}
}

func TestTheNATSDoorAsksForTheTokenAndAnswers(t *testing.T) {
	const token = "sixteen-letters-or-more"
	ready := make(chan node.Listening, 8)
	n := open(t, parse(t, t.TempDir(), writes+`doors: {nats: {listen: "127.0.0.1:0"}}`),
		node.Options{Token: token, Ready: func(l node.Listening) { ready <- l }})
	defer shut(t, n)
	stop := serve(t, n)
	defer stop()
	url := (<-ready).URL
	if c, err := nats.Connect(url, nats.Timeout(time.Minute)); err == nil {
		c.Close()
		t.Error("connected without a token")
	}
	c := kit.Must(nats.Connect(url, nats.Token(token), nats.Timeout(time.Minute)))(t)
	defer c.Close()
	msg, err := c.RequestWithContext(t.Context(), "tools.execute.w", []byte(`{}`))
	if err != nil || string(msg.Data) != `{"data":{"ok":true},"error":null}` {
		t.Errorf("%s, %v", msg.Data, err)
	}
}

// The right to issue leases depends on the caller, and not on the door.
func TestOnlyTheOwnerIssuesLeasesAtAnyDoor(t *testing.T) {
	const owner, ada = "sixteen-letters-or-more", "tp_adas-own-token-of-the-config"
	ready := make(chan node.Listening, 8)
	text := fmt.Sprintf(`doors: {namel3ss: {listen: "127.0.0.1:0"}}
limits: {lease_tier: 1}
callers: {list: {ada: {tools: "*", tokens: ["%x"]}}}`, sha256.Sum256([]byte(ada)))
	n := open(t, parse(t, t.TempDir(), writes+text), node.Options{Token: owner, Ready: func(l node.Listening) { ready <- l }})
	defer shut(t, n)
	stop := serve(t, n)
	defer stop()
	defer http.DefaultClient.CloseIdleConnections()
	const body = `{"protocol_version":1,"tool_name":"lease.issue","kind":"python","entry":"a:b","payload":{"tool":"w"}}`
	url := (<-ready).URL
	for token, want := range map[string]string{owner: `"token"`, ada: "may not issue"} {
		resp, err := http.Post(strings.Replace(url, "://", "://toolpost:"+token+"@", 1), "application/json", strings.NewReader(body))
		kit.OK(t, err)
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(answer), want) {
			t.Errorf("%s: %s, %v", token, answer, err)
		}
	}
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	return kit.Read(t, filepath.Join(dir, name))
}

// serve opens the node's doors and returns a function that closes them and waits for that.
func serve(t *testing.T, n *node.Node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	return func() {
		cancel()
		kit.Check(t, <-ended)
	}
}

// Even a protocol without its own breaker has one: the program is not started for a call that the breaker refuses.
func TestBrokenToolOpensTheBreaker(t *testing.T) {
	const broken = `sources: [{name: b, protocol: narratoria, command: [sh, -c, 'echo ran >>ran; exit 3'], walls: {write: [.]}}]
`
	for limits, want := range map[string]string{
		"": "ccccco", "limits: {breaker: {failures: 2, open: 1h}}": "ccoooo", "limits: {breaker: {off: true}}": "cccccc",
	} {
		dir := t.TempDir()
		n := open(t, parse(t, dir, broken+limits), node.Options{})
		defer shut(t, n)
		got := ""
		for range 6 {
			if _, code := invoke(t, n, tool.Call{Tool: "b"}); code == tool.CodeBreakerOpen {
				got += "o"
			} else if code == tool.CodeCrash || code == tool.CodeProtocol {
				got += "c"
			}
		}
		ran, err := os.ReadFile(filepath.Join(dir, "ran"))
		if got != want || err != nil || strings.Count(string(ran), "ran") != strings.Count(want, "c") {
			t.Errorf("%s: got %s, ran %q, %v", limits, got, ran, err)
		}
	}
}

func TestInvalidBreakerStopsTheStart(t *testing.T) {
	for _, limits := range []string{"{failures: -1}", "{open: -1s}", "{fails: 2}"} {
		_, err := node.Open(t.Context(), parse(t, t.TempDir(), "limits: {breaker: "+limits+"}"), node.Options{})
		kit.Refused(t, err, tool.CodeInvalidInput, "", limits)
	}
}
