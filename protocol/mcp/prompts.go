package mcp

import (
	"context"
	"encoding/json"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// listPrompts gives those whose tools the caller may call.
func (s *server) listPrompts(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	if r.cursor != "" {
		return nil, badCursor()
	}
	type argument struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
		Required    bool   `json:"required,omitempty"`
	}
	type prompt struct {
		Name        string     `json:"name"`
		Title       string     `json:"title,omitempty"`
		Description string     `json:"description,omitempty"`
		Arguments   []argument `json:"arguments,omitempty"`
	}
	list := []prompt{}
	for _, p := range s.Prompts {
		spec := s.spec(ctx, r.caller, p.Tool)
		if spec == nil {
			continue
		}
		one := prompt{Name: p.name(), Title: spec.Title, Description: orElse(p.Description, spec.Description)}
		for _, a := range parameters(spec) {
			one.Arguments = append(one.Arguments, argument{a.name, a.description, a.required})
		}
		list = append(list, one)
	}
	return s.listed(r, "prompts", list)
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func badCursor() *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: the cursor is not one of ours; begin again without it")
}

// listed writes a list that has one page.
func (s *server) listed(r *request, name string, list any) (*strictjson.Writer, *jsonrpc.Error) {
	b, err := strictjson.Marshal(list)
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "the list cannot be written: %v", err)
	}
	w := begun(r, len(b))
	w.Raw(name, b)
	s.keep(r, w)
	return w, nil
}

// findPrompt gives a prompt that a caller may have, and its tool.
func (s *server) findPrompt(ctx context.Context, p tool.Principal, name string) (Prompt, *tool.Spec) {
	for _, one := range s.Prompts {
		if one.name() == name {
			if spec := s.spec(ctx, p, one.Tool); spec != nil {
				return one, spec
			}
		}
	}
	return Prompt{}, nil
}

// getPrompt has a prompt written.
func (s *server) getPrompt(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	p, spec := s.findPrompt(ctx, r.caller, r.name)
	if spec == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Unknown prompt: %s", jsonrpc.Clip(r.name))
	}
	var texts map[string]string
	if r.arguments != nil && strictjson.Unmarshal(r.arguments, &texts) != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: arguments must be an object of strings")
	}
	res, files, w, bad := s.fetch(ctx, r, &tool.Call{Caller: r.caller, Tool: p.Tool, Args: argumentsOf(spec, texts)}, to)
	if bad != nil || w != nil {
		return w, bad
	}
	w = begun(r, len(res.Output)+200)
	if about := orElse(p.Description, spec.Description); about != "" {
		w.Text("description", about)
	}
	w.Raw("messages", messages(res.Output, files))
	return w, nil
}

// messages is what a tool gave as what a model is told: the messages that it wrote itself, or its text; and its files.
func messages(output json.RawMessage, files [][]byte) []byte {
	var own struct {
		Messages []json.RawMessage `json:"messages"`
	}
	b := []byte{'['}
	add := func(message []byte) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, message...)
	}
	said := func(content []byte) []byte {
		return append(append([]byte(`{"role":"user","content":`), content...), '}')
	}
	switch {
	case strictjson.KindOf(output) == "object" && strictjson.Unmarshal(output, &own) == nil && own.Messages != nil:
		for _, m := range own.Messages {
			add(m)
		}
	case len(output) > 0 && string(output) != "null":
		add(said(appendText(nil, plain(output))))
	}
	for _, f := range files {
		add(said(f))
	}
	return append(b, ']')
}

// fetch makes a call for something that is not a tool to the client. A question of the tool is a result of its own.
func (s *server) fetch(
	ctx context.Context, r *request, c *tool.Call, to peer,
) (res *tool.Result, files [][]byte, asks *strictjson.Writer, _ *jsonrpc.Error) {
	c.Name()
	ctx, end, refused := to.begin(ctx, c)
	if refused != nil {
		return nil, nil, nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", refused.Message)
	}
	defer end()
	res, out, asks, err := s.finish(ctx, r, c, to)
	switch bad := refusedAs(err); {
	case bad != nil:
		return nil, nil, nil, bad
	case err != nil && tool.CodeOf(err) == tool.CodeInvalidInput:
		return nil, nil, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: %s", tool.AsError(err).Message)
	case err != nil:
		return nil, nil, nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", tool.AsError(err).Message)
	case asks != nil:
		return nil, nil, asks, nil
	case !res.OK:
		return nil, nil, nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", res.Failure.Message)
	}
	return res, out.assets, nil, nil
}

// complete suggests values of an argument: those that the tool's schema lists.
func (s *server) complete(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	var said struct {
		Ref struct {
			Type string `json:"type"`
			Name string `json:"name"`
			URI  string `json:"uri"`
		} `json:"ref"`
		Argument struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"argument"`
	}
	if err := strictjson.Unmarshal(orEmpty(r.params), &said); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: %s", jsonrpc.Misread(err))
	}
	var spec *tool.Spec
	switch said.Ref.Type {
	case "ref/prompt":
		_, spec = s.findPrompt(ctx, r.caller, said.Ref.Name)
	case "ref/resource":
		for _, one := range s.Resources {
			if one.URI == said.Ref.URI {
				spec = s.spec(ctx, r.caller, one.Tool)
			}
		}
	}
	if spec == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: there is no such %s", jsonrpc.Clip(said.Ref.Type))
	}
	values := suggestions(spec, said.Argument.Name, said.Argument.Value)
	const most = 100
	total := len(values)
	b, _ := strictjson.Marshal(map[string]any{
		"values": values[:min(total, most)], "total": total, "hasMore": total > most,
	}) // strings and numbers
	w := begun(r, len(b))
	w.Raw("completion", b)
	return w, nil
}
