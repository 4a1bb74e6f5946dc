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
	"toolpost/model"
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

// An executor makes the calls of one request. All of them go through the engine, even those of tools that do not exist,
// so that each is recorded.
type executor struct {
	*server
	base *tool.Call // what its calls have in common
	// find returns the tool for a name on the wire.
	find func(ctx context.Context, name string) (tool string, ok bool)
	// single means that the request is one call: the properties of the request are those of the call.
	single        bool
	awaitApproval bool                        // whether a call waits to be approved; otherwise it ends with the question
	maxBytes      int                         // bytes of a result that are returned; 0 means all of it
	sink          func(callOutcome) tool.Sink // receives the events of a running call
	searchable    []toolfind.Named            // tools that the model finds by a search, since they are too many to be listed

	mu   sync.Mutex
	keys map[string]int // how often each call was made
}

// A callOutcome is a call and its outcome.
type callOutcome struct {
	model.Call
	id      string // of the call
	result  model.Result
	outcome tool.Outcome // "" while it runs
	code    tool.Code
	reason  string
	ask     *tool.Ask
	events  []object // for the caller's interface
}

// runAll makes calls concurrently, and reports each when it has ended.
func (e *executor) runAll(ctx context.Context, calls []model.Call, ended func(callOutcome)) []callOutcome {
	done := make([]callOutcome, len(calls))
	var g errgroup.Group
	g.SetLimit(maxAtOnce)
	for i, call := range calls {
		meant, answer := e.standIn(ctx, call)
		var one *tool.Call
		if answer.outcome == "" {
			one = e.prepare(ctx, meant)
		}
		g.Go(func() error {
			if done[i] = answer; one != nil {
				done[i] = e.runOne(ctx, call, one)
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
func (e *executor) standIn(ctx context.Context, call model.Call) (meant model.Call, answer callOutcome) {
	if _, offered := e.find(ctx, call.Name); !offered || e.searchable == nil || !toolfind.IsStandIn(call.Name) {
		return call, callOutcome{}
	}
	var text string
	var err error
	if args := json.RawMessage(call.Args); call.Name == toolfind.NameCall {
		meant.ID = call.ID
		if meant.Name, args, err = toolfind.Meant(args); err == nil {
			meant.Args = string(args)
			return meant, callOutcome{}
		}
	} else {
		text, err = e.finder.Answer(ctx, call.Name, args, e.searchable, e.describe)
	}
	answer = callOutcome{Call: call}
	if answer.outcome, answer.code, answer.reason = tool.OutcomeOf(&tool.Result{OK: true}, err); err != nil {
		text = tool.AsError(err).Message
	}
	answer.result = model.TextResult(call.ID, e.clip(text), err != nil)
	return call, answer
}

// describe encodes one of the unlisted tools, or returns nil.
func (e *executor) describe(name string) json.RawMessage {
	spec := toolfind.Find(e.searchable, name)
	if spec == nil {
		return nil
	}
	text, _ := strictjson.Marshal(flatDefinition(define(name, spec))) // a schema that was checked
	return text
}

// prepare returns the engine's call for a model's call. A tool that was not offered is called with a caller that may
// use none: the engine then reports that it does not exist, as for a tool that the caller may not see.
func (e *executor) prepare(ctx context.Context, call model.Call) *tool.Call {
	one := *e.base
	if !e.single {
		one.ID = tool.NewID()
	}
	name, ok := e.find(ctx, call.Name)
	if one.Tool = name; !ok {
		one.Tool = call.Name
		one.Caller.Rights = &tool.Rights{Roles: one.Caller.Roles(), Tools: tool.Patterns{}}
	}
	if one.Args = json.RawMessage(call.Args); strings.TrimSpace(call.Args) == "" {
		one.Args = json.RawMessage("{}")
	}
	if one.Key != "" && !e.single { // it is the key of the whole request, which may make the same call more than once
		same := one.Tool + "\x00" + string(one.Args)
		e.mu.Lock()
		if e.keys == nil {
			e.keys = map[string]int{}
		}
		e.keys[same]++
		one.Key = tool.NameFor("key", one.Key, same, strconv.Itoa(e.keys[same]))
		e.mu.Unlock()
	}
	return &one
}

// runOne makes a call, and puts its outcome into words.
func (e *executor) runOne(ctx context.Context, call model.Call, one *tool.Call) callOutcome {
	r := callOutcome{Call: call, id: one.ID}
	files := &recorder{Sink: tool.Discard}
	if e.sink != nil {
		files.Sink = e.sink(r)
	}
	res, err := e.invoke(ctx, one, files, e.awaitApproval)
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
	r.result = model.TextResult(call.ID, e.clip(text)+files.words(), failed)
	return r
}

// asks puts a tool's question into words, for a model that can tell the user.
func asks(name string, a *tool.Ask) string {
	return fmt.Sprintf("%s did not finish, because it asks: %s. Nobody can answer it here; tell the user what it asks",
		name, strings.ReplaceAll(a.Message, "\n", " "))
}

// clip shortens a result to the limit for models.
func (e *executor) clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if e.maxBytes == 0 || len(text) <= e.maxBytes {
		return text
	}
	kept := strings.ToValidUTF8(text[:e.maxBytes], "")
	return fmt.Sprintf("%s\n[cut off here: %d more bytes; ask for less at a time]", kept, len(text)-len(kept))
}

// recorder records the files of a call and its events for the interface, and forwards its events.
type recorder struct {
	tool.Sink
	mu     sync.Mutex
	list   []string
	more   int
	events []object
	size   int // of their data
}

// Emit implements tool.Sink.
func (r *recorder) Emit(e tool.Event) error {
	var file tool.Asset
	switch {
	case e.Kind == tool.KindAsset && strictjson.Unmarshal(e.Data, &file) == nil && file.SHA256 != "":
		r.note(fmt.Sprintf("[file %s (%s, %d bytes): /v1/assets/%s]", tool.Visible(file.AssetID),
			tool.Visible(file.MediaType), file.Size, file.SHA256))
	case e.Kind == tool.KindUIEvent:
		r.show(e)
	}
	return r.Sink.Emit(e)
}

func (r *recorder) note(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == maxAssets {
		r.more++
		return
	}
	r.list = append(r.list, line)
}

// show keeps an event for the caller's interface, and notes its choices for the model.
func (r *recorder) show(e tool.Event) {
	if words := modeltext.Offered(e.Data); words != "" {
		r.note(words)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size += len(e.Data); r.size <= maxResult && len(r.events) < maxAssets {
		r.events = append(r.events, object{"kind": e.Kind, "data": e.Data})
	}
}

func (r *recorder) words() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		return ""
	}
	text := "\n" + strings.Join(r.list, "\n")
	if r.more > 0 {
		text += fmt.Sprintf("\n[and %d more]", r.more)
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
	all := s.toolset(ctx, p)
	find := func(ctx context.Context, name string) (string, bool) {
		_, spec := s.find(ctx, p, all, name)
		if spec == nil {
			return "", false
		}
		return spec.Name, true
	}
	e := &executor{server: s, base: base, single: len(calls) == 1, awaitApproval: true, find: find}
	return s.replyWith(w, toolMessages(base.Run, e.runAll(ctx, calls, nil)))
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
func toolMessages(run string, done []callOutcome) object {
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
func outcomeOf(r callOutcome) object {
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
