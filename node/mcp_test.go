package node_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"toolpost/node"
	"toolpost/tool"
)

// A dead MCP server hides no other tools, and its own come back with it.
func TestADeadMCPServerHidesNothingElse(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := at.Addr().String()
	_ = at.Close()
	n := open(t, parse(t, t.TempDir(), fmt.Sprintf(
		"sources: [{name: files, protocol: builtin}, {name: up, protocol: mcp, url: \"http://%s/\"}]\n", addr)), node.Options{})
	defer shut(t, n)
	if _, err := n.Catalog().Lookup(t.Context(), tool.Principal{}, "readFile"); err != nil {
		t.Errorf("a dead source hides another: %v", err)
	}
	dead := n.Sources()[1]
	if tool.CodeOf(dead.Err) != tool.CodeUnavailable {
		t.Errorf("the dead source says %v", dead.Err)
	}
	if at, err = net.Listen("tcp", addr); err != nil {
		t.Skipf("another program took the port: %v", err)
	}
	s := &httptest.Server{Listener: at, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(bareMCP)}}
	s.Start()
	defer s.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		res, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: "hello"}, tool.Discard)
		if err == nil && string(res.Output) == `"hello"` {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the tools did not come back: %+v, %v", res, err)
		}
	}
}

// bareMCP is a minimal MCP server.
func bareMCP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	result := map[string]string{
		"server/discover": `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`,
		"tools/list":      `"tools":[{"name":"hello","inputSchema":{"type":"object"}}]`,
		"tools/call":      `"content":[{"type":"text","text":"hello"}]`,
	}[m.Method]
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, m.ID, result)
}
