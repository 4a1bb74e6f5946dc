package mcpsuite

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
)

// The official suite tests a client by running it, once for each of its scenarios, with the address of a server that the
// suite plays. The client here is our runner, driven like a person with a browser. It is this test binary, started again
// by the suite.
const asClient = "TOOLPOST_TEST_MCP_CLIENT"

// A theirSecret is the value of every secret.
type theirSecret string

func (s theirSecret) Secret(string) (string, error) { return string(s), nil }

// clientSource returns a configured source in its own folder.
func clientSource(t *testing.T, fields, secret string) config.Source {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte("sources:\n  - {name: up, protocol: mcp, "+fields+"}\n"))
	kit.OK(t, err)
	src := cfg.Sources[0]
	src.Secrets = theirSecret(secret)
	return src
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
		kit.OK(t, json.Unmarshal([]byte(text), &given))
	}
	oauth := "client_metadata: 'https://conformance-test.local/client-metadata.json'"
	if given.ClientID != "" {
		oauth = fmt.Sprintf("client_id: %q, client_secret: THEIRS", given.ClientID)
	}
	src := clientSource(t, fmt.Sprintf("url: %q, oauth: {%s}", url, oauth), given.ClientSecret)
	r := kit.Must(runner.Open(t.Context(), src, slog.New(slog.NewTextHandler(os.Stderr, nil))))(t)
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
			if s.Method != "resources/read" {
				user.call(s.Name, `{}`)
			}
			for _, one := range s.Resources {
				user.call(s.Name, fmt.Sprintf(`{"uri":%q}`, one.URI))
			}
		}
	}
}

// A person uses the tools of a source, logs in when told to, and agrees to everything.
type person struct {
	t      *testing.T
	src    config.Source
	r      tool.Runner
	logins int
}

// maxLogins is how often a person logs in before giving up on a server.
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
		case err != nil && tool.AsError(err).Reason == runner.ReasonLogin:
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

// yes agrees to everything, and to what a form suggests.
func yes(a *tool.Ask) json.RawMessage {
	var all []string
	for _, n := range a.Needs {
		var form struct {
			Properties map[string]struct {
				Default json.RawMessage `json:"default"`
			} `json:"properties"`
		}
		_ = json.Unmarshal(n.Schema, &form) // only forms have one
		content := map[string]json.RawMessage{}
		for name, field := range form.Properties {
			if field.Default != nil {
				content[name] = field.Default
			}
		}
		if strings.Contains(string(n.Schema), `"confirmed"`) {
			content["confirmed"] = json.RawMessage("true")
		}
		text, _ := json.Marshal(content) // JSON that was read
		all = append(all, fmt.Sprintf(`%q:{"action":"accept","content":%s}`, n.Key, text))
	}
	return json.RawMessage("{" + strings.Join(all, ",") + "}")
}

// login follows the link, like a browser whose user agrees at once.
func (p *person) login(why error) {
	p.t.Helper()
	if tool.AsError(why).Reason != runner.ReasonLogin || p.logins == maxLogins {
		p.t.Fatal(why)
	}
	p.logins++
	kit.OK(p.t, runner.Login(p.t.Context(), p.src, func(link string) {
		go func() {
			resp, err := http.Get(link)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
	}))
}
