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

// A relay is the sink of one call of a Door. To a host of the second generation events are calls back; each
// is answered before the next goes out, so that a host that is slow holds the tool back.
type relay struct {
	k      *desktop
	ctx    context.Context // of the call
	call   []byte          // its id
	second bool            // the host is of the second generation
}

// hostTime is how long a host may take to answer. One that takes longer is not asked again.
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

// unsaid logs what cannot be said to the host, which is no fault of the tool.
func (r *relay) unsaid(e tool.Event) error {
	r.k.log("%s: %s", e.Kind, jsonrpc.Clip(string(e.Data)))
	return nil
}

// wireForm returns an event in the words of the second generation.
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

// patch changes the state that the host keeps for us. A host merges one level deep and a patch means every depth: where
// it goes deeper the members are asked for first, and sent whole. One call at a time does this.
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

// goesDeep reports whether one level is not all that a patch is about.
func goesDeep(patch map[string]any) bool {
	for _, value := range patch {
		if _, ok := value.(map[string]any); ok {
			return true
		}
	}
	return false
}

// whole returns the members that a patch changes as they are then. A host that does not tell its state gets the patch.
func (r *relay) whole(patch map[string]any) (map[string]any, error) {
	params, _ := strictjson.Marshal(map[string]json.RawMessage{"callId": r.call}) // which came as JSON
	raw, err := r.k.ask(r.ctx, methodStateGet, params)
	if err != nil {
		return nil, err
	}
	v, _ := strictjson.Decode(raw) // nothing comes of nothing
	told, _ := v.(map[string]any)
	state, ok := told["state"].(map[string]any)
	if !ok {
		return patch, nil
	}
	merged, partial := strictjson.Merge(state, patch), map[string]any{}
	for name := range patch {
		partial[name] = merged[name] // null: there is no other way to take a member out
	}
	return partial, nil
}

// ask calls the host and waits for its answer; nil: the host said no, or nothing. That changes nothing for the tool; an
// error means that nobody waits for the tool any more.
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
