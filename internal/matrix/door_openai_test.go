package matrix

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"toolpost/tool"
)

func openaiDoor() *door {
	const (
		text  = "the content of a tool message is text: structured output arrives as JSON text"
		whole = "the answer comes when all calls have ended; the chat routes stream what happens meanwhile"
		files = "the message names the file, with its address at `/v1/assets`"
		words = "the message says the choices, and `results` has the event"
	)
	return &door{
		name: "OpenAI, tool_calls", about: "`POST /v1/openai/tool_calls`, answered with messages of the role tool",
		call: callOpenAI, word: code, sessions: true,
		carries: carries{
			output: {asText, text}, large: {asText, text}, progress: {never, whole}, logs: {never, whole}, state: {never, whole},
			asset: {asLine, files}, choice: {asWords, words},
		},
	}
}

func callOpenAI(t *testing.T, h *house, r *runner, req request) *outcome {
	out := &outcome{}
	body := encode(t, map[string]any{"tool_calls": []any{map[string]any{"id": "call_1", "type": "function", "function": map[string]any{
		"name": r.where(req.tool) + "." + req.tool, "arguments": req.args,
	}}}})
	post, err := http.NewRequestWithContext(req.ctx, http.MethodPost, h.doors.http+"/v1/openai/tool_calls", strings.NewReader(string(body)))
	if err != nil {
		t.Error(err)
		return out
	}
	post.Header.Set("Authorization", "Bearer "+token)
	post.Header.Set("Content-Type", "application/json")
	post.Header.Set("Toolpost-Session", strings.ReplaceAll(req.session, " ", "_"))
	if req.resume != "" {
		post.Header.Set("Toolpost-Resume", req.resume)
		post.Header.Set("Toolpost-Answers", req.answers)
	}
	answer, err := h.web.Do(post)
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(answer.Body)
		answer.Body.Close()
	}
	if err != nil {
		if !req.gone() {
			t.Error(err)
		}
		return out
	}
	doc := read[struct {
		Messages []struct {
			Role    string `json:"role"`
			ID      string `json:"tool_call_id"`
			Content string `json:"content"`
		} `json:"messages"`
		Results []struct {
			Outcome tool.Outcome      `json:"outcome"`
			Code    string            `json:"code"`
			Reason  string            `json:"reason"`
			Ask     *tool.Ask         `json:"ask"`
			Events  []json.RawMessage `json:"events"`
		} `json:"results"`
	}](t, raw)
	if len(doc.Messages) != 1 || len(doc.Results) != 1 || doc.Messages[0].Role != "tool" || doc.Messages[0].ID != "call_1" {
		if !req.gone() {
			t.Errorf("not the message that was asked for: %.300s", raw)
		}
		return out
	}
	said, result := doc.Messages[0].Content, doc.Results[0]
	out.ok, out.ask, out.class, out.reason = result.Outcome == tool.OutcomeOK, result.Ask, result.Code, result.Reason
	for _, e := range result.Events {
		out.addNative(t, e)
	}
	if out.ok {
		out.output = json.RawMessage(encode(t, said))
		out.lines = strings.Split(said, "\n")
	}
	if n := strings.Count(said, which); out.ask != nil && n != 1 {
		t.Errorf("the model is told the question %d times: %s", n, said)
	}
	out.message = strings.TrimPrefix(said, "Error: ")
	return out
}
