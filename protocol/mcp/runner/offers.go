package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/yosida95/uritemplate/v3"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// Bounds on a server's prompts and resources. More are left out; its tools are offered all the same.
const (
	maxPrompts   = 1_000
	maxArguments = 100    // of a prompt
	maxResources = 10_000 // and as many templates
	extrasTime   = 5 * time.Second
)

// listExtras lists the server's prompts, resources and completion. Each becomes an unlisted tool, so that its calls
// pass the same chain as those of tools.
func (r *Runner) listExtras(ctx context.Context, info *serverInfo, add func(*upstreamTool, error) (string, error)) {
	ctx, cancel := context.WithTimeout(ctx, extrasTime)
	defer cancel()
	some := func(l listing, take func(json.RawMessage, *serverInfo) (string, error)) {
		if _, err := r.pages(ctx, l, take); err != nil {
			r.log.Warn("not all that the server offers can be listed", "what", l.what, "error", err)
		}
	}
	if info.capabilities.Prompts != nil {
		some(listing{"prompts/list", "prompts", "prompts", maxPrompts}, func(raw json.RawMessage, _ *serverInfo) (string, error) {
			return add(readPrompt(raw))
		})
	}
	if info.capabilities.Resources != nil {
		read := toolForMethod(mcp.MethodReadResource, "contents", "Reads a resource of the server.",
			`"uri":{"type":"string"}},"required":["uri"]`)
		take := func(raw json.RawMessage, _ *serverInfo) (string, error) {
			one, err := readResourceEntry(raw)
			if err == nil {
				read.resources = append(read.resources, one)
			}
			return one.URI + one.Template, err
		}
		some(listing{"resources/templates/list", "resourceTemplates", "templates of resources", maxResources}, take)
		some(listing{"resources/list", "resources", "resources", maxResources}, take) // last: it may have no end, and take all of the time
		_, _ = add(read, nil)                                                         // unless a tool of the server has this name
	}
	if info.capabilities.Completions != nil {
		_, _ = add(toolForMethod(mcp.MethodComplete, "completion", "Suggests values of an argument.",
			`"ref":{"type":"object"},"argument":{"type":"object"},"context":{"type":"object"}},"required":["ref","argument"]`), nil)
	}
}

// introduction returns what the server says about itself as an unlisted tool: so it is pinned, as other texts for models.
func (info *serverInfo) introduction() *upstreamTool {
	o := toolForMethod(mcp.MethodInitialize, "", info.instructions, "}")
	o.extra = info.extra
	return o
}

// toolForMethod returns a tool that stands for a request. By the protocol such a request only reads, but that is no more
// than a hint of the server.
func toolForMethod(method, resultMember, description, properties string) *upstreamTool {
	yes := true
	return &upstreamTool{
		Name: method, Description: description, Hints: &toolHints{ReadOnly: &yes}, method: method, resultMember: resultMember,
		Input: json.RawMessage(`{"type":"object","properties":{` + properties + `,"additionalProperties":false}`),
	}
}

// readPrompt decodes a prompt. Its arguments are texts.
func readPrompt(raw json.RawMessage) (*upstreamTool, error) {
	type named struct {
		Name        string `json:"name"`
		Title       string `json:"title"`
		Description string `json:"description"`
		Required    bool   `json:"required"`
	}
	var prompt struct {
		named
		Arguments []named `json:"arguments"`
	}
	o := toolForMethod(mcp.MethodGetPrompt, "messages", "", "}")
	err := strictjson.Unmarshal(raw, &prompt)
	o.Name, o.Title, o.Description = mcp.PromptPrefix+prompt.Name, prompt.Title, prompt.Description
	switch {
	case err != nil:
		return o, errors.New(jsonrpc.Misread(err))
	case prompt.Name == "" || len(prompt.Name) > maxToolName || jsonrpc.Clip(prompt.Name) != prompt.Name:
		return o, fmt.Errorf("a name has 1 to %d printable characters", maxToolName)
	case len(prompt.Arguments) > maxArguments:
		return o, fmt.Errorf("it has more than %d arguments", maxArguments)
	}
	arguments, required := map[string]any{}, []string{}
	for _, a := range prompt.Arguments {
		one := map[string]string{"type": "string"}
		for key, text := range map[string]string{"title": a.Title, "description": a.Description} {
			if text != "" {
				one[key] = text
			}
		}
		if arguments[a.Name] = one; a.Required {
			required = append(required, a.Name)
		}
	}
	o.Input, _ = strictjson.Marshal(map[string]any{"type": "object", "properties": arguments, "required": required}) // texts
	o.extra = extraOf(raw, "arguments", "icons", "_meta")
	return o, nil
}

// readResourceEntry decodes a listed resource or template, and refuses one that a client could not request.
func readResourceEntry(raw json.RawMessage) (one tool.Resource, err error) {
	if err := strictjson.Unmarshal(raw, &one); err != nil {
		return one, errors.New(jsonrpc.Misread(err))
	}
	if one.URI != "" {
		one.Template, err = "", mcp.CheckURI(one.URI)
	} else if _, err = uritemplate.New(one.Template); one.Template == "" || len(one.Template) > mcp.MaxURI || tool.Hides(one.Template) {
		err = errors.New("it has no URI, and no template of one")
	}
	for _, line := range []*string{&one.Name, &one.Title, &one.MediaType} {
		*line = tool.VisibleName(*line)
	}
	one.Description = tool.Visible(one.Description)
	extra := extraOf(raw, "annotations", "icons", "_meta")
	one.Annotations, one.Icons, one.Meta = nil, nil, nil
	_ = strictjson.Unmarshal(strictjson.OrEmpty(extra), &one) // read before
	return one, err
}

// subject returns what a request is about, for the HTTP headers.
func (o *upstreamTool) subject(args json.RawMessage) string {
	var params struct {
		URI string `json:"uri"`
	}
	switch o.method {
	case mcp.MethodReadResource:
		_ = strictjson.Unmarshal(args, &params) // checked before
		return params.URI
	case mcp.MethodGetPrompt:
		return strings.TrimPrefix(o.Name, mcp.PromptPrefix)
	case mcp.MethodComplete:
		return ""
	}
	return o.Name
}

// write writes the params of the request.
func (o *upstreamTool) write(w *strictjson.Writer, args json.RawMessage) {
	if o.method == "" || o.method == mcp.MethodGetPrompt {
		w.Text("name", o.subject(args))
		w.Raw("arguments", args)
		return
	}
	_ = strictjson.Object(args, func(name, value []byte) error { // checked before
		w.Named(string(name), value)
		return nil
	})
}

// otherResult returns the result of a request other than tools/call.
func (u *upstreamCall) otherResult(a *answer, info *serverInfo) (*tool.Result, error) {
	found := false
	out := pick(a.raw, func(key string, value json.RawMessage) bool {
		kind := strictjson.KindOf(value)
		is := key == u.tool.resultMember && (kind == "array" || kind == "object" && key == "completion")
		found = found || is
		return is || key == "description" && kind == "string" || key == "_meta" && kind == "object"
	})
	if !found {
		return nil, tool.Errorf(tool.CodeProtocol, "the answer to %s has no %s", u.call.Tool, u.tool.resultMember)
	}
	return u.withTrace(&tool.Result{OK: true, Output: out}, info), nil
}
