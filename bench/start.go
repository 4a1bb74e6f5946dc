package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/bench/attempt"
	"toolpost/examples"
)

// builtinsAlone is a config with nothing but built-in tools; it keeps its record as usual.
const builtinsAlone = `sources: [{name: files, protocol: builtin, roots: [{path: .}]}]
`

// startCall compares a call of a built-in tool without a server, from the start of the program to its exit, with a
// program that says hello.
func startCall(ctx context.Context, l *lab) row {
	ours := l.oneCall(ctx, "alone", func(dir string) { writeConfig(dir, builtinsAlone) })
	helloWorld := buildHello(ctx, l.dir)
	m, r := compare(101, clock(ours), clock(func() error { return exec.CommandContext(ctx, helloWorld).Run() }))
	return asLong(m, r, ms, 8)
}

// startCallAmong compares the same call where the config has the sources of `toolpost init` too, and a server that would
// take a minute to open, with the one where it has none.
func startCallAmong(ctx context.Context, l *lab) row {
	alone := l.oneCall(ctx, "alone", func(dir string) { writeConfig(dir, builtinsAlone) })
	among := l.oneCall(ctx, "among", func(dir string) {
		attempt.Check(os.CopyFS(dir, examples.Files))
		text := string(attempt.Must(fs.ReadFile(examples.Files, "toolpost.yaml")))
		slow := "sources:\n  - {name: slow, protocol: mcp, command: [sleep, '60']}\n"
		writeConfig(dir, strings.Replace(text, "sources:\n", slow, 1))
	})
	m, r := compare(101, clock(among), clock(alone))
	return asLong(m, r, ms, 1.1)
}

func writeConfig(dir, text string) {
	attempt.Check(os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(text), 0o644))
}

// oneCall gives the call of a built-in tool in a new folder.
func (l *lab) oneCall(ctx context.Context, name string, fill func(dir string)) func() error {
	dir := attempt.Must(os.MkdirTemp(l.dir, name))
	fill(dir)
	attempt.Check(os.WriteFile(filepath.Join(dir, "note.txt"), []byte("hello\n"), 0o644))
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

// settled is how long after its start a server is looked at.
const settled = 10 * time.Second

// memoryOfExamples measures what a server with the sources of `toolpost init` takes.
func memoryOfExamples(ctx context.Context, l *lab) row {
	dir := attempt.Must(os.MkdirTemp(l.dir, "memory"))
	attempt.Check(os.CopyFS(dir, examples.Files))
	return l.memory(ctx, dir, 25)
}

// memoryOfMany measures what a server takes that has a source of 1,000 tools, after they have been listed.
func memoryOfMany(ctx context.Context, l *lab) row {
	dir := attempt.Must(os.MkdirTemp(l.dir, "memory"))
	paths := map[string]any{}
	for n := range 1000 {
		paths[fmt.Sprintf("/things/%d", n)] = json.RawMessage(fmt.Sprintf(`{"get":{"operationId":"get_thing_%d",`+
			`"summary":"Gives thing %d, with all that is known about it.","parameters":[`+
			`{"name":"q","in":"query","description":"what to look for","schema":{"type":"string"}},`+
			`{"name":"limit","in":"query","schema":{"type":"integer","minimum":1,"maximum":100}}],`+
			`"responses":{"200":{"description":"the thing","content":{"application/json":{"schema":{"type":"object",`+
			`"properties":{"name":{"type":"string"},"size":{"type":"integer"}}}}}}}}}`, n, n))
	}
	document := attempt.Must(json.Marshal(map[string]any{
		"openapi": "3.1.0", "info": map[string]string{"title": "things", "version": "1"},
		"servers": []map[string]string{{"url": "http://127.0.0.1:9"}}, "paths": paths,
	}))
	attempt.Check(os.WriteFile(filepath.Join(dir, "api.json"), document, 0o644))
	writeConfig(dir, "sources: [{name: things, protocol: openapi, document: ./api.json}]\ndoors: {http: {}}\n")
	return l.memory(ctx, dir, 40)
}

// memory serves a folder, has its tools listed, and looks at what the program takes once it has settled; MiB is the limit.
func (l *lab) memory(ctx context.Context, dir string, limit float64) row {
	began := time.Now()
	cmd := exec.CommandContext(ctx, l.coldCopy(), "serve", "--listen", "127.0.0.1:0")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TOOLPOST_TOKEN="+benchToken)
	out := attempt.Must(cmd.StdoutPipe())
	attempt.Check(cmd.Start())
	l.atEnd(func() error {
		return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	})
	listTools(ctx, servedAt(out))
	go func() { _, _ = io.Copy(io.Discard, out) }()
	time.Sleep(time.Until(began.Add(settled)))
	all, files := resident(cmd.Process.Pid, "VmRSS"), resident(cmd.Process.Pid, "RssFile")
	return row{
		measured: fmt.Sprintf("%.1f MiB", all), reference: fmt.Sprintf("%.1f MiB of it files", files), ratio: "-",
		target: fmt.Sprintf("< %g MiB", limit), pass: all < limit,
	}
}

// coldCopy gives a copy of the program that is not in the kernel's cache. Of one that has just been written the cache
// has pieces of up to two megabytes, and whoever uses a byte is counted for all of its piece: the same program would
// take ten megabytes more on the day when it was built.
func (l *lab) coldCopy() string {
	path := filepath.Join(attempt.Must(os.MkdirTemp(l.dir, "program")), "toolpost")
	attempt.Check(os.WriteFile(path, attempt.Must(os.ReadFile(l.toolpost)), 0o755))
	f := attempt.Must(os.Open(path))
	defer f.Close()
	attempt.Check(f.Sync())
	attempt.Check(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	return path
}

// servedAt reads what a server prints until it says where it is.
func servedAt(out io.Reader) string {
	url := regexp.MustCompile(`serving on (http://[0-9.:]+)`)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := url.FindStringSubmatch(lines.Text()); found != nil {
			return found[1]
		}
	}
	attempt.Check(fmt.Errorf("the server ended before it served: %w", lines.Err()))
	return ""
}

func listTools(ctx context.Context, url string) {
	req := attempt.Must(http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/tools", nil))
	req.Header.Set("Authorization", "Bearer "+benchToken)
	resp := attempt.Must(http.DefaultClient.Do(req))
	defer resp.Body.Close()
	attempt.Must(io.Copy(io.Discard, resp.Body))
	if resp.StatusCode != http.StatusOK {
		attempt.Check(fmt.Errorf("the tools could not be listed: %s", resp.Status))
	}
}

// resident reads a line of what the kernel says of a process, in MiB.
func resident(pid int, name string) float64 {
	status := string(attempt.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))))
	_, rest, _ := strings.Cut(status, name+":")
	words := append(strings.Fields(rest), "")
	return float64(attempt.Must(strconv.Atoi(words[0]))) / 1024
}
