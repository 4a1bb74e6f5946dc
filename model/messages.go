package model

import (
	"cmp"
	"encoding/json"
	"strings"

	"toolpost/tool"
	"toolpost/wire/sse"
	"toolpost/wire/strictjson"
)

// messages is Anthropic's Messages API.
type messages struct{}

// anthropicVersion is the only version.
const anthropicVersion = "2023-06-01"

// defaultTokens is the default length limit of an answer: this API requires one.
const defaultTokens = 8192

func (messages) path() string { return "/messages" }

func (w messages) encode(m *Model, r *Request, stream bool) ([]byte, error) {
	doc, before, rest, err := r.body(Anthropic, m, "messages")
	if err != nil {
		return nil, err
	}
	system, said := []any{}, []object{}
	for _, message := range rest {
		blocks, err := w.blocks(m, message)
		if err != nil {
			return nil, err
		}
		switch {
		case message.Role == System:
			system = append(system, blocks...)
		case len(said) > 0 && said[len(said)-1]["role"] == roleOf(message.Role): // results share a message with the text after them
			last := said[len(said)-1]
			last["content"] = append(last["content"].([]any), blocks...)
		case len(blocks) > 0: // a message without content is refused
			said = append(said, object{"role": roleOf(message.Role), "content": blocks})
		}
	}
	doc["model"], doc["messages"], doc["stream"] = m.Model, joined(before, list(said, func(o object) any { return o })), stream
	if doc["max_tokens"] == nil {
		doc["max_tokens"] = defaultTokens
	}
	if len(system) > 0 {
		doc["system"] = system
	}
	r.tools(doc, Anthropic, w.tool, func(c Choice) any { return w.choice(c, r.Serial) })
	return strictjson.Marshal(doc)
}

func roleOf(r Role) string {
	if r == Assistant {
		return "assistant"
	}
	return "user"
}

func (messages) tool(t Tool) any {
	doc := object{"name": t.Name, "input_schema": t.Input}
	if t.Description != "" {
		doc["description"] = t.Description
	}
	return doc
}

func (messages) choice(c Choice, serial bool) object {
	doc := object{"type": "auto"}
	switch c.Mode {
	case None:
		return object{"type": "none"}
	case Any:
		doc["type"] = "any"
	case One:
		doc["type"], doc["name"] = "tool", c.Tool
	}
	if serial {
		doc["disable_parallel_tool_use"] = true
	}
	return doc
}

func (w messages) blocks(m *Model, message Message) ([]any, error) {
	blocks := []any{}
	for _, p := range message.Parts {
		block, err := w.block(m, p)
		switch {
		case err != nil && message.Role != Assistant: // an assistant's part that only another API knows is left out
			return nil, err
		case block != nil && err == nil:
			blocks = append(blocks, block)
		}
	}
	return blocks, nil
}

// block encodes a part; it returns nil if there is nothing to send.
func (w messages) block(m *Model, p Part) (any, error) {
	switch {
	case p.Raw != nil && p.Of == Anthropic:
		return p.Raw, nil
	case p.Kind == Results:
		content, err := w.blocks(m, Message{Role: User, Parts: p.Result.Parts})
		doc := object{"type": "tool_result", "tool_use_id": p.Result.ID, "content": content}
		if p.Result.Failed {
			doc["is_error"] = true
		}
		return doc, err
	case p.Kind == Calls:
		return object{"type": "tool_use", "id": p.Call.ID, "name": p.Call.Name, "input": objectOf(p.Call.Args)}, nil
	case p.Kind == Thinking:
		if p.Of != Anthropic || p.Seal == "" {
			return nil, nil
		}
		return object{"type": "thinking", "thinking": p.Text, "signature": p.Seal}, nil
	case p.Kind == Text || p.Kind == Refusal:
		if strings.TrimSpace(p.Text) == "" { // the API refuses empty texts
			return nil, nil
		}
		return object{"type": "text", "text": p.Text}, nil
	case p.Kind == Image:
		return object{"type": "image", "source": imageSource(p.URL)}, nil
	}
	return nil, notCarried(m, p)
}

// imageSource returns the address of an image, or its data.
func imageSource(url string) object {
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		if kind, data, ok := strings.Cut(rest, ";base64,"); ok {
			return object{"type": "base64", "media_type": kind, "data": data}
		}
	}
	return object{"type": "url", "url": url}
}

// objectOf returns the arguments as an object. The API takes nothing else, and a model's invalid arguments are not an
// object.
func objectOf(args string) json.RawMessage {
	if strictjson.CheckObject([]byte(args)) != nil {
		return json.RawMessage("{}")
	}
	return json.RawMessage(args)
}

// A block is a piece of an answer.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Partial   string          `json:"partial_json"`
	Citation  json.RawMessage `json:"citation"`
}

type messageUsage struct {
	In      int64 `json:"input_tokens"`
	Out     int64 `json:"output_tokens"`
	Cached  int64 `json:"cache_read_input_tokens"`
	Written int64 `json:"cache_creation_input_tokens"`
}

// add updates the usage.
func (u messageUsage) add(to *Usage) {
	if in := u.In + u.Cached + u.Written; in > 0 {
		to.In, to.Cached, to.Written = in, u.Cached, u.Written
	}
	to.Out = cmp.Or(u.Out, to.Out)
}

func (messages) decode(doc []byte) (*Answer, error) {
	var m struct {
		Content []json.RawMessage `json:"content"`
		Stop    string            `json:"stop_reason"`
		Usage   messageUsage      `json:"usage"`
		Error   json.RawMessage   `json:"error"`
	}
	if err := strictjson.Unmarshal(doc, &m); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "is no message: %w", err)
	}
	switch {
	case strictjson.KindOf(m.Error) == "object":
		return nil, brokenOff(m.Error)
	case m.Content == nil || m.Stop == "":
		return nil, tool.Errorf(tool.CodeProtocol, "is no message: it has no content, or no stop_reason")
	}
	in := &messageReader{to: &hearing{to: new(Listener), left: len(doc)}, stop: m.Stop, whole: true}
	m.Usage.add(&in.usage)
	for i, raw := range m.Content {
		if err := in.begin(i, raw); err != nil {
			return nil, err
		}
		if err := in.end(); err != nil {
			return nil, err
		}
	}
	return in.answer()
}

func (messages) reader(to *hearing) reader { return &messageReader{to: to} }

// A messageReader assembles the blocks. One is open at a time.
type messageReader struct {
	to    *hearing
	parts []Part
	calls int
	stop  string
	usage Usage
	rest  map[string]json.RawMessage // members of the message

	whole   bool // blocks come whole
	open    bool
	index   int
	now     Part
	text    strings.Builder // of the open block
	seal    strings.Builder
	partial strings.Builder // of its input
	cited   []json.RawMessage
}

func (in *messageReader) event(e sse.Event) (last bool, err error) {
	var m struct {
		Type    string          `json:"type"`
		Index   int             `json:"index"`
		Message json.RawMessage `json:"message"`
		Block   json.RawMessage `json:"content_block"`
		Delta   json.RawMessage `json:"delta"`
		Usage   json.RawMessage `json:"usage"`
		Error   json.RawMessage `json:"error"`
	}
	if err := strictjson.Unmarshal(e.Data, &m); err != nil {
		return false, tool.Errorf(tool.CodeProtocol, "is no stream of a message: %w", err)
	}
	switch m.Type {
	case "message_start":
		_ = strictjson.Unmarshal(m.Message, &in.rest) // without it there is nothing to keep
		in.count(in.rest["usage"])
	case "content_block_start":
		return false, in.begin(m.Index, m.Block)
	case "content_block_delta":
		return false, in.delta(m.Index, m.Delta)
	case "content_block_stop":
		return false, in.end()
	case "message_delta":
		var d struct {
			Stop string `json:"stop_reason"`
		}
		err = cmp.Or(strictjson.Unmarshal(m.Delta, &d), strictjson.Unmarshal(m.Delta, &in.rest))
		in.stop = cmp.Or(d.Stop, in.stop)
		in.count(m.Usage)
	case "message_stop":
		return true, in.end()
	case "error":
		return false, brokenOff(m.Error)
	}
	return false, err
}

// count takes a report of the usage so far: later numbers replace earlier ones, and missing ones leave them unchanged.
func (in *messageReader) count(raw json.RawMessage) {
	var u messageUsage
	all := map[string]json.RawMessage{}
	_ = strictjson.Unmarshal(in.rest["usage"], &all) // nothing before the first
	if strictjson.Unmarshal(raw, &all) == nil && strictjson.Unmarshal(raw, &u) == nil {
		whole, _ := strictjson.Marshal(object{"usage": all}) // JSON that was read
		_ = strictjson.Unmarshal(whole, &in.rest)
		u.add(&in.usage)
	}
}

// begin opens a block. The first event of a block may already contain it whole, as in an answer that is not streamed.
func (in *messageReader) begin(index int, raw json.RawMessage) error {
	if err := in.end(); err != nil {
		return err
	}
	var b block
	if err := strictjson.Unmarshal(raw, &b); err != nil {
		return tool.Errorf(tool.CodeProtocol, "has a block that cannot be read: %w", err)
	}
	in.open, in.index, in.now = true, index, Part{Kind: Text, Of: Anthropic}
	if in.whole {
		in.now.Raw = raw
	}
	switch b.Type {
	case "text":
		if b.Text == "" && !in.whole {
			if err := in.to.hear(Part{Kind: Text, Raw: raw, Of: Anthropic}); err != nil {
				return err
			}
		}
		return in.say(b.Text, "")
	case "thinking":
		in.now.Kind = Thinking
		return in.say(b.Thinking, b.Signature)
	case "tool_use":
		if in.calls++; in.calls > maxCalls {
			return tool.Errorf(tool.CodeProtocol, "calls more than %d tools at once", maxCalls)
		}
		in.now.Kind, in.now.Call = Calls, Call{ID: cmp.Or(b.ID, "toolu_"+tool.NewID()), Name: b.Name, Args: string(b.Input)}
		return in.to.room(len(b.Input))
	}
	in.now.Kind, in.now.Raw = Other, raw
	return in.to.room(len(raw))
}

func (in *messageReader) delta(index int, raw json.RawMessage) error {
	var d block
	if err := strictjson.Unmarshal(raw, &d); err != nil || !in.open || index != in.index {
		return tool.Errorf(tool.CodeProtocol, "has a piece that belongs to no block")
	}
	if d.Type == "input_json_delta" {
		in.partial.WriteString(d.Partial)
		return in.to.room(len(d.Partial))
	}
	switch {
	case in.now.Kind != Text && in.now.Kind != Thinking:
		return nil
	case d.Text+d.Thinking+d.Signature != "":
		return in.say(d.Text+d.Thinking, d.Signature)
	case d.Citation != nil:
		in.cited = append(in.cited, d.Citation)
	}
	return in.to.hear(Part{Kind: Extra, Raw: raw, Of: Anthropic})
}

// say passes on a piece of the open block.
func (in *messageReader) say(text, seal string) error {
	in.text.WriteString(text)
	in.seal.WriteString(seal)
	if err := in.to.hear(Part{Kind: in.now.Kind, Text: text, Of: Anthropic}); err != nil {
		return err
	}
	return in.to.hear(Part{Kind: in.now.Kind, Seal: seal, Of: Anthropic})
}

// end closes the open block, if there is one.
func (in *messageReader) end() error {
	if !in.open {
		return nil
	}
	p, partial := in.now, in.partial.String()
	p.Text, p.Seal = in.text.String(), in.seal.String()
	in.open = false
	in.text.Reset()
	in.seal.Reset()
	in.partial.Reset()
	if in.cited != nil {
		p.Raw, _ = strictjson.Marshal(object{"type": "text", "text": p.Text, "citations": in.cited}) // JSON that was read
		in.cited = nil
	}
	if p.Kind == Calls && partial != "" {
		p.Call.Args = partial
	}
	if p.Kind == Other {
		if partial != "" {
			p.Raw = withInput(p.Raw, partial)
		}
		if err := in.to.hear(p); err != nil {
			return err
		}
	}
	in.parts = append(in.parts, p)
	return nil
}

// withInput returns a block with the input that came after its beginning.
func withInput(raw json.RawMessage, input string) json.RawMessage {
	var doc map[string]json.RawMessage
	if strictjson.Check([]byte(input)) != nil || strictjson.Unmarshal(raw, &doc) != nil {
		return raw
	}
	doc["input"] = json.RawMessage(input)
	b, _ := strictjson.Marshal(doc) // JSON that was checked
	return b
}

func (in *messageReader) answer() (*Answer, error) {
	if in.stop == "" || in.open {
		return nil, errCut
	}
	a := &Answer{Parts: in.parts, Usage: in.usage, Finish: Stopped, Rest: in.rest}
	if f, known := stopReasons[in.stop]; known {
		a.Finish = f
	}
	if in.calls > 0 && a.Finish == Stopped {
		a.Finish = Called
	}
	return a, nil
}

// stopReasons maps the reasons to stop from their names on the wire.
var stopReasons = map[string]Finish{
	"end_turn": Stopped, "stop_sequence": Sequence, "max_tokens": Length, "model_context_window_exceeded": Length,
	"tool_use": Called, "refusal": Refused, "pause_turn": Paused,
}
