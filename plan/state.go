package plan

import (
	"encoding/json"

	"toolpost/wire/strictjson"
)

// A document is the state that tools see and patch.
type document struct {
	value map[string]any
	text  json.RawMessage // the JSON of value; nil if not encoded yet
	given bool            // there is a state to see, even if it is empty
}

// reset sets the initial state. Nil means none: then tools see a state only after one of them has patched it.
func (d *document) reset(state json.RawMessage) {
	v, _ := strictjson.Decode(state)
	d.value, _ = v.(map[string]any)
	d.text, d.given = nil, state != nil
}

// with returns a document with patches merged in, in their order; d is unchanged.
func (d document) with(patches []json.RawMessage) document {
	for _, p := range patches {
		v, _ := strictjson.Decode(p) // the engine lets only objects through as patches
		if patch, ok := v.(map[string]any); ok {
			d.value, d.text, d.given = strictjson.Merge(d.value, patch), nil, true
		}
	}
	return d
}

// document encodes the state.
func (d *document) document() json.RawMessage {
	if d.text == nil {
		if d.value == nil {
			d.value = map[string]any{}
		}
		d.text = raw(d.value)
	}
	return d.text
}

// seen returns what a tool sees: nil if there never was a state.
func (d *document) seen() json.RawMessage {
	if !d.given {
		return nil
	}
	return d.document()
}
