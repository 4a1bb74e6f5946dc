package plan

import (
	"encoding/json"
	"sync"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A tap takes the events of one attempt to call a tool: it keeps some of them, and passes on those that may be reported
// at once. Patches have to wait, because the attempt may fail.
type tap struct {
	a      *attempt
	toolID string

	mu     sync.Mutex
	events []tool.Event
	full   bool
	size   int
	given
}

// Emit implements tool.Sink.
func (t *tap) Emit(ev tool.Event) error {
	ev.File = nil // the asset is registered by now, and its path is that of the copy
	if err := t.take(ev); err != nil {
		return err
	}
	on := tool.Event{Time: ev.Time, Kind: ev.Kind, Data: ev.Data}
	switch ev.Kind {
	case tool.KindStatePatch:
		return nil
	case tool.KindAsset, tool.KindUIEvent:
	default:
		on.Data = t.marked(ev.Data)
	}
	return t.a.emit(on)
}

// take keeps the needed part of an event.
func (t *tap) take(ev tool.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.size += len(ev.Data); t.size > maxGiven && (ev.Kind == tool.KindStatePatch || ev.Kind == tool.KindAsset) {
		return tool.Errorf(tool.CodeQuotaExceeded, "a tool of a plan gives at most %d bytes of patches and assets", maxGiven)
	}
	switch ev.Kind {
	case tool.KindStatePatch:
		t.patches = append(t.patches, ev.Data)
	case tool.KindAsset:
		var a tool.Asset
		if err := strictjson.Unmarshal(ev.Data, &a); err == nil { // otherwise the engine has made an error event of it
			t.assets = append(t.assets, a)
		}
	}
	switch {
	case t.full:
	case len(t.events) < maxEvents && t.a.remember(len(ev.Data)):
		t.events = append(t.events, ev)
	default:
		t.full = true
		more := tool.LogEvent("warn", "more events than are kept of one tool; the rest are left out")
		t.events = append(t.events, more)
	}
	return nil
}

// marked adds the toolId to the fields of an event's data.
func (t *tap) marked(data json.RawMessage) json.RawMessage {
	w := strictjson.NewWriter(len(data) + len(t.toolID) + 32)
	fields := strictjson.NewWriter(len(t.toolID) + 32)
	fields.Text("toolId", t.toolID)
	err := strictjson.Object(data, func(name, value []byte) error {
		if string(name) != "fields" {
			w.Named(string(name), value)
			return nil
		}
		if strictjson.KindOf(value) != "object" {
			fields.Raw("value", value)
			return nil
		}
		return strictjson.Object(value, func(name, value []byte) error {
			if string(name) != "toolId" {
				fields.Named(string(name), value)
			}
			return nil
		})
	})
	if err != nil {
		return data
	}
	w.Raw("fields", fields.Done())
	return w.Done()
}
