package identity

import (
	"slices"

	"toolpost/tool"
)

// grant returns the rights of roles and of further tools together. Roles that no longer exist give nothing.
func grant(there map[string]Role, roles []string, tools tool.Patterns) *tool.Rights {
	r := &tool.Rights{Tools: append(tool.Patterns{}, tools...)}
	for _, name := range roles {
		if role, ok := there[name]; ok && !slices.Contains(r.Roles, name) {
			r.Roles = append(r.Roles, name)
			r.Tools = both(r.Tools, role.Tools)
		}
	}
	return r
}

// both returns the patterns of two lists, of which nil is everything.
func both(a, b tool.Patterns) tool.Patterns {
	if a == nil || b == nil {
		return nil
	}
	return append(slices.Clip(a), b...)
}

// nothing reports whether rights leave no tool.
func nothing(r *tool.Rights) bool { return r.Tools != nil && len(r.Tools) == 0 }

// narrowed returns what is left of rights where a token was issued with some of them. A token without roles has those
// of its caller.
func narrowed(r *tool.Rights, roles []string, to *tool.Rights) *tool.Rights {
	out := &tool.Rights{Roles: r.Roles, Tools: common(r.Tools, to.Tools)}
	if len(roles) > 0 {
		out.Roles = slices.DeleteFunc(slices.Clone(r.Roles), func(role string) bool {
			return !slices.Contains(roles, role)
		})
	}
	return out
}

// common returns patterns for names that both lists match. Of two patterns that merely overlap it gives none: rights
// may come out narrower than both, never wider than one.
func common(a, b tool.Patterns) tool.Patterns {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := tool.Patterns{}
	for _, pair := range [][2]tool.Patterns{{a, b}, {b, a}} {
		for _, g := range pair[0] {
			if slices.ContainsFunc(pair[1], func(h tool.Pattern) bool { return h.Covers(g) }) &&
				!slices.Contains(out, g) {
				out = append(out, g)
			}
		}
	}
	return out
}
