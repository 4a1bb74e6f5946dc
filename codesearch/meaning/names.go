package meaning

import (
	"maps"
	"slices"

	"toolpost/codesearch/split"
)

// FilesNaming lists the files with a function, a type or a section whose name matches, in the order of their paths.
func (x *Index) FilesNaming(match func(name string) bool) []string {
	return x.current.Load().filesWhere(func(_ int, c *chunk) bool { return c.kind != split.Block && match(c.name) })
}

// FilesWith lists the files with a chunk that has all words of a text, in the order of their paths. A text without
// words is in all of them.
func (x *Index) FilesWith(text string) []string {
	s := x.current.Load()
	var bag Bag
	bag.FillText([]byte(text))
	have := make([]uint16, s.base[len(s.segs)])
	for n, g := range s.segs {
		for _, t := range bag.Terms {
			g.postings(t.Token, func(c, _ int) { have[s.base[n]+c]++ })
		}
	}
	return s.filesWhere(func(i int, _ *chunk) bool { return int(have[i]) == len(bag.Terms) })
}

// filesWhere lists the files with a chunk that is wanted, by its number in all segments.
func (s *snapshot) filesWhere(wants func(i int, c *chunk) bool) []string {
	found := map[string]bool{}
	for n, g := range s.segs {
		for i := range g.chunks {
			if e := s.owner[n][g.chunks[i].file]; e >= 0 && wants(s.base[n]+i, &g.chunks[i]) {
				found[s.files[e].path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
