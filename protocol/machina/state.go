package machina

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// slots is a DSState: the content of each slot, by its number. A value is never changed; it is replaced by a copy.
//
// The state of a session is a document, of which "slots" is this map. The rest of the document is carried in one more slot,
// of type toolpost.state, so that nothing is lost.
type slots map[int]json.RawMessage

const (
	restType  = "toolpost.state"
	lastSlot  = 255 // of a toolhost; the rest goes into the last free slot
	maxSlot   = 999_999_999
	maxStated = 16 << 20 // bytes of a whole state
)

// A change is a message about the state. A delta always has all three members, a whole state just one.
type change struct {
	Delta   bool  `json:"delta,omitzero"` // otherwise it is the whole state
	Slots   slots `json:"slots"`
	Removed []int `json:"removed_slots,omitzero"`
}

// decodeChange reads a ds_state; a missing one and null are no change. Numbers in removed_slots may be strings.
func decodeChange(raw []byte) (*change, error) {
	switch strictjson.KindOf(raw) {
	case "nothing", "null":
		return nil, nil
	}
	var w struct {
		Delta   any                        `json:"delta"`
		Slots   map[string]json.RawMessage `json:"slots"`
		Removed []json.RawMessage          `json:"removed_slots"`
	}
	if err := strictjson.Unmarshal(raw, &w); err != nil {
		return nil, err
	}
	c := &change{Slots: slots{}}
	switch delta := w.Delta.(type) {
	case nil:
	case bool:
		c.Delta = delta
	case float64: // C and C++ write booleans as numbers
		c.Delta = delta != 0
	default:
		return nil, fmt.Errorf("delta is true or false, not %v", delta)
	}
	for name, value := range w.Slots {
		n, err := slotNumber(name)
		if err != nil {
			return nil, err
		}
		if c.Slots[n], err = plainSlot(value); err != nil {
			return nil, fmt.Errorf("slot %d: %w", n, err)
		}
	}
	for _, value := range w.Removed {
		name := string(value)
		if strictjson.KindOf(value) == "string" {
			name, _ = text(value)
		}
		n, err := slotNumber(name)
		if err != nil {
			return nil, err
		}
		c.Removed = append(c.Removed, n)
	}
	return c, nil
}

func slotNumber(name string) (int, error) {
	n, err := strconv.Atoi(name)
	if err != nil || n < 0 || n > maxSlot || strconv.Itoa(n) != name {
		return 0, fmt.Errorf("%.40q is not the number of a slot", name)
	}
	return n, nil
}

// plainSlot returns a slot in a canonical form, in which equal slots are equal bytes.
func plainSlot(value json.RawMessage) (json.RawMessage, error) {
	v, err := strictjson.Decode(value)
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("expected an object, got %s", strictjson.KindOf(value))
	}
	return strictjson.Marshal(strictjson.Merge(nil, object)) // without nulls, as in every state document
}

// apply returns the state after a change.
func (s slots) apply(c *change) slots {
	if c == nil {
		return s
	}
	next := slots{}
	if c.Delta {
		maps.Copy(next, s)
	}
	maps.Copy(next, c.Slots)
	for _, n := range c.Removed {
		delete(next, n)
	}
	return next
}

func (s slots) size() (bytes int) {
	for _, value := range s {
		bytes += len(value)
	}
	return bytes
}

// delta returns the change that turns s into next.
func (s slots) delta(next slots) *change {
	c := &change{Delta: true, Slots: slots{}, Removed: []int{}}
	for n, value := range next {
		if old, ok := s[n]; !ok || string(old) != string(value) {
			c.Slots[n] = value
		}
	}
	for n := range s {
		if _, ok := next[n]; !ok {
			c.Removed = append(c.Removed, n)
		}
	}
	slices.Sort(c.Removed)
	return c
}

func (c *change) empty() bool { return len(c.Slots) == 0 && len(c.Removed) == 0 }

// document returns the state document of which s is the wire form.
func (s slots) document() (map[string]any, error) {
	doc := map[string]any{}
	under := map[string]any{}
	for n, value := range s {
		if rest, ok := restOf(value); ok {
			doc = strictjson.Merge(doc, rest)
			continue
		}
		v, err := strictjson.Decode(value)
		if err != nil {
			return nil, err
		}
		under[strconv.Itoa(n)] = v
	}
	return strictjson.Merge(doc, map[string]any{"slots": under}), nil
}

// restOf decodes the slot that carries the rest of the document.
func restOf(value json.RawMessage) (map[string]any, bool) {
	var s struct {
		Type        string `json:"type"`
		ContentJSON string `json:"content_json"`
	}
	if strictjson.Unmarshal(value, &s) != nil || s.Type != restType {
		return nil, false
	}
	v, err := strictjson.Decode([]byte(s.ContentJSON))
	rest, ok := v.(map[string]any)
	return rest, err == nil && ok
}

// slotsOf is the inverse of document.
func slotsOf(doc map[string]any) (slots, error) {
	s, odd := slots{}, map[string]any{}
	under, isMap := doc["slots"].(map[string]any)
	for name, value := range under {
		n, err := slotNumber(name)
		if _, isSlot := value.(map[string]any); err != nil || !isSlot {
			odd[name] = value
			continue
		}
		if s[n], err = strictjson.Marshal(value); err != nil {
			return nil, err
		}
	}
	rest := maps.Clone(doc)
	if isMap {
		delete(rest, "slots")
	}
	if len(odd) > 0 {
		rest["slots"] = odd
	}
	if len(rest) == 0 {
		return s, nil
	}
	return s, s.keepRest(rest)
}

// keepRest puts the rest of the document into the last free slot.
func (s slots) keepRest(rest map[string]any) error {
	content, err := strictjson.Marshal(rest)
	if err != nil {
		return err
	}
	n := lastSlot
	for n > 0 && s[n] != nil {
		n--
	}
	s[n], err = strictjson.Marshal(map[string]any{
		"type": restType, "provenance": "toolpost", "content_json": string(content), "size_bytes": len(content),
	})
	return err
}

// decodeDocument reads a state document; no bytes are an empty one.
func decodeDocument(raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 {
		return map[string]any{}, nil
	}
	v, err := strictjson.Decode(raw)
	if err != nil {
		return nil, err
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a state is an object, not %s", strictjson.KindOf(raw))
	}
	return doc, nil
}

// decodeState reads a state document as slots.
func decodeState(raw json.RawMessage) (slots, error) {
	doc, err := decodeDocument(raw)
	if err != nil {
		return nil, err
	}
	return slotsOf(doc)
}

// take applies the state change of a request.
func (o *host) take(c *change) error {
	if c == nil && o.doc != nil {
		return nil
	}
	if err := o.become(o.state.apply(c)); err != nil {
		return &wireError{"invalid ds_state", err.Error()}
	}
	return nil
}

// become replaces the state, unless the next one is invalid.
func (o *host) become(next slots) error {
	if size := next.size(); size > maxStated {
		return fmt.Errorf("the state would be %d bytes long, and %d is the most", size, maxStated)
	}
	doc, err := next.document()
	if err != nil {
		return err
	}
	raw, err := strictjson.Marshal(doc)
	if err != nil {
		return err
	}
	o.state, o.doc = next, raw
	return nil
}

// patch applies a tool's changes to the state, and returns them as a delta.
func (o *host) patch(patches []map[string]any) (*change, error) {
	if len(patches) == 0 {
		return nil, nil
	}
	doc, err := decodeDocument(o.doc)
	if err != nil {
		return nil, err
	}
	for _, p := range patches {
		doc = strictjson.Merge(doc, p)
	}
	next, err := slotsOf(doc)
	if err != nil {
		return nil, err
	}
	told := o.state.delta(next)
	return told, o.become(next)
}

// nothingChanged is the delta of most calls.
const nothingChanged = `{"delta":true,"slots":{},"removed_slots":[]}`

// stated returns the ds_state of an answer.
func (o *host) stated(told *change, whole bool) string {
	if whole {
		told = &change{Slots: o.state}
	}
	if told == nil {
		return nothingChanged
	}
	b, err := strictjson.Marshal(told)
	if err != nil { // every slot was made by Marshal
		return nothingChanged
	}
	return string(b)
}

// A patchSink keeps the state patches of one call and logs its other events.
type patchSink struct {
	log *Door

	mu      sync.Mutex
	patches []map[string]any
	size    int
}

// Emit implements tool.Sink.
func (s *patchSink) Emit(e tool.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Kind != tool.KindStatePatch {
		s.note(e)
		return nil
	}
	if s.size += len(e.Data); s.size > maxStated {
		return tool.Errorf(tool.CodeQuotaExceeded, "more than %d bytes of state patches in one call", maxStated)
	}
	p, err := decodeDocument(e.Data)
	if err != nil {
		s.log.log("a state patch is left out: %v", err)
		return nil
	}
	s.patches = append(s.patches, p)
	return nil
}

// note logs an event that the protocol cannot carry.
func (s *patchSink) note(e tool.Event) {
	var l tool.Log
	if e.Kind == tool.KindLog && strictjson.Unmarshal(e.Data, &l) == nil {
		s.log.log("%s: %s", l.Level, l.Message)
		return
	}
	s.log.log("%s: %s", e.Kind, e.Data)
}
