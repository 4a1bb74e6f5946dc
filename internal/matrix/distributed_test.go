package matrix

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"toolpost/internal/served"
)

// contract(singularity): **Distributed execution** - Route tools to different Elixir nodes
func TestNodesShareRequestsAndRunEachOthersTools(t *testing.T) {
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
	bin := served.Build(t)
	start := func(name, sources, doors string) *served.Server {
		dir := t.TempDir()
		config := fmt.Sprintf("store: {url: none}\nsources: [%s]\ndoors: {http: {}%s}\n", sources, doors)
		for file, text := range map[string]string{"toolpost.yaml": config, "root/name.txt": name} {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.WriteFile(path, []byte(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return served.Start(t, bin, dir)
	}
	files, door := "{name: files, protocol: builtin, roots: [{path: root}]}", fmt.Sprintf(", nats: {url: %q}", broker.ClientURL())
	first := start("first", files, door)
	start("second", files, door)
	third := start("third", fmt.Sprintf("{name: far, protocol: singularity, url: %q}", broker.ClientURL()), "")

	nc, err := nats.Connect(broker.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	over := map[string]func() []string{
		"NATS": func() (answers []string) {
			inbox := nats.NewInbox()
			replies, err := nc.SubscribeSync(inbox + ".*")
			for i := 0; i < 100 && err == nil; i++ {
				err = nc.PublishRequest("tools.file.read", fmt.Sprint(inbox, ".", i), []byte(`{"path": "name.txt"}`))
			}
			answered := map[string]bool{} // each request, by one node
			for i := 0; i < 100 && err == nil; i++ {
				var m *nats.Msg
				if m, err = replies.NextMsg(served.Hang); err == nil && !answered[m.Subject] {
					answered[m.Subject], answers = true, append(answers, string(m.Data))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			return answers
		},
		"another node": func() (answers []string) {
			for range 100 {
				said, err := third.Raw(t.Context(), "far.readFile", `{"path": "name.txt"}`)
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, said)
			}
			return answers
		},
	}
	count := func(way string) (first, second int) {
		all := strings.Join(over[way](), "")
		return strings.Count(all, `"first"`), strings.Count(all, `"second"`)
	}
	for way := range over {
		if a, b := count(way); a == 0 || b == 0 || a+b != 100 {
			t.Errorf("over %s one gave %d and the other %d of 100 answers", way, a, b)
		}
	}
	first.Stop(t)
	for way := range over {
		if a, b := count(way); a != 0 || b != 100 {
			t.Errorf("over %s the node that is left gave %d of 100 answers", way, b)
		}
	}
}
