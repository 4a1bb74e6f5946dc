package storms

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
)

// An MCP server that introduces itself once a file is there.
const lateServer = `import json, os, sys, time
for line in sys.stdin:
    m = json.loads(line)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    if m.get("id") is None:
        continue
    reply = {"jsonrpc": "2.0", "id": m["id"]}
    if m["method"] == "initialize":
        reply["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "late", "version": "1"}}
    elif m["method"] == "tools/list":
        reply["result"] = {"tools": [{"name": "shout", "inputSchema": {"type": "object"}}]}
    elif m["method"] == "tools/call":
        reply["result"] = {"content": [{"type": "text", "text": "HEY"}], "structuredContent": {"text": "HEY"}}
    else:
        reply["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(reply), flush=True)
`

const openingYAML = `limits: {timeout: 2m}
store: {url: none}
sources:
  - {name: hung, protocol: mcp, command: [python3, late.py, never], start_timeout: 10m}
  - {name: late, protocol: mcp, command: [python3, late.py, now], start_timeout: 10m}
  - {name: ev, protocol: narratoria, command: [sh, ev.sh], timeout: 1m}
`

// A server serves while its sources are being opened. A call of a tool that may belong to one of them waits for it, and
// one that hangs delays no other.
func TestCallsWaitForTheSourceThatTheyNeedAndForNoOther(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"toolpost.yaml": openingYAML, "late.py": lateServer,
		"ev.sh": `read -r r; echo '{"version":"0","type":"done","ok":true}'`,
	} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := served.Start(t, served.Build(t), dir)
	ready := func(want string) {
		t.Helper()
		got := kit.Must(s.Ask(t.Context(), "GET", "/readyz", ""))(t)
		kit.Equal(t, got, want, "GET /readyz")
	}
	call := func(name string) {
		t.Helper()
		if o, err := s.Call(t.Context(), name, `{}`); err != nil || !o.OK {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	ready(`{"ok":true,"opening":["hung","late"],"opening_count":2}`)
	kit.Equal(t, kit.Must(s.Ask(t.Context(), "GET", "/readyz", "", "Authorization", ""))(t), `{"ok":true,"opening_count":2}`, "without a token")
	call("ev")
	waiting := make(chan struct{})
	go func() { defer close(waiting); call("late.shout") }()
	kit.Eventually(t, "the call is running", func() bool {
		o, err := s.Call(t.Context(), "listCalls", `{}`)
		return err == nil && strings.Contains(fmt.Sprint(o.Output), "late.shout")
	})
	ready(`{"ok":true,"opening":["hung","late"],"opening_count":2}`)
	kit.OK(t, os.WriteFile(filepath.Join(dir, "now"), nil, 0o600))
	<-waiting
	ready(`{"ok":true,"opening":["hung"],"opening_count":1}`)
	call("shout")
	s.Stop(t)
}

// The system's ps shows what the children of a server are, and none of them is a zombie.
func TestPsShowsWhatTheChildrenOfAServerAre(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	yaml := "store: {url: none}\nsources: [{name: greeter, protocol: mcp, command: [python3, late.py, late.py], start_timeout: 1m}]\n"
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(yaml), 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "late.py"), []byte(lateServer), 0o600))
	s := served.Start(t, served.Build(t), dir)
	known := []string{"toolpost: sandbox", "toolpost: spare room", "toolpost: room of greeter", "python3 late.py"}
	var lines []string
	kit.Eventually(t, "every child has its name", func() bool {
		out, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=,args=", "--ppid", fmt.Sprint(s.Pid())).Output()
		kit.OK(t, err)
		lines = strings.Split(strings.TrimSpace(string(out)), "\n")
		unknown := slices.ContainsFunc(lines, func(line string) bool {
			return !slices.ContainsFunc(known, func(name string) bool { return strings.Contains(line, name) })
		})
		text := strings.Join(lines, "\n")
		return !unknown && !strings.Contains(text, "test.run") && !slices.ContainsFunc(known, func(name string) bool { return !strings.Contains(text, name) })
	})
	t.Logf("%s", strings.Join(lines, "\n"))
	s.Stop(t)
}
