package agents

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// A driver starts an agent in front of a model.
type driver struct {
	name  string
	model string // the name of its model, by which an agent may decide which tools it offers
	api   string // of that model
	route string
	// task is the script of the model for the agent's own tools: run `echo one`, and write the file two.txt in its
	// folder.
	task func(r *room) []step
	// start runs it with a prompt. The model has this URL and name.
	start func(r *room, url, model, prompt string) string
}

func claude(r *room, url, model, prompt string) string {
	r.env = append(r.env, "ANTHROPIC_BASE_URL="+url, "ANTHROPIC_AUTH_TOKEN="+served.Token, "CLAUDE_CONFIG_DIR="+r.home+"/claude",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		"ENABLE_TOOL_SEARCH=false", "ANTHROPIC_SMALL_FAST_MODEL="+model, "ANTHROPIC_DEFAULT_HAIKU_MODEL="+model)
	words := []string{"-p", prompt, "--model", model, "--allowedTools", "Bash,Write,mcp__post", "--strict-mcp-config"}
	if s := r.mcp; s != nil {
		r.write("mcp.json", s.json(`{"mcpServers": {"post": %s}}`, `{"command": %[1]s, "args": %[2]s}`,
			`{"type": "http", "url": %[3]s, "headers": {"Authorization": %[4]s}}`))
		words = append(words, "--mcp-config", r.home+"/mcp.json")
	}
	return r.run(append([]string{program(r.t, "claude")}, words...)...)
}

func codex(r *room, url, model, prompt string) string {
	r.env = append(r.env, "CODEX_HOME="+r.home, "TOOLPOST_TOKEN="+served.Token)
	tools := ""
	if s := r.mcp; s != nil {
		tools = s.json("[mcp_servers.post]\n%s\n", "command = %[1]s\nargs = %[2]s", "url = %[3]s\nhttp_headers = {Authorization = %[4]s}")
	}
	r.write("config.toml", tools+fmt.Sprintf(`
[features]
apps = false
plugins = false
[analytics]
enabled = false
[model_providers.post]
name = "post"
base_url = %q
env_key = "TOOLPOST_TOKEN"
wire_api = "responses"
`, url+"/v1"))
	return r.run(program(r.t, "codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
		"-c", "model="+model, "-c", "model_provider=post", "-c", "check_for_update_on_startup=false", prompt)
}

func opencode(r *room, url, model, prompt string) string {
	r.env = append(r.env, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "OPENCODE_CONFIG="+r.home+"/opencode.json")
	tools := ""
	if s := r.mcp; s != nil {
		tools = s.json(`"post": %s`, `{"type": "local", "command": %[5]s, "enabled": true}`,
			`{"type": "remote", "url": %[3]s, "headers": {"Authorization": %[4]s}, "oauth": false, "enabled": true}`)
	}
	r.write("opencode.json", fmt.Sprintf(`{
  "provider": {"post": {"npm": "@ai-sdk/openai-compatible", "name": "post",
    "options": {"baseURL": %q, "apiKey": %q}, "models": {%q: {"name": "scripted", "tool_call": true, "attachment": true,
      "modalities": {"input": ["text", "image"], "output": ["text"]}}}}},
  "mcp": {%s}, "model": %q, "small_model": %q, "autoupdate": false, "share": "disabled", "permission": "allow"
}`, url+"/v1", served.Token, model, tools, "post/"+model, "post/"+model))
	return r.run(program(r.t, "opencode"), "run", "--pure", "--print-logs", "--log-level", "WARN", prompt)
}

func drivers() []driver {
	return []driver{
		{"claude", "deep", "anthropic", "/v1/messages", func(r *room) []step {
			return []step{
				{tool: "Bash", input: `{"command": "echo one", "description": "say one"}`},
				{tool: "Write", input: `{"file_path": ` + quote(filepath.Join(r.work, "two.txt")) + `, "content": "two\n"}`},
			}
		}, claude},
		{"codex", "gpt-5.5", "responses", "/v1/responses", func(*room) []step {
			return []step{
				{tool: "exec_command", input: `{"cmd": "echo one"}`},
				{tool: "apply_patch", input: "*** Begin Patch\n*** Add File: two.txt\n+two\n*** End Patch\n"},
			}
		}, codex},
		{"opencode", "deep", "openai", "/v1/chat/completions", func(r *room) []step {
			return []step{
				{tool: "bash", input: `{"command": "echo one", "description": "say one"}`},
				{tool: "write", input: `{"filePath": ` + quote(filepath.Join(r.work, "two.txt")) + `, "content": "two\n"}`},
			}
		}, opencode},
	}
}

// config returns the config of a post for a model. Tools are appended to it.
func config(m *script, name, api string) string {
	return fmt.Sprintf(`
models: [{name: %s, model: scripted-1, url: "%s/v1", key: KEY, api: %s}]
secrets: {KEY: {file: key}}
`, name, m.url, api)
}

// trial lets an agent do its task in front of a post with such a model, and returns the traffic on both sides of the
// post.
func trial(t *testing.T, bin string, d driver, api string, change func(*script)) (tap *recorder, m *script) {
	t.Helper()
	program(t, d.name)
	r := newRoom(t)
	m = newScript(t, d.task(r)...)
	change(m)
	p := newPost(t, bin, config(m, d.model, api)+tools, map[string]string{"key": "the-key-of-the-model", "draw.py": draw})
	tap, url := newTap(t, p.URL())
	keep(t, "agent", tap)
	keep(t, "model", m.recorder)
	out := d.start(r, url, d.model, "say one, write two")
	kit.Contains(t, out, "all done", "the agent did not finish")
	kit.Equal(t, string(kit.Must(os.ReadFile(filepath.Join(r.work, "two.txt")))(t)), "two\n", "two.txt")
	kit.Equal(t, p.toolpost("audit", "export"), "", "a tool of ours ran")
	return tap, m
}

// TestAgentsWorkBehindTheModelDoors lets each agent finish a task with two calls of its own tools. Its messages reach the
// model, and the model's messages reach it, byte for byte, and no tool of ours runs.
func TestAgentsWorkBehindTheModelDoors(t *testing.T) {
	program(t, "claude") // otherwise there is nothing to build for
	bin := served.Build(t)
	for _, d := range drivers() {
		t.Run(d.name, func(t *testing.T) {
			tap, m := trial(t, bin, d, d.api, func(*script) {})
			compare(t, d, tap, m.recorder)
		})
	}
}

// TestClaudeCodeWorksWithoutStreams lets streams break off, so that it requests whole answers. The other agents only use
// streams.
func TestClaudeCodeWorksWithoutStreams(t *testing.T) {
	if !long() {
		t.Skip("TOOLPOST_LONG=1 tries it")
	}
	d := drivers()[0]
	tap, m := trial(t, served.Build(t), d, d.api, func(m *script) { m.plain = true })
	compare(t, d, tap, m.recorder)
	if !slices.ContainsFunc(m.exchanges(), func(e *exchange) bool { return !bytes.Contains(e.body, []byte(`"stream":true`)) }) {
		t.Error("it never asked without a stream")
	}
}

// TestCodexWorksWithAModelOfTheChatAPI checks that its namespaces and its tools that take a text are translated, and web
// search is left out.
func TestCodexWorksWithAModelOfTheChatAPI(t *testing.T) {
	if !long() {
		t.Skip("TOOLPOST_LONG=1 tries it")
	}
	tap, m := trial(t, served.Build(t), drivers()[1], "openai", func(m *script) {
		m.steps[1].input = `{"input": ` + quote(m.steps[1].input) + `}`
	})
	for _, e := range tap.exchanges() {
		if e.path == "/v1/responses" && !strings.Contains(e.answered.Get("Toolpost-Left-Out"), "web_search") {
			t.Errorf("Toolpost-Left-Out: %q", e.answered.Get("Toolpost-Left-Out"))
		}
	}
	for _, e := range m.exchanges() {
		kit.Equal(t, e.path, "/v1/chat/completions", "the model was asked at")
	}
}

// TestCodexFindsToolsBehindTheModelDoors lets it search for tools of an MCP server, which it does with models that it
// knows; for others it lists them in a namespace.
func TestCodexFindsToolsBehindTheModelDoors(t *testing.T) {
	if !long() {
		t.Skip("TOOLPOST_LONG=1 tries it")
	}
	bin := served.Build(t)
	search := step{tool: "tool_search", input: `{"query": "shout"}`}
	shout := step{tool: "shout", space: "mcp__post", input: `{"word": "hello"}`}
	for name, c := range map[string]struct {
		model, api string
		steps      []step
	}{
		"a search":                 {"gpt-5.5", "responses", []step{search, shout}},
		"a namespace":              {"deep", "responses", []step{shout}},
		"a namespace as functions": {"deep", "openai", []step{shout}},
		"a search as a function":   {"gpt-5.5", "openai", []step{search, shout}},
	} {
		t.Run(name, func(t *testing.T) {
			program(t, "codex")
			m := newScript(t, c.steps...)
			keep(t, "model", m.recorder)
			p := newPost(t, bin, config(m, c.model, c.api)+tools, map[string]string{"key": "the-key-of-the-model", "draw.py": draw})
			r := newRoom(t)
			r.mcp = &mcpServer{argv: []string{bin, "as", "mcp", "--config", filepath.Join(p.dir, "toolpost.yaml")}}
			tap, url := newTap(t, p.URL())
			keep(t, "agent", tap)
			out := codex(r, url, c.model, "shout")
			if got := p.record(); !strings.Contains(out, "all done") || !slices.Equal(got, []string{"shout ok agent/~codex-mcp-client"}) {
				t.Errorf("on record: %q; the agent: %s", got, out)
			}
		})
	}
}

// compare compares the agent's requests and answers with those of its model, for all requests of a route.
func compare(t *testing.T, d driver, agent, model *recorder) {
	t.Helper()
	arrived := model.exchanges()
	for _, sent := range agent.exchanges() {
		if path, _, _ := strings.Cut(sent.path, "?"); path != d.route {
			t.Logf("beside: %s %s: %d", sent.method, sent.path, sent.status)
			continue
		}
		want := bytes.Replace(sent.body, []byte(`"model":"`+d.model+`"`), []byte(`"model":"scripted-1"`), 1)
		at := slices.IndexFunc(arrived, func(e *exchange) bool { return bytes.Equal(e.body, want) })
		if at < 0 {
			t.Errorf("a request did not reach the model as it was: %d %s\n%s", sent.status, sent.answer, sent.body)
			continue
		}
		got := arrived[at]
		arrived = slices.Delete(arrived, at, at+1)
		kit.Equal(t, got.path, sent.path)
		same(t, "a header of a request", sent.header, got.header)
		for _, ours := range []string{"Toolpost-Call", "Cache-Control", "X-Content-Type-Options"} {
			sent.answered.Del(ours) // guards for browsers, and the ID of the call
		}
		same(t, "a header of an answer", got.answered, sent.answered)
		whole := bytes.Equal(sent.answer, got.answer) || sent.left && bytes.HasPrefix(got.answer, sent.answer)
		if sent.status != got.status || !whole {
			t.Errorf("an answer was changed: %d %s\nbecame %d %s", got.status, got.answer, sent.status, sent.answer)
		}
	}
	for _, e := range arrived {
		t.Errorf("the model was asked for something by no agent: %s %s", e.path, e.body)
	}
}

// same compares headers, except those of a connection and those that identify the caller.
func same(t *testing.T, what string, from, to http.Header) {
	t.Helper()
	names := map[string]bool{}
	for _, h := range []http.Header{from, to} {
		for name := range h {
			names[name] = true
		}
	}
	for name := range names {
		switch name {
		case "Authorization", "X-Api-Key", "Connection", "Keep-Alive", "Transfer-Encoding", "Host", "Content-Length", "Accept-Encoding", "Date":
			continue
		}
		kit.EqualSlices(t, from[name], to[name], "%s was changed: %s", what, name)
	}
}
