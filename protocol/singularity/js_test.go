package singularity

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// startJS starts the official JavaScript client, which sends the requests that it is asked to.
func startJS(t *testing.T, s *Server) *kit.Peer {
	t.Helper()
	dir := filepath.Join("testdata", "js")
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the JavaScript client is not installed; run `npm ci` in protocol/singularity/testdata/js")
		}
		t.Skip("the JavaScript client is not installed; `npm ci` in protocol/singularity/testdata/js installs it")
	}
	cmd := exec.Command("node", "peer.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NATS_URL="+s.ClientURL(), "NATS_TOKEN="+testToken)
	return kit.Start(t, cmd)
}

// contract(singularity): nc.request(subject, req)
func TestTheJavaScriptClientGetsTheAnswersOfTheContract(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	p := startJS(t, s)
	for _, x := range exchanges() {
		t.Run(x.name, func(t *testing.T) {
			box := toolbox{x.tool: x.tells}
			stop := serve(t, DoorOptions{Server: s}, box, box)
			defer stop()
			same(t, "the answer", p.Ask(map[string]any{"subject": x.subject, "body": x.request}), x.answer)
		})
	}
}

func TestTheJavaScriptClientCallsManyAtOnceAndTakesEvents(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	p := startJS(t, s)
	kit.Equal(t, p.Ask(map[string]any{"subject": "tools.execute.echo", "many": 2000}),
		"2000", "of 2000 got their own answer")
	var streamed struct {
		Reply  json.RawMessage `json:"reply"`
		Events []tool.Event    `json:"events"`
	}
	decode(t, p.Ask(map[string]any{"subject": "tools.execute.events", "body": `{"count":20}`, "stream": true}), &streamed)
	if len(streamed.Events) != 20 || streamed.Events[19].Seq != 20 || string(streamed.Reply) != `{"data":{},"error":null}` {
		t.Errorf("got %s and %v", streamed.Reply, streamed.Events)
	}
	var found []struct{ Name, Type string }
	decode(t, p.Ask(map[string]any{"subject": "$SRV.PING", "all": true}), &found)
	if len(found) != 1 || found[0].Name != "toolpost" {
		t.Errorf("found %v", found)
	}
}
