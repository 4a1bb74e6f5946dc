package mcp

import (
	"context"

	"toolpost/codesearch/toolfind"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// instead answers a call of one of the tools that stand for all others. A call_tool becomes the call that it means, and
// goes on as if the client had made that one, so that everything which holds for a call holds for it.
func (s *server) instead(ctx context.Context, r *request) (w *strictjson.Writer, answered bool) {
	if !toolfind.IsStandIn(r.name) {
		return nil, false
	}
	all := s.tools(ctx, r.caller)
	if !s.Stands(r.name, all) {
		return nil, false
	}
	var text string
	var err error
	switch r.name {
	case toolfind.NameSearch:
		text, err = s.finder.Answer(ctx, r.arguments, all)
	case toolfind.NameDescribe:
		text, err = s.describeOne(ctx, r, all)
	default:
		name, arguments, err := toolfind.Meant(r.arguments)
		if err != nil {
			return failure(r, tool.AsError(err)), true
		}
		r.name, r.arguments, r.tool, r.spec = name, arguments, "", nil
		return nil, false
	}
	if err != nil {
		return failure(r, tool.AsError(err)), true
	}
	w = begun(r, len(text))
	w.Raw("content", append(appendText([]byte{'['}, text), ']'))
	return w, true
}

// describeOne is describe_tool. It says the same of a tool that is missing and of one that the caller does not see.
func (s *server) describeOne(ctx context.Context, r *request, all []toolfind.Named) (string, error) {
	name, err := toolfind.Described(r.arguments)
	if err != nil {
		return "", err
	}
	spec := toolfind.Find(all, name)
	if spec == nil {
		spec = s.spec(ctx, r.caller, name)
	}
	if spec == nil {
		return "", tool.Errorf(tool.CodeNotFound, "no tool named %q: %s finds names", jsonrpc.Clip(name), toolfind.NameSearch)
	}
	return string(describe(name, spec, r.modern)), nil
}
