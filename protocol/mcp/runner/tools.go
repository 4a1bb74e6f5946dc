package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

// Bounds on a server's lists.
const (
	maxPages    = 1_000
	maxTools    = 20_000
	maxToolName = 200      // bytes
	maxListed   = 64 << 20 // bytes of all pages together, as much as is kept of a source's tools
	maxLeftOut  = 20       // tools that are left out, beyond which they are only counted
)

// An upstreamTool is a tool as its server describes it.
type upstreamTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema"`
	Hints       *toolHints      `json:"annotations"`
	Execution   struct {
		Task string `json:"taskSupport"`
	} `json:"execution"`

	extra    json.RawMessage // of its definition, see tool.Spec
	mirrored []mcp.Mirror    // arguments that headers repeat

	// For a prompt or resource: its method, the member of the answer that it returns, and what can be read with it.
	method, resultMember string
	resources            []tool.Resource
}

// toolHints are a server's claims about a tool's effects. They may be false.
type toolHints struct {
	Title       string `json:"title"`
	ReadOnly    *bool  `json:"readOnlyHint"`
	Destructive *bool  `json:"destructiveHint"`
	Idempotent  *bool  `json:"idempotentHint"`
	OpenWorld   *bool  `json:"openWorldHint"`
}

// A listing is one of a server's lists.
type listing struct {
	method, member string
	what           string // for people
	most           int
}

// list asks the server for all of its tools, prompts and resources.
func (r *Runner) list(ctx context.Context) (map[string]*upstreamTool, []*tool.Spec, error) {
	tools, specs := map[string]*upstreamTool{}, []*tool.Spec{}
	add := func(o *upstreamTool, err error) (string, error) {
		switch {
		case err != nil:
		case tools[o.Name] != nil:
			err = errors.New("another tool of the server has this name")
		default:
			tools[o.Name] = o
			specs = append(specs, r.specOf(o))
		}
		return o.Name, err
	}
	info, err := r.pages(ctx, listing{mcp.MethodListTools, "tools", "tools", maxTools}, func(raw json.RawMessage, info *serverInfo) (string, error) {
		_, overHTTP := r.upstream.(*remote)
		return add(readTool(raw, overHTTP && info.modern))
	})
	if err != nil {
		return nil, nil, err
	}
	r.listExtras(ctx, info, add)
	if tools[mcp.MethodInitialize] == nil {
		specs = append(specs, r.specOf(info.introduction())) // not in tools: there is nothing to call
	}
	r.setServer(ctx, info)
	return tools, specs, nil
}

// pages asks the server for a list, page by page, and passes each entry to take. An unusable entry is left out; the
// others stay.
func (r *Runner) pages(
	ctx context.Context, l listing, take func(json.RawMessage, *serverInfo) (name string, err error),
) (*serverInfo, error) {
	seen := map[string]bool{}
	size, listed, leftOut := 0, 0, 0
	for cursor := ""; ; {
		page, err := r.page(ctx, l, cursor)
		if err != nil {
			return nil, err
		}
		for _, raw := range page.entries[:min(len(page.entries), l.most-listed)] {
			if name, err := take(raw, page.server); err != nil {
				if leftOut++; leftOut <= maxLeftOut {
					r.log.Warn("one of the server's "+l.what+" is not offered", "name", jsonrpc.Clip(name), "error", err)
				}
			}
		}
		size, listed = size+page.size, listed+len(page.entries)
		switch {
		case listed > l.most || size > maxListed:
			return nil, tool.Errorf(tool.CodeProtocol, "the server lists more than %d %s, or more than %d MiB of them",
				l.most, l.what, maxListed>>20)
		case page.next == "":
			if leftOut > maxLeftOut {
				r.log.Warn("more of the server's "+l.what+" are not offered", "count", leftOut-maxLeftOut)
			}
			return page.server, nil
		case seen[page.next] || len(seen) == maxPages:
			return nil, tool.Errorf(tool.CodeProtocol,
				"the server's list of %s has no end: it repeats a page, or has more than %d", l.what, maxPages)
		}
		cursor, seen[page.next] = page.next, true
	}
}

type page struct {
	entries []json.RawMessage
	next    string
	size    int // in bytes
	server  *serverInfo
}

func (r *Runner) page(ctx context.Context, l listing, cursor string) (p page, err error) {
	q := &query{method: l.method, params: func(_ *serverInfo, w *strictjson.Writer) { w.Text("cursor", cursor) }}
	raw, err := r.upstream.ask(ctx, q)
	p.server, p.size = q.server, len(raw)
	if rpcErr := answeredError(err); rpcErr != nil {
		if rpcErr.Code == jsonrpc.CodeMethodNotFound && (l.method != mcp.MethodListTools || q.server.capabilities.Tools == nil) {
			return p, nil // it has resources or prompts, but no tools
		}
		return p, tool.Errorf(tool.CodeProtocol, "%s does not list its %s: %w", cmp.Or(r.o.shown(), "the server"), l.what, rpcErr)
	}
	if err != nil {
		return p, ended(ctx, l.method, err, q.lastOutput)
	}
	err = strictjson.Object(raw, func(name, value []byte) error {
		switch string(name) {
		case l.member:
			return strictjson.Unmarshal(value, &p.entries)
		case "nextCursor":
			return strictjson.Unmarshal(value, &p.next)
		}
		return nil
	})
	if err != nil {
		return p, tool.Errorf(tool.CodeProtocol, "the server's list of %s cannot be read: %s", l.what, jsonrpc.Misread(err))
	}
	return p, nil
}

// ended returns the error of a request that was not answered. If ctx ended, it gives that as the reason, with the last
// output of the server.
func ended(ctx context.Context, what string, err error, words string) error {
	if ctx.Err() == nil && !errors.Is(err, jsonrpc.ErrAbandoned) {
		return err
	}
	e := tool.Ended(ctx)
	e.Message = fmt.Sprintf("%s was given up: %s%s", what, e.Message, words)
	return e
}

// readTool decodes a tool. Over HTTP its annotations for headers must be valid.
func readTool(raw json.RawMessage, mirrored bool) (*upstreamTool, error) {
	o := &upstreamTool{}
	if err := strictjson.Unmarshal(raw, o); err != nil {
		return o, errors.New(jsonrpc.Misread(err))
	}
	switch {
	case o.Name == "" || len(o.Name) > maxToolName || jsonrpc.Clip(o.Name) != o.Name:
		return o, fmt.Errorf("a name has 1 to %d printable characters", maxToolName)
	case strictjson.KindOf(o.Input) != "object":
		return o, errors.New("its inputSchema is not an object")
	case len(o.Output) > 0 && strictjson.KindOf(o.Output) != "object":
		return o, errors.New("its outputSchema is not an object")
	}
	o.extra = extraOf(raw, "icons", "_meta")
	if !mirrored {
		return o, nil
	}
	var err error
	o.mirrored, err = mcp.Mirrors(o.Input)
	return o, err
}

// maxExtra bounds the members of a definition that are repeated as they are, in bytes.
const maxExtra = 64 << 10

// extraOf returns members of a definition, without those that hide something, or nil if there are none or too many.
func extraOf(definition json.RawMessage, names ...string) json.RawMessage {
	kinds := map[string]string{"_meta": "object", "annotations": "object", "icons": "array", "arguments": "array",
		"capabilities": "object", "serverInfo": "object"}
	extra := pick(definition, func(name string, value json.RawMessage) bool {
		return slices.Contains(names, name) && strictjson.KindOf(value) == kinds[name] && visible(value)
	})
	if len(extra) > maxExtra {
		return nil
	}
	return extra
}

// visible reports whether the texts in a JSON value hide nothing.
func visible(raw json.RawMessage) bool {
	v, err := strictjson.Decode(raw)
	plain, _ := strictjson.Marshal(v) // without escapes
	return err == nil && !tool.Hides(string(plain))
}

// specOf converts a tool. Its schemas stay as they are, byte for byte.
func (r *Runner) specOf(o *upstreamTool) *tool.Spec {
	s := &tool.Spec{
		Name: o.Name, Title: o.Title, Description: o.Description, Input: o.Input, Output: o.Output,
		Effects: r.effects(o.Hints), Timeout: time.Duration(r.o.Timeout), Guarantees: r.o.Guarantees,
		Unlisted: o.method != "", Method: o.method, Resources: o.resources, MCPDefinition: tool.MCPDefinition{Extra: o.extra},
	}
	if r.o.Effects == (tool.Effects{}) && (!r.o.TrustHints || o.Hints.unset()) {
		// These effects are assumed, not declared. The tier follows from what the server admits, which may be nothing.
		s.HintsIgnored = !o.Hints.unset()
		if s.TierFrom = tool.TierDefault; o.Hints.admitted().Tier() > 0 {
			s.Tier, s.TierFrom = o.Hints.admitted().Tier(), tool.TierTool
		}
	}
	s.Declare(r.o.Tier, tool.TierConfig)
	if s.Title == "" && o.Hints != nil {
		s.Title, s.TitleHint = o.Hints.Title, true
	}
	if slices.Contains([]string{"forbidden", "optional", "required"}, o.Execution.Task) {
		s.TaskSupport = o.Execution.Task
	}
	if r.walls != nil {
		r.walls(s)
	}
	return s
}

// effects returns those of the config, or the worst, and adds those in the server's hints. A hint that a tool is
// harmless is believed only if the config says so: otherwise the author of a description could open a policy that
// admits harmless tools. A missing hint has the protocol's default.
func (r *Runner) effects(h *toolHints) tool.Effects {
	if h == nil {
		h = &toolHints{}
	}
	if r.o.TrustHints {
		harmless := hintOr(h.ReadOnly, false)
		return r.o.Effects.Add(tool.Effects{
			Reads: true, Writes: !harmless, Destructive: !harmless && hintOr(h.Destructive, true),
			Network: hintOr(h.OpenWorld, true), Idempotent: harmless || hintOr(h.Idempotent, false),
		})
	}
	e := r.o.Effects
	if e == (tool.Effects{}) {
		e = tool.Effects{Reads: true, Writes: true, Network: true, Destructive: true}
	}
	return e.Add(h.admitted())
}

// hintOr returns a hint, or a default if it is missing.
func hintOr(hint *bool, otherwise bool) bool {
	if hint == nil {
		return otherwise
	}
	return *hint
}

// admitted returns the effects that a server admits, which are always believed.
func (h *toolHints) admitted() tool.Effects {
	if h == nil {
		return tool.Effects{}
	}
	return tool.Effects{
		Writes: !hintOr(h.ReadOnly, true) || hintOr(h.Destructive, false), Destructive: hintOr(h.Destructive, false),
		Network: hintOr(h.OpenWorld, false),
	}
}

// unset reports whether no hint about effects is set.
func (h *toolHints) unset() bool {
	return h == nil || h.ReadOnly == nil && h.Destructive == nil && h.Idempotent == nil && h.OpenWorld == nil
}

// mirrorHeaders returns the headers that repeat arguments.
func (o *upstreamTool) mirrorHeaders(args json.RawMessage) http.Header {
	if len(o.mirrored) == 0 {
		return nil
	}
	h := http.Header{}
	for _, m := range o.mirrored {
		switch v := m.In(strictjson.OrEmpty(args)); strictjson.KindOf(v) {
		case "string", "boolean":
			h.Set(m.Header, mcp.HeaderText(modeltext.Plain(v)))
		case "number":
			h.Set(m.Header, wholeNumber(string(v)))
		}
	}
	return h
}

// wholeNumber writes a whole number without a fraction or an exponent, and any other number as it is.
func wholeNumber(text string) string {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return text
}
