package machina_test

import (
	"strings"
	"testing"

	"toolpost/host/spawn"
	"toolpost/protocol/machina"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestAToolhostThatRunsOneCallGetsItsTraceparent(t *testing.T) {
	tooltest.NoLeaks(t)
	const script = `
import json, os, sys
if sys.argv[1] == "--list":
    tool = {"aid": "AID.T.SAYS.v1", "name": "says", "deterministic": True, "tags": [], "side_effects": [], "replay_inputs": []}
    print(json.dumps({"ok": True, "tools": [tool]}))
else:
    said = json.dumps({"said": os.environ.get("TRACEPARENT", "")})
    print(json.dumps({"ok": True, "status": "OK", "output_json": said, "error": "", "ds_state": {"slots": {}}}))
`
	r := open(t, machina.Options{Command: []string{tooltest.Python(), "-c", script}, Plugin: "p", Options: spawn.Options{Dir: t.TempDir()}, Mode: "run"})
	specs, err := r.Tools(t.Context())
	if err != nil || len(specs) != 1 {
		t.Fatal(specs, err)
	}
	c := call(specs[0].Name, `{}`)
	c.Trace, c.Span = "0af76519-16cd-43dd-8448-eb211c80319c", "b7ad6b7169203331"
	got, err := invoke(r, c, tool.Discard)
	if err != nil || !strings.Contains(string(got.Output), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") {
		t.Errorf("%+v, %v", got, err)
	}
}
