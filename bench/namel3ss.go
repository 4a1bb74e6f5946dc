package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	"toolpost/bench/attempt"
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

// greeting returns a folder with one Python tool.
func greeting() map[string]string {
	return map[string]string{"tools/sample.py": greeter, "plain.py": plainPython, "toolpost.yaml": greetConfig}
}

// warmCall compares a call through the whole engine, in a clean forked process, with the obvious way: start python3,
// import, call.
func warmCall(ctx context.Context, l *lab) row {
	need("python3")
	dir := filepath.Join(l.dir, "warm")
	n := l.open(ctx, dir, greeting())
	python := realPython(ctx)
	m, r := compare(50,
		clock(greet(ctx, n, "greeter")),
		clock(func() error {
			cmd := exec.CommandContext(ctx, python, "plain.py")
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(`{"name":"Ada"}`)
			return wantHello(cmd.Output())
		}))
	ratio := float64(r) / float64(m)
	return row{
		measured: ms(m), reference: ms(r), ratio: fmt.Sprintf("%.1fx as fast", ratio), target: ">= 5x",
		pass: ratio >= 5,
	}
}

// realPython returns the path of python3, so that no reference pays for a shim in front of it.
func realPython(ctx context.Context) string {
	path := attempt.Must(exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.executable)").Output())
	return strings.TrimSpace(string(path))
}

func wantHello(out []byte, err error) error {
	if err == nil && !bytes.Contains(out, []byte("Hello Ada")) {
		err = fmt.Errorf("unexpected answer %q", out)
	}
	return err
}

// serviceCall compares a call through the whole engine to a tool behind HTTP with a client that posts the same document
// to the same server and reads the answer.
func serviceCall(ctx context.Context, l *lab) row {
	var last atomic.Pointer[[]byte] // the last request to the server
	srv := l.serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // half a body fails on the client's side
		last.Store(&body)
		_, _ = io.WriteString(w, `{"ok":true,"result":{"message":"Hello Ada"}}`)
	}))
	cfg := fmt.Sprintf("sources: [{name: svc, protocol: namel3ss, tool: greeter, runner: service, url: %q}]\n",
		srv.URL+"/tools")
	call := greet(ctx, l.open(ctx, filepath.Join(l.dir, "service"), map[string]string{"toolpost.yaml": cfg}), "greeter")
	attempt.Check(call())
	document := string(*last.Load())
	m, r := compare(301,
		batch(20, call),
		batch(20, func() error {
			header := http.Header{"Content-Type": {"application/json"}}
			return wantHello(post(ctx, srv.Client(), srv.URL+"/tools", header, document))
		}))
	return asLong(m, r, us, 1.3)
}
