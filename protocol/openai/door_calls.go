package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/codesearch/toolfind"
	"toolpost/host/model"
	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

const (
	maxAtOnce = 16        // calls of one request that run at the same time
	maxResult = 256 << 10 // bytes of a call's result that a model gets
	maxAssets = 64        // files and choices of a call that a model gets
)

// A crew makes the calls of one request. All of them go through the engine, even those of tools that do not exist, so
// that each is recorded.
type crew struct {
	*server
	base *tool.Call // what its calls have in common
	// find returns the tool for a name on the wire.
	find func(ctx context.Context, name string) (tool string, ok bool)
	// single means that the request is one call: the properties of the request are those of the call.
	single bool
	waits  bool                // for approvals; otherwise the call ends with the question
	most   int                 // bytes of a result that are returned; 0 means all of it
	heard  func(ran) tool.Sink // receives the events of a running call
	behind []toolfind.Named    // tools that the model finds by a search, since they are too many to be listed

	mu   sync.Mutex
	keys map[string]int // how often each call was made
}

// A ran is a call and its outcome.
type ran struct {
	model.Call
	id      string // of the call
	result  model.Result
	outcome tool.Outcome // "" while it runs
	code    tool.Code
	reason  string
	ask     *tool.Ask
	events  []object // for the caller's interface
}

// all makes calls concurrently, and reports each when it has ended.
func (c *crew) all(ctx context.Context, calls []model.Call, ended func(ran)) []ran {
	done := make([]ran, len(calls))
	var g errgroup.Group
	g.SetLimit(maxAtOnce)
	for i, call := range calls {
		meant, answer := c.standIn(ctx, call)
		var one *tool.Call
		if answer.outcome == "" {
			one = c.prepare(ctx, meant)
		}
		g.Go(func() error {
			if done[i] = answer; one != nil {
				done[i] = c.one(ctx, call, one)
			}
			if ended != nil {
				ended(done[i])
			}
			return nil
		})
	}
	_ = g.Wait() // failures are returned to the model
	return done
}

// standIn answers a search among the unlisted tools, or a question about one of them. A call_tool becomes the call that
// it names. Any other call stays as it is.
func (c *crew) standIn(ctx context.Context, call model.Call) (meant model.Call, answer ran) {
	if _, offered := c.find(ctx, call.Name); !offered || c.behind == nil || !toolfind.IsStandIn(call.Name) {
		return call, ran{}
	}
	var text string
	var err error
	if args := json.RawMessage(call.Args); call.Name == toolfind.NameCall {
		meant.ID = call.ID
		if meant.Name, args, err = toolfind.Meant(args); err == nil {
			meant.Args = string(args)
			return meant, ran{}
		}
	} else {
		text, err = c.finder.Answer(ctx, call.Name, args, c.behind, c.describe)
	}
	answer = ran{Call: call}
	if answer.outcome, answer.code, answer.reason = tool.OutcomeOf(&tool.Result{OK: true}, err); err != nil {
		text = tool.AsError(err).Message
	}
	answer.result = model.TextResult(call.ID, c.clip(text), err != nil)
	return call, answer
}

// describe encodes one of the unlisted tools, or returns nil.
func (c *crew) describe(name string) json.RawMessage {
	spec := toolfind.Find(c.behind, name)
	if spec == nil {
		return nil
	}
	text, _ := strictjson.Marshal(flatDefinition(define(name, spec))) // a schema that was checked
	return text
}

// prepare returns the engine's call for a model's call. A tool that was not offered is called with a caller that may
// use none: the engine then reports that it does not exist, as for a tool that the caller may not see.
func (c *crew) prepare(ctx context.Context, call model.Call) *tool.Call {
	one := *c.base
	if !c.single {
		one.ID = tool.NewID()
	}
	name, ok := c.find(ctx, call.Name)
	if one.Tool = name; !ok {
		one.Tool = call.Name
		one.Caller.Rights = &tool.Rights{Roles: one.Caller.Roles(), Tools: tool.Patterns{}}
	}
	if one.Args = json.RawMessage(call.Args); strings.TrimSpace(call.Args) == "" {
		one.Args = json.RawMessage("{}")
	}
	if one.Key != "" && !c.single { // it is the key of the whole request, which may make the same call more than once
		same := one.Tool + "\x00" + string(one.Args)
		c.mu.Lock()
		if c.keys == nil {
			c.keys = map[string]int{}
		}
		c.keys[same]++
		one.Key = tool.NameFor("key", one.Key, same, strconv.Itoa(c.keys[same]))
		c.mu.Unlock()
	}
	return &one
}

// one makes a call, and puts its outcome into words.
func (c *crew) one(ctx context.Context, call model.Call, one *tool.Call) ran {
	r := ran{Call: call, id: one.ID}
	files := &made{Sink: tool.Discard}
	if c.heard != nil {
		files.Sink = c.heard(r)
	}
	res, err := c.invoke(ctx, one, files, c.waits)
	r.outcome, r.code, r.reason = tool.OutcomeOf(res, err)
	r.events = files.events
	var text string
	failed := true
	switch {
	case err != nil:
		text = tool.AsError(err).Message
	case res.Ask != nil:
		text, r.ask = asks(call.Name, res.Ask), res.Ask
	case !res.OK && res.Failure != nil:
		text = res.Failure.Message
	default:
		text, failed = modeltext.Plain(modeltext.Of(res)), !res.OK
	}
	r.result = model.TextResult(call.ID, c.clip(text)+files.words(), failed)
	return r
}

// asks puts a tool's question into words, for a model that can tell the user.
func asks(name string, a *tool.Ask) string {
	said := []string{a.Message}
	for _, n := range a.Needs {
		said = append(said, n.Message)
	}
	return fmt.Sprintf("%s did not finish, because it asks: %s. Nobody can answer it here; tell the user what it asks",
		name, strings.Join(said, " "))
}

// clip shortens a result to the limit for models.
func (c *crew) clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if c.most == 0 || len(text) <= c.most {
		return text
	}
	kept := strings.ToValidUTF8(text[:c.most], "")
	return fmt.Sprintf("%s\n[cut off here: %d more bytes; ask for less at a time]", kept, len(text)-len(kept))
}

// made records the files of a call and its events for the interface, and forwards its events.
type made struct {
	tool.Sink
	mu     sync.Mutex
	list   []string
	more   int
	events []object
	size   int // of their data
}

// Emit implements tool.Sink.
func (m *made) Emit(e tool.Event) error {
	var file tool.Asset
	switch {
	case e.Kind == tool.KindAsset && strictjson.Unmarshal(e.Data, &file) == nil && file.SHA256 != "":
		m.note(fmt.Sprintf("[file %s (%s, %d bytes): /v1/assets/%s]", tool.Visible(file.AssetID),
			tool.Visible(file.MediaType), file.Size, file.SHA256))
	case e.Kind == tool.KindUIEvent:
		m.show(e)
	}
	return m.Sink.Emit(e)
}

func (m *made) note(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) == maxAssets {
		m.more++
		return
	}
	m.list = append(m.list, line)
}

// show keeps an event for the caller's interface, and notes its choices for the model.
func (m *made) show(e tool.Event) {
	if words := modeltext.Offered(e.Data); words != "" {
		m.note(words)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.size += len(e.Data); m.size <= maxResult && len(m.events) < maxAssets {
		m.events = append(m.events, object{"kind": e.Kind, "data": e.Data})
	}
}

func (m *made) words() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) == 0 {
		return ""
	}
	text := "\n" + strings.Join(m.list, "\n")
	if m.more > 0 {
		text += fmt.Sprintf("\n[and %d more]", m.more)
	}
	return text
}

// A toolCall is a call in the form of chat completions.
type toolCall struct {
	ID       string `json:"id"`
	Function struct {
		Name string `json:"name"`
		Args string `json:"arguments"`
	} `json:"function"`
}

// toolCalls is POST /v1/openai/tool_calls, for programs that call their models themselves.
func (s *server) toolCalls(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	base, timeout, err := readEnvelope(r.Header, p)
	if err != nil {
		return err
	}
	body, err := s.read(w, r)
	if err != nil {
		return err
	}
	calls, err := readCalls(body, s.Limits)
	if err != nil {
		return err
	}
	if len(calls) > 1 && (base.Resume != "" || len(base.Answers) > 0) {
		return tool.Errorf(tool.CodeInvalidInput, "%s is about one call, but there are %d: send that one alone",
			envelope.HeaderResume, len(calls))
	}
	ctx, end, refused := s.Begin(w, r, base)
	if refused != nil {
		return refused
	}
	defer end()
	ctx, stop := envelope.Within(ctx, cmp.Or(timeout, time.Duration(s.Time)), "the request")
	defer stop()
	all := s.shelf(ctx, p)
	find := func(ctx context.Context, name string) (string, bool) {
		_, spec := s.find(ctx, p, all, name)
		if spec == nil {
			return "", false
		}
		return spec.Name, true
	}
	c := &crew{server: s, base: base, single: len(calls) == 1, waits: true, find: find}
	answer, err := strictjson.Marshal(toolMessages(base.Run, c.all(ctx, calls, nil)))
	if err == nil {
		s.reply(w, answer)
	}
	return err
}

// readCalls reads the body of tool_calls.
func readCalls(body []byte, l Limits) ([]model.Call, error) {
	var doc struct {
		ToolCalls []toolCall `json:"tool_calls"`
	}
	if err := strictjson.Unmarshal(body, &doc); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "tool_calls cannot be read: %w", err)
	}
	seen := map[string]bool{}
	var calls []model.Call
	for i, c := range doc.ToolCalls {
		switch {
		case c.Function.Name == "":
			return nil, tool.Errorf(tool.CodeInvalidInput, "tool_calls[%d] names no function; a call is "+
				`{"id": "...", "type": "function", "function": {"name": "...", "arguments": "{}"}}`, i)
		case c.ID == "" || seen[c.ID]:
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"tool_calls[%d] has no id, or that of another: each call needs its own, to tell the results apart", i)
		}
		seen[c.ID] = true
		calls = append(calls, model.Call{ID: c.ID, Name: c.Function.Name, Args: c.Function.Args})
	}
	switch {
	case len(calls) == 0:
		return nil, tool.Errorf(tool.CodeInvalidInput, "tool_calls is empty; send the calls of the model's message")
	case len(calls) > l.Calls:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%d calls are more than the %d that one request may make",
			len(calls), l.Calls).Because("calls")
	}
	return calls, nil
}

// toolMessages writes the outcomes of calls: the messages in the form of chat completions, which allow no other
// members, and beside them the details for programs.
func toolMessages(run string, done []ran) object {
	said, about := []object{}, []object{}
	for _, r := range done {
		said = append(said, toolMessage(r.result))
		about = append(about, outcomeOf(r))
	}
	return object{"messages": said, "results": about, "run": run}
}

// toolMessage encodes a result for chat completions.
func toolMessage(r model.Result) object {
	return object{"role": "tool", "tool_call_id": r.ID, "content": r.Marked()}
}

// outcomeOf describes a call for programs.
func outcomeOf(r ran) object {
	doc := object{"tool_call_id": r.Call.ID, "name": r.Name, "call": r.id, "outcome": r.outcome}
	if r.code != "" {
		doc["code"] = r.code
	}
	if r.reason != "" {
		doc["reason"] = r.reason
	}
	if r.ask != nil {
		doc["ask"] = r.ask
	}
	if len(r.events) > 0 {
		doc["events"] = r.events
	}
	return doc
}
