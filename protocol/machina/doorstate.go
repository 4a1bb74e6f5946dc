package machina

import (
	"fmt"
	"sync"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// take applies what a request says about the state.
func (o *host) take(c *change) error {
	if c == nil && o.doc != nil {
		return nil
	}
	if err := o.become(o.state.apply(c)); err != nil {
		return &wireError{"invalid ds_state", err.Error()}
	}
	return nil
}

// become goes over to another state, unless something is wrong with it.
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

// patch applies what a tool did to the state, and gives it as a delta.
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

// note writes an event that the protocol cannot carry to the log.
func (s *patchSink) note(e tool.Event) {
	var l tool.Log
	if e.Kind == tool.KindLog && strictjson.Unmarshal(e.Data, &l) == nil {
		s.log.log("%s: %s", l.Level, l.Message)
		return
	}
	s.log.log("%s: %s", e.Kind, e.Data)
}
