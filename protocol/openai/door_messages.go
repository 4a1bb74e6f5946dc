package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"toolpost/model"
	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// messages is Anthropic's Messages API. Our calls are blocks of the types mcp_tool_use and mcp_tool_result, which it
// has for tools that run on the server. If the caller sends the blocks back, the model remembers the calls.
type messages struct{}

func (messages) api() model.API { return model.Anthropic }
func (messages) list() string   { return "messages" }

// read implements wire.
func (messages) read(body []byte) (*request, error) {
	var doc struct {
		Model    string `json:"model"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		System json.RawMessage `json:"system"`
		Tools  json.RawMessage `json:"tools"`
		Choice json.RawMessage `json:"tool_choice"`
		Stream bool            `json:"stream"`
		Thread json.RawMessage `json:"thread"`

		Servers json.RawMessage `json:"mcp_servers"`
	}
	if err := strictjson.Unmarshal(body, &doc); err != nil {
		return nil, unreadable("the request", err)
	}
	if len(doc.Messages) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "messages is empty; send the conversation so far")
	}
	if strictjson.KindOf(doc.Thread) == "object" {
		return nil, threadUnsupported()
	}
	var conversation history
	system, err := readBlocks(doc.System)
	if err != nil {
		return nil, err
	}
	conversation.add(model.System, system...)
	r := &request{model: doc.Model, stream: doc.Stream}
	var servers []served
	_ = strictjson.Unmarshal(doc.Servers, &servers) // if they cannot be read, the model's server says so
	own := slices.ContainsFunc(servers, func(s served) bool { return s.Name == label })
	for _, m := range doc.Messages {
		var blocks []served
		_ = strictjson.Unmarshal(m.Content, &blocks) // a text has none
		r.ours = r.ours || !own && slices.ContainsFunc(blocks, func(b served) bool { return b.Server == label })
		parts, err := readBlocks(m.Content)
		if err == nil && !slices.Contains([]string{"user", "assistant", "system"}, m.Role) {
			err = tool.Errorf(tool.CodeInvalidInput, "messages: a message has the role %.60q, which only a model with api: "+
				"anthropic takes; others take user, assistant and system", m.Role)
		}
		if err != nil {
			r.setUnsupported(err)
		}
		conversation.blocks(model.Role(m.Role), parts)
	}
	r.messages = conversation.messages()
	if r.tools, err = readTools(model.Anthropic, doc.Tools); err != nil {
		return nil, err
	}
	if len(doc.Choice) > 0 {
		r.choice, r.serial, err = readMessageChoice(doc.Choice)
		r.setChoice(doc.Choice, err)
	}
	r.settings, err = settings(model.Anthropic, model.Anthropic, body, nil)
	return r, err
}

// served is a server of the caller's, which may have our name, or a block about a call to a server.
type served struct {
	Name   string `json:"name"`
	Server string `json:"server_name"`
}

// threadUnsupported refuses a conversation that only its server would have: we keep none. The details tell the official
// clients to send all of it.
func threadUnsupported() *tool.Error {
	e := model.Misses("thread", "thread is only for a model with api: anthropic, and without tools of ours; send the whole "+
		"conversation without it")
	e.Details = json.RawMessage(`{"param":"thread","error_code":"thread_unsupported_request","unsupported":["thread"]}`)
	return e
}

func readMessageChoice(raw json.RawMessage) (_ model.Choice, serial bool, err error) {
	var c struct {
		Type   string `json:"type"`
		Name   string `json:"name"`
		Serial bool   `json:"disable_parallel_tool_use"`
	}
	if err := strictjson.Unmarshal(raw, &c); err != nil {
		return model.Choice{}, false, model.Misses("tool_choice", "tool_choice cannot be read: %w", err)
	}
	mode, known := map[string]model.Mode{
		"": model.Auto, "auto": model.Auto, "any": model.Any, "tool": model.One, "none": model.None,
	}[c.Type]
	if !known || (mode == model.One) != (c.Name != "") {
		return model.Choice{}, false, model.Misses("tool_choice", "tool_choice has the type %.60q and the name %.60q; "+
			"expected auto, any or none, or tool with a name", c.Type, c.Name)
	}
	return model.Choice{Mode: mode, Tool: c.Name}, c.Serial, nil
}

// blocks adds a message. Results in it come first, since the model waits for them.
func (h *history) blocks(who model.Role, parts []model.Part) {
	rest := make([]model.Part, 0, len(parts))
	for _, p := range parts {
		switch {
		case p.Kind == model.Results:
			h.add(model.ToolRole, p)
		case who == model.Assistant:
			h.add(who, p)
		default:
			rest = append(rest, p)
		}
	}
	if len(rest) > 0 {
		h.add(who, rest...)
	}
}

// readBlocks reads a text, or a list of blocks.
func readBlocks(raw json.RawMessage) ([]model.Part, error) { return readParts(raw, readBlock) }

func readBlock(raw json.RawMessage) (model.Part, error) {
	var b struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		Seal     string          `json:"signature"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
		Of       string          `json:"tool_use_id"`
		Content  json.RawMessage `json:"content"`
		Failed   bool            `json:"is_error"`
	}
	if err := strictjson.Unmarshal(raw, &b); err != nil {
		return model.Part{}, unreadable("a block of a message", err)
	}
	switch b.Type {
	case "text":
		return model.Part{Kind: model.Text, Text: b.Text, Raw: raw, Of: model.Anthropic}, nil
	case "thinking":
		return model.Part{Kind: model.Thinking, Text: b.Thinking, Seal: b.Seal, Of: model.Anthropic}, nil
	case "tool_use", "mcp_tool_use":
		return model.Part{Kind: model.Calls, Call: model.Call{ID: b.ID, Name: b.Name, Args: string(b.Input)}}, nil
	case "tool_result", "mcp_tool_result":
		parts, err := readBlocks(b.Content)
		return model.Part{Kind: model.Results, Result: model.Result{ID: b.Of, Parts: parts, Failed: b.Failed}}, err
	case "image":
		return readImage(raw)
	}
	return model.Part{Kind: model.Other, Raw: raw, Of: model.Anthropic}, nil
}

func readImage(raw json.RawMessage) (model.Part, error) {
	var b struct {
		Source struct {
			Type string `json:"type"`
			Kind string `json:"media_type"`
			Data string `json:"data"`
			URL  string `json:"url"`
		} `json:"source"`
	}
	if err := strictjson.Unmarshal(raw, &b); err != nil {
		return model.Part{}, unreadable("an image", err)
	}
	p := model.Part{Kind: model.Image, Raw: raw, Of: model.Anthropic}
	switch b.Source.Type {
	case "base64":
		p.URL = "data:" + b.Source.Kind + ";base64," + b.Source.Data
	case "url":
		p.URL = b.Source.URL
	default: // a file on that server
		p.Kind = model.Other
	}
	return p, nil
}

// readMessageTool reads an entry of a list of tools.
func readMessageTool(api model.API, raw json.RawMessage) ([]requestedTool, error) {
	var t struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Input       json.RawMessage `json:"input_schema"`
	}
	if err := strictjson.Unmarshal(raw, &t); err != nil {
		return nil, unreadable("tools", err)
	}
	if t.Name == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "one of the tools has no name")
	}
	own := model.Tool{Name: t.Name, Description: t.Description, Raw: raw, Of: api}
	if t.Type == "" || t.Type == "custom" {
		own.Input = schema.Object(t.Input)
	}
	bare := own.Input != nil && isBare(t.Description, t.Input)
	hosted := slices.ContainsFunc([]string{"web_", "code_execution", "tool_search", "mcp_", "advisor"},
		func(kind string) bool { return strings.HasPrefix(t.Type, kind) })
	return []requestedTool{{name: t.Name, own: own, hosted: hosted, bare: bare}}, nil
}

// document implements wire.
func (messages) document(t *transcript) []byte {
	blocks := []any{}
	for _, turn := range t.turns {
		for _, p := range turn.parts {
			if one := p.block(); one != nil {
				blocks = append(blocks, one)
			}
		}
		for _, r := range turn.done {
			blocks = append(blocks, mcpResult(r))
		}
	}
	doc := t.message()
	doc["content"], doc["stop_reason"], doc["usage"] = blocks, stopReason(t), messageUsage(t.usage)
	body, _ := strictjson.Marshal(t.fill(doc)) // texts and numbers of our own, and JSON that was read
	return body
}

// message returns the document around the blocks, in its initial state.
func (t *transcript) message() object {
	return object{
		"id": "msg_" + t.id, "type": "message", "role": "assistant", "model": t.model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": messageUsage(model.Usage{}), "toolpost": t.about(),
	}
}

// block encodes a part for this wire, or returns nil if the wire has no form for it.
func (p part) block() any {
	switch {
	case p.Raw != nil && p.Of == model.Anthropic && !p.ours:
		return p.Raw
	case p.Kind == model.Calls:
		return callBlock(p.Call, p.ours)
	case p.Kind == model.Thinking:
		return object{"type": "thinking", "thinking": p.Text, "signature": p.Seal}
	case (p.Kind == model.Text || p.Kind == model.Refusal) && p.Text != "":
		return object{"type": "text", "text": p.Text}
	}
	return nil
}

func callBlock(c model.Call, ours bool) object {
	doc := object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage("{}")}
	if strictjson.CheckObject([]byte(c.Args)) == nil {
		doc["input"] = json.RawMessage(c.Args)
	}
	if ours {
		doc["type"], doc["server_name"] = "mcp_tool_use", label
	}
	return doc
}

func mcpResult(r callOutcome) object {
	return object{
		"type": "mcp_tool_result", "tool_use_id": r.Call.ID, "is_error": r.result.Failed,
		"content": []object{{"type": "text", "text": r.result.Text()}},
	}
}

func stopReason(t *transcript) string {
	if t.stopped != nil && t.stopped.pauses() {
		return "pause_turn"
	}
	switch t.finish {
	case model.Called:
		return "tool_use"
	case model.Length:
		return "max_tokens"
	case model.Filtered, model.Refused:
		return "refusal"
	case model.Sequence:
		return "stop_sequence"
	}
	return "end_turn"
}

func messageUsage(u model.Usage) object {
	return object{
		"input_tokens": u.In - u.Cached - u.Written, "output_tokens": u.Out, "cache_read_input_tokens": u.Cached,
		"cache_creation_input_tokens": u.Written,
	}
}
