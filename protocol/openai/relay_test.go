package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/scripted"
)

// strangers are requests with members that we do not know, one for each API, as agents send them.
func strangers() map[string]struct{ path, model, body string } {
	return map[string]struct{ path, model, body string }{
		"messages": {"/v1/messages", "bare-anthropic", `{"max_tokens":1.0e3, "model":"NAME","messages":[
			{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}}]},
			{"role":"system","content":"what came later"},{"role":"user","content":[{"type":"new_block","x":[1,2]}]}],
			"tools":[{"name":"Bash","input_schema":{"type":"object","properties":{"c":{}}},"eager_input_streaming":true},
			{"type":"web_search_20250305","name":"web_search"}],"thinking":{"type":"adaptive"},"betas":null,"stream":STREAM}`},
		"responses": {"/v1/responses", "bare-responses", `{"model":"NAME","input":[{"type":"new_item","a":"\u00e9/"},
			{"role":"user","content":"hi"}],"tools":[{"type":"namespace","name":"toolpost","tools":[{"type":"function","name":"x"}]},
			{"type":"web_search","external_web_access":true},{"type":"custom","name":"patch","format":{"type":"grammar"}}],
			"previous_response_id":"resp_0","include":["reasoning.encrypted_content"],"client_metadata":{"b":1},"stream":STREAM}`},
		"chat": {"/v1/chat/completions", "bare-openai", `{"stream":STREAM,"model":"NAME","messages":[{"role":"critic","content":"hi"}],"n":3,"logprobs":true,"tools":[{"type":"custom","custom":{"name":"p"}}],"future":{"z":1,"a":2}}`},
	}
}

// A request with nothing of ours reaches a server of its own API as it came, and so does the answer.
func TestRequestWithoutOurToolsPassesUnchanged(t *testing.T) {
	const whole = "{\"id\":\"x\", \"usage\":{\"cache_creation\":{\"e\":1}},\"content\":[{\"type\":\"text\",\"text\":\"s\"}],\n \"z\":1.0}"
	const events = ": hello\n\nevent: message_start\r\ndata: {\"type\":\"message_start\", \"x\": 1.0}\r\n\r\n" +
		"id: 7\nevent: future\ndata: {\"delta\":\"the-\"}\n\nevent: ping\ndata: {}\n\ndata: {\"delta\":\"end\"}\n\ndata: not JSON\n\ndata: [DONE]"
	for name, c := range strangers() {
		for _, stream := range []string{"false", "true"} {
			t.Run(name+" "+stream, func(t *testing.T) {
				answer, kind := whole, "application/json; charset=utf-8"
				if stream == "true" {
					answer, kind = events, "text/event-stream; charset=utf-8"
				}
				m := scripted.New(t, scripted.Step{Status: 201, Body: answer, Header: map[string]string{"Content-Type": kind,
					"Request-Id": "req_1", "X-Ratelimit-Remaining-Tokens": "9", "Set-Cookie": "a=b", "X-Echo": "the-key-itself"}})
				h := serve(t, m, "")
				body := strings.NewReplacer("STREAM", stream, "NAME", c.model).Replace(c.body)
				resp := h.Send(t.Context(), "POST", c.path+"?beta=true", body, "Anthropic-Beta", "one,two", "X-Stainless-Lang", "js",
					"User-Agent", "agent/1", "Cookie", "c=d", "Toolpost-Run", "r-1", "Content-Type", "application/json; charset=utf-8")
				got, err := io.ReadAll(resp.Body)
				if resp.Body.Close(); err != nil || resp.StatusCode != 201 || string(got) != answer {
					t.Errorf("%d, %v: %q", resp.StatusCode, err, got)
				}
				for header, want := range map[string]string{"Content-Type": kind, "Request-Id": "req_1",
					"X-Ratelimit-Remaining-Tokens": "9", "Set-Cookie": "", "X-Echo": "[secret KEY]"} {
					kit.Equal(t, resp.Header.Get(header), want, header)
				}
				asked := m.Asked()
				if len(asked) != 1 || asked[0].Text != strings.Replace(body, `"`+c.model+`"`, `"m-1"`, 1) || asked[0].Path != c.path || asked[0].Query != "beta=true" {
					t.Fatalf("%+v", asked)
				}
				sent := asked[0].Header
				if sent.Get("Anthropic-Beta") != "one,two" || sent.Get("X-Stainless-Lang") != "js" || sent.Get("User-Agent") != "agent/1" ||
					sent.Get("Content-Type") != "application/json; charset=utf-8" || sent.Get("Cookie") != "" || sent.Get("Toolpost-Run") != "" || strings.Contains(sent.Get("Authorization"), token) {
					t.Error(sent)
				}
				if key := sent.Get("X-Api-Key") + sent.Get("Authorization"); !strings.HasSuffix(key, "the-key-itself") {
					t.Error(key)
				}
				if records := h.Records(); len(records) != 0 {
					t.Errorf("tools ran behind the client's back: %+v", records)
				}
			})
		}
	}
}

// Requests with a history that only looks like ours, or with JSON that only we are strict about, pass as they came.
func TestRequestThatLooksLikeOursPassesUnchanged(t *testing.T) {
	used := func(server string) string {
		return `{"role":"assistant","content":[{"type":"mcp_tool_use","id":"i","name":"x","server_name":"` + server + `","input":{"a":1.0}},
			{"type":"mcp_tool_result","tool_use_id":"i","is_error":false,"content":[{"type":"text","text":"r"}]}]},{"role":"user","content":"go on"}`
	}
	called := `"input":[{"type":"mcp_call","id":"m","server_label":"toolpost","name":"x","arguments":"{}","output":"o"},{"role":"user","content":"x"}]`
	for name, c := range map[string]struct{ path, model, rest string }{
		"another server's calls": {"/v1/messages", "bare-anthropic", `"max_tokens":9,"messages":[{"role":"user","content":"toolpost"},` + used("github") + `]`},
		"a server of our name": {"/v1/messages", "bare-anthropic", `"max_tokens":9,"messages":[{"role":"user","content":"x"},` + used("toolpost") +
			`],"mcp_servers":[{"type":"url","name":"toolpost","url":"https://x"}]`},
		"a hosted server of our name": {"/v1/responses", "bare-responses", called + `,"tools":[{"type":"mcp","server_label":"toolpost","server_url":"https://x"}]`},
		"a name in a text":            {"/v1/chat/completions", "bare-openai", `"messages":[{"role":"user","content":"x","name":"toolpost"}]`},
		"half of a pair, chat":        {"/v1/chat/completions", "bare-openai", `"messages":[{"role":"user","content":"x\ud800"}]`},
		"half of a pair, messages":    {"/v1/messages", "bare-anthropic", `"max_tokens":9,"messages":[{"role":"user","content":"\udc00"}]`},
		"half of a pair, responses":   {"/v1/responses", "bare-responses", `"input":"x\ud83d"`},
		"a member twice":              {"/v1/chat/completions", "bare-openai", `"messages":[{"role":"user","content":"x","content":"y"}]`},
	} {
		m := scripted.New(t, scripted.Says("ok"))
		h := serve(t, m, "")
		body := `{"model":"` + c.model + `",` + c.rest + `}`
		a := h.Do("POST", c.path, body)
		if asked := m.Asked(); len(asked) != 1 || asked[0].Text != strings.Replace(body, c.model, "m-1", 1) {
			t.Errorf("%s: %d %s, asked %+v", name, a.Status, a.Text, asked)
		}
		other := map[string]string{"bare-openai": "claude", "bare-anthropic": "demo", "bare-responses": "demo"}[c.model]
		if a := h.Do("POST", c.path, strings.Replace(body, c.model, other, 1)); strings.Contains(name, "half") && a.Status != 400 {
			t.Errorf("%s, to another API: %d %s", name, a.Status, a.Text)
		}
	}
}

// With tools of ours, too, a client gets what only its API has, and so does the server in the next round.
func TestAnswerKeepsWhatOnlyItsAPIHas(t *testing.T) {
	whole := map[string][]string{
		"chat": {`{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":null,"reasoning_details":[{"data":"sealed"}],"tool_calls":[{"id":"c","type":"function","function":{"name":"echo","arguments":"{}"}}]},
			"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"cost":0.25}}`,
			`{"id":"2","system_fingerprint":"fp","service_tier":"fast","choices":[{"index":0,"message":{"role":"assistant","content":"ok","annotations":[{"type":"url_citation"}]},"finish_reason":"stop"}],
			"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"cost":0.5,"prompt_tokens_details":{"audio_tokens":4}}}`},
		"messages": {`{"id":"1","content":[{"type":"text","text":"so","citations":[{"url":"u"}]},{"type":"tool_use","id":"c","name":"echo","input":{}}],"stop_reason":"tool_use",
			"usage":{"input_tokens":1,"output_tokens":2,"cache_creation":{"e":3},"service_tier":"fast"}}`,
			`{"id":"2","content":[{"type":"text","text":"ok"}],"stop_reason":"stop_sequence","stop_sequence":"END","container":{"id":"k"},
			"usage":{"input_tokens":1,"output_tokens":2,"cache_creation":{"e":4},"service_tier":"fast","server_tool_use":{"web_search_requests":1}}}`},
		"responses": {`{"id":"1","status":"completed","output":[{"type":"function_call","id":"f","call_id":"c","name":"echo","arguments":"{}"}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3,"new":1}}`,
			`{"id":"2","status":"completed","service_tier":"fast","temperature":0.5,"output":[{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"ok","annotations":[{"type":"url_citation"}]}]}],
			"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3,"new":1}}`},
	}
	streams := map[string][]string{
		"chat": {`data: {"choices":[{"index":0,"delta":{"role":"assistant","reasoning_details":[{"data":"sea"}]}}]}` + "\n\n" +
			`data: {"choices":[{"index":0,"delta":{"reasoning_details":[{"data":"led"}],"tool_calls":[{"index":0,"id":"c","function":{"name":"echo","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}` + "\n\n" +
			`data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"cost":0.25}}` + "\n\ndata: [DONE]\n\n",
			`data: {"system_fingerprint":"fp","service_tier":"fast","choices":[{"index":0,"delta":{"content":"ok","annotations":[{"type":"url_citation"}]},"finish_reason":"stop"}]}` + "\n\n" +
				`data: {"system_fingerprint":"fp","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"cost":0.5,"prompt_tokens_details":{"audio_tokens":4}}}` + "\n\ndata: [DONE]\n\n"},
		"messages": {`data: {"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1,"cache_creation":{"e":3},"service_tier":"fast"}}}` + "\n\n" +
			`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","citations":[]}}` + "\n\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so"}}` + "\n\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"url":"u"}}}` + "\n\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"future_delta","z":1}}` + "\n\n" +
			`data: {"type":"content_block_stop","index":0}` + "\n\n" +
			`data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"echo","input":{}}}` + "\n\n" +
			`data: {"type":"content_block_stop","index":1}` + "\n\n" +
			`data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":2}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n",
			`data: {"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1,"cache_creation":{"e":4}}}}` + "\n\n" +
				`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"ok"}}` + "\n\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n" +
				`data: {"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"END"},"usage":{"output_tokens":2,"server_tool_use":{"web_search_requests":1}}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"},
		"responses": {"data: {\"type\":\"response.completed\",\"response\":" + strings.ReplaceAll(whole["responses"][0], "\n", "") + "}\n\n",
			"data: {\"type\":\"response.completed\",\"response\":" + strings.ReplaceAll(whole["responses"][1], "\n", "") + "}\n\n"},
	}
	for name, c := range map[string]struct {
		path, model, rest string
		want, again       []string
	}{
		"chat": {"/v1/chat/completions", "bare-openai", `"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":true}`,
			[]string{`"annotations":[{"type":"url_citation"}]`, `"reasoning_details":[{"data":"sea`, `"system_fingerprint":"fp"`, `"service_tier":"fast"`, `"cost":0.75`, `"audio_tokens":4`, `"total_tokens":6`},
			nil},
		"messages": {"/v1/messages", "bare-anthropic", `"max_tokens":9,"messages":[{"role":"user","content":"x"}]`,
			[]string{`"cache_creation":{"e":7}`, `"server_tool_use":{"web_search_requests":1}`, `"service_tier":"fast"`, `"stop_sequence":"END"`, `"input_tokens":2`, `"url":"u"`},
			[]string{`"citations":[{"url":"u"}]`}},
		"responses": {"/v1/responses", "bare-responses", `"input":"x"`, []string{`"service_tier":"fast"`, `"temperature":0.5`, `"new":2`, `"total_tokens":6`}, nil},
	} {
		for stream, script := range map[string][]string{"false": whole[name], "true": streams[name]} {
			kind := map[string]string{"Content-Type": map[string]string{"false": "application/json", "true": "text/event-stream"}[stream]}
			m := scripted.New(t, scripted.Step{Status: 200, Body: script[0], Header: kind}, scripted.Step{Status: 200, Body: script[1], Header: kind})
			a := serve(t, m, "").Do("POST", c.path, `{"model":"`+c.model+`","stream":`+stream+`,"tools":{"echo":{}},`+c.rest+`}`)
			for _, want := range c.want {
				if a.Status != 200 || !strings.Contains(a.Text, want) {
					t.Errorf("%s, stream %s: %d, no %s in %s", name, stream, a.Status, want, a.Text)
				}
			}
			if asked := m.Asked(); len(asked) != 2 {
				t.Errorf("%s, stream %s: asked %d times", name, stream, len(asked))
			} else {
				for _, want := range c.again {
					if !strings.Contains(mustJSON(t, asked[1].Body), want) {
						t.Errorf("%s, stream %s: no %s in %s", name, stream, want, asked[1].Text)
					}
				}
			}
			if stream == "true" && name == "messages" && !strings.Contains(a.Text, `"future_delta"`) {
				t.Error(a.Text)
			}
		}
	}
}

// A server that does not stream is named as such.
func TestAServerThatDoesNotStreamIsNamed(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions": chat(`,"stream":true`), "/v1/responses": `{"model":"demo","input":"x","stream":true}`,
		"/v1/messages": chat(`,"max_tokens":9,"stream":true`),
	} {
		m := scripted.New(t, scripted.Step{Status: 200, Body: `{"choices":[{"message":{"content":"The end."}}]}`})
		if a := serve(t, m, "").Do("POST", path, body); a.Status != 502 || !strings.Contains(a.Text, "its server does not stream") {
			t.Errorf("%s: %d %s", path, a.Status, a.Text)
		}
	}
}

// Where a model's server is concerns its operator, not its callers.
func TestTheAddressOfAServerReachesNoCaller(t *testing.T) {
	m := scripted.New(t)
	h := serve(t, m, "")
	m.Close()
	for _, model := range []string{"demo", "bare-openai"} {
		a := h.Do("POST", "/v1/chat/completions", strings.Replace(chat(""), "demo", model, 1))
		if a.Status != 503 || !strings.Contains(a.Text, "connection refused") || strings.Contains(a.Text, strings.TrimPrefix(m.URL, "http://")) {
			t.Errorf("%d %s", a.Status, a.Text)
		}
	}
}

// A server's refusal is passed on to the client, unless it concerns our key.
func TestServerRefusalIsPassedOnUnlessItConcernsOurKey(t *testing.T) {
	for name, c := range strangers() {
		m := scripted.New(t, scripted.Step{Status: 429, Body: `{"error":{"type":"slow","x":1}}`, Header: map[string]string{
			"Retry-After": "7", "X-Should-Retry": "true"}}, scripted.Step{Status: 401, Body: `{"error":{"message":"bad the-key"}}`})
		h := serve(t, m, "")
		body := strings.NewReplacer("STREAM", "true", "NAME", c.model).Replace(c.body)
		a := h.Do("POST", c.path, body)
		if a.Status != 429 || a.Text != `{"error":{"type":"slow","x":1}}` || a.Header.Get("Retry-After") != "7" || a.Header.Get("X-Should-Retry") != "true" {
			t.Errorf("%s: %d %s %v", name, a.Status, a.Text, a.Header)
		}
		if a = h.Do("POST", c.path, body); a.Status != 502 || strings.Contains(a.Text, "bad") || a.Header.Get("X-Should-Retry") != "false" ||
			dig(a.Doc, "error", "type") != "api_error" || !strings.Contains(a.Text, c.model) {
			t.Errorf("%s: %d %s %v", name, a.Status, a.Text, a.Header)
		}
	}
}

// No key is found in an answer whose encoding we do not read.
func TestAnEncodingThatWasNotRequestedIsNotPassedOn(t *testing.T) {
	for name, c := range strangers() {
		h := serve(t, scripted.New(t, scripted.Step{Status: 200, Body: "squeezed", Header: map[string]string{"Content-Encoding": "deflate"}}), "")
		a := h.Do("POST", c.path, strings.NewReplacer("STREAM", "true", "NAME", c.model).Replace(c.body))
		if a.Status != 502 || strings.Contains(a.Text, "squeezed") || !strings.Contains(a.Text, "encoding") {
			t.Errorf("%s: %d %s", name, a.Status, a.Text)
		}
	}
}

// A key that is split over the events of a passed stream is removed, whatever comes in between and whatever its member is
// called, and no event waits for the next.
func TestASplitKeyIsRemovedFromAPassedStream(t *testing.T) {
	const key = "the-key-itself"
	text := regexp.MustCompile(`"(?:content|delta|newfield|partial_json|text)": ?"([^"]*)"`)
	for name, c := range map[string]struct{ piece, between string }{
		"one text":            {`data: {"choices":[{"index":0,"delta":{"content":"PIECE"}}]}`, ""},
		"two choices":         {`data: {"choices":[{"index":0,"delta":{"content":"PIECE"}}]}`, `data: {"choices":[{"index":1,"delta":{"content":"yo"}}]}`},
		"numbers at the end":  {`data: {"choices":[{"delta":{"content":"PIECE"},"index":0}]}`, `data: {"choices":[{"delta":{"content":"yo"},"index":1}]}`},
		"two calls":           {`data: {"output_index":0,"delta":"PIECE"}`, `data: {"output_index":1,"delta":"yo"}`},
		"two items":           {`data: {"item_id":"a","delta":"PIECE"}`, `data: {"item_id":"b","delta":"yo"}`},
		"empty deltas":        {`data: {"choices":[{"index":0,"delta":{"content":"PIECE"}}]}`, `data: {"choices":[{"index":0,"delta":{}}]}`},
		"a member of its own": {`data: {"delta":{"newfield":"PIECE"}}`, "event: ping\ndata: {}"},
		"a member twice":      {`data: {"x":1,"x":2,"delta":{"content":"PIECE"}}`, ": comment"},
		"half of a pair":      {`data: {"x":"\ud800","delta":{"content":"PIECE"}}`, ""},
		"blocks":              {`data: {"index":N,"content_block":{"text":"PIECE"}}`, `data: {"type":"content_block_stop","index":N}`},
		"lines":               {"id: 7\ndata: {\"delta\":\ndata: \"PIECE\"}", ""},
	} {
		for _, size := range []int{1, 4, 5, 13, 14} {
			var all []string
			for i, piece := range slices.Collect(slices.Chunk([]byte("A "+key+" Z"), size)) {
				all = append(all, strings.NewReplacer("PIECE", string(piece), "N", fmt.Sprint(i)).Replace(c.piece))
				if c.between != "" {
					all = append(all, strings.ReplaceAll(c.between, "N", fmt.Sprint(i)))
				}
			}
			h := serve(t, scripted.New(t, scripted.Step{Status: 200, Body: strings.Join(all, "\n\n") + "\n\n",
				Header: map[string]string{"Content-Type": "text/event-stream"}}), "")
			got := h.Do("POST", "/v1/chat/completions", strings.Replace(chat(`,"stream":true`), "demo", "bare-openai", 1)).Text
			said := ""
			for _, found := range text.FindAllStringSubmatch(strings.ReplaceAll(got, "\ndata: ", ""), -1) {
				said += strings.TrimPrefix(found[1], "yo")
			}
			if !strings.HasPrefix(said, "A ") || !strings.HasSuffix(said, " Z") || !strings.Contains(said, "[secret KEY]") ||
				strings.Contains(said, key[:8]) || strings.Contains(said, key[6:]) {
				t.Errorf("%s in pieces of %d: %q: %s", name, size, said, got)
			}
			if strings.Count(got, "\n\n") != len(all) {
				t.Errorf("%s: %d events became %d: %s", name, len(all), strings.Count(got, "\n\n"), got)
			}
		}
	}
}

// An event is passed on at once, even if its text ends as a secret begins.
func TestAnEventOfAPassedStreamNeverWaits(t *testing.T) {
	for _, first := range []string{`data: {"delta":"so the-"}`, `data: {"delta":"the-key"}`, ": comment"} {
		on := make(chan struct{})
		m := scripted.New(t, scripted.Step{Status: 200, Body: first + "\n\ndata: [DONE]", Midway: on,
			Header: map[string]string{"Content-Type": "text/event-stream"}})
		resp := serve(t, m, "").Send(t.Context(), "POST", "/v1/chat/completions", strings.Replace(chat(`,"stream":true`), "demo", "bare-openai", 1))
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		close(on)
		rest, _ := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || strings.TrimSpace(line) == "" || strings.Contains(string(rest), "error") {
			t.Errorf("%q, %v, and then %q", line, err, rest)
		}
	}
}

// An interrupted stream ends with an error in the form of its API.
func TestAPassedStreamThatBreaksOffSaysSo(t *testing.T) {
	for name, want := range map[string]string{"messages": "event: error", "responses": "response.failed", "chat": `data: {"error":`} {
		c := strangers()[name]
		h := serve(t, scripted.New(t, scripted.Step{Text: "one two three four", Cut: true}), "")
		resp := h.Send(t.Context(), "POST", c.path, strings.NewReplacer("STREAM", "true", "NAME", c.model).Replace(
			map[string]string{"messages": `{"model":"NAME","max_tokens":9,"messages":[{"role":"user","content":"x"}],"stream":true}`,
				"responses": `{"model":"NAME","input":"x","stream":true}`,
				"chat":      `{"model":"NAME","messages":[{"role":"user","content":"x"}],"stream":true}`}[name]))
		got, _ := io.ReadAll(resp.Body)
		if resp.Body.Close(); !strings.Contains(string(got), want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Our tools are only offered to a request that asks for them.
func TestToolsAreOfferedOnlyOnRequest(t *testing.T) {
	for name, c := range map[string]struct {
		model, more string
		header      []string
		want        string // a tool that the model gets
	}{
		"no word of tools":     {"bare-openai", ``, nil, ""},
		"an empty list":        {"bare-openai", `,"tools":[]`, nil, ""},
		"an empty object":      {"bare-openai", `,"tools":{}`, nil, "readFile"},
		"the header":           {"bare-openai", ``, []string{"Toolpost-Tools", "offer"}, "readFile"},
		"the config":           {"demo", ``, nil, "readFile"},
		"by name":              {"bare-openai", `,"tools":[{"type":"function","function":{"name":"readFile"}}]`, nil, "readFile"},
		"its own, of our name": {"bare-openai", `,"tools":[{"type":"function","function":{"name":"echo","parameters":{"type":"object","properties":{"own":{}}}}}]`, nil, "echo"},
		"of another API":       {"bare-anthropic", ``, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := scripted.New(t, scripted.Calling(scripted.Call{ID: "c", Name: "echo", Args: `{"own":1}`}), scripted.Says("done"))
			h := serve(t, m, "")
			h.Do("POST", "/v1/chat/completions", strings.Replace(chat(c.more), `"demo"`, `"`+c.model+`"`, 1), c.header...)
			got := m.Asked()[0].Tools()
			if c.want == "" && len(got) > 0 || c.want != "" && !slices.Contains(got, c.want) {
				t.Errorf("offered %q", got)
			}
			if ran := len(h.Records()); name == "its own, of our name" && ran > 0 {
				t.Errorf("%d calls of the caller's own tool ran here", ran)
			}
		})
	}
}

// A tool is only ours if the request names it and says no more, or repeats our definition: an agent's own tool of the
// same name is left to the agent.
func TestAToolOfTheClientIsNeverTakenForOurs(t *testing.T) {
	apis := map[string]struct{ path, model, rest, left string }{
		"chat":      {"/v1/chat/completions", "bare-openai", `"messages":[{"role":"user","content":"x"}]`, `"finish_reason":"tool_calls"`},
		"responses": {"/v1/responses", "bare-responses", `"input":"x"`, `"type":"function_call"`},
		"messages":  {"/v1/messages", "bare-anthropic", `"max_tokens":9,"messages":[{"role":"user","content":"x"}]`, `"type":"tool_use"`},
	}
	for _, c := range []struct {
		api, tool string // OURS and OTHER are our definition, and the same with another description
		ours      bool
	}{
		{"chat", `{"type":"function","function":{"name":"echo"}}`, true},
		{"chat", `OURS`, true},
		{"chat", `OTHER`, false},
		{"chat", `{"type":"function","function":{"name":"echo","description":"mine"}}`, false},
		{"chat", `{"type":"function","function":{"name":"echo","parameters":{"type":"object","properties":{}}}}`, true},
		{"chat", `{"type":"function","function":{"name":"echo","parameters":{"type":"object","properties":{"own":{}}}}}`, false},
		{"chat", `{"type":"custom","custom":{"name":"echo"}}`, false},
		{"responses", `{"type":"function","name":"echo"}`, true},
		{"responses", `OURS`, true},
		{"responses", `OTHER`, false},
		{"responses", `{"type":"function","name":"echo","parameters":null}`, true},
		{"responses", `{"type":"function","name":"echo","description":"mine","parameters":null,"strict":true}`, false},
		{"messages", `{"name":"echo","input_schema": {"type": "object"}}`, true},
		{"messages", `OURS`, true},
		{"messages", `OTHER`, false},
		{"messages", `{"type":"bash_20250124","name":"echo"}`, false},
		{"messages", `{"name":"echo","input_schema":{"type":"object","properties":{}}}`, true},
		{"messages", `{"name":"echo","description":"mine","input_schema":{"type":"object","properties":{}}}`, false},
		{"messages", `{"name":"echo","description":"mine","input_schema":{"type":"object"}}`, false},
	} {
		at := apis[c.api]
		m := scripted.New(t, scripted.Calling(scripted.Call{ID: "c", Name: "echo", Args: `{"own":1}`}), scripted.Says("done"))
		h := serve(t, m, "")
		list, _ := h.Do("GET", "/v1/openai/tools?form="+c.api, "").Doc["tools"].([]any)
		ours := mustJSON(t, list[slices.IndexFunc(list, func(one any) bool {
			return dig(one, "name") == "echo" || dig(one, "function", "name") == "echo"
		})])
		tool := strings.NewReplacer("OURS", ours, "OTHER", strings.Replace(ours, "Returns its", "Prints its", 1)).Replace(c.tool)
		a := h.Do("POST", at.path, `{"model":"`+at.model+`","tools":[`+tool+`],`+at.rest+`}`)
		sent := mustJSON(t, dig(m.Asked()[0].Body, "tools", 0))
		if ran := len(h.Records()); a.Status != 200 || ran == 1 != c.ours || strings.Contains(a.Text, at.left) == c.ours {
			t.Errorf("%s, %s: %d calls ran here: %s", c.api, tool, ran, a.Text)
		}
		if !c.ours && !sameJSON(t, sent, tool) {
			t.Errorf("%s: the model was told of %s, not %s", c.api, sent, tool)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Fatal(a, b)
	}
	return reflect.DeepEqual(x, y)
}

// Between two APIs, tools of a namespace and those that take a text become functions; tools that the server runs are
// left out.
func TestResponsesToolsAreTranslatedForOtherServers(t *testing.T) {
	for _, model := range []string{"bare-openai", "bare-anthropic"} {
		for _, stream := range []string{"false", "true"} {
			m := scripted.New(t, scripted.Calling(scripted.Call{ID: "c1", Name: "git__log", Args: `{"n":1}`},
				scripted.Call{ID: "c2", Name: "patch", Args: `{"input":"*** Begin"}`}), scripted.Says("done"))
			h := serve(t, m, "")
			tools := `"tools":[{"type":"namespace","name":"git","tools":[{"type":"function","name":"log","parameters":{"type":"object"}}]},` +
				`{"type":"custom","name":"patch"},{"type":"web_search"},{"type":"image_generation"}]`
			resp := h.Send(t.Context(), "POST", "/v1/responses", `{"model":"`+model+`","input":"x","stream":`+stream+`,`+tools+`}`)
			got, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			for _, want := range []string{`"namespace":"git"`, `"name":"log"`, `"type":"custom_tool_call"`, `"input":"*** Begin"`} {
				kit.Contains(t, string(got), want, "%s, stream %s", model, stream)
			}
			kit.Equal(t, resp.Header.Get("Toolpost-Left-Out"), "web_search, image_generation", "left out")
			a := h.Do("POST", "/v1/responses", `{"model":"`+model+`","input":[{"role":"user","content":"x"},
				{"type":"function_call","namespace":"git","name":"log","call_id":"c1","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"a"},
				{"type":"custom_tool_call","name":"patch","call_id":"c2","input":"y"},{"type":"custom_tool_call_output","call_id":"c2","output":"b"}],`+tools+`}`)
			if a.Status != 200 || !strings.Contains(m.Asked()[1].Text, "git__log") {
				t.Errorf("%d %s", a.Status, a.Text)
			}
		}
	}
}

// A search for the caller's tools is a function for a server of another API, and its results are functions.
func TestASearchForToolsReachesOtherServers(t *testing.T) {
	for _, model := range []string{"bare-openai", "bare-anthropic"} {
		for _, stream := range []string{"false", "true"} {
			m := scripted.New(t, scripted.Calling(scripted.Call{ID: "c1", Name: "tool_search", Args: `{"query":"log"}`}),
				scripted.Calling(scripted.Call{ID: "c2", Name: "git__log", Args: `{"n":1}`}))
			h := serve(t, m, "")
			ask := func(input string) string {
				resp := h.Send(t.Context(), "POST", "/v1/responses", `{"model":"`+model+`","stream":`+stream+`,"input":`+input+`,"tools":[
					{"type":"tool_search","execution":"client","description":"finds tools","parameters":{"type":"object"}}]}`)
				defer resp.Body.Close()
				got, _ := io.ReadAll(resp.Body)
				kit.Equal(t, resp.Header.Get("Toolpost-Left-Out"), "", "left out")
				return string(got)
			}
			found := `{"type":"tool_search_output","call_id":"CALL","execution":"client","tools":[{"type":"namespace","name":"git","tools":[{"type":"function","name":"log","parameters":{"type":"object"}}]}]}`
			searched := `{"type":"tool_search_call","call_id":"CALL","execution":"client","arguments":{"query":"log"}},` + found
			again := strings.ReplaceAll(searched, "CALL", "c0") + "," + strings.ReplaceAll(searched, "CALL", "c1")
			got := ask(`"x"`)
			for _, want := range []string{`"type":"tool_search_call"`, `"execution":"client"`, `"arguments":{"query":"log"}`, `"call_id":"c1"`} {
				kit.Contains(t, got, want, "%s, stream %s", model, stream)
			}
			got = ask(`[{"role":"user","content":"x"},` + again + `]`)
			if !strings.Contains(got, `"namespace":"git"`) || !strings.Contains(got, `"name":"log"`) {
				t.Errorf("%s, stream %s: %s", model, stream, got)
			}
			kit.EqualSlices(t, m.Asked()[1].Tools(), []string{"tool_search", "git__log"}, "the model was told of")
		}
	}
}

// Routes that only some servers have are passed on to those.
func TestTokensAndEmbeddingsAreAskedOfTheServer(t *testing.T) {
	m := scripted.New(t).Always(scripted.Step{Status: 200, Body: `{"input_tokens": 7}`})
	h := serve(t, m, "")
	for path, body := range map[string]string{
		"/v1/messages/count_tokens": `{"model":"claude","messages":[{"role":"user","content":"x"}],"new":1}`,
		"/v1/embeddings":            `{"model":"demo","input":["x"],"dimensions":3}`,
		"/v1/responses/compact":     `{"model":"newer","input":[{"role":"user","content":"x"}]}`,
	} {
		if a := h.Do("POST", path, body); a.Status != http.StatusOK || a.Text != `{"input_tokens": 7}` {
			t.Errorf("%s: %d %s", path, a.Status, a.Text)
		}
	}
	for _, asked := range m.Asked() {
		kit.Equal(t, asked.Body["model"], "m-1", asked)
	}
}

// The required form of an answer is translated for each API.
func TestTheFormOfAnAnswerReachesEveryServer(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`
	for path, body := range map[string]string{
		"/v1/chat/completions": chat(`,"tools":{},"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}`),
		"/v1/responses":        `{"model":"demo","input":"x","tools":{},"text":{"format":{"type":"json_schema","name":"x","schema":` + schema + `}}}`,
		"/v1/messages": `{"model":"demo","max_tokens":9,"tools":{},"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":` +
			schema + `}}}`,
	} {
		for model, where := range map[string][]any{
			"demo": {"response_format", "json_schema", "schema"}, "claude": {"output_config", "format", "schema"}, "newer": {"text", "format", "schema"},
		} {
			m := scripted.New(t, scripted.Says(`{"a":"b"}`))
			a := serve(t, m, "").Do("POST", path, strings.Replace(body, `"demo"`, `"`+model+`"`, 1))
			if a.Status != 200 || dig(m.Asked()[0].Body, append(where, "required", 0)...) != "a" {
				t.Errorf("%s of %s: %d %s %v", path, model, a.Status, a.Text, m.Asked())
			}
		}
	}
}

// A call that must be approved is reported at once: in a stream, which then waits, or as the answer.
func TestAnApprovalIsToldOfAtOnce(t *testing.T) {
	bodies := map[string]string{
		"/v1/chat/completions": chat(`,"stream":STREAM`),
		"/v1/responses":        `{"model":"demo","input":"x","stream":STREAM}`,
		"/v1/messages":         `{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":"x"}],"stream":STREAM}`,
	}
	for path, body := range bodies {
		for _, stream := range []string{"true", "false"} {
			t.Run(path+" "+stream, func(t *testing.T) {
				m := scripted.New(t, scripted.Calling(scripted.ReadFile("c1")), scripted.Says("It is called demo."))
				dir := t.TempDir()
				kit.Write(t, filepath.Join(dir, "package.json"), "{}")
				at := start(t, dir, `
sources: [{name: files, protocol: builtin, roots: [{path: .}]}]
doors: {http: {listen: "127.0.0.1:0"}}
models: [{name: demo, url: "`+m.URL+`/v1", tools: offer}]
policy: {rules: [{effect: ask, tools: readFile, approvers: owner, self: true}]}
store: {}
`, 2)["http"]
				body := strings.Replace(body, "STREAM", stream, 1)
				req := kit.Must(http.NewRequestWithContext(t.Context(), "POST", at+path, strings.NewReader(body)))(t)
				req.Header.Set("Authorization", "Bearer "+token)
				req.Header.Set("Content-Type", "application/json")
				resp := kit.Must(http.DefaultClient.Do(req))(t)
				defer resp.Body.Close()
				said := ""
				lines := bufio.NewScanner(resp.Body)
				id := ""
				for lines.Scan() {
					said += lines.Text() + "\n"
					if found := waits.FindStringSubmatch(said); found != nil && id == "" {
						id = found[1]
						if status, got := as(t, token, "POST", at+"/v1/tools/approvals.decide/call", `{"id":"`+id+`","approve":true}`); status != 200 {
							t.Fatal(status, got)
						}
					}
				}
				once := "[Stopped by Toolpost: readFile waits for the approval " + id + " (`toolpost approve`). Send the conversation again to go on.]"
				if id == "" || stream == "true" != strings.Contains(said, "It") || stream == "true" == strings.Contains(said, once) {
					t.Fatalf("%q: %s", id, said)
				}
				if stream == "false" {
					if status, got := as(t, token, "POST", at+path, body); status != 200 || !strings.Contains(got, "It is called demo.") {
						t.Errorf("the conversation does not go on: %d %s", status, got)
					}
				}
			})
		}
	}
}

// waits finds the id of an approval in an answer.
var waits = regexp.MustCompile(`(?:waits for the approval |"event":\{"data":\{"id":")([^ "]+)`)

// With tools of ours a request stays as it came, except for those, and the following rounds add to it.
func TestRequestKeepsItsOwnFieldsBesideOurTools(t *testing.T) {
	ours := map[string]string{
		"messages": `{"name":"readFile","input_schema":{"type":"object"}}`, "responses": `{"type":"function","name":"readFile"}`,
		"chat": `{"type":"function","function":{"name":"readFile"}}`,
	}
	said := map[string]string{"messages": "messages", "responses": "input", "chat": "messages"}
	for name, c := range strangers() {
		for _, stream := range []string{"false", "true"} {
			m := scripted.New(t, scripted.Step{Thoughts: "hm", Text: "I look.", Calls: []scripted.Call{scripted.ReadFile("c1")}},
				scripted.Says("It is demo."))
			h := serve(t, m, "")
			body := strings.NewReplacer("STREAM", stream, "NAME", c.model, `"tools":[`, `"tools":[`+ours[name]+`,`, `,"n":3,"logprobs":true`, "").Replace(c.body)
			resp := h.Send(t.Context(), "POST", c.path, body, "Anthropic-Beta", "one")
			got, _ := io.ReadAll(resp.Body)
			if resp.Body.Close(); resp.StatusCode != 200 || !strings.Contains(string(got), "demo") || len(m.Asked()) != 2 {
				t.Fatalf("%s: %d %s", name, resp.StatusCode, got)
			}
			var came map[string]any
			kit.OK(t, json.Unmarshal([]byte(body), &came))
			for round, asked := range m.Asked() {
				for member, value := range came {
					have := asked.Body[member]
					switch member {
					case "model", "stream":
						continue
					case "tools": // ours is written as we define it
						value, have = value.([]any)[1:], have.([]any)[1:]
					case said[name]:
						have = have.([]any)[:len(value.([]any))]
						if more := len(asked.Body[member].([]any)) - len(value.([]any)); (more > 0) != (round == 1) {
							t.Errorf("%s, round %d: %d more were said", name, round, more)
						}
					}
					kit.DeepEqual(t, have, value, "%s, stream %s, round %d: %s", name, stream, round, member)
				}
				kit.Equal(t, asked.Header.Get("Anthropic-Beta"), "one", asked.Header)
			}
		}
	}
}

// A model with more tools than it can choose among searches for them, and calls those that it found.
func TestAModelSearchesAmongManyTools(t *testing.T) {
	call := func(id, name, args string) scripted.Step {
		return scripted.Calling(scripted.Call{ID: id, Name: name, Args: args})
	}
	for _, c := range []struct{ path, model, body string }{
		{"/v1/chat/completions", "demo", chat("")},
		{"/v1/messages", "claude", `{"model":"claude","max_tokens":99,"messages":[{"role":"user","content":"x"}]}`},
		{"/v1/responses", "newer", `{"model":"newer","input":"x"}`},
	} {
		m := scripted.New(t, call("a", "search_tools", `{"query":"read a file","limit":3}`), call("b", "search_tools", `{"q":1}`),
			call("c", "describe_tool", `{"name":"readFile"}`), call("d", "describe_tool", `{"name":"nothing"}`),
			call("e", "call_tool", `{"name":"readFile","arguments":{"path":"package.json"}}`),
			call("f", "call_tool", `{"name":"fail","arguments":{"message":"x"}}`), call("g", "call_tool", `{"name":"call_tool"}`),
			call("h", "readFile", `{"path":"package.json"}`), scripted.Says("done"))
		h := serve(t, m, ", openai: {search_above: 3, always: [echo]}")
		if a := h.Do("POST", c.path, c.body); a.Status != 200 {
			t.Fatalf("%s: %d %s", c.path, a.Status, a.Text)
		}
		asked := m.Asked()
		kit.EqualSlices(t, asked[0].Tools(),
			[]string{"call_tool", "describe_tool", "echo", "search_tools"}, "%s: the model was offered", c.path)
		for i, want := range []string{"readFile(path: string", "the arguments of search_tools", `path`, "no tool named", `demo`,
			"nobody fails here", "no tool named", `demo`} {
			before, after := asked[i].Text, asked[i+1].Text
			if strings.Count(after, want) <= strings.Count(before, want) {
				t.Errorf("%s: after step %d the model was not told %q: %s", c.path, i, want, after)
			}
		}
		var ran []string
		for _, r := range h.Records() {
			ran = append(ran, r.Tool)
		}
		kit.EqualSlices(t, ran, []string{"readFile", "fail", "", "readFile"}, "%s: on record are", c.path)
	}
	m := scripted.New(t, call("a", "search_tools", `{"query":"read a file"}`), scripted.Says("done"))
	h := serve(t, m, ", openai: {search_above: 3}")
	h.Do("POST", "/v1/chat/completions", chat(`,"tool_choice":"none"`))
	if got := m.Asked(); len(got) > 1 && strings.Contains(got[1].Text, "readFile(") {
		t.Errorf("a search ran though tool_choice rules tools out: %s", got[1].Text)
	}
}
