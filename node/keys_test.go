package node_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A key goes from a caller to the host of its connection, and to no file, log, event or outcome on the way.
func TestKeyOfACallerIsAtItsHostAlone(t *testing.T) {
	tooltest.NoLeaks(t)
	const key = "canary-9d1f6c0b7a52"
	var arrived []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived = append(arrived, r.Header.Get("Authorization"))
		http.Error(w, "you sent "+r.Header.Get("Authorization"), map[string]int{"/ok": 200, "/denied": 403}[r.URL.Path])
	}))
	defer api.Close()
	script := kit.Must(filepath.Abs("../protocol/all/testdata/asker.py"))(t)
	dir := t.TempDir()
	cfg := parse(t, dir, fmt.Sprintf("connections: [{name: api, key: pasted, hosts: [%q], env: API_KEY}]\n"+
		"sources: [{name: up, protocol: mcp, command: [%q, -B, %q], dir: %q, connections: [api], pin: 'off'}]\n",
		api.Listener.Addr(), tooltest.Python(), script, filepath.Dir(script)))
	logs := &kit.Buffer{}
	n := open(t, cfg, node.Options{Log: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	var seen kit.Buffer
	call := func(name, args string) error {
		c := &tool.Call{Tool: name, Args: json.RawMessage(args), Caller: tool.Principal{ID: "ada"}}
		res, err := n.Handler().Invoke(kit.Context(t), c, tool.SinkFunc(func(e tool.Event) error {
			_, err := seen.Write(e.Data)
			return err
		}))
		fmt.Fprintf(&seen, "%+v %v", res, err)
		if res != nil {
			fmt.Fprintf(&seen, "%s", res.Output)
		}
		return err
	}
	kit.Fails(t, call("ask", `{"url":"`+api.URL+`/ok"}`), "connections add api")
	kit.OK(t, call("connections.key", `{"name":"api","secret_key":"`+key+`"}`))
	kit.OK(t, call("ask", `{"url":"`+api.URL+`/ok"}`))
	kit.OK(t, call("ask", `{"url":"`+api.URL+`/denied"}`))
	kit.OK(t, call("ask", `{"url":"http://127.0.0.2:1/"}`))
	kit.OK(t, call("environment", `{}`))
	kit.EqualSlices(t, arrived, []string{"Bearer " + key, "Bearer " + key})
	kit.Contains(t, seen.String(), "you sent Bearer tp-api-")
	kit.Contains(t, seen.String(), "which is not one of its hosts")
	kit.OK(t, n.Close(kit.Context(t)))
	for place, text := range map[string]string{"what the caller saw": seen.String(), "the log": logs.String()} {
		kit.Equal(t, strings.Contains(text, key), false, place)
	}
	kit.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		kit.Equal(t, strings.Contains(string(text), key), false, path)
		return err
	}))
}
