package mcp

import (
	"context"
	"encoding/json"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A filter says which changes a client wants to hear of.
type filter struct {
	Tools bool `json:"toolsListChanged,omitempty"`
}

// subscribe is subscriptions/listen: it tells of changes until the client has heard enough.
func (s *server) subscribe(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	var said struct {
		Notifications filter `json:"notifications"`
	}
	if err := strictjson.Unmarshal(orEmpty(r.params), &said); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: %s", jsonrpc.Misread(err))
	}
	w := strictjson.NewWriter(60)
	w.Raw(metaSubscription, r.id)
	mark := w.Done()
	changed := tool.Changed(s.catalog) // before the client is told that it will hear of changes
	honoured, _ := strictjson.Marshal(said.Notifications)
	w = strictjson.NewWriter(200)
	w.Raw("_meta", mark)
	w.Raw("notifications", honoured)
	err := to.notify("notifications/subscriptions/acknowledged", w.Done())
	for err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-changed:
			changed = tool.Changed(s.catalog)
			if said.Notifications.Tools {
				err = to.notify("notifications/tools/list_changed", json.RawMessage(`{"_meta":`+string(mark)+`}`))
			}
		}
	}
	return begun(r, 0), nil
}
