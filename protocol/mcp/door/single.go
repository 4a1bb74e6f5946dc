package door

import (
	"context"
	"encoding/json"
	"iter"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A single is the part of a catalogue that one source brings, under the source's own names, so that a client cannot tell
// it from the source. Every call still passes the whole chain.
type single struct {
	source  string
	handler tool.Handler
	catalog tool.Catalog
}

var (
	_ tool.Handler  = single{}
	_ tool.Catalog  = single{}
	_ tool.Offering = single{}
	_ tool.Changing = single{}
)

// Invoke implements tool.Handler.
func (s single) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	call := *c
	call.Tool = s.source + "." + c.Tool
	return s.handler.Invoke(ctx, &call, out)
}

// Lookup implements tool.Catalog. It waits until the source is open.
func (s single) Lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	spec, err := s.catalog.Lookup(ctx, p, s.source+"."+name)
	switch {
	case err != nil:
		return nil, err
	case spec.Source != s.source:
		return nil, tool.Errorf(tool.CodeNotFound, "%s has no tool %s", s.source, name)
	}
	return ownName(spec), nil
}

// Specs implements tool.Catalog.
func (s single) Specs(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for spec, err := range s.catalog.Specs(ctx, p) {
			if spec != nil && spec.Source == s.source && !yield(ownName(spec), err) {
				return
			}
		}
	}
}

// Offers implements tool.Offering.
func (s single) Offers(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, tool.Follower] {
	return func(yield func(*tool.Spec, tool.Follower) bool) {
		for spec, live := range tool.Offers(ctx, s.catalog, p) {
			if spec.Source == s.source && !yield(ownName(spec), live) {
				return
			}
		}
	}
}

// Changed implements tool.Changing.
func (s single) Changed() <-chan struct{} { return tool.Changed(s.catalog) }

func ownName(spec *tool.Spec) *tool.Spec {
	own := *spec
	own.Name, own.Own, own.Slug, own.Aliases = spec.Ref().Name, "", "", nil
	return &own
}

// toolOf returns the name at this door of the tool that stands for a method of an MCP server.
func (s *server) toolOf(source, method string) string {
	if s.Source != "" {
		return method
	}
	return source + "." + method
}

// An introduction is a server's description of itself, to clients of either era.
type introduction struct {
	Capabilities json.RawMessage `json:"capabilities"`
	Info         json.RawMessage `json:"serverInfo"`
	instructions string
}

// introduce returns our introduction, or that of the one source that this door offers: without the capabilities that we
// do not pass on.
func (s *server) introduce(ctx context.Context, p tool.Principal, modern, tasks bool) introduction {
	ours := introduction{s.capabilities(modern, tasks), s.serverInfo, s.instructions()}
	if s.Source == "" {
		return ours
	}
	spec := s.spec(ctx, p, mcp.MethodInitialize)
	if spec == nil { // it is not open, or changed what it says and is held back
		return ours
	}
	own := introduction{Info: ours.Info, instructions: spec.Description}
	if strictjson.Unmarshal(strictjson.OrEmpty(spec.Extra), &own) != nil || own.Capabilities == nil {
		return ours
	}
	w := strictjson.NewWriter(len(own.Capabilities))
	_ = strictjson.Object(own.Capabilities, func(name, value []byte) error { // read before
		switch key := string(name); key {
		case "completions", "prompts", "resources", "tools":
			w.Raw(key, value)
		case "logging":
			if !modern {
				w.Raw(key, value)
			}
		}
		return nil
	})
	own.Capabilities = w.Done()
	return own
}
