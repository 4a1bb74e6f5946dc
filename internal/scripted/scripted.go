// Package scripted is a model server for tests. It plays a script in the wire formats of OpenAI's chat completions and
// Responses API and Anthropic's messages, whole or as a stream, and is as strict about requests as those servers are: it
// refuses a call without a result, or a result without a call.
package scripted

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Step is one answer of the model.
type Step struct {
	Thoughts string
	Text     string // in a stream, sent word by word
	Calls    []Call
	Finish   string // as the wire writes it; "" means what follows from the rest
	// In place of an answer:
	Status int               // an error, with Body
	Header map[string]string // of any answer
	Body   string
	Cut    bool            // the stream ends in the middle of the text
	Hold   <-chan struct{} // the answer waits until it is closed, or the client is gone
	Midway <-chan struct{} // a stream stops after its first word, or the first event of Body, until it is closed
	Bare   bool            // usage is left out
}

// A Call is a tool that the model calls.
type Call struct{ ID, Name, Args string }

// A Request is a request that the server received.
type Request struct {
	Path   string
	Query  string
	Header http.Header
	Body   map[string]any
	Text   string // of the body
}

// Tools lists the names of the offered tools.
func (r Request) Tools() (names []string) {
	list, _ := r.Body["tools"].([]any)
	for _, one := range list {
		t := one.(map[string]any)
		if f, ok := t["function"].(map[string]any); ok {
			t = f
		}
		names = append(names, t["name"].(string))
	}
	return names
}

// A Server plays a script, one step per request.
type Server struct {
	*httptest.Server
	mu     sync.Mutex
	steps  []Step
	always *Step
	got    []Request
	gone   int
}

// New starts a server. After the end of the script it answers with an error.
func New(t testing.TB, steps ...Step) *Server {
	t.Helper()
	s := &Server{steps: steps}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// Always makes the server repeat a step after the end of its script.
func (s *Server) Always(step Step) *Server {
	s.always = &step
	return s
}

// Then appends steps to the script.
func (s *Server) Then(steps ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, steps...)
}

// Script replaces the script, including any steps left.
func (s *Server) Script(steps ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = steps
}

// Asked returns the requests received so far.
func (s *Server) Asked() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// Gone returns how many clients disconnected before they were answered.
func (s *Server) Gone() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	req := Request{Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header, Text: string(body)}
	if err == nil {
		err = json.Unmarshal(body, &req.Body)
	}
	step, ok := s.next(req)
	complain := complaint(req)
	switch {
	case err != nil || r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		fail(w, http.StatusBadRequest, "this is no request")
	case complain != "":
		fail(w, http.StatusBadRequest, complain)
	case !ok:
		fail(w, http.StatusTeapot, "the script is at its end")
	default:
		s.play(w, r, req, step)
	}
}

func (s *Server) next(r Request) (Step, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, r)
	if len(s.steps) > 0 {
		step := s.steps[0]
		s.steps = s.steps[1:]
		return step, true
	}
	if s.always == nil {
		return Step{}, false
	}
	step := *s.always
	step.Calls = slices.Clone(step.Calls)
	for i := range step.Calls { // ids must be unique
		step.Calls[i].ID += fmt.Sprint("_", len(s.got))
	}
	return step, true
}

func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc{"type": "error", "error": doc{"type": "invalid_request_error", "message": message}})
}

func (s *Server) play(w http.ResponseWriter, r *http.Request, req Request, step Step) {
	for name, value := range step.Header {
		w.Header().Set(name, value)
	}
	if step.Status != 0 {
		if step.Header["Content-Type"] == "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(step.Status)
		first, rest, _ := strings.Cut(step.Body, "\n\n")
		if step.Midway != nil {
			_, _ = io.WriteString(w, first+"\n\n")
			_ = http.NewResponseController(w).Flush()
			<-step.Midway
			step.Body = rest
		}
		_, _ = io.WriteString(w, step.Body)
		return
	}
	if step.Hold != nil {
		select {
		case <-step.Hold:
		case <-r.Context().Done():
			s.mu.Lock()
			s.gone++
			s.mu.Unlock()
			return
		}
	}
	stream, _ := req.Body["stream"].(bool)
	anthropic := strings.HasSuffix(req.Path, "/messages")
	switch {
	case strings.HasSuffix(req.Path, "/responses"):
		answerResponse(w, step, stream)
	case stream && anthropic:
		streamMessage(w, step)
	case stream:
		streamCompletion(w, step, req)
	case anthropic:
		whole(w, message(step))
	default:
		whole(w, completion(step))
	}
}

type doc = map[string]any

func whole(w http.ResponseWriter, d doc) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(d)
}

// complaint returns why a real server would refuse a request, or "" if it would not.
func complaint(r Request) string {
	list, _ := r.Body["messages"].([]any)
	if strings.HasSuffix(r.Path, "/responses") {
		return responsesComplaint(r)
	}
	if strings.HasSuffix(r.Path, "/embeddings") || strings.HasSuffix(r.Path, "/compact") {
		return ""
	}
	if len(list) == 0 || r.Body["model"] == "" {
		return "messages and model are required"
	}
	if strings.HasSuffix(r.Path, "/messages") {
		return messagesComplaint(r, list)
	}
	open := map[string]bool{}
	for _, one := range list {
		m := one.(map[string]any)
		for name := range m {
			if !slices.Contains([]string{"role", "content", "name", "tool_calls", "tool_call_id", "refusal",
				"reasoning_content"}, name) {
				return "additional properties are not allowed: " + name
			}
		}
		if m["role"] == "tool" {
			id, _ := m["tool_call_id"].(string)
			if !open[id] {
				return "a message of the role tool answers no tool call: " + id
			}
			delete(open, id)
			continue
		}
		if len(open) > 0 {
			return fmt.Sprint("tool calls without a result: ", open)
		}
		calls, _ := m["tool_calls"].([]any)
		for _, c := range calls {
			open[c.(map[string]any)["id"].(string)] = true
		}
	}
	if len(open) > 0 {
		return fmt.Sprint("tool calls without a result: ", open)
	}
	return ""
}

func messagesComplaint(r Request, list []any) string {
	if r.Header.Get("Anthropic-Version") == "" || r.Body["max_tokens"] == nil {
		return "anthropic-version and max_tokens are required"
	}
	if t, _ := r.Body["thread"].(map[string]any); t["type"] == "continue" && t["previous_message_id"] == "msg_7" {
		return "" // the server has the earlier messages
	}
	open, last := map[string]bool{}, "assistant"
	for _, one := range list {
		m := one.(map[string]any)
		if m["role"] == last {
			return "roles must alternate"
		}
		last = m["role"].(string)
		blocks, isList := m["content"].([]any)
		if !isList && len(open) > 0 || isList && len(blocks) == 0 {
			return "content is missing"
		}
		calls := map[string]bool{}
		for _, one := range blocks {
			b := one.(map[string]any)
			switch b["type"] {
			case "tool_use":
				calls[b["id"].(string)] = true
				if _, ok := b["input"].(map[string]any); !ok {
					return "input must be an object"
				}
			case "tool_result":
				if !open[b["tool_use_id"].(string)] {
					return "a tool_result answers no tool_use"
				}
				delete(open, b["tool_use_id"].(string))
			}
		}
		if len(open) > 0 {
			return fmt.Sprint("tool_use without tool_result: ", open)
		}
		open = calls
	}
	if len(open) > 0 || last != "user" {
		return "the last message must be the user's, with all results"
	}
	return ""
}

// midway runs the actions after the first word of a stream.
func (s Step) midway(word int) {
	if word != 1 {
		return
	}
	if s.Cut {
		panic(http.ErrAbortHandler)
	}
	if s.Midway != nil {
		<-s.Midway
	}
}

// words splits a text into the pieces of a stream.
func words(text string) []string { return strings.SplitAfter(text, " ") }

func (s Step) finish(stop, called string) string {
	switch {
	case s.Finish != "":
		return s.Finish
	case len(s.Calls) > 0:
		return called
	}
	return stop
}

func completion(s Step) doc {
	m := doc{"role": "assistant", "content": nil, "refusal": nil, "annotations": []any{}}
	if s.Text != "" {
		m["content"] = s.Text
	}
	if s.Thoughts != "" {
		m["reasoning_content"] = s.Thoughts
	}
	var calls []doc
	for _, c := range s.Calls {
		calls = append(calls, doc{"id": c.ID, "type": "function", "function": doc{"name": c.Name, "arguments": c.Args}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	d := doc{
		"id": "chatcmpl-7", "object": "chat.completion", "created": 1700000000, "model": "m-1", "system_fingerprint": "fp",
		"choices": []doc{{"index": 0, "message": m, "logprobs": nil, "finish_reason": s.finish("stop", "tool_calls")}},
	}
	if !s.Bare {
		d["usage"] = usage
	}
	return d
}

var usage = doc{
	"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
	"prompt_tokens_details": doc{"cached_tokens": 40}, "completion_tokens_details": doc{"reasoning_tokens": 4},
}

// A feed writes server-sent events.
type feed struct{ http.ResponseWriter }

func newFeed(w http.ResponseWriter) feed {
	w.Header().Set("Content-Type", "text/event-stream")
	return feed{w}
}

func (f feed) send(event string, d doc) {
	b, _ := json.Marshal(d)
	if event != "" {
		_, _ = fmt.Fprintf(f, "event: %s\n", event)
	}
	_, _ = fmt.Fprintf(f, "data: %s\n\n", b)
	_ = http.NewResponseController(f.ResponseWriter).Flush()
}

func streamCompletion(w http.ResponseWriter, s Step, r Request) {
	out := newFeed(w)
	send := func(choices []doc, usage any) {
		out.send("", doc{"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1700000000, "model": "m-1",
			"choices": choices, "usage": usage})
	}
	chunk := func(delta doc, finish any) {
		send([]doc{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}}, nil)
	}
	chunk(doc{"role": "assistant", "content": "", "refusal": nil}, nil)
	if s.Thoughts != "" {
		chunk(doc{"reasoning_content": s.Thoughts}, nil)
	}
	for i, word := range words(s.Text) {
		s.midway(i)
		chunk(doc{"content": word}, nil)
	}
	for i, c := range s.Calls {
		chunk(doc{"tool_calls": []doc{{"index": i, "id": c.ID, "type": "function", "function": doc{"name": c.Name,
			"arguments": ""}}}}, nil)
		for half := range halves(c.Args) {
			chunk(doc{"tool_calls": []doc{{"index": i, "function": doc{"arguments": half}}}}, nil)
		}
	}
	chunk(doc{}, s.finish("stop", "tool_calls"))
	if o, ok := r.Body["stream_options"].(map[string]any); ok && o["include_usage"] == true && !s.Bare {
		send([]doc{}, usage)
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// halves yields a text in two pieces.
func halves(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		_ = yield(text[:len(text)/2]) && yield(text[len(text)/2:])
	}
}

func message(s Step) doc {
	blocks := []doc{}
	if s.Thoughts != "" {
		blocks = append(blocks, doc{"type": "thinking", "thinking": s.Thoughts, "signature": "sealed"})
	}
	if s.Text != "" {
		blocks = append(blocks, doc{"type": "text", "text": s.Text})
	}
	for _, c := range s.Calls {
		blocks = append(blocks, doc{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(c.Args)})
	}
	return doc{
		"id": "msg_7", "type": "message", "role": "assistant", "model": "m-1", "content": blocks,
		"stop_reason": s.finish("end_turn", "tool_use"), "stop_sequence": nil,
		"usage": messageUsage(10),
	}
}

func messageUsage(out int) doc {
	return doc{"input_tokens": 60, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 0, "output_tokens": out}
}

func streamMessage(w http.ResponseWriter, s Step) {
	out := newFeed(w)
	whole := message(s)
	blocks := whole["content"].([]doc)
	start := maps.Clone(whole)
	start["content"], start["stop_reason"], start["usage"] = []doc{}, nil, messageUsage(1)
	out.send("message_start", doc{"type": "message_start", "message": start})
	out.send("ping", doc{"type": "ping"})
	for i, b := range blocks {
		streamBlock(out, i, b, s)
	}
	out.send("message_delta", doc{"type": "message_delta", "delta": doc{"stop_reason": whole["stop_reason"],
		"stop_sequence": nil}, "usage": doc{"output_tokens": 10}})
	out.send("message_stop", doc{"type": "message_stop"})
}

func streamBlock(out feed, i int, b doc, s Step) {
	delta := func(d doc) {
		out.send("content_block_delta", doc{"type": "content_block_delta", "index": i, "delta": d})
	}
	begin := func(d doc) {
		out.send("content_block_start", doc{"type": "content_block_start", "index": i, "content_block": d})
	}
	switch b["type"] {
	case "thinking":
		begin(doc{"type": "thinking", "thinking": "", "signature": ""})
		delta(doc{"type": "thinking_delta", "thinking": b["thinking"]})
		delta(doc{"type": "signature_delta", "signature": b["signature"]})
	case "text":
		begin(doc{"type": "text", "text": ""})
		for n, word := range words(b["text"].(string)) {
			s.midway(n)
			delta(doc{"type": "text_delta", "text": word})
		}
	case "tool_use":
		begin(doc{"type": "tool_use", "id": b["id"], "name": b["name"], "input": doc{}})
		delta(doc{"type": "input_json_delta", "partial_json": ""})
		for half := range halves(string(b["input"].(json.RawMessage))) {
			delta(doc{"type": "input_json_delta", "partial_json": half})
		}
	}
	out.send("content_block_stop", doc{"type": "content_block_stop", "index": i})
}
