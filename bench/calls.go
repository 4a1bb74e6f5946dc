package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/bench/attempt"
	"toolpost/builtin"
	"toolpost/node"
	"toolpost/protocol/alphahuman"
	"toolpost/tool"
)

const greeter = `def greet(payload):
    return {"message": "Hello " + payload["name"]}
`

const greetConfig = `sources:
  - {name: greet, protocol: namel3ss, tool: greeter, entry: "tools.sample:greet"}
  - {name: files, protocol: builtin}
`

const plainPython = `import json, sys
from tools.sample import greet
json.dump(greet(json.load(sys.stdin)), sys.stdout)
`

// greeting is a folder with one Python tool.
func greeting() map[string]string {
	return map[string]string{"tools/sample.py": greeter, "plain.py": plainPython, "toolpost.yaml": greetConfig}
}

// warmCall compares a call through the whole engine, in a clean forked process, with what everybody does
// first: start python3, import, call.
func warmCall(ctx context.Context, l *lab) row {
	dir := filepath.Join(l.dir, "warm")
	n := l.open(ctx, dir, greeting())
	// The real python3, so that the reference does not pay for a shim in front of it.
	python := attempt.Must(exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.executable)").Output())
	m, r := compare(50,
		clock(greet(ctx, n, "greeter")),
		clock(func() error {
			cmd := exec.CommandContext(ctx, strings.TrimSpace(string(python)), "plain.py")
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(`{"name":"Ada"}`)
			return wantHello(cmd.Output())
		}))
	ratio := float64(r) / float64(m)
	return row{
		measured: ms(m), reference: ms(r), ratio: fmt.Sprintf("%.1fx as fast", ratio), target: ">= 5x",
		pass: ratio >= 5,
	}
}

func wantHello(out []byte, err error) error {
	if err == nil && !bytes.Contains(out, []byte("Hello Ada")) {
		err = fmt.Errorf("unexpected answer %q", out)
	}
	return err
}

// overhead compares a built-in call through the engine with one to its handler, in batches: a single call
// is too short for the clock.
func overhead(ctx context.Context, l *lab) row {
	dir := filepath.Join(l.dir, "overhead")
	n := l.openNode(ctx, dir, greeting(), node.Options{})
	state, log := filepath.Join(dir, "state"), slog.New(slog.DiscardHandler)
	direct := attempt.Must(builtin.New(ctx, dir, state, builtin.Options{}, log))
	defer direct.Close(ctx)
	call := &tool.Call{Tool: "readFile", Args: []byte(`{"path":"tools/sample.py"}`)}
	resolved := *call
	resolved.Spec = attempt.Must(n.Catalog().Lookup(ctx, tool.Principal{}, "readFile"))
	m, r := compare(31,
		batch(1_000, func() error { _, err := invoke(ctx, n.Handler(), call); return err }),
		batch(1_000, func() error { _, err := invoke(ctx, direct, &resolved); return err }))
	return over(m, r, 20*time.Microsecond)
}

const (
	skillConfig = `sources: [{name: skill, protocol: alphahuman, skill: ./hello}]
`
	skillLine = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}` +
		"\n"
)

// skillCall compares a call through the whole engine to a skill that runs already with a line to the same
// program and a line back.
func skillCall(ctx context.Context, l *lab) row {
	dir := filepath.Join(l.dir, "skill")
	skill := attempt.Must(alphahuman.Skills{}.New(dir, "hello"))
	n := l.open(ctx, dir, map[string]string{"toolpost.yaml": skillConfig})
	bare := l.start(ctx, skill, "python3", "skill.py")
	m, r := compare(301,
		batch(20, greet(ctx, n, "greet")),
		batch(20, func() error { return bare.turns(1, skillLine, "Hello Ada") }))
	return asLong(m, r, us, 2)
}

// serviceCall compares a call through the whole engine to a tool behind HTTP with a client that posts the
// same document to the same server and reads the answer.
func serviceCall(ctx context.Context, l *lab) row {
	var last atomic.Pointer[[]byte] // what the server was asked last
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // half a body fails on the client's side
		last.Store(&body)
		_, _ = io.WriteString(w, `{"ok":true,"result":{"message":"Hello Ada"}}`)
	}))
	defer srv.Close()
	cfg := fmt.Sprintf("sources: [{name: svc, protocol: namel3ss, tool: greeter, runner: service, url: %q}]\n",
		srv.URL+"/tools")
	call := greet(ctx, l.open(ctx, filepath.Join(l.dir, "service"), map[string]string{"toolpost.yaml": cfg}), "greeter")
	attempt.Check(call())
	document := *last.Load()
	m, r := compare(301,
		batch(20, call),
		batch(20, func() error { return wantHello(post(ctx, srv.Client(), srv.URL+"/tools", document)) }))
	return asLong(m, r, us, 1.5)
}

func post(ctx context.Context, client *http.Client, url string, document []byte) ([]byte, error) {
	req := attempt.Must(http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(document)))
	req.Header.Set("Content-Type", "application/json")
	resp := attempt.Must(client.Do(req))
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

const hello = `package main

import "fmt"

func main() { fmt.Println("hello, world") }
`

// start compares how long the two programs take from start to exit.
func start(ctx context.Context, l *lab) row {
	toolpost := attempt.Must(filepath.Abs(l.toolpost))
	helloWorld := buildHello(ctx, l.dir)
	m, r := compare(101,
		clock(func() error { return exec.CommandContext(ctx, toolpost, "version").Run() }),
		clock(func() error { return exec.CommandContext(ctx, helloWorld).Run() }))
	return asLong(m, r, ms, 6)
}

func buildHello(ctx context.Context, dir string) string {
	source, binary := filepath.Join(dir, "hello.go"), filepath.Join(dir, "hello")
	attempt.Check(os.WriteFile(source, []byte(hello), 0o644))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		attempt.Check(fmt.Errorf("go build: %w\n%s", err, out))
	}
	return binary
}
