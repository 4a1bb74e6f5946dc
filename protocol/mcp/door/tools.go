package door

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"toolpost/codesearch/toolfind"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/modeltext"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// listTools returns a page of the tools that can be called now. The list cannot explain why others are missing.
func (s *server) listTools(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	return writePage(s, r, "tools", s.Few(s.tools(ctx, r.caller)), func(t toolfind.Named) string { return t.Name },
		func(t toolfind.Named) json.RawMessage { return describe(t.Name, t.Spec, r.modern) })
}

// tools returns the tools that a caller can call now, by their names on the wire. If all names are valid in the
// protocol, as most are, the list needs neither renaming nor sorting. That check pays off, since clients page through
// thousands.
func (s *server) tools(ctx context.Context, p tool.Principal) []toolfind.Named {
	var specs []*tool.Spec
	plain := true
	for spec, err := range s.catalog.Specs(ctx, p) {
		if err == nil {
			plain = plain && tool.Slug(spec.Name) == spec.Name && (len(specs) == 0 || specs[len(specs)-1].Name < spec.Name)
			specs = append(specs, spec)
		}
	}
	list := make([]toolfind.Named, 0, len(specs))
	if plain || s.Source != "" {
		for _, spec := range specs {
			list = append(list, toolfind.Named{Name: spec.Name, Spec: spec})
		}
		if !plain {
			toolfind.Sort(list)
		}
		return list
	}
	for name, spec := range tool.Slugs(specs) {
		list = append(list, toolfind.Named{Name: name, Spec: spec})
	}
	toolfind.Sort(list)
	return list
}

// describe encodes a tool for tools/list.
func describe(name string, spec *tool.Spec, modern bool) json.RawMessage {
	w := strictjson.NewWriter(200 + len(spec.Description) + len(spec.Input) + len(spec.Output))
	w.Text("name", name)
	if !spec.TitleHint {
		w.Text("title", spec.Title)
	}
	w.Text("description", spec.Description)
	w.Raw("inputSchema", schema.Object(spec.Input))
	if hasOutputSchema(spec, modern) {
		w.Raw("outputSchema", spec.Output)
	}
	if spec.TaskSupport != "" && !modern { // later versions have no such member
		w.Raw("execution", []byte(`{"taskSupport":"`+spec.TaskSupport+`"}`))
	}
	if spec.Effects != (tool.Effects{}) || spec.TitleHint {
		w.Raw("annotations", annotations(spec))
	}
	_ = strictjson.Object(strictjson.OrEmpty(spec.Extra), func(name, value []byte) error { // read before
		w.Raw(string(name), value)
		return nil
	})
	return w.Done()
}

// hasOutputSchema reports whether a tool is listed with an output schema, and so returns structured content. Before
// 2026 that had to be an object. A string is never structured: it would appear in quotes.
func hasOutputSchema(spec *tool.Spec, modern bool) bool {
	return strictjson.KindOf(spec.Output) == "object" &&
		(schema.Is(spec.Output, "object") || modern && !schema.Is(spec.Output, "string"))
}

// annotations returns hints for people: the effects that a tool declares.
func annotations(spec *tool.Spec) json.RawMessage {
	e, w := spec.Effects, strictjson.NewWriter(100)
	if spec.TitleHint {
		w.Text("title", spec.Title)
	}
	for _, hint := range []struct {
		name string
		is   bool
	}{
		{"readOnlyHint", e.ChangesNothing()},
		{"destructiveHint", e.Destructive},
		{"idempotentHint", e.Idempotent},
		{"openWorldHint", e.Network || e.Exec},
	} {
		w.Raw(hint.name, strconv.AppendBool(nil, hint.is))
	}
	return w.Done()
}

// resolve finds the tool of a call. Most have the same name on the wire as in the engine. An unknown tool is called all
// the same: the engine refuses it, and records that.
func (s *server) resolve(ctx context.Context, r *request) {
	if r.tool != "" {
		return
	}
	r.tool = r.name
	if spec, err := s.catalog.Lookup(ctx, r.caller, r.name); err == nil {
		r.spec = spec
	} else if spec := toolfind.Find(s.tools(ctx, r.caller), r.name); spec != nil {
		r.tool, r.spec = spec.Name, spec
	}
}

// envelope returns the properties of a call from _meta, or from headers if there are any. A property in both counts as
// given twice, and is refused. But a traceparent in both is taken from _meta, since the header's may be a proxy's.
func (r *request) envelope() map[string][]string {
	switch {
	case r.header == nil:
		return r.meta.envelope
	case len(r.meta.envelope) == 0:
		return r.header
	}
	both := maps.Clone(r.meta.envelope)
	for name, values := range r.header {
		if !strings.EqualFold(name, "traceparent") || len(both["traceparent"]) == 0 {
			both[name] = append(both[name], values...)
		}
	}
	return both
}

// callTool runs a call. A failure in the tool or the engine is a result, which a model can read and correct; only a
// request that describes no call is a protocol error.
func (s *server) callTool(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	if w, answered := s.serveStandIn(ctx, r); answered {
		return w, nil
	}
	c := &tool.Call{Caller: r.caller, Args: strictjson.OrEmpty(r.arguments)}
	if r.name == "" {
		return nil, mcp.Invalid("name must be a string that is not empty")
	}
	if kind := strictjson.KindOf(c.Args); kind != "object" {
		return nil, mcp.Invalid("arguments must be an object, not %s", kind)
	}
	timeout, err := envelope.Read(r.envelope(), c)
	if err != nil {
		return nil, mcp.Invalid("in _meta %s", tool.AsError(err).Message)
	}
	s.resolve(ctx, r)
	c.Tool = r.tool
	c.Name()
	ctx, end, refused := to.begin(ctx, c)
	if refused != nil {
		return failure(r, refused), nil
	}
	defer end()
	if w, bad := s.asTask(ctx, r, c); w != nil || bad != nil {
		return w, bad
	}
	ctx, stop := envelope.Within(ctx, timeout, r.name)
	defer stop()
	return s.run(ctx, r, c, to)
}

// run makes the call and answers with its outcome.
func (s *server) run(ctx context.Context, r *request, c *tool.Call, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	res, out, asks, err := s.finish(ctx, r, c, to)
	switch bad := protocolError(err); {
	case bad != nil:
		return nil, bad
	case err != nil && r.spec == nil && tool.CodeOf(err) == tool.CodeNotFound:
		_, more, _ := strings.Cut(tool.AsError(err).Message, `"; `) // the sources that may have it
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Unknown tool: %s", strings.TrimSuffix(jsonrpc.Clip(r.name)+"; "+more, "; "))
	case err != nil:
		return failure(r, tool.AsError(err)), nil
	case asks != nil:
		return asks, nil
	}
	if out.patched && c.Session != "" {
		s.subscriptions.notify(c.Caller.ID, sessionURI(c.Session))
	}
	s.setSource(ctx, r)
	return outcome(r, res, out), nil
}

// setSource notes the source of the URIs in the outcome of a call.
func (s *server) setSource(ctx context.Context, r *request) {
	if s.Source == "" && r.spec != nil && r.spec.Protocol == "mcp" && s.spec(ctx, r.caller, r.spec.Source+"."+mcp.MethodReadResource) != nil {
		r.source = r.spec.Source
	}
}

// checkParams refuses a call whose headers contradict its arguments.
func (s *server) checkParams(ctx context.Context, h http.Header, r *request) *jsonrpc.Error {
	s.resolve(ctx, r)
	if r.spec == nil {
		return nil
	}
	wanted, err := mcp.Mirrors(r.spec.Input)
	if err != nil {
		return nil // clients leave such a tool alone, or repeat nothing
	}
	for _, m := range wanted {
		given, value := h.Values(m.Header), m.In(r.arguments)
		switch {
		case len(given) == 0 && value == nil:
		case len(given) != 1 || value == nil:
			return mismatch("%s must repeat the argument %s, and is there %d times", m.Header, strings.Join(m.Path, "."),
				len(given))
		default:
			text, err := mcp.PlainHeader(given[0])
			if err != nil || !repeats(text, value) {
				return mismatch("%s says %q, and the argument %s is %s", m.Header, jsonrpc.Clip(given[0]),
					strings.Join(m.Path, "."), jsonrpc.Clip(string(value)))
			}
		}
	}
	return nil
}

// repeats reports whether a text equals a value. Numbers are compared as numbers: 42.0 is 42.
func repeats(text string, value json.RawMessage) bool {
	if strictjson.KindOf(value) != "number" {
		return text == modeltext.Plain(value)
	}
	if text == string(value) {
		return true
	}
	a, errA := strconv.ParseFloat(text, 64)
	b, errB := strconv.ParseFloat(string(value), 64)
	return errA == nil && errB == nil && a == b && strings.ContainsAny(text+string(value), ".eE")
}
