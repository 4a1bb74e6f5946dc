package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"toolpost/bench/attempt"
)

// mcpAdded is how much longer a call may take through us than without us.
const mcpAdded = 150 * time.Microsecond

// mcpOverHTTP compares a call through the whole engine to a server over HTTP with a client that posts the same request to
// the same server and reads the answer. The server does as little as possible: that of the official SDK takes a
// millisecond for a call, which would hide the time that we add.
func mcpOverHTTP(ctx context.Context, l *lab) row {
	type asked struct {
		header http.Header
		body   []byte
	}
	var last atomic.Pointer[asked] // the last request
	srv := l.serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // half a body fails on the client's side
		last.Store(&asked{r.Header.Clone(), body})
		answerMCP(w, body, `[{"name":"greet","inputSchema":{"type":"object"}}]`)
	}))
	cfg := fmt.Sprintf("sources: [{name: up, protocol: mcp, url: %q}]\n", srv.URL)
	call := greet(ctx, l.open(ctx, filepath.Join(l.dir, "mcp-http"), map[string]string{"toolpost.yaml": cfg}), "greet")
	attempt.Check(call())
	again := *last.Load()
	m, r := compare(301, batch(20, call), batch(20, func() error {
		return wantHello(post(ctx, srv.Client(), srv.URL, again.header.Clone(), string(again.body)))
	}))
	return over(m, r, mcpAdded)
}

// answerMCP answers like a server with these tools, all of which greet Ada.
func answerMCP(w http.ResponseWriter, body []byte, tools string) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result := `"content":[{"type":"text","text":"Hello Ada"}]`
	switch m.Method {
	case "server/discover":
		result = `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`
	case "tools/list":
		result = `"tools":` + tools
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, m.ID, result)
}

const mcpProgram = `import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "server/discover":
        r = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}
    else:
        r = {"content": [{"type": "text", "text": "Hello " + m["params"]["arguments"]["name"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"resultType": "complete", **r}}), flush=True)
`

// greetLine is a call of greet in the format of MCP and skills.
const greetLine = `{"jsonrpc":"2.0","id":1,"method":"tools/call",` +
	`"params":{"name":"greet","arguments":{"name":"Ada"}}}` + "\n"

// mcpOverStdio compares a call through the whole engine to a running server with a line to the same program and a line
// back.
func mcpOverStdio(ctx context.Context, l *lab) row {
	dir := filepath.Join(l.dir, "mcp-stdio")
	n := l.open(ctx, dir, map[string]string{
		"toolpost.yaml": "sources: [{name: up, protocol: mcp, command: [python3, server.py]}]\n", "server.py": mcpProgram,
	})
	bare := l.start(ctx, dir, "python3", "server.py")
	m, r := compare(301,
		batch(20, greet(ctx, n, "greet")),
		batch(20, func() error { return bare.turns(1, greetLine, "Hello Ada") }))
	return over(m, r, mcpAdded)
}
