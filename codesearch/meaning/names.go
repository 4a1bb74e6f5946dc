package meaning

import (
	"maps"
	"slices"

	"toolpost/codesearch/split"
)

// FilesNaming lists the files with a function, a type or a section whose name matches, in the order of their paths.
func (x *Index) FilesNaming(match func(name string) bool) []string {
	s := x.current.Load()
	found := map[string]bool{}
	for n, g := range s.segs {
		for i := range g.chunks {
			c := &g.chunks[i]
			if e := s.owner[n][c.file]; e >= 0 && c.kind != split.Block && match(c.name) {
				found[s.files[e].path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// FilesWith lists the files with a chunk that has all words of a text, in the order of their paths. A text without
// words is in all of them.
func (x *Index) FilesWith(text string) []string {
	s := x.current.Load()
	var bag Bag
	bag.FillText([]byte(text))
	found := map[string]bool{}
	for n, g := range s.segs {
		have := make([]uint16, len(g.chunks))
		for _, t := range bag.Terms {
			g.postings(t.Token, func(c, _ int) { have[c]++ })
		}
		for c, words := range have {
			if e := s.owner[n][g.chunks[c].file]; e >= 0 && int(words) == len(bag.Terms) {
				found[s.files[e].path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
