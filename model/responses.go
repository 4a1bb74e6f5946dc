package model

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/sse"
	"toolpost/wire/strictjson"
)

// responses is OpenAI's Responses API.
type responses struct{}

func (responses) path() string { return "/responses" }

func (w responses) encode(m *Model, r *Request, stream bool) ([]byte, error) {
	doc, before, rest, err := r.body(Responses, m, "input")
	if err != nil {
		return nil, err
	}
	if r.Of != Responses {
		ownWords(doc)
	}
	if strictjson.KindOf(before) == "string" {
		before, _ = strictjson.Marshal([]object{{"role": "user", "content": before}}) // JSON that was parsed before
	}
	stored, _ := doc["store"].(json.RawMessage)
	var items []any
	for _, message := range rest {
		list, err := w.items(m, message, string(stored) != "false")
		if err != nil {
			return nil, err
		}
		items = append(items, list...)
	}
	doc["model"], doc["input"], doc["stream"] = m.Model, joined(before, items), stream
	r.tools(doc, Responses, w.tool, w.choice)
	if len(r.Tools) > 0 && r.Serial {
		doc["parallel_tool_calls"] = false
	}
	return strictjson.Marshal(doc)
}

// ownWords translates the settings of chat completions to this API. The server is told to store nothing.
func ownWords(doc object) {
	inner := func(member, name string, value any) {
		if value != nil {
			o, _ := doc[member].(object)
			if o == nil {
				o = object{}
			}
			o[name] = value
			doc[member] = o
		}
	}
	if most := cmp.Or(doc["max_completion_tokens"], doc["max_tokens"]); most != nil {
		doc["max_output_tokens"] = most
	}
	inner("reasoning", "effort", doc["reasoning_effort"])
	inner("text", "verbosity", doc["verbosity"])
	if raw, ok := doc["response_format"].(json.RawMessage); ok {
		var f struct {
			Type   json.RawMessage `json:"type"`
			Schema object          `json:"json_schema"`
		}
		if strictjson.Unmarshal(raw, &f) == nil {
			format := object{"type": f.Type}
			maps.Copy(format, f.Schema)
			inner("text", "format", format)
		}
	}
	for _, name := range []string{"max_completion_tokens", "max_tokens", "reasoning_effort", "verbosity", "response_format",
		"seed"} {
		delete(doc, name)
	}
	doc["store"] = json.RawMessage("false")
}

func (responses) tool(t Tool) any {
	return object{"type": "function", "name": t.Name, "description": t.Description, "parameters": t.Input, "strict": t.Strict}
}

func (responses) choice(c Choice) any {
	if c.Mode == One {
		return object{"type": "function", "name": c.Tool}
	}
	return completions{}.choice(c)
}

// items encodes a message. If the server stores nothing, a thought can only be sent back if it is in the item.
func (w responses) items(m *Model, message Message, stored bool) (items []any, err error) {
	var content []any
	for _, p := range message.Parts {
		switch {
		case p.Raw != nil && p.Of == Responses:
			if p.Kind != Thinking || stored || strings.Contains(string(p.Raw), `"encrypted_content":"`) {
				items = append(items, p.Raw)
			}
		case p.Kind == Calls:
			items = append(items, object{"type": "function_call", "call_id": p.Call.ID, "name": p.Call.Name,
				"arguments": p.Call.Args})
		case p.Kind == Results:
			output := any(p.Result.Marked())
			if slices.ContainsFunc(p.Result.Parts, func(p Part) bool { return p.Kind != Text }) {
				if output, err = w.parts(m, User, p.Result.Parts); err != nil {
					return nil, err
				}
			}
			items = append(items, object{"type": "function_call_output", "call_id": p.Result.ID, "output": output})
		default:
			list, err := w.parts(m, message.Role, []Part{p})
			if err != nil {
				return nil, err
			}
			content = append(content, list...)
		}
	}
	if len(content) > 0 {
		said := object{"type": "message", "role": message.Role, "content": content}
		items = append([]any{said}, items...)
	}
	return items, nil
}

// parts encodes texts and images.
func (responses) parts(m *Model, who Role, parts []Part) (list []any, err error) {
	for _, p := range parts {
		switch {
		case p.Kind == Text && who == Assistant:
			list = append(list, object{"type": "output_text", "text": p.Text})
		case p.Kind == Text:
			list = append(list, object{"type": "input_text", "text": p.Text})
		case p.Kind == Refusal:
			list = append(list, object{"type": "refusal", "refusal": p.Text})
		case p.Kind == Image:
			list = append(list, object{"type": "input_image", "image_url": p.URL})
		case who != Assistant: // an assistant's part that only another API knows is left out
			return nil, notCarried(m, p)
		}
	}
	return list, nil
}

// Flat returns the name of a tool in a namespace, for servers without namespaces.
func Flat(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return tool.Slug(strings.TrimSuffix(namespace, "__") + "__" + name)
}

// A responseItem is one item of the model's output.
type responseItem struct {
	Type    string `json:"type"`
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	Space   string `json:"namespace"`
	Args    words  `json:"arguments"`
	Content []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content"`
	Summary []struct {
		Text string `json:"text"`
	} `json:"summary"`
}

// part decodes an item.
func (responses) part(raw json.RawMessage) (Part, error) {
	var i responseItem
	if err := strictjson.Unmarshal(raw, &i); err != nil {
		return Part{}, tool.Errorf(tool.CodeProtocol, "has an item that cannot be read: %w", err)
	}
	p := Part{Kind: Other, Raw: raw, Of: Responses}
	for _, c := range i.Content {
		p.Text += c.Text + c.Refusal
	}
	switch i.Type {
	case "message":
		if p.Kind = Text; len(i.Content) > 0 && i.Content[0].Type == "refusal" {
			p.Kind = Refusal
		}
	case "reasoning":
		p.Kind = Thinking
		for n, s := range i.Summary {
			if n > 0 {
				p.Text += "\n\n"
			}
			p.Text += s.Text
		}
	case "function_call":
		p.Kind, p.Call = Calls, Call{ID: cmp.Or(i.CallID, "call_"+tool.NewID()), Name: Flat(i.Space, i.Name), Args: string(i.Args)}
	}
	return p, nil
}

// A response is a server's final answer.
type response struct {
	Status     string            `json:"status"`
	Output     []json.RawMessage `json:"output"`
	Error      json.RawMessage   `json:"error"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage struct {
		In        int64 `json:"input_tokens"`
		Out       int64 `json:"output_tokens"`
		InDetails struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OutDetails struct {
			Thoughts int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	} `json:"usage"`
}

func (w responses) decode(doc []byte) (*Answer, error) {
	r := new(response)
	if err := strictjson.Unmarshal(doc, r); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "is no response: %w", err)
	}
	return w.answer(r, r.Output)
}

func (w responses) answer(r *response, items []json.RawMessage) (*Answer, error) {
	switch {
	case r.Status == "failed" || strictjson.KindOf(r.Error) == "object":
		return nil, brokenOff(r.Error)
	case r.Status != "completed" && r.Status != "incomplete":
		return nil, tool.Errorf(tool.CodeProtocol, "is no response: its status is %.60q", r.Status)
	}
	u := r.Usage
	a := &Answer{Finish: Stopped,
		Usage: Usage{In: u.In, Cached: u.InDetails.Cached, Out: u.Out, Thoughts: u.OutDetails.Thoughts}}
	for _, raw := range items {
		p, err := w.part(raw)
		if err != nil {
			return nil, err
		}
		a.Parts = append(a.Parts, p)
	}
	switch {
	case len(a.Calls()) > maxCalls:
		return nil, tool.Errorf(tool.CodeProtocol, "calls more than %d tools at once", maxCalls)
	case r.Incomplete.Reason == "content_filter":
		a.Finish = Filtered
	case r.Status == "incomplete":
		a.Finish = Length
	case len(a.Calls()) > 0:
		a.Finish = Called
	case a.Refusal() != "":
		a.Finish = Refused
	}
	return a, nil
}

func (responses) reader(to *hearing) reader { return &responseReader{to: to} }

// A responseReader collects the items.
type responseReader struct {
	to    *hearing
	items []json.RawMessage
	end   *response
	rest  map[string]json.RawMessage // its members
}

func (in *responseReader) event(e sse.Event) (last bool, err error) {
	var m struct {
		Type     string          `json:"type"`
		Delta    json.RawMessage `json:"delta"`
		Item     json.RawMessage `json:"item"`
		Response json.RawMessage `json:"response"`
		Message  string          `json:"message"`
	}
	if err := strictjson.Unmarshal(e.Data, &m); err != nil {
		return false, tool.Errorf(tool.CodeProtocol, "is no stream of a response: %w", err)
	}
	switch m.Type {
	case "response.output_text.delta":
		return false, in.to.hear(Part{Kind: Text, Text: strictjson.Text(m.Delta)})
	case "response.refusal.delta":
		return false, in.to.hear(Part{Kind: Refusal, Text: strictjson.Text(m.Delta)})
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return false, in.to.hear(Part{Kind: Thinking, Text: strictjson.Text(m.Delta), Of: Responses})
	case "response.output_item.done":
		in.items = append(in.items, m.Item)
		p, err := responses{}.part(m.Item)
		if err == nil && p.Kind == Other {
			return false, in.to.hear(p)
		}
		return false, cmp.Or(err, in.to.room(len(m.Item)))
	case "response.completed", "response.incomplete", "response.failed":
		in.end = new(response)
		return true, cmp.Or(strictjson.Unmarshal(m.Response, in.end), strictjson.Unmarshal(m.Response, &in.rest))
	case "error":
		return false, brokenOff(e.Data)
	}
	return false, nil
}

func (in *responseReader) answer() (*Answer, error) {
	if in.end == nil {
		return nil, errCut
	}
	if len(in.items) == 0 {
		in.items = in.end.Output
	}
	a, err := responses{}.answer(in.end, in.items)
	if err == nil {
		a.Rest = in.rest
	}
	return a, err
}
