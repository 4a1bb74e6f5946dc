package door

import (
	"cmp"
	"context"
	"encoding/json"

	"toolpost/codesearch/toolfind"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// serveStandIn answers a call of one of the tools that stand in for all others. A call_tool becomes the call that it
// names, and continues as if the client had made it, so that every rule for calls applies.
func (s *server) serveStandIn(ctx context.Context, r *request) (w *strictjson.Writer, answered bool) {
	if !toolfind.IsStandIn(r.name) {
		return nil, false
	}
	all := s.tools(ctx, r.caller)
	if !s.Stands(r.name, all) {
		return nil, false
	}
	if r.name == toolfind.NameCall {
		name, arguments, err := toolfind.Meant(r.arguments)
		if err != nil {
			return failure(r, tool.AsError(err)), true
		}
		r.name, r.arguments, r.tool, r.spec = name, arguments, "", nil
		return nil, false
	}
	text, err := s.finder.Answer(ctx, r.name, r.arguments, all, func(name string) json.RawMessage {
		spec := cmp.Or(toolfind.Find(all, name), s.spec(ctx, r.caller, name))
		if spec == nil {
			return nil
		}
		return describe(name, spec, r.modern)
	})
	if err != nil {
		return failure(r, tool.AsError(err)), true
	}
	w = newResult(r, len(text))
	w.Raw("content", append(appendText([]byte{'['}, text), ']'))
	return w, true
}
