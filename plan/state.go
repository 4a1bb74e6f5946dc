package plan

import (
	"encoding/json"

	"toolpost/wire/strictjson"
)

// A document is the state that tools see and patch.
type document struct {
	value map[string]any
	text  json.RawMessage // of value; nil: not written yet
	given bool            // there is a state to see, if only an empty one
}

// reset begins with a state; nil: there is none, and tools see one only when one of them has patched it.
func (d *document) reset(state json.RawMessage) {
	v, _ := strictjson.Decode(state)
	d.value, _ = v.(map[string]any)
	d.text, d.given = nil, state != nil
}

// with gives a document with patches merged in, in their order; the one that it was stays as it is.
func (d document) with(patches []json.RawMessage) document {
	for _, p := range patches {
		v, _ := strictjson.Decode(p) // the engine lets no other patches through than objects
		if patch, ok := v.(map[string]any); ok {
			d.value, d.text, d.given = strictjson.Merge(d.value, patch), nil, true
		}
	}
	return d
}

// document writes it.
func (d *document) document() json.RawMessage {
	if d.text == nil {
		if d.value == nil {
			d.value = map[string]any{}
		}
		d.text = raw(d.value)
	}
	return d.text
}

// seen is what a tool sees: nothing, where there never was a state.
func (d *document) seen() json.RawMessage {
	if !d.given {
		return nil
	}
	return d.document()
}
