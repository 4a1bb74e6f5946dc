package model

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"

	"toolpost/tool"
	"toolpost/wire/sse"
	"toolpost/wire/strictjson"
)

// completions is OpenAI's chat completions.
type completions struct{}

func (completions) path() string { return "/chat/completions" }

// object is a JSON object to be encoded.
type object = map[string]any

func (c completions) encode(m *Model, r *Request, stream bool) ([]byte, error) {
	doc, before, rest, err := r.body(OpenAI, m, "messages")
	if err != nil {
		return nil, err
	}
	var said []any
	for _, message := range rest {
		list, err := c.message(m, message)
		if err != nil {
			return nil, err
		}
		said = append(said, list...)
	}
	doc["model"], doc["messages"], doc["stream"] = m.Model, joined(before, said), stream
	if delete(doc, "stream_options"); stream {
		doc["stream_options"] = object{"include_usage": true}
	}
	r.tools(doc, OpenAI, c.tool, c.choice)
	if len(r.Tools) > 0 && r.Serial {
		doc["parallel_tool_calls"] = false
	}
	return strictjson.Marshal(doc)
}

// tools encodes the tools of a request.
func (r *Request) tools(doc object, api API, one func(Tool) any, choice func(Choice) any) {
	delete(doc, "tools")
	delete(doc, "tool_choice")
	if len(r.Tools) == 0 {
		return
	}
	doc["tools"] = list(r.Tools, func(t Tool) any {
		if t.Raw != nil && t.Of == api {
			return t.Raw
		}
		return one(t)
	})
	if doc["tool_choice"] = choice(r.Choice); r.Choice.Raw != nil && r.Of == api {
		doc["tool_choice"] = r.Choice.Raw
	}
}

func list[T, U any](all []T, each func(T) U) []U {
	made := make([]U, len(all))
	for i, one := range all {
		made[i] = each(one)
	}
	return made
}

func (completions) tool(t Tool) any {
	f := object{"name": t.Name, "parameters": t.Input}
	if t.Description != "" {
		f["description"] = t.Description
	}
	if t.Strict {
		f["strict"] = true
	}
	return object{"type": "function", "function": f}
}

func (completions) choice(c Choice) any {
	switch c.Mode {
	case None:
		return "none"
	case Any:
		return "required"
	case One:
		return object{"type": "function", "function": object{"name": c.Tool}}
	}
	return "auto"
}

// message encodes a message; results become messages of their own.
func (c completions) message(m *Model, message Message) ([]any, error) {
	if message.Role == ToolRole {
		return c.results(m, message)
	}
	doc := object{"role": message.Role}
	if message.Name != "" {
		doc["name"] = message.Name
	}
	var parts []any
	var calls []object
	plain := true
	for _, p := range message.Parts {
		switch {
		case p.Kind == Calls:
			calls = append(calls, object{"id": p.Call.ID, "type": "function",
				"function": object{"name": p.Call.Name, "arguments": p.Call.Args}})
		case p.Kind == Thinking: // only goes back to a server of its own API, see reader
			if p.Of == OpenAI {
				doc["reasoning_content"] = p.Text
			}
		case p.Kind == Extra:
		case p.Kind == Refusal:
			doc["refusal"] = p.Text
		case p.Raw != nil && p.Of == OpenAI:
			plain, parts = false, append(parts, p.Raw)
		case p.Kind == Text:
			parts = append(parts, object{"type": "text", "text": p.Text})
		case p.Kind == Image:
			plain, parts = false, append(parts, object{"type": "image_url", "image_url": object{"url": p.URL}})
		case message.Role != Assistant: // an assistant's part that only another API knows is left out
			return nil, notCarried(m, p)
		}
	}
	switch {
	case len(parts) == 0 && message.Role == Assistant:
		doc["content"] = nil
	case plain:
		doc["content"] = textOf(message.Parts, Text)
	default:
		doc["content"] = parts
	}
	if len(calls) > 0 {
		doc["tool_calls"] = calls
	}
	return []any{doc}, nil
}

// results encodes the results of calls. A tool's message cannot have images: those follow in a user's message.
func (completions) results(m *Model, message Message) (said []any, err error) {
	var images []any
	for _, p := range message.Parts {
		text := p.Result.Marked()
		for _, piece := range p.Result.Parts {
			switch piece.Kind {
			case Text:
			case Image:
				text += "\n[an image, shown below]"
				images = append(images, object{"type": "image_url", "image_url": object{"url": piece.URL}})
			default:
				return nil, notCarried(m, piece)
			}
		}
		said = append(said, object{"role": "tool", "tool_call_id": p.Result.ID, "content": text})
	}
	if len(images) > 0 {
		said = append(said, object{"role": "user", "content": images})
	}
	return said, nil
}

func notCarried(m *Model, p Part) error {
	what := string(p.Kind)
	var raw struct {
		Type string `json:"type"`
	}
	if strictjson.Unmarshal(p.Raw, &raw) == nil && raw.Type != "" {
		what = raw.Type
	}
	return tool.Errorf(tool.CodeInvalidInput, "model %s speaks the API %s, which cannot carry content of the type %.60q "+
		"here; leave it out, or use a model with api: %s", m.Name, m.API, what, p.Of)
}

// A completion is a server's answer, as a whole or in pieces.
type completion struct {
	Choices []struct {
		Message said   `json:"message"`
		Delta   said   `json:"delta"`
		Finish  string `json:"finish_reason"`
	} `json:"choices"`
	Usage *completionUsage `json:"usage"`
	Error json.RawMessage  `json:"error"`
}

type completionUsage struct {
	In        int64 `json:"prompt_tokens"`
	Out       int64 `json:"completion_tokens"`
	InDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	OutDetails struct {
		Thoughts int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func (u *completionUsage) usage() Usage {
	if u == nil {
		return Usage{}
	}
	return Usage{In: u.In, Cached: u.InDetails.Cached, Out: u.Out, Thoughts: u.OutDetails.Thoughts}
}

// said is a message of a model, or a piece of one.
type said struct {
	Content   words  `json:"content"`
	Refusal   string `json:"refusal"`
	Thoughts  string `json:"reasoning_content"` // not part of OpenAI's API, but used by many servers that implement it
	ToolCalls []struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name string `json:"name"`
			Args words  `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	More map[string]json.RawMessage `json:",embed"` // all other members
}

// words are a text; some servers write it as a list of texts, and some write arguments as plain JSON.
type words string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(b []byte) error {
	switch strictjson.KindOf(b) {
	case "null":
		return nil
	case "object":
		*w = words(b)
		return nil
	case "array":
		var parts []struct {
			Text string `json:"text"`
		}
		err := strictjson.Unmarshal(b, &parts)
		for _, p := range parts {
			*w += words(p.Text)
		}
		return err
	}
	return strictjson.Unmarshal(b, (*string)(w))
}

func readCompletion(doc []byte) (*completion, error) {
	c := new(completion)
	if err := strictjson.Unmarshal(doc, c); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "is no chat completion: %w", err)
	}
	if kind := strictjson.KindOf(c.Error); kind == "object" || kind == "string" {
		return nil, brokenOff(c.Error)
	}
	return c, nil
}

// brokenOff returns the error of a server that reports a failure in the middle of its answer.
func brokenOff(raw json.RawMessage) error {
	var e struct {
		Message string `json:"message"`
	}
	_ = strictjson.Unmarshal(raw, &e)
	return tool.Errorf(tool.CodeUnavailable, "was broken off by its server: %s", cmp.Or(e.Message,
		string(raw))).Because("cut")
}

func (completions) decode(doc []byte) (*Answer, error) {
	c, err := readCompletion(doc)
	if err != nil {
		return nil, err
	}
	if len(c.Choices) == 0 {
		return nil, tool.Errorf(tool.CodeProtocol, "has no choices")
	}
	in := &completionReader{to: &hearing{to: new(Listener), left: len(doc)}}
	if err := in.take(c.Choices[0].Message); err != nil {
		return nil, err
	}
	in.finish, in.usage = cmp.Or(c.Choices[0].Finish, "stop"), c.Usage.usage()
	return in.answer()
}

func (completions) reader(to *hearing) reader { return &completionReader{to: to} }

// A completionReader puts the pieces together.
type completionReader struct {
	to                      *hearing
	text, thoughts, refusal strings.Builder
	calls                   []*callWriter
	finish                  string
	usage                   Usage
	extra                   []Part                     // the message's other members
	rest                    map[string]json.RawMessage // members of the document
}

// A callWriter is a call that comes in pieces.
type callWriter struct {
	index    int
	id, name string
	args     strings.Builder
}

func (in *completionReader) event(e sse.Event) (last bool, err error) {
	if string(e.Data) == "[DONE]" {
		in.finish = cmp.Or(in.finish, "stop")
		return true, nil
	}
	c, err := readCompletion(e.Data)
	if err != nil {
		return false, err
	}
	if c.Usage != nil {
		in.usage = c.Usage.usage() // some report it repeatedly, and then the last is the sum
	}
	if len(c.Choices) == 0 {
		return false, strictjson.Unmarshal(e.Data, &in.rest)
	}
	in.finish = cmp.Or(c.Choices[0].Finish, in.finish)
	return false, cmp.Or(in.take(c.Choices[0].Delta), strictjson.Unmarshal(e.Data, &in.rest))
}

func (in *completionReader) take(s said) error {
	in.text.WriteString(string(s.Content))
	in.thoughts.WriteString(s.Thoughts)
	in.refusal.WriteString(s.Refusal)
	for _, p := range []Part{
		{Kind: Thinking, Text: s.Thoughts, Of: OpenAI}, {Kind: Text, Text: string(s.Content)},
		{Kind: Refusal, Text: s.Refusal},
	} {
		if err := in.to.hear(p); err != nil {
			return err
		}
	}
	maps.DeleteFunc(s.More, func(name string, v json.RawMessage) bool { return name == "role" || string(v) == "null" })
	if len(s.More) > 0 {
		raw, _ := strictjson.Marshal(s.More) // JSON that was read
		in.extra = []Part{{Kind: Extra, Raw: raw, Of: OpenAI}}
		if err := in.to.hear(in.extra[0]); err != nil {
			return err
		}
	}
	for _, c := range s.ToolCalls {
		one, err := in.call(c.Index, c.ID)
		if err != nil {
			return err
		}
		one.id, one.name = cmp.Or(one.id, c.ID), cmp.Or(one.name, c.Function.Name)
		one.args.WriteString(string(c.Function.Args))
		if err := in.to.room(len(c.Function.Args)); err != nil {
			return err
		}
	}
	return nil
}

// call finds the call that a piece belongs to. If the server does not number them, an id begins the next.
func (in *completionReader) call(index *int, id string) (*callWriter, error) {
	if index != nil {
		for _, c := range in.calls {
			if c.index == *index {
				return c, nil
			}
		}
	} else if id == "" && len(in.calls) > 0 {
		return in.calls[len(in.calls)-1], nil
	}
	if len(in.calls) == maxCalls {
		return nil, tool.Errorf(tool.CodeProtocol, "calls more than %d tools at once", maxCalls)
	}
	c := &callWriter{index: -1 - len(in.calls)}
	if index != nil {
		c.index = *index
	}
	in.calls = append(in.calls, c)
	return c, nil
}

func (in *completionReader) answer() (*Answer, error) {
	if in.finish == "" {
		return nil, errCut
	}
	a := &Answer{Parts: in.extra, Usage: in.usage, Finish: finishes[in.finish], Rest: in.rest}
	for _, p := range []Part{
		{Kind: Thinking, Text: in.thoughts.String(), Of: OpenAI}, {Kind: Text, Text: in.text.String()},
		{Kind: Refusal, Text: in.refusal.String()},
	} {
		if p.Text != "" {
			a.Parts = append(a.Parts, p)
		}
	}
	for _, c := range in.calls {
		// Some servers give calls no id, but results refer to calls by id.
		call := Call{ID: cmp.Or(c.id, "call_"+tool.NewID()), Name: c.name, Args: c.args.String()}
		a.Parts = append(a.Parts, Part{Kind: Calls, Call: call})
	}
	switch {
	case len(in.calls) > 0 && a.Finish != Length && a.Finish != Filtered:
		a.Finish = Called
	case a.Finish == "" || a.Finish == Called:
		a.Finish = Stopped
	case a.Finish == Stopped && in.refusal.Len() > 0:
		a.Finish = Refused
	}
	return a, nil
}

// finishes maps the reasons to stop from their names on the wire.
var finishes = map[string]Finish{
	"stop": Stopped, "length": Length, "tool_calls": Called, "function_call": Called, "content_filter": Filtered,
}
