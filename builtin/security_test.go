package builtin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/internal/kit"
)

// newRoots returns a whole Toolpost over NATS with two folders that its owner sees, and one of another caller.
func newRoots(t *testing.T) *peer {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	kit.OK(t, err)
	p := &peer{t: t, dir: dir}
	p.write(map[string]string{
		"one/lib/a.ex": "defmodule A do\nend\n", "two/lib/b.ex": "defmodule B do\nend\n", "theirs/secret.ex": "defmodule Theirs do\nend\n",
		"one/.env": "KEY=1\n", "one/credentials.json": "{}", "one/big.txt": strings.Repeat("x", 5000),
		"one/loop.py": "while True: pass\n", "one/eats.py": "x = bytearray(600 << 20)\n",
	})
	cfg := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(`
sources:
  - name: files
    protocol: builtin
    roots: [{path: one, write: true}, {path: two, write: true}, {path: theirs, callers: [ada]}]
    max_file: 4096
    cache: {size: 100000}
    shell: {allow: [ls, python3], timeout: 1s}
    code: {rate: 3}
limits: {quotas: [{name: stats, per: caller, rate: 1/h, tools: statFile}]}
doors: {nats: {listen: "127.0.0.1:0"}}
`)))(t)
	if p.nc, err = nats.Connect(serve(t, cfg), nats.Token(token)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.nc.Close)
	return p
}

// contract(singularity): Elixir MUST enforce security policies:
func TestTheSecurityPolicyOfTheContractHolds(t *testing.T) {
	p := newRoots(t)
	for _, c := range []struct{ subject, request, says string }{
		// contract(singularity): **Path validation**: Only allow access to permitted directories
		{"tools.file.read", `{"path": "/etc/passwd"}`, "AccessDenied: /etc/passwd is not allowed"},
		{"tools.file.read", `{"path": "../toolpost.yaml"}`, "AccessDenied: "},
		// contract(singularity): **Deny list**: Block sensitive files (`.env`, `credentials.json`, etc.)
		{"tools.file.read", `{"path": ".env"}`, "AccessDenied: .env is not allowed: files with such names hold secrets"},
		{"tools.file.write", `{"path": "/lib/credentials.json", "content": "{}"}`, "AccessDenied: /lib/credentials.json is not allowed"},
		// contract(singularity): **Size limits**: Reject files larger than configurable limit
		{"tools.file.read", `{"path": "big.txt"}`, "InvalidInput: big.txt is larger than 4096 bytes"},
		// contract(singularity): **Command allowlist/denylist**: Filter dangerous commands
		{"tools.shell.exec", `{"command": "rm", "args": ["-r", "lib"]}`, "Command 'rm' is not allowed by security policy"},
		// contract(singularity): **Timeout**: Kill commands that exceed timeout
		{"tools.shell.exec", `{"command": "python3", "args": ["loop.py"]}`, "Timeout: "},
		// contract(singularity): **Codebase isolation**: Users can only search their own codebases
		{"tools.code.grep", `{"pattern": "Theirs", "codebase_id": "theirs"}`, `NotFound: no codebase "theirs"; there are: one, two`},
		// contract(singularity): **Quota management** - Per-user rate limits and resource quotas
		{"tools.execute.statFile", `{"path": "lib/a.ex"}`, "<nil>"},
		{"tools.execute.statFile", `{"path": "lib/a.ex"}`,
			`SystemError: rate limit: statFile was not run: quota "stats" allows 1 call an hour for each caller; try again in `},
	} {
		if answer, _ := p.ask(c.subject, c.request).(map[string]any); !strings.HasPrefix(fmt.Sprint(answer["error"]), c.says) {
			t.Errorf("%s %s: %v", c.subject, c.request, answer)
		}
	}
	// contract(singularity): **Resource limits**: CPU/memory constraints
	if answer, _ := p.ask("tools.shell.exec",
		`{"command": "python3", "args": ["eats.py"]}`).(map[string]any); strings.Contains(fmt.Sprint(answer), "exit_code:0") {
		t.Errorf("a command that takes more than its memory: %v", answer)
	}
	// contract(singularity): **Rate limiting**: Prevent abuse of expensive operations
	said := ""
	for range 5 {
		answer, _ := p.ask("tools.code.grep", `{"pattern": "defmodule", "path": "DIR/one/lib"}`).(map[string]any)
		said = fmt.Sprint(answer["error"])
	}
	if !strings.HasPrefix(said, "SystemError: rate limit: more than 3 searches of codebase one in a minute; try again in ") {
		t.Errorf("the fifth search: %s", said)
	}
	// contract(singularity): **Caching** - Cache frequently accessed files
	for _, text := range []string{"first", "second"} {
		p.write(map[string]string{"one/lib/cached.txt": text})
		for range 2 {
			if answer, _ := p.ask("tools.file.read", `{"path": "/lib/cached.txt"}`).(map[string]any); answer["data"] != text {
				t.Errorf("a file that is kept in memory, and has %q: %v", text, answer)
			}
		}
	}
}

// contract(singularity): Elixir MUST log all tool executions:
func TestAuditLogNamesOnlyTouchedPaths(t *testing.T) {
	p := newRoots(t)
	for _, request := range []string{`{"path": "lib/b.ex"}`, `{"path": "/lib/b.ex"}`, `{"path": "DIR/two/lib/b.ex"}`,
		`{"path": "/etc/passwd"}`, `{"path": ".env"}`} {
		p.ask("tools.file.read", request)
	}
	p.ask("tools.file.write", `{"path": "lib/new.ex", "content": "x"}`)
	p.ask("tools.code.grep", `{"pattern": "B", "path": "lib/b.ex"}`)
	p.ask("tools.file.list", `{}`)
	list := func(name, rows string) []any {
		answer, _ := p.ask("tools.execute.audit."+name, `{}`).(map[string]any)
		data, _ := answer["data"].(map[string]any)
		found, _ := data[rows].([]any)
		if len(found) == 0 {
			t.Fatalf("audit.%s: %v", name, answer)
		}
		return found
	}
	// contract(singularity): Which paths are accessed
	got := map[string]string{}
	for _, row := range list("paths", "paths") {
		one, _ := row.(map[string]any)
		got[fmt.Sprint(one["path"])] = fmt.Sprint(one["reads"], " ", one["writes"])
	}
	for path, want := range map[string]string{"DIR/two/lib/b.ex": "4 0", "DIR/one/lib/new.ex": "0 1", "DIR/one": "1 0"} {
		kit.Equal(t, got[path], want, path)
		delete(got, path)
	}
	if len(got) > 0 {
		t.Errorf("nothing else was touched: %v", got)
	}
	// contract(singularity): Which tools are used most
	kit.Contains(t, fmt.Sprint(list("top", "uses")[0]), "readFile", "top")
	// contract(singularity): Error rates per tool
	if errs := fmt.Sprint(list("errors", "errors")); !strings.Contains(errs, "readFile") || !strings.Contains(errs, "access_denied") {
		t.Errorf("errors: %v", errs)
	}
	// contract(singularity): Performance metrics
	kit.Contains(t, fmt.Sprint(list("latency", "tools")), "p95", "latency")
}

// A root that was removed is missing; the others stay.
func TestMissingRootLeavesTheOthersUsable(t *testing.T) {
	p := newRoots(t)
	kit.OK(t, os.Rename(filepath.Join(p.dir, "one"), filepath.Join(p.dir, "away")))
	for _, c := range []struct{ subject, request, says string }{
		{"tools.file.read", `{"path": "lib/b.ex"}`, "<nil>"}, {"tools.file.read", `{"path": "/lib/b.ex"}`, "<nil>"},
		{"tools.file.read", `{"path": "DIR/two/lib/b.ex"}`, "<nil>"}, {"tools.file.list", `{"path": "lib"}`, "<nil>"},
		{"tools.file.write", `{"path": "DIR/two/new.ex", "content": "x"}`, "<nil>"},
		{"tools.code.grep", `{"pattern": "defmodule"}`, "<nil>"}, {"tools.code.search", `{"query": "module"}`, "<nil>"},
		{"tools.code.list", `{}`, "<nil>"}, {"tools.shell.exec", `{"command": "ls", "cwd": "DIR/two"}`, "<nil>"},
		{"tools.shell.exec", `{"command": "ls", "args": ["lib/b.ex"], "cwd": "DIR/two"}`, "<nil>"},
		{"tools.file.read", `{"path": "DIR/one/lib/a.ex"}`, "SystemError: root one: "},
		{"tools.code.grep", `{"pattern": "x", "codebase_id": "one"}`, "SystemError: root one: "},
		{"tools.shell.exec", `{"command": "ls", "cwd": "DIR/one"}`, "SystemError: root one: "},
	} {
		if answer, _ := p.ask(c.subject, c.request).(map[string]any); !strings.HasPrefix(fmt.Sprint(answer["error"]), c.says) {
			t.Errorf("%s %s: %v", c.subject, c.request, answer)
		}
	}
}
