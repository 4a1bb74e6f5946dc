package door

import (
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"toolpost/engine/ask"
	"toolpost/host/secret"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// singleKey is the key of a question without needs.
const singleKey = "answer"

// needs returns what a question asks for, each as a request of its own. A single question is a form; if its answer is
// not an object, it is a form with one field.
func needs(a *tool.Ask) []tool.Need {
	if len(a.Needs) > 0 {
		return a.Needs
	}
	form := a.Schema
	if !schema.Is(form, "object") {
		field := form
		if len(field) == 0 {
			field = json.RawMessage(`{"type":"string"}`)
		}
		form = json.RawMessage(`{"type":"object","properties":{"` + singleKey + `":` + string(field) + `},"required":["` + singleKey + `"]}`)
	}
	return []tool.Need{{Key: singleKey, Kind: tool.NeedForm, Message: a.Message, Schema: form}}
}

// answersTo converts a client's answers for the tool. A single question without an answer ends the call; if there are
// several, the tool sees which were answered.
func answersTo(name string, a *tool.Ask, answers map[string]json.RawMessage) (json.RawMessage, *tool.Error) {
	if len(a.Needs) > 0 {
		b, _ := strictjson.Marshal(answers) // JSON that was read
		return b, nil
	}
	var e struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	err := strictjson.Unmarshal(answers[singleKey], &e)
	if a.Kind == tool.AskApproval && err == nil && e.Action == tool.Decline { // the user decided
		return json.RawMessage(`{"approve":false}`), nil
	}
	if err != nil || e.Action != tool.Accept {
		return nil, tool.Errorf(tool.CodeCancelled, "%s was not run to its end: its question was not answered (%s)", name,
			jsonrpc.Clip(e.Action)).Because("not_answered")
	}
	if schema.Is(a.Schema, "object") {
		return strictjson.OrEmpty(e.Content), nil
	}
	var field map[string]json.RawMessage
	if strictjson.Unmarshal(strictjson.OrEmpty(e.Content), &field) != nil || field[singleKey] == nil {
		return json.RawMessage("null"), nil // checked like any answer
	}
	return field[singleKey], nil
}

// methodOf returns the method that asks a client for a need, and the capability and mode that the client must have.
func methodOf(kind tool.NeedKind) (method, capability, mode string) {
	switch kind {
	case tool.NeedForm:
		return mcp.MethodElicit, "elicitation", "form"
	case tool.NeedLink:
		return mcp.MethodElicit, "elicitation", "url"
	case tool.NeedModel:
		return mcp.MethodSample, "sampling", ""
	}
	return mcp.MethodRoots, "roots", ""
}

// paramsOf returns the params of the request for a need: the tool's own, and those that the protocol prescribes.
func (r *request) paramsOf(n tool.Need, id string) json.RawMessage {
	_, _, mode := methodOf(n.Kind)
	if mode == "" {
		return strictjson.OrEmpty(n.Params)
	}
	w := strictjson.NewWriter(100 + len(n.Message) + len(n.Schema) + len(n.Params))
	if r.modern || mode == "url" {
		w.Text("mode", mode) // earlier clients know only forms, and have no name for the mode
	}
	w.Text("message", n.Message)
	ours := []string{"mode", "message"}
	if mode == "form" {
		w.Raw("requestedSchema", schema.Object(n.Schema))
		ours = append(ours, "requestedSchema")
	} else if own, _ := strictjson.ReadMembers(strictjson.OrEmpty(n.Params), "elicitationId"); !r.modern && own.Get("elicitationId") == nil { // the legacy era needs an id for each
		sum := sha256.Sum256([]byte(id + "\x00" + n.Key))
		w.Text("elicitationId", hex.EncodeToString(sum[:16]))
		ours = append(ours, "elicitationId")
	}
	_ = strictjson.Object(strictjson.OrEmpty(n.Params), func(name, value []byte) error { // checked when the tool asked
		if !slices.Contains(ours, string(name)) {
			w.Named(string(name), value)
		}
		return nil
	})
	return w.Done()
}

// askable reports whether the client declares that it can be asked for a need. Elicitation without a mode means forms.
func (r *request) askable(kind tool.NeedKind) bool {
	_, capability, mode := methodOf(kind)
	raw := r.meta.capabilities
	if r.session != nil {
		raw = r.session.Capabilities
	}
	var all map[string]json.RawMessage
	if len(raw) == 0 || strictjson.Unmarshal(raw, &all) != nil || all[capability] == nil {
		return false
	}
	if mode == "" {
		return true
	}
	var modes map[string]json.RawMessage
	if strictjson.Unmarshal(all[capability], &modes) != nil {
		return false
	}
	return modes[mode] != nil || mode == "form" && len(modes) == 0
}

// open returns the needs that a client is to be asked for: not those that it has answered, nor optional ones that it
// does not support. missing is a need that is not optional and that the client does not support.
func (r *request) open(a *tool.Ask, answers map[string]json.RawMessage) (list []tool.Need, missing *tool.Need) {
	for _, n := range needs(a) {
		switch {
		case answers[n.Key] != nil:
		case r.askable(n.Kind):
			list = append(list, n)
		case !n.Optional:
			return nil, &n
		}
	}
	return list, nil
}

// finish makes a call until it has an outcome, or a question for a modern client: asks. A legacy client is asked in the
// middle of it. The error is a *tool.Error, or a *jsonrpc.Error if the request itself is wrong.
func (s *server) finish(
	ctx context.Context, r *request, c *tool.Call, to peer,
) (res *tool.Result, out *relay, asks *strictjson.Writer, err error) {
	if asks, err = s.resume(r, c); err != nil || asks != nil {
		return nil, nil, asks, err
	}
	c.LogLevel = r.logLevel()
	var asked *tool.Ask
	defer func() { // a server must not wait for an answer that will not come
		if asked != nil && asked.Drop != nil && asks == nil {
			asked.Drop()
		}
	}()
	for range maxRounds {
		out = &relay{request: r, to: to}
		res, err = s.handler.Invoke(ctx, c, out)
		if refused := tool.AsError(err); asked != nil && refused != nil && refused.Reason == ask.Invalid && len(asked.Needs) > 0 {
			c = failedAll(c, asked, mcp.Invalid("%s", refused.Message))
			continue
		}
		if err != nil {
			return nil, nil, nil, answerError(r, err)
		}
		if res.Ask == nil {
			return res, out, nil, nil
		}
		asked = res.Ask
		if waits := cmp.Or(r.approvalError(res.Ask), r.connectionError(res.Ask)); waits != nil {
			return nil, nil, nil, waits
		}
		var answers map[string]json.RawMessage
		if answers, asks, err = s.askClient(ctx, r, res.Ask, to); err != nil || asks != nil {
			return nil, nil, asks, err
		}
		again := *c
		var refused *tool.Error
		if again.Answers, refused = answersTo(r.name, res.Ask, answers); refused != nil {
			return nil, nil, nil, refused
		}
		again.Resume = res.Ask.ID
		c = &again
	}
	return nil, nil, nil, tool.Errorf(tool.CodeToolError, "%s asked %d times and did not come to an end", r.name, maxRounds)
}

// approvalError returns the error for a call that must be approved by another person, or by a user whom this client
// cannot ask; nil if the client can be asked. The same call, made again, gets the decision: no id has to be carried.
func (r *request) approvalError(a *tool.Ask) error {
	if a.Kind != tool.AskApproval || a.Awaits == nil || a.Awaits.Self && r.askable(tool.NeedForm) {
		return nil
	}
	message := a.Message
	if a.Awaits.Self {
		message += fmt.Sprintf(". Decide with `toolpost approve %s`, and make the same call again", a.ID)
	}
	e := tool.Errorf(tool.CodeAccessDenied, "%s", message).Because("approval_required")
	e.Details, _ = strictjson.Marshal(map[string]any{"ask": a}) // JSON that was checked
	return e
}

// connectionError returns the error for a call whose user has to connect an account first, if this client cannot show the link. The
// message has it, and the same call can be made again.
func (r *request) connectionError(a *tool.Ask) error {
	if a.Kind != tool.AskConnection || r.askable(tool.NeedLink) {
		return nil
	}
	return tool.Errorf(tool.CodeAccessDenied, "%s", a.Message).Because("connection_missing")
}

// maxRounds is the number of times that a tool may ask in one call.
const maxRounds = 32

// askClient asks the client: a legacy client at once, a modern one by ending its request with the question.
func (s *server) askClient(
	ctx context.Context, r *request, a *tool.Ask, to peer,
) (map[string]json.RawMessage, *strictjson.Writer, error) {
	answers := map[string]json.RawMessage{}
	list, missing := r.open(a, answers)
	for ; missing != nil && !r.modern && len(a.Needs) > 0; list, missing = r.open(a, answers) { // the tool may go on without
		_, capability, _ := methodOf(missing.Kind)
		answers[missing.Key] = failedAnswer(jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "this client cannot be asked: it has no %s", capability))
	}
	switch {
	case missing != nil && r.modern:
		return nil, nil, missingCapability(r.name, missing)
	case missing != nil:
		_, capability, _ := methodOf(missing.Kind)
		return nil, nil, tool.Errorf(tool.CodeUnsupported, "%s asks %q, and this client cannot be asked: use one that has %s",
			r.name, missing.Message, capability).Because(capability)
	case len(list) == 0:
		return answers, nil, nil
	case r.modern:
		asks, err := s.inputRequired(r, a, list, answers)
		return nil, asks, err
	}
	within, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	for _, n := range list {
		method, _, _ := methodOf(n.Kind)
		raw, err := to.ask(within, method, r.paramsOf(n, a.ID))
		if err == nil {
			err = strictjson.CheckObject(raw)
		}
		if err != nil && ctx.Err() == nil && len(a.Needs) > 0 {
			failed := protocolError(err) // what the client answered, or why it did not
			if failed == nil {
				failed = jsonrpc.Errorf(jsonrpc.CodeInternal, "the client did not answer: %s", jsonrpc.Clip(err.Error()))
			}
			raw, err = failedAnswer(failed), nil
		}
		if err != nil {
			return nil, nil, tool.Errorf(tool.CodeCancelled, "%s asks %q, and the client did not answer: %w", r.name, n.Message, err).
				Because("not_answered")
		}
		answers[n.Key] = raw
	}
	return answers, nil, nil
}

// failedAnswer encodes the answer to a need that the client could not answer.
func failedAnswer(e *jsonrpc.Error) json.RawMessage {
	return encoded(map[string]*jsonrpc.Error{"error": e})
}

// failedAll returns the call with this answer to all needs of a question.
func failedAll(c *tool.Call, a *tool.Ask, e *jsonrpc.Error) *tool.Call {
	again, answers := *c, map[string]json.RawMessage{}
	for _, n := range a.Needs {
		answers[n.Key] = failedAnswer(e)
	}
	again.Answers, again.Resume = encoded(answers), a.ID
	return &again
}

func missingCapability(name string, n *tool.Need) *jsonrpc.Error {
	_, capability, mode := methodOf(n.Kind)
	e := jsonrpc.Errorf(mcp.CodeMissingCapability, "Missing required client capability: %s; %s asks %q", capability, name, n.Message)
	what := "{}"
	if mode == "url" {
		what = `{"url":{}}`
	}
	e.Data = json.RawMessage(`{"requiredCapabilities":{"` + capability + `":` + what + `}}`)
	return e
}

// inputRequests encodes the questions to a modern client.
func (r *request) inputRequests(list []tool.Need, id string) json.RawMessage {
	all := strictjson.NewWriter(400)
	for _, n := range list {
		method, _, _ := methodOf(n.Kind)
		one := strictjson.NewWriter(200)
		one.Text("method", method)
		one.Raw("params", r.paramsOf(n, id))
		all.Named(n.Key, one.Done())
	}
	return all.Done()
}

// inputRequired ends a modern request with a question. The client sends back the question, sealed, and its answers so
// far.
func (s *server) inputRequired(
	r *request, a *tool.Ask, list []tool.Need, answers map[string]json.RawMessage,
) (*strictjson.Writer, error) {
	state, err := s.seal.close(r, requestState{a, answers})
	if err != nil {
		return nil, err
	}
	w := strictjson.NewWriter(1000)
	w.Text("resultType", mcp.ResultAsks)
	w.Raw("inputRequests", r.inputRequests(list, a.ID))
	w.Text("requestState", state)
	return w, nil
}

// readResponses returns the client's answers, by the keys of the questions.
func (r *request) readResponses() (answers map[string]json.RawMessage, ok bool) {
	if strictjson.KindOf(r.responses) != "object" || strictjson.Unmarshal(r.responses, &answers) != nil {
		return nil, false
	}
	for _, one := range answers {
		if strictjson.KindOf(one) != "object" {
			return nil, false
		}
	}
	return answers, true
}

// mergeAnswers merges earlier answers with new ones, and keeps only those that the question asks for.
func mergeAnswers(a *tool.Ask, earlier, given map[string]json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, n := range needs(a) {
		if one, ok := given[n.Key]; ok {
			all[n.Key] = one
		} else if one, ok := earlier[n.Key]; ok {
			all[n.Key] = one
		}
	}
	return all
}

// resume takes a modern client's answers, which come with the state that it was given. If some are missing, it is asked
// again.
func (s *server) resume(r *request, c *tool.Call) (*strictjson.Writer, error) {
	if r.state == "" { // responses without a state answer no question: the client is asked now
		return nil, nil
	}
	was, ok := s.seal.open(r, r.state)
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: requestState is not one that this server "+
			"gave you for this call; call again without it")
	}
	given, ok := r.readResponses()
	if !ok {
		return nil, mcp.Invalid("inputResponses must be an object with an object for each of the inputRequests")
	}
	merged := mergeAnswers(was.Ask, was.Said, given)
	list, missing := r.open(was.Ask, merged)
	switch {
	case missing != nil:
		return nil, missingCapability(r.name, missing)
	case len(list) > 0:
		return s.inputRequired(r, was.Ask, list, merged)
	}
	answers, refused := answersTo(r.name, was.Ask, merged)
	if refused != nil {
		return nil, refused
	}
	c.Answers, c.Resume = answers, was.Ask.ID
	return nil, nil
}

// answerError turns the refusal of an answer into an error of the request, for a modern client.
func answerError(r *request, err error) error {
	e := tool.AsError(err)
	if !r.modern || !slices.Contains([]string{ask.Unknown, ask.Expired, ask.Answered, ask.Invalid}, e.Reason) {
		return e
	}
	member := "requestState"
	if e.Reason == ask.Invalid {
		member = "inputResponses"
	}
	return mcp.Invalid("%s: %s", member, e.Message)
}

// protocolError returns the protocol error in an error of finish, or nil if the error is the tool's or nil.
func protocolError(err error) *jsonrpc.Error {
	bad, _ := errors.AsType[*jsonrpc.Error](err)
	return bad
}

// A requestState is the state that a client sends back with its answers. The engine decides by the question's id
// whether they answer this call and whether they were given before. But a client that sends no answer is asked again
// without the engine, so the seal also binds the state to its caller.
type requestState struct {
	Ask  *tool.Ask                  `json:"ask"`
	Said map[string]json.RawMessage `json:"said,omitzero"` // before the rest was asked for again
}

// A seal encrypts state that clients send back, so that they can neither change it nor read the questions of other
// callers.
type seal func() (cipher.AEAD, error)

func newSeal(keys *secret.Keyed, what string) seal {
	return func() (cipher.AEAD, error) { return keys.Seal("key that seals the " + what) }
}

// text returns a value that a client sends back, bound to a context.
func (s seal) text(v any, context []byte) (string, error) {
	aead, err := s()
	if err != nil {
		return "", err
	}
	b, err := strictjson.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, b, context)), err //nolint:gosec // it makes a nonce
}

// read reads such a text, and reports whether it is one.
func (s seal) read(text string, context []byte, into any) bool {
	aead, err := s()
	if err != nil {
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		b, err = aead.Open(nil, nil, b, context)
	}
	return err == nil && strictjson.Unmarshal(b, into) == nil
}

// sealContext returns what a state is bound to: the caller and the target of the call.
func (r *request) sealContext() []byte {
	b, _ := strictjson.Marshal([]string{r.caller.ID, r.method, r.name, r.uri}) // strings
	return b
}

func (s seal) close(r *request, a requestState) (string, error) { return s.text(a, r.sealContext()) }

func (s seal) open(r *request, text string) (a requestState, ok bool) {
	ok = s.read(text, r.sealContext(), &a)
	return a, ok && a.Ask != nil
}
