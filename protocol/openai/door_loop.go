package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/host/model"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// headerRetry tells the official clients whether to send a request again that has failed.
const headerRetry = "X-Should-Retry"

// A request is a conversation as it came, by whichever of the wires.
type request struct {
	model    string
	said     []model.Message
	wishes   []wish // what its tools name
	choice   model.Choice
	serial   bool
	settings model.Settings
	beta     []string
	stream   bool
	usage    bool // a stream is to end with its usage, where the wire leaves that to the caller
}

// A wish is a tool that a request names: one of ours, or else the caller's own, as the request defines it.
type wish struct {
	name string
	own  model.Tool
}

// A wire is one of the APIs that the door speaks.
type wire interface {
	// read reads the body of a request, which is a strict JSON object.
	read(body []byte) (*request, error)
	// whole writes the answer.
	whole(*transcript) []byte
	// speak answers with a stream.
	speak(*web.Stream, *transcript, *request) speaker
}

// A speaker tells of a conversation while it goes on. It is called by one goroutine at a time, and is the only one who
// knows what its wire makes of it. Errors of the peer end the request by its context.
type speaker interface {
	begin()
	turn()                  // the model begins another answer
	said(model.Part)        // a piece of what the model says
	called(ran)             // a call of ours begins
	event(ran, tool.Event)  // something happens in it
	ended(ran)              // it has ended
	handed(call model.Call) // a call is left to the caller
	end()                   // the transcript is complete
	fail(*tool.Error)
}

// A transcript is what was said and done in one request.
type transcript struct {
	id      string // without what wires put in front of it
	created time.Time
	model   string
	run     string
	turns   []*turn
	usage   model.Usage
	finish  model.Finish
	stopped *stop // the limit that ended it; nil: none did
}

// A turn is one answer of the model, and what came of the calls in it that are ours.
type turn struct {
	parts []part
	done  []ran
}

// A part is a piece of an answer.
type part struct {
	model.Part
	ours bool // of a call
}

// A loop is a request that is being answered.
type loop struct {
	*crew
	*transcript
	limits Limits
	talk   *model.Talk
	ask    *model.Request
	own    map[string]bool // names of the caller's tools
	rounds int
	calls  int
	ids    map[string]bool // of calls so far

	mu      sync.Mutex // around the speaker
	speaker speaker    // nil: the answer goes out as a whole
	heard   []*piece
}

// A piece is a part that comes bit by bit. Most have as many bits as words, and some have a million.
type piece struct {
	model.Part
	text, seal strings.Builder
}

// converse answers a request to a model.
func (s *server) converse(on wire) handler {
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
		base, timeout, err := readEnvelope(r.Header, p)
		if err != nil {
			return err
		}
		if base.Resume != "" || len(base.Answers) > 0 {
			return tool.Errorf(tool.CodeInvalidInput, "%s is about one call, and a model makes the calls here; leave it out",
				envelope.HeaderResume)
		}
		body, err := s.read(w, r)
		if err != nil {
			return err
		}
		req, err := on.read(body)
		if err != nil {
			return err
		}
		req.beta = r.Header.Values("Anthropic-Beta")
		ctx, end, refused := s.Begin(w, r, base)
		if refused != nil {
			return refused
		}
		defer end()
		l, err := s.newLoop(ctx, base, req)
		if err != nil {
			return err
		}
		s.ForgetBody(r)
		defer l.talk.Close()
		if timeout > 0 {
			l.limits.Time = min(l.limits.Time, config.Duration(timeout))
		}
		return l.answer(ctx, on, w, req)
	}
}

func (s *server) newLoop(ctx context.Context, base *tool.Call, req *request) (*loop, error) {
	if req.model == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the request names no model; GET /v1/models lists them")
	}
	m, err := s.Models.Models().For(base.Caller).Named(req.model)
	if err != nil {
		return nil, err
	}
	l := &loop{
		crew: &crew{server: s, base: base, most: maxResult}, limits: s.Limits, talk: m.Talk(), own: map[string]bool{},
		ids:        map[string]bool{},
		transcript: &transcript{id: newID(), created: time.Now(), model: req.model, run: base.Run},
		ask: &model.Request{Messages: req.said, Choice: req.choice, Serial: req.serial, Settings: req.settings,
			Beta: req.beta},
	}
	return l, l.offer(ctx, req)
}

// offer says which tools the model may use: those of ours that the request names, or all that its caller may use where
// it names none; and the caller's own.
func (l *loop) offer(ctx context.Context, req *request) error {
	all, offered := l.shelf(ctx, l.base.Caller), map[string]string{}
	add := func(name string, spec *tool.Spec) {
		if _, twice := offered[name]; !twice {
			offered[name] = spec.Name
			l.ask.Tools = append(l.ask.Tools, define(name, spec))
		}
	}
	if len(req.wishes) == 0 {
		for name, spec := range all.sorted() {
			add(name, spec)
		}
	}
	for _, w := range req.wishes {
		if name, spec := l.server.find(ctx, l.base.Caller, all, w.name); spec != nil {
			add(name, spec)
			if l.ask.Choice.Tool == w.name {
				l.ask.Choice.Tool = name
			}
			continue
		}
		if l.own[w.name] {
			return tool.Errorf(tool.CodeInvalidInput, "two tools are named %.100q", w.name)
		}
		l.own[w.name] = true
		l.ask.Tools = append(l.ask.Tools, w.own)
	}
	l.find = func(_ context.Context, name string) (string, bool) {
		t, ok := offered[name]
		return t, ok && l.ask.Choice.Lets(name)
	}
	if one := l.ask.Choice.Tool; one != "" && !slices.ContainsFunc(l.ask.Tools,
		func(t model.Tool) bool { return t.Name == one }) {
		return tool.Errorf(tool.CodeInvalidInput,
			"tool_choice names the tool %.100q, which is not among those of the request", one)
	}
	return nil
}

// answer runs the loop and answers. A stream is only begun when the model has begun to answer: until then whatever goes
// wrong has a status of its own.
func (l *loop) answer(ctx context.Context, on wire, w http.ResponseWriter, req *request) error {
	late := errors.New("the time of the request is over")
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(l.limits.Time), late)
	defer cancel()
	var open func()
	stop := func() {}
	if req.stream {
		open = sync.OnceFunc(func() {
			out := l.NewStream(w)
			stop = out.KeepAlive(l.Beat)
			l.speaker = on.speak(out, l.transcript, req)
			l.speaker.begin()
		})
		l.crew.heard = l.listen
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
	case err != nil && l.speaker != nil:
		l.Log.Warn("a request to a model failed", "model", l.model, "run", l.transcript.run, "error", err)
		l.speaker.fail(tool.AsError(err))
		return nil
	case err != nil:
		if l.calls > 0 { // the clients would make the same calls once more
			w.Header().Set(headerRetry, "false")
		}
		return err
	case l.speaker != nil:
		l.speaker.end()
		return nil
	}
	l.reply(w, on.whole(l.transcript))
	return nil
}

// run asks the model until it answers, leaves a call to the caller, or comes to a limit.
func (l *loop) run(ctx context.Context, open func()) error {
	for ; ; l.rounds++ {
		if why := l.limits.spent(l.rounds, l.usage, l.talk.Prices); why != nil {
			l.halt(why)
			return nil
		}
		answer, err := l.talk.Ask(ctx, l.ask, l.hearing(open))
		if err != nil {
			return err
		}
		l.heard = nil
		l.usage.Add(answer.Usage)
		t := l.take(answer)
		switch answer.Finish {
		case model.Called:
			if more, err := l.serve(ctx, answer, t); err != nil || !more {
				return err
			}
		case model.Paused:
			l.ask.Messages = append(l.ask.Messages, saidBy(answer))
		default:
			l.transcript.finish = answer.Finish
			t.dropCalls() // some were not finished
			return nil
		}
	}
}

// hearing passes on what the model says; nil: the answer goes out as a whole.
func (l *loop) hearing(open func()) *model.Listener {
	if open == nil {
		return nil
	}
	begun := func() {
		open()
		l.tell(speaker.turn)
	}
	return &model.Listener{Begun: begun, Said: func(p model.Part) error {
		l.heard = heard(l.heard, p)
		l.tell(func(s speaker) { s.said(p) })
		return nil
	}}
}

// heard adds a bit to those before it.
func heard(pieces []*piece, p model.Part) []*piece {
	last := len(pieces) - 1
	if last < 0 || p.Kind == model.Other || pieces[last].Kind != p.Kind || pieces[last].seal.Len() > 0 {
		pieces, last = append(pieces, &piece{Part: p}), last+1
	}
	pieces[last].text.WriteString(p.Text)
	pieces[last].seal.WriteString(p.Seal)
	return pieces
}

// whole is the part, as far as it has come.
func (p *piece) whole() model.Part {
	p.Text, p.Seal = p.text.String(), p.seal.String()
	return p.Part
}

func (l *loop) tell(what func(speaker)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.speaker != nil {
		what(l.speaker)
	}
}

// take adds an answer to the transcript.
func (l *loop) take(a *model.Answer) *turn {
	t := new(turn)
	for i, p := range a.Parts {
		if p.Kind == model.Calls {
			if l.ids[p.Call.ID] { // what came of each could not be told apart
				p.Call.ID = "call_" + newID()
				a.Parts[i] = p
			}
			l.ids[p.Call.ID] = true
		}
		// The caller does not get a call that it has ruled out: the model is told that there is no such tool, as of ours.
		left := l.own[p.Call.Name] && l.ask.Choice.Lets(p.Call.Name)
		t.parts = append(t.parts, part{p, p.Kind == model.Calls && !left})
	}
	l.turns = append(l.turns, t)
	return t
}

// newID makes an id as these wires have them, without what they put in front of it.
func newID() string { return strings.ReplaceAll(tool.NewID(), "-", "") }

// serve runs the calls of an answer that are ours. It reports whether the model is to go on: not where it has called a
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
	t.done = l.all(ctx, ours, func(r ran) { l.tell(func(s speaker) { s.ended(r) }) })
	if ctx.Err() != nil {
		return false, tool.Ended(ctx)
	}
	if len(ours) < len(answer.Calls()) {
		l.transcript.finish = model.Called
		return false, nil
	}
	told := model.Message{Role: model.ToolRole}
	for _, r := range t.done {
		told.Parts = append(told.Parts, model.Part{Kind: model.Results, Result: r.result})
	}
	l.ask.Messages = append(l.ask.Messages, saidBy(answer), told)
	if slices.ContainsFunc(ours, func(c model.Call) bool { return l.ask.Choice.Lets(c.Name) }) {
		l.ask.Choice = model.Choice{} // it was told to call a tool and has; told so again it would never answer
	}
	return true, nil
}

func saidBy(a *model.Answer) model.Message {
	return model.Message{Role: model.Assistant, Parts: a.Parts}
}

func (t *turn) dropCalls() {
	t.parts = slices.DeleteFunc(t.parts, func(p part) bool { return p.Kind == model.Calls })
}

// announce tells which calls begin, and which are left to the caller.
func (l *loop) announce(t *turn) {
	for _, p := range t.parts {
		switch {
		case p.Kind == model.Calls && p.ours:
			l.tell(func(s speaker) { s.called(ran{Call: p.Call}) })
		case p.Kind == model.Calls:
			l.tell(func(s speaker) { s.handed(p.Call) })
		}
	}
}

// listen hears what happens in a call.
func (l *loop) listen(r ran) tool.Sink {
	return tool.SinkFunc(func(e tool.Event) error {
		l.tell(func(s speaker) { s.event(r, e) })
		return nil
	})
}

// halt ends the conversation at a limit, and says so where the caller reads it.
func (l *loop) halt(why *stop) {
	l.stopped, l.transcript.finish = why, model.Length
	if len(l.heard) > 0 { // of an answer that did not come to its end
		t := new(turn)
		for _, p := range l.heard {
			t.parts = append(t.parts, part{Part: p.whole()})
		}
		l.turns = append(l.turns, t)
	}
	note := model.Part{Kind: model.Text, Text: why.words()}
	l.turns = append(l.turns, &turn{parts: []part{{Part: note}}})
	l.tell(speaker.turn)
	l.tell(func(s speaker) { s.said(note) })
}

// progress is what streams tell of a call between the words of the model.
func progress(r ran, e *tool.Event) json.RawMessage {
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
	if err != nil { // an event that is no JSON
		return json.RawMessage(`{}`)
	}
	return b
}
