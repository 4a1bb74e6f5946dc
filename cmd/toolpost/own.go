package main

import (
	"context"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// own calls one of Toolpost's own tools, in this process or on a server, and reads what it gives.
func own[T any](ctx context.Context, a *app, s server, name string, args any) (given T, err error) {
	b, err := a.open(ctx, s)
	if err != nil {
		return given, err
	}
	defer b.close()
	r, err := b.Invoke(ctx, &tool.Call{Tool: name, Args: raw(args), Caller: me()}, tool.Discard)
	if tool.CodeOf(err) == tool.CodeNotFound {
		if _, missing := b.Lookup(ctx, me(), name); missing != nil { // the tool itself, not what it was asked for
			return given, tool.Errorf(tool.CodeAccessDenied, "the tool %s is not there for you: the policy or your rights leave it out, "+
				"or an earlier version serves there", name)
		}
	}
	switch {
	case err != nil:
		return given, explained(ctx, err)
	case !r.OK:
		return given, tool.Errorf(tool.CodeToolError, "%s", failureOf(r))
	}
	if err := strictjson.Unmarshal(r.Output, &given); err != nil {
		return given, tool.Errorf(tool.CodeProtocol, "what came back from %s cannot be read: %w", name, err)
	}
	return given, nil
}
