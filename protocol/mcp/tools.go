package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// listTools gives a page of the tools that can be called now. One that cannot has no place where the list could say why.
func (s *server) listTools(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	after, bad := readCursor(r.cursor)
	if bad != nil {
		return nil, bad
	}
	named := s.few(s.tools(ctx, r.caller))
	names := make([]string, 0, len(named))
	for name := range named {
		if name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	more := len(names) > s.Page
	names = names[:min(len(names), s.Page)]
	w := begun(r, 500*len(names))
	w.Raw("tools", strictjson.AppendList(make([]byte, 0, 500*len(names)), names, func(b []byte, name string) []byte {
		return append(b, describe(name, named[name], r.modern)...)
	}))
	if more {
		w.Text("nextCursor", cursorAt(names[len(names)-1]))
	}
	s.keep(r, w)
	return w, nil
}

// tools gives the tools that a caller can call now, by their names on the wire.
func (s *server) tools(ctx context.Context, p tool.Principal) map[string]*tool.Spec {
	var specs []*tool.Spec
	for spec, err := range s.catalog.Specs(ctx, p) {
		if err == nil {
			specs = append(specs, spec)
		}
	}
	return tool.Slugs(specs)
}

// A cursor is the name behind which the next page begins, so that a tool that comes or goes meanwhile moves no other.
func cursorAt(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

func readCursor(cursor string) (after string, _ *jsonrpc.Error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || cursor != "" && tool.Slug(string(b)) != string(b) {
		return "", badCursor()
	}
	return string(b), nil
}

// describe writes a tool as the protocol has it.
func describe(name string, spec *tool.Spec, modern bool) []byte {
	w := strictjson.NewWriter(200 + len(spec.Description) + len(spec.Input) + len(spec.Output))
	w.Text("name", name)
	if spec.Title != "" {
		w.Text("title", spec.Title)
	}
	if spec.Description != "" {
		w.Text("description", spec.Description)
	}
	w.Raw("inputSchema", objectSchema(spec.Input))
	// Before 2026 structured content was an object, and so was what its schema describes.
	if len(spec.Output) > 0 && strictjson.KindOf(spec.Output) == "object" && (modern || typed(spec.Output)) {
		w.Raw("outputSchema", spec.Output)
	}
	if spec.Effects != (tool.Effects{}) {
		w.Raw("annotations", annotations(spec.Effects))
	}
	return w.Done()
}

// objectSchema is a schema of arguments, as clients want it: it says that they are an object, which they are here.
func objectSchema(schema json.RawMessage) json.RawMessage {
	body := strings.TrimSpace(string(schema))
	switch {
	case typed(schema):
		return schema
	case strictjson.KindOf(schema) != "object" || body == "{}":
		return json.RawMessage(`{"type":"object"}`)
	}
	return json.RawMessage(`{"type":"object",` + body[1:])
}

// typed reports whether a schema says at its top that it describes objects.
func typed(schema json.RawMessage) bool {
	found := false
	err := strictjson.Object(schema, func(name, value []byte) error {
		found = found || string(name) == "type" && string(value) == `"object"`
		return nil
	})
	return err == nil && found
}

// annotations are hints for people: what a tool says that it does to the world.
func annotations(e tool.Effects) json.RawMessage {
	w := strictjson.NewWriter(100)
	for _, hint := range []struct {
		name string
		is   bool
	}{
		{"readOnlyHint", e.ReadOnly()},
		{"destructiveHint", e.Destructive},
		{"idempotentHint", e.Idempotent},
		{"openWorldHint", e.Network || e.Exec},
	} {
		value := "false"
		if hint.is {
			value = "true"
		}
		w.Raw(hint.name, []byte(value))
	}
	return w.Done()
}

// find gives the name that the engine has for a tool. Most are the same on the wire. One that is not there is called
// all the same: it is refused by the engine, which keeps a record of that.
func (s *server) find(ctx context.Context, p tool.Principal, name string) (_ string, found bool) {
	if _, err := s.catalog.Lookup(ctx, p, name); err == nil {
		return name, true
	}
	if spec := s.tools(ctx, p)[name]; spec != nil {
		return spec.Name, true
	}
	return name, false
}

// callTool runs a call. What the tool or the engine says about it is a result, which a model reads and can mend; only a
// request that means no call is an error of the protocol.
func (s *server) callTool(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	if w, answered := s.instead(ctx, r); answered {
		return w, nil
	}
	c := &tool.Call{Caller: r.caller, Args: r.arguments}
	if r.name == "" {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: name must be a string that is not empty")
	}
	if len(c.Args) == 0 {
		c.Args = json.RawMessage("{}")
	}
	if kind := strictjson.KindOf(c.Args); kind != "object" {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: arguments must be an object, not %s", kind)
	}
	timeout, err := envelope.Read(r.meta.envelope, c)
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: in _meta %s", tool.AsError(err).Message)
	}
	c.Tool, r.found = s.find(ctx, r.caller, r.name)
	if bad := s.resume(r, c); bad != nil {
		return nil, bad
	}
	c.Name()
	ctx, end, refused := to.begin(ctx, c)
	if refused != nil {
		return failure(r, refused), nil
	}
	defer end()
	ctx, stop := envelope.Within(ctx, timeout, r.name)
	defer stop()
	return s.run(ctx, r, c, to)
}

// run makes the call, and asks a legacy client what the tool asks until it has its outcome.
func (s *server) run(ctx context.Context, r *request, c *tool.Call, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	for range maxRounds {
		out := &relay{request: r, to: to}
		res, err := s.handler.Invoke(ctx, c, out)
		switch {
		case err != nil && !r.found && tool.CodeOf(err) == tool.CodeNotFound:
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Unknown tool: %s", jsonrpc.Clip(r.name))
		case err != nil:
			return failure(r, tool.AsError(err)), nil
		case res.Ask == nil:
			return outcome(r, res, out.assets), nil
		case r.modern:
			return s.inputRequired(r, c, res.Ask)
		}
		answers, refused := s.elicit(ctx, r, res.Ask, to)
		if refused != nil {
			return failure(r, refused), nil
		}
		again := *c
		again.Answers, again.Resume = answers, res.Ask.ID
		c = &again
	}
	return failure(r, tool.Errorf(tool.CodeToolError, "%s asked %d times and did not come to an end", r.name, maxRounds)), nil
}

// maxRounds is how often a tool may ask in one call.
const maxRounds = 32
