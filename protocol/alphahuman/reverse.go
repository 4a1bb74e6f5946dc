package alphahuman

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A reverseCall is a call from the skill to us. Its id is of the skill's own numbering.
type reverseCall struct {
	id     []byte // nil: nobody waits for an answer
	method string
	params json.RawMessage
}

// A desk is where the calls back of one request are served: the events and the state of the call that the
// request belongs to. A hook outside of any call has neither.
type desk struct {
	events *tool.Relay                         // nil: nobody listens; the log gets them
	open   func(path string) (*os.File, error) // a file as the skill could; there where events are
	state  json.RawMessage                     // the session's state document
	inside bool                                // the call belongs to a session, whose state this is

	own     map[string]any // the skill's part of it, as it is now
	decoded bool
}

// takeReverse puts a call from the skill where it is served. It never waits: the reader has other calls to
// look after.
func (w *worker) takeReverse(m *message) {
	c := reverseCall{method: text(m.method), params: bytes.Clone(m.params)}
	if string(m.id) != "null" {
		c.id = bytes.Clone(m.id)
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	switch r := w.askedBy(c.params); {
	case r == nil && len(w.pending) > 0 && (c.method == methodStateGet || c.method == methodStateSet):
		w.refuse(c, "several calls are on their way; say which one this belongs to with callId")
	case r == nil:
		select {
		case w.stray <- c:
		default:
			w.refuse(c, tooMany)
		}
	case r.abandoned:
		w.refuse(c, "the call that this belongs to was ended")
	case len(r.asked) >= reverseQueue:
		w.refuse(c, tooMany)
	default:
		r.asked = append(r.asked, c)
		r.tell()
	}
}

const tooMany = "too many calls at once; wait for the answers"

// askedBy finds the request that a call back belongs to: the one that it names by callId, or the only one
// that is on its way. Where there are several it belongs to none, so that no session sees another's state.
func (w *worker) askedBy(params []byte) *request {
	var named struct {
		CallID uint64 `json:"callId"`
	}
	if len(params) > 0 && strictjson.KindOf(params) == "object" && strictjson.Unmarshal(params, &named) == nil {
		if r := w.pending[named.CallID]; r != nil {
			return r
		}
	}
	return w.only()
}

// refuse answers without waiting.
func (w *worker) refuse(c reverseCall, why string) {
	if c.id != nil {
		w.tell(encodeError(c.id, rpcErrorf(codeServer, "%s: %s", c.method, why)))
	}
}

// refuseAll refuses what an abandoned request was asked and did not serve.
func (w *worker) refuseAll(r *request) {
	for _, c := range r.asked {
		w.refuse(c, "the call that this belongs to was ended")
	}
	r.asked = nil
}

// serveStrays serves what belongs to no request.
func (w *worker) serveStrays() {
	nowhere := &desk{}
	for {
		select {
		case c := <-w.stray:
			w.serve(context.Background(), c, nowhere)
		case <-w.dead:
			return
		}
	}
}

// serve answers a call from the skill.
func (w *worker) serve(ctx context.Context, c reverseCall, d *desk) {
	result, err := w.p.reverse(c.method, c.params, d)
	if c.id == nil {
		if err != nil {
			w.p.log.Warn("a notification of the skill failed", "method", clip(c.method), "error", err)
		}
		return
	}
	var line []byte
	if err == nil {
		line = encodeReply(c.id, result)
	} else {
		var said *rpcError
		if !errors.As(err, &said) {
			said = toRPC(tool.AsError(err))
		}
		line = encodeError(c.id, said)
	}
	select {
	case w.out <- line:
	case <-w.dead:
	case <-ctx.Done():
		w.tell(line)
	}
}

var okResult = json.RawMessage(`{"ok":true}`)

// reverse is the table of what a skill may ask of its host.
func (p *program) reverse(method string, params json.RawMessage, d *desk) (json.RawMessage, error) {
	if len(params) == 0 || string(params) == "null" {
		params = json.RawMessage("{}")
	}
	switch method {
	case methodStateGet:
		return p.getState(d)
	case methodStateSet:
		return okResult, p.setState(d, params)
	case methodDataRead:
		return p.data.read(params)
	case methodDataWrite:
		return okResult, p.data.write(params)
	case methodEmitEvent:
		return okResult, p.emitEvent(d, params)
	case methodUpsert:
		return okResult, p.entities.upsert(params)
	case methodSearch:
		return p.entities.search(params)
	}
	return nil, rpcErrorf(codeMethodNotFound, "Method not found: %s", clip(method))
}

// decodeParams reads the params of a call back.
func decodeParams(params json.RawMessage, into any) error {
	if kind := strictjson.KindOf(params); kind != "object" {
		return rpcErrorf(codeInvalidParams, "params must be an object, not %s", kind)
	}
	if err := strictjson.Unmarshal(params, into); err != nil {
		return rpcErrorf(codeInvalidParams, "params: %s", misread(err))
	}
	return nil
}

// The state of a skill is its own part, skills.NAME, of the session's state. What a call changes goes out as
// patches, which the engine keeps when the call has an outcome. Outside of sessions a skill has a state of its
// own, in memory.
func (p *program) getState(d *desk) (json.RawMessage, error) {
	own, err := p.ownState(d)
	if err != nil {
		return nil, err
	}
	return strictjson.Marshal(map[string]any{"state": own})
}

func (p *program) setState(d *desk, params json.RawMessage) error {
	var set struct {
		Partial json.RawMessage `json:"partial"`
	}
	if err := decodeParams(params, &set); err != nil {
		return err
	}
	v, err := strictjson.Decode(set.Partial)
	partial, ok := v.(map[string]any)
	if err != nil || !ok {
		return rpcErrorf(codeInvalidParams, "partial must be an object")
	}
	own, err := p.ownState(d)
	if err != nil {
		return err
	}
	if !d.inside {
		return p.memory.merge(partial)
	}
	change := replacing(own, partial)
	if len(change) == 0 {
		return nil
	}
	d.own = strictjson.Merge(own, change)
	patch, err := strictjson.Marshal(map[string]any{"skills": map[string]any{p.name: change}})
	if err != nil {
		return err
	}
	return d.events.Emit(tool.Event{Kind: tool.KindStatePatch, Data: patch})
}

// replacing gives the patch by which the members of a state become what partial says. The state of a session merges at
// every depth, and a skill's state one level deep: what a member had and has no more must be taken out. A null takes
// the member out, since a session's state has none.
func replacing(state, partial map[string]any) map[string]any {
	before := map[string]any{}
	for name := range partial {
		if value, ok := state[name]; ok {
			before[name] = value
		}
	}
	return strictjson.Diff(before, partial)
}

func (p *program) ownState(d *desk) (map[string]any, error) {
	if !d.inside {
		return p.memory.get(), nil
	}
	if d.decoded {
		return d.own, nil
	}
	var doc struct {
		Skills map[string]json.RawMessage `json:"skills"`
	}
	if len(d.state) > 0 {
		if err := strictjson.Unmarshal(d.state, &doc); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the state of the session: %w", err)
		}
	}
	d.own, d.decoded = map[string]any{}, true
	if raw := doc.Skills[p.name]; len(raw) > 0 {
		if v, err := strictjson.Decode(raw); err == nil {
			if own, ok := v.(map[string]any); ok {
				d.own = own
			}
		}
	}
	return d.own, nil
}

// emitEvent passes an event on. The names of our own kinds become events of those kinds, any other a
// ui_event.
func (p *program) emitEvent(d *desk, params json.RawMessage) error {
	var e struct {
		Type string          `json:"eventType"`
		Data json.RawMessage `json:"data"`
	}
	if err := decodeParams(params, &e); err != nil {
		return err
	}
	if e.Type == "" {
		return rpcErrorf(codeInvalidParams, "eventType must be a string that is not empty")
	}
	if d.events == nil {
		p.log.Info("the skill emits an event", "event", clip(e.Type), "data", clip(string(e.Data)))
		return nil
	}
	ev := eventOf(e.Type, e.Data)
	if ev.Kind == tool.KindAsset {
		var a tool.Asset
		_ = strictjson.Unmarshal(ev.Data, &a) // eventOf has read it
		f, err := d.open(a.Path)
		if err != nil {
			return rpcErrorf(codeInvalidParams, "the asset %s cannot be read: %v", clip(a.Path), err)
		}
		defer f.Close()
		ev.File = f
	}
	return d.events.Emit(ev)
}

func eventOf(name string, data json.RawMessage) tool.Event {
	kind := tool.Kind(name)
	var into any
	switch kind {
	case tool.KindLog:
		into = &tool.Log{}
	case tool.KindProgress:
		into = &tool.Progress{}
	case tool.KindOutput:
		into = &tool.Output{}
	case tool.KindAsset:
		into = &tool.Asset{}
	case tool.KindError:
		into = &tool.ErrorEvent{}
	default:
		return tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: name, Payload: data})
	}
	if strictjson.KindOf(data) != "object" || strictjson.Unmarshal(data, into) != nil {
		return tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: name, Payload: data})
	}
	if log, ok := into.(*tool.Log); ok && log.Level == "" {
		log.Level = "info"
		return tool.NewEvent(kind, log)
	}
	return tool.Event{Kind: kind, Data: data}
}
