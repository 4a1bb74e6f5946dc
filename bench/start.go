package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"toolpost/bench/attempt"
)

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
