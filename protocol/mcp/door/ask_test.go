package door_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/engine"
	"toolpost/engine/ask"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/protocol/mcp/mcptest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// carrying puts the engine's stages for questions in front of a tool.
func carrying(h tool.Handler) tool.Handler {
	q := ask.New(ask.Options{})
	return q.Answers(nil)(q.Carry(nil)(h))
}

// An asker is a tool that asks one question, under any name.
type asker struct {
	*bench
	asks *tool.Ask
}

func (a asker) Invoke(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if c.Resume == "" {
		return &tool.Result{Ask: a.asks}, nil
	}
	out, _ := json.Marshal(map[string]any{"answers": c.Answers})
	return &tool.Result{OK: true, Output: out}, nil
}

func form(key, field string) tool.Need {
	return tool.Need{
		Key: key, Kind: tool.NeedForm, Message: key + "?",
		Schema: json.RawMessage(`{"type":"object","properties":{"` + field + `":{"type":"string"}},"required":["` + field + `"]}`),
	}
}

func everything() *tool.Ask {
	return &tool.Ask{ID: "q", Needs: []tool.Need{
		form("who", "name"),
		{Key: "says", Kind: tool.NeedModel, Params: json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":"Hi"}}],"maxTokens":10}`)},
		{Key: "where", Kind: tool.NeedRoots},
	}}
}

// serveAsker opens the door in front of a tool that asks.
func serveAsker(t *testing.T, a *tool.Ask) string {
	b := newBench()
	return serveHTTP(t, door.Options{}, carrying(asker{b, a}), b)
}

//nolint:staticcheck // what is deprecated is in the field, and asked for
func TestTheOfficialClientIsAskedForSeveralThings(t *testing.T) {
	o := &sdk.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			if r.Params.Message != "who?" {
				return nil, fmt.Errorf("asked %q", r.Params.Message)
			}
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		CreateMessageHandler: func(_ context.Context, r *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			if r.Params.MaxTokens != 10 || len(r.Params.Messages) != 1 {
				return nil, fmt.Errorf("asked %+v", r.Params)
			}
			return &sdk.CreateMessageResult{Role: "assistant", Model: "m", Content: &sdk.TextContent{Text: "Hello"}}, nil
		},
	}
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
			client.AddRoots(&sdk.Root{URI: "file:///home/ada", Name: "home"})
			s := kit.Must(client.Connect(t.Context(), &sdk.StreamableClientTransport{
				Endpoint: serveAsker(t, everything()), HTTPClient: httpClient(t), MaxRetries: -1,
			}, &sdk.ClientSessionOptions{ProtocolVersion: version}))(t)
			defer s.Close()
			r := kit.Must(s.CallTool(t.Context(), &sdk.CallToolParams{Name: "ask"}))(t)
			for _, want := range []string{`"name":"Ada"`, `"text":"Hello"`, `"uri":"file:///home/ada"`} {
				kit.Contains(t, textOf(r), want, "the tool was answered")
			}
		})
	}
}

// able is the _meta of a modern request whose client has these capabilities.
func able(capabilities string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capabilities + `}`
}

// askAs calls the asking tool as a client with these capabilities, with further params.
func askAs(t *testing.T, url, capabilities, params string) said {
	t.Helper()
	return post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{},`+params+able(capabilities)+`}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "ask")
}

const allCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`

// A round is an input_required result.
type round struct {
	Type     string                     `json:"resultType"`
	State    string                     `json:"requestState"`
	Requests map[string]json.RawMessage `json:"inputRequests"`
}

func roundOf(t *testing.T, s said) (r round) {
	t.Helper()
	if err := json.Unmarshal(s.Result, &r); err != nil || r.Type != "input_required" || r.State == "" {
		t.Fatalf("%v: %s", err, s.body)
	}
	return r
}

func TestClientIsAskedWithinItsCapabilities(t *testing.T) {
	link := tool.Need{Key: "page", Kind: tool.NeedLink, Message: "Go there", Params: json.RawMessage(`{"url":"https://example.com"}`)}
	optional := func(n tool.Need) tool.Need { n.Optional = true; return n }
	for name, c := range map[string]struct {
		needs        []tool.Need
		capabilities string
		want         string // the keys that are asked for, or the missing capability
	}{
		"all":                     {everything().Needs, allCapabilities, "says where who"},
		"a form by an empty mode": {[]tool.Need{form("who", "name")}, `{"elicitation":{}}`, "who"},
		"a form for links alone":  {[]tool.Need{form("who", "name")}, `{"elicitation":{"url":{}}}`, `{"elicitation":{}}`},
		"a link for forms alone":  {[]tool.Need{link}, `{"elicitation":{}}`, `{"elicitation":{"url":{}}}`},
		"a link":                  {[]tool.Need{link}, allCapabilities, "page"},
		"no model":                {everything().Needs[1:2], `{"elicitation":{}}`, `{"sampling":{}}`},
		"no roots":                {everything().Needs[2:], `{"elicitation":{}}`, `{"roots":{}}`},
		"what can be left out":    {[]tool.Need{optional(form("who", "name")), everything().Needs[1]}, `{"sampling":{}}`, "says"},
		"all can be left out":     {[]tool.Need{optional(form("who", "name"))}, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := askAs(t, serveAsker(t, &tool.Ask{ID: "q", Needs: c.needs}), c.capabilities, "")
			switch {
			case c.want == "":
				kit.Contains(t, got.body, `\"answers\":{}`)
			case strings.HasPrefix(c.want, "{"):
				if got.status != 400 || got.Error.Code != -32021 || !strings.Contains(got.body, `"requiredCapabilities":`+c.want) {
					t.Errorf("%d %s", got.status, got.body)
				}
			default:
				r := roundOf(t, got)
				if keys := strings.Fields(c.want); len(r.Requests) != len(keys) {
					t.Errorf("%s", got.body)
				} else {
					for _, k := range keys {
						if r.Requests[k] == nil {
							t.Errorf("%s is not among %s", k, got.body)
						}
					}
				}
			}
		})
	}
}

func TestALinkHasItsAddress(t *testing.T) {
	url := serveAsker(t, &tool.Ask{ID: "q", Needs: []tool.Need{{
		Key: "page", Kind: tool.NeedLink, Message: "Go there", Params: json.RawMessage(`{"url":"https://example.com","mode":"form"}`),
	}}})
	r := roundOf(t, askAs(t, url, allCapabilities, ""))
	kit.Equal(t, string(r.Requests["page"]),
		`{"method":"elicitation/create","params":{"mode":"url","message":"Go there","url":"https://example.com"}}`)
	got := askAs(t, url, allCapabilities, `"inputResponses":{"page":{"action":"accept"}},"requestState":"`+r.State+`",`)
	kit.Contains(t, got.body, `\"page\":{\"action\":\"accept\"}`)
}

func TestOnlyMissingAnswersAreAskedAgain(t *testing.T) {
	url := serveAsker(t, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name"), form("what", "thing")}})
	r := roundOf(t, askAs(t, url, allCapabilities, ""))
	const who, what = `"who":{"action":"accept","content":{"name":"Ada"}}`, `"what":{"action":"accept","content":{"thing":"x"}}`
	bring := func(responses, state string) said {
		return askAs(t, url, allCapabilities, `"inputResponses":{`+responses+`},"requestState":"`+state+`",`)
	}
	second := roundOf(t, bring(who+`,"more":{"action":"accept"}`, r.State))
	if len(second.Requests) != 1 || second.Requests["what"] == nil {
		t.Fatalf("asked again for %v", second.Requests)
	}
	if third := roundOf(t, bring(``, second.State)); len(third.Requests) != 1 {
		t.Errorf("asked again for %v", third.Requests)
	}
	got := bring(what, second.State)
	if !strings.Contains(got.body, `\"name\":\"Ada\"`) || !strings.Contains(got.body, `\"thing\":\"x\"`) || strings.Contains(got.body, "more") {
		t.Errorf("%s", got.body)
	}
	// Every state on the way belongs to one question, which is answered now.
	for _, state := range []string{r.State, second.State} {
		if got := bring(who+","+what, state); got.Error.Code != -32602 || !strings.Contains(got.Error.Message, "answered already") {
			t.Errorf("%s", got.body)
		}
	}
}

func TestUnfittingAnswersAreRefused(t *testing.T) {
	url := serveAsker(t, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name")}})
	r := roundOf(t, askAs(t, url, allCapabilities, ""))
	for _, responses := range []string{
		`null`, `7`, `[]`, `{"who":7}`, `{"who":null}`, `{"who":{"action":"accept","content":{"name":7}}}`, `{"who":{"action":"accept"}}`,
		`{"who":{"action":"sure"}}`, `{"who":{}}`, `{"who":{"action":"accept","content":{"name":"a","name":"b"}}}`,
	} {
		got := askAs(t, url, allCapabilities, `"inputResponses":`+responses+`,"requestState":"`+r.State+`",`)
		if got.Error.Code != -32602 && got.Error.Code != -32700 {
			t.Errorf("%s: %s", responses, got.body)
		}
	}
	// None of them counted as an answer.
	got := askAs(t, url, allCapabilities, `"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"requestState":"`+r.State+`",`)
	kit.Contains(t, got.body, `\"name\":\"Ada\"`)
}

// A state that was changed at any place is invalid.
func TestAForgedStateAnswersNothing(t *testing.T) {
	url := serveAsker(t, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name")}})
	state := roundOf(t, askAs(t, url, allCapabilities, "")).State
	closed := kit.Must(base64.RawURLEncoding.DecodeString(state))(t)
	bring := func(state string) said {
		return askAs(t, url, allCapabilities,
			`"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"requestState":"`+state+`",`)
	}
	forged := []string{state + "-TAMPERED", state[:len(state)-8], base64.RawURLEncoding.EncodeToString([]byte(`{"ask":{"id":"q"}}`))}
	for at := 0; at < len(closed); at += 1 + len(closed)/40 {
		other := bytes.Clone(closed)
		other[at] ^= 1
		forged = append(forged, base64.RawURLEncoding.EncodeToString(other))
	}
	for _, f := range forged {
		if got := bring(f); got.Error.Code != -32602 {
			t.Errorf("%s: %s", f, got.body)
		}
	}
	if got := bring(state); !strings.Contains(got.body, `\"name\":\"Ada\"`) {
		t.Errorf("none of them was an answer, and yet: %s", got.body)
	}
}

// Several programs may share an address, and one may be restarted while a person thinks.
func TestAQuestionIsAnsweredInAnotherProgramThatSharesTheStore(t *testing.T) {
	keys := func() *secret.Keyed {
		return secret.NewKeyed(func() ([]byte, error) { return []byte("a key that programs share"), nil })
	}
	serve := func() string {
		q, b := ask.New(ask.Options{Keys: keys()}), newBench()
		return serveHTTP(t, door.Options{Keys: keys()}, q.Answers(nil)(q.Carry(nil)(asker{b, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name")}}})), b)
	}
	r := roundOf(t, askAs(t, serve(), allCapabilities, ""))
	got := askAs(t, serve(), allCapabilities, `"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"requestState":"`+r.State+`",`)
	kit.Contains(t, got.body, `\"name\":\"Ada\"`)
}

func TestLegacyClientLearnsThatItsQuestionTimedOut(t *testing.T) {
	in, toDoor := io.Pipe()
	fromDoor, out := io.Pipe()
	ended := make(chan error, 1)
	b := newBench()
	door := &door.Door{
		Options: door.Options{Patience: 50 * time.Millisecond}, In: in, Out: out, Caller: tool.Principal{ID: "ada"},
	}
	go func() {
		ended <- door.Serve(context.Background(), carrying(asker{b, &tool.Ask{ID: "q", Message: "sure?"}}), b)
	}()
	lines := bufio.NewScanner(fromDoor)
	hears := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("it hears %q and not %s", lines.Text(), want)
		}
	}
	_, _ = io.WriteString(toDoor, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{"elicitation":{}}}}`+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`+"\n")
	hears(`"protocolVersion"`)
	hears(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create"`)
	hears(`"method":"notifications/cancelled","params":{"requestId":1}`)
	hears("did not answer")
	_ = toDoor.Close()
	kit.Check(t, <-ended)
}

// A response without the state of a question is no answer, since nothing was asked yet: the client is asked.
func TestAnswersWithoutAQuestionAreIgnored(t *testing.T) {
	url := serveAsker(t, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name")}})
	for _, responses := range []string{
		`{"who":{"action":"accept","content":{"name":"Ada"}}}`, `{"who":7}`, `{"other":{"action":"accept"}}`, `{}`, `[]`, `7`, `null`,
	} {
		if r := roundOf(t, askAs(t, url, allCapabilities, `"inputResponses":`+responses+`,`)); r.Requests["who"] == nil {
			t.Errorf("%s: %v", responses, r)
		}
	}
}

func TestNonObjectAnswerIsWrappedInAForm(t *testing.T) {
	url := serveAsker(t, &tool.Ask{ID: "q", Message: "sure?", Schema: json.RawMessage(`{"type":"boolean"}`)})
	r := roundOf(t, askAs(t, url, allCapabilities, ""))
	kit.Contains(t, string(r.Requests["answer"]),
		`"requestedSchema":{"type":"object","properties":{"answer":{"type":"boolean"}},"required":["answer"]}`)
	bring := func(content string) said {
		return askAs(t, url, allCapabilities, `"inputResponses":{"answer":`+content+`},"requestState":"`+r.State+`",`)
	}
	if got := bring(`{"action":"accept","content":{"answer":"yes"}}`); got.Error.Code != -32602 {
		t.Errorf("%s", got.body)
	}
	if got := bring(`{"action":"decline"}`); got.Error.Code != 0 || !strings.Contains(got.body, `"isError":true`) || !strings.Contains(got.body, "not answered") {
		t.Errorf("%s", got.body)
	}
	if got := bring(`{"action":"accept","content":{"answer":true}}`); !strings.Contains(got.body, `{\"answers\":true}`) {
		t.Errorf("%s", got.body)
	}
}

// A client that sends no answer is asked again; no other caller may see the question.
func TestRequestStateRevealsNothingToOtherCallers(t *testing.T) {
	b := newBench()
	url, _ := serveTwo(t, door.Options{}, carrying(asker{b, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name")}}}), b)
	ask := func(caller, name, params string) said {
		return post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+name+`","arguments":{},`+
			params+able(allCapabilities)+`}}`, "Authorization", "Bearer token-"+caller, "Mcp-Protocol-Version", "2026-07-28",
			"Mcp-Method", "tools/call", "Mcp-Name", name)
	}
	again := `"inputResponses":{},"requestState":"` + roundOf(t, ask("ada", "ask", "")).State + `",`
	for what, got := range map[string]said{"another caller": ask("bob", "ask", again), "another tool": ask("ada", "echo", again)} {
		if got.Error.Code != -32602 || strings.Contains(got.body, "who?") {
			t.Errorf("%s: %s", what, got.body)
		}
	}
	if r := roundOf(t, ask("ada", "ask", again)); r.Requests["who"] == nil {
		t.Errorf("its own caller: %v", r.Requests)
	}
}

// A legacyClient is a client of 2025-11-25 over stdio that answers questions as a test tells it to.
type legacyClient struct {
	t      *testing.T
	in     io.Writer
	answer func(method string, params json.RawMessage) string // members of the answer; empty: none
	asked  chan string
	last   int

	mu      sync.Mutex
	replies map[string]chan string
}

func newLegacyClient(t *testing.T, e *engine.Engine, capabilities string, answer func(string, json.RawMessage) string) *legacyClient {
	t.Helper()
	toDoor, in := io.Pipe()
	out, fromDoor := io.Pipe()
	c := &legacyClient{t: t, in: in, answer: answer, asked: make(chan string, 10), replies: map[string]chan string{}}
	ended := make(chan error, 1)
	go func() {
		ended <- (&door.Door{In: toDoor, Out: fromDoor, Caller: tool.Principal{ID: "ada", Door: "mcp"}}).Serve(context.Background(), e, e)
		_ = fromDoor.Close()
	}()
	go c.read(out)
	t.Cleanup(func() { _ = in.Close(); <-ended })
	c.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`}`)
	return c
}

func (c *legacyClient) read(out io.Reader) {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		_ = json.Unmarshal([]byte(line), &m)
		switch {
		case m.Method == "":
			c.mu.Lock()
			c.replies[string(m.ID)] <- line
			c.mu.Unlock()
		case m.ID != nil:
			c.asked <- string(m.Params)
			go func() {
				if members := c.answer(m.Method, m.Params); members != "" {
					_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,`+members+"}\n")
				}
			}()
		}
	}
}

// start sends a request, and returns its id.
func (c *legacyClient) start(method, params string) string {
	c.mu.Lock()
	c.last++
	id := fmt.Sprint(c.last)
	c.replies[id] = make(chan string, 1)
	c.mu.Unlock()
	_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+"}\n")
	return id
}

func (c *legacyClient) call(method, params string) string {
	c.t.Helper()
	id := c.start(method, params)
	c.mu.Lock()
	reply := c.replies[id]
	c.mu.Unlock()
	return kit.Receive(c.t, method, reply)
}

// works calls a tool that must succeed.
func (c *legacyClient) works(name string) string {
	c.t.Helper()
	got := c.call("tools/call", `{"name":"`+name+`"}`)
	if !strings.Contains(got, `"result"`) || strings.Contains(got, `"isError"`) {
		c.t.Errorf("%s: %s", name, got)
	}
	return got
}

// asking returns an engine that carries the questions of the Python server.
func asking(t *testing.T, more string) *engine.Engine {
	t.Helper()
	q := ask.New(ask.Options{})
	return engineWith(t, engine.Options{Stages: map[string]engine.Stage{"answers": q.Answers, "ask": q.Carry}}, "",
		map[string]string{"one": mcptest.Server(t, "legacy") + more})
}

// If a client fails to answer the question of a server, the server is told, and the source stays usable.
func TestServerLearnsThatItsQuestionFailed(t *testing.T) {
	tooltest.NoLeaks(t)
	const elicits = `{"elicitation":{}}`
	for _, more := range []string{"", ", concurrency: 1"} {
		for name, c := range map[string]struct {
			capabilities, answer string
			want                 string // what the tool gives
		}{
			"error":         {elicits, `"error":{"code":-32603,"message":"ui broke"}`, `\"code\": -32603, \"message\": \"ui broke\"`},
			"no object":     {elicits, `"result":7`, "did not answer"},
			"invalid":       {elicits, `"result":{"action":"accept","content":{"colour":7}}`, "-32602"},
			"no capability": {`{}`, "", "cannot be asked: it has no elicitation"},
			"cancel":        {elicits, "", ""},
		} {
			t.Run(name+more, func(t *testing.T) {
				client := newLegacyClient(t, asking(t, more), c.capabilities, func(string, json.RawMessage) string { return c.answer })
				if name == "cancel" {
					id := client.start("tools/call", `{"name":"ask"}`)
					kit.Receive(t, "the question", client.asked)
					_, _ = io.WriteString(client.in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+"}}\n")
					kit.Eventually(t, "the server hears that the call is cancelled, and an answer", func() bool {
						seen := client.works("seen")
						return strings.Contains(seen, "notifications/cancelled") && strings.Contains(seen, "an error")
					})
				} else if got := client.works("ask"); !strings.Contains(got, c.want) {
					t.Errorf("the tool gives %s", got)
				}
				if seen := client.works("seen"); strings.Count(seen, "an error") != 1 || (name == "cancel") != strings.Contains(seen, "notifications/cancelled") {
					t.Errorf("the server has seen %s", seen)
				}
			})
		}
	}
}

// An answer passes the queue: it continues the call for which the others in the queue wait.
func TestAnswerDoesNotQueueBehindOtherCalls(t *testing.T) {
	tooltest.NoLeaks(t)
	e := asking(t, ", concurrency: 1")
	var client *legacyClient
	other := ""
	client = newLegacyClient(t, e, `{"elicitation":{}}`, func(string, json.RawMessage) string {
		other = client.start("tools/call", `{"name":"pid"}`)
		kit.Eventually(t, "another call waits for the server", func() bool { return e.Crowds()[0].Running == 1 })
		return `"result":{"action":"decline"}`
	})
	client.works("ask")
	kit.Contains(t, kit.Receive(t, "the other answer", client.replies[other]), `"result"`)
}

// A modern server gets the answer in a request of its own, which needs a place like any other.
func TestAnswerToAModernServerTakesAPlace(t *testing.T) {
	tooltest.NoLeaks(t)
	arrived, release := make(chan struct{}, 9), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Responses json.RawMessage `json:"inputResponses"`
			} `json:"params"`
		}
		kit.Check(t, json.NewDecoder(r.Body).Decode(&m))
		result := `"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":` +
			`{"message":"Which?","requestedSchema":{"type":"object","properties":{}}}}}`
		switch {
		case m.Method == "server/discover":
			result = `"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`
		case m.Method == "tools/list":
			result = `"resultType":"complete","tools":[{"name":"ask","inputSchema":{"type":"object"}}]`
		case m.Params.Responses != nil:
			arrived <- struct{}{}
			<-release
			result = `"resultType":"complete","content":[]`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, m.ID, result)
	}))
	t.Cleanup(s.Close)
	q := ask.New(ask.Options{})
	e := engineWith(t, engine.Options{Stages: map[string]engine.Stage{"answers": q.Answers, "ask": q.Carry}}, "",
		map[string]string{"one": fmt.Sprintf("url: %q, era: modern, concurrency: 1", s.URL)})
	calls := make([]*tool.Call, 3)
	for i := range calls {
		calls[i] = &tool.Call{Tool: "ask", Args: json.RawMessage(`{}`), Caller: tool.Principal{ID: "tester"}}
		r, err := e.Invoke(t.Context(), calls[i], tool.Discard)
		if err != nil || r.Ask == nil {
			t.Fatalf("%+v, %v", r, err)
		}
		calls[i].Resume, calls[i].Answers = r.Ask.ID, json.RawMessage(`{"q":{"action":"accept","content":{}}}`)
	}
	var answers sync.WaitGroup
	for _, c := range calls {
		answers.Go(func() {
			kit.Check(t, kit.Err(e.Invoke(t.Context(), c, tool.Discard)))
		})
	}
	kit.Receive(t, "the first answer", arrived)
	kit.Eventually(t, "the others wait", func() bool { return len(arrived) > 0 || e.Crowds()[0].Waiting == 2 })
	if len(arrived) > 0 {
		t.Error("two answers are at the server at once")
	}
	close(release)
	answers.Wait()
}

// A question reaches the client as the server wrote it, and the answer reaches the server as the client wrote it.
func TestQuestionsAndAnswersAreUnchanged(t *testing.T) {
	tooltest.NoLeaks(t)
	const form = `{"message":"Which?","requestedSchema":{"properties":{"a":{"type":"string"},"size":{"default":7,"type":"integer"}},"type":"object"},"_meta":{"k":1},"x-more":true}`
	for question, answer := range map[string]string{
		form: `{"action": "accept", "content": {"a": "b"}, "_meta": {"m": 2}, "more": [1]}`,
		`{"mode":"url","message":"Go","url":"https://example.com/x","elicitationId":"e1"}`: `{"action": "decline"}`,
	} {
		client := newLegacyClient(t, asking(t, ""), `{"elicitation":{"form":{},"url":{}}}`, func(string, json.RawMessage) string { return `"result":` + answer })
		got := client.call("tools/call", `{"name":"ask","arguments":{"params":`+question+`}}`)
		kit.Equal(t, strings.NewReplacer(": ", ":", ", ", ",").Replace(kit.Receive(t, "the question", client.asked)),
			question, "asked")
		kit.Contains(t, got, string(strictjson.Quote(answer)), "answered")
	}
}

// A client is not left without an answer to a request that is JSON but not strict. An answer of the client is read all
// the same.
func TestRequestThatIsNotStrictIsAnswered(t *testing.T) {
	tooltest.NoLeaks(t)
	client := newLegacyClient(t, asking(t, ""), `{"elicitation":{}}`, func(string, json.RawMessage) string {
		return `"result":{"action":"accept","content":{"colour":"\ud83d"}}`
	})
	for _, params := range []string{`{"name":"echo","arguments":{"text":"\ud800"}}`, `{"name":"pid","name":"pid"}`} {
		kit.Contains(t, client.call("tools/call", params), "-32700", params)
	}
	kit.Contains(t, client.works("ask"), `ufffd`)
}
