package model_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/model"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// read returns the models of a config.
func read(t *testing.T, text string) (model.Models, error) {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text))
	if err != nil {
		return nil, err
	}
	return model.Read(cfg, model.Env{})
}

func TestInvalidModelIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`[{url: "http://x/v1"}]`:                                         "no name",
		`[{name: a, url: x}]`:                                            "address of a server",
		`[{name: a, url: "http://u:p@x/v1"}]`:                            "nothing else",
		`[{name: a, url: "http://x/v1", api: grpc}]`:                     "grpc",
		`[{name: a, url: "http://x/v1/chat/completions"}]`:               "such as http://x/v1",
		`[{name: a, url: "http://x/v1/messages/", api: anthropic}]`:      "such as http://x/v1",
		`[{name: a, url: "http://x/v1", prices: {input: -1}}]`:           "below zero",
		`[{name: a, url: "http://x/v1"}, {name: a, url: "http://y/v1"}]`: "two models",
	} {
		kit.Fails(t, kit.Err(read(t, "models: "+text)), want, text, want)
	}
}

// answering serves one answer for everything, and returns the model behind it.
func answering(t *testing.T, api model.API, body string) *model.Model {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w,
			body)
	}))
	t.Cleanup(s.Close)
	all := kit.Must(read(t, fmt.Sprintf("models: [{name: m, url: %q, api: %s}]", s.URL, api)))(t)
	return all[0]
}

func events(list ...string) string {
	var b strings.Builder
	for _, one := range list {
		fmt.Fprintf(&b, "data: %s\n\n", one)
	}
	return b.String()
}

// Servers that follow an API only roughly are understood, and truncated answers are rejected.
func TestStreamsAreReadAsServersWriteThem(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, c := range map[string]struct {
		api    model.API
		stream string
		want   string // text, calls and finish; or the error
	}{
		"calls without numbers": {model.OpenAI, events(
			`{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{\"p\""}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":":1}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"y","arguments":{"q":2}}}]},"finish_reason":"stop"}]}`, `[DONE]`,
		), `x{"p":1} y{"q":2} calls`},
		"no [DONE]": {model.OpenAI, events(`{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`),
			"hi stop"},
		"content in a list": {model.OpenAI, events(`{"choices":[{"delta":{"content":[{"type":"text","text":"hi"}]},"finish_reason":"stop"}]}`), "hi stop"},
		"too long a call":   {model.OpenAI, events(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}]},"finish_reason":"length"}]}`), "x{ length"},
		"nothing at all":    {model.OpenAI, "", "cut off before its end"},
		"half an event":     {model.OpenAI, `data: {"choices":[{"delta":{"content":"hi"}`, "cut off before its end"},
		"no JSON":           {model.OpenAI, events("<html>"), "no chat completion"},
		"an error in between": {model.OpenAI, events(`{"error":{"message":"overloaded"}}`),
			"broken off by its server: overloaded"},
		"too many calls": {model.OpenAI, events(func() (list []string) {
			for i := range 300 {
				list = append(list, fmt.Sprintf(`{"choices":[{"delta":{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"x"}}]}}]}`, i, i))
			}
			return list
		}()...), "more than 256 tools"},
		"too much":    {model.OpenAI, events(strings.Split(strings.Repeat(`{"choices":[{"delta":{"content":"`+strings.Repeat("x", 1<<20)+`"}}]} `, 9), " ")[:9]...), "too long"},
		"a long line": {model.OpenAI, "data: " + strings.Repeat("x", 9<<20), "longer than"},
		"thoughts sealed": {model.Anthropic, anthropicStream(`{"type":"thinking","thinking":"hm","signature":"s"}`),
			"hm/s end"},
		"a search":          {model.Anthropic, anthropicStream(`{"type":"server_tool_use","id":"1","name":"web_search","input":{}}`), `{"id":"1","input":{"q":1},"name":"web_search","type":"server_tool_use"} end`},
		"a block not ended": {model.Anthropic, events(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hi"}}`), "cut off before its end"},
		"a stray piece":     {model.Anthropic, events(`{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"x"}}`), "belongs to no block"},
		"an error event":    {model.Anthropic, events(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), "broken off by its server: Overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			talk := answering(t, c.api, c.stream).Talk()
			defer talk.Close()
			a, err := talk.Ask(t.Context(), &model.Request{}, &model.Listener{})
			if err != nil {
				kit.Contains(t, err.Error(), c.want, err)
				return
			}
			got := ""
			for _, p := range a.Parts {
				got += p.Text + p.Call.Name + p.Call.Args + string(p.Raw)
				if p.Seal != "" {
					got += "/" + p.Seal
				}
				got += " "
			}
			if got += strings.TrimSuffix(string(a.Finish), "?"); strings.Replace(got, " stop", " end",
				1) != strings.Replace(c.want, " stop", " end", 1) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if a.Usage.Total() == 0 {
				t.Error("nothing is counted where the server counts nothing")
			}
		})
	}
}

// Limits on tokens and cost depend on the numbers that a server reports.
func TestNegativeUsageCountsAsZero(t *testing.T) {
	for _, c := range []struct{ in, out, least int64 }{
		{-1_000_000, 7, 7}, {7, -1_000_000, 7}, {-1, -1, 1}, {1<<63 - 1, 1<<63 - 1, 1 << 40},
	} {
		talk := answering(t, model.OpenAI, fmt.Sprintf(
			`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, c.in,
			c.out)).Talk()
		a, err := talk.Ask(t.Context(), &model.Request{}, nil)
		talk.Close()
		if err != nil || a.Usage.In < 0 || a.Usage.Out < 0 || a.Usage.Total() < c.least {
			t.Errorf("%+v: %+v, %v", c, a, err)
		}
	}
}

// The seal of a thought counts towards the size of an answer.
func TestASealIsBounded(t *testing.T) {
	list := []string{`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`}
	for range 9 {
		list = append(list, `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"`+
			strings.Repeat("s", 1<<20)+`"}}`)
	}
	kit.Fails(t, kit.Err(model.DecodeStream(model.Anthropic, []byte(events(list...)))), "too long")
}

func anthropicStream(block string) string {
	return events(`{"type":"message_start","message":{"usage":{"input_tokens":0}}}`,
		`{"type":"content_block_start","index":0,"content_block":`+block+`}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"q\":1}"}}`,
		`{"type":"content_block_stop","index":0}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":0}}`, `{"type":"message_stop"}`)
}

func TestSettingsAreTranslatedBetweenAPIs(t *testing.T) {
	set := func(api model.API, values string) model.Settings {
		s := model.Settings{API: api}
		kit.OK(t, json.Unmarshal([]byte(values), &s.Values))
		return s
	}
	said := []model.Message{{Role: model.User, Parts: []model.Part{{Kind: model.Text, Text: "hi"}}}}
	for name, c := range map[string]struct {
		settings model.Settings
		to       model.API
		want     string // in the request, or in the error
	}{
		"same API": {set(model.OpenAI, `{"seed":7,"anything":{"a":1}}`), model.OpenAI, `"anything":{"a":1}`},
		"to Anthropic": {set(model.OpenAI, `{"stop":"x","max_completion_tokens":5,"seed":7}`), model.Anthropic,
			`"max_tokens":5,"messages":[{"content":[{"text":"hi","type":"text"}],"role":"user"}],"model":"any","stop_sequences":["x"]`},
		"from Anthropic": {set(model.Anthropic, `{"stop_sequences":["x"],"max_tokens":5,"top_k":3}`), model.OpenAI,
			`"max_completion_tokens":5`},
		"not to be said": {set(model.OpenAI, `{"logit_bias":{}}`), model.Anthropic,
			`does not know "logit_bias"`},
		"nothing of its own": {set(model.OpenAI, `{"model":"other","messages":[],"stream":false}`), model.OpenAI,
			`"model":"any"`},
	} {
		body, err := (&model.Request{Messages: said, Settings: c.settings}).Encode(c.to, true)
		if got := string(body) + fmt.Sprint(err); !strings.Contains(got, c.want) || strings.Contains(got, `"other"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// No server's answer does harm: the result is an answer whose calls have distinct ids, or an error with a code.
func FuzzAnswer(f *testing.F) {
	for _, api := range []bool{false, true} {
		f.Add(api, []byte(events(`{"choices":[{"delta":{"content":"hi","tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}`, `[DONE]`)))
		f.Add(api, []byte(anthropicStream(`{"type":"tool_use","id":"a","name":"x","input":{}}`)))
		f.Add(api, []byte(`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`))
		f.Add(api, []byte(`{"content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1}}`))
	}
	f.Fuzz(func(t *testing.T, anthropic bool, said []byte) {
		api := model.OpenAI
		if anthropic {
			api = model.Anthropic
		}
		for _, read := range []func(model.API, []byte) (*model.Answer, error){model.Decode, model.DecodeStream} {
			a, err := read(api, said)
			if err != nil {
				if code := tool.CodeOf(err); code != tool.CodeProtocol && code != tool.CodeUnavailable {
					t.Fatal(code, err)
				}
				continue
			}
			if a.Finish == "" {
				t.Fatalf("nobody knows why it ended: %+v", a)
			}
			for _, c := range a.Calls() {
				if c.ID == "" {
					t.Fatalf("a call without an id: %+v", a)
				}
			}
			next := &model.Request{Messages: []model.Message{{Role: model.Assistant, Parts: a.Parts}}}
			kit.OK(t, kit.Err(next.Encode(api, false)), "it cannot be said back")
		}
	})
}
