package openai

import (
	"cmp"
	"encoding/json"
	"slices"

	"toolpost/model"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// responses is OpenAI's Responses API. Our calls are items of the type mcp_call, which it has for tools that run on the
// server. If the caller sends the items back, the model remembers the calls.
type responses struct{}

// label is the name of this server in items and blocks.
const label = "toolpost"

func (responses) api() model.API { return model.Responses }
func (responses) list() string   { return "input" }

// read implements wire.
func (responses) read(body []byte) (*request, error) {
	var doc struct {
		Model        string          `json:"model"`
		Input        json.RawMessage `json:"input"`
		Instructions string          `json:"instructions"`
		Tools        json.RawMessage `json:"tools"`
		Choice       json.RawMessage `json:"tool_choice"`
		Parallel     *bool           `json:"parallel_tool_calls"`
		Stream       bool            `json:"stream"`
	}
	if err := strictjson.Unmarshal(body, &doc); err != nil {
		return nil, unreadable("the request", err)
	}
	r := &request{model: doc.Model, stream: doc.Stream, serial: doc.Parallel != nil && !*doc.Parallel}
	var conversation history
	if doc.Instructions != "" {
		conversation.add(model.System, model.Part{Kind: model.Text, Text: doc.Instructions})
	}
	if err := readInput(doc.Input, &conversation, r); err != nil {
		return nil, err
	}
	r.messages = conversation.messages()
	if err := r.readTools(model.Responses, doc.Tools, doc.Choice); err != nil {
		return nil, err
	}
	r.ours = r.ours && !slices.ContainsFunc(r.tools, func(t requestedTool) bool { // the caller may have a server with our name
		return t.hosted && string(members(t.own.Raw)["server_label"]) == `"`+label+`"`
	})
	var err error
	if r.settings, err = responseSettings(body); err != nil {
		r.setUnsupported(err)
	}
	if string(members(body)["background"]) == "true" {
		return nil, model.Misses("background", "background is not supported with tools of ours; leave it out")
	}
	return r, nil
}

// A history assembles messages from pieces: an answer of a model is everything up to the first result that it waits
// for.
type history struct {
	all     []model.Message
	answer  []model.Part // of the model's current answer
	results []model.Part // of its calls
}

func (h *history) add(who model.Role, parts ...model.Part) {
	switch {
	case who == model.Assistant:
		if len(h.results) > 0 {
			h.flush()
		}
		h.answer = append(h.answer, parts...)
	case who == model.ToolRole:
		h.results = append(h.results, parts...)
	default:
		h.flush()
		if len(parts) > 0 {
			h.all = append(h.all, model.Message{Role: who, Parts: parts})
		}
	}
}

func (h *history) flush() {
	if len(h.answer) > 0 {
		h.all = append(h.all, model.Message{Role: model.Assistant, Parts: h.answer})
	}
	if len(h.results) > 0 {
		h.all = append(h.all, model.Message{Role: model.ToolRole, Parts: h.results})
	}
	h.answer, h.results = nil, nil
}

func (h *history) messages() []model.Message {
	h.flush()
	return h.all
}

// An item is one message, call or result.
type item struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	ID      string          `json:"id"`
	CallID  string          `json:"call_id"`
	Name    string          `json:"name"`
	Space   string          `json:"namespace"`
	Label   string          `json:"server_label"`
	Args    json.RawMessage `json:"arguments"`
	Tools   json.RawMessage `json:"tools"` // that a search has found
	Input   string          `json:"input"`
	Output  json.RawMessage `json:"output"`
	Error   json.RawMessage `json:"error"`
}

func readInput(raw json.RawMessage, conversation *history, r *request) error {
	switch strictjson.KindOf(raw) {
	case "string":
		conversation.add(model.User, model.Part{Kind: model.Text, Text: strictjson.Text(raw)})
		return nil
	case "nothing", "null":
		return tool.Errorf(tool.CodeInvalidInput, "input is missing; send a text, or the conversation so far")
	}
	var items []json.RawMessage
	if err := strictjson.Unmarshal(raw, &items); err != nil {
		return unreadable("input", err)
	}
	if len(items) == 0 {
		return tool.Errorf(tool.CodeInvalidInput, "input is empty; send a text, or the conversation so far")
	}
	for _, one := range items {
		var i item
		if err := strictjson.Unmarshal(one, &i); err != nil {
			r.setUnsupported(unreadable("an item of input", err))
		} else if err := i.read(conversation); err != nil {
			r.setUnsupported(err)
		}
		if i.Type == "tool_search_output" {
			found, _ := readTools(model.Responses, i.Tools) // an entry that is not a tool was not found
			r.found = append(r.found, found...)
		}
		r.ours = r.ours || i.Type == "mcp_call" && i.Label == label
	}
	return nil
}

// args returns the arguments of a call: a text, or an object for a search.
func (i item) args() string {
	if strictjson.KindOf(i.Args) == "string" {
		return strictjson.Text(i.Args)
	}
	return string(i.Args)
}

func (i item) read(conversation *history) error {
	switch i.Type {
	case "message", "":
		parts, err := readContent(i.Content)
		role, known := map[string]model.Role{
			"user": model.User, "system": model.System, "developer": model.System, "assistant": model.Assistant,
		}[i.Role]
		if err == nil && !known {
			err = tool.Errorf(tool.CodeInvalidInput,
				"an item has the role %.60q; expected user, system, developer or assistant", i.Role)
		}
		conversation.add(role, parts...)
		return err
	case "function_call", "tool_search_call":
		call := model.Call{ID: i.CallID, Name: cmp.Or(model.Flat(i.Space, i.Name), "tool_search"), Args: i.args()}
		conversation.add(model.Assistant, model.Part{Kind: model.Calls, Call: call})
	case "custom_tool_call":
		args, _ := strictjson.Marshal(object{"input": i.Input}) // a text
		conversation.add(model.Assistant, model.Part{Kind: model.Calls, Call: model.Call{ID: i.CallID, Name: i.Name, Args: string(args)}})
	case "function_call_output", "custom_tool_call_output":
		parts, err := readContent(i.Output)
		conversation.add(model.ToolRole, model.Part{Kind: model.Results, Result: model.Result{ID: i.CallID, Parts: parts}})
		return err
	case "tool_search_output":
		parts := []model.Part{{Kind: model.Text, Text: string(i.Tools)}}
		conversation.add(model.ToolRole, model.Part{Kind: model.Results, Result: model.Result{ID: i.CallID, Parts: parts}})
	case "mcp_call":
		output, err := readContent(i.Output)
		failed := strictjson.KindOf(i.Error) == "string"
		if failed {
			output = []model.Part{{Kind: model.Text, Text: strictjson.Text(i.Error)}}
		}
		conversation.add(model.Assistant, model.Part{Kind: model.Calls, Call: model.Call{ID: i.ID, Name: i.Name, Args: i.args()}})
		result := model.Result{ID: i.ID, Parts: output, Failed: failed}
		conversation.add(model.ToolRole, model.Part{Kind: model.Results, Result: result})
		return err
	case "item_reference":
		return tool.Errorf(tool.CodeUnsupported, "input: an item_reference is only for a model with api: responses; no items are "+
			"kept here: ask with store: false, and send them whole").Because("input")
	case "reasoning", "mcp_list_tools": // of no use to any other server
	default:
		return tool.Errorf(tool.CodeUnsupported, "input: items of the type %.60q are only for a model with api: responses; "+
			"leave them out", i.Type).Because("input")
	}
	return nil
}

// responseSettings converts the settings of a request to those of chat completions.
func responseSettings(body []byte) (model.Settings, error) {
	s, err := settings(model.Responses, model.OpenAI, body, map[string][]string{
		"previous_response_id": {}, "conversation": {}, "background": {"false"}, "prompt": {}, "top_logprobs": {"0"},
	})
	if err != nil {
		return s, err
	}
	for _, name := range []string{"input", "instructions", "include", "truncation", "store", "max_tool_calls"} {
		delete(s.Values, name)
	}
	rename := func(from, to string) {
		if value, there := s.Values[from]; there {
			s.Values[to] = value
			delete(s.Values, from)
		}
	}
	rename("max_output_tokens", "max_completion_tokens")
	var inner struct {
		Effort    json.RawMessage `json:"effort"`
		Format    json.RawMessage `json:"format"`
		Verbosity json.RawMessage `json:"verbosity"`
	}
	for _, name := range []string{"reasoning", "text"} {
		if value, there := s.Values[name]; there {
			if err := strictjson.Unmarshal(value, &inner); err != nil {
				return s, unreadable(name, err)
			}
			delete(s.Values, name)
		}
	}
	for name, value := range map[string]json.RawMessage{
		"reasoning_effort": inner.Effort, "verbosity": inner.Verbosity, "response_format": responseFormat(inner.Format),
	} {
		if len(value) > 0 && string(value) != "null" {
			s.Values[name] = value
		}
	}
	return s, nil
}

// responseFormat converts a format to the form of chat completions.
func responseFormat(raw json.RawMessage) json.RawMessage {
	var f map[string]json.RawMessage
	if strictjson.Unmarshal(raw, &f) != nil || string(f["type"]) != `"json_schema"` {
		if string(f["type"]) == `"text"` {
			return nil // the default, which every server supports
		}
		return raw
	}
	delete(f, "type")
	b, _ := strictjson.Marshal(object{"type": "json_schema", "json_schema": f}) // JSON that was read
	return b
}

// document implements wire.
func (responses) document(t *transcript) []byte {
	items := []any{}
	for _, turn := range t.turns {
		for _, p := range turn.parts {
			if one := p.item(t, turn); one != nil {
				items = append(items, one)
			}
		}
	}
	body, _ := strictjson.Marshal(t.response(items)) // texts and numbers of our own, and JSON that was read
	return body
}

// item encodes a part for this wire, or returns nil if the wire has no form for it.
func (p part) item(t *transcript, of *turn) any {
	switch {
	case p.Kind == model.Calls && p.ours:
		i := slices.IndexFunc(of.done, func(r callOutcome) bool { return r.Call.ID == p.Call.ID })
		if i < 0 {
			return nil
		}
		return mcpCall(of.done[i])
	case p.Raw != nil && p.Of == model.Responses:
		return p.Raw
	case p.Kind == model.Calls:
		return t.functionCall(p.Call, "completed")
	}
	if k, known := outputKinds[p.Kind]; known && p.Text != "" {
		return k.item(k.prefix+newID(), "completed", k.part(p.Text))
	}
	return nil
}

// An outputKind is the form of one kind of model output on this wire.
type outputKind struct {
	kind, prefix string // of the item, and of its id
	content      string // type of its part
	member       string // of the part that has the text
}

var outputKinds = map[model.Kind]outputKind{
	model.Text:     {"message", "msg_", "output_text", "text"},
	model.Refusal:  {"message", "msg_", "refusal", "refusal"},
	model.Thinking: {"reasoning", "rs_", "reasoning_text", "text"},
}

func (k outputKind) part(text string) object {
	doc := object{"type": k.content, k.member: text}
	if k.content == "output_text" {
		doc["annotations"], doc["logprobs"] = []object{}, []object{}
	}
	return doc
}

func (k outputKind) item(id, status string, parts ...object) object {
	doc := object{"id": id, "type": k.kind, "status": status, "content": append([]object{}, parts...)}
	if k.kind == "message" {
		doc["role"] = "assistant"
	} else {
		doc["summary"] = []object{}
	}
	return doc
}

// functionCall encodes a call that is left to the caller, for the place in which the caller has the tool.
func (t *transcript) functionCall(c model.Call, status string) object {
	doc := object{
		"id": "fc_" + newID(), "type": "function_call", "status": status, "call_id": c.ID, "name": c.Name,
		"arguments": c.Args,
	}
	where := t.origins[c.Name]
	switch {
	case where == nil:
	case where.search:
		args := object{}
		_ = strictjson.Unmarshal([]byte(c.Args), &args) // the caller reports what is missing
		delete(doc, "name")
		doc["id"], doc["type"], doc["execution"], doc["arguments"] = "tsc_"+newID(), "tool_search_call", "client", args
	case where.custom:
		var args struct {
			Input string `json:"input"`
		}
		_ = strictjson.Unmarshal([]byte(c.Args), &args) // anything but a text is dropped
		delete(doc, "arguments")
		doc["id"], doc["type"], doc["input"] = "ctc_"+newID(), "custom_tool_call", args.Input
	default:
		doc["namespace"], doc["name"] = where.namespace, where.name
	}
	return doc
}

// mcpCall encodes one of our calls, with its outcome. Its id is the model's, by which it is found again.
func mcpCall(r callOutcome) object {
	doc := object{
		"id": r.Call.ID, "type": "mcp_call", "server_label": label, "name": r.Name, "arguments": r.Args,
		"status": "in_progress", "output": nil, "error": nil, "approval_request_id": nil,
	}
	switch {
	case r.outcome == "":
	case r.result.Failed:
		doc["status"], doc["error"] = "failed", r.result.Text()
	default:
		doc["status"], doc["output"] = "completed", r.result.Text()
	}
	return doc
}

// response returns the document around the items.
func (t *transcript) response(items any) object {
	doc := object{
		"id": "resp_" + t.id, "object": "response", "created_at": t.created.Unix(), "model": t.model, "output": items,
		"status": "completed", "error": nil, "incomplete_details": nil, "instructions": nil, "metadata": object{},
		"parallel_tool_calls": true, "previous_response_id": nil, "store": false, "temperature": nil, "top_p": nil,
		"tool_choice": "auto", "tools": []object{}, "text": object{"format": object{"type": "text"}},
		"truncation": "disabled",
		"reasoning":  object{"effort": nil, "summary": nil}, "max_output_tokens": nil, "background": false, "usage": nil,
		"toolpost": t.about(),
	}
	switch t.finish {
	case "": // not finished
		doc["status"] = "in_progress"
		return doc
	case model.Length:
		doc["status"], doc["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
	case model.Filtered:
		doc["status"], doc["incomplete_details"] = "incomplete", object{"reason": "content_filter"}
	}
	u := t.usage
	doc["usage"] = object{
		"input_tokens": u.In, "input_tokens_details": object{"cached_tokens": u.Cached},
		"output_tokens": u.Out, "output_tokens_details": object{"reasoning_tokens": u.Thoughts}, "total_tokens": u.Total(),
	}
	return t.fill(doc)
}
