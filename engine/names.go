package engine

import (
	"slices"
	"strings"
	"time"

	"toolpost/tool"
)

// A batch is tools of one source that came together. Who comes first keeps a name that two bring: those of the config's
// owner, in the order of the config, and then those of upstream servers, in the order in which they were first seen. So
// no server takes a name that was another's before, whatever it lists, and whenever the program starts.
type batch struct {
	source *source
	seen   time.Time
	items  []*item
}

// inBatches puts the tools of an upstream source into the order in which they were first seen. Those that it does not
// bring now are among them: their names stay theirs while the source is in the config, also while it is dead.
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

// name gives every tool its names. The first that brings a name keeps it; a later one is offered as source.name, so
// that no source can put itself in another's place. The qualified name works for every tool.
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
			sh.claim(it, it.own.Name) // as its source writes it, with what cannot be seen
		}
		for _, it := range b.items {
			for _, alias := range it.spec.Aliases {
				sh.claim(it, alias)
			}
		}
	}
}

// claim gives a tool a name, where no other has it. A name that begins with a source and a dot is one of that source's
// tools and never another's, whether it brings such a tool now or not: who asks for files.readFile gets nothing from
// elsewhere that calls itself so. One of an upstream source must not even look like another's.
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

// looks is what is left of a name for people who read fast, and for protocols that cannot carry all of it: two names
// with the same looks differ by case, by what Slug makes of them, or by letters that look alike. A name that is not
// plain has letters of which we do not know what they look like.
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

// slug settles what the tools are called in protocols that do not carry all names, for all callers alike, in the same
// order: what a server calls its tools changes nothing for those that were there before.
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
