package scripted

import (
	"fmt"
	"maps"
	"net/http"
)

// answerResponse answers as OpenAI's Responses API does.
func answerResponse(w http.ResponseWriter, s Step, stream bool) {
	items := responseItems(s)
	end := doc{
		"id": "resp_1", "object": "response", "created_at": 1, "model": "m-1", "status": "completed", "error": nil,
		"incomplete_details": nil, "output": items, "usage": responseUsage(s),
	}
	if s.Finish == "max_output_tokens" {
		end["status"], end["incomplete_details"] = "incomplete", doc{"reason": s.Finish}
	}
	if !stream {
		whole(w, end)
		return
	}
	out := newFeed(w)
	seq := 0
	send := func(kind string, d doc) {
		d["type"], d["sequence_number"] = kind, seq
		seq++
		out.send(kind, d)
	}
	send("response.created", doc{"response": doc{"id": "resp_1", "object": "response", "created_at": 1, "model": "m-1",
		"status": "in_progress", "output": []any{}}})
	for i, item := range items {
		begun := maps.Clone(item)
		for _, member := range []string{"content", "summary"} {
			if begun[member] != nil {
				begun[member] = []any{}
			}
		}
		if begun["arguments"] != nil {
			begun["arguments"] = ""
		}
		send("response.output_item.added", doc{"output_index": i, "item": begun})
		streamItem(s, item, func(kind string, d doc) {
			d["output_index"], d["item_id"] = i, item["id"]
			send("response."+kind, d)
		})
		send("response.output_item.done", doc{"output_index": i, "item": item})
	}
	send("response."+end["status"].(string), doc{"response": end})
}

// streamItem sends the content of an item in pieces.
func streamItem(s Step, item doc, send func(kind string, d doc)) {
	switch item["type"] {
	case "message":
		part := item["content"].([]doc)[0]
		send("content_part.added", doc{"content_index": 0, "part": doc{"type": "output_text", "text": "", "annotations": []any{}}})
		for n, word := range words(s.Text) {
			send("output_text.delta", doc{"content_index": 0, "delta": word})
			s.midway(n)
		}
		send("output_text.done", doc{"content_index": 0, "text": s.Text})
		send("content_part.done", doc{"content_index": 0, "part": part})
	case "reasoning":
		part := item["summary"].([]doc)[0]
		send("reasoning_summary_part.added", doc{"summary_index": 0, "part": doc{"type": "summary_text", "text": ""}})
		send("reasoning_summary_text.delta", doc{"summary_index": 0, "delta": s.Thoughts})
		send("reasoning_summary_text.done", doc{"summary_index": 0, "text": s.Thoughts})
		send("reasoning_summary_part.done", doc{"summary_index": 0, "part": part})
	case "function_call":
		send("function_call_arguments.delta", doc{"delta": item["arguments"]})
		send("function_call_arguments.done", doc{"arguments": item["arguments"]})
	}
}

func responseItems(s Step) []doc {
	items := []doc{}
	if s.Thoughts != "" {
		items = append(items, doc{"id": "rs_1", "type": "reasoning", "summary": []doc{{"type": "summary_text",
			"text": s.Thoughts}}, "encrypted_content": "sealed"})
	}
	if s.Text != "" {
		items = append(items, doc{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
			"content": []doc{{"type": "output_text", "text": s.Text, "annotations": []any{}}}})
	}
	for i, c := range s.Calls {
		items = append(items, doc{"id": fmt.Sprint("fc_", i), "type": "function_call", "status": "completed",
			"call_id": c.ID, "name": c.Name, "arguments": c.Args})
	}
	return items
}

func responseUsage(s Step) any {
	if s.Bare {
		return nil
	}
	return doc{"input_tokens": 100, "input_tokens_details": doc{"cached_tokens": 40}, "output_tokens": 10,
		"output_tokens_details": doc{"reasoning_tokens": 3}, "total_tokens": 110}
}

// responsesComplaint returns why a real server would refuse a request: each call must have a result, and each result a
// call.
func responsesComplaint(r Request) string {
	if _, text := r.Body["input"].(string); text {
		return ""
	}
	list, _ := r.Body["input"].([]any)
	if len(list) == 0 || r.Body["messages"] != nil || r.Body["max_tokens"] != nil || r.Body["response_format"] != nil {
		return "input is required, and what only chat completions have is not known"
	}
	open := map[any]bool{}
	for _, one := range list {
		item, _ := one.(map[string]any)
		switch item["type"] {
		case "function_call", "custom_tool_call":
			open[item["call_id"]] = true
		case "function_call_output", "custom_tool_call_output":
			if !open[item["call_id"]] {
				return fmt.Sprint("no tool call found for ", item["call_id"])
			}
			delete(open, item["call_id"])
		case "mcp_call":
			if item["server_label"] == "toolpost" {
				return "no such server"
			}
		case "message", nil:
			if item["role"] == nil || item["content"] == nil {
				return "a message has no role or no content"
			}
		}
	}
	if len(open) > 0 {
		return "a call has no output"
	}
	return ""
}
