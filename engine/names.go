package engine

import (
	"slices"
	"strings"
	"time"

	"toolpost/tool"
)

// A batch is the tools of one source that were first seen together. If two tools have the same name, the first keeps it.
// The sources of the config's owner come first, in the order of the config, then those of upstream servers, in the order
// in which they were first seen. So no server can take a name that another had before, whatever it lists and whenever
// the program starts.
type batch struct {
	source *source
	seen   time.Time
	items  []*item
}

// inBatches orders the tools of an upstream source by when they were first seen. They include tools that it does not
// bring now, which keep their names as long as the source is in the config, even while it is dead.
func (s *source) inBatches(items []*item) []batch {
	seen := map[*item]time.Time{}
	for i, it := range items {
		name := it.own.Name
		seen[it] = s.verdict.Seen[name]
		if held := s.verdict.Held[name]; held != nil {
			items[i] = s.heldItem(held, it)
			seen[items[i]] = seen[it]
		}
	}
	for _, p := range s.verdict.Gone {
		it := newItem(s, p.Spec())
		it.gone, it.err = true, s.Err
		seen[it], items = p.Seen, append(items, it)
	}
	return s.batches(items, seen)
}

// unpinned orders the tools of a source without pins: those whose names clients may know come first. So a source that
// opens later takes none of these names while this source is open.
func (s *source) unpinned(items []*item, now time.Time) []batch {
	seen, known := map[*item]time.Time{}, map[string]time.Time{}
	for _, it := range items {
		seen[it] = now
		if at, ok := s.known[it.own.Name]; ok {
			seen[it], known[it.own.Name] = at, at
		}
	}
	s.known = known
	return s.batches(items, seen)
}

// settle notes when clients learned the names on a shelf that is going to be replaced, unless sources are opened on
// demand: there a name means the same as with every source open.
func (sh *shelf) settle(now time.Time) {
	if !sh.used.Load() || sh.waits && !sh.comes {
		return
	}
	for _, it := range sh.items {
		if _, ok := it.source.known[it.own.Name]; !ok {
			it.source.known[it.own.Name] = now
		}
	}
}

func (s *source) batches(items []*item, seen map[*item]time.Time) []batch {
	slices.SortStableFunc(items, func(a, b *item) int { return seen[a].Compare(seen[b]) })
	var batches []batch
	for _, it := range items {
		if n := len(batches); n > 0 && batches[n-1].seen.Equal(seen[it]) {
			batches[n-1].items = append(batches[n-1].items, it)
			continue
		}
		batches = append(batches, batch{s, seen[it], []*item{it}})
	}
	return batches
}

// name gives every tool its names. The first tool with a name keeps it; a later one is published as source.name, so that
// no source can impersonate another. The qualified name works for every tool.
func (sh *shelf) name(inOrder []batch) {
	for _, b := range inOrder {
		for _, it := range b.items {
			sh.claim(it, it.spec.Ref().String())
			sh.claim(it, it.own.Ref().String())
		}
	}
	for _, b := range inOrder {
		for _, it := range b.items {
			if !sh.claim(it, it.spec.Name) {
				it.rename(it.spec.Ref().String())
			}
			sh.claim(it, it.own.Name) // as its source writes it, with invisible characters
		}
		for _, it := range b.items {
			for _, alias := range it.spec.Aliases {
				sh.claim(it, alias)
			}
		}
	}
}

// claim gives a tool a name unless another tool has it. A name that begins with a source and a dot belongs to that
// source alone, whether or not it has such a tool now: a call of files.readFile never reaches a tool elsewhere that took
// this name. The name of an upstream tool must not even look like another's.
func (sh *shelf) claim(it *item, name string) bool {
	first, _, dotted := strings.Cut(name, ".")
	own := dotted && first == it.source.Name
	if dotted && !own && sh.sources[first] != nil {
		return false
	}
	like, plain := looks(name)
	if it.source.Upstream && !own {
		if holder := sh.alike[like]; !plain || holder != nil && holder != it.source {
			return false
		}
		if dotted && slices.ContainsFunc(sh.bound, func(s *source) bool { return s != it.source && alike(s.Name, first) }) {
			return false
		}
	}
	if sh.byName[name] == nil {
		sh.byName[name] = it
		if sh.alike[like] == nil {
			sh.alike[like] = it.source
		}
	}
	return sh.byName[name] == it
}

// looks reduces a name to what a hasty reader sees, and to what protocols with a small alphabet can carry: two names
// with the same looks differ only in case, in what Slug replaces, or in letters that look alike. A name is not plain if
// it has letters whose looks are unknown.
func looks(name string) (like string, plain bool) {
	plain = !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' })
	return strings.Map(func(r rune) rune {
		switch r {
		case '-':
			return '_'
		case '0':
			return 'o'
		case '1', 'i':
			return 'l'
		}
		return r
	}, strings.ToLower(tool.Slug(name))), plain
}

func alike(a, b string) bool {
	first, _ := looks(a)
	second, _ := looks(b)
	return first == second
}

// slug decides the names of the tools in protocols that do not carry all names. They are the same for all callers, and
// settled in the same order: a new server cannot change the slugs of earlier tools.
func (sh *shelf) slug(inOrder []batch) {
	taken := map[string]bool{}
	settle := func(spec *tool.Spec, name string) {
		taken[name] = true
		if name != tool.Slug(spec.Name) {
			spec.Slug = name
		}
	}
	var ours []*tool.Spec
	for _, b := range inOrder {
		for _, it := range b.items {
			if !it.source.Upstream {
				ours = append(ours, it.spec)
			}
		}
	}
	for name, spec := range tool.Slugs(ours) {
		settle(spec, name)
	}
	for _, b := range inOrder {
		for _, it := range b.items {
			if !it.source.Upstream {
				continue
			}
			free := tool.Untaken(tool.Slug(it.spec.Name), tool.MaxSlug, func(name string) bool { return taken[name] })
			settle(it.spec, free)
		}
	}
}
