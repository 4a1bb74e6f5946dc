package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toolpost/bench/attempt"
	"toolpost/builtin"
	"toolpost/node"
	"toolpost/tool"
)

// overhead compares a built-in call through the engine with a direct call of its handler, in batches: a single call is
// too short for the clock.
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

// readThrough compares reading a file through the whole engine with reading it directly.
func readThrough(ctx context.Context, l *lab) row {
	dir := filepath.Join(l.dir, "read")
	n := l.open(ctx, dir, map[string]string{
		"toolpost.yaml": "sources: [{name: files, protocol: builtin}]\n",
		"f.txt":         strings.Repeat("some text of a file\n", 200),
	})
	call := &tool.Call{Tool: "readFile", Args: []byte(`{"path":"f.txt"}`)}
	m, r := compare(31,
		batch(1_000, func() error { _, err := invoke(ctx, n, call); return err }),
		batch(1_000, func() error { _, err := os.ReadFile(filepath.Join(dir, "f.txt")); return err }))
	return over(m, r, 30*time.Microsecond)
}
