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

// theirSecrets are the values of a scenario that its config names.
type theirSecrets map[string]string

func (s theirSecrets) Secret(name string) (string, error) { return s[name], nil }

// clientSource returns a configured source in its own folder.
func clientSource(t *testing.T, fields string, secrets theirSecrets) config.Source {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte("sources:\n  - {name: up, protocol: mcp, "+fields+"}\n"))
	kit.OK(t, err)
	src := cfg.Sources[0]
	src.Secrets = secrets
	return src
}

// A given is what the suite tells the client of a scenario, as an administrator would.
type given struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	PrivateKey   string `json:"private_key_pem"`
	Workload     string `json:"valid_jwt"`
	IDPIssuer    string `json:"idp_issuer"`
	IDPClient    string `json:"idp_client_id"`
	IDToken      string `json:"idp_id_token"`
	ToolCalls    []struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"toolCalls"`
}

// oauth returns the config of our client for a scenario.
func (g *given) oauth(t *testing.T, scenario, url string) string {
	t.Helper()
	client := fmt.Sprintf("client_id: %q", g.ClientID)
	withSecret := func() string { return fmt.Sprintf("%s, client_secret: SECRET, issuer: %q", client, issuerOf(t, url)) }
	switch {
	case scenario == "auth/client-credentials-jwt":
		return client + ", grant: client_credentials, key: {secret: KEY}"
	case scenario == "auth/client-credentials-basic":
		return withSecret() + ", grant: client_credentials"
	case scenario == "auth/wif-jwt-bearer":
		return client + ", grant: jwt_bearer, assertion: {secret: WORKLOAD}"
	case scenario == "auth/enterprise-managed-authorization":
		return fmt.Sprintf("%s, grant: id_jag, idp: {issuer: %q, client_id: %q, subject: {secret: PERSON}}", withSecret(), g.IDPIssuer, g.IDPClient)
	case strings.HasPrefix(scenario, "auth/dpop"):
		return metadataDocument + ", dpop: true"
	case g.ClientID != "":
		return client + ", client_secret: SECRET"
	}
	return metadataDocument
}

const metadataDocument = "client_metadata: 'https://conformance-test.local/client-metadata.json'"

// issuerOf returns the authorization server of a scenario, which an administrator knows from registering the client there.
func issuerOf(t *testing.T, server string) string {
	t.Helper()
	resp := kit.Must(http.Get(strings.Replace(server, "/mcp", "/.well-known/oauth-protected-resource/mcp", 1)))(t)
	defer resp.Body.Close()
	var told struct {
		Servers []string `json:"authorization_servers"`
	}
	kit.OK(t, json.NewDecoder(resp.Body).Decode(&told))
	return told.Servers[0]
}

// TestClientOfTheSuite is the client, when the suite runs it.
func TestClientOfTheSuite(t *testing.T) {
	if os.Getenv(asClient) == "" {
		t.Skip("the suite runs it")
	}
	url := os.Args[len(os.Args)-1]
	scenario := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	var given given
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		kit.OK(t, json.Unmarshal([]byte(text), &given))
	}
	src := clientSource(t, fmt.Sprintf("url: %q, oauth: {%s}", url, given.oauth(t, scenario, url)), theirSecrets{
		"SECRET": given.ClientSecret, "KEY": given.PrivateKey, "WORKLOAD": given.Workload, "PERSON": given.IDToken,
	})
	r := kit.Must(runner.Open(t.Context(), src, slog.New(slog.NewTextHandler(os.Stderr, nil))))(t)
	defer r.Close(t.Context())
	user := &person{t: t, src: src, r: r}
	specs := user.tools()
	switch {
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
