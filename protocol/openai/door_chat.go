package openai

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"toolpost/model"
	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// chat is OpenAI's chat completions.
type chat struct{}

func unreadable(what string, err error) error {
	return tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: %w", what, err)
}

func (chat) api() model.API { return model.OpenAI }
func (chat) list() string   { return "messages" }

// read implements wire.
func (chat) read(body []byte) (*request, error) {
	var doc struct {
		Model    string            `json:"model"`
		Messages []json.RawMessage `json:"messages"`
		Tools    json.RawMessage   `json:"tools"`
		Choice   json.RawMessage   `json:"tool_choice"`
		Parallel *bool             `json:"parallel_tool_calls"`
		Stream   bool              `json:"stream"`
		Options  struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := strictjson.Unmarshal(body, &doc); err != nil {
		return nil, unreadable("the request", err)
	}
	r := &request{
		model: doc.Model, stream: doc.Stream, usage: doc.Options.Usage, serial: doc.Parallel != nil && !*doc.Parallel,
	}
	if len(doc.Messages) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "messages is empty; send the conversation so far")
	}
	for _, raw := range doc.Messages {
		said, err := readChatMessage(raw)
		if err != nil {
			r.setUnsupported(err)
		}
		r.messages, r.ours = append(r.messages, said...), r.ours || len(said) > 1
	}
	if err := r.readTools(model.OpenAI, doc.Tools, doc.Choice); err != nil {
		return nil, err
	}
	var err error
	r.settings, err = settings(model.OpenAI, model.OpenAI, body, chatRefused())
	return r, err
}

// readTools reads the tools of OpenAI's two kinds of requests.
func (r *request) readTools(api model.API, tools, choice json.RawMessage) (err error) {
	if r.tools, err = readTools(api, tools); err != nil {
		return err
	}
	r.choice, r.allowed, err = readChoice(choice)
	r.setChoice(choice, err)
	return nil
}

// setChoice keeps the tool_choice as it came, and why it was not understood, or nil.
func (r *request) setChoice(raw json.RawMessage, misread error) {
	if misread != nil {
		r.setUnsupported(misread)
	}
	if r.misread = misread; len(raw) > 0 && string(raw) != "null" {
		r.choice.Raw = raw
	}
}

// chatRefused lists settings that a conversation with tools does not support, with the values that turn them off.
func chatRefused() map[string][]string {
	return map[string][]string{
		"n": {"1"}, "logprobs": {"false"}, "top_logprobs": {"0"}, "audio": {}, "functions": {}, "function_call": {},
		"modalities": {`["text"]`},
	}
}

// settings returns the remaining settings of a request, in the terms of api. refused lists those that only servers of
// the request's own API support. A setting of null counts as missing.
func settings(of, api model.API, body []byte, refused map[string][]string) (model.Settings, error) {
	s := model.Settings{API: api, Values: map[string]json.RawMessage{}}
	err := strictjson.Walk(body, func(name, value []byte) error {
		harmless, listed := refused[string(name)]
		switch {
		case slices.Contains(model.Reserved(), string(name)) || string(value) == "null":
		case listed && !slices.Contains(harmless, string(value)):
			return model.Misses(string(name), "%s is only for a model with api: %s, and without tools of ours; leave "+
				"it out", name, of)
		case !listed:
			s.Values[string(name)] = slices.Clone(value)
		}
		return nil
	})
	return s, err
}

// A chatMessage is a message of any role.
type chatMessage struct {
	Role      string          `json:"role"`
	Name      string          `json:"name"`
	Content   json.RawMessage `json:"content"`
	Refusal   string          `json:"refusal"`
	Thoughts  string          `json:"reasoning_content"`
	ToolCalls []toolCall      `json:"tool_calls"`
	CallID    string          `json:"tool_call_id"`
	Toolpost  struct {
		Messages []json.RawMessage `json:"messages"`
	} `json:"toolpost"`
}

// readChatMessage reads a message. One of ours that comes back may carry hidden messages.
func readChatMessage(raw json.RawMessage) (said []model.Message, err error) {
	var m chatMessage
	if err := strictjson.Unmarshal(raw, &m); err != nil {
		return nil, unreadable("a message", err)
	}
	for _, hidden := range m.Toolpost.Messages {
		var inner chatMessage
		if err := strictjson.Unmarshal(hidden, &inner); err != nil {
			return nil, unreadable("a message in toolpost", err)
		}
		one, err := inner.message()
		if err != nil {
			return nil, err
		}
		said = append(said, one)
	}
	one, err := m.message()
	return append(said, one), err
}

func (m chatMessage) message() (model.Message, error) {
	parts, err := readContent(m.Content)
	if err != nil {
		return model.Message{}, err
	}
	said := model.Message{Name: m.Name, Parts: parts}
	switch m.Role {
	case "system", "developer":
		said.Role = model.System
	case "user":
		said.Role = model.User
	case "assistant":
		said.Role = model.Assistant
		if m.Thoughts != "" {
			thought := model.Part{Kind: model.Thinking, Text: m.Thoughts, Of: model.OpenAI}
			said.Parts = slices.Insert(said.Parts, 0, thought)
		}
		if m.Refusal != "" {
			said.Parts = append(said.Parts, model.Part{Kind: model.Refusal, Text: m.Refusal})
		}
		for _, c := range m.ToolCalls {
			call := model.Call{ID: c.ID, Name: c.Function.Name, Args: c.Function.Args}
			said.Parts = append(said.Parts, model.Part{Kind: model.Calls, Call: call})
		}
	case "tool":
		said.Role = model.ToolRole
		said.Parts = []model.Part{{Kind: model.Results, Result: model.Result{ID: m.CallID, Parts: parts}}}
	default:
		return said, tool.Errorf(tool.CodeInvalidInput, "messages: a message has the role %.60q, which only a model with api: "+
			"openai takes; others take system, developer, user, assistant and tool", m.Role)
	}
	return said, nil
}

// readContent reads a text, or a list of parts; both of OpenAI's requests have them, under different names.
func readContent(raw json.RawMessage) ([]model.Part, error) { return readParts(raw, readPart) }

// readParts reads the content of a message: a text, or a list of parts, each in the form of its API.
func readParts(raw json.RawMessage, read func(json.RawMessage) (model.Part, error)) ([]model.Part, error) {
	switch strictjson.KindOf(raw) {
	case "null", "nothing":
		return nil, nil
	case "string":
		return []model.Part{{Kind: model.Text, Text: strictjson.Text(raw)}}, nil
	}
	var list []json.RawMessage
	if err := strictjson.Unmarshal(raw, &list); err != nil {
		return nil, unreadable("the content of a message", err)
	}
	parts := make([]model.Part, 0, len(list))
	for _, one := range list {
		p, err := read(one)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func readPart(raw json.RawMessage) (model.Part, error) {
	var p struct {
		Type    string          `json:"type"`
		Text    string          `json:"text"`
		Refusal string          `json:"refusal"`
		Image   json.RawMessage `json:"image_url"`
	}
	if err := strictjson.Unmarshal(raw, &p); err != nil {
		return model.Part{}, unreadable("a part of a message", err)
	}
	switch p.Type {
	case "text", "input_text", "output_text":
		return model.Part{Kind: model.Text, Text: p.Text}, nil
	case "refusal":
		return model.Part{Kind: model.Refusal, Text: p.Refusal}, nil
	case "image_url", "input_image":
		url := struct {
			URL string `json:"url"`
		}{}
		if strictjson.KindOf(p.Image) == "string" {
			url.URL = strictjson.Text(p.Image)
		} else if err := strictjson.Unmarshal(p.Image, &url); err != nil {
			return model.Part{}, unreadable("an image", err)
		}
		part := model.Part{Kind: model.Image, URL: url.URL}
		if p.Type == "image_url" { // with its detail
			part.Raw, part.Of = raw, model.OpenAI
		}
		return part, nil
	}
	return model.Part{Kind: model.Other, Raw: raw, Of: model.OpenAI}, nil
}

// A definition is a function as a request defines it: in a member of its own, or flat, as in responses and objects.
type definition struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Strict      *bool           `json:"strict"`
	Function    *definition     `json:"function"`
	Custom      *definition     `json:"custom"`
	Tools       []definition    `json:"tools"`     // of a namespace
	Execution   string          `json:"execution"` // of a search: which side searches
	Mode        string          `json:"mode"`      // of a tool_choice, as is allowed_tools
	Allowed     *definition     `json:"allowed_tools"`
}

func (d definition) requestedTool() requestedTool {
	input := d.Parameters
	if len(input) == 0 {
		input = d.InputSchema
	}
	return requestedTool{name: d.Name, bare: isBare(d.Description, input), own: model.Tool{
		Name: d.Name, Description: d.Description, Input: schema.Object(input), Strict: d.Strict != nil && *d.Strict,
	}}
}

// readTools reads the tools of a request: a list, or an object with their names, which some servers accept.
func readTools(api model.API, raw json.RawMessage) (requested []requestedTool, err error) {
	switch strictjson.KindOf(raw) {
	case "null", "nothing":
		return nil, nil
	case "object":
		return readNamedTools(raw)
	}
	var list []json.RawMessage
	if err := strictjson.Unmarshal(raw, &list); err != nil {
		return nil, unreadable("tools", err)
	}
	read := readDefinition
	if api == model.Anthropic {
		read = readMessageTool
	}
	for _, one := range list {
		more, err := read(api, one)
		if err != nil {
			return nil, err
		}
		requested = append(requested, more...)
	}
	return requested, nil
}

// readDefinition reads an entry of a list of tools: a function, a search, a tool for text, all of a namespace, or one
// that the server runs.
func readDefinition(api model.API, raw json.RawMessage) (list []requestedTool, err error) {
	var d definition
	if err := strictjson.Unmarshal(raw, &d); err != nil {
		return nil, unreadable("tools", err)
	}
	switch {
	case d.Type == "tool_search" && d.Execution == "client":
		d.Name = d.Type
		list = []requestedTool{d.requestedTool()}
		list[0].origin = &toolOrigin{name: d.Name, search: true}
	case d.Type == "function", d.Type == "":
		if d.Function != nil {
			d = *d.Function
		}
		list = []requestedTool{d.requestedTool()}
	case d.Type == "custom":
		if d.Custom != nil {
			d = *d.Custom
		}
		d.Parameters = json.RawMessage(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],` +
			`"additionalProperties":false}`)
		list = []requestedTool{d.requestedTool()}
		list[0].origin = &toolOrigin{name: d.Name, custom: true}
	case d.Type == "namespace":
		for _, inner := range d.Tools {
			one := inner.requestedTool()
			one.origin = &toolOrigin{namespace: d.Name, name: inner.Name}
			one.name = model.Flat(d.Name, inner.Name)
			one.own.Name, one.own.Raw, one.own.Of = one.name, raw, api // the server gets the namespace once
			list = append(list, one)
		}
		return list, nil
	default:
		return []requestedTool{{name: d.Type, hosted: true, own: model.Tool{Name: d.Type, Raw: raw, Of: api}}}, nil
	}
	if d.Name == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "one of the tools has no name")
	}
	list[0].own.Raw, list[0].own.Of = raw, api
	return list, nil
}

func readNamedTools(raw json.RawMessage) ([]requestedTool, error) {
	var named map[string]*definition
	if err := strictjson.Unmarshal(raw, &named); err != nil {
		return nil, unreadable("tools", err)
	}
	var requested []requestedTool
	for _, name := range slices.Sorted(maps.Keys(named)) {
		d := definition{}
		if named[name] != nil {
			d = *named[name]
		}
		if d.Function != nil {
			d = *d.Function
		}
		if d.Name = name; name == "" {
			return nil, tool.Errorf(tool.CodeInvalidInput, "one of the tools has no name")
		}
		requested = append(requested, d.requestedTool())
	}
	return requested, nil
}

// function returns the name of a function that a tool_choice has, or "" if it has something else.
func (d definition) function() string {
	if d.Function != nil {
		d.Name = d.Function.Name
	}
	if d.Type != "function" {
		return ""
	}
	return d.Name
}

// readChoice reads the tool_choice of OpenAI's requests. If it lists allowed tools, no others may be used.
func readChoice(raw json.RawMessage) (_ model.Choice, allowed []string, err error) {
	modes := map[string]model.Mode{"auto": model.Auto, "none": model.None, "required": model.Any}
	var d definition
	switch strictjson.KindOf(raw) {
	case "null", "nothing":
		return model.Choice{}, nil, nil
	case "string":
		if mode, known := modes[strictjson.Text(raw)]; known {
			return model.Choice{Mode: mode}, nil, nil
		}
	case "object":
		err = strictjson.Unmarshal(raw, &d)
	}
	if name := d.function(); err == nil && name != "" {
		return model.Choice{Mode: model.One, Tool: name}, nil, nil
	}
	if err == nil && d.Type == "allowed_tools" {
		d = *cmp.Or(d.Allowed, &d)
		allowed = []string{}
		for _, one := range d.Tools {
			allowed = append(allowed, one.function())
		}
		if mode, known := modes[d.Mode]; known && !slices.Contains(allowed, "") {
			return model.Choice{Mode: mode}, allowed, nil
		}
	}
	return model.Choice{}, nil, model.Misses("tool_choice", "tool_choice is not understood: %.100s; expected auto, none, "+
		"required, a function, or allowed_tools with functions", raw)
}

// document implements wire.
func (chat) document(t *transcript) []byte {
	message := object{"role": "assistant", "content": nil, "refusal": nil}
	for _, turn := range t.turns {
		for _, p := range turn.parts {
			if p.Kind == model.Extra && p.Of == model.OpenAI {
				_ = strictjson.Unmarshal(p.Raw, &message) // JSON that was read
			}
		}
	}
	if text := t.words(model.Text, paragraph); text != "" {
		message["content"] = text
	}
	if text := t.words(model.Refusal, ""); text != "" {
		message["refusal"] = text
	}
	if text := t.words(model.Thinking, ""); text != "" {
		message["reasoning_content"] = text
	}
	if calls := t.callerCalls(); len(calls) > 0 {
		message["tool_calls"] = calls
	}
	if about := t.extension(); about != nil {
		message["toolpost"] = about
	}
	doc := t.completion("chat.completion")
	doc["choices"] = []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": chatFinish(t)}}
	doc["usage"] = chatUsage(t.usage)
	body, _ := strictjson.Marshal(t.fill(doc)) // texts and numbers of our own, and JSON that was read
	return body
}

// completion returns the members that every document of this wire has.
func (t *transcript) completion(kind string) object {
	return t.fill(object{"id": "chatcmpl-" + t.id, "object": kind, "created": t.created.Unix(), "model": t.model})
}

// paragraph separates the texts of two answers, if the wire has room for only one.
const paragraph = "\n\n"

// words joins the texts of one kind in the model's answers.
func (t *transcript) words(kind model.Kind, between string) string {
	var all []string
	for _, turn := range t.turns {
		var b strings.Builder
		for _, p := range turn.parts {
			if p.Kind == kind {
				b.WriteString(p.Text)
			}
		}
		if b.Len() > 0 {
			all = append(all, b.String())
		}
	}
	return strings.Join(all, between)
}

// callerCalls returns the calls that are left to the caller.
func (t *transcript) callerCalls() (calls []object) {
	for _, turn := range t.turns {
		for _, p := range turn.parts {
			if p.Kind == model.Calls && !p.ours {
				calls = append(calls, chatCall(p.Call))
			}
		}
	}
	return calls
}

func chatCall(c model.Call) object {
	return object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": c.Args}}
}

// extension returns what the wire has no member for: the run, the limit that ended it, and the calls that were made, as
// messages. If the caller sends the message back with it, the model remembers the calls.
func (t *transcript) extension() object {
	hidden := []object{}
	for _, turn := range t.turns {
		if len(turn.done) == 0 {
			continue
		}
		calls, results := []object{}, []object{}
		for _, r := range turn.done {
			calls, results = append(calls, chatCall(r.Call)), append(results, toolMessage(r.result))
		}
		hidden = append(append(hidden, object{"role": "assistant", "content": nil, "tool_calls": calls}), results...)
	}
	if len(hidden) == 0 && t.stopped == nil {
		return nil
	}
	doc := t.about()
	doc["messages"] = hidden
	return doc
}

// about names the run, and the limit that ended it, if any.
func (t *transcript) about() object {
	doc := object{"run": t.run}
	if t.stopped != nil {
		doc["stopped"] = t.stopped.limit
	}
	return doc
}

func chatFinish(t *transcript) string {
	switch t.finish {
	case model.Called:
		return "tool_calls"
	case model.Length:
		return "length"
	case model.Filtered:
		return "content_filter"
	}
	return "stop"
}

func chatUsage(u model.Usage) object {
	return object{
		"prompt_tokens": u.In, "completion_tokens": u.Out, "total_tokens": u.Total(),
		"prompt_tokens_details":     object{"cached_tokens": u.Cached},
		"completion_tokens_details": object{"reasoning_tokens": u.Thoughts},
	}
}
