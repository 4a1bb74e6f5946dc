package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/engine/ask"
	"toolpost/host/secret"
	"toolpost/protocol/mcp"
	"toolpost/tool"
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
	return serveHTTP(t, mcp.Options{}, carrying(asker{b, a}), b)
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
			s, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{
				Endpoint: serveAsker(t, everything()), HTTPClient: httpClient(t), MaxRetries: -1,
			}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "ask"})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"name":"Ada"`, `"text":"Hello"`, `"uri":"file:///home/ada"`} {
				if !strings.Contains(textOf(r), want) {
					t.Errorf("the tool was answered %s", textOf(r))
				}
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
				if !strings.Contains(got.body, `\"answers\":{}`) {
					t.Errorf("%s", got.body)
				}
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
	if want := `{"method":"elicitation/create","params":{"mode":"url","message":"Go there","url":"https://example.com"}}`; string(r.Requests["page"]) != want {
		t.Errorf("%s", r.Requests["page"])
	}
	got := askAs(t, url, allCapabilities, `"inputResponses":{"page":{"action":"accept"}},"requestState":"`+r.State+`",`)
	if !strings.Contains(got.body, `\"page\":{\"action\":\"accept\"}`) {
		t.Errorf("%s", got.body)
	}
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
	if !strings.Contains(got.body, `\"name\":\"Ada\"`) {
		t.Errorf("%s", got.body)
	}
}

// A state that was changed at any place is invalid.
func TestAForgedStateAnswersNothing(t *testing.T) {
	url := serveAsker(t, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name")}})
	state := roundOf(t, askAs(t, url, allCapabilities, "")).State
	closed, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil {
		t.Fatal(err)
	}
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
		return serveHTTP(t, mcp.Options{Keys: keys()}, q.Answers(nil)(q.Carry(nil)(asker{b, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name")}}})), b)
	}
	r := roundOf(t, askAs(t, serve(), allCapabilities, ""))
	got := askAs(t, serve(), allCapabilities, `"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"requestState":"`+r.State+`",`)
	if !strings.Contains(got.body, `\"name\":\"Ada\"`) {
		t.Errorf("%s", got.body)
	}
}

func TestLegacyClientLearnsThatItsQuestionTimedOut(t *testing.T) {
	in, toDoor := io.Pipe()
	fromDoor, out := io.Pipe()
	ended := make(chan error, 1)
	b := newBench()
	door := &mcp.Door{
		Options: mcp.Options{Patience: 50 * time.Millisecond}, In: in, Out: out, Caller: tool.Principal{ID: "ada"},
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
	if err := <-ended; err != nil {
		t.Error(err)
	}
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
	if !strings.Contains(string(r.Requests["answer"]), `"requestedSchema":{"type":"object","properties":{"answer":{"type":"boolean"}},"required":["answer"]}`) {
		t.Errorf("%s", r.Requests["answer"])
	}
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
	url, _ := serveTwo(t, mcp.Options{}, carrying(asker{b, &tool.Ask{ID: "q", Needs: []tool.Need{form("who", "name")}}}), b)
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
