package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"toolpost/builtin"
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
func warmCall(ctx context.Context, l lab) (_ row, err error) {
	dir := filepath.Join(l.dir, "warm")
	n, err := openNode(ctx, dir, greeting())
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, closeNode(n)) }()
	python, err := interpreter(ctx)
	if err != nil {
		return row{}, err
	}
	call := &tool.Call{Tool: "greeter", Args: []byte(`{"name":"Ada"}`)}
	m, r, err := compare(50,
		clock(func() error { return wantHello(invoke(ctx, n.Handler(), call)) }),
		clock(func() error {
			cmd := exec.CommandContext(ctx, python, "plain.py")
			cmd.Dir, cmd.Stdin = dir, bytes.NewReader(call.Args)
			return wantHello(cmd.Output())
		}))
	ratio := float64(r) / float64(m)
	return row{
		measured: ms(m), reference: ms(r), ratio: fmt.Sprintf("%.1fx as fast", ratio), target: ">= 5x",
		pass: ratio >= 5,
	}, err
}

func wantHello(out []byte, err error) error {
	if err == nil && !bytes.Contains(out, []byte("Hello Ada")) {
		err = fmt.Errorf("unexpected answer %q", out)
	}
	return err
}

// interpreter finds the real python3, so that the reference does not pay for a shim in front of it.
func interpreter(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
}

// overhead compares a built-in call through the engine with one to its handler, in batches: a single call
// is too short for the clock.
func overhead(ctx context.Context, l lab) (_ row, err error) {
	dir := filepath.Join(l.dir, "overhead")
	n, err := openNode(ctx, dir, greeting())
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, closeNode(n)) }()
	direct, err := builtin.New(ctx, dir, filepath.Join(dir, "state"), builtin.Options{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return row{}, err
	}
	defer direct.Close(ctx)
	spec, err := n.Catalog().Lookup(ctx, tool.Principal{}, "readFile")
	if err != nil {
		return row{}, err
	}
	call := &tool.Call{Tool: "readFile", Args: []byte(`{"path":"tools/sample.py"}`)}
	resolved := *call
	resolved.Spec = spec
	m, r, err := compare(31,
		batch(1_000, func() error { _, err := invoke(ctx, n.Handler(), call); return err }),
		batch(1_000, func() error { _, err := invoke(ctx, direct, &resolved); return err }))
	over := m - r
	return row{
		measured: us(m), reference: us(r), ratio: "+" + us(over), target: "< 20 µs", pass: over < 20*time.Microsecond,
	}, err
}
