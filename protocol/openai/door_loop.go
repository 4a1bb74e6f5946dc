package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/codesearch/toolfind"
	"toolpost/config"
	"toolpost/model"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

const (
	headerRetry   = "X-Should-Retry"    // tells the official clients whether to retry a failed request
	headerLeftOut = "Toolpost-Left-Out" // names tools that cannot be given to the model's server
)

// A request is a decoded conversation, from any of the wires.
type request struct {
	model    string
	messages []model.Message
	tools    []requestedTool // the tools that it names
	found    []requestedTool // tools that the caller has found since, when the model searched
	choice   model.Choice
	allowed  []string // if not nil, the only tools that may be used
	misread  error    // why the choice was not understood, or nil
	serial   bool
	settings model.Settings
	stream   bool
	usage    bool // whether a stream ends with its usage, if the wire leaves that to the caller

	ours        bool  // part of the conversation was added by us in an earlier answer
	unsupported error // why a server of another API cannot be asked, or nil
	header      http.Header
	query       string
}

// setUnsupported records a part that only a server of the same API understands.
func (r *request) setUnsupported(err error) {
	if r.unsupported == nil {
		r.unsupported = err
	}
}

// A requestedTool is a tool that a request names: one of ours, or the caller's own, as the request defines it.
type requestedTool struct {
	name   string
	own    model.Tool
	origin *toolOrigin // if the caller's tool is not among its functions
	hosted bool        // the model's server runs it
	bare   bool        // it has only a name
}

// A wire is one of the APIs that the door speaks.
type wire interface {
	api() model.API
	// read reads the body of a request, which is a strict JSON object.
	read(body []byte) (*request, error)
	// list is the member with the conversation.
	list() string
	// document writes the answer as one document.
	document(*transcript) []byte
	// newWriter answers with a stream.
	newWriter(*web.Stream, *transcript, *request) streamWriter
}

// A streamWriter streams a conversation while it goes on. It is called by one goroutine at a time, and it alone knows
// the form of its wire. An error of the peer ends the request by its context.
type streamWriter interface {
	begin()
	turn()                      // the model begins another answer
	part(model.Part)            // a piece of the model's answer
	callerCall(call model.Call) // a call is left to the caller
	callWriter
	end() // the transcript is complete
	fail(*tool.Error)
}

// A callWriter streams the calls of our tools.
type callWriter interface {
	called(callOutcome)            // a call begins
	event(callOutcome, tool.Event) // something happens in it
	ended(callOutcome)             // it has ended
}

// A transcript records the conversation and the calls of one request.
type transcript struct {
	id      string // without the prefix of the wire
	created time.Time
	model   string
	run     string
	turns   []*turn
	origins map[string]*toolOrigin // of the caller's tools
	usage   model.Usage
	finish  model.Finish
	stopped *stop                      // the limit that ended it, or nil
	rest    map[string]json.RawMessage // members of the server's last answer, if it speaks the API of the request
	spent   json.RawMessage            // the sum of its usage, in its own terms
}

// A turn is one answer of the model, and the outcomes of our calls in it.
type turn struct {
	parts []part
	done  []callOutcome
}

// A part is a part of an answer.
type part struct {
	model.Part
	ours bool // a call of one of our tools
}

// A loop is a request that is being answered.
type loop struct {
	*executor
	*transcript
	limits  Limits
	talk    *model.Talk
	ask     *model.Request
	own     map[string]bool // names of the caller's tools
	rounds  int
	calls   int
	ids     map[string]bool // of the calls so far
	omitted []string        // tools that cannot be given to the server

	mu      sync.Mutex   // guards writer
	writer  streamWriter // nil if the answer is sent as one document
	partial []*piece
	to      http.Header // of the answer
}

// A piece is a part that arrives bit by bit. Most have as many bits as words, and some have a million.
type piece struct {
	model.Part
	text, seal strings.Builder
}

// converse answers a request to a model.
func (s *server) converse(on wire) handler {
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
		if asked := r.Header.Get(headerTools); !slices.Contains([]string{"", "offer", "named"}, asked) {
			return tool.Errorf(tool.CodeInvalidInput, "%s is offer or named, not %.60q", headerTools, asked)
		}
		offer := r.Header.Get(headerTools) == "offer"
		r.Header.Del(headerTools)
		base, timeout, err := readEnvelope(r.Header, p)
		if err != nil {
			return err
		}
		if base.Resume != "" || len(base.Answers) > 0 {
			return tool.Errorf(tool.CodeInvalidInput, "%s is about one call, and a model makes the calls here; leave it out",
				envelope.HeaderResume)
		}
		body, m, err := s.readForModel(w, r, p)
		if err != nil {
			return err
		}
		ctx, end, refused := s.Begin(w, r, base)
		if refused != nil {
			return refused
		}
		defer end()
		if s.passes(ctx, on, m, offer, p, body) {
			return s.relay(ctx, on, m, m.Route(), w, r, body, s.limit(timeout))
		}
		req, err := on.read(body)
		if err != nil {
			return err
		}
		req.header, req.query = r.Header, query(r)
		l := s.newLoop(base, m, on, req, body)
		defer l.talk.Close()
		if err := l.offer(ctx, on, req, offers(m, offer, members(body)["tools"])); err != nil {
			return err
		}
		s.ForgetBody(r)
		l.limits.Time = config.Duration(s.limit(timeout))
		return l.answer(ctx, on, w, req)
	}
}

// newLoop begins a conversation. A server of the same API gets the request as it came, except for what we added to it.
func (s *server) newLoop(base *tool.Call, m *model.Model, on wire, req *request, body []byte) *loop {
	l := &loop{
		executor: &executor{server: s, base: base, maxBytes: maxResult, awaitApproval: req.stream},
		limits:   s.Limits, talk: m.Talk(),
		own: map[string]bool{}, ids: map[string]bool{},
		transcript: &transcript{id: newID(), created: time.Now(), model: req.model, run: base.Run,
			origins: map[string]*toolOrigin{}},
		ask: &model.Request{Messages: req.messages, Choice: req.choice, Serial: req.serial, Settings: req.settings,
			Of: on.api(), Header: req.header, Query: req.query},
	}
	if l.ask.Base = members(body); req.ours {
		delete(l.ask.Base, on.list())
	} else {
		l.ask.InBase = len(req.messages)
	}
	return l
}

// offer sets the tools that the model may use: those of ours that the request names, or all that its caller may use if
// it asks for that; and the caller's own.
func (l *loop) offer(ctx context.Context, on wire, req *request, everything bool) error {
	if on.api() != l.talk.API && req.unsupported != nil {
		return req.unsupported
	}
	all, offered := l.toolset(ctx, l.base.Caller), map[string]string{}
	ours := func(w requestedTool) bool { return l.server.ours(ctx, l.base.Caller, all, w) != nil }
	if (req.misread != nil || req.allowed != nil) &&
		(everything || on.api() != l.talk.API || slices.ContainsFunc(req.tools, ours)) {
		if req.misread != nil {
			return req.misread
		}
		l.ask.Choice.Raw = nil // a server might ignore the list, or have no form for it, so it gets only what is allowed
		for _, list := range []*[]requestedTool{&req.tools, &req.found} {
			*list = slices.DeleteFunc(*list, func(w requestedTool) bool { return !req.allows(w.name) })
		}
	}
	add := func(name string, spec *tool.Spec) {
		if _, twice := offered[name]; !twice {
			offered[name] = spec.Name
			l.ask.Tools = append(l.ask.Tools, define(name, spec))
		}
	}
	if everything {
		list := slices.DeleteFunc(all.sorted(), func(t toolfind.Named) bool { return !req.allows(t.Name) && !req.allows(t.Spec.Name) })
		for _, t := range l.Few(list) {
			add(t.Name, t.Spec)
		}
		if l.Above.Are(len(list)) {
			l.searchable = list
			for _, t := range list {
				if !toolfind.IsStandIn(t.Name) {
					offered[t.Name] = t.Spec.Name
				}
			}
		}
	}
	for _, w := range req.tools {
		name, spec := l.server.find(ctx, l.base.Caller, all, w.name)
		switch {
		case spec != nil && ours(w):
			if add(name, spec); l.ask.Choice.Tool == w.name {
				l.ask.Choice = model.Choice{Mode: model.One, Tool: name}
			}
			continue
		case w.hosted && l.talk.API != on.api():
			l.omitted = append(l.omitted, w.name)
			continue
		case l.own[w.name]:
			return tool.Errorf(tool.CodeInvalidInput, "two tools are named %.100q", w.name)
		}
		l.own[w.name], l.origins[w.name] = true, w.origin
		inside := w.origin != nil && w.origin.namespace != "" && l.talk.API == on.api()
		if last := len(l.ask.Tools) - 1; !inside || last < 0 || !bytes.Equal(l.ask.Tools[last].Raw, w.own.Raw) {
			l.ask.Tools = append(l.ask.Tools, w.own)
		}
	}
	for _, w := range req.found {
		if !l.own[w.name] && l.talk.API != on.api() { // a server of this API already knows what was found
			l.ask.Tools = append(l.ask.Tools, w.own)
		}
		l.own[w.name], l.origins[w.name] = true, w.origin
	}
	l.find = func(_ context.Context, name string) (string, bool) {
		t, ok := offered[name]
		return t, ok && (l.ask.Choice.Lets(name) || l.searchable != nil && l.ask.Choice.Tool == toolfind.NameCall)
	}
	if one := l.ask.Choice.Tool; one != "" && !slices.ContainsFunc(l.ask.Tools,
		func(t model.Tool) bool { return t.Name == one }) {
		return tool.Errorf(tool.CodeInvalidInput,
			"tool_choice names the tool %.100q, which is not among those of the request", one)
	}
	return nil
}

// allows reports whether a request's list of allowed tools, if it has one, has a tool.
func (r *request) allows(name string) bool {
	return r.allowed == nil || slices.Contains(r.allowed, name)
}

// answer runs the loop and answers. A stream begins only when the model has begun to answer: until then an error has a
// status of its own.
func (l *loop) answer(ctx context.Context, on wire, w http.ResponseWriter, req *request) error {
	late := errors.New("the time of the request is over")
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(l.limits.Time), late)
	defer cancel()
	l.to = w.Header()
	var open func()
	stop := func() {}
	if len(l.omitted) > 0 {
		w.Header().Set(headerLeftOut, strings.Join(l.omitted, ", "))
	}
	if req.stream {
		open = sync.OnceFunc(func() {
			out := l.NewStream(w)
			stop = out.KeepAlive(l.Beat)
			l.writer = on.newWriter(out, l.transcript, req)
			l.writer.begin()
		})
		l.executor.sink = l.eventSink
	}
	err := l.run(ctx, open)
	if err != nil && errors.Is(context.Cause(ctx), late) {
		if req.stream {
			open()
		}
		l.halt(l.limits.late())
		err = nil
	}
	stop()
	switch {
	case err != nil && l.writer != nil:
		l.Log.Warn("a request to a model failed", "model", l.model, "run", l.transcript.run, "error", err)
		l.writer.fail(tool.AsError(err))
		return nil
	case err != nil:
		if l.calls > 0 { // a retry would repeat the calls
			w.Header().Set(headerRetry, "false")
		}
		return err
	case l.writer != nil:
		l.writer.end()
		return nil
	}
	l.reply(w, on.document(l.transcript))
	return nil
}

// run asks the model until it answers, leaves a call to the caller, or reaches a limit.
func (l *loop) run(ctx context.Context, open func()) error {
	for ; ; l.rounds++ {
		if why := l.limits.spent(l.rounds, l.usage, l.talk.Prices); why != nil {
			l.halt(why)
			return nil
		}
		answer, err := l.talk.Ask(ctx, l.ask, l.listener(open))
		if err != nil {
			return err
		}
		if l.partial = nil; open == nil {
			l.passOn(answer.Header)
		}
		l.usage.Add(answer.Usage)
		if l.ask.Of == l.talk.API {
			l.rest, l.spent = answer.Rest, addUsage(l.spent, answer.Rest["usage"])
		}
		t := l.take(answer)
		switch answer.Finish {
		case model.Called:
			if more, err := l.serve(ctx, answer, t); err != nil || !more {
				return err
			}
		case model.Paused:
			l.ask.Messages = append(l.ask.Messages, answerMessage(answer))
		default:
			l.transcript.finish = answer.Finish
			t.dropCalls() // some are incomplete
			return nil
		}
	}
}

// passOn copies the server's headers to the answer, if both speak the same API. The content type is ours.
func (l *loop) passOn(h http.Header) {
	if l.ask.Of == l.talk.API {
		delete(h, "Content-Type")
		maps.Copy(l.to, h)
	}
}

// listener forwards the model's answer as it arrives; it returns nil if the answer is sent as one document.
func (l *loop) listener(open func()) *model.Listener {
	if open == nil {
		return nil
	}
	begun := func(h http.Header) {
		l.passOn(h)
		open()
		l.write(streamWriter.turn)
	}
	return &model.Listener{Begun: begun, Said: func(p model.Part) error {
		if p.Kind == model.Other || p.Raw == nil {
			l.partial = appendPiece(l.partial, p)
		}
		l.write(func(s streamWriter) { s.part(p) })
		return nil
	}}
}

// appendPiece adds a bit to the pieces.
func appendPiece(pieces []*piece, p model.Part) []*piece {
	last := len(pieces) - 1
	if last < 0 || p.Kind == model.Other || pieces[last].Kind != p.Kind || pieces[last].seal.Len() > 0 {
		pieces, last = append(pieces, &piece{Part: p}), last+1
	}
	pieces[last].text.WriteString(p.Text)
	pieces[last].seal.WriteString(p.Seal)
	return pieces
}

// whole returns the part, as far as it has arrived.
func (p *piece) whole() model.Part {
	p.Text, p.Seal = p.text.String(), p.seal.String()
	return p.Part
}

func (l *loop) write(what func(streamWriter)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer != nil {
		what(l.writer)
	}
}

// take adds an answer to the transcript.
func (l *loop) take(a *model.Answer) *turn {
	t := new(turn)
	for i, p := range a.Parts {
		if p.Kind == model.Calls {
			if l.ids[p.Call.ID] { // their outcomes could not be told apart
				p.Call.ID, p.Raw = "call_"+newID(), nil
				a.Parts[i] = p
			}
			l.ids[p.Call.ID] = true
		}
		// The caller does not get a call that it has ruled out: the model is told that the tool does not exist, as with
		// ours.
		forCaller := l.own[p.Call.Name] && l.ask.Choice.Lets(p.Call.Name)
		t.parts = append(t.parts, part{p, p.Kind == model.Calls && !forCaller})
	}
	l.turns = append(l.turns, t)
	return t
}

// newID returns an id for these wires, without their prefix.
func newID() string { return strings.ReplaceAll(tool.NewID(), "-", "") }

// serve runs our calls in an answer. It reports whether the model is to continue, which it is not if it has called a
// tool of the caller's.
func (l *loop) serve(ctx context.Context, answer *model.Answer, t *turn) (more bool, err error) {
	var ours []model.Call
	for _, p := range t.parts {
		if p.ours {
			ours = append(ours, p.Call)
		}
	}
	if why := l.limits.calls(l.calls, len(ours)); why != nil {
		t.dropCalls()
		l.halt(why)
		return false, nil
	}
	l.announce(t)
	l.calls += len(ours)
	t.done = l.runAll(ctx, ours, func(r callOutcome) { l.write(func(s streamWriter) { s.ended(r) }) })
	if ctx.Err() != nil {
		return false, tool.Ended(ctx)
	}
	if why := unapproved(t.done); why != nil {
		l.halt(why)
		return false, nil
	}
	if len(ours) < len(answer.Calls()) {
		l.transcript.finish = model.Called
		return false, nil
	}
	results := model.Message{Role: model.ToolRole}
	for _, r := range t.done {
		results.Parts = append(results.Parts, model.Part{Kind: model.Results, Result: r.result})
	}
	l.ask.Messages = append(l.ask.Messages, answerMessage(answer), results)
	if slices.ContainsFunc(ours, func(c model.Call) bool { return l.ask.Choice.Lets(c.Name) }) {
		l.ask.Choice = model.Choice{} // it had to call a tool and has; with the same choice it would never answer
	}
	return true, nil
}

func answerMessage(a *model.Answer) model.Message {
	return model.Message{Role: model.Assistant, Parts: a.Parts}
}

func (t *turn) dropCalls() {
	t.parts = slices.DeleteFunc(t.parts, func(p part) bool { return p.Kind == model.Calls })
}

// announce reports the calls that begin, and those that are left to the caller.
func (l *loop) announce(t *turn) {
	for _, p := range t.parts {
		switch {
		case p.Kind == model.Calls && p.ours:
			l.write(func(s streamWriter) { s.called(callOutcome{Call: p.Call}) })
		case p.Kind == model.Calls:
			l.write(func(s streamWriter) { s.callerCall(p.Call) })
		}
	}
}

// eventSink returns a sink that forwards the events of a call.
func (l *loop) eventSink(r callOutcome) tool.Sink {
	return tool.SinkFunc(func(e tool.Event) error {
		l.write(func(s streamWriter) { s.event(r, e) })
		return nil
	})
}

// halt ends the conversation at a limit, and adds a note to the answer.
func (l *loop) halt(why *stop) {
	if l.stopped, l.transcript.finish = why, model.Length; why.limit == tool.AskApproval {
		l.transcript.finish = model.Stopped
	}
	if len(l.partial) > 0 { // of an answer that was interrupted
		t := new(turn)
		for _, p := range l.partial {
			t.parts = append(t.parts, part{Part: p.whole()})
		}
		l.turns = append(l.turns, t)
	}
	note := model.Part{Kind: model.Text, Text: why.words()}
	l.turns = append(l.turns, &turn{parts: []part{{Part: note}}})
	l.write(streamWriter.turn)
	l.write(func(s streamWriter) { s.part(note) })
}

// progress is the report on a call that streams send between the words of the model.
func progress(r callOutcome, e *tool.Event) json.RawMessage {
	doc := object{"tool_call_id": r.Call.ID, "name": r.Name, "state": cmp.Or(string(r.outcome), "running")}
	if r.id != "" {
		doc["call"] = r.id
	}
	if e != nil {
		doc["event"] = object{"kind": e.Kind, "data": e.Data}
	} else if r.outcome == "" {
		doc["arguments"] = r.Args
	}
	if r.code != "" {
		doc["code"] = r.code
	}
	b, err := strictjson.Marshal(doc)
	if err != nil { // an event that is not JSON
		return json.RawMessage(`{}`)
	}
	return b
}
