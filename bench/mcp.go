package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/tool"
)

// lookConfig has a read-only tool, behind a policy.
const lookConfig = `sources: [{name: bench, protocol: echo}]
policy: {rules: [{name: no-deletes, effect: deny, tools: deleteFile}]}
store: {url: %q}
`

// recorded is the store that records calls.
const recorded = "sqlite:.toolpost/toolpost.db"

// lookCall is a call of it in the form of a modern client, and lookAnswer is part of every answer.
const (
	lookCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","arguments":{"name":"Ada"},` +
		aboutBench + `}}`
	listCall = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"%s",` + aboutBench + `}}`

	aboutBench = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

	lookAnswer = `"text":"{\"name\":\"Ada\"}"`
)

// lookOnce is the call for callers that cost as little as possible.
var lookOnce = request{
	path: "/mcp", args: lookCall, want: lookAnswer, headers: "Accept: application/json, text/event-stream\r\n" +
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: look\r\n",
}

// mcpCalls returns the measurement of tools/call by a number of callers, each with its own connection, against another
// server. Both are separate processes: in one process each would have to collect the other's garbage.
func mcpCalls(callers int, store, against string, least float64) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		dir := filepath.Join(l.dir, fmt.Sprint("mcp", callers, against, filepath.Base(store)))
		writeFiles(dir, map[string]string{"toolpost.yaml": fmt.Sprintf(lookConfig, store)})
		ours := l.crowd(ctx, l.benchServe(ctx, dir, wordEcho, dir), callers, lookOnce)
		if store != "none" {
			ours.recording()
		}
		m, r := race(rounds, ours, l.crowd(ctx, l.benchServe(ctx, l.dir, against), callers, lookOnce))
		return faster(m, r, least)
	}
}

// serveSDK serves the same tool with the official SDK for Go, and nothing in front of it: no caller, no policy.
func serveSDK(ctx context.Context) error {
	s := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "look", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	options := &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}
	return serveBare(ctx, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, options).ServeHTTP)
}

// bareMCP is the minimal server with the same answers: net/http and encoding/json.
func bareMCP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     json.RawMessage `json:"id"`
		Params struct {
			Arguments json.RawMessage `json:"arguments"`
		} `json:"params"`
	}
	if !decode(w, r, &req) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": req.ID, "result": map[string]any{
		"resultType": "complete", "content": []any{map[string]any{"type": "text", "text": string(req.Params.Arguments)}},
	}})
}

// mcpList measures how long a client takes to list 10,000 tools, page by page.
func mcpList(ctx context.Context, l *lab) row {
	const tools = 10_000
	_, url := l.serveNode(ctx, filepath.Join(l.dir, "mcplist"), `sources: [{name: bench, protocol: many}]
doors: {http: {}, mcp: {search_above: off}}
policy: {rules: [{name: no-deletes, effect: deny, tools: deleteFile}]}
`)
	client := l.client(1)
	var size int
	m := alone(11, clock(func() (err error) { size, err = listAll(ctx, client, url+"/mcp", tools); return err }))
	return within(m, 100*time.Millisecond, row{reference: fmt.Sprintf("%.1f MB", float64(size)/1e6), ratio: "-"})
}

func listAll(ctx context.Context, client *http.Client, url string, want int) (size int, err error) {
	header := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Authorization": {"Bearer " + benchToken}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/list"},
	}
	found := 0
	for cursor := ""; ; {
		body, err := post(ctx, client, url, header, fmt.Sprintf(listCall, cursor))
		if err != nil {
			return 0, err
		}
		size += len(body)
		found += bytes.Count(body, []byte(`"inputSchema":`))
		_, rest, more := bytes.Cut(body, []byte(`"nextCursor":"`))
		if !more {
			break
		}
		next, _, _ := bytes.Cut(rest, []byte(`"`))
		cursor = string(next)
	}
	if found != want {
		err = fmt.Errorf("%d tools were listed", found)
	}
	return size, err
}

// many is a source with many tools of the usual size.
type many struct{ echo }

func (many) Tools(context.Context) ([]*tool.Spec, error) {
	var specs []*tool.Spec
	for n := range 10_000 {
		specs = append(specs, &tool.Spec{
			Name: fmt.Sprintf("tool_%05d", n), Description: "Looks something up and gives what it found, with where it was.",
			Input: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","description":"what to look for"},` +
				`"limit":{"type":"integer","minimum":1,"maximum":100,"description":"how much to give"}},"required":["query"]}`),
			Effects: tool.Effects{Reads: true},
		})
	}
	return specs, nil
}
