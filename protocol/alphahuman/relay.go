package alphahuman

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"toolpost/strictjson"
	"toolpost/tool"
)

// A relay is the sink of one call of a Door. To a host of the second generation events are calls back; each
// is answered before the next goes out, so that a host that is slow holds the tool back.
type relay struct {
	k      *desktop
	ctx    context.Context // of the call
	call   []byte          // its id
	second bool            // the host is of the second generation
}

// hostTime is how long a host may take to answer. One that takes longer is asked nothing any more.
const hostTime = 10 * time.Second

// Emit implements tool.Sink.
func (r *relay) Emit(e tool.Event) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	method, params, err := r.wireForm(e)
	if err != nil || !r.second || r.call == nil {
		r.k.log("%s: %s", e.Kind, clip(string(e.Data)))
		return nil
	}
	return r.k.ask(r.ctx, method, params)
}

// wireForm gives an event in the words of the second generation.
func (r *relay) wireForm(e tool.Event) (method string, params []byte, err error) {
	if e.Kind == tool.KindStatePatch {
		params, err = strictjson.Marshal(map[string]json.RawMessage{"partial": e.Data, "callId": r.call})
		return methodStateSet, params, err
	}
	name, data := string(e.Kind), e.Data
	if e.Kind == tool.KindUIEvent {
		var ui tool.UIEvent
		if err := strictjson.Unmarshal(e.Data, &ui); err != nil {
			return "", nil, err
		}
		name, data = ui.Event, ui.Payload
	}
	if len(data) == 0 {
		data = json.RawMessage("null")
	}
	params, err = strictjson.Marshal(map[string]json.RawMessage{"eventType": quoteJSON(name), "data": data, "callId": r.call})
	return methodEmitEvent, params, err
}

// ask calls the host and waits for its answer. What the host answers changes nothing for the tool; an error
// means that nobody waits for the tool any more.
func (k *desktop) ask(ctx context.Context, method string, params []byte) error {
	id, answer := k.expect()
	if answer == nil {
		k.log("%s: %s", method, clip(string(params)))
		return nil
	}
	k.write(encodeRequest(id, method, params))
	timer := time.NewTimer(hostTime)
	defer timer.Stop()
	select {
	case err := <-answer:
		if err != nil {
			k.log("the host answers %s: %v", method, err)
		}
		return nil
	case <-timer.C:
		k.log("the host does not answer %s; it is asked nothing any more", method)
		k.deafen()
		return nil
	case <-ctx.Done():
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.asked, id)
		return ctx.Err()
	}
}

// expect makes place for an answer of the host. Our ids are our own: the host numbers its requests itself.
func (k *desktop) expect() (uint64, chan error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked == nil {
		return 0, nil
	}
	k.next++
	k.asked[k.next] = make(chan error, 1)
	return k.next, k.asked[k.next]
}

// answered takes an answer of the host.
func (k *desktop) answered(m *message) {
	id, _ := m.number()
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := k.asked[id]
	if answer == nil {
		return // late, or to nothing
	}
	delete(k.asked, id)
	var err error
	if m.err != nil {
		err = m.failure()
	}
	answer <- err
}

// deafen ends the waiting for answers that cannot come any more.
func (k *desktop) deafen() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, answer := range k.asked {
		answer <- fmt.Errorf("no answer")
	}
	k.asked = nil
}
