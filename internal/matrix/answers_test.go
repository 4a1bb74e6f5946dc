package matrix

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/envelope"
)

// A desk is a node with every door and three tools that need an answer first: gate and later, which need an approval, and
// asks, which asks itself. Ann may approve her own calls. She has two tokens, of which the lesser one does not allow
// approvals.
type desk struct {
	dir, bin string
	node     *node.Node
	url      map[string]string
	token    map[string]string // full and less are ann's; bob's
	ran      atomic.Int64
}

// lesser returns the tools that the lesser token allows: all but deciding.
func lesser() tool.Patterns {
	return tool.Patterns{"gate", "asks", "later", "runCode", "toolpost.*Job", "toolpost.plan.*", "toolpost.approvals.list"}
}

const deskConfig = `
sources: [{name: s, protocol: desk}]
doors: {http: {listen: "127.0.0.1:0"}, mcp: {tasks: {tools: [later]}}, namel3ss: {listen: "127.0.0.1:0"}, nats: {listen: "127.0.0.1:0"}}
callers: {owner: false, list: {bob: {tools: "*", tokens: [%x]}}}
models: [{name: demo, url: "http://127.0.0.1:9/v1"}]
policy: {rules: [{name: gated, effect: ask, tools: [gate, later], approvers: [ann, bob], self: true}]}
`

func newDesk(t *testing.T) *desk {
	t.Helper()
	tooltest.NoLeaks(t)
	d := &desk{dir: t.TempDir(), bin: served.Build(t), url: map[string]string{},
		token: map[string]string{"bob": "token-of-bob-0123456789"}}
	path := filepath.Join(d.dir, "toolpost.yaml")
	kit.OK(t, os.WriteFile(path, fmt.Appendf(nil, deskConfig, sha256.Sum256([]byte(d.token["bob"]))), 0o600))
	cfg, err := config.Load(path)
	kit.OK(t, err)
	ready := make(chan node.Listening, 8)
	opened := func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return d, nil }
	d.node, err = node.Open(t.Context(), cfg, node.Options{
		Ready: func(l node.Listening) { ready <- l }, Protocols: append(node.Protocols(), node.Protocol{Name: "desk", Open: opened}),
	})
	kit.OK(t, err)
	db, _, err := storage.Open(cfg)
	kit.OK(t, err)
	for who, tools := range map[string]tool.Patterns{"full": {"*"}, "less": lesser()} {
		d.token[who], err = db.Tokens().Issue(t.Context(), identity.Token{Grant: identity.Grant{Caller: "ann", Tools: tools}}, time.Hour)
		kit.OK(t, err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.node.Serve(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		end()
		late, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		kit.Check(t, errors.Join(<-ended, d.node.Close(late), db.Close()))
	})
	for range 5 {
		l := <-ready
		d.url[l.Door] = strings.TrimSuffix(l.URL, "/tools")
	}
	return d
}

// Tools, Invoke and Close implement a source.
func (d *desk) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "gate"}, {Name: "asks"}, {Name: "later"}}, nil
}

func (d *desk) Invoke(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if c.Spec.Name == "asks" && c.Resume == "" {
		return &tool.Result{Ask: &tool.Ask{ID: "q", Message: which, Schema: json.RawMessage(colourForm)}}, nil
	}
	d.ran.Add(1)
	return &tool.Result{OK: true, Output: json.RawMessage(`{"ran":true}`)}, nil
}

func (d *desk) Close(context.Context) error { return nil }

// A reply is what a call carries beside its arguments.
type reply struct{ resume, answers string }

func (s reply) fields() map[string]string {
	all := map[string]string{}
	if s.resume != "" {
		all["Toolpost-Resume"] = s.resume
	}
	if s.answers != "" {
		all["Toolpost-Answers"] = s.answers
	}
	return all
}

// An entry calls a tool with answers, and returns everything that its caller receives.
type entry struct {
	call func(t *testing.T, d *desk, who, name string, s reply) string
	// takes reports that answers with the id of their question arrive here; otherwise a model or a program is in between.
	takes bool
}

// entries returns every door of the matrix, and the other ways to make a call.
func entries() map[string]entry {
	stdin := func(protocol string, words []string, request func(d *desk, name string) string) entry {
		return entry{func(t *testing.T, d *desk, who, name string, s reply) string {
			var out bytes.Buffer
			d.serveAs(t, who, s, node.Stdio{In: strings.NewReader(request(d, name)), Out: &out, Log: io.Discard}, protocol,
				strings.Fields(strings.NewReplacer("NAME", name, "AID", d.aid(t, name)).Replace(strings.Join(words, " ")))...)
			return out.String()
		}, true}
	}
	return map[string]entry{
		"command line": {callDeskProgram, true},
		"HTTP": {func(t *testing.T, d *desk, who, name string, s reply) string {
			return d.post(t, who, d.url["http"]+"/v1/tools/"+name+"/call", `{}`, s.fields())
		}, true},
		"OpenAI, tool_calls": {func(t *testing.T, d *desk, who, name string, s reply) string {
			return d.post(t, who, d.url["http"]+"/v1/openai/tool_calls",
				`{"tool_calls":[{"id":"c","type":"function","function":{"name":"`+name+`","arguments":"{}"}}]}`, s.fields())
		}, true},
		"chat completions": {modelRoute("/v1/chat/completions"), false},
		"responses":        {modelRoute("/v1/responses"), false},
		"messages":         {modelRoute("/v1/messages"), false},
		"namel3ss service": {func(t *testing.T, d *desk, who, name string, s reply) string {
			return d.post(t, who, d.url["namel3ss"]+"/tools", `{"protocol_version":1,"tool_name":"`+name+`","payload":{}}`, s.fields())
		}, true},
		"namel3ss stdin": stdin("namel3ss", nil, func(_ *desk, name string) string {
			return `{"protocol_version":1,"tool":"` + name + `","entry":"tools.any:any","payload":{}}`
		}),
		"NATS, plain":     {natsEntry("tools.execute.NAME", `{}`), true},
		"NATS, tool_call": {natsEntry("tools.execute", `{"tool_call_id":"c","function":{"name":"NAME","arguments":"{}"}}`), true},
		"NATS, native":    {natsEntry("tools.execute.NAME", `{"arguments":{},"answers":ANSWERS}`), true},
		"skill v1":        {skillEntry("initialize"), true},
		"skill v2":        {skillEntry("tools/list"), true},
		"Machina --run": stdin("machina", []string{"--run", "s", "AID"},
			func(*desk, string) string { return `{"input_json":"{}"}` + "\n" }),
		"Machina --serve": {func(t *testing.T, d *desk, who, name string, s reply) string {
			var out bytes.Buffer
			d.serveAs(t, who, s, node.Stdio{In: strings.NewReader(`{"aid":"` + d.aid(t, name) + `","input_json":"{}"}` + "\n"),
				Out: &out, Log: io.Discard},
				"machina", "--serve", "s")
			return out.String()
		}, true},
		"Narratoria": {func(t *testing.T, d *desk, who, name string, s reply) string {
			request := map[string]any{"input": map[string]any{}, "resume": s.resume, "answers": json.RawMessage(s.answers)}
			var out bytes.Buffer
			d.serveAs(t, who, reply{}, node.Stdio{In: bytes.NewReader(encode(t, request)), Out: &out, Log: io.Discard}, "narratoria", name)
			return out.String()
		}, true},
		"Narratoria, by the environment": stdin("narratoria", []string{"NAME"}, func(*desk, string) string { return `{}` }),
		"MCP modern, HTTP":               {mcpEntry(true, mcpOverHTTP), true},
		"MCP legacy, HTTP":               {mcpEntry(false, mcpOverHTTP), true},
		"MCP modern, stdio":              {mcpEntry(true, mcpOverStdio), true},
		"MCP legacy, stdio":              {mcpEntry(false, mcpOverStdio), true},
		"a job": {func(t *testing.T, d *desk, who, name string, s reply) string {
			args := map[string]any{"tool": name, "arguments": map[string]any{}, "resume": s.resume, "answers": json.RawMessage(s.answers)}
			begun := d.post(t, who, d.url["http"]+"/v1/tools/startJob/call", string(encode(t, args)), nil)
			return begun + d.watch(t, who, begun)
		}, false},
		"a plan": {func(t *testing.T, d *desk, who, name string, s reply) string {
			return d.post(t, who, d.url["http"]+"/v1/tools/plan.run/call",
				`{"plan":{"requestId":"r","tools":[{"toolId":"a","tool":"`+name+`","input":{}}]}}`, s.fields())
		}, false},
		"a program": {func(t *testing.T, d *desk, who, name string, s reply) string {
			return d.post(t, who, d.url["http"]+"/v1/tools/runCode/call",
				`{"language":"python","code":"return await tools.`+name+`()"}`, s.fields())
		}, false},
	}
}

func callDeskProgram(t *testing.T, d *desk, who, name string, s reply) string {
	words := []string{"call", name, "-", "--json", "--server", d.url["http"], "--answers", s.answers}
	if s.resume != "" {
		words = append(words, "--resume", s.resume)
	}
	cmd := exec.CommandContext(t.Context(), d.bin, words...)
	cmd.Env, cmd.Stdin = append(cmd.Environ(), "TOOLPOST_TOKEN="+d.token[who]), strings.NewReader(`{}`)
	out, _ := cmd.CombinedOutput() // its exit status adds nothing
	return string(out)
}

func modelRoute(path string) func(*testing.T, *desk, string, string, reply) string {
	return func(t *testing.T, d *desk, who, _ string, s reply) string {
		return d.post(t, who, d.url["http"]+path,
			`{"model":"demo","input":"x","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`, s.fields())
	}
}

func natsEntry(subject, body string) func(*testing.T, *desk, string, string, reply) string {
	return func(t *testing.T, d *desk, who, name string, s reply) string {
		nc := kit.Must(nats.Connect(d.url["nats"], nats.Token(d.token[who])))(t)
		defer nc.Close()
		m := &nats.Msg{Subject: strings.ReplaceAll(subject, "NAME", name), Data: []byte(strings.ReplaceAll(body, "NAME", name)),
			Header: nats.Header{}}
		for header, value := range s.fields() {
			m.Header.Set(header, value)
		}
		if strings.Contains(body, "ANSWERS") {
			m.Data = []byte(strings.ReplaceAll(string(m.Data), "ANSWERS", s.answers))
			m.Header.Set("Toolpost-Style", "native")
			m.Header.Del("Toolpost-Answers")
		}
		reply := kit.Must(nc.RequestMsg(m, time.Minute))(t)
		return string(reply.Data)
	}
}

func skillEntry(introduce string) func(*testing.T, *desk, string, string, reply) string {
	return func(t *testing.T, d *desk, who, name string, s reply) string {
		return d.talk(t, who, s, "alphahuman", []string{
			`{"jsonrpc":"2.0","id":1,"method":"` + introduce + `","params":{}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + name + `","arguments":{}}}`,
		})
	}
}

// mcpEntry sends answers with the first call or, if they have an id, in _meta.
func mcpEntry(modern bool, over func(t *testing.T, d *desk, who, name string, lines []string) string) func(*testing.T,
	*desk, string, string, reply) string {
	return func(t *testing.T, d *desk, who, name string, s reply) string {
		meta, lines := map[string]any{}, []string{}
		params := map[string]any{"name": name, "arguments": map[string]any{}, "_meta": meta}
		able := map[string]any{"elicitation": map[string]any{}}
		if modern {
			meta["io.modelcontextprotocol/protocolVersion"], meta["io.modelcontextprotocol/clientCapabilities"] = versionOf("modern"), able
		} else {
			lines = append(lines, string(encode(t, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": map[string]any{
				"protocolVersion": versionOf("legacy"), "capabilities": able, "clientInfo": map[string]any{"name": "x", "version": "1"},
			}})))
		}
		switch {
		case s.resume == "" && s.answers != "":
			params["inputResponses"] = map[string]any{"answer": map[string]any{"action": "accept", "content": json.RawMessage(s.answers)}}
		case s.resume != "":
			meta["toolpost/resume"], meta["toolpost/answers"] = s.resume, s.answers
		}
		lines = append(lines, string(encode(t, map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})))
		return over(t, d, who, name, lines)
	}
}

func mcpOverStdio(t *testing.T, d *desk, who, _ string, lines []string) string {
	return d.talk(t, who, reply{}, "mcp", lines)
}

func mcpOverHTTP(t *testing.T, d *desk, who, name string, lines []string) string {
	headers := map[string]string{"Accept": "application/json, text/event-stream"}
	if len(lines) == 1 {
		headers["Mcp-Protocol-Version"], headers["Mcp-Method"], headers["Mcp-Name"] = versionOf("modern"), "tools/call", name
	}
	for i, line := range lines {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp := d.send(ctx, t, who, d.url["mcp"], line, headers)
		defer resp.Body.Close()
		headers["Mcp-Session-Id"] = resp.Header.Get("Mcp-Session-Id")
		if headers["Mcp-Session-Id"] == "" {
			delete(headers, "Mcp-Session-Id")
		}
		if i+1 < len(lines) {
			_, _ = io.Copy(io.Discard, resp.Body) // the session is initialised
			continue
		}
		return untilAnswered(resp.Body)
	}
	return ""
}

// untilAnswered reads lines up to the answer to request 2, or to the first request to this client.
func untilAnswered(from io.Reader) string {
	var all strings.Builder
	for lines := bufio.NewScanner(from); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), `"id":2`) || strings.Contains(lines.Text(), "elicitation/create") {
			break
		}
	}
	return all.String()
}

func (d *desk) send(ctx context.Context, t *testing.T, who, url, body string, headers map[string]string) *http.Response {
	t.Helper()
	r := kit.Must(http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body)))(t)
	r.Header.Set("Authorization", "Bearer "+d.token[who])
	r.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	return kit.Must(http.DefaultClient.Do(r))(t)
}

func (d *desk) post(t *testing.T, who, url, body string, headers map[string]string) string {
	t.Helper()
	resp := d.send(t.Context(), t, who, url, body, headers)
	defer resp.Body.Close()
	return string(kit.Must(io.ReadAll(resp.Body))(t))
}

var jobID = regexp.MustCompile(`"job":"([^"]+)"`)

// watch waits for the end of the job that an answer names, or for its question.
func (d *desk) watch(t *testing.T, who, begun string) string {
	t.Helper()
	id := jobID.FindStringSubmatch(begun)
	if id == nil {
		return ""
	}
	return d.post(t, who, d.url["http"]+"/v1/tools/watchJob/call", `{"job":"`+id[1]+`"}`, nil)
}

// serveAs runs `toolpost as` for a caller, with an environment.
func (d *desk) serveAs(t *testing.T, who string, s reply, std node.Stdio, protocol string, words ...string) {
	t.Helper()
	std.Caller = tool.Principal{ID: "ann", Door: protocol}
	if who == "less" {
		std.Caller.Rights = &tool.Rights{Tools: lesser()}
	}
	fill := kit.Must(envelope.Environment(func(name string) string {
		return map[string]string{"TOOLPOST_RESUME": s.resume, "TOOLPOST_ANSWERS": s.answers}[name]
	}))(t)
	for _, p := range node.Protocols() {
		if p.Name == protocol {
			door := kit.Must(p.Stdio.Door(words, std))(t)
			_ = door.Serve(t.Context(), fill(d.node.Handler()), d.node.Catalog()) // only its output counts
		}
	}
}

// talk is serveAs for doors on which both sides take turns.
func (d *desk) talk(t *testing.T, who string, s reply, protocol string, lines []string) string {
	t.Helper()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.serveAs(t, who, s, node.Stdio{In: in, Out: out, Log: io.Discard}, protocol)
		_ = out.Close() // never fails
	}()
	go func() { _, _ = io.WriteString(stdin, strings.Join(lines, "\n")+"\n") }()
	told := untilAnswered(stdout)
	if id := regexp.MustCompile(`"id":(\d+),"method":"elicitation/create"`).FindStringSubmatch(told); id != nil {
		_, _ = io.WriteString(stdin, `{"jsonrpc":"2.0","id":`+id[1]+`,"result":{"action":"cancel"}}`+"\n")
	}
	_ = stdin.Close() // never fails
	_, _ = io.Copy(io.Discard, stdout)
	<-ended
	return told
}

// aid returns Machina's name of a tool.
func (d *desk) aid(t *testing.T, name string) string {
	t.Helper()
	var out bytes.Buffer
	d.serveAs(t, "full", reply{}, node.Stdio{In: strings.NewReader(""), Out: &out, Log: io.Discard}, "machina", "--list", "s")
	aid := regexp.MustCompile(`"aid":"([^"]+)","name":"` + name + `"`).FindStringSubmatch(out.String())
	if aid == nil {
		t.Fatal(out.String())
	}
	return aid[1]
}

// asked makes a call that ends with a question, and returns its id.
func (d *desk) asked(t *testing.T, who, name string) string {
	t.Helper()
	answer := d.post(t, who, d.url["http"]+"/v1/tools/"+name+"/call", `{}`, nil)
	id := regexp.MustCompile(`"ask":\{"id":"([^"]+)"`).FindStringSubmatch(answer)
	if id == nil {
		t.Fatal(answer)
	}
	return id[1]
}

func answersOf(name string) string {
	return map[string]string{"gate": `{"approve":true}`, "asks": `{"colour":"blue"}`}[name]
}

func TestAnAnswerWithoutItsQuestionIsRefusedAtEveryDoor(t *testing.T) {
	d, rows := newDesk(t), entries()
	for _, door := range doors() {
		if rows[door.name].call == nil {
			t.Errorf("%s has no row: say here how somebody answers there", door.name)
		}
	}
	for door, e := range rows {
		t.Run(door, func(t *testing.T) {
			for _, name := range []string{"gate", "asks"} {
				for what, s := range map[string]reply{
					"no id":              {"", answersOf(name)},
					"an id of no one":    {"apr_aaaaaaaaaaaaaaaaaaaa", answersOf(name)},
					"an id of bob's":     {d.asked(t, "bob", name), answersOf(name)},
					"an id of a tool's":  {d.asked(t, "full", map[string]string{"gate": "asks", "asks": "gate"}[name]), answersOf(name)},
					"a state of nothing": {strings.Repeat("A", 200), answersOf(name)},
				} {
					before := d.ran.Load()
					if told := e.call(t, d, "full", name, s); d.ran.Load() != before || told == "" {
						t.Errorf("%s with %s: it ran: %s", name, what, told)
					}
				}
				if before := d.ran.Load(); e.takes { // otherwise the above proves nothing
					told := e.call(t, d, "full", name, reply{d.asked(t, "full", name), answersOf(name)})
					kit.Equal(t, d.ran.Load(), before+1, "%s with its own id has not run: %s", name, told)
				}
			}
		})
	}
}

// A token that does not allow approvals decides nothing, not even about its holder's own calls, whichever token made
// them.
func TestTokenWithoutApprovalRightsDecidesNothing(t *testing.T) {
	d := newDesk(t)
	for door, e := range entries() {
		t.Run(door, func(t *testing.T) {
			before := d.ran.Load()
			for _, asker := range []string{"full", "less"} {
				id := d.asked(t, asker, "gate")
				for _, s := range []reply{{id, `{"approve":true}`}, {id, `{"approve":true,"for":"hour"}`}, {"", `{"approve":true}`},
					{id, `{"approve":false}`}} {
					told := e.call(t, d, "less", "gate", s)
					if d.ran.Load() != before || told == "" || strings.Contains(told, "elicitation/create") {
						t.Fatalf("asked by %s, with %v: %s", asker, s, told)
					}
				}
			}
			id := d.asked(t, "less", "gate") // it waits as before
			for _, who := range []string{"less", "full"} {
				told := d.post(t, who, d.url["http"]+"/v1/tools/approvals.decide/call", `{"id":"`+id+`","approve":true}`, nil)
				kit.MustEqual(t, strings.Contains(told, `"ok":true`), (who == "full"), "%s decides: %s", who, told)
			}
			if told := d.post(t, "less", d.url["http"]+"/v1/tools/gate/call", `{}`, nil); d.ran.Load() != before+1 {
				t.Errorf("approved, it has not run: %s", told)
			}
		})
	}
	t.Run("a job of the other token", func(t *testing.T) {
		before := d.ran.Load()
		for _, who := range []string{"full", "less"} {
			begun := d.post(t, who, d.url["http"]+"/v1/tools/startJob/call", `{"tool":"gate","arguments":{}}`, nil)
			d.watch(t, who, begun)
			told := d.post(t, "less", d.url["http"]+"/v1/tools/answerJob/call",
				`{"job":"`+jobID.FindStringSubmatch(begun)[1]+`","answers":{"approve":true}}`, nil)
			if d.ran.Load() != before || !strings.Contains(told, "waits for an approval") {
				t.Errorf("%s: %s", who, told)
			}
		}
	})
}

// modern makes a request of MCP, as a client that can be asked and supports tasks.
func (d *desk) modern(t *testing.T, who, method, name, params string) string {
	t.Helper()
	return d.post(t, who, d.url["mcp"], `{"jsonrpc":"2.0","id":2,"method":"`+method+`","params":{"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"`+versionOf("modern")+`","io.modelcontextprotocol/clientCapabilities":`+
		`{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}},`+params+`}}`, map[string]string{
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": versionOf("modern"), "Mcp-Method": method, "Mcp-Name": name,
	})
}

// The state of a question, too, is valid for one call of its caller, once, with a token that may decide.
func TestRequestStateIsBoundToItsCall(t *testing.T) {
	d := newDesk(t)
	call := func(who, name, args, more string) string {
		return d.modern(t, who, "tools/call", name, `"name":"`+name+`","arguments":`+args+more)
	}
	for _, name := range []string{"gate", "asks"} {
		t.Run(name, func(t *testing.T) {
			told := call("full", name, `{"a":1}`, "")
			state := regexp.MustCompile(`"requestState":"([^"]+)"`).FindStringSubmatch(told)
			if state == nil {
				t.Fatal(told)
			}
			answered := `,"requestState":"` + state[1] + `","inputResponses":{"answer":{"action":"accept","content":` + answersOf(name) + `}}`
			other := map[bool]string{true: "B", false: "A"}[state[1][40] == 'A']
			before := d.ran.Load()
			for what, told := range map[string]string{
				"bob":             call("bob", name, `{"a":1}`, answered),
				"another call":    call("full", name, `{"a":2}`, answered),
				"another tool":    call("full", map[string]string{"gate": "asks", "asks": "gate"}[name], `{"a":1}`, answered),
				"a state changed": call("full", name, `{"a":1}`, strings.Replace(answered, state[1], state[1][:40]+other+state[1][41:], 1)),
			} {
				if d.ran.Load() != before || !strings.Contains(told, "error") {
					t.Errorf("%s: %s", what, told)
				}
			}
			if told := call("less", name, `{"a":1}`, answered); name == "gate" && d.ran.Load() != before {
				t.Errorf("a token that may not decide: %s", told)
			}
			if told := call("full", name, `{"a":1}`, answered); d.ran.Load() != before+1 {
				t.Errorf("it has not run: %s", told)
			}
			if told := call("full", name, `{"a":1}`, answered); d.ran.Load() != before+1 || !strings.Contains(told, "error") {
				t.Errorf("once more: %s", told)
			}
		})
	}
}

// A task that has to be approved asks its client nothing, and continues once it is approved.
func TestATaskIsApprovedAndNotAnswered(t *testing.T) {
	d := newDesk(t)
	told := d.modern(t, "full", "tools/call", "later", `"name":"later","arguments":{}`)
	task := regexp.MustCompile(`"taskId":"([^"]+)"`).FindStringSubmatch(told)
	if task == nil {
		t.Fatal(told)
	}
	d.watch(t, "full", `"job":"`+task[1]+`"`)
	about := `"taskId":"` + task[1] + `"`
	if told := d.modern(t, "full", "tasks/get", task[1], about); !strings.Contains(told, `"status":"working"`) || !strings.Contains(told, "has to be approved") {
		t.Error(told)
	}
	answer := `,"inputResponses":{"0-answer":{"action":"accept","content":{"approve":true}}}`
	for _, who := range []string{"less", "full"} {
		if told := d.modern(t, who, "tasks/update", task[1], about+answer); d.ran.Load() != 0 {
			t.Errorf("%s: %s", who, told)
		}
	}
	list := d.post(t, "full", d.url["http"]+"/v1/tools/approvals.list/call", `{}`, nil)
	id := regexp.MustCompile(`apr_[a-z2-7]{20}`).FindString(list)
	d.post(t, "full", d.url["http"]+"/v1/tools/approvals.decide/call", `{"id":"`+id+`","approve":true}`, nil)
	d.watch(t, "full", `"job":"`+task[1]+`"`)
	for told = ""; !strings.Contains(told, `"status":"completed"`) && t.Context().Err() == nil; {
		told = d.modern(t, "full", "tasks/get", task[1], about)
	}
	kit.Equal(t, d.ran.Load(), 1, told)
}
