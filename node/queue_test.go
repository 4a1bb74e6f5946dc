package node_test

import (
	"path/filepath"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// Sources with the tool t, one for each kind that has a limited number of workers; a call takes 0.2 s.
const (
	slowFunction = `
import time

def run(payload):
    time.sleep(0.2)
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
        time.sleep(0.2)
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
    time.sleep(0.2)
    print(json.dumps({"ok": True, "status": "OK", "output_json": "1", "error": "", "ds_state": {}}), flush=True)
`
)

// With far more concurrent calls than workers, each call has its whole timeout once it runs, however long it has waited.
func TestManyCallsAtOnceWaitTheirTurn(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	for path, text := range map[string]string{
		"code.py": slowFunction, "host.py": slowHost, "skill/skill.py": slowSkill,
		"skill/manifest.json": `{"runtime": {"type": "subprocess", "command": "python3", "args": ["skill.py"]}, "tick_interval": 0}`,
	} {
		path = filepath.Join(dir, path)
		kit.Write(t, path, text)
	}
	n := open(t, parse(t, dir, `
sources:
- {name: function, protocol: namel3ss, tool: t, entry: "code:run", workers: 8, timeout: 15s}
- {name: skill, protocol: alphahuman, skill: skill, timeout: 15s}
- {name: host, protocol: machina, command: [python3, host.py], plugin: p, mode: serve, timeout: 15s}
limits: {queue: {wait: 2m}}
`), node.Options{})
	defer shut(t, n)
	var all sync.WaitGroup
	for name, calls := range map[string]int{"function.t": 800, "skill.t": 100, "host.t": 100} {
		all.Go(func() {
			if codes := rush(t, n, name, calls); codes[""] != calls {
				t.Errorf("%d calls of %s came to %v", calls, name, codes)
			}
		})
	}
	all.Wait()
}

// rush makes concurrent calls of a tool, and counts their outcomes.
func rush(t *testing.T, n *node.Node, name string, calls int) map[tool.Code]int {
	codes := map[tool.Code]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			_, code := invoke(t, n, tool.Call{Tool: name})
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	all.Wait()
	return codes
}
