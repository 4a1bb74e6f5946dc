package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A step is one action of the scripted model: it calls a tool, or says something.
type step struct {
	tool  string // the end of its name, as the agent offers it
	space string // if the agent lets the model search for it
	input string // its arguments, as JSON; for a custom tool, its plain input
	says  string
	first func() // runs before the step, once
}

// A script is a model that plays one step after the other, regardless of the agent's messages. It speaks all APIs.
type script struct {
	*recorder
	t     *testing.T
	url   string
	steps []step
	plain bool // a stream breaks off before its first event, so that the agent retries without streaming
}

func newScript(t *testing.T, steps ...step) *script {
	for i, s := range steps {
		if s.first != nil {
			steps[i].first = sync.OnceFunc(s.first)
		}
	}
	m := &script{t: t, steps: steps}
	m.recorder = &recorder{next: m.answer}
	srv := httptest.NewServer(m.recorder)
	t.Cleanup(srv.Close)
	m.url = srv.URL
	return m
}

// A called is a tool as an agent offers it.
type called struct{ name, namespace, kind string }

// asked is the part of a request that the script reads.
type asked struct {
	Model  string            `json:"model"`
	Stream bool              `json:"stream"`
	Tools  []json.RawMessage `json:"tools"`
}

// offered finds a tool among those of a request, in the form of any API.
func (a asked) offered(name string) (called, bool) {
	for _, raw := range a.Tools {
		var d struct {
			Type, Name string
			Function   struct{ Name string }
			Tools      []json.RawMessage
			Functions  []struct{ Name string } `json:"functionDeclarations"`
		}
		_ = json.Unmarshal(raw, &d)
		if c, ok := (asked{Tools: d.Tools}).offered(name); ok {
			c.namespace = d.Name
			return c, true
		}
		if d.Type == name { // such as tool_search, which has no name
			return called{name: d.Type, kind: d.Type}, true
		}
		for _, f := range append(d.Functions, d.Function, struct{ Name string }{d.Name}) {
			if f.Name == name || strings.HasSuffix(f.Name, "_"+name) {
				return called{name: f.Name, kind: d.Type}, true
			}
		}
	}
	return called{}, false
}

func (m *script) answer(w http.ResponseWriter, r *http.Request, body []byte) {
	var a asked
	if err := json.Unmarshal(body, &a); err != nil || r.Method != http.MethodPost {
		http.Error(w, `{"error": {"type": "not_found_error", "message": "there is no such thing here"}}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Request-Id", "req_of_the_model")
	w.Header().Set("X-Request-Id", "req_of_the_model")
	w.Header().Set("Anthropic-Ratelimit-Requests-Remaining", "41")
	w.Header().Set("X-Ratelimit-Remaining-Requests", "41")
	n, s, tool := m.next(a, body)
	speak := map[string]func(int, step, called) []string{
		"/v1/messages": messages, "/v1/responses": responses, "/v1/chat/completions": completions,
	}[r.URL.Path]
	_, method, google := strings.Cut(r.URL.Path, ":")
	switch {
	case strings.HasSuffix(r.URL.Path, "/count_tokens"):
		fmt.Fprint(w, `{"input_tokens": 100}`)
		return
	case method == "countTokens":
		fmt.Fprint(w, `{"totalTokens": 100}`)
		return
	case google:
		speak, a.Stream = contents, method == "streamGenerateContent"
	case speak == nil:
		http.Error(w, `{"error": {"message": "no such route"}}`, http.StatusNotFound)
		return
	}
	if !a.Stream {
		w.Header().Set("Content-Type", "application/json")
		all := speak(n, s, tool)
		fmt.Fprint(w, all[len(all)-1])
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	all := speak(n, s, tool)
	if m.plain {
		all = []string{""}
	}
	for _, event := range all[:len(all)-1] {
		fmt.Fprint(w, event)
		w.(http.Flusher).Flush()
	}
}

// next returns the step after those that are already in the conversation. A request without tools is not part of the
// task, but for a title or a summary.
func (m *script) next(a asked, body []byte) (int, step, called) {
	if len(a.Tools) == 0 {
		return 0, step{says: "A title"}, called{}
	}
	results := bytes.Count(body, []byte(`"functionResponse"`)) // Google's API has no ids that all agents keep
	for i, s := range m.steps {
		if i < results || bytes.Contains(body, fmt.Appendf(nil, "step_%d", i+1)) {
			continue
		}
		if s.first != nil {
			s.first()
		}
		tool, ok := a.offered(s.tool)
		if !ok && s.space != "" && bytes.Contains(body, []byte(`"tool_search_output"`)) { // it is not listed then
			tool, ok = called{name: s.tool, namespace: s.space}, true
		}
		if !ok && s.tool != "" {
			return i + 1, step{says: "there is no tool " + s.tool}, called{}
		}
		return i + 1, s, tool
	}
	return 0, step{says: "all done"}, called{}
}

// event formats an event of a stream, named after its type.
func event(doc string) string {
	var d struct{ Type string }
	_ = json.Unmarshal([]byte(doc), &d)
	return "event: " + d.Type + "\ndata: " + doc + "\n\n"
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// messages returns an answer of Anthropic's API: its events, and last the whole as one document.
func messages(n int, s step, tool called) []string {
	start := `{"type":"text","text":""}`
	delta := `{"type":"text_delta","text":` + quote(s.says) + `}`
	whole, reason := `{"type": "text", "text": `+quote(s.says)+`}`, "end_turn"
	if tool.name != "" {
		head := fmt.Sprintf(`{"type":"tool_use","id":"toolu_step_%d","name":%q,"input":`, n, tool.name)
		start, whole, reason = head+"{}}", head+s.input+"}", "tool_use"
		delta = `{"type":"input_json_delta","partial_json":` + quote(s.input) + `}`
	}
	usage := `{"input_tokens": 10, "cache_read_input_tokens": 7, "output_tokens": 3, "unheard_of": {"x": 1.50}}`
	return []string{
		event(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"scripted","content":[],"stop_reason":null,"stop_sequence":null,"usage":` + usage + `}}`),
		event(`{"type": "content_block_start", "index": 0, "content_block": ` + start + `}`),
		event(`{"type": "ping"}`),
		event(`{"type":"content_block_delta","index":0,"delta":` + delta + `}`),
		event(`{"type":"content_block_stop","index":0}`),
		event(`{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":` + usage + `}`),
		event(`{"type":"message_stop"}`),
		`{"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": [` + whole + `], "stop_reason": "` + reason + `", "stop_sequence": null, "usage": ` + usage + `}`,
	}
}

// responses returns an answer of OpenAI's newer API.
func responses(n int, s step, tool called) []string {
	item := `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":` + quote(s.says) + `,"annotations":[]}]}`
	switch {
	case tool.kind == "tool_search":
		item = fmt.Sprintf(`{"type":"tool_search_call","id":"tsc_%d","call_id":"call_step_%d","execution":"client","arguments":%s,"status":"completed"}`, n, n, s.input)
	case tool.kind == "custom":
		item = fmt.Sprintf(`{"type":"custom_tool_call","id":"ctc_%d","call_id":"call_step_%d","name":%q,"input":%s}`, n, n, tool.name, quote(s.input))
	case tool.name != "":
		space := ""
		if tool.namespace != "" {
			space = fmt.Sprintf(`,"namespace":%q`, tool.namespace)
		}
		item = fmt.Sprintf(`{"type":"function_call","id":"fc_%d","call_id":"call_step_%d","name":%q%s,"arguments":%s,"status":"completed"}`, n, n, tool.name, space, quote(s.input))
	}
	usage := `{"input_tokens": 10, "input_tokens_details": {"cached_tokens": 7}, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 13}`
	head := fmt.Sprintf(`{"id":"resp_%d","object":"response","created_at":1,"model":"scripted","unheard_of":{"x": 1.50},`, n)
	whole := head + `"status":"completed","output":[` + item + `],"usage":` + usage + `}`
	return []string{
		event(`{"type":"response.created","sequence_number":0,"response":` + head + `"status":"in_progress","output":[]}}`),
		event(`{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":` + item + `}`),
		event(`{"type":"response.output_item.done","sequence_number":2,"output_index":0,"item":` + item + `}`),
		event(`{"type":"response.completed","sequence_number":3,"response":` + whole + `}`),
		whole,
	}
}

// completions returns an answer of OpenAI's chat API.
func completions(n int, s step, tool called) []string {
	part, reason := `"content":`+quote(s.says), "stop"
	if tool.name != "" {
		part = fmt.Sprintf(`"content":null,"tool_calls":[{"index":0,"id":"call_step_%d","type":"function","function":{"name":%q,"arguments":%s}}]`, n, tool.name, quote(s.input))
		reason = "tool_calls"
	}
	usage := `{"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13, "unheard_of": {"x": 1.50}}`
	chunk := func(delta, reason, more string) string {
		return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":{` + delta + `},"finish_reason":` + reason + `}]` + more + "}\n\n"
	}
	return []string{
		": processing\n\n",
		chunk(`"role":"assistant",`+part, "null", ""),
		chunk("", quote(reason), `,"usage": `+usage),
		"data: [DONE]\n\n",
		`{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [{"index": 0, "message": {"role": "assistant", ` + part + `}, "finish_reason": "` + reason + `"}], "usage": ` + usage + `}`,
	}
}

// contents returns an answer of Google's API.
func contents(n int, s step, tool called) []string {
	part := `{"text":` + quote(s.says) + `}`
	if tool.name != "" {
		part = fmt.Sprintf(`{"functionCall":{"id":"step_%d","name":%q,"args":%s}}`, n, tool.name, s.input)
	}
	whole := `{"candidates":[{"index":0,"content":{"role":"model","parts":[` + part + `]},"finishReason":"STOP"}],` +
		`"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":3,"totalTokenCount":13},"modelVersion":"scripted"}`
	return []string{"data: " + whole + "\r\n\r\n", whole}
}
