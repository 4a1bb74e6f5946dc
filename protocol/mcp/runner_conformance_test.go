package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/protocol/mcp"
	"toolpost/tool"
)

// The official suite tests a client by running it, once for each of its scenarios, with the address of a server that it
// plays. The client here is our runner, driven as a person would who has a browser. It is this test binary, started
// again by the suite.
const asClient = "TOOLPOST_TEST_MCP_CLIENT"

// jsPeers is where the programs from npm are; the test ends where they are not.
func jsPeers(t *testing.T) (modules, node string) {
	t.Helper()
	modules, err := filepath.EvalSymlinks(filepath.Join("testdata", "js", "node_modules"))
	if err == nil {
		modules, err = filepath.Abs(modules)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the MCP programs from npm are not installed; run `npm ci` in protocol/mcp/testdata/js")
		}
		t.Skip("the MCP programs from npm are not installed; `npm ci` in protocol/mcp/testdata/js installs them")
	}
	node, err = filepath.EvalSymlinks(filepath.Join(modules, ".bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	return modules, node
}

// A secretsOf gives secrets by name.
type secretsOf map[string]string

func (s secretsOf) Secret(name string) (string, error) { return s[name], nil }

// sourceOf is a configured source in a folder.
func sourceOf(t testing.TB, dir, fields string, secrets secretsOf) config.Source {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(dir, config.FileName), []byte("sources:\n  - {name: up, protocol: mcp, "+fields+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	src := cfg.Sources[0]
	src.Secrets = secrets
	return src
}

// scenarios runs the client scenarios that a revision requires, and gives what became of each.
func scenarios(t *testing.T, revision string) map[string]string {
	modules, node := jsPeers(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
		"client", "--command", self+" -test.run=TestClientOfTheSuite", "--requirements", revision, "--timeout", "60000")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), asClient+"=1")
	out, err := cmd.CombinedOutput()
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([✓✗~?])\s+(\S+): (\d+) passed, (\d+) failed`).FindAllStringSubmatch(string(out), -1) {
		found[m[2]] = m[1]
	}
	if t.Logf("%s", out); len(found) == 0 {
		t.Fatalf("the suite has no results: %v", err)
	}
	return found
}

// required is how many client scenarios a revision has, of those that count.
func required() map[string]int { return map[string]int{"2025-11-25": 18, "2026-07-28": 32} }

// extensions are scenarios of ways to log in that the specification leaves to extensions, and that we do not speak: each
// is for a client that is its own user, or for keys that a person's login does not have. The suite does not count them.
func extensions() []string {
	return []string{
		"auth/client-credentials-jwt", "auth/client-credentials-basic", "auth/enterprise-managed-authorization", "auth/dpop",
		"auth/dpop-nonce", "auth/wif-jwt-bearer",
	}
}

func TestTheRunnerPassesTheOfficialSuite(t *testing.T) {
	if os.Getenv(asClient) != "" || testing.Short() {
		t.Skip("the suite takes a minute")
	}
	for revision, least := range required() {
		t.Run(revision, func(t *testing.T) {
			passed := 0
			for name, result := range scenarios(t, revision) {
				switch {
				case result == "✓":
					passed++
				case !slices.Contains(extensions(), name):
					t.Errorf("%s %s", result, name)
				}
			}
			if passed < least {
				t.Errorf("%d scenarios pass, and %d are required", passed, least)
			}
		})
	}
}

// TestClientOfTheSuite is the client, when the suite runs it.
func TestClientOfTheSuite(t *testing.T) {
	if os.Getenv(asClient) == "" {
		t.Skip("the suite runs it")
	}
	url := os.Args[len(os.Args)-1]
	var given struct {
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
		ToolCalls    []struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"toolCalls"`
	}
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			t.Fatal(err)
		}
	}
	oauth := "client_metadata: 'https://conformance-test.local/client-metadata.json'"
	if given.ClientID != "" {
		oauth = fmt.Sprintf("client_id: %q, client_secret: THEIRS", given.ClientID)
	}
	src := sourceOf(t, t.TempDir(), fmt.Sprintf("url: %q, oauth: {%s}", url, oauth), secretsOf{"THEIRS": given.ClientSecret})
	r, err := mcp.Open(t.Context(), src, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	user := &person{t: t, src: src, r: r}
	specs := user.tools()
	switch scenario := os.Getenv("MCP_CONFORMANCE_SCENARIO"); {
	case scenario == "tools_call":
		user.call("add_numbers", `{"a":5,"b":3}`)
	case scenario == "http-invalid-tool-headers":
		for _, s := range specs {
			user.call(s.Name, `{"region":"us-west1"}`)
		}
	case scenario == "json-schema-2020-12-preservation":
		i := slices.IndexFunc(specs, func(s *tool.Spec) bool { return s.Name == "json_schema_2020_12_tool" })
		user.call("json_schema_echo", `{"schema":`+string(specs[i].Input)+`}`)
	case len(given.ToolCalls) > 0:
		for _, c := range given.ToolCalls {
			user.call(c.Name, string(c.Arguments))
		}
	default:
		for _, s := range specs {
			user.call(s.Name, `{}`)
		}
	}
}

// A person uses the tools of a source, logs in when told to, and says yes to everything.
type person struct {
	t      *testing.T
	src    config.Source
	r      tool.Runner
	logins int
}

// maxLogins is how often a person goes through a login before they give up on a server.
const maxLogins = 3

func (p *person) tools() []*tool.Spec {
	for {
		specs, err := p.r.(tool.Source).Tools(p.t.Context())
		if err == nil {
			return specs
		}
		p.login(err)
	}
}

func (p *person) call(name, args string) {
	c := &tool.Call{Tool: name, Args: json.RawMessage(args)}
	for {
		res, err := p.r.Invoke(p.t.Context(), c, tool.Discard)
		switch {
		case err != nil && tool.AsError(err).Reason == mcp.ReasonLogin:
			p.login(err)
		case err != nil:
			p.t.Logf("%s: %v", name, err)
			return
		case res.Ask != nil:
			c.Resume, c.Answers = res.Ask.ID, yes(res.Ask)
		default:
			return
		}
	}
}

// yes agrees to everything.
func yes(a *tool.Ask) json.RawMessage {
	var all []string
	for _, n := range a.Needs {
		content := "{}"
		if strings.Contains(string(n.Schema), `"confirmed"`) {
			content = `{"confirmed":true}`
		}
		all = append(all, fmt.Sprintf(`%q:{"action":"accept","content":%s}`, n.Key, content))
	}
	return json.RawMessage("{" + strings.Join(all, ",") + "}")
}

// login follows the link, as a browser does whose user agrees at once.
func (p *person) login(why error) {
	p.t.Helper()
	if tool.AsError(why).Reason != mcp.ReasonLogin || p.logins == maxLogins {
		p.t.Fatal(why)
	}
	p.logins++
	err := mcp.Login(p.t.Context(), p.src, func(link string) {
		go func() {
			resp, err := http.Get(link) //nolint:gosec // that is what links are for
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
	})
	if err != nil {
		p.t.Fatal(err)
	}
}
