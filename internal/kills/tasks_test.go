package kills

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
)

const tasksYAML = `
sources:
- {name: reads, protocol: narratoria, command: [python3, task.py], effects: {reads: true}, walls: {write: [out]}}
- {name: writes, protocol: narratoria, command: [python3, task.py], effects: {writes: true}, walls: {write: [out]}}
- {name: asks, protocol: narratoria, command: [python3, task.py], walls: {write: [out]}}
doors: {http: {}, mcp: {tasks: {tools: [reads, writes, asks]}}}
callers: {owner: false, list: {tester: {tools: "*", tokens: [%x]}, eve: {tools: "*", tokens: [%x]}}}
`

const taskPython = `
import json, os, sys, time
request = json.load(sys.stdin)
def say(kind, **more): print(json.dumps({"version": "0", "type": kind, **more}), flush=True)
if request["tool"] == "asks":
    answers, name = request.get("answers"), {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    if not answers:
        say("ui_event", event="ask", payload={"id": "first", "message": "Your name?", "schema": name})
        say("done", ok=True)
    elif request["resume"] == "first":
        say("ui_event", event="ask", payload={"id": "second", "message": "Really?", "schema": name})
        say("done", ok=True)
    else:
        say("done", ok=True, summary="Hello, " + answers["name"])
else:
    open("out/" + request["tool"], "a").close()
    while not os.path.exists("out/go"):
        time.sleep(0.02)
    say("done", ok=True, summary="finished")
`

const eveToken = "the-token-of-eve-0123456789abcdef"

// A task is a task in the form of MCP.
type task struct {
	ID       string                     `json:"taskId"`
	Type     string                     `json:"resultType"`
	Status   string                     `json:"status"`
	Requests map[string]json.RawMessage `json:"inputRequests"`
	Result   json.RawMessage            `json:"result"`
	Error    json.RawMessage            `json:"error"`
	TTL      *int64                     `json:"ttlMs"`
}

// mcpBody returns a request of a client that supports tasks.
func mcpBody(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `,"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` +
		`{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`
}

func mcpPost(t *testing.T, s *served.Server, token, method, name, params string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/mcp", strings.NewReader(mcpBody(method, params)))
	kit.OK(t, err)
	for header, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + token,
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		if value != "" {
			req.Header.Set(header, value)
		}
	}
	return kit.Must(http.DefaultClient.Do(req))(t)
}

// mcpAsk makes a request about tasks, and returns the result, or the error unchanged.
func mcpAsk(t *testing.T, s *served.Server, token, method, name, params string) (got task, refused string) {
	t.Helper()
	resp := mcpPost(t, s, token, method, name, params)
	defer resp.Body.Close()
	var answer struct {
		Result task            `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	kit.OK(t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer.Result, string(answer.Error)
}

func begin(t *testing.T, s *served.Server, name string) string {
	t.Helper()
	got, refused := mcpAsk(t, s, served.Token, "tools/call", name, `"name":"`+name+`","arguments":{}`)
	if got.Type != "task" || got.ID == "" || got.Status != "working" || got.TTL != nil {
		t.Fatalf("%s: %+v, %s", name, got, refused)
	}
	return got.ID
}

func taskNow(t *testing.T, s *served.Server, id string) task {
	t.Helper()
	got, refused := mcpAsk(t, s, served.Token, "tasks/get", id, `"taskId":"`+id+`"`)
	kit.MustEqual(t, refused, "", id)
	return got
}

func taskIs(t *testing.T, s *served.Server, id, status string) (got task) {
	t.Helper()
	kit.Eventually(t, "the task is "+status, func() bool { got = taskNow(t, s, id); return got.Status == status })
	return got
}

// heardOf collects a client's notifications about tasks, until the stream ends.
func heardOf(t *testing.T, s *served.Server, ids ...string) (<-chan task, func()) {
	t.Helper()
	list, _ := json.Marshal(ids)
	ctx, stop := context.WithCancel(t.Context())
	resp := mcpPost(t, s, served.Token, "subscriptions/listen", "", `"notifications":{"taskIds":`+string(list)+`}`)
	told, ended := make(chan task, 100), make(chan struct{})
	context.AfterFunc(ctx, func() { resp.Body.Close() })
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
			var n struct {
				Method string `json:"method"`
				Params task   `json:"params"`
			}
			if ok && json.Unmarshal(data, &n) == nil && n.Method == "notifications/tasks" {
				told <- n.Params
			}
		}
	}()
	return told, func() { stop(); <-ended }
}

// A task is a job: an acknowledged task survives a kill, and runs again if it may run twice.
func TestTasksSurviveTheKillOfTheServer(t *testing.T) {
	tooltest.NoLeaks(t)
	defer http.DefaultClient.CloseIdleConnections()
	dir := newFolder(t)
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"),
		fmt.Appendf(nil, tasksYAML, sha256.Sum256([]byte(served.Token)), sha256.Sum256([]byte(eveToken))), 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "task.py"), []byte(taskPython), 0o600))
	bin := served.Build(t)
	s := served.Start(t, bin, dir)
	reads, writes, asks := begin(t, s, "reads"), begin(t, s, "writes"), begin(t, s, "asks")
	first := taskIs(t, s, asks, "input_required")
	kit.Eventually(t, "both run", func() bool {
		_, r := os.Stat(filepath.Join(dir, "out", "reads"))
		_, w := os.Stat(filepath.Join(dir, "out", "writes"))
		return r == nil && w == nil
	})
	s.Kill()

	s = served.Start(t, bin, dir)
	defer s.Kill()
	told, stop := heardOf(t, s, reads, asks, "no-such-task")
	defer stop()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "out", "go"), nil, 0o600))
	if got := taskIs(t, s, reads, "completed"); !strings.Contains(string(got.Result), "finished") || got.TTL == nil || *got.TTL <= 0 {
		t.Errorf("what may run twice: %+v", got)
	}
	if got := taskIs(t, s, writes, "failed"); !strings.Contains(string(got.Error), "outcome is unknown") {
		t.Errorf("what may not: %+v", got)
	}
	second := answerTask(t, s, asks, first, `{"name":"Ada"}`)
	for key := range first.Requests {
		if second.Requests[key] != nil {
			t.Errorf("the key %s is used twice", key)
		}
		// A second answer to the first question is ignored.
		_, refused := mcpAsk(t, s, served.Token, "tasks/update", asks, `"taskId":"`+asks+`","inputResponses":{"`+key+`":{"action":"accept","content":{"name":"Eve"}}}`)
		kit.Equal(t, refused, "", "an answer that is late")
	}
	othersSeeNothing(t, s, asks)
	last := answerTask(t, s, asks, second, `{"name":"Bob"}`)
	if last.Status != "completed" || !strings.Contains(string(last.Result), "Hello, Bob") {
		t.Errorf("%+v", last)
	}
	hears(t, told, map[string][]string{reads: {"completed"}, asks: {"input_required", "completed"}})
}

// answerTask answers a task's question, and returns the task when it asks something else, or has ended.
func answerTask(t *testing.T, s *served.Server, id string, asked task, content string) (got task) {
	t.Helper()
	for key := range asked.Requests {
		wrong, _ := mcpAsk(t, s, served.Token, "tasks/update", id, `"taskId":"`+id+`","inputResponses":{"`+key+`":{"action":"accept","content":{"name":7}}}`)
		kit.Equal(t, wrong.Type, "", "an answer that was not asked for was taken")
		ack, refused := mcpAsk(t, s, served.Token, "tasks/update", id, `"taskId":"`+id+`","inputResponses":{"`+key+`":{"action":"accept","content":`+content+`}}`)
		if ack.Type != "complete" || ack.ID != "" {
			t.Fatalf("%+v, %s", ack, refused)
		}
		kit.Eventually(t, "the task goes on", func() bool {
			got = taskNow(t, s, id)
			return got.Status != "working" && got.Requests[key] == nil
		})
	}
	return got
}

// A task of another caller looks like one that never existed, for every request.
func othersSeeNothing(t *testing.T, s *served.Server, id string) {
	t.Helper()
	for method, more := range map[string]string{
		"tasks/get": "", "tasks/cancel": "", "tasks/update": `,"inputResponses":{"2-answer":{"action":"accept","content":{"name":"Eve"}}}`,
	} {
		_, theirs := mcpAsk(t, s, eveToken, method, id, `"taskId":"`+id+`"`+more)
		never := strings.Repeat("0", len(id))
		_, nobodys := mcpAsk(t, s, eveToken, method, never, `"taskId":"`+never+`"`+more)
		if !strings.Contains(theirs, "-32602") || strings.ReplaceAll(theirs, id, never) != nobodys {
			t.Errorf("%s: %s, and %s", method, theirs, nobodys)
		}
	}
	kit.Equal(t, taskNow(t, s, id).Status, "input_required")
}

// hears checks that these states are reported for each task, in this order; others may come between them.
func hears(t *testing.T, told <-chan task, want map[string][]string) {
	t.Helper()
	left := len(want)
	for left > 0 {
		select {
		case one := <-told:
			if list := want[one.ID]; len(list) > 0 && one.Status == list[0] {
				if want[one.ID] = list[1:]; len(list) == 1 {
					left--
				}
			}
		case <-time.After(time.Minute):
			t.Fatalf("nothing was told of %v", want)
		}
	}
}
