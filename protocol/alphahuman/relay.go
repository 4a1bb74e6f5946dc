package alphahuman

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A relay is the sink of one call of a Door. A host of the second generation gets events as callbacks. Each one is answered
// before the next goes out, so that a slow host slows down the tool.
type relay struct {
	k      *desktop
	ctx    context.Context // of the call
	call   []byte          // its id
	second bool            // the host is of the second generation
}

// hostTime is how long a host may take to answer. A slower host is not asked again.
const hostTime = 10 * time.Second

// Emit implements tool.Sink.
func (r *relay) Emit(e tool.Event) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if !r.second || r.call == nil {
		return r.unsaid(e)
	}
	if e.Kind == tool.KindStatePatch {
		return r.patch(e)
	}
	params, err := r.wireForm(e)
	if err != nil {
		return r.unsaid(e)
	}
	_, err = r.k.ask(r.ctx, methodEmitEvent, params)
	return err
}

// unsaid logs an event that cannot be sent to the host, which is no fault of the tool.
func (r *relay) unsaid(e tool.Event) error {
	r.k.log("%s: %s", e.Kind, jsonrpc.Clip(string(e.Data)))
	return nil
}

// wireForm returns an event in the form of the second generation.
func (r *relay) wireForm(e tool.Event) ([]byte, error) {
	name, data := string(e.Kind), e.Data
	if e.Kind == tool.KindUIEvent {
		var ui tool.UIEvent
		if err := strictjson.Unmarshal(e.Data, &ui); err != nil {
			return nil, err
		}
		name, data = ui.Event, ui.Payload
	}
	return strictjson.Marshal(map[string]json.RawMessage{
		"eventType": strictjson.Quote(name), "data": or(data, "null"), "callId": r.call,
	})
}

// patch changes the state that the host keeps for us. A host merges one level deep, but a patch applies at every depth. So a
// deeper patch first asks for the members, and then sends them whole. One call at a time does this.
func (r *relay) patch(e tool.Event) error {
	v, err := strictjson.Decode(e.Data)
	patch, ok := v.(map[string]any)
	if err != nil || !ok {
		return r.unsaid(e)
	}
	select {
	case r.k.patching <- struct{}{}:
		defer func() { <-r.k.patching }()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	partial := patch
	if goesDeep(patch) {
		partial, err = r.whole(patch)
	}
	if err != nil {
		return err
	}
	// both came as JSON
	params, _ := strictjson.Marshal(map[string]any{"partial": partial, "callId": json.RawMessage(r.call)})
	_, err = r.k.ask(r.ctx, methodStateSet, params)
	return err
}

// goesDeep reports whether a patch has more than one level.
func goesDeep(patch map[string]any) bool {
	for _, value := range patch {
		if _, ok := value.(map[string]any); ok {
			return true
		}
	}
	return false
}

// whole returns the members that a patch changes, with the patch applied. If the host does not return its state, it gets the
// patch.
func (r *relay) whole(patch map[string]any) (map[string]any, error) {
	params, _ := strictjson.Marshal(map[string]json.RawMessage{"callId": r.call}) // the id came as JSON
	raw, err := r.k.ask(r.ctx, methodStateGet, params)
	if err != nil {
		return nil, err
	}
	v, _ := strictjson.Decode(raw) // of nil if there was no answer
	told, _ := v.(map[string]any)
	state, ok := told["state"].(map[string]any)
	if !ok {
		return patch, nil
	}
	merged, partial := strictjson.Merge(state, patch), map[string]any{}
	for name := range patch {
		partial[name] = merged[name] // null is the only way to remove a member
	}
	return partial, nil
}

// ask calls the host and waits for its answer. It returns nil if the host refused or did not answer, which does not affect
// the tool. An error means that the call has been abandoned.
func (k *desktop) ask(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	patience, cancel := context.WithTimeout(ctx, hostTime)
	defer cancel()
	raw, err := k.conn.Ask(patience, method, params, nil)
	switch {
	case ctx.Err() != nil && raw == nil:
		return nil, ctx.Err()
	case errors.Is(err, jsonrpc.ErrUnsent):
		k.log("%s: %s", method, jsonrpc.Clip(string(params)))
	case errors.Is(err, jsonrpc.ErrAbandoned):
		k.log("the host does not answer %s; it is asked nothing any more", method)
		k.conn.End(errNoAnswer)
	case err != nil:
		k.log("the host answers %s: %v", method, err)
	}
	return raw, nil
}
