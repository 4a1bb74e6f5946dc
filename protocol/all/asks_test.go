package all_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/internal/leaks"
	"toolpost/internal/rounds"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// asking are sources of the same program, in the protocols in which programs get keys of their callers, apart from MCP.
func asking() map[string]string {
	return map[string]string{
		"alphahuman": `skill: %[1]q`,
		"machina":    `command: [%[2]q, -B, asks.py, toolhost], plugin: manifest.json, dir: %[1]q`,
		"namel3ss":   `tool: ask, entry: "asks:tell", app: %[1]q, python: %[2]q, input: {type: object}`,
		"narratoria": `tool: ask, command: [%[2]q, -B, asks.py, narrate], input: {type: object}, dir: %[1]q`,
		"command": `tool: ask, command: [%[2]q, -B, asks.py, command, "{url}", "{me}"], ` +
			`arguments: {url: string, me: string}, dir: %[1]q`,
	}
}

// Calls of two callers arrive with the key of the caller, and what a program keeps for one of them the other does not
// see.
func TestProgramsOfAllProtocolsServeOneCallerEach(t *testing.T) {
	for _, p := range all.Protocols() {
		if more, ok := asking()[p.Name]; ok != (p.Keys == all.KeysByCaller && p.Name != "mcp") {
			t.Errorf("the test of %s is missing, or one too many", p.Name)
		} else if ok {
			t.Run(p.Name, func(t *testing.T) { serveOneCallerEach(t, p, more) })
		}
	}
}

func serveOneCallerEach(t *testing.T, p all.Protocol, more string) {
	tooltest.NoLeaks(t)
	a, logs, seen := newAPI(t), &kit.Buffer{}, &kit.Buffer{}
	state := t.TempDir()
	dir := kit.Must(filepath.Abs("testdata/asks"))(t)
	text := fmt.Sprintf("state: %q\nsources: [{name: up, protocol: %s, connections: [api], %s}]",
		state, p.Name, fmt.Sprintf(more, dir, tooltest.Python()))
	src := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t).Sources[0]
	host := a.Listener.Addr().String()
	src.Credentials = []*tool.Credential{{Connection: "api", Hosts: []string{host}, Env: "API_KEY"}}
	r := kit.Must(p.OpenSource(t.Context(), src, slog.New(slog.NewTextHandler(logs, nil))))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Hang)
		defer cancel()
		kit.Check(t, r.Close(ctx))
	})
	specs := kit.Must(r.(tool.Source).Tools(t.Context()))(t)
	kit.MustEqual(t, len(specs), 1, "tools")
	var work sync.WaitGroup
	next := make(chan int)
	for range 8 {
		work.Go(func() {
			for n := range next {
				who := []string{"ada", "bob"}[n%2]
				said, err := askFor(t, r, specs[0], who, fmt.Sprintf("%s/%s/%d", a.URL, who, n))
				kit.Check(t, err, logs.String())
				kit.Contains(t, said, "you sent tp-api-", who)
				other := map[string]string{"ada": "bob", "bob": "ada"}[who]
				kit.Equal(t, strings.Contains(said, other), false, who, said)
				kit.Equal(t, a.key(fmt.Sprintf("/%s/%d", who, n)), keyOf(who), who)
				fmt.Fprintln(seen, said)
			}
		})
	}
	for n := range rounds.Of(20, 1000) {
		next <- n
	}
	close(next)
	work.Wait()
	for _, canary := range []string{keyOf("ada")[:20], keyOf("bob")[:20]} {
		leaks.Text(t, "what callers saw", seen.String(), canary)
		leaks.Text(t, "the log", logs.String(), canary)
		leaks.Files(t, state, canary)
		leaks.Programs(t, tooltest.Descendants(os.Getpid()), "API_KEY", canary)
	}
}

// askFor lets the tool ask for an address, and returns all that it gives.
func askFor(t *testing.T, r tool.Handler, s *tool.Spec, who, address string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Hang)
	defer cancel()
	var said kit.Buffer
	out := tool.SinkFunc(func(e tool.Event) error { _, err := said.Write(e.Data); return err })
	key := &tool.Credential{Connection: "api", Value: func(context.Context) (string, error) { return keyOf(who), nil }}
	res, err := r.Invoke(ctx, &tool.Call{
		ID: tool.NewID(), Tool: s.Name, Spec: s, Caller: tool.Principal{ID: who},
		Args:  kit.Must(json.Marshal(map[string]string{"url": address, "me": who}))(t),
		Notes: tool.Notes{Credentials: []*tool.Credential{key}},
	}, out)
	if err != nil {
		return "", err
	}
	if !res.OK {
		return "", res.Failure
	}
	return said.String() + string(res.Output) + res.Summary, nil
}
