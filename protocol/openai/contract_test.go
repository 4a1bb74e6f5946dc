package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/internal/scripted"
	"toolpost/node"
)

// start serves a config, and returns the addresses of its doors.
func start(t *testing.T, dir, text string, doors int) map[string]string {
	t.Helper()
	cfg := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))(t)
	ready := make(chan node.Listening, 8)
	n, err := node.Open(t.Context(), cfg, node.Options{Token: token, Ready: func(l node.Listening) { ready <- l }})
	kit.OK(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		kit.Check(t, <-ended)
		late, end := context.WithTimeout(context.Background(), limit)
		defer end()
		kit.Check(t, n.Close(late))
	})
	urls := map[string]string{}
	for range doors {
		select {
		case l := <-ready:
			urls[l.Door] = l.URL
		case err := <-ended:
			t.Fatal(err)
		}
	}
	return urls
}

// The flow at the end of the Singularity contract, with {} for {...}: the model calls readFile, which is behind NATS,
// and answers.
func TestTheChatOfTheContractReadsAFileOverNATS(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is missing; `make setup` installs it")
	}
	m := scripted.New(t, calls(readFile("call_1")), says("It is called demo."))
	far := t.TempDir()
	kit.Write(t, filepath.Join(far, "package.json"), `{"name": "demo"}`)
	tools := start(t, far, `
sources: [{name: files, protocol: builtin, roots: [{path: .}]}]
doors: {nats: {embedded: true, listen: "127.0.0.1:0", anonymous: guest}}
callers: {list: {guest: {tools: "*"}}}
`, 1)
	at := start(t, t.TempDir(), fmt.Sprintf(`
sources: [{name: far, protocol: singularity, url: %q}]
doors: {http: {listen: "127.0.0.1:0", anonymous: guest}}
callers: {list: {guest: {tools: "*"}}}
models: [{name: "openai-codex:gpt-5-codex", url: "%s/v1"}]
`, tools["nats"], m.URL), 3)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(at["http"], "http://"))
	kit.OK(t, err)
	ctx := kit.Context(t)
	out, err := exec.CommandContext(ctx, "curl", "-s", "-X", "POST", "http://localhost:"+port+"/v1/chat/completions",
		"-H", "Content-Type: application/json", "-d", `{
    "model": "openai-codex:gpt-5-codex",
    "messages": [{"role": "user", "content": "Read the file package.json"}],
    "tools": {}
  }`).Output()
	var doc map[string]any
	if err == nil {
		err = json.Unmarshal(out, &doc)
	}
	if err != nil || dig(doc, "choices", 0, "message", "content") != "It is called demo." {
		t.Fatalf("%v: %s", err, out)
	}
	if content := fmt.Sprint(dig(m.Asked()[1].Body, "messages", 2, "content")); !strings.Contains(content, `"name"`) ||
		!strings.Contains(content, "demo") {
		t.Error(content)
	}
}
