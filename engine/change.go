package engine

import "toolpost/tool"

// changesOf returns what changed in each source between two shelves, in the order of the new one. Sources that are gone
// come last.
func changesOf(old *shelf, bound []*source) (changes []tool.Change) {
	note := func(c tool.Change) {
		if !c.Empty() {
			changes = append(changes, c)
		}
	}
	is := map[string]bool{}
	for _, src := range bound {
		is[src.Name] = true
		switch before := old.sources[src.Name]; {
		case before == nil:
			note(tool.Compare(src.Name, nil, src.specs))
		case before != src:
			note(tool.Compare(src.Name, before.specs, src.specs))
		}
	}
	for _, src := range old.bound {
		if !is[src.Name] {
			note(tool.Compare(src.Name, src.specs, nil))
		}
	}
	return changes
}

// Unavailable returns why a runner cannot run one of its tools now, or nil if it can.
func Unavailable(r tool.Runner, name string) error {
	if u, ok := r.(unavailable); ok {
		return u.Unavailable(name)
	}
	return nil
}
