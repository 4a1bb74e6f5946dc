package mcp

import (
	"context"
	"encoding/json"
	"sync"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An InFlight holds the requests of one peer that are being answered, by their raw ids, so that the peer can cancel
// them: calls of a client, or questions of a server.
type InFlight struct {
	mu      sync.Mutex
	running map[string]context.CancelCauseFunc
}

// Enter adds a request. Its context ends when the peer cancels it. ok is false if a request with this id is still
// running.
func (f *InFlight) Enter(ctx context.Context, id []byte) (_ context.Context, leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[string(id)] != nil {
		return nil, nil, false
	}
	if f.running == nil {
		f.running = map[string]context.CancelCauseFunc{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	f.running[string(id)] = cancel
	return ctx, func() {
		f.mu.Lock()
		delete(f.running, string(id))
		f.mu.Unlock()
		cancel(nil)
	}, true
}

// ErrCancelled is the cause when a peer cancelled its request.
var ErrCancelled error = tool.Errorf(tool.CodeCancelled, "the call was cancelled by its caller")

// HandleCancel handles a notification that cancels a request. If the request is no longer running, it is ignored.
func (f *InFlight) HandleCancel(method string, params json.RawMessage) {
	var msg struct {
		ID json.RawMessage `json:"requestId"`
	}
	if method != NoteCancelled || strictjson.Unmarshal(strictjson.OrEmpty(params), &msg) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if cancel := f.running[string(msg.ID)]; cancel != nil {
		cancel(ErrCancelled)
	}
}
