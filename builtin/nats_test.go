package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/node"
)

const token = "sixteen-letters-or-more"

// A peer talks to a whole Toolpost over NATS, in the form of the contract.
type peer struct {
	t   *testing.T
	dir string // the offered folder, writable
	nc  *nats.Conn
}

func newPeer(t *testing.T, more ...string) *peer {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	offered := filepath.Join(dir, "offered")
	kit.OK(t, os.Mkdir(offered, 0o755))
	text := `
sources: [{name: files, protocol: builtin, roots: [{path: offered, write: true, codebase: my-proj}], shell: {allow: [ls, grep, head, cp]}}]
doors: {nats: {embedded: true, listen: "127.0.0.1:0"}}
` + strings.Join(more, "\n")
	cfg := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))(t)
	nc := kit.Must(nats.Connect(serve(t, cfg), nats.Token(token), nats.Timeout(time.Minute)))(t)
	t.Cleanup(nc.Close)
	return &peer{t, offered, nc}
}

// serve runs a node and returns the address of its door.
func serve(t *testing.T, cfg *config.Config) string {
	t.Helper()
	ready := make(chan node.Listening, 8)
	n, err := node.Open(t.Context(), cfg, node.Options{Token: token, Ready: func(l node.Listening) { ready <- l }})
	kit.OK(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		kit.Check(t, <-ended, "serving ended badly")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		kit.Check(t, n.Close(ctx))
	})
	select {
	case l := <-ready:
		return l.URL
	case err := <-ended:
		t.Fatalf("serving ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the door did not open")
	}
	return ""
}

// ask sends a request and returns the answer, both with DIR in place of the folder.
func (p *peer) ask(subject, request string) any {
	p.t.Helper()
	m, err := p.nc.Request(subject, []byte(strings.ReplaceAll(request, "DIR", p.dir)), time.Minute)
	kit.OK(p.t, err, "%s %s", subject, request)
	return parse(p.t, strings.ReplaceAll(string(m.Data), p.dir, "DIR"))
}

func parse(t *testing.T, text string) (v any) {
	t.Helper()
	kit.OK(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

func TestTheFileSubjectsAnswerAsTheContractPrintsInBothStyles(t *testing.T) {
	p := newPeer(t)
	for _, c := range []struct{ subject, request, want string }{
		{"tools.file.write", `{"path": "DIR/file.txt", "content": "content to write"}`, `{"data": {"bytes_written": 16}, "error": null}`},
		{"tools.file.read", `{"path": "DIR/file.txt"}`, `{"data": "content to write", "error": null}`},
		{"tools.file.list", `{"path": "DIR", "recursive": true, "pattern": "*.txt"}`, `{"data": [{"path": "DIR/file.txt", "size": 16, "type": "file"}], "error": null}`},
		{
			"tools.file.read", `{"tool_call_id": "call_abc123", "function": {"name": "readFile", "arguments": "{\"path\":\"DIR/file.txt\"}"}}`,
			`{"tool_call_id": "call_abc123", "role": "tool", "name": "readFile", "content": "content to write"}`,
		},
		{
			"tools.file.read", `{"id": "call_abc123", "type": "function", "function": {"name": "readFile", "arguments": "{\"path\":\"DIR/file.txt\"}"}}`,
			`{"tool_call_id": "call_abc123", "role": "tool", "name": "readFile", "content": "content to write"}`,
		},
		{
			"tools.file.write", `{"tool_call_id": "c1", "function": {"name": "writeFile", "arguments": "{\"path\":\"DIR/file.txt\",\"content\":\"new\"}"}}`,
			`{"tool_call_id": "c1", "role": "tool", "name": "writeFile", "content": "{\"bytes_written\":3}"}`,
		},
		{
			"tools.file.list", `{"tool_call_id": "c2", "function": {"name": "listFiles", "arguments": {"path": "DIR"}}}`,
			`{"tool_call_id": "c2", "role": "tool", "name": "listFiles", "content": "[{\"path\":\"DIR/file.txt\",\"size\":3,\"type\":\"file\"}]"}`,
		},
		{"tools.file.delete", `{"path": "DIR/file.txt"}`, `{"data": {"deleted": true}, "error": null}`},
		{
			"tools.file.delete", `{"tool_call_id": "c3", "function": {"name": "deleteFile", "arguments": "{\"path\":\"DIR/file.txt\"}"}}`,
			`{"tool_call_id": "c3", "role": "tool", "name": "deleteFile", "content": "Error: NotFound: DIR/file.txt: no such file in the offered folders (offered)"}`,
		},
		{"tools.file.read", `{"path": "DIR/none"}`, `{"data": null, "error": "NotFound: DIR/none: no such file in the offered folders (offered)"}`},
		{"tools.file.read", `{"path": "/etc/passwd"}`, `{"data": null, "error": "AccessDenied: /etc/passwd is not allowed: it is outside the offered folders (offered)"}`},
		{"tools.file.write", `{"path": "DIR/.env", "content": ""}`, `{"data": null, "error": "AccessDenied: DIR/.env is not allowed: files with such names hold secrets"}`},
	} {
		kit.Equal(t, cmp.Diff(parse(t, c.want), p.ask(c.subject, c.request)),
			"", "%s %s (-contract +ours)", c.subject, c.request)
	}
}

func TestShellAndCodeSubjectsAnswerAsTheContractPrints(t *testing.T) {
	p := newPeer(t)
	p.write(map[string]string{
		"lib/my_controller.ex": "defmodule MyController do\nend\n",
		"src/handler.ts":       "async function handler(req, res) {\n  return res.send(req.body)\n}\n",
	})
	for _, c := range []struct{ subject, request, want string }{
		{"tools.shell.exec", `{"command": "ls", "args": ["-a", "DIR/lib"], "cwd": "DIR"}`, `{"data": {"stdout": ".\n..\nmy_controller.ex\n", "stderr": "", "exit_code": 0}, "error": null}`},
		{"tools.shell.exec", `{"command": "rm"}`, `{"data": null, "error": "Command 'rm' is not allowed by security policy"}`},
		{
			"tools.shell.exec", `{"tool_call_id": "c1", "function": {"name": "execShell", "arguments": "{\"command\":\"ls\",\"args\":[\"lib\"]}"}}`,
			`{"tool_call_id": "c1", "role": "tool", "name": "execShell", "content": "{\"stdout\":\"my_controller.ex\\n\",\"stderr\":\"\",\"exit_code\":0}"}`,
		},
		{
			"tools.code.grep", `{"pattern": "defmodule.*Controller", "path": "DIR/lib", "ignore_case": false}`,
			`{"data": [{"path": "DIR/lib/my_controller.ex", "line": 1, "content": "defmodule MyController do"}], "error": null}`,
		},
		{
			"tools.code.grep", `{"pattern": "defmodule.*Controller"}`,
			`{"data": [{"path": "/lib/my_controller.ex", "line": 1, "content": "defmodule MyController do"}], "error": null}`,
		},
		{
			"tools.code.grep", `{"pattern": "defmodule.*Controller", "path": "/lib", "ignore_case": false}`,
			`{"data": [{"path": "/lib/my_controller.ex", "line": 1, "content": "defmodule MyController do"}], "error": null}`,
		},
		{
			"tools.code.grep", `{"tool_call_id": "c2", "function": {"name": "grepCode", "arguments": "{\"pattern\":\"defmodule.*Controller\",\"path\":\"lib\"}"}}`,
			`{"tool_call_id": "c2", "role": "tool", "name": "grepCode", "content": "[{\"path\":\"lib/my_controller.ex\",\"line\":1,\"content\":\"defmodule MyController do\"}]"}`,
		},
	} {
		kit.Equal(t, cmp.Diff(parse(t, c.want), p.ask(c.subject, c.request)),
			"", "%s %s (-contract +ours)", c.subject, c.request)
	}
	answer, _ := p.ask("tools.code.search", `{"query": "async function handler", "limit": 10, "codebase_id": "my-proj"}`).(map[string]any)
	hits, _ := answer["data"].([]any)
	if len(hits) == 0 || answer["error"] != nil {
		t.Fatalf("tools.code.search: %v", answer)
	}
	for _, subject := range []string{"tools.execute.searchCode", "tools.code.search"} {
		again, _ := p.ask(subject, `{"tool_call_id": "c3", "function": {"name": "searchCode", "arguments": {"query": "async function handler"}}}`).(map[string]any)
		var rows []map[string]any
		if err := json.Unmarshal([]byte(fmt.Sprint(again["content"])), &rows); err != nil || len(rows) == 0 ||
			len(rows[0]) != 4 || rows[0]["path"] != "/src/handler.ts" {
			t.Errorf("%s: %v, %v", subject, again, err)
		}
	}
	best := hits[0].(map[string]any)
	similarity, _ := best["similarity"].(float64)
	snippet, _ := best["snippet"].(string)
	if len(best) != 4 || best["path"] != "/src/handler.ts" || best["line"] != 1.0 ||
		!strings.HasPrefix(snippet, "async function handler") || similarity <= 0 || similarity > 1 {
		t.Errorf("tools.code.search: the best hit is %v", best)
	}
}
