package mcp

import (
	"context"
	"encoding/json"
	"sync"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A flight is the requests of one peer that are being answered, by their ids as they are written, so that the peer can
// cancel them: calls of a client, or questions of a server.
type flight struct {
	mu      sync.Mutex
	running map[string]context.CancelCauseFunc
}

// enter notes a request. Its context ends when the peer cancels it; false: one of this id is still being answered.
func (f *flight) enter(ctx context.Context, id []byte) (_ context.Context, leave func(), ok bool) {
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

// errCancelled is the cause when a peer cancelled its request.
var errCancelled error = tool.Errorf(tool.CodeCancelled, "the call was cancelled by its caller")

// hear takes a notification: one that a request is cancelled. One that means no request that runs is late, and ignored.
func (f *flight) hear(method string, params json.RawMessage) {
	var said struct {
		ID json.RawMessage `json:"requestId"`
	}
	if method != noteCancelled || strictjson.Unmarshal(orEmpty(params), &said) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if cancel := f.running[string(said.ID)]; cancel != nil {
		cancel(errCancelled)
	}
}
