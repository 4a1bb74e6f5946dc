package door_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/protocol/mcp/mcptest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A wired is a server on stdio, spoken to line by line.
type wired struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func wire(in io.WriteCloser, out io.Reader) *wired {
	w := &wired{in, bufio.NewScanner(out)}
	w.out.Buffer(nil, 8<<20)
	return w
}

// stdioDoor serves one client on stdio.
func stdioDoor(t *testing.T, o door.Options, h tool.Handler, c tool.Catalog) *wired {
	t.Helper()
	toDoor, write := io.Pipe()
	read, fromDoor := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		d := &door.Door{In: toDoor, Out: fromDoor, Caller: tool.Principal{ID: "ada", Door: "mcp"}, Options: o}
		ended <- d.Serve(context.Background(), h, c)
		_ = fromDoor.Close()
	}()
	t.Cleanup(func() { _ = write.Close(); go io.Copy(io.Discard, read); <-ended })
	return wire(write, read)
}

// say sends a message.
func (w *wired) say(t *testing.T, text string) {
	t.Helper()
	kit.OK(t, kit.Err(io.WriteString(w.in, text+"\n")))
}

// ask sends a request and returns its answer, and the notifications of the kinds that come before it.
func (w *wired) ask(t *testing.T, text string, kinds ...string) (all []map[string]any) {
	t.Helper()
	var sent struct {
		ID any `json:"id"`
	}
	kit.OK(t, json.Unmarshal([]byte(text), &sent))
	w.say(t, text)
	for w.out.Scan() {
		var m map[string]any
		kit.OK(t, json.Unmarshal(w.out.Bytes(), &m))
		if note, _ := m["method"].(string); note == "" && m["id"] == sent.ID {
			return append(all, settled(m))
		} else if slices.Contains(kinds, note) {
			all = append(all, m)
		}
	}
	t.Fatalf("no answer to %s: %v", text, w.out.Err())
	return nil
}

// settled removes what may differ: the order of lists; hints about tools, and a tool that a server has only for clients
// with roots, since the config decides about both; tasks of the legacy era; and the words of an error.
func settled(m map[string]any) map[string]any {
	if failed, ok := m["error"].(map[string]any); ok {
		delete(failed, "message")
	}
	result, _ := m["result"].(map[string]any)
	if capabilities, ok := result["capabilities"].(map[string]any); ok {
		delete(capabilities, "tasks")
	}
	for _, what := range []string{"tools", "prompts", "resources", "resourceTemplates"} {
		list, _ := result[what].([]any)
		name := func(one any) string {
			o := one.(map[string]any)
			for _, key := range []string{"uri", "uriTemplate", "name"} {
				if text, ok := o[key].(string); ok {
					return text
				}
			}
			return ""
		}
		slices.SortFunc(list, func(a, b any) int { return cmp.Compare(name(a), name(b)) })
		if what == "tools" && list != nil {
			for _, one := range list {
				delete(one.(map[string]any), "annotations")
			}
			result[what] = slices.DeleteFunc(list, func(one any) bool { return name(one) == "get-roots-list" })
		}
	}
	return m
}

// With one source in place of all, a client gets what it would get from the source itself, message by message.
func TestOneServerIsAsItIsDirectly(t *testing.T) {
	tooltest.NoLeaks(t)
	const script = "@modelcontextprotocol/server-everything/dist/index.js"
	modules, node := mcptest.Node(t)
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(modules, script), "stdio")
	cmd.Dir = t.TempDir()
	in := kit.Must(cmd.StdinPipe())(t)
	out := kit.Must(cmd.StdoutPipe())(t)
	kit.OK(t, cmd.Start())
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })

	e := engineOf(t, "", map[string]string{
		"all": mcptest.NPM(t, script, "", "stdio"), "another": mcptest.NPM(t, script, "", "stdio"), // all names are there twice
	})
	direct, through := wire(in, out), stdioDoor(t, door.Options{Source: "all"}, e, e)
	const client = `{"elicitation":{"form":{},"url":{}},"sampling":{}}`
	const progress = "notifications/progress"
	for i, text := range []string{
		`"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + client + `,"clientInfo":{"name":"c","version":"1"}}`,
		`"ping"`,
		`"tools/list"`,
		`"prompts/list"`,
		`"resources/list"`,
		`"resources/templates/list"`,
		`"logging/setLevel","params":{"level":"warning"}`,
		`"tools/call","params":{"name":"echo","arguments":{"message":"hi"}}`,
		`"tools/call","params":{"name":"get-sum","arguments":{"a":1,"b":2}}`,
		`"tools/call","params":{"name":"get-tiny-image","arguments":{}}`,
		`"tools/call","params":{"name":"get-structured-content","arguments":{"location":"Chicago"}}`,
		`"tools/call","params":{"name":"get-annotated-message","arguments":{"messageType":"error","includeImage":true}}`,
		`"tools/call","params":{"name":"get-resource-links","arguments":{"count":2}}`,
		`"tools/call","params":{"name":"trigger-long-running-operation","arguments":{"duration":0.2,"steps":2},"_meta":{"progressToken":"p"}}`,
		`"prompts/get","params":{"name":"simple-prompt"}`,
		`"prompts/get","params":{"name":"args-prompt","arguments":{"city":"Rome"}}`,
		`"completion/complete","params":{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":"E"}}`,
		`"completion/complete","params":{"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},"argument":{"name":"resourceId","value":"1"}}`,
		`"resources/read","params":{"uri":"demo://resource/static/document/architecture.md"}`,
		`"resources/read","params":{"uri":"demo://resource/static/document/nowhere.md"}`,
		`"resources/subscribe","params":{"uri":"demo://resource/static/document/architecture.md"}`,
		`"resources/unsubscribe","params":{"uri":"demo://resource/static/document/architecture.md"}`,
		`"resources/nonsense"`,
	} {
		message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%s}`, i, text)
		want, got := direct.ask(t, message, progress), through.ask(t, message, progress)
		kit.Equal(t, gocmp.Diff(want, got), "", "%s differs from what the server says directly", text)
		if i == 0 {
			for _, one := range []*wired{direct, through} {
				one.say(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`) //nolint:misspell // the word of the protocol
			}
		}
	}
}
