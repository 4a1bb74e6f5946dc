package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	gomcp "github.com/mark3labs/mcp-go/mcp"
	goserver "github.com/mark3labs/mcp-go/server"

	"toolpost/bench/attempt"
)

// serveMCPGo serves the same tool with the library that most programs in Go use, and nothing in front of it.
func serveMCPGo(ctx context.Context) error {
	s := goserver.NewMCPServer("mcp-go", "1")
	s.AddTool(gomcp.NewToolWithRawSchema("look", "", json.RawMessage(`{"type":"object"}`)),
		func(_ context.Context, r gomcp.CallToolRequest) (*gomcp.CallToolResult, error) {
			text, err := json.Marshal(r.GetArguments())
			return gomcp.NewToolResultText(string(text)), err
		})
	return serveBare(ctx, goserver.NewStreamableHTTPServer(s, goserver.WithStateLess(true)).ServeHTTP)
}

// proxyConfig has a server behind a pipe, whose tool is declared read-only and trusted to be so.
const proxyConfig = `sources: [{name: up, protocol: mcp, command: [%q, %q], trust_hints: true}]
policy: {rules: [{name: no-deletes, effect: deny, tools: deleteFile}]}
store: {url: %q}
`

// proxied compares calls of a server behind a pipe through us, with token, policy and record, with a proxy that only
// gives each request an id of its own.
func proxied(callers int, least float64) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		dir := filepath.Join(l.dir, fmt.Sprint("proxy", callers))
		text := fmt.Sprintf(proxyConfig, attempt.Must(os.Executable()), wordPipe, recorded)
		ours := l.crowd(ctx, l.toolpostServe(ctx, dir, map[string]string{"toolpost.yaml": text}), callers, lookOnce).recording()
		m, r := race(rounds, ours, l.crowd(ctx, l.benchServe(ctx, l.dir, wordProxy), callers, lookOnce))
		return faster(m, r, least)
	}
}

// servePipe is the server behind the pipe.
func servePipe() {
	out := bufio.NewWriter(os.Stdout)
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		attempt.Check(err)
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Arguments json.RawMessage `json:"arguments"`
			} `json:"params"`
		}
		if attempt.Check(json.Unmarshal(line, &m)); m.ID == nil {
			continue
		}
		text, err := json.Marshal(string(m.Params.Arguments))
		attempt.Check(err)
		result := `"content":[{"type":"text","text":` + string(text) + `}]`
		switch m.Method {
		case "server/discover":
			result = `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`
		case "tools/list":
			result = `"tools":[{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]`
		}
		attempt.Must(fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`+"\n", m.ID, result))
		if in.Buffered() == 0 {
			attempt.Check(out.Flush())
		}
	}
}

// A proxy is the minimum that lets many callers share a pipe.
type proxy struct {
	mu    sync.Mutex
	in    io.Writer
	next  int
	waits map[int]chan json.RawMessage
}

func serveProxy(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, attempt.Must(os.Executable()), wordPipe)
	out := attempt.Must(cmd.StdoutPipe())
	p := &proxy{in: attempt.Must(cmd.StdinPipe()), waits: map[int]chan json.RawMessage{}}
	attempt.Check(cmd.Start())
	go p.read(out)
	err := serveBare(ctx, p.ServeHTTP)
	_ = cmd.Wait() // it was killed
	return err
}

func (p *proxy) read(out io.Reader) {
	for in := bufio.NewScanner(out); in.Scan(); {
		var m struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
		}
		attempt.Check(json.Unmarshal(in.Bytes(), &m))
		p.mu.Lock()
		to := p.waits[m.ID]
		delete(p.waits, m.ID)
		p.mu.Unlock()
		to <- m.Result
	}
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m map[string]json.RawMessage
	if !decode(w, r, &m) {
		return
	}
	id, answer := m["id"], make(chan json.RawMessage, 1)
	p.mu.Lock()
	p.next++
	p.waits[p.next] = answer
	m["id"] = json.RawMessage(strconv.Itoa(p.next))
	line, _ := json.Marshal(m) // it was decoded from JSON
	_, err := p.in.Write(append(line, '\n'))
	p.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	reply(w, map[string]any{"jsonrpc": "2.0", "id": id, "result": <-answer})
}
