package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"toolpost/bench/attempt"
	"toolpost/examples"
)

const hello = `package main

import "fmt"

func main() { fmt.Println("hello, world") }
`

// start compares how long the two programs take from start to exit.
func start(ctx context.Context, l *lab) row {
	toolpost := attempt.Must(filepath.Abs(l.toolpost))
	version := func() error { return exec.CommandContext(ctx, toolpost, "version").Run() }
	m, r := compare(101, clock(version), clock(l.helloWorld(ctx)))
	return asLong(m, r, ms, 12)
}

// helloWorld returns one run of a program that prints hello.
func (l *lab) helloWorld(ctx context.Context) func() error {
	program := l.once("hello", func(binary string) {
		source := binary + ".go"
		attempt.Check(os.WriteFile(source, []byte(hello), 0o644))
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			attempt.Check(fmt.Errorf("go build: %w\n%s", err, out))
		}
	})
	return func() error { return exec.CommandContext(ctx, program).Run() }
}

// builtinsAlone is a config with only built-in tools; it records calls as usual.
const builtinsAlone = `sources:
  - {name: files, protocol: builtin, roots: [{path: .}]}
`

// startCall compares a call of a built-in tool without a server, from the start of the program to its exit, with a
// program that prints hello.
func startCall(ctx context.Context, l *lab) row {
	m, r := compare(101, clock(l.callAlone(ctx)), clock(l.helloWorld(ctx)))
	return asLong(m, r, ms, 8)
}

// startCallAmong compares the same call with a config that also has the sources of `toolpost init`, and a server that
// would take a minute to open, with the call without them.
func startCallAmong(ctx context.Context, l *lab) row {
	dir := attempt.Must(os.MkdirTemp(l.dir, "among"))
	attempt.Check(os.CopyFS(dir, examples.Files))
	text := string(attempt.Must(fs.ReadFile(examples.Files, "toolpost.yaml")))
	slow := "sources:\n  - {name: slow, protocol: mcp, command: [sleep, '60']}\n"
	among := l.oneCall(ctx, dir, strings.Replace(text, "sources:\n", slow, 1))
	m, r := compare(101, clock(among), clock(l.callAlone(ctx)))
	return asLong(m, r, ms, 1.1)
}

// startListening measures how long it takes from the start of a server until a client can connect, although one of its
// sources never opens, beside a program that prints hello.
func startListening(ctx context.Context, l *lab) row {
	dir := attempt.Must(os.MkdirTemp(l.dir, "listening"))
	writeFiles(dir, map[string]string{
		"toolpost.yaml": builtinsAlone + "  - {name: slow, protocol: mcp, command: [sleep, '60']}\n",
	})
	m, r := compare(21, l.untilConnected(ctx, dir), clock(l.helloWorld(ctx)))
	return within(m, 100*time.Millisecond, longer(m, r, ms))
}

// untilConnected starts a server in a folder, and returns how long it took until a client could connect.
func (l *lab) untilConnected(ctx context.Context, dir string) timed {
	toolpost, socket := attempt.Must(filepath.Abs(l.toolpost)), filepath.Join(dir, "s")
	return func() (took time.Duration, err error) {
		cmd := exec.CommandContext(ctx, toolpost, "serve", "--listen", "unix:"+socket)
		cmd.Dir = dir
		var errs bytes.Buffer
		cmd.Stderr = &errs
		began := time.Now()
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for took == 0 {
			if conn, err := new(net.Dialer).DialContext(ctx, "unix", socket); err == nil {
				took = time.Since(began)
				_ = conn.Close()
			}
			select {
			case err := <-ended:
				return 0, fmt.Errorf("toolpost serve ended before a client could connect: %v\n%s", err, errs.Bytes())
			case <-time.After(200 * time.Microsecond):
			}
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return took, <-ended
	}
}

// callAlone returns a call of a built-in tool with no other sources.
func (l *lab) callAlone(ctx context.Context) func() error {
	return l.oneCall(ctx, attempt.Must(os.MkdirTemp(l.dir, "alone")), builtinsAlone)
}

// oneCall returns a call of a built-in tool in a folder, with a config.
func (l *lab) oneCall(ctx context.Context, dir, text string) func() error {
	writeFiles(dir, map[string]string{"toolpost.yaml": text, "note.txt": "hello\n"})
	toolpost := attempt.Must(filepath.Abs(l.toolpost))
	return func() error {
		cmd := exec.CommandContext(ctx, toolpost, "call", "readFile", "path=note.txt")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err == nil && string(out) != "hello\n" {
			err = fmt.Errorf("unexpected answer %q", out)
		}
		return err
	}
}
