package agents

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// An mcpServer is a post as an MCP server for agents: a program to start, or, if it has a URL, a server to call.
type mcpServer struct {
	argv       []string
	url, token string
}

// json formats its entry in the settings of an agent, in one of two forms, with the program, its arguments, the URL, the
// header that identifies the caller, and the program with its arguments.
func (s *mcpServer) json(around, program, server string) string {
	form := program
	if s.url != "" {
		form = server
	}
	args, _ := json.Marshal(s.argv[1:])
	argv, _ := json.Marshal(s.argv)
	all := fmt.Sprintf(form, quote(s.argv[0]), args, quote(s.url), quote("Bearer "+s.token), argv)
	return fmt.Sprintf(around, all)
}

func gemini(r *room, url, model, prompt string) string {
	r.env = append(r.env, "GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL="+url, "GEMINI_CLI_TRUST_WORKSPACE=true", "GEMINI_CLI_NO_RELAUNCH=true")
	r.write(".gemini/settings.json", r.mcp.json(`{"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false},
  "privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true},
  "mcpServers": {"post": %s}}`, `{"command": %[1]s, "args": %[2]s, "trust": true}`,
		`{"httpUrl": %[3]s, "headers": {"Authorization": %[4]s}, "trust": true}`))
	return r.run(program(r.t, "gemini"), "-p", prompt, "--yolo", "-m", model)
}

// tools are the tools for agents over MCP: one that answers, unless its input is a certain word, one that draws, and one
// that has to be approved.
const tools = `
sources:
  - {name: a, protocol: command, tool: shout, description: Shouts a word., command: [echo, "it shouts {word}"], arguments: {word: string}}
  - {name: c, protocol: command, tool: guarded, description: Is run if somebody agrees., command: [echo, "the guarded one ran"]}
  - {name: d, protocol: narratoria, tool: draw, description: Draws a picture., command: [python3, draw.py], input: {type: object}}
policy:
  rules:
    - {name: never, effect: deny, tools: shout, when: 'args.word == "murder"', reason: it is too dangerous}
    - {name: asks, effect: ask, tools: guarded, approvers: owner, reason: it is a little dangerous}
doors: {http: {}}
`

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

const draw = `import base64, json, os, sys, tempfile
json.load(sys.stdin)
path = os.path.join(tempfile.mkdtemp(), "pixel.png")
with open(path, "wb") as f:
    f.write(base64.b64decode("` + pixel + `"))
print(json.dumps({"version": "0", "type": "asset", "assetId": "pixel", "kind": "image", "mediaType": "image/png", "path": path}))
print(json.dumps({"version": "0", "type": "done", "ok": True, "summary": "it is drawn"}))
`

// TestAgentsUseToolsOverMCP lets each agent call tools of ours. Their results, a picture, a denial and a call that is
// approved meanwhile must reach its model, and must be on record.
func TestAgentsUseToolsOverMCP(t *testing.T) {
	program(t, "claude") // otherwise there is nothing to build for
	bin := served.Build(t)
	for i, d := range append(drivers(), driver{name: "gemini", start: gemini}) {
		for j, transport := range []string{"stdio", "http"} {
			t.Run(d.name+" "+transport, func(t *testing.T) {
				if !long() && i%2 != j { // each of them over one transport
					t.Skip("TOOLPOST_LONG=1 tries it")
				}
				program(t, d.name)
				useTools(t, bin, d, transport == "http")
			})
		}
	}
}

func useTools(t *testing.T, bin string, d driver, web bool) {
	p := newPost(t, bin, tools, map[string]string{"draw.py": draw})
	approve := func() {
		id := regexp.MustCompile("apr_[a-z2-7]+").FindString(p.toolpost("approvals", "--json", "--server", p.URL()))
		p.toolpost("approve", id, "--reason", "looked at it", "--server", p.URL())
	}
	m := newScript(t, step{tool: "shout", input: `{"word": "hello"}`}, step{tool: "draw", input: "{}"}, step{tool: "shout", input: `{"word": "murder"}`},
		step{tool: "guarded", input: "{}"}, step{tool: "guarded", input: "{}", first: approve})
	keep(t, "model", m.recorder)
	r := newRoom(t)
	caller := "agent/hand"
	r.mcp = &mcpServer{argv: []string{bin, "as", "mcp", "--caller", "hand", "--config", filepath.Join(p.dir, "toolpost.yaml")}}
	if web {
		caller = "agent"
		r.mcp.url, r.mcp.token = p.URL()+"/mcp", strings.TrimSpace(p.toolpost("token", "issue", caller, "--tools", "*"))
	}
	kit.Contains(t, d.start(r, m.url, "deep", "use the tools"), "all done", "the agent did not finish")
	told := ""
	for _, e := range m.exchanges() {
		if len(e.body) > len(told) && strings.Contains(string(e.body), "the guarded one ran") {
			told = string(e.body)
		}
	}
	for _, want := range []string{"it shouts hello", pixel, "it is drawn", "it is too dangerous", "has to be approved", "the guarded one ran"} {
		kit.Contains(t, told, want, "the model was not told")
	}
	want := []string{"shout ok " + caller, "draw ok " + caller, "shout refused " + caller, "guarded asked " + caller, "guarded ok " + caller}
	kit.EqualSlices(t, p.record(), want, "on record")
}

// record returns the records, oldest first, without our own tools.
func (p *post) record() (all []string) {
	p.t.Helper()
	for line := range strings.Lines(p.toolpost("audit", "export")) {
		var r struct{ Tool, Source, Outcome, Caller string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			p.t.Errorf("%v: %s", err, line)
		}
		if r.Source != "toolpost" {
			all = append(all, r.Tool+" "+r.Outcome+" "+r.Caller)
		}
	}
	return all
}
