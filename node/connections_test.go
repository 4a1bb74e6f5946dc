package node_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/leaks"
	"toolpost/node"
	"toolpost/tool"
)

const canaryKey = "canary-0123456789-key"

func TestKeyOfACallerIsNowhereButSealed(t *testing.T) {
	dir, log := t.TempDir(), new(bytes.Buffer)
	kit.OK(t, os.WriteFile(filepath.Join(dir, "leak.sh"), []byte("echo it is $1; echo it is $1 >&2; exit 3\n"), 0o600))
	cfg := parse(t, dir, `
connections: [{name: api, key: pasted, hosts: [api.example]}]
sources:
- {name: leak, protocol: command, tool: leak, command: [sh, leak.sh, ["{text}"]], input: {type: object, properties: {text: {type: string}}}, connections: [api]}
`)
	n := open(t, cfg, node.Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ada, local := tool.Principal{ID: "ada", Door: "http"}, tool.Principal{ID: "local", Door: "cli", Operates: true}
	var said strings.Builder
	invoke := func(p tool.Principal, id, name, args string) (*tool.Result, error) {
		sink := tool.SinkFunc(func(e tool.Event) error {
			said.Write(e.Data)
			return nil
		})
		r, err := n.Handler().Invoke(t.Context(), &tool.Call{ID: id, Tool: name, Caller: p, Args: []byte(args)}, sink)
		if r != nil {
			fmt.Fprintf(&said, "%s %s %v", r.Output, r.Summary, r.Failure)
		}
		fmt.Fprintln(&said, err)
		return r, err
	}
	_, err := invoke(ada, "early", "leak", `{}`)
	kit.Refused(t, err, tool.CodeAccessDenied, "connections add api --key-stdin")
	kit.Must(invoke(ada, "paste", "toolpost.connections.key", `{"name":"api","secret_key":"`+canaryKey+`"}`))(t)
	_, err = invoke(ada, "", "toolpost.connections.key", `{"name":"nosuch","secret_key":"`+canaryKey+`"}`)
	kit.Refused(t, err, tool.CodeNotFound, "")
	kit.Must(invoke(ada, "echo", "leak", `{"text":"`+canaryKey+`"}`))(t)
	for _, id := range []string{"early", "paste", "echo"} {
		kit.Must(invoke(local, "", "toolpost.showCall", `{"call":"`+id+`"}`))(t)
	}
	kit.Must(invoke(local, "", "toolpost.connections.list", `{"all":true}`))(t)
	kit.Must(invoke(local, "", "toolpost.audit.log", `{}`))(t)
	kit.Contains(t, said.String(), `"state":"connected"`)

	// Others see and remove nothing of hers; an operator may, without her key.
	bob := tool.Principal{ID: "bob", Door: "http"}
	for _, args := range []string{`{"all":true}`, `{"caller":"ada"}`} {
		_, err = invoke(bob, "", "toolpost.connections.list", args)
		kit.Refused(t, err, tool.CodeAccessDenied, "may not see connections of others")
	}
	_, err = invoke(bob, "", "toolpost.connections.remove", `{"name":"api","caller":"ada"}`)
	kit.Refused(t, err, tool.CodeAccessDenied, "may not remove connections of others")
	for name, args := range map[string]string{"list": `{}`, "remove": `{"name":"api"}`} { // and those without a name are not all callers
		_, err = invoke(tool.Principal{Door: "http"}, "", "toolpost.connections."+name, args)
		kit.Refused(t, err, tool.CodeAccessDenied, "without a name")
	}
	kit.Must(invoke(local, "", "toolpost.connections.remove", `{"name":"api","caller":"ada"}`))(t)
	_, err = invoke(ada, "", "leak", `{}`)
	kit.Refused(t, err, tool.CodeAccessDenied, "have not given") // nor with what was hers
	shut(t, n)

	leaks.Text(t, "what callers saw", said.String(), canaryKey)
	leaks.Text(t, "the log", log.String(), canaryKey)
	leaks.Files(t, dir, canaryKey)
}
