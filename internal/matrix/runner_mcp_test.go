package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/wire/strictjson"
)

// mcpSources returns three sources of one server, because a timeout and a tier belong to a source.
func mcpSources(name, fields string) string {
	head := "protocol: mcp, " + fields
	return fmt.Sprintf("- {name: %[1]s, %[2]s, tier: 1}\n- {name: %[1]s-slow, %[2]s, tier: 1, timeout: %[3]s}\n"+
		"- {name: %[1]s-danger, %[2]s, tier: 3}\n", name, head, hangFor)
}

func mcpTool(source string) func(string) string {
	return func(tool string) string {
		switch tool {
		case "hang":
			return source + "-slow"
		case "danger":
			return source + "-danger"
		}
		return in(source, "echo", "fail", "wait", "ask", "report", "asset", "large")(tool)
	}
}

func mcpCarries() carries {
	return carries{
		reason: {never, "a failure is a result with isError and words, and has no name"},
		state:  {never, "the protocol gives a server no way to the state of a session"},
		choice: {never, "the protocol has no event by which a server offers choices: what is in its result is its output"},
		asset:  {unnamed, "a file is content of a result, by its media type; a name it has only where it is a link"},
	}
}

// mcpProgram is a server in Python, written from the specification. The config does not name its era.
func mcpProgram(era string) *runner {
	name := "mcp-" + era
	return &runner{
		name: "MCP " + era + ", stdio", about: "a program that speaks MCP of the " + era + " era",
		sources: func(h *house) string {
			return mcpSources(name, fmt.Sprintf("command: [%q, mcp/tools.py, %s]", h.python, era))
		},
		where: mcpTool(name), carries: mcpCarries(),
	}
}

// mcpServer is a server of the official SDK for Go. It speaks both eras, and we speak the one in the config.
func mcpServer(era string) *runner {
	name := "mcp-web-" + era
	return &runner{
		name: "MCP " + era + ", HTTP", about: "a server of the official SDK, in the " + era + " era",
		sources: func(h *house) string { return mcpSources(name, fmt.Sprintf("url: %q, era: %s", h.mcp[era], era)) },
		where:   mcpTool(name), carries: mcpCarries(),
	}
}

// serveMCP starts the servers of the official SDK and returns their addresses.
func serveMCP(t *testing.T) map[string]string {
	t.Helper()
	// In the modern era the server does not end a tool whose caller is gone or leaves a question unanswered.
	over, end := context.WithCancel(context.Background())
	urls := map[string]string{}
	for _, era := range []string{"modern", "legacy"} {
		s := sdk.NewServer(&sdk.Implementation{Name: "matrix", Version: "1"}, nil)
		for _, name := range []string{"echo", "fail", "hang", "wait", "ask", "report", "asset", "large", "danger"} {
			schema := `{"type":"object"}`
			if name == "echo" {
				schema = echoInput
			}
			s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(schema)}, serveTool(over, era))
		}
		o := &sdk.StreamableHTTPOptions{Stateless: era == "modern"}
		front := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, o))
		t.Cleanup(front.Close)
		urls[era] = front.URL
	}
	t.Cleanup(end)
	return urls
}

func serveTool(over context.Context, era string) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(over, cancel)()
		switch name := req.Params.Name; {
		case name == "hang" || name == "wait":
			<-ctx.Done()
			return &sdk.CallToolResult{Content: []sdk.Content{}}, nil
		case name == "ask" && era == "legacy":
			answer, err := req.Session.Elicit(ctx, elicitation())
			if err != nil {
				return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{}}, nil
			}
			return gave(map[string]any{"answers": answer.Content}), nil
		}
		return answerTool(ctx, req)
	}
}

func elicitation() *sdk.ElicitParams {
	return &sdk.ElicitParams{Mode: "form", Message: which, RequestedSchema: json.RawMessage(colourForm)}
}

func gave(output any) *sdk.CallToolResult {
	words, _ := strictjson.Marshal(output) // as the protocol requires, for clients without structured content
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(words)}}, StructuredContent: output}
}

func answerTool(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	output := any(map[string]bool{"done": true})
	switch req.Params.Name {
	case "echo":
		output = req.Params.Arguments
	case "fail":
		var args struct {
			Message string `json:"message"`
		}
		err := strictjson.Unmarshal(req.Params.Arguments, &args)
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: args.Message}}}, err
	case "ask":
		if req.Params.InputResponses == nil {
			return &sdk.CallToolResult{RequestState: "asked", InputRequests: sdk.InputRequestMap{
				"colour": elicitation(),
			}}, nil
		}
		output = map[string]any{"answers": req.Params.InputResponses}
	case "report":
		err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: req.Params.GetProgressToken(), Progress: 1, Total: 2, Message: halfWay,
		})
		if err != nil {
			return nil, err
		}
	case "asset":
		torch := &sdk.ResourceContents{URI: "torch://one", MIMEType: "text/plain", Text: "a torch"}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.EmbeddedResource{Resource: torch}}}, nil
	case "large":
		output = map[string]string{"text": strings.Repeat("x", oneMiB)}
	}
	return gave(output), nil
}
