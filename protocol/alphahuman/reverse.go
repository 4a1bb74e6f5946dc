package alphahuman

import (
	"encoding/json"
	"errors"
	"os"

	"toolpost/host/worker"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A scope is what the callbacks of one request can reach: the events and the state of the call that the request belongs to.
// A hook outside of any call has neither.
type scope struct {
	events *tool.Relay                         // nil means that the log gets them
	open   func(path string) (*os.File, error) // opens a file with the skill's rights; set whenever events is
	state  json.RawMessage                     // the session's state document
	inside bool                                // the call belongs to a session, whose state this is

	own map[string]any // the skill's current part of the state; nil until it is read
}

// Events implements worker.Scope.
func (s *scope) Events() *tool.Relay { return s.events }

// serve answers a call from the skill. A callback that belongs to no request has no session: if several calls are running it
// might mean any of them, and none may see another's state.
func (p *program) serve(w *worker.Worker, in *jsonrpc.Incoming, at worker.Scope) (json.RawMessage, *jsonrpc.Error) {
	s, ok := at.(*scope)
	if !ok {
		s = &scope{}
		if w.Pending() > 0 && (in.Method == methodStateGet || in.Method == methodStateSet) {
			return nil, jsonrpc.Errorf(jsonrpc.CodeServer,
				"%s: several calls are on their way; say which one this belongs to with callId", in.Method)
		}
	}
	result, err := p.reverse(in.Method, in.Params, s)
	var said *jsonrpc.Error
	switch {
	case err == nil:
		return result, nil
	case errors.As(err, &said):
		return nil, said
	}
	return nil, toRPC(tool.AsError(err))
}

var okResult = json.RawMessage(`{"ok":true}`)

// reverse handles the methods that a skill may call on its host.
func (p *program) reverse(method string, params json.RawMessage, s *scope) (json.RawMessage, error) {
	params = or(params, "{}")
	switch method {
	case methodStateGet:
		return p.getState(s)
	case methodStateSet:
		return okResult, p.setState(s, params)
	case methodDataRead:
		return p.data.read(params)
	case methodDataWrite:
		return okResult, p.data.write(params)
	case methodEmitEvent:
		return okResult, p.emitEvent(s, params)
	case methodUpsert:
		return okResult, p.entities.upsert(params)
	case methodSearch:
		return p.entities.search(params)
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "Method not found: %s", jsonrpc.Clip(method))
}

// decodeParams reads the params of a callback.
func decodeParams(params json.RawMessage, into any) error {
	if kind := strictjson.KindOf(params); kind != "object" {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params must be an object, not %s", kind)
	}
	if err := strictjson.Unmarshal(params, into); err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params: %s", jsonrpc.Misread(err))
	}
	return nil
}

// The state of a skill is its own part, skills.NAME, of the session's state. A call's changes go out as patches, which the
// engine keeps if the call has an outcome. Outside of sessions a skill has a state of its own, in memory.
func (p *program) getState(s *scope) (json.RawMessage, error) {
	own, err := p.ownState(s)
	if err != nil {
		return nil, err
	}
	return strictjson.Marshal(map[string]any{"state": own})
}

func (p *program) setState(s *scope, params json.RawMessage) error {
	var set struct {
		Partial json.RawMessage `json:"partial"`
	}
	if err := decodeParams(params, &set); err != nil {
		return err
	}
	v, err := strictjson.Decode(set.Partial)
	partial, ok := v.(map[string]any)
	if err != nil || !ok {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "partial must be an object")
	}
	own, err := p.ownState(s)
	if err != nil {
		return err
	}
	if !s.inside {
		return p.memory.merge(partial)
	}
	change := replacing(own, partial)
	if len(change) == 0 {
		return nil
	}
	s.own = strictjson.Merge(own, change)
	return s.events.Emit(tool.NewEvent(tool.KindStatePatch, map[string]any{"skills": map[string]any{p.name: change}}))
}

// replacing returns the patch that gives the members of a state the values in partial. The state of a session merges at
// every depth, and a skill's state one level deep, so entries that a member no longer has must be removed. A null removes
// the member, because a session's state has no nulls.
func replacing(state, partial map[string]any) map[string]any {
	before := map[string]any{}
	for name := range partial {
		if value, ok := state[name]; ok {
			before[name] = value
		}
	}
	return strictjson.Diff(before, partial)
}

func (p *program) ownState(s *scope) (map[string]any, error) {
	if !s.inside {
		return p.memory.get(), nil
	}
	if s.own != nil {
		return s.own, nil
	}
	var doc struct {
		Skills map[string]json.RawMessage `json:"skills"`
	}
	if err := strictjson.Unmarshal(or(s.state, "{}"), &doc); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the state of the session: %w", err)
	}
	s.own = map[string]any{}
	v, _ := strictjson.Decode(or(doc.Skills[p.name], "{}")) // a value that is not an object is not ours
	if own, ok := v.(map[string]any); ok {
		s.own = own
	}
	return s.own, nil
}

// emitEvent passes an event on. The names of our own kinds become events of those kinds, any other name becomes a ui_event.
func (p *program) emitEvent(s *scope, params json.RawMessage) error {
	var e struct {
		Type string          `json:"eventType"`
		Data json.RawMessage `json:"data"`
	}
	if err := decodeParams(params, &e); err != nil {
		return err
	}
	if e.Type == "" {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "eventType must be a string that is not empty")
	}
	if s.events == nil {
		p.log.Info("the skill emits an event", "event", jsonrpc.Clip(e.Type), "data", jsonrpc.Clip(string(e.Data)))
		return nil
	}
	ev := eventOf(e.Type, e.Data)
	if ev.Kind == tool.KindAsset {
		var a tool.Asset
		_ = strictjson.Unmarshal(ev.Data, &a) // eventOf has checked it
		f, err := s.open(a.Path)
		if err != nil {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the asset %s cannot be read: %v", jsonrpc.Clip(a.Path),
				err)
		}
		defer f.Close()
		ev.File = f
	}
	return s.events.Emit(ev)
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
	}
	if into == nil || strictjson.KindOf(data) != "object" || strictjson.Unmarshal(data, into) != nil {
		return tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: name, Payload: data})
	}
	if log, ok := into.(*tool.Log); ok && log.Level == "" {
		log.Level = "info"
		return tool.NewEvent(kind, log)
	}
	return tool.Event{Kind: kind, Data: data}
}
