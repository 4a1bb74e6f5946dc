package tool

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Change lists how the tools of one source have changed, by the source's own names for them.
type Change struct {
	Source  string   `json:"source"`
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"` // its spec is different
}

// Empty reports whether nothing has changed.
func (c Change) Empty() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }

// String describes the change in one line, without the source.
func (c Change) String() string {
	var parts []string
	for _, part := range []struct {
		what  string
		names []string
	}{{"added", c.Added}, {"removed", c.Removed}, {"changed", c.Changed}} {
		if len(part.names) > 0 {
			parts = append(parts, part.what+" "+few(part.names))
		}
	}
	if len(parts) == 0 {
		return "the same tools"
	}
	return strings.Join(parts, "; ")
}

// few lists names, as many as fit into a line.
func few(names []string) string {
	const most = 8
	visible := make([]string, 0, most)
	for _, name := range names[:min(most, len(names))] {
		visible = append(visible, VisibleName(name))
	}
	list := strings.Join(visible, ", ")
	if more := len(names) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// Compare returns the differences between two lists of a source's tools.
func Compare(source string, before, after []*Spec) Change {
	was, is := specsByName(before), specsByName(after)
	c := Change{Source: source}
	for name, spec := range is {
		switch old, ok := was[name]; {
		case !ok:
			c.Added = append(c.Added, name)
		case !reflect.DeepEqual(old, spec):
			c.Changed = append(c.Changed, name)
		}
	}
	for name := range was {
		if is[name] == nil {
			c.Removed = append(c.Removed, name)
		}
	}
	for _, names := range [][]string{c.Added, c.Removed, c.Changed} {
		slices.Sort(names)
	}
	return c
}

func specsByName(specs []*Spec) map[string]*Spec {
	named := make(map[string]*Spec, len(specs))
	for _, s := range specs {
		named[s.Name] = s
	}
	return named
}
