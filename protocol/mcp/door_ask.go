package mcp

import (
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"toolpost/engine/ask"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// single is the key of a question that has no needs.
const single = "answer"

// needs is what a question asks for, each a request of its own. A single question is a form, and where its answer is not
// an object a form with one field.
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
		form = json.RawMessage(`{"type":"object","properties":{"` + single + `":` + string(field) + `},"required":["` + single + `"]}`)
	}
	return []tool.Need{{Key: single, Kind: tool.NeedForm, Message: a.Message, Schema: form}}
}

// answersTo is what a tool gets for what a client said. A single question that was not answered is the end of the call;
// where there are several, the tool sees which of them were.
func answersTo(name string, a *tool.Ask, said map[string]json.RawMessage) (json.RawMessage, *tool.Error) {
	if len(a.Needs) > 0 {
		b, _ := strictjson.Marshal(said) // JSON that was read
		return b, nil
	}
	var e struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	err := strictjson.Unmarshal(said[single], &e)
	if a.Kind == tool.AskApproval && err == nil && e.Action == tool.Decline { // who was asked has decided
		return json.RawMessage(`{"approve":false}`), nil
	}
	if err != nil || e.Action != tool.Accept {
		return nil, tool.Errorf(tool.CodeCancelled, "%s was not run to its end: its question was not answered (%s)", name,
			jsonrpc.Clip(e.Action)).Because("not_answered")
	}
	if schema.Is(a.Schema, "object") {
		return orEmpty(e.Content), nil
	}
	var field map[string]json.RawMessage
	if strictjson.Unmarshal(orEmpty(e.Content), &field) != nil || field[single] == nil {
		return json.RawMessage("null"), nil // which is checked like any answer
	}
	return field[single], nil
}

// methodOf is the request by which a client is asked for something, and the capability that it takes, with its mode.
func methodOf(kind tool.NeedKind) (method, capability, mode string) {
	switch kind {
	case tool.NeedForm:
		return methodElicit, "elicitation", "form"
	case tool.NeedLink:
		return methodElicit, "elicitation", "url"
	case tool.NeedModel:
		return methodSample, "sampling", ""
	}
	return methodRoots, "roots", ""
}

// paramsOf are those of the request for a need: what the tool wants to be told, and what the protocol has for it.
func (r *request) paramsOf(n tool.Need, id string) json.RawMessage {
	_, _, mode := methodOf(n.Kind)
	if mode == "" {
		return orEmpty(n.Params)
	}
	w := strictjson.NewWriter(100 + len(n.Message) + len(n.Schema) + len(n.Params))
	if r.modern || mode == "url" {
		w.Text("mode", mode) // earlier clients know one alone, and not by name
	}
	w.Text("message", n.Message)
	ours := []string{"mode", "message"}
	if mode == "form" {
		w.Raw("requestedSchema", schema.Object(n.Schema))
		ours = append(ours, "requestedSchema")
	} else if !r.modern { // the legacy era has a name for each
		sum := sha256.Sum256([]byte(id + "\x00" + n.Key))
		w.Text("elicitationId", hex.EncodeToString(sum[:16]))
		ours = append(ours, "elicitationId")
	}
	_ = strictjson.Object(orEmpty(n.Params), func(name, value []byte) error { // it was checked when it was asked
		if !slices.Contains(ours, string(name)) {
			w.Named(string(name), value)
		}
		return nil
	})
	return w.Done()
}

// askable reports whether the client says that it can be asked for something. Elicitation without a mode is by form.
func (r *request) askable(kind tool.NeedKind) bool {
	_, capability, mode := methodOf(kind)
	raw := r.meta.capabilities
	if r.session != nil {
		raw = r.session.capabilities
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

// open gives the needs of a question that a client is to be asked for: not those that it has answered, nor those that
// the tool can do without and the client knows nothing of. Missing is one that it knows nothing of and should.
func (r *request) open(a *tool.Ask, said map[string]json.RawMessage) (list []tool.Need, missing *tool.Need) {
	for _, n := range needs(a) {
		switch {
		case said[n.Key] != nil:
		case r.askable(n.Kind):
			list = append(list, n)
		case !n.Optional:
			return nil, &n
		}
	}
	return list, nil
}

// finish makes a call until it has an outcome, or a question for a modern client: asks. A legacy client is asked in the
// middle of it. The error is a *tool.Error, or a *jsonrpc.Error where the request itself is wrong.
func (s *server) finish(
	ctx context.Context, r *request, c *tool.Call, to peer,
) (res *tool.Result, out *relay, asks *strictjson.Writer, err error) {
	if asks, err = s.resume(r, c); err != nil || asks != nil {
		return nil, nil, asks, err
	}
	for range maxRounds {
		out = &relay{request: r, to: to}
		res, err = s.handler.Invoke(ctx, c, out)
		if err != nil {
			return nil, nil, nil, misanswered(r, err)
		}
		if res.Ask == nil {
			return res, out, nil, nil
		}
		if waits := r.waits(res.Ask); waits != nil {
			return nil, nil, nil, waits
		}
		var said map[string]json.RawMessage
		if said, asks, err = s.put(ctx, r, res.Ask, to); err != nil || asks != nil {
			return nil, nil, asks, err
		}
		again := *c
		var refused *tool.Error
		if again.Answers, refused = answersTo(r.name, res.Ask, said); refused != nil {
			return nil, nil, nil, refused
		}
		again.Resume = res.Ask.ID
		c = &again
	}
	return nil, nil, nil, tool.Errorf(tool.CodeToolError, "%s asked %d times and did not come to an end", r.name, maxRounds)
}

// waits is what a client is told whose call has to be approved by somebody else, or by whoever sits before it and cannot
// be asked; nil: it is asked. The same call, made again, gets what was decided: no id has to be carried.
func (r *request) waits(a *tool.Ask) error {
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

// maxRounds is how often a tool may ask in one call.
const maxRounds = 32

// put puts a question to the client: to a legacy one at once, to a modern one as the end of its request.
func (s *server) put(
	ctx context.Context, r *request, a *tool.Ask, to peer,
) (map[string]json.RawMessage, *strictjson.Writer, error) {
	said := map[string]json.RawMessage{}
	list, missing := r.open(a, said)
	switch {
	case missing != nil && r.modern:
		return nil, nil, missingCapability(r.name, missing)
	case missing != nil:
		_, capability, _ := methodOf(missing.Kind)
		return nil, nil, tool.Errorf(tool.CodeUnsupported, "%s asks %q, and this client cannot be asked: use one that has %s",
			r.name, missing.Message, capability).Because(capability)
	case len(list) == 0:
		return said, nil, nil
	case r.modern:
		asks, err := s.inputRequired(r, a, list, said)
		return nil, asks, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	for _, n := range list {
		method, _, _ := methodOf(n.Kind)
		raw, err := to.ask(ctx, method, r.paramsOf(n, a.ID))
		if err == nil {
			err = strictjson.CheckObject(raw)
		}
		if err != nil {
			return nil, nil, tool.Errorf(tool.CodeCancelled, "%s asks %q, and the client did not answer: %w", r.name, n.Message, err).
				Because("not_answered")
		}
		said[n.Key] = raw
	}
	return said, nil, nil
}

func missingCapability(name string, n *tool.Need) *jsonrpc.Error {
	_, capability, mode := methodOf(n.Kind)
	e := jsonrpc.Errorf(codeMissingCapability, "Missing required client capability: %s; %s asks %q", capability, name, n.Message)
	what := "{}"
	if mode == "url" {
		what = `{"url":{}}`
	}
	e.Data = json.RawMessage(`{"requiredCapabilities":{"` + capability + `":` + what + `}}`)
	return e
}

// inputRequests is what a modern client is asked.
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

// inputRequired ends a modern request with a question. The client brings back what it was asked, sealed, and what it has
// said so far.
func (s *server) inputRequired(
	r *request, a *tool.Ask, list []tool.Need, said map[string]json.RawMessage,
) (*strictjson.Writer, error) {
	state, err := s.seal.close(r, asked{a, said})
	if err != nil {
		return nil, err
	}
	w := strictjson.NewWriter(1000)
	w.Text("resultType", resultAsks)
	w.Raw("inputRequests", r.inputRequests(list, a.ID))
	w.Text("requestState", state)
	return w, nil
}

// readResponses gives what a client said, by the keys of what it was asked.
func (r *request) readResponses() (said map[string]json.RawMessage, ok bool) {
	if strictjson.KindOf(r.responses) != "object" || strictjson.Unmarshal(r.responses, &said) != nil {
		return nil, false
	}
	for _, one := range said {
		if strictjson.KindOf(one) != "object" {
			return nil, false
		}
	}
	return said, true
}

// fitting adds to what was said those of the answers that were given which the question asks for.
func fitting(a *tool.Ask, said, given map[string]json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, n := range needs(a) {
		if one, ok := given[n.Key]; ok {
			all[n.Key] = one
		} else if one, ok := said[n.Key]; ok {
			all[n.Key] = one
		}
	}
	return all
}

// resume takes the answers that a modern client brings with what it was given for them. Where some are missing it is
// asked again.
func (s *server) resume(r *request, c *tool.Call) (*strictjson.Writer, error) {
	if r.state == "" { // responses that come without one answer nothing that was asked: the client is asked now
		return nil, nil
	}
	was, ok := s.seal.open(r, r.state)
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: requestState is not one that this server "+
			"gave you for this call; call again without it")
	}
	given, ok := r.readResponses()
	if !ok {
		return nil, invalid("inputResponses must be an object with an object for each of the inputRequests")
	}
	said := fitting(was.Ask, was.Said, given)
	list, missing := r.open(was.Ask, said)
	switch {
	case missing != nil:
		return nil, missingCapability(r.name, missing)
	case len(list) > 0:
		return s.inputRequired(r, was.Ask, list, said)
	}
	answers, refused := answersTo(r.name, was.Ask, said)
	if refused != nil {
		return nil, refused
	}
	c.Answers, c.Resume = answers, was.Ask.ID
	return nil, nil
}

// misanswered says of a call that was refused for its answers that the request is wrong, as a modern client has it.
func misanswered(r *request, err error) error {
	e := tool.AsError(err)
	if !r.modern || !slices.Contains([]string{ask.Unknown, ask.Expired, ask.Answered, ask.Invalid}, e.Reason) {
		return e
	}
	member := "requestState"
	if e.Reason == ask.Invalid {
		member = "inputResponses"
	}
	return invalid("%s: %s", member, e.Message)
}

// refusedAs gives an error of finish as the protocol's own; nil: it is one of the tool's, or there is none.
func refusedAs(err error) *jsonrpc.Error {
	bad, _ := errors.AsType[*jsonrpc.Error](err)
	return bad
}

// What was asked is what a client brings back with its answers. Whether they are answers to this call, and whether they
// were given already, is not decided here: the question's id says so to the engine. But a client that brings nothing is
// told the question once more, and the engine is not asked about that: so the seal says whose it is, too.
type asked struct {
	Ask  *tool.Ask                  `json:"ask"`
	Said map[string]json.RawMessage `json:"said,omitzero"` // before the rest was asked for again
}

// A seal closes what clients bring back, so that nobody changes it, or sees what another was asked.
type seal func() (cipher.AEAD, error)

func newSeal(keys *secret.Keyed) seal {
	if keys == nil {
		keys = secret.NewKeyed(nil)
	}
	return sync.OnceValues(func() (cipher.AEAD, error) { return keys.Seal("key that seals the states of requests") })
}

// bound is what a state is good for alone: the caller, and what was called.
func (r *request) bound() []byte {
	b, _ := strictjson.Marshal([]string{r.caller.ID, r.method, r.name, r.uri}) // strings
	return b
}

func (s seal) close(r *request, a asked) (string, error) {
	aead, err := s()
	if err != nil {
		return "", err
	}
	b, _ := strictjson.Marshal(a)                                                       // JSON that was checked
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, b, r.bound())), nil //nolint:gosec // it makes a nonce
}

func (s seal) open(r *request, text string) (a asked, ok bool) {
	aead, err := s()
	if err != nil {
		return a, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		b, err = aead.Open(nil, nil, b, r.bound())
	}
	return a, err == nil && strictjson.Unmarshal(b, &a) == nil && a.Ask != nil
}
