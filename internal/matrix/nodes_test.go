package matrix

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// broker starts a NATS server outside of any Toolpost, and connects to it.
func broker(t *testing.T) (url string, nc *nats.Conn) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	kit.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if nc, err = nats.Connect(s.ClientURL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return s.ClientURL(), nc
}

// startNode starts the program in a folder with files, by their names.
func startNode(t *testing.T, files map[string]string) *served.Server {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		kit.Write(t, path, text)
	}
	return served.Start(t, served.Build(t), dir)
}

// awaitNodes requests a file until each of the texts was among the answers: by then every node has subscribed.
func awaitNodes(t *testing.T, nc *nats.Conn, file string, texts ...string) {
	t.Helper()
	missing := slices.Clone(texts)
	for end := time.Now().Add(served.Hang); len(missing) > 0; {
		m, err := nc.Request("tools.file.read", fmt.Appendf(nil, `{"path": %q}`, file), served.Hang)
		if err == nil {
			missing = slices.DeleteFunc(missing, func(text string) bool { return strings.Contains(string(m.Data), text) })
		} else {
			time.Sleep(10 * time.Millisecond) // there is no responder yet
		}
		if time.Now().After(end) {
			t.Fatalf("no node answers with %q: %v", missing, err)
		}
	}
}

// contract(singularity): **Streaming results** - For large files/long commands
func TestALongCommandIsStreamedOverNATS(t *testing.T) {
	url, nc := broker(t)
	startNode(t, map[string]string{
		"toolpost.yaml": fmt.Sprintf("sources: [{name: files, protocol: builtin, roots: [{path: root, write: true}], "+
			"shell: {allow: [python3]}}]\ndoors: {http: {}, nats: {url: %q}}\n", url),
		"root/slow.py": "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('ended')\n",
	})
	awaitNodes(t, nc, "slow.py", "begun")
	events := kit.Must(nc.SubscribeSync(nats.NewInbox()))(t)
	replies := kit.Must(nc.SubscribeSync(nats.NewInbox()))(t)
	kit.OK(t, nc.PublishMsg(&nats.Msg{Subject: "tools.shell.exec", Reply: replies.Subject,
		Header: nats.Header{"Toolpost-Stream": {events.Subject}},
		Data:   []byte(`{"command": "python3", "args": ["slow.py"]}`)}))
	for said := ""; !strings.Contains(said, "begun"); {
		m := kit.Must(events.NextMsg(served.Hang))(t)
		said = string(m.Data)
	}
	if waiting, _, _ := replies.Pending(); waiting > 0 {
		t.Error("the reply came before the command could end")
	}
	kit.Must(nc.Request("tools.file.write", []byte(`{"path": "go", "content": ""}`), served.Hang))(t)
	kit.Contains(t, string(kit.Must(replies.NextMsg(served.Hang))(t).Data), `begun\nended\n`)
}

// contract(singularity): **Distributed execution** - Route tools to different Elixir nodes
func TestNodesShareRequestsAndRunEachOthersTools(t *testing.T) {
	url, nc := broker(t)
	start := func(name, sources, doors string) *served.Server {
		config := fmt.Sprintf("store: {url: none}\nsources: [%s]\ndoors: {http: {}%s}\n", sources, doors)
		return startNode(t, map[string]string{"toolpost.yaml": config, "root/name.txt": name})
	}
	files, door := "{name: files, protocol: builtin, roots: [{path: root}]}", fmt.Sprintf(", nats: {url: %q}", url)
	first := start("first", files, door)
	start("second", files, door)
	awaitNodes(t, nc, "name.txt", "first", "second")
	third := start("third", fmt.Sprintf("{name: far, protocol: singularity, url: %q}", url), "")
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
			kit.OK(t, err)
			return answers
		},
		"another node": func() (answers []string) {
			for range 100 {
				said := kit.Must(third.Raw(t.Context(), "far.readFile", `{"path": "name.txt"}`))(t)
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
