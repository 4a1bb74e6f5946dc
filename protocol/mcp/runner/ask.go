package runner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/identity"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// needOf converts a question of a server.
func needOf(key, method string, params json.RawMessage) (tool.Need, error) {
	n := tool.Need{Key: key}
	if kind := strictjson.KindOf(strictjson.OrEmpty(params)); kind != "object" {
		return n, fmt.Errorf("the params of %s must be an object, not %s", method, kind)
	}
	switch method {
	case mcp.MethodElicit:
		return elicitNeed(n, params)
	case mcp.MethodSample:
		n.Kind, n.Params = tool.NeedModel, params
		n.Message = "The tool asks for the answer of a model."
	case mcp.MethodRoots:
		n.Kind = tool.NeedRoots
		n.Message = "The tool asks which folders it is to work in."
	default:
		return n, fmt.Errorf("%q is not something that we can be asked", jsonrpc.Clip(method))
	}
	return n, nil
}

func elicitNeed(n tool.Need, params json.RawMessage) (tool.Need, error) {
	var msg struct {
		Mode    string          `json:"mode"`
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
		URL     string          `json:"url"`
	}
	if err := strictjson.Unmarshal(params, &msg); err != nil {
		return n, errors.New(jsonrpc.Misread(err))
	}
	n.Message, n.Params = msg.Message, pick(params, func(name string, _ json.RawMessage) bool {
		return !slices.Contains([]string{"mode", "message", "requestedSchema"}, name)
	})
	switch {
	case msg.Mode == "url" && msg.URL != "":
		n.Kind = tool.NeedLink
	case (msg.Mode == "" || msg.Mode == "form") && strictjson.KindOf(msg.Schema) == "object":
		n.Kind, n.Schema = tool.NeedForm, msg.Schema
	default:
		return n, fmt.Errorf("an elicitation has a form with a requestedSchema, or a url; not %q", jsonrpc.Clip(msg.Mode))
	}
	return n, nil
}

// pick returns some members of an object that was read before, or nil if there are none.
func pick(object json.RawMessage, wanted func(name string, value json.RawMessage) bool) json.RawMessage {
	w := strictjson.NewWriter(len(object))
	_ = strictjson.Object(object, func(name, value []byte) error {
		if wanted(string(name), value) {
			w.Named(string(name), value)
		}
		return nil
	})
	if w.Len() == len("{") {
		return nil
	}
	return w.Done()
}

// answerKey is the key of a question to which its server gave none; those of several are numbered.
const answerKey = "answer"

// A serverRequest is a question of a legacy server in the middle of a call.
type serverRequest struct {
	need   tool.Need
	answer chan json.RawMessage // exactly one
}

// awaitAnswer holds the call until the server's question is answered.
func (u *upstreamCall) awaitAnswer(
	in *jsonrpc.Incoming, open *mcp.InFlight, gone <-chan struct{},
) (json.RawMessage, *jsonrpc.Error) {
	need, err := needOf(answerKey, in.Method, in.Params)
	if len(in.Params) > maxKept {
		err = fmt.Errorf("a question has at most %d bytes", maxKept)
	}
	if err != nil {
		return nil, mcp.Invalid("%v", err)
	}
	ctx, leave, ok := open.Enter(u.ctx, in.ID)
	if !ok {
		return nil, mcp.DuplicateID()
	}
	defer leave()
	u.paused.Store(true)
	defer u.paused.Store(false)
	q := &serverRequest{need: need, answer: make(chan json.RawMessage, 1)}
	asked := u.requests
	for {
		select {
		case asked <- q:
			asked = nil
		case answer := <-q.answer:
			if failed := errorIn(answer); failed != nil {
				return nil, failed
			}
			return answer, nil
		case <-gone:
			return nil, jsonrpc.Errorf(jsonrpc.CodeServer, "%s: the server is gone", in.Method)
		case <-ctx.Done():
			return nil, jsonrpc.Errorf(jsonrpc.CodeServer, "%s: it was withdrawn, or the call given up", in.Method)
		}
	}
}

// errorIn returns the error with which a client answered a question, or nil.
func errorIn(answer json.RawMessage) *jsonrpc.Error {
	m, _ := strictjson.ReadMembers(answer, "error") // checked
	if raw := m.Get("error"); raw != nil {
		return (&jsonrpc.Message{Err: raw}).Failure()
	}
	return nil
}

// resumeWith continues a call whose server waits for an answer.
func (u *upstreamCall) resumeWith(q *serverRequest) continuation {
	return func(
		ctx context.Context, _ *tool.Call, _ *upstreamTool, out tool.Sink, answers map[string]json.RawMessage,
	) (*tool.Result, error) {
		return u.wait(ctx, out, func() { q.answer <- answers[q.need.Key] })
	}
}

// inputRequired handles what a modern server needs to know before it continues. Questions that the config answers are
// answered at once.
func (u *upstreamCall) inputRequired(a *answer) (_ *tool.Result, again bool, _ error) {
	needs, known, err := u.readNeeds(a.requests)
	if err == nil && a.state != nil && len(*a.state) > maxKept {
		err = tool.Errorf(tool.CodeProtocol,
			"what the server wants to have back for %s has more than %d bytes", u.call.Tool, maxKept)
	}
	if err != nil {
		return nil, false, err
	}
	if len(needs) == 0 && len(known) == 0 && a.state == nil {
		return nil, false, tool.Errorf(tool.CodeProtocol,
			"the server wants something before it goes on with %s, and does not say what",
			u.call.Tool)
	}
	if len(needs) == 0 {
		u.state, u.responses = a.state, encodeAnswers(known)
		return nil, true, nil
	}
	res, err := u.r.questions.ask(u.call, needs, func(
		ctx context.Context, c *tool.Call, o *upstreamTool, out tool.Sink, answers map[string]json.RawMessage,
	) (*tool.Result, error) {
		maps.Copy(answers, known)
		next := u.r.newUpstreamCall(c, o)
		next.state, next.responses = a.state, encodeAnswers(answers)
		return next.run(ctx, out, (*upstreamCall).execute)
	}, nil)
	return res, false, err
}

// Bounds on the questions of one answer, which are kept until they are answered.
const (
	maxNeeds = 64
	maxKept  = 256 << 10 // bytes of the questions, and as many of the server's state
)

// readNeeds reads the requests in an answer, in order. known holds those that the config answers.
func (u *upstreamCall) readNeeds(requests json.RawMessage) (needs []tool.Need, known map[string]json.RawMessage, err error) {
	known = map[string]json.RawMessage{}
	if len(requests) > maxKept {
		return nil, nil, tool.Errorf(tool.CodeProtocol, "what the server wants to know for %s has more than %d bytes",
			u.call.Tool, maxKept)
	}
	err = strictjson.Object(strictjson.OrEmpty(requests), func(name, value []byte) error {
		key := string(name)
		var one struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if err := strictjson.Unmarshal(value, &one); err != nil {
			return err
		}
		if answer := u.r.rootsAnswer(); one.Method == mcp.MethodRoots && answer != nil {
			known[key] = answer
			return nil
		}
		if len(needs) == maxNeeds {
			return fmt.Errorf("more than %d things at once", maxNeeds)
		}
		n, err := needOf(key, one.Method, slices.Clone(one.Params))
		needs = append(needs, n)
		return err
	})
	if err != nil {
		err = tool.Errorf(tool.CodeProtocol,
			"what the server wants to know for %s cannot be read: %s", u.call.Tool, jsonrpc.Misread(err))
	}
	return needs, known, err
}

func encodeAnswers(answers map[string]json.RawMessage) json.RawMessage {
	if len(answers) == 0 {
		return nil
	}
	for key, answer := range answers {
		if errorIn(answer) != nil { // a result has no room for errors
			answers[key] = json.RawMessage(`{"action":"cancel"}`)
		}
	}
	b, _ := strictjson.Marshal(answers) // each was checked
	return b
}

// linkRequired handles the error of a server of 2025-11-25 that sends the user to a link before the call is repeated.
func (u *upstreamCall) linkRequired(rpcErr *jsonrpc.Error) (*tool.Result, error) {
	var data struct {
		Elicitations []json.RawMessage `json:"elicitations"`
	}
	err := strictjson.Unmarshal(strictjson.OrEmpty(rpcErr.Data), &data)
	if n := len(data.Elicitations); err != nil || n == 0 || n > maxNeeds || len(rpcErr.Data) > maxKept {
		return nil, tool.Errorf(tool.CodeProtocol,
			"the server asks the user to open a link for %s, but does not name the link", u.call.Tool)
	}
	var needs []tool.Need
	for i, raw := range data.Elicitations {
		n, err := elicitNeed(tool.Need{Key: fmt.Sprint(answerKey, i+1)}, raw)
		if err != nil || n.Kind != tool.NeedLink {
			return nil, tool.Errorf(tool.CodeProtocol, "a link of the server for %s cannot be read", u.call.Tool)
		}
		needs = append(needs, n)
	}
	return u.r.questions.ask(u.call, needs, func(
		ctx context.Context, c *tool.Call, o *upstreamTool, out tool.Sink, answers map[string]json.RawMessage,
	) (*tool.Result, error) {
		for _, answer := range answers {
			var msg struct {
				Action string `json:"action"`
			}
			if strictjson.Unmarshal(answer, &msg) != nil || msg.Action != tool.Accept {
				return nil, tool.Errorf(tool.CodeCancelled,
					"%s was not run: the user had to open a link first, and did not", c.Tool).
					Because("not_answered")
			}
		}
		return u.r.newUpstreamCall(c, o).run(ctx, out, (*upstreamCall).execute)
	}, nil)
}

// continuation continues a call with the answers to its question.
type continuation func(context.Context, *tool.Call, *upstreamTool, tool.Sink, map[string]json.RawMessage) (*tool.Result, error)

// Bounds on open questions.
const (
	maxWaiting       = 1_000 // of all callers
	maxWaitingCaller = 100   // of one
)

// questions holds those of servers until they are answered or expire. The state that a server gave us to send back
// stays here.
type questions struct {
	timeout time.Duration

	mu        sync.Mutex
	open      map[string]*question
	perCaller identity.PerCaller[int]
	closed    bool
}

// A question is one that is open.
type question struct {
	caller string
	needs  []tool.Need
	resume continuation
	drop   func() // called if it is not answered
	kept   bool   // the server waits for the answer
	timer  *time.Timer
}

// ask ends a call with a question. drop is nil if the server does not wait for the answer.
func (q *questions) ask(c *tool.Call, needs []tool.Need, then continuation, drop func()) (*tool.Result, error) {
	one := &question{caller: c.Caller.ID, needs: needs, resume: then, drop: drop, kept: drop != nil}
	if drop == nil {
		drop, one.drop = func() {}, func() {}
	}
	id := rand.Text()
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		go drop()
		return nil, tool.Errorf(tool.CodeUnavailable, "%s asks something, and its server is no longer used", c.Tool)
	case len(q.open) >= maxWaiting || q.perCaller[one.caller] >= maxWaitingCaller:
		go drop()
		return nil, tool.Errorf(tool.CodeQuotaExceeded, "%s asks something, and too many questions wait for their answers: "+
			"answer some of them first", c.Tool).Because("questions")
	case q.open == nil:
		q.open, q.perCaller = map[string]*question{}, identity.PerCaller[int]{}
	}
	q.open[id] = one
	q.perCaller.Add(one.caller, 1)
	unanswered := func() {
		if q.remove(id, one) {
			drop()
		}
	}
	one.timer = time.AfterFunc(q.timeout, unanswered)
	var messages []string
	for _, n := range needs {
		messages = append(messages, n.Message)
	}
	return &tool.Result{Ask: &tool.Ask{ID: id, Message: strings.Join(messages, "\n"), Needs: needs, Drop: unanswered}}, nil
}

func (q *questions) remove(id string, one *question) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[id] != one {
		return false
	}
	delete(q.open, id)
	q.perCaller.Add(one.caller, -1)
	one.timer.Stop()
	return true
}

// take returns the question that a call answers, once. Package engine/ask has checked that it is the same call of the
// same caller, and that the answers fit the question.
func (q *questions) take(c *tool.Call) (*question, map[string]json.RawMessage, error) {
	q.mu.Lock()
	one := q.open[c.Resume]
	q.mu.Unlock()
	if one == nil || !q.remove(c.Resume, one) {
		return nil, nil, tool.Errorf(tool.CodeInvalidInput,
			"%s has no such question open: it was answered, or its time is up; call again without an answer", c.Tool).
			Because("no_such_question")
	}
	answers := map[string]json.RawMessage{}
	_ = strictjson.Unmarshal(c.Answers, &answers) // checked, like each of them
	return one, answers, nil
}

// resume continues a call.
func (r *Runner) resume(ctx context.Context, c *tool.Call, o *upstreamTool, out tool.Sink) (*tool.Result, error) {
	one, answers, err := r.questions.take(c)
	if err != nil {
		return nil, err
	}
	return one.resume(ctx, c, o, out, answers)
}

// close drops every question.
func (q *questions) close() {
	q.mu.Lock()
	q.closed = true
	open := q.open
	q.open, q.perCaller = nil, nil
	q.mu.Unlock()
	for _, one := range open {
		one.timer.Stop()
		one.drop()
	}
}
