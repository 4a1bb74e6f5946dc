package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/scripted"
	"toolpost/tool"
	"toolpost/wire/sse"
)

func TestToolsAreListedInTheFormOfEachAPI(t *testing.T) {
	h := serve(t, scripted.New(t), "")
	find := func(query, name string, path ...any) any {
		a := h.Do("GET", "/v1/openai/tools"+query, "")
		list, _ := a.Doc["tools"].([]any)
		for _, one := range list {
			if dig(one, append(path, "name")...) == name {
				return one
			}
		}
		t.Fatal(a.Status, a.Text)
		return nil
	}
	one := find("", "dotted_name", "function")
	if dig(one, "type") != "function" || dig(one, "function", "strict") != true || dig(one, "function", "parameters",
		"required", 0) != "x" {
		t.Error(one)
	}
	if one := find("?form=chat", "readFile", "function"); dig(one, "function", "strict") != false || dig(one, "function",
		"description") == "" {
		t.Error(one)
	}
	if one := find("?form=responses", "echo"); dig(one, "type") != "function" || dig(one, "parameters",
		"type") != "object" || dig(one, "strict") != false {
		t.Error(one)
	}
	if one := find("?form=messages", "echo"); dig(one, "input_schema", "type") != "object" || dig(one, "type") != nil {
		t.Error(one)
	}
	if a := h.Do("GET", "/v1/openai/tools?form=xml", ""); a.Status != 400 || dig(a.Doc, "error",
		"type") != "invalid_request_error" {
		t.Error(a.Status, a.Text)
	}
	if a := h.Do("GET", "/v1/openai/tools", "", "Authorization", "Bearer wrong-token-of-some-length"); a.Status != 401 ||
		dig(a.Doc, "error", "type") != "authentication_error" || dig(a.Doc, "type") != "error" {
		t.Error(a.Status, a.Text)
	}
	if a := h.Do("GET", "/v1/openai/tools", "", "Authorization", "", "X-Api-Key",
		token); a.Status != 401 { // an empty header is not a missing one
		t.Error(a.Status, a.Text)
	}
}

func toolCalls(list ...string) string { return `{"tool_calls":[` + strings.Join(list, ",") + `]}` }

func toolCall(id, name, args string) string {
	return fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}`, id, name, args)
}

func TestToolCallsAreAnsweredWithMessagesInTheirOrder(t *testing.T) {
	h := serve(t, scripted.New(t), "")
	a := h.Do("POST", "/v1/openai/tool_calls", toolCalls(
		toolCall("a", "readFile", `{"path":"package.json"}`), toolCall("b", "echo", `{"x":`), toolCall("c", "file.read",
			`{"path":"package.json"}`),
		toolCall("d", "nothing", ""), toolCall("e", "fail", `{"message":"no torch"}`), toolCall("f", "asker", ""),
	), "Toolpost-Run", "r-1")
	want := []string{`{"name": "demo"}`, "Error: ", `{"name": "demo"}`, "Error: ", "Error: no torch", "Which colour?"}
	for i, text := range want {
		m := dig(a.Doc, "messages", i)
		if content, _ := dig(m, "content").(string); dig(m, "role") != "tool" || dig(m,
			"tool_call_id") != string(rune('a'+i)) ||
			!strings.Contains(content, text) || len(m.(map[string]any)) != 3 {
			t.Errorf("%d: %v, want %q", i, m, text)
		}
	}
	for i, code := range []any{nil, "invalid_input", nil, "not_found", "tool_error", nil} {
		kit.Equal(t, dig(a.Doc, "results", i, "code"), code, "%d has the code", i)
	}
	if dig(a.Doc, "results", 5, "ask", "message") != "Which colour?" || dig(a.Doc, "run") != "r-1" {
		t.Error(a.Text)
	}
	log := h.Records()
	kit.Equal(t, len(log), 6, "on record")
	for _, r := range log {
		if r.Run != "r-1" || r.Door != "openai" {
			t.Errorf("%+v", r)
		}
	}
}

func TestARequestThatIsRepeatedWithItsKeyCallsNothingTwice(t *testing.T) {
	h := serve(t, scripted.New(t), "")
	same := toolCall("a", "echo", `{"x":1}`)
	body := toolCalls(same, strings.Replace(same, `"a"`, `"b"`, 1), toolCall("c", "echo", `{"x":2}`))
	for range 2 {
		if a := h.Do("POST", "/v1/openai/tool_calls", body, "Idempotency-Key", "k-1"); a.Status != 200 || dig(a.Doc,
			"results", 2, "outcome") != "ok" {
			t.Fatal(a.Status, a.Text)
		}
	}
	ran, again := 0, 0
	for _, r := range h.Records() {
		kit.Equal(t, r.Outcome, tool.OutcomeOK, r)
		if r.Replay {
			again++
		} else {
			ran++
		}
	}
	if ran != 3 || again != 3 {
		t.Errorf("%d ran, %d were replays", ran, again)
	}
}

func TestAModelIsFoundByItsName(t *testing.T) {
	h := serve(t, scripted.New(t), "")
	if a := h.Do("GET", "/v1/models/demo", ""); a.Status != 200 || dig(a.Doc, "id") != "demo" ||
		dig(a.Doc, "object") != "model" || dig(a.Doc, "type") != "model" {
		t.Error(a.Status, a.Text)
	}
	if a := h.Do("GET", "/v1/models/of/demo", ""); a.Status != 404 || dig(a.Doc, "error", "code") != "model_not_found" {
		t.Error(a.Status, a.Text)
	}
}

func TestBadRequestsAreRefusedInTheFormOfTheAPI(t *testing.T) {
	m := scripted.New(t)
	h := serve(t, m, ", openai: {calls: 2}")
	deep := strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)
	for name, c := range map[string]struct {
		path, body string
		status     int
		want       string
		header     []string
	}{
		"no JSON":        {"/v1/chat/completions", `{"model":`, 400, "not a JSON object", nil},
		"not an object":  {"/v1/responses", `[]`, 400, "not a JSON object", nil},
		"duplicate keys": {"/v1/messages", `{"model":"demo","model":"demo"}`, 400, "not a JSON object", nil},
		"invalid UTF-8":  {"/v1/messages", "{\"model\":\"\xff\"}", 400, "not a JSON object", nil},
		"too deep":       {"/v1/chat/completions", deep, 400, "not a JSON object", nil},
		"too large": {"/v1/chat/completions", `{"model":"` + strings.Repeat("x", 31<<20) + `"}`, 413,
			"larger than", nil},
		"a form": {"/v1/chat/completions", chat(""), 415, "application/json", []string{"Content-Type",
			"application/x-www-form-urlencoded"}},
		"no model": {"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400,
			"names no model", nil},
		"no input":       {"/v1/responses", `{"model":"demo"}`, 400, "input is missing", nil},
		"another model":  {"/v1/responses", `{"model":"dem","input":"x"}`, 404, "demo", nil},
		"no messages":    {"/v1/messages", `{"model":"demo","messages":[]}`, 400, "messages is empty", nil},
		"no role":        {"/v1/chat/completions", `{"model":"claude","messages":[{"content":"x"}]}`, 400, "api: openai", nil},
		"a strange item": {"/v1/responses", `{"model":"demo","input":[{"type":"computer_call"}]}`, 400, "api: responses", nil},
		"a tool of another API": {"/v1/messages", `{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"type":"bash_20250124","name":"bash"}]}`,
			400, "api: anthropic", nil},
		"tokens of another API":     {"/v1/messages/count_tokens", `{"model":"demo","messages":[]}`, 400, "api: anthropic", nil},
		"embeddings of another API": {"/v1/embeddings", `{"model":"claude","input":"x"}`, 400, "api: openai", nil},
		"messages are a text":       {"/v1/chat/completions", `{"model":"demo","messages":"x"}`, 400, "/messages: expected an array, got a string", nil},
		"several answers":           {"/v1/chat/completions", chat(`,"n":2`), 400, "n is only for a model with api: openai", nil},
		"log probabilities":         {"/v1/chat/completions", chat(`,"logprobs":true`), 400, "logprobs is only for a model with api: openai", nil},
		"an earlier response": {"/v1/responses", `{"model":"demo","input":"x","previous_response_id":"resp_1"}`, 400,
			"previous_response_id", nil},
		"a tool without name": {"/v1/responses", `{"model":"demo","input":"x","tools":[{"type":"function"}]}`, 400,
			"no name", nil},
		"two tools of a name": {"/v1/responses", `{"model":"demo","input":"x","tools":[{"name":"p"},{"name":"p"}]}`, 400, "two tools", nil},
		"a choice of nothing": {"/v1/chat/completions", chat(`,"tool_choice":{"type":"function","function":{"name":"p"}}`),
			400, "tool_choice", nil},
		"another API's word": {"/v1/chat/completions", strings.Replace(chat(`,"response_format":{"type":"json_object"}`),
			"demo", "claude", 1), 400, "response_format", nil},
		"an unknown header": {"/v1/chat/completions", chat(""), 400, "Toolpost-Dry-Run", []string{"Toolpost-Dryrun",
			"true"}},
		"an answer": {"/v1/chat/completions", chat(""), 400, "Toolpost-Resume", []string{"Toolpost-Resume", "q"}},
		"no calls":  {"/v1/openai/tool_calls", `{}`, 400, "tool_calls is empty", nil},
		"too many calls": {"/v1/openai/tool_calls", toolCalls(toolCall("a", "echo", ""), toolCall("b", "echo", ""),
			toolCall("c", "echo", "")), 400, "more than the 2", nil},
		"calls of one id": {"/v1/openai/tool_calls", toolCalls(toolCall("a", "echo", ""), toolCall("a", "echo", "")),
			400, "each call needs its own", nil},
		"a call of nothing": {"/v1/openai/tool_calls", toolCalls(toolCall("a", "", "")), 400, "names no function", nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.Do("POST", c.path, c.body, c.header...)
			message, _ := dig(a.Doc, "error", "message").(string)
			if a.Status != c.status || !strings.Contains(message, c.want) || dig(a.Doc, "type") != "error" {
				t.Errorf("%d %.300s, want %d with %q", a.Status, a.Text, c.status, c.want)
			}
		})
	}
	kit.Equal(t, len(m.Asked()), 0, "the model was asked all the same")
	if a := h.Do("POST", "/v1/chat/completions", chat(`,"n":2`)); dig(a.Doc, "error", "param") != "n" ||
		dig(a.Doc, "error", "code") != "unsupported_parameter" {
		t.Error(a.Text)
	}
	if a := h.Do(http.MethodGet, "/v1/chat/completions", ""); a.Status != 405 || dig(a.Doc, "error", "type") == nil {
		t.Error(a.Status, a.Text)
	}
}

func TestModelErrorIsNotRetriedAfterToolsRan(t *testing.T) {
	for name, c := range map[string]struct {
		step   scripted.Step
		status int
		want   string
	}{
		"a bad key": {scripted.Step{Status: 401, Body: `{"error":{"message":"bad key the-key-itself"}}`}, 502,
			"check the key"},
		"too long": {scripted.Step{Status: 400, Body: `{"error":{"message":"so long","code":"context_length_exceeded"}}`}, 400,
			`"code":"context_length_exceeded"`},
		"a number":      {scripted.Step{Status: 400, Body: `{"error":{"message":"so short","code":7}}`}, 400, "so short"},
		"no code":       {scripted.Step{Status: 400, Body: `{"error":{"message":"no","code":null}}`}, 400, `"code":"invalid_input"`},
		"a long code":   {scripted.Step{Status: 400, Body: `{"error":{"message":"no","code":"A b"}}`}, 400, `"code":"invalid_input"`},
		"no completion": {scripted.Step{Status: 200, Body: `<html>`}, 502, "no chat completion"},
		"endless":       {scripted.Step{Status: 200, Body: strings.Repeat(" ", 9<<20)}, 502, "longer than"},
		"elsewhere": {scripted.Step{Status: 307, Header: map[string]string{"Location": "http://127.0.0.1:1/"}}, 503,
			"not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, scripted.New(t, c.step, calls(readFile("c")), c.step), "")
			a := h.Do("POST", "/v1/chat/completions", chat(""))
			if a.Status != c.status || !strings.Contains(a.Text, c.want) || strings.Contains(a.Text, "the-key-itself") ||
				strings.Contains(a.Text, "bad key") || (a.Header.Get("X-Should-Retry") == "") == (c.step.Status == 401) {
				t.Errorf("%d %s", a.Status, a.Text)
			}
			a = h.Do("POST", "/v1/chat/completions", chat(""))
			if a.Status != c.status || a.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("%d %s: %v", a.Status, a.Text, a.Header)
			}
		})
	}
}

func TestTheDoorCanBeClosed(t *testing.T) {
	h := serve(t, scripted.New(t), ", openai: {open: false}")
	if a := h.Do("POST", "/v1/chat/completions", chat("")); a.Status != 404 {
		t.Error(a.Status, a.Text)
	}
	kit.Equal(t, h.Do("GET", "/v1/tools", "").Status, 200)
}

func TestProgressComesBetweenTheWordsOfAStream(t *testing.T) {
	step := scripted.Step{Text: "Wait. ", Thoughts: "hm", Calls: []scripted.Call{{ID: "call_1", Name: "events",
		Args: `{"count":2}`}}}
	for path, c := range map[string]struct{ body, event, thought string }{
		"/v1/chat/completions": {chat(`,"stream":true`), "", `"reasoning_content":"hm"`},
		"/v1/responses": {`{"model":"demo","input":"x","stream":true}`, "response.mcp_call.in_progress",
			`"delta":"hm"`},
		"/v1/messages": {strings.Replace(chat(`,"max_tokens":9,"stream":true`), "demo", "claude", 1), "ping",
			`"thinking":"hm"`},
	} {
		t.Run(path, func(t *testing.T) {
			h := serve(t, scripted.New(t, step, says("Done.")), "")
			var text strings.Builder
			logged := 0
			for _, e := range h.Events(path, c.body) {
				text.Write(e.Data)
				if strings.Contains(string(e.Data), `"kind":"log"`) {
					logged++
					if e.Name != c.event || !strings.Contains(string(e.Data), `"toolpost":{`) || !strings.Contains(string(e.Data),
						`"tool_call_id":"call_1"`) {
						t.Errorf("%s %s", e.Name, e.Data)
					}
				}
			}
			all := text.String()
			if logged != 2 || !strings.Contains(all, c.thought) || strings.Index(all, "Wait.") > strings.Index(all, "event 1") ||
				strings.Index(all, "event 2") > strings.Index(all, "Done.") {
				t.Errorf("%d events in %s", logged, all)
			}
		})
	}
}

// A stream is passed on as it arrives: the model only continues when its first word has reached the client.
func TestAStreamIsPassedOnAsItComes(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions": chat(`,"stream":true`), "/v1/responses": `{"model":"demo","input":"x","stream":true}`,
		"/v1/messages": strings.Replace(chat(`,"max_tokens":9,"stream":true`), "demo", "claude", 1),
	} {
		t.Run(path, func(t *testing.T) {
			on := make(chan struct{})
			h := serve(t, scripted.New(t, scripted.Step{Text: "First second.", Midway: on}), "")
			ctx := kit.Context(t)
			resp := h.Send(ctx, "POST", path, body)
			defer resp.Body.Close()
			all, seen := "", false
			for in := sse.New(resp.Body, 1<<20); ; {
				e, err := in.Next()
				if err != nil {
					break
				}
				if all += string(e.Data); !seen && strings.Contains(all, "First") {
					seen = true
					close(on)
				}
			}
			if !seen || !strings.Contains(all, "second.") {
				t.Error(all)
			}
		})
	}
}

func TestCutStreamEndsWithAnErrorOfTheAPI(t *testing.T) {
	for path, c := range map[string]struct{ body, last string }{
		"/v1/chat/completions": {chat(`,"stream":true`), `{"error":{`},
		"/v1/responses":        {`{"model":"demo","input":"x","stream":true}`, `"status":"failed"`},
		"/v1/messages": {strings.Replace(chat(`,"max_tokens":9,"stream":true`), "demo", "claude", 1),
			`"type":"error"`},
	} {
		t.Run(path, func(t *testing.T) {
			m := scripted.New(t, scripted.Step{Text: "First second.", Cut: true})
			events := serve(t, m, "").Events(path, c.body)
			last := string(events[len(events)-1].Data)
			if !strings.Contains(last, c.last) || !strings.Contains(last, "cut off before its end") || len(m.Asked()) != 1 {
				t.Errorf("%s after %d", last, len(m.Asked()))
			}
		})
	}
}
