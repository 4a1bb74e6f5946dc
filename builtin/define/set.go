package define

import (
	"context"
	"slices"
	"strings"

	"toolpost/tool"
)

// A Set is several tools as one source.
type Set struct {
	tools []Tool // sorted by name
	named map[string]Tool
}

var (
	_ tool.Runner  = (*Set)(nil)
	_ tool.Source  = (*Set)(nil)
	_ tool.Toucher = PathSet{}
)

// NewSet makes a set.
func NewSet(tools ...Tool) *Set {
	s := &Set{tools: tools, named: make(map[string]Tool, len(tools))}
	for _, t := range tools {
		s.named[t.Spec.Name] = t
	}
	slices.SortFunc(s.tools, func(a, b Tool) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return s
}

// Join makes one set from several.
func Join(sets ...*Set) *Set {
	var all []Tool
	for _, s := range sets {
		all = append(all, s.tools...)
	}
	return NewSet(all...)
}

// Tools implements tool.Source.
func (s *Set) Tools(context.Context) ([]*tool.Spec, error) {
	specs := make([]*tool.Spec, len(s.tools))
	for i, t := range s.tools {
		specs[i] = t.Spec
	}
	return specs, nil
}

// Sound vouches for the schemas: they are generated from types of this program, and a test compiles all of them.
func (*Set) Sound(*tool.Spec) bool { return true }

// Invoke implements tool.Handler.
func (s *Set) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if ctx.Err() != nil {
		return nil, tool.AsError(context.Cause(ctx))
	}
	t, err := s.find(c)
	if err != nil {
		return nil, err
	}
	r, err := t.invoke(ctx, c, out)
	if err != nil {
		return nil, tool.AsError(err)
	}
	return r, nil
}

// Has reports whether a call is for one of the tools.
func (s *Set) Has(c *tool.Call) bool {
	_, ok := s.named[nameOf(c)]
	return ok
}

func (s *Set) find(c *tool.Call) (Tool, error) {
	t, ok := s.named[nameOf(c)]
	if !ok {
		return t, tool.Errorf(tool.CodeNotFound, "%q is no built-in tool that is offered here; `toolpost tools` lists them",
			nameOf(c))
	}
	return t, nil
}

// nameOf returns the name of a tool within its own source. The engine sets both names; direct callers of a set may omit the
// spec.
func nameOf(c *tool.Call) string {
	if c.Spec != nil {
		return c.Spec.Name
	}
	return c.Tool
}

// Close implements tool.Runner. A set owns nothing: the code that opened its tools' resources closes them.
func (s *Set) Close(context.Context) error { return nil }

// A PathSet is a set whose tools report what they touch. It is a type of its own because policy assumes that a source
// without Touches may touch anything, and not that it touches nothing.
type PathSet struct{ *Set }

// Touches implements tool.Toucher.
func (s PathSet) Touches(c *tool.Call) (tool.Touches, error) {
	t, err := s.find(c)
	if err != nil {
		return tool.Touches{}, err
	}
	return t.touches(c)
}
