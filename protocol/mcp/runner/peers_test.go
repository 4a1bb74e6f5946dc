package runner_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/internal/kit"
	"toolpost/protocol/mcp/mcptest"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestRealServersFromNPM(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Run("everything", func(t *testing.T) {
		r := open(t, mcptest.NPM(t, "@modelcontextprotocol/server-everything/dist/index.js", "", "stdio"))
		all := list(t, r)
		if all["echo"] == nil || all["get-sum"] == nil {
			t.Fatalf("the tools are %v", all)
		}
		kit.Contains(t, works(t, r, "get-sum", `{"a":2,"b":3}`), "5", "the sum")
		kit.Contains(t, works(t, r, "get-structured-content", `{"location":"New York"}`),
			`"temperature"`, "structured content")
		var events kept
		res, err := invoke(t, r, &tool.Call{Tool: "get-tiny-image", Args: json.RawMessage(`{}`)}, &events)
		if err != nil || !res.OK || len(events.of(tool.KindAsset)) != 1 {
			t.Errorf("the image: %+v, %v, %q", res, err, events.of(tool.KindAsset))
		}
		events = kept{}
		res, err = invoke(t, r, &tool.Call{Tool: "trigger-long-running-operation", Args: json.RawMessage(`{"duration":1,"steps":4}`)}, &events)
		if err != nil || !res.OK || len(events.of(tool.KindProgress)) != 4 {
			t.Errorf("the long run: %+v, %v, %q", res, err, events.of(tool.KindProgress))
		}
		events = kept{}
		res, err = invoke(t, r, &tool.Call{Tool: "get-resource-links", Args: json.RawMessage(`{"count":2}`)}, &events)
		if err != nil || !res.OK || len(events.of(tool.KindAsset)) != 0 || strings.Count(string(res.Output), "resource_link") != 2 { // none is read
			t.Errorf("the links: %+v, %v, %q", res, err, events.of(tool.KindAsset))
		}
		got := answers(t, r, &tool.Call{Tool: "trigger-elicitation-request", Args: json.RawMessage(`{}`)}, func(a *tool.Ask) string {
			return fmt.Sprintf(`{%q:{"action":"accept","content":{"name":"Ada","color":"red"}}}`, a.Needs[0].Key)
		})
		kit.Contains(t, got, "Ada", "the elicitation")
		got = answers(t, r, &tool.Call{Tool: "trigger-sampling-request", Args: json.RawMessage(`{"prompt":"hi","maxTokens":5}`)}, func(a *tool.Ask) string {
			return fmt.Sprintf(`{%q:{"role":"assistant","model":"m","content":{"type":"text","text":"a model was here"}}}`, a.Needs[0].Key)
		})
		kit.Contains(t, got, "a model was here", "the sampling")
	})
	t.Run("filesystem", func(t *testing.T) {
		dir := t.TempDir()
		kit.OK(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("in a file"), 0o600))
		r := open(t, mcptest.NPM(t, "@modelcontextprotocol/server-filesystem/dist/index.js", fmt.Sprintf(", write: [%q]", dir), dir))
		kit.Contains(t, works(t, r, "read_text_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(dir, "a.txt"))),
			"in a file", "read")
		works(t, r, "write_file", fmt.Sprintf(`{"path":%q,"content":"new"}`, filepath.Join(dir, "b.txt")))
		if got, err := os.ReadFile(filepath.Join(dir, "b.txt")); string(got) != "new" {
			t.Errorf("wrote %s, %v", got, err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		dir := t.TempDir()
		fields := mcptest.NPM(t, "@modelcontextprotocol/server-memory/dist/index.js", fmt.Sprintf(", write: [%q]", dir))
		r := open(t, fields+fmt.Sprintf(", env: {MEMORY_FILE_PATH: %q}", filepath.Join(dir, "memory.json")))
		works(t, r, "create_entities", `{"entities":[{"name":"ada","entityType":"person","observations":["counts"]}]}`)
		kit.Contains(t, works(t, r, "read_graph", `{}`), "counts", "the graph")
	})
}

func TestServersOfTheTypeScriptSDKs(t *testing.T) {
	tooltest.NoLeaks(t)
	for script, era := range map[string]string{"server1.mjs": "legacy", "server2.mjs": "modern"} {
		use := func(t *testing.T, r *runner.Runner) {
			t.Helper()
			res, err := invoke(t, r, &tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"Ada"}`)}, tool.Discard)
			if err != nil || string(res.Output) != `"Hello, Ada"` || res.Trace.Details["era"] != era {
				t.Fatalf("%+v, %v", res, err)
			}
			if era == "modern" {
				return
			}
			got := answers(t, r, &tool.Call{Tool: "confirm", Args: json.RawMessage(`{}`)}, func(a *tool.Ask) string {
				return fmt.Sprintf(`{%q:{"action":"accept","content":{"sure":true}}}`, a.Needs[0].Key)
			})
			kit.Contains(t, got, `sure\":true`)
			changed := r.Changed()
			works(t, r, "grow", `{}`)
			kit.Receive(t, "the tools changed", changed)
			if list(t, r)["grown"] == nil {
				t.Error("the new tool is not there")
			}
		}
		// A program that speaks both and that a busy machine starts slowly is taken for a legacy one: see probeTime.
		said := map[string]string{"modern": ", era: modern"}[era]
		t.Run(script+" over stdio", func(t *testing.T) { use(t, open(t, mcptest.NPM(t, script, "")+said)) })
		t.Run(script+" over http", func(t *testing.T) { use(t, open(t, "url: '"+jsHTTP(t, script)+"'")) })
		if era == "modern" {
			era = "legacy"
			t.Run(script+" in the legacy era over stdio", func(t *testing.T) { use2(t, open(t, mcptest.NPM(t, script, "")+", era: legacy")) })
			t.Run(script+" in the legacy era over http", func(t *testing.T) { use2(t, open(t, "url: '"+jsHTTP(t, script)+"', era: legacy")) })
		}
	}
}

func use2(t *testing.T, r *runner.Runner) {
	t.Helper()
	res, err := invoke(t, r, &tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"Ada"}`)}, tool.Discard)
	if err != nil || string(res.Output) != `"Hello, Ada"` || res.Trace.Details["era"] != "legacy" {
		t.Fatalf("%+v, %v", res, err)
	}
}

// jsHTTP starts a server of ours that is written in JavaScript, and returns its address.
func jsHTTP(t *testing.T, script string) string {
	t.Helper()
	_, node := mcptest.Node(t)
	cmd := exec.Command(node, script, "http")
	cmd.Dir, cmd.Stderr = mcptest.Path(t, "js"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	port, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return "http://127.0.0.1:" + strings.TrimSpace(port) + "/mcp"
}

type greetArgs struct {
	Name string `json:"name"`
}

// goServer is a server of the official SDK for Go.
func goServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "go", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "greet"}, func(ctx context.Context, req *sdk.CallToolRequest, in greetArgs) (*sdk.CallToolResult, map[string]string, error) {
		if token := req.Params.GetProgressToken(); token != nil {
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: "half"})
		}
		return nil, map[string]string{"greeting": "Hello, " + in.Name}, nil
	})
	return s
}

// goServerEnv makes this test binary a server on its standard streams.
const goServerEnv = "TOOLPOST_TEST_MCP_SERVER"

func TestGoServerProgram(t *testing.T) {
	if os.Getenv(goServerEnv) == "" {
		t.Skip("another test runs it")
	}
	_ = goServer().Run(context.Background(), &sdk.StdioTransport{})
	os.Exit(0)
}

func TestServersOfTheGoSDK(t *testing.T) {
	tooltest.NoLeaks(t)
	self := kit.Must(os.Executable())(t)
	s := goServer()
	for _, era := range []string{"modern", "legacy"} {
		o := &sdk.StreamableHTTPOptions{Stateless: era == "modern"}
		front := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, o))
		defer front.Close()
		for over, fields := range map[string]string{
			"stdio": fmt.Sprintf("command: [%q, -test.run=TestGoServerProgram], env: {%s: '1'}, walls: {memory: -1, processes: -1}", self, goServerEnv),
			"http":  fmt.Sprintf("url: %q", front.URL),
		} {
			t.Run(era+" over "+over, func(t *testing.T) {
				if era == "legacy" {
					fields += ", era: legacy"
				}
				r := open(t, fields)
				var events kept
				res, err := invoke(t, r, &tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"Ada"}`)}, &events)
				if err != nil || string(res.Output) != `{"greeting":"Hello, Ada"}` || res.Trace.Details["era"] != era {
					t.Errorf("%+v, %v", res, err)
				}
				if got := events.of(tool.KindProgress); len(got) != 1 || !strings.Contains(got[0], "half") {
					t.Errorf("progress is %q", got)
				}
			})
		}
	}
}
