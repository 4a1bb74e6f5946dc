package openai

import (
	"encoding/json"

	"toolpost/model"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// newWriter implements wire.
func (messages) newWriter(out *web.Stream, t *transcript, _ *request) streamWriter {
	return &messageWriter{transcript: t, out: out}
}

// A messageWriter streams the events of a message. One block is open at a time.
type messageWriter struct {
	*transcript
	out    *web.Stream
	open   model.Kind // of the open block; "" if there is none
	sealed bool       // it is a thought that is complete
	next   int        // index of the next block
}

func (s *messageWriter) send(kind string, doc object) {
	doc["type"] = kind
	if body, err := strictjson.Marshal(doc); err == nil {
		_ = s.out.Send("", kind, body) // a peer that has disconnected ends the request
	}
}

func (s *messageWriter) begin() { s.send("message_start", object{"message": s.message()}) }
func (s *messageWriter) turn()  { s.close() }

// add begins a block, and closes the one before.
func (s *messageWriter) add(kind model.Kind, block any) {
	s.close()
	s.open, s.sealed = kind, false
	s.send("content_block_start", object{"index": s.next, "content_block": block})
	s.next++
}

func (s *messageWriter) delta(doc any) {
	s.send("content_block_delta", object{"index": s.next - 1, "delta": doc})
}

func (s *messageWriter) close() {
	if s.open != "" {
		s.open = ""
		s.send("content_block_stop", object{"index": s.next - 1})
	}
}

// whole sends a complete block.
func (s *messageWriter) whole(kind model.Kind, block any) {
	s.add(kind, block)
	s.close()
}

func (s *messageWriter) part(p model.Part) {
	switch p.Kind {
	case model.Text, model.Refusal:
		if p.Raw != nil { // it begins
			s.add(model.Text, p.Raw)
			return
		}
		if s.open != model.Text {
			s.add(model.Text, object{"type": "text", "text": ""})
		}
		s.delta(object{"type": "text_delta", "text": p.Text})
	case model.Thinking:
		if s.open != model.Thinking || s.sealed {
			s.add(model.Thinking, object{"type": "thinking", "thinking": "", "signature": ""})
		}
		if p.Text != "" {
			s.delta(object{"type": "thinking_delta", "thinking": p.Text})
		}
		if p.Seal != "" {
			s.sealed = true
			s.delta(object{"type": "signature_delta", "signature": p.Seal})
		}
	case model.Other:
		if p.Of == model.Anthropic {
			s.whole(model.Other, p.Raw)
		}
	case model.Extra:
		if p.Of == model.Anthropic && s.open != "" {
			s.delta(p.Raw)
		}
	}
}

func (s *messageWriter) callerCall(c model.Call) {
	block := callBlock(c, false)
	input := block["input"].(json.RawMessage)
	block["input"] = object{}
	s.add(model.Calls, block)
	s.delta(object{"type": "input_json_delta", "partial_json": string(input)})
	s.close()
}

func (s *messageWriter) called(r callOutcome) { s.whole(model.Calls, callBlock(r.Call, true)) }

// event is sent in a ping, which clients ignore.
func (s *messageWriter) event(r callOutcome, e tool.Event) {
	s.send("ping", object{"toolpost": progress(r, &e)})
}

func (s *messageWriter) ended(r callOutcome) {
	s.whole(model.Results, mcpResult(r))
	s.send("ping", object{"toolpost": progress(r, nil)})
}

func (s *messageWriter) end() {
	s.close()
	doc := object{
		"delta": object{"stop_reason": stopReason(s.transcript), "stop_sequence": s.rest["stop_sequence"]},
		"usage": messageUsage(s.usage), "toolpost": s.about(),
	}
	s.send("message_delta", s.fill(doc))
	s.out.Finish("message_stop", []byte(`{"type":"message_stop"}`))
}

func (s *messageWriter) fail(e *tool.Error) { s.out.Finish("error", problem(e)) }
