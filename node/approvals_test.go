package node_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

const asking = `
sources: [{name: files, protocol: builtin, roots: [{path: papers, write: true}]}]
doors: {http: {listen: "127.0.0.1:0"}}
policy: {rules: [{effect: ask, tools: deleteFile, approvers: owner, self: true}]}
limits: {plans: {tool: 5m, plan: 5m}}
store: {}
`

// approveNext approves the next call that waits, whenever it comes.
func approveNext(ctx context.Context, t *testing.T, n *node.Node) {
	t.Helper()
	owner := tool.Principal{ID: "local", Door: "cli", Operates: true}
	ask := func(name, args string) string {
		r, err := n.Handler().Invoke(ctx, &tool.Call{Tool: name, Args: json.RawMessage(args), Caller: owner}, tool.Discard)
		if err != nil || !r.OK {
			t.Errorf("%s: %+v, %v", name, r, err)
			return "apr_"
		}
		return string(r.Output)
	}
	list := ""
	kit.Eventually(t, "a call waits", func() bool {
		list = ask("approvals.list", "{}")
		return strings.Contains(list, "apr_") || ctx.Err() != nil
	})
	_, id, _ := strings.Cut(list, `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	ask("approvals.decide", `{"id":"`+id+`","approve":true}`)
}

// A call waits for its approval if its maker stays for the outcome; so does one in a job.
func TestPlansProgramsAndModelsWaitForApprovals(t *testing.T) {
	const aPlan = `{"plan":{"requestId":"r","tools":[{"toolId":"a","tool":"deleteFile","input":{"path":"a"}}]}}`
	const program = `{"language":"python","code":"return await tools.deleteFile(path='a')"}`
	dir := t.TempDir()
	kit.OK(t, os.Mkdir(filepath.Join(dir, "papers"), 0o700))
	ready := make(chan node.Listening, 8)
	n := open(t, parse(t, dir, asking), node.Options{Token: envelopeToken, Ready: func(l node.Listening) { ready <- l }})
	defer shut(t, n)
	stop := serve(t, n)
	defer stop()
	var models node.Listening
	for models.Door != "openai" {
		models = <-ready
	}
	who := tool.Principal{ID: "owner", Door: "http", Operates: true}
	calls := func(name, args string) func(context.Context) string {
		return func(ctx context.Context) string {
			r, err := n.Handler().Invoke(ctx, &tool.Call{Tool: name, Args: json.RawMessage(args), Caller: who}, tool.Discard)
			if err != nil {
				return err.Error()
			}
			return string(r.Output)
		}
	}
	starts := func(name, args string) func(context.Context) string {
		return func(ctx context.Context) string {
			job := startJob(t, n, who, `{"tool":"`+name+`","arguments":`+args+`}`)
			return outcomeOf(ctx, t, n, who, job)
		}
	}
	for name, made := range map[string]func(ctx context.Context) string{
		"a plan": calls("plan.run", aPlan), "a plan as a job": starts("plan.run", aPlan),
		"a program": calls("runCode", program), "a program as a job": starts("runCode", program),
		"a model": func(context.Context) string { return post(t, models, "deleteFile", `{"path":"a"}`, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			file := filepath.Join(dir, "papers", "a")
			kit.OK(t, os.WriteFile(file, nil, 0o600))
			said := make(chan string, 1)
			go func() { said <- made(ctx) }()
			approveNext(ctx, t, n)
			kit.Contains(t, <-said, `"deleted":true`)
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Error("it has not run:", err)
			}
		})
	}
}
