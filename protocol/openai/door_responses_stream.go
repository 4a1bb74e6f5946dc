package openai

import (
	"maps"

	"toolpost/model"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// newWriter implements wire.
func (responses) newWriter(out *web.Stream, t *transcript, _ *request) streamWriter {
	return &responseWriter{transcript: t, out: out, at: map[string]int{}}
}

// A responseWriter streams the events of a response. One item of text is open at a time; calls are open until they
// have ended.
type responseWriter struct {
	*transcript
	out  *web.Stream
	seq  int
	list []object       // items
	at   map[string]int // indices of our calls

	open outputKind // zero if no item of text is open
	text string     // of it
}

// send sends an event.
func (s *responseWriter) send(kind string, doc object) {
	if body := s.encode(kind, doc); body != nil {
		_ = s.out.Send("", kind, body) // a peer that has disconnected ends the request
	}
}

func (s *responseWriter) encode(kind string, doc object) []byte {
	doc["type"], doc["sequence_number"] = kind, s.seq
	s.seq++
	body, err := strictjson.Marshal(doc)
	if err != nil {
		return nil
	}
	return body
}

func (s *responseWriter) begin() {
	s.send("response.created", object{"response": s.response([]object{})})
	s.send("response.in_progress", object{"response": s.response([]object{})})
}

// add begins an item, and returns its index.
func (s *responseWriter) add(item object) int {
	s.close()
	s.list = append(s.list, item)
	s.send("response.output_item.added", object{"output_index": len(s.list) - 1, "item": item})
	return len(s.list) - 1
}

// done ends an item.
func (s *responseWriter) done(at int, item object) {
	s.list[at] = item
	s.send("response.output_item.done", object{"output_index": at, "item": item})
}

func (s *responseWriter) turn() { s.close() }

func (s *responseWriter) part(p model.Part) {
	k, known := outputKinds[p.Kind]
	if p.Kind == model.Other && p.Of == model.Responses {
		item := object{}
		_ = strictjson.Unmarshal(p.Raw, &item) // JSON that was read
		s.done(s.add(item), item)
	}
	if !known || p.Text == "" {
		return
	}
	if s.open != k {
		at := s.add(k.item(k.prefix+newID(), "in_progress"))
		s.open, s.text = k, ""
		s.send("response.content_part.added", s.piece(at, object{"part": k.part("")}))
	}
	s.text += p.Text
	s.send("response."+k.content+".delta", s.piece(len(s.list)-1, k.delta(p.Text)))
}

// piece adds the members that refer to the part of an item.
func (s *responseWriter) piece(at int, doc object) object {
	maps.Copy(doc, object{"output_index": at, "item_id": s.list[at]["id"], "content_index": 0})
	return doc
}

func (k outputKind) delta(text string) object {
	doc := object{"delta": text}
	if k.content == "output_text" {
		doc["logprobs"] = []object{}
	}
	return doc
}

// close ends the open item of text.
func (s *responseWriter) close() {
	if s.open == (outputKind{}) {
		return
	}
	k, at, whole := s.open, len(s.list)-1, s.open.part(s.text)
	s.open = outputKind{}
	done := object{k.member: s.text}
	if k.content == "output_text" {
		done["logprobs"] = []object{}
	}
	s.send("response."+k.content+".done", s.piece(at, done))
	s.send("response.content_part.done", s.piece(at, object{"part": whole}))
	s.done(at, k.item(s.list[at]["id"].(string), "completed", whole))
}

func (s *responseWriter) callerCall(c model.Call) {
	item := s.functionCall(c, "in_progress")
	member, kind := "arguments", "response.function_call_arguments"
	if item["input"] != nil {
		member, kind = "input", "response.custom_tool_call_input"
	}
	whole := maps.Clone(item)
	whole["status"] = "completed"
	if item["type"] == "tool_search_call" { // it is not sent in pieces
		s.done(s.add(item), whole)
		return
	}
	item[member] = ""
	at := s.add(item)
	s.send(kind+".delta", object{"output_index": at, "item_id": item["id"], "delta": whole[member]})
	s.send(kind+".done", object{"output_index": at, "item_id": item["id"], "name": whole["name"], member: whole[member]})
	s.done(at, whole)
}

func (s *responseWriter) called(r callOutcome) {
	at := s.add(mcpCall(r))
	s.at[r.Call.ID] = at
	about := func() object { return object{"output_index": at, "item_id": r.Call.ID} }
	args := about()
	args["arguments"] = r.Args
	s.send("response.mcp_call.in_progress", about())
	s.send("response.mcp_call_arguments.done", args)
}

// event repeats that a call is in progress, with the event beside it.
func (s *responseWriter) event(r callOutcome, e tool.Event) {
	s.send("response.mcp_call.in_progress", object{
		"output_index": s.at[r.Call.ID], "item_id": r.Call.ID, "toolpost": progress(r, &e),
	})
}

func (s *responseWriter) ended(r callOutcome) {
	item, at := mcpCall(r), s.at[r.Call.ID]
	s.send("response.mcp_call."+item["status"].(string), object{
		"output_index": at, "item_id": r.Call.ID, "toolpost": progress(r, nil),
	})
	s.done(at, item)
}

func (s *responseWriter) end() {
	s.close()
	doc := s.response(s.list)
	kind := "response." + doc["status"].(string)
	s.out.Finish(kind, s.encode(kind, object{"response": doc}))
}

func (s *responseWriter) fail(e *tool.Error) {
	s.close()
	doc := s.response(s.list)
	doc["status"], doc["error"] = "failed", object{"code": "server_error", "message": e.Message}
	s.out.Finish("response.failed", s.encode("response.failed", object{"response": doc}))
}
