package openai

import (
	"encoding/json"
	"maps"

	"toolpost/model"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// newWriter implements wire.
func (chat) newWriter(out *web.Stream, t *transcript, r *request) streamWriter {
	return &chatWriter{transcript: t, out: out, usage: r.usage}
}

// A chatWriter streams chunks.
type chatWriter struct {
	*transcript
	out   *web.Stream
	usage bool

	spoke bool // there was some text
	apart bool // the next text begins a paragraph
	calls int  // left to the caller
}

// chunk sends a piece of the message; more is added beside the choices.
func (s *chatWriter) chunk(delta object, finish any, more object) {
	doc := s.completion("chat.completion.chunk")
	doc["choices"] = []object{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}}
	maps.Copy(doc, more)
	s.send(doc)
}

func (s *chatWriter) send(doc object) {
	if body, err := strictjson.Marshal(doc); err == nil {
		_ = s.out.Send("", "", body) // a peer that has disconnected ends the request
	}
}

func (s *chatWriter) begin() { s.chunk(object{"role": "assistant", "content": ""}, nil, nil) }

func (s *chatWriter) turn() { s.apart = s.spoke }

func (s *chatWriter) part(p model.Part) {
	switch p.Kind {
	case model.Text:
		if p.Text == "" {
			return
		}
		if s.apart {
			p.Text = paragraph + p.Text
		}
		s.spoke, s.apart = true, false
		s.chunk(object{"content": p.Text}, nil, nil)
	case model.Thinking:
		if p.Text != "" {
			s.chunk(object{"reasoning_content": p.Text}, nil, nil)
		}
	case model.Extra:
		if delta := (object{}); p.Of == model.OpenAI && strictjson.Unmarshal(p.Raw, &delta) == nil {
			s.chunk(delta, nil, nil)
		}
	case model.Refusal:
		s.chunk(object{"refusal": p.Text}, nil, nil)
	}
}

func (s *chatWriter) callerCall(c model.Call) {
	call := chatCall(c)
	call["index"] = s.calls
	s.calls++
	s.chunk(object{"tool_calls": []object{call}}, nil, nil)
}

// progress is sent beside an empty delta: to other clients the chunk adds nothing.
func (s *chatWriter) progress(about json.RawMessage) {
	s.chunk(object{}, nil, object{"toolpost": about})
}

func (s *chatWriter) called(r callOutcome)              { s.progress(progress(r, nil)) }
func (s *chatWriter) event(r callOutcome, e tool.Event) { s.progress(progress(r, &e)) }
func (s *chatWriter) ended(r callOutcome)               { s.progress(progress(r, nil)) }

func (s *chatWriter) end() {
	delta := object{}
	if about := s.extension(); about != nil {
		delta["toolpost"] = about
	}
	s.chunk(delta, chatFinish(s.transcript), nil)
	if s.usage {
		doc := s.completion("chat.completion.chunk")
		doc["choices"], doc["usage"] = []object{}, chatUsage(s.transcript.usage)
		s.send(s.fill(doc))
	}
	s.out.Finish("", []byte("[DONE]"))
}

func (s *chatWriter) fail(e *tool.Error) {
	w := strictjson.NewWriter(300)
	w.Raw("error", errorBody(e))
	s.out.Finish("", w.Done())
}
