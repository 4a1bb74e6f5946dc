package modelclients_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/scripted"
)

// libraries returns popular libraries for models, with the API that each of them speaks.
func libraries() map[string]string {
	return map[string]string{
		"openai, chat": "openai", "openai, responses": "responses",
		"@anthropic-ai/sdk, messages": "anthropic", "@anthropic-ai/sdk, toolRunner": "anthropic",
		"ai, openai": "responses", "ai, openai with store: false": "responses", "ai, openai.chat": "openai", "ai, openai-compatible": "openai", "ai, anthropic": "anthropic",
		"langchain, ChatOpenAI": "openai", "langchain, ChatOpenAI with responses": "responses", "langchain, ChatAnthropic": "anthropic",
	}
}

// known returns the members of a request that servers of an API know, as far as these libraries and we use them. A real
// server refuses others.
func known() map[string]string {
	return map[string]string{
		"openai": "model messages stream stream_options tools tool_choice parallel_tool_calls temperature max_completion_tokens " +
			"response_format",
		"responses": "model input stream tools tool_choice parallel_tool_calls temperature max_output_tokens text store instructions",
		"anthropic": "model messages stream tools tool_choice temperature max_tokens system output_config",
	}
}

type outcome struct {
	Text, Error, Name string
	Calls             any
	Object            any
	Finish            string
	Tokens            int64
	Status            int
	Retry             any // nil if the library does not report it
}

// A library runs a case: with the scripted model directly, or with our model in front of it.
type library struct {
	peer  *jsPeer
	model *scripted.Server
	name  string
}

func (l library) do(t *testing.T, url, model string, c sdkCase) (got outcome, asked []scripted.Request) {
	t.Helper()
	before := len(l.model.Asked())
	l.model.Script(c.steps...)
	l.peer.ask(t, &got, map[string]any{
		"client": l.name, "url": url, "token": scripted.Token, "model": model, "stream": c.stream, "tools": c.tools, "image": c.image,
		"structured": c.structured, "more": c.more,
	})
	return got, l.model.Asked()[before:]
}

type sdkCase struct {
	steps                            []scripted.Step
	stream, tools, image, structured bool
	more                             map[string]any // of the request

	told   []string // what the model must receive
	fails  bool
	status int // the status of a failure here, if the APIs differ or the server's own is not passed on
}

func sdkCases() map[string]sdkCase {
	oslo := scripted.Call{ID: "call_1", Name: "weather", Args: `{"city":"Oslo"}`}
	rome := scripted.Call{ID: "call_2", Name: "weather", Args: `{"city":"Rome"}`}
	called := []scripted.Step{{Text: "I look. ", Thoughts: "hm", Calls: []scripted.Call{oslo}}, scripted.Says("It is sunny there.")}
	both := []scripted.Step{scripted.Calling(oslo, rome), scripted.Says("It is sunny in both.")}
	object := []scripted.Step{scripted.Says(`{"verdict":"good","score":7}`)}
	says := []scripted.Step{{Text: "So it is.", Thoughts: "hm"}}
	const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
	fails := func(status int, body string) []scripted.Step {
		return []scripted.Step{{Status: status, Body: body, Header: map[string]string{"Retry-After": "3600"}}}
	}
	all := map[string]sdkCase{
		"plain":      {steps: says, told: []string{"Be brief.", "Go."}},
		"tools":      {steps: called, tools: true, told: []string{"Tells the weather of a city.", "It is sunny in Oslo."}},
		"parallel":   {steps: both, tools: true, told: []string{"It is sunny in Oslo.", "It is sunny in Rome."}},
		"image":      {steps: says, image: true, told: []string{"Look.", picture}},
		"structured": {steps: object, structured: true, told: []string{"verdict", "json_schema"}},
		"400": {steps: fails(400, `{"type":"error","error":{"type":"invalid_request_error","message":"too odd","code":null}}`),
			fails: true, status: 400},
		"401": {steps: fails(401, `{"type":"error","error":{"type":"authentication_error","message":"a bad key"}}`),
			fails: true, status: 502},
		"429": {steps: fails(429, `{"type":"error","error":{"type":"rate_limit_error","message":"too fast"}}`),
			fails: true, status: 429},
		"500": {steps: fails(500, `{"type":"error","error":{"type":"api_error","message":"too bad"}}`),
			fails: true, status: 503},
	}
	for name, c := range maps.Clone(all) {
		if !c.structured && (!c.fails || c.status == 429) {
			c.stream = true
			all[name+", streamed"] = c
		}
	}
	all["cut, streamed"] = sdkCase{steps: []scripted.Step{{Text: "This is cut off here.", Cut: true}}, stream: true,
		fails: true}
	return all
}

func TestLibrariesGetTheSameAnswersThroughTheRelay(t *testing.T) {
	peer, m := newJS(t, "sdks.mjs"), scripted.New(t)
	h := scripted.Serve(t, m, "")
	for name, api := range libraries() {
		for title, c := range sdkCases() {
			t.Run(name+"/"+title, func(t *testing.T) {
				l := library{peer(), m, name}
				if name == "ai, anthropic" && c.structured { // it uses a tool if it does not know the model
					c.steps, c.told = []scripted.Step{scripted.Calling(scripted.Call{ID: "call_1", Name: "json", Args: c.steps[0].Text})}, nil
				}
				want, direct := l.do(t, m.URL, "m-1", c)
				kit.MustEqual(t, (want.Error != ""), c.fails, "without us: %+v", want)
				for upstream := range known() {
					t.Run(upstream, func(t *testing.T) {
						got, asked := l.do(t, h.URL, "bare-"+upstream, c)
						if upstream != api && name == "langchain, ChatAnthropic" && c.stream {
							got.Tokens = want.Tokens // it counts the input tokens at the beginning, and other APIs report them at the end
						}
						if upstream != api && name == "ai, openai" && strings.HasPrefix(title, "tools") {
							kit.Contains(t, got.Error, "ask with store: false, and send them whole", got)
							return
						}
						if c.fails {
							checkFailed(t, c, want, got, upstream == api)
						} else if !reflect.DeepEqual(got, want) {
							t.Errorf("%+v\nwithout us: %+v", got, want)
						}
						checkAsked(t, c, direct, asked, upstream, api)
					})
				}
			})
		}
	}
}

func checkFailed(t *testing.T, c sdkCase, want, got outcome, same bool) {
	t.Helper()
	switch {
	case c.status == 0:
		if got.Error == "" {
			t.Errorf("%+v", got)
		}
	case same && c.status != 502:
		kit.DeepEqual(t, got, want, "without us")
	case got.Status != c.status:
		t.Errorf("%+v", got)
	}
}

// checkAsked checks the requests to the model's server: with the same API they are the library's, otherwise equivalent
// ones.
func checkAsked(t *testing.T, c sdkCase, direct, asked []scripted.Request, upstream, api string) {
	t.Helper()
	kit.MustEqual(t, len(asked), len(direct), "requests to the model, and without us")
	for i, r := range asked {
		if upstream == api && !reflect.DeepEqual(r.Body, direct[i].Body) {
			t.Errorf("the model is told %s\nwithout us: %s", r.Text, direct[i].Text)
		}
		for name := range r.Body {
			if upstream != api && !slices.Contains(strings.Fields(known()[upstream]), name) {
				t.Errorf("a server of the API %s does not know %s: %s", upstream, name, r.Text)
			}
		}
	}
	for _, words := range c.told {
		if !slices.ContainsFunc(asked, func(r scripted.Request) bool { return strings.Contains(r.Text, words) }) {
			t.Errorf("the model is not told of %s: %s", words, asked[len(asked)-1].Text)
		}
	}
}

// A request that another API cannot express is refused, and the refusal names the API that can.
func TestFeatureOfOneAPIIsRefusedByOthers(t *testing.T) {
	peer, m := newJS(t, "sdks.mjs"), scripted.New(t)
	h := scripted.Serve(t, m, "")
	for _, c := range []struct{ name, member, upstream string }{
		{"openai, chat", "stop", "responses"}, {"openai, chat", "logit_bias", "responses"}, {"openai, chat", "logit_bias", "anthropic"},
		{"openai, chat", "logprobs", "anthropic"}, {"openai, responses", "previous_response_id", "openai"},
		{"openai, responses", "previous_response_id", "anthropic"}, {"@anthropic-ai/sdk, messages", "stop_sequences", "responses"},
		{"@anthropic-ai/sdk, messages", "mcp_servers", "openai"}, {"@anthropic-ai/sdk, messages", "mcp_servers", "responses"},
	} {
		t.Run(c.member+" to "+c.upstream, func(t *testing.T) {
			value := map[string]any{"logit_bias": map[string]int{"7": 1}, "logprobs": true, "previous_response_id": "resp_1"}[c.member]
			if value == nil {
				value = []string{"x"}
			}
			got, asked := library{peer(), m, c.name}.do(t, h.URL, "bare-"+c.upstream, sdkCase{more: map[string]any{c.member: value}})
			if got.Status != 400 || !strings.Contains(got.Error, c.member) ||
				!strings.Contains(got.Error, "api: "+libraries()[c.name]) || len(asked) != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestLibrariesReadAnAnswerWithCallsOfOurs(t *testing.T) {
	peer, m := newJS(t, "sdks.mjs"), scripted.New(t)
	h := scripted.Serve(t, m, "")
	for name := range libraries() {
		for _, model := range []string{"demo", "newer", "claude"} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, streamed %v", name, model, stream), func(t *testing.T) {
					steps := []scripted.Step{{Text: "I look. ", Thoughts: "hm", Calls: []scripted.Call{scripted.ReadFile("call_1")}},
						scripted.Says("It is called demo.")}
					got, asked := library{peer(), m, name}.do(t, h.URL, model, sdkCase{steps: steps, stream: stream})
					if got.Error != "" || !strings.Contains(got.Text, "It is called demo.") || len(asked) != 2 {
						t.Errorf("%+v after %d", got, len(asked))
					}
				})
			}
		}
	}
}
