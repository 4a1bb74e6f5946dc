package run

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"toolpost/tool"
	"toolpost/wire/nearest"
)

// names resolves the names that programs use for tools.
type names struct {
	mu    sync.Mutex
	known map[string]string // as the program wrote it -> as the engine knows it; empty if it does not
	made  map[string]string // of identifiers; nil if not needed yet
}

// resolve returns the engine's name of a tool. A program calls it source.name, both identifiers, or by any of the engine's
// own names. An unknown name stays as it is: the engine then reports and records it.
func (n *names) resolve(ctx context.Context, catalog tool.Catalog, p tool.Principal, name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[name]; ok {
		return cmp.Or(found, name)
	}
	found := name
	if _, err := catalog.Lookup(ctx, p, name); err != nil {
		if n.made == nil {
			n.made = map[string]string{}
			for _, one := range visible(ctx, catalog, p) {
				n.made[one.path()] = one.spec.Name
			}
		}
		source, rest, _ := strings.Cut(name, ".")
		found = n.made[source+"."+strings.ReplaceAll(rest, ".", "_")]
	}
	if n.known == nil {
		n.known = map[string]string{}
	}
	if len(n.known) < maxKnown {
		n.known[name] = found
	}
	return cmp.Or(found, name)
}

// meant adds a similar function to the error for a missing tool: one that the caller may use.
func (n *names) meant(name string, e *tool.Error) *tool.Error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found, ok := n.known[name]; !ok || found != "" || e.Code != tool.CodeNotFound {
		return e
	}
	hint := nearest.Hint(name, slices.Sorted(maps.Keys(n.made)))
	if hint == "" {
		return e
	}
	more := *e
	more.Message += hint
	return &more
}

// maxKnown is how many names are remembered: a program may invent them.
const maxKnown = 10_000

// A function is a tool as a program sees it.
type function struct {
	spec         *tool.Spec
	source, name string // identifiers, in both languages
}

func (f function) path() string { return f.source + "." + f.name }

// visible lists the tools that a caller may see and call now, sorted by name, as functions. Function names are unique within
// a source. Tools whose names are identifiers keep them.
func visible(ctx context.Context, catalog tool.Catalog, p tool.Principal) []function {
	var all []function
	for spec, why := range catalog.Specs(ctx, p) {
		if why == nil && spec.Name != "" {
			all = append(all, function{spec: spec, source: identifier(spec.Source)})
		}
	}
	taken := map[string]bool{}
	for _, plain := range []bool{true, false} {
		for i := range all {
			f := &all[i]
			own := f.spec.Ref().Name
			id := identifier(own)
			if (id == own) == plain {
				f.name = tool.Untaken(id, maxIdentifier, func(name string) bool { return taken[f.source+"."+name] })
				taken[f.path()] = true
			}
		}
	}
	return all
}

const maxIdentifier = 128

// identifier converts a name to one that both languages can write after a dot. It does not begin with an underscore, like
// Python's own attributes, and is not a reserved word.
func identifier(name string) string {
	id := tool.Safe(name, func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	})
	id = id[:min(len(id), maxIdentifier-8)]
	if id == "" || id[0] == '_' || '0' <= id[0] && id[0] <= '9' {
		id = "t" + id
	}
	if slices.Contains(strings.Fields(reserved), id) {
		id += "_"
	}
	return id
}

// reserved are Python's keywords, and the two names that JavaScript looks up in any object.
const reserved = "False None True and as assert async await break class continue def del elif else except finally " +
	"for from global if import in is lambda nonlocal not or pass raise return try while with yield then toJSON"
