package node_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/tool"
)

// startJob starts a job of a tool.
func startJob(t *testing.T, n *node.Node, who tool.Principal, args string) (id string) {
	t.Helper()
	r, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: "startJob", Args: json.RawMessage(args), Caller: who}, tool.Discard)
	kit.OK(t, err)
	var j struct{ Job string }
	kit.OK(t, json.Unmarshal(r.Output, &j))
	return j.Job
}

// served runs a node until the function until returns.
func served(t *testing.T, n *node.Node, until func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	until(ctx)
	cancel()
	kit.Check(t, <-ended)
}

// outcomeOf waits for a job.
func outcomeOf(ctx context.Context, t *testing.T, n *node.Node, who tool.Principal, id string) (text string) {
	t.Helper()
	r, err := n.Handler().Invoke(ctx, &tool.Call{Tool: "watchJob", Args: json.RawMessage(`{"job":"` + id + `"}`), Caller: who}, tool.Discard)
	if err != nil {
		t.Error(err)
		return ""
	}
	return string(r.Output)
}

func TestAJobRunsWhileTheNodeServesAndHasNoSecret(t *testing.T) {
	t.Setenv("JOB_CANARY", "canary-1234567890")
	dir := t.TempDir()
	const text = "sources: [{name: echo, protocol: fake}]\nsecrets: {canary: {env: JOB_CANARY}}\ndoors: {http: {listen: '127.0.0.1:0'}}\nstore: {}\n"
	n := open(t, parse(t, dir, text), node.Options{Protocols: newFake().protocol()})
	defer shut(t, n)
	ada := tool.Principal{ID: "ada", Door: "http"}
	id := startJob(t, n, ada, `{"tool":"echo","arguments":{"say":"canary-1234567890"}}`)
	served(t, n, func(ctx context.Context) {
		if got := outcomeOf(ctx, t, n, ada, id); !strings.Contains(got, `"state":"done"`) || strings.Contains(got, "canary-1234567890") {
			t.Error(got)
		}
	})
	db, _, err := storage.Open(parse(t, dir, text))
	kit.OK(t, err)
	defer db.Close()
	if x, _, err := db.Jobs().Find(t.Context(), "ada", id, 0, 0); err != nil || strings.Contains(string(x.Outcome), "canary-1234567890") {
		t.Errorf("%s, %v", x.Outcome, err)
	}
	for _, r := range records(t, dir, text) {
		if r.Tool == "echo" && !r.DryRun && (r.Call != id || r.Caller != "ada" || r.Door != "http") {
			t.Errorf("the record of the job: %+v", r)
		}
	}
}

func TestWithoutAStoreThereAreNoJobs(t *testing.T) {
	n := open(t, parse(t, t.TempDir(), "sources: [{name: echo, protocol: fake}]\nstore: {url: none}\n"), node.Options{Protocols: newFake().protocol()})
	defer shut(t, n)
	kit.Refused(t, call(n, "startJob"), tool.CodeNotFound, "")
}

func TestJobsUnderARevokedTokenAreRefused(t *testing.T) {
	dir := t.TempDir()
	cfg := parse(t, dir, "sources: [{name: echo, protocol: fake}]\ndoors: {http: {listen: '127.0.0.1:0'}}\nstore: {}\n")
	n := open(t, cfg, node.Options{Protocols: newFake().protocol()})
	defer shut(t, n)
	db, _, err := storage.Open(cfg)
	kit.OK(t, err)
	defer db.Close()
	jobs := map[string]string{}
	for _, who := range []string{"kept", "gone", "other"} {
		p := tool.Principal{ID: who, Door: "http", Rights: &tool.Rights{}}
		jobs[who] = startJob(t, n, p, `{"tool":"echo"}`)
		if who == "other" { // never had a token from here
			continue
		}
		token, err := db.Tokens().Issue(t.Context(), identity.Token{Grant: identity.Grant{Caller: who, Tools: tool.Patterns{"*"}}}, time.Hour)
		kit.OK(t, err)
		if who == "gone" {
			err = db.Tokens().Revoke(t.Context(), token)
		}
		kit.OK(t, err)
	}
	served(t, n, func(ctx context.Context) {
		for who, id := range jobs {
			got := outcomeOf(ctx, t, n, tool.Principal{ID: who}, id)
			if want := who != "gone"; strings.Contains(got, `"state":"done"`) != want || strings.Contains(got, "caller_gone") == want {
				t.Errorf("%s: %s", who, got)
			}
		}
	})
}
