package node_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

// A dead MCP server hides no other tools, and its own come back with it.
func TestADeadMCPServerHidesNothingElse(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	kit.OK(t, err)
	addr := at.Addr().String()
	_ = at.Close()
	n := open(t, parse(t, t.TempDir(), fmt.Sprintf(
		"sources: [{name: files, protocol: builtin}, {name: up, protocol: mcp, url: \"http://%s/\"}]\n", addr)), node.Options{})
	defer shut(t, n)
	kit.Check(t, kit.Err(n.Catalog().Lookup(t.Context(), tool.Principal{}, "readFile")), "a dead source hides another")
	dead := n.Sources()[1]
	kit.Equal(t, tool.CodeOf(dead.Err), tool.CodeUnavailable, "the dead source says %v", dead.Err)
	if at, err = net.Listen("tcp", addr); err != nil {
		t.Skipf("another program took the port: %v", err)
	}
	s := &httptest.Server{Listener: at, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(bareMCP)}}
	s.Start()
	defer s.Close()
	kit.Until(t, func() error {
		res, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: "hello"}, tool.Discard)
		if err != nil || string(res.Output) != `"hello"` {
			return fmt.Errorf("the tools did not come back: %+v, %v", res, err)
		}
		return nil
	})
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
