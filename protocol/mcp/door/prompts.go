package door

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/modeltext"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// A prompt is a prompt that a caller may use, as it is listed.
type prompt struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitzero"`
	Icons       json.RawMessage `json:"icons,omitzero"`
	Meta        json.RawMessage `json:"_meta,omitzero"`

	spec  *tool.Spec // of the tool that writes it
	skill string     // argument of that tool; "" if the arguments are the tool's own
}

type argument struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitzero"`
}

func promptOf(name string, spec *tool.Spec) prompt {
	one := prompt{Name: name, Title: spec.Title, Description: spec.Description, spec: spec}
	if spec.Method != "" {
		_ = strictjson.Unmarshal(strictjson.OrEmpty(spec.Extra), &one) // read before
	}
	var arguments []argument
	for _, p := range schema.Properties(spec.Input) {
		arguments = append(arguments, argument{p.Name, p.Description, p.Required})
	}
	if one.Arguments == nil && arguments != nil {
		one.Arguments = encoded(arguments)
	}
	return one
}

// prompts returns a caller's prompts, by name: those of the config whose tools the caller may call, every skill, and
// those of MCP servers. If a name is taken, the later one is prefixed with its source.
func (s *server) prompts(ctx context.Context, p tool.Principal) []prompt {
	list, taken := []prompt{}, map[string]bool{}
	for _, o := range s.Prompts {
		spec := s.spec(ctx, p, o.Tool)
		if spec == nil {
			continue
		}
		one := promptOf(o.name(), spec)
		one.Description = cmp.Or(o.Description, spec.Description)
		list, taken[one.Name] = append(list, one), true
	}
	add := func(source string, one prompt) {
		if taken[one.Name] {
			one.Name = source + "." + one.Name
		}
		if !taken[one.Name] {
			list, taken[one.Name] = append(list, one), true
		}
	}
	for spec, err := range s.catalog.Specs(ctx, p) {
		if err != nil {
			continue
		}
		for _, skill := range spec.Skills {
			add(spec.Source, prompt{Name: skill.Name, Description: skill.Description, spec: spec, skill: skill.Name})
		}
	}
	for spec := range tool.Offers(ctx, s.catalog, p) {
		if spec.Method == mcp.MethodGetPrompt {
			one := promptOf(strings.TrimPrefix(spec.Ref().Name, mcp.PromptPrefix), spec)
			if spec.Own != "" {
				one.Name = spec.Source + "." + one.Name
			}
			add(spec.Source, one)
		}
	}
	slices.SortFunc(list, func(a, b prompt) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (s *server) listPrompts(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	return writePage(s, r, "prompts", s.prompts(ctx, r.caller), func(p prompt) string { return p.Name }, encoded[prompt])
}

// findPrompt returns a caller's prompt by name, or nil.
func (s *server) findPrompt(ctx context.Context, p tool.Principal, name string) *prompt {
	list := s.prompts(ctx, p)
	i := slices.IndexFunc(list, func(one prompt) bool { return one.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// getPrompt calls the tool that writes a prompt.
func (s *server) getPrompt(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	p := s.findPrompt(ctx, r.caller, r.name)
	if p == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Unknown prompt: %s", jsonrpc.Clip(r.name))
	}
	var texts map[string]string
	if r.arguments != nil && strictjson.Unmarshal(r.arguments, &texts) != nil {
		return nil, mcp.Invalid("arguments must be an object of strings")
	}
	if p.skill != "" {
		texts = map[string]string{"name": p.skill}
	}
	c := &tool.Call{Caller: r.caller, Tool: p.spec.Name, Args: argumentsOf(p.spec, texts)}
	res, files, w, bad := s.fetch(ctx, r, c, to)
	if bad != nil || w != nil {
		return w, bad
	}
	output := modeltext.Of(res)
	if p.skill != "" {
		output = instructions(output)
	}
	w = newResult(r, len(output)+200)
	description := p.Description
	if p.spec.Method != "" {
		description = r.readOwn(output)
	}
	w.Text("description", description)
	r.spec = p.spec
	s.setSource(ctx, r)
	w.Raw("messages", list(rewriteURIs(r.source, messages(output, files))))
	return w, nil
}

// readOwn keeps the _meta in the result of an MCP server, and returns its description.
func (r *request) readOwn(output json.RawMessage) string {
	var own struct {
		Description string          `json:"description"`
		Meta        json.RawMessage `json:"_meta"`
	}
	_ = strictjson.Unmarshal(output, &own) // read before
	r.given = own.Meta
	return own.Description
}

// instructions extracts the text of a skill from a tool's output.
func instructions(output json.RawMessage) json.RawMessage {
	var given struct {
		Instructions string `json:"instructions"`
	}
	if strictjson.Unmarshal(output, &given) != nil {
		return output
	}
	return strictjson.Quote(given.Instructions)
}

// messages converts a tool's output to prompt messages: those that it wrote itself, or its text; and its files.
func messages(output json.RawMessage, files []json.RawMessage) []json.RawMessage {
	var own struct {
		Messages []json.RawMessage `json:"messages"`
	}
	all := []json.RawMessage{}
	user := func(content []byte) {
		all = append(all, append(append([]byte(`{"role":"user","content":`), content...), '}'))
	}
	switch {
	case strictjson.KindOf(output) == "object" && strictjson.Unmarshal(output, &own) == nil && own.Messages != nil:
		all = own.Messages
	case modeltext.Plain(output) != "":
		user(appendText(nil, modeltext.Plain(output)))
	}
	for _, f := range files {
		user(f)
	}
	return all
}

// fetch makes a call for a request that is not tools/call. A question of the tool is returned as asks.
func (s *server) fetch(
	ctx context.Context, r *request, c *tool.Call, to peer,
) (res *tool.Result, files []json.RawMessage, asks *strictjson.Writer, _ *jsonrpc.Error) {
	c.Name()
	ctx, end, refused := to.begin(ctx, c)
	if refused != nil {
		return nil, nil, nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", refused.Message)
	}
	defer end()
	res, out, asks, err := s.finish(ctx, r, c, to)
	switch bad := protocolError(err); {
	case bad != nil:
		return nil, nil, nil, bad
	case err != nil && tool.CodeOf(err) == tool.CodeNotFound && r.uri != "":
		return nil, nil, nil, noResource(r)
	case err != nil && tool.CodeOf(err) == tool.CodeInvalidInput:
		return nil, nil, nil, mcp.Invalid("%s", tool.AsError(err).Message)
	case err != nil:
		return nil, nil, nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", tool.AsError(err).Message)
	case asks != nil:
		return nil, nil, asks, nil
	case !res.OK:
		return nil, nil, nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", res.Failure.Message)
	}
	return res, out.assets, nil, nil
}

// complete suggests values of an argument: those that the tool's schema lists, or those that an MCP server suggests.
func (s *server) complete(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	var params struct {
		Ref struct {
			Type string `json:"type"`
			Name string `json:"name,omitempty"`
			URI  string `json:"uri,omitempty"`
		} `json:"ref"`
		Argument struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"argument"`
		Context json.RawMessage `json:"context,omitzero"`
	}
	if bad := r.read(&params); bad != nil {
		return nil, bad
	}
	var spec *tool.Spec
	source, own, upstream := s.splitSourceURI(params.Ref.URI)
	switch {
	case params.Ref.Type == "ref/prompt":
		if p := s.findPrompt(ctx, r.caller, params.Ref.Name); p != nil {
			spec, upstream, source = p.spec, p.spec.Method != "", p.spec.Source
			params.Ref.Name = strings.TrimPrefix(spec.Ref().Name, mcp.PromptPrefix)
		}
	case params.Ref.Type == "ref/resource" && upstream:
		spec, params.Ref.URI = s.spec(ctx, r.caller, s.toolOf(source, mcp.MethodReadResource)), own
	case params.Ref.Type == "ref/resource":
		for _, one := range s.Resources {
			if one.URI == params.Ref.URI {
				spec = s.spec(ctx, r.caller, one.Tool)
			}
		}
	}
	switch {
	case spec == nil:
		return nil, mcp.Invalid("there is no such %s", jsonrpc.Clip(params.Ref.Type))
	case upstream:
		return s.completeUpstream(ctx, r, source, encoded(params), to)
	}
	values := suggestions(spec, params.Argument.Name, params.Argument.Value)
	total, more := len(values), false
	return completed(r, completion{values, &total, &more}), nil
}

// A completion suggests values. An MCP server need not say how many there are.
type completion struct {
	Values []string `json:"values"`
	Total  *int     `json:"total,omitzero"`
	More   *bool    `json:"hasMore,omitzero"`
}

// completed writes suggestions.
func completed(r *request, c completion) *strictjson.Writer {
	const most = 100
	if len(c.Values) > most {
		more := true
		c.Values, c.More = c.Values[:most], &more
	}
	w := newResult(r, 200)
	w.Raw("completion", encoded(c))
	return w
}

// completeUpstream asks an MCP server for suggestions. A server without completion has none.
func (s *server) completeUpstream(
	ctx context.Context, r *request, source string, args json.RawMessage, to peer,
) (*strictjson.Writer, *jsonrpc.Error) {
	name := s.toolOf(source, mcp.MethodComplete)
	if s.spec(ctx, r.caller, name) == nil {
		return completed(r, completion{Values: []string{}}), nil
	}
	res, _, asks, bad := s.fetch(ctx, r, &tool.Call{Caller: r.caller, Tool: name, Args: args}, to)
	if bad != nil || asks != nil {
		return asks, bad
	}
	var given struct {
		Completion completion `json:"completion"`
	}
	if err := strictjson.Unmarshal(res.Output, &given); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "what the server gave cannot be read: %s", jsonrpc.Misread(err))
	}
	r.readOwn(res.Output)
	given.Completion.Values = slices.DeleteFunc(append([]string{}, given.Completion.Values...), tool.Hides)
	return completed(r, given.Completion), nil
}

// suggestions returns the values of an argument that begin with the typed text, in the order of the schema.
func suggestions(spec *tool.Spec, argument, typed string) []string {
	values := []string{}
	for _, p := range schema.Properties(spec.Input) {
		if p.Name != argument {
			continue
		}
		for _, raw := range p.Enum {
			if v := modeltext.Plain(raw); strings.HasPrefix(strings.ToLower(v), strings.ToLower(typed)) {
				values = append(values, v)
			}
		}
	}
	return values
}
