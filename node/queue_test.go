package node_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// The tool t of each kind that has only so many workers; a call takes a twentieth of a second.
const (
	slowFunction = `
import time

def run(payload):
    time.sleep(0.05)
    return 1
`
	slowSkill = `
import json, sys, time

for line in sys.stdin:
    asked = json.loads(line)
    reply = {"jsonrpc": "2.0", "id": asked.get("id")}
    if asked["method"] == "tools/list":
        reply["result"] = {"tools": [{"name": "t", "description": "slow", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        time.sleep(0.05)
        reply["result"] = {"content": [{"type": "text", "text": "1"}]}
    else:
        reply["error"] = {"code": -32601, "message": "method not found"}
    if "id" in asked:
        print(json.dumps(reply), flush=True)
`
	slowHost = `
import json, sys, time

if sys.argv[1] == "--list":
    print(json.dumps({"ok": True, "tools": [{"aid": "AID.P.T.v1", "name": "t", "side_effects": ["none"]}]}))
    sys.exit()
for line in sys.stdin:
    if line == "\n":
        break
    time.sleep(0.05)
    print(json.dumps({"ok": True, "status": "OK", "output_json": "1", "error": "", "ds_state": {}}), flush=True)
`
)

// Far more calls at once than there are workers: each has its whole time once it runs, however long it has waited.
func TestManyCallsAtOnceWaitTheirTurn(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		calls  int
	}{
		"a function": {`{name: a, protocol: namel3ss, tool: t, entry: "code:run", workers: 8, timeout: 4s}`, 800},
		"a skill":    {`{name: a, protocol: alphahuman, skill: skill, timeout: 4s}`, 120},
		"a toolhost": {`{name: a, protocol: machina, command: [python3, host.py], plugin: p, mode: serve, timeout: 4s}`, 240},
	} {
		t.Run(name, func(t *testing.T) {
			tooltest.NoLeaks(t)
			dir := t.TempDir()
			for path, text := range map[string]string{
				"code.py": slowFunction, "host.py": slowHost, "skill/skill.py": slowSkill,
				"skill/manifest.json": `{"runtime": {"type": "subprocess", "command": "python3", "args": ["skill.py"]}, "tick_interval": 0}`,
			} {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			n := open(t, parse(t, dir, "sources: ["+c.source+"]\nlimits: {queue: {wait: 2m}}\n"), node.Options{})
			defer shut(t, n)
			if codes := rush(t, n, c.calls); codes[""] != c.calls {
				t.Errorf("%d calls came to %v", c.calls, codes)
			}
		})
	}
}

// rush makes calls of the tool t at once, and counts what they came to.
func rush(t *testing.T, n *node.Node, calls int) map[tool.Code]int {
	codes := map[tool.Code]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			_, code := invoke(t, n, tool.Call{Tool: "t"})
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	all.Wait()
	return codes
}
