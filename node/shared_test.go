package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/internal/rounds"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/web"
)

// A counter is a tool that counts its calls by their arguments. It asks first if one has the name question. Beside it
// there is one that needs a lease.
type counter struct {
	name string
	ran  *sync.Map
}

func (c counter) Tools(context.Context) ([]*tool.Spec, error) {
	writes := tool.Effects{Writes: true}
	return []*tool.Spec{{Name: c.name, Effects: writes}, {Name: c.name + "_leased", Effects: writes, Tier: 3}}, nil
}

func (c counter) Invoke(_ context.Context, call *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if call.Answers == nil && strings.Contains(string(call.Args), `"question"`) {
		return &tool.Result{Ask: &tool.Ask{ID: "q", Message: "sure?", Schema: json.RawMessage(
			`{"type":"object","properties":{"sure":{"type":"boolean"}},"required":["sure"]}`)}}, nil
	}
	n, _ := c.ran.LoadOrStore(string(call.Args), new(atomic.Int64))
	time.Sleep(5 * time.Millisecond)
	return &tool.Result{OK: true, Output: fmt.Appendf(nil, `{"run":%d}`, n.(*atomic.Int64).Add(1))}, nil
}

func (counter) Close(context.Context) error { return nil }

// twoNodes serves two nodes of one PostgreSQL: both have the tool both, and one of them on_a, the other on_b. A third
// node, quiet, has the tools of b and does not serve. urls has the doors of a and b by their names.
func twoNodes(t *testing.T) (a, b, quiet *node.Node, urls []map[string]string, ran *sync.Map) {
	t.Helper()
	ran = new(sync.Map)
	url := pg.New(t).Database(t)
	protocols := []node.Protocol{{Name: "count", Open: func(_ context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
		return counter{src.Name, ran}, nil
	}}}
	var nodes []*node.Node
	for i, own := range []string{"on_a", "on_b", "on_b"} {
		text := fmt.Sprintf("sources: [{name: both, protocol: count}, {name: %s, protocol: count}]\n"+
			"doors: {http: {listen: '127.0.0.1:0'}, mcp: {tasks: {tools: [both]}}}\n"+
			"store: {url: '%s'}\nlimits: {lease_tier: 3}\n"+
			"policy: {rules: [{effect: ask, tools: on_b, when: has(args.ask)},\n"+
			"  {effect: ask, tools: both, when: has(args.approve), approvers: owner, self: true}]}\n", own, url)
		ready := make(chan node.Listening, 8)
		n := open(t, parse(t, t.TempDir(), text), node.Options{ // each with an audit.key of its own
			Protocols: protocols, Token: envelopeToken, Ready: func(l node.Listening) { ready <- l },
		})
		kit.OK(t, call(n, own))
		if nodes = append(nodes, n); i == 2 {
			t.Cleanup(func() { kit.Check(t, n.Close(kit.Context(t))) })
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Serve(ctx) }()
		t.Cleanup(func() {
			cancel()
			kit.Check(t, <-ended)
			kit.Check(t, n.Close(kit.Context(t)))
		})
		urls = append(urls, urlsOf(ready, "http", "mcp"))
	}
	return nodes[0], nodes[1], nodes[2], urls, ran
}

func TestTwoNodesShareAStore(t *testing.T) {
	a, b, quiet, urls, ran := twoNodes(t)
	ada := tool.Principal{ID: "ada", Door: "http"}
	t.Run("JobsRunWhereTheirToolIs", func(t *testing.T) {
		var ids []string
		for n := range 20 {
			from := []*node.Node{b, quiet}[n%2] // a hears of the jobs of quiet, too
			ids = append(ids, startJob(t, from, ada, fmt.Sprintf(`{"tool":"on_b","arguments":{"n":%d}}`, n)))
		}
		for _, id := range ids {
			kit.Contains(t, outcomeOf(kit.Context(t), t, a, ada, id), `"state":"done"`)
		}
	})
	t.Run("AJobOfAProgramThatDoesNotServeBeginsAtOnce", func(t *testing.T) {
		var took []time.Duration
		for n := range 20 {
			id := startJob(t, quiet, ada, fmt.Sprintf(`{"tool":"both","arguments":{"quiet":%d}}`, n))
			var j struct{ Made, Began time.Time }
			kit.OK(t, json.Unmarshal([]byte(outcomeOf(kit.Context(t), t, a, ada, id)), &j))
			took = append(took, j.Began.Sub(j.Made))
		}
		slices.Sort(took)
		t.Logf("p50 %v, most %v", took[len(took)/2], took[len(took)-1])
		if took[len(took)/2] > time.Second { // the next look would come after five
			t.Error(took)
		}
	})
	t.Run("AnApprovalLetsAJobOfTheOtherGoOn", func(t *testing.T) {
		id := startJob(t, b, ada, `{"tool":"on_b","arguments":{"ask":true}}`)
		if got := outcomeOf(kit.Context(t), t, a, ada, id); !strings.Contains(got, `"state":"asked"`) {
			t.Fatal(got)
		}
		approveNext(kit.Context(t), t, a)
		start, state := time.Now(), ""
		kit.Eventually(t, "the job has ended", func() bool {
			r, err := a.Handler().Invoke(kit.Context(t), &tool.Call{Tool: "showJob", Args: json.RawMessage(`{"job":"` + id + `"}`), Caller: ada}, tool.Discard)
			kit.OK(t, err)
			state = string(r.Output)
			return strings.Contains(state, `"ended"`) && !strings.Contains(state, `"state":"asked"`)
		})
		var j struct{ Began time.Time }
		kit.OK(t, json.Unmarshal([]byte(state), &j))
		if took := j.Began.Sub(start); !strings.Contains(state, `"state":"done"`) || took > 3*time.Second {
			t.Errorf("after %v: %s", took, state)
		}
	})
	t.Run("AKeyRunsOnce", func(t *testing.T) {
		for i := range rounds.Of(20, 200) {
			args := json.RawMessage(fmt.Sprintf(`{"key":%d}`, i))
			var got [2]string
			both(func(at int) {
				c := &tool.Call{Tool: "both", Args: args, Caller: ada, Key: fmt.Sprint("key", i)}
				r, err := []*node.Node{a, b}[at].Handler().Invoke(kit.Context(t), c, tool.Discard)
				if err != nil {
					t.Error(err)
					return
				}
				got[at] = string(r.Output)
			})
			if n := runs(ran, string(args)); n != 1 || got[0] != got[1] {
				t.Errorf("try %d ran %d times: %q", i, n, got)
			}
		}
	})
	onceAtBoth(t, []*node.Node{a, b}, urls, ran)
	mcpAtBoth(t, urls, ran)
}

// mcpAtBoth tests the tasks and the sessions of MCP clients at both programs.
func mcpAtBoth(t *testing.T, urls []map[string]string, ran *sync.Map) {
	t.Run("ATaskIsAnsweredAndRunsOnce", func(t *testing.T) {
		for i := range rounds.Of(3, 30) {
			args := fmt.Sprintf(`{"question":"task %d"}`, i)
			begun := mcpAt(t, urls[0], "tools/call", "both", `"name":"both","arguments":`+args, withTasks)
			id := member(t, begun, "taskId")
			get := func(at int, status string) (got string) {
				kit.Eventually(t, "the task is "+status, func() bool {
					got = mcpAt(t, urls[at], "tasks/get", id, `"taskId":"`+id+`"`, withTasks)
					return strings.Contains(got, `"status":"`+status+`"`)
				})
				return got
			}
			kit.Contains(t, get(1, "input_required"), `"1-answer"`)
			both(func(at int) { // the client cannot tell which of its answers counted
				answers := `"taskId":"` + id + `","inputResponses":{"1-answer":` + sure + `}`
				got := mcpAt(t, urls[at], "tasks/update", id, answers, withTasks)
				kit.Contains(t, got, `"resultType":"complete"`)
			})
			for at := range urls {
				kit.Contains(t, get(at, "completed"), `\"run\":1`)
			}
			kit.Equal(t, runs(ran, args), 1)
		}
	})
	t.Run("ALegacySessionIsServedByBoth", func(t *testing.T) {
		send := func(at int, session, body string) (string, http.Header) {
			headers := map[string]string{"Accept": "application/json, text/event-stream", "Mcp-Session-Id": session}
			return postTo(t, urls[at]["mcp"], `{"jsonrpc":"2.0","id":1,`+body+`}`, headers)
		}
		_, header := send(0, "", `"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},`+
			`"clientInfo":{"name":"x","version":"1"}}`)
		session := header.Get("Mcp-Session-Id")
		both(func(at int) {
			got, _ := send(at, session, fmt.Sprintf(
				`"method":"tools/call","params":{"name":"both","arguments":{"session":%d}}`, at))
			kit.Contains(t, got, `\"run\":1`)
		})
		if got, _ := send(1, session+"x", `"method":"ping"`); !strings.Contains(got, "error") {
			t.Errorf("a session that no program made: %s", got)
		}
	})
}

const (
	plainly   = `{"elicitation":{}}`
	withTasks = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	sure      = `{"action":"accept","content":{"sure":true}}`
)

// onceAtBoth uses what one program has made at the other, again, and at both at the same moment: it counts once.
func onceAtBoth(t *testing.T, nodes []*node.Node, urls []map[string]string, ran *sync.Map) {
	t.Helper()
	owner := tool.Principal{ID: "owner", Door: "http", Operates: true}
	invoke := func(at int, name, args string, c tool.Call) string {
		c.Tool, c.Args, c.Caller = name, json.RawMessage(args), owner
		r, err := nodes[at].Handler().Invoke(kit.Context(t), &c, tool.Discard)
		switch {
		case err != nil:
			return err.Error()
		case r.Ask != nil:
			return "asks " + r.Ask.ID
		}
		return string(r.Output)
	}
	state := func(at int, args, more string) string {
		return mcpAt(t, urls[at], "tools/call", "both", `"name":"both","arguments":`+args+more, plainly)
	}
	answered := func(answers string) func(int, string, string) string {
		return func(at int, args, id string) string {
			return invoke(at, "both", args, tool.Call{Answers: json.RawMessage(answers), Resume: id})
		}
	}
	asks := func(args string) string {
		return strings.TrimPrefix(invoke(0, "both", args, tool.Call{}), "asks ")
	}
	for name, c := range map[string]struct {
		args    string // with a place for the number of the try
		make    func(args string) string
		use     func(at int, args, made string) string
		refusal string
	}{
		"ALease": {`{"lease":%d}`, func(string) string {
			return member(t, invoke(0, "lease.issue", `{"tool":"both_leased","tier":3}`, tool.Call{}), "token")
		}, func(at int, args, made string) string {
			return invoke(at, "both_leased", args, tool.Call{Lease: made})
		}, "the lease has been used"},
		"AQuestion":         {`{"question":%d}`, asks, answered(`{"sure":true}`), "was answered already"},
		"AnApprovalInPlace": {`{"approve":%d}`, asks, answered(`{"approve":true}`), "has not asked you"},
		"ARequestState": {`{"question":"state %d"}`, func(args string) string {
			return member(t, state(0, args, ""), "requestState")
		}, func(at int, args, made string) string {
			return state(at, args, `,"inputResponses":{"answer":`+sure+`},"requestState":"`+made+`"`)
		}, "was answered already"},
		"ALinkToTheConsole": {"", func(string) string {
			path := kit.Must(nodes[0].ConsolePath(kit.Context(t)))(t)
			_, code, _ := strings.Cut(path, "code=")
			return code
		}, func(at int, _, made string) string {
			front := strings.TrimSuffix(urls[at]["mcp"], "/mcp")
			got, _ := postTo(t, front+"/v1/session", `{"code":"`+made+`"}`, map[string]string{web.ConsoleHeader: "1"})
			return got
		}, "was used before"},
	} {
		t.Run(name+"CountsOnce", func(t *testing.T) {
			for i := range rounds.Of(5, 50) {
				args := c.args
				if args != "" {
					args = fmt.Sprintf(args, i)
				}
				made := c.make(args)
				var got [2]string
				if i == 0 {
					got[1] = c.use(1, args, made)
					got[0] = c.use(1, args, made)
					kit.Contains(t, c.use(0, args, made), c.refusal)
				} else {
					both(func(at int) { got[at] = c.use(at, args, made) })
				}
				if strings.Contains(got[0], c.refusal) == strings.Contains(got[1], c.refusal) {
					t.Errorf("try %d: %q", i, got)
				}
				if args != "" {
					kit.Equal(t, runs(ran, args), 1, "try %d: %q", i, got)
				}
			}
		})
	}
}

// both does something at two programs at once.
func both(do func(at int)) {
	var all sync.WaitGroup
	for at := range 2 {
		all.Go(func() { do(at) })
	}
	all.Wait()
}

func runs(ran *sync.Map, args string) int64 {
	n, ok := ran.Load(args)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// member returns the text of a member, wherever it is in an answer.
func member(t *testing.T, answer, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(answer, `"`+name+`":"`)
	if !ok {
		t.Fatalf("there is no %s in %s", name, answer)
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// mcpAt sends a request of a modern MCP client.
func mcpAt(t *testing.T, door map[string]string, method, name, params, capabilities string) string {
	t.Helper()
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}`
	got, _ := postTo(t, door["mcp"], `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`,`+meta+`}}`,
		map[string]string{
			"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method": method, "Mcp-Name": name,
		})
	return got
}

// postTo sends a body as the owner.
func postTo(t *testing.T, url, body string, headers map[string]string) (string, http.Header) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(kit.Context(t), http.MethodPost, url, strings.NewReader(body)))(t)
	req.Header.Set("Authorization", "Bearer "+envelopeToken)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	req.Close = true // a persistent connection would outlive the test
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return "", nil
	}
	defer resp.Body.Close()
	return string(kit.Must(io.ReadAll(resp.Body))(t)), resp.Header
}
