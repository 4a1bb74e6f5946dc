package trigram

import (
	"cmp"
	"slices"

	"toolpost/builtin/code/grep"
)

// enough is how few blocks are few: reading another list to have fewer costs more than searching them.
const enough = 8

// A hits is the blocks of a segment that a need leaves: all of them, or those with these numbers, rising.
type hits struct {
	all bool
	ids []uint32
}

// find gives the blocks that may have what is needed in one line. It never leaves one out that has.
func (s *segment) find(n grep.Need) (hits, error) {
	switch {
	case n.Text != "":
		return s.findText(n.Text)
	case len(n.All) > 0:
		h := hits{all: true}
		for _, sub := range n.All {
			other, err := s.find(sub)
			if err != nil {
				return hits{}, err
			}
			h = h.and(other)
		}
		return h, nil
	case len(n.Any) > 0:
		h := hits{}
		for _, sub := range n.Any {
			other, err := s.find(sub)
			if err != nil {
				return hits{}, err
			}
			h = h.or(other)
		}
		return h, nil
	}
	return hits{all: true}, nil
}

// findText gives the blocks that have every trigram of a text. The shortest lists are read first.
func (s *segment) findText(text string) (hits, error) {
	grams := gramsOf(text)
	slices.SortFunc(grams, func(a, b uint32) int { return cmp.Compare(s.listSize(a), s.listSize(b)) })
	h := hits{all: true}
	for _, g := range grams {
		ids, err := s.list(g)
		if err != nil {
			return hits{}, err
		}
		if h = h.and(hits{ids: ids}); len(h.ids) <= enough {
			break
		}
	}
	return h, nil
}

// gramsOf gives the trigrams of a short text, as an extractor would.
func gramsOf(text string) []uint32 {
	var grams []uint32
	for i := 0; i+3 <= len(text); i++ {
		gram := uint32(0)
		for _, b := range []byte(text[i : i+3]) {
			if 'A' <= b && b <= 'Z' {
				b += 'a' - 'A'
			}
			gram = gram<<8 | uint32(b)
		}
		grams = append(grams, gram)
	}
	slices.Sort(grams)
	return slices.Compact(grams)
}

func (h hits) and(o hits) hits {
	switch {
	case h.all:
		return o
	case o.all:
		return h
	}
	both := h.ids[:0:0]
	for i, j := 0, 0; i < len(h.ids) && j < len(o.ids); {
		switch a, b := h.ids[i], o.ids[j]; {
		case a < b:
			i++
		case a > b:
			j++
		default:
			both = append(both, a)
			i++
			j++
		}
	}
	return hits{ids: both}
}

func (h hits) or(o hits) hits {
	if h.all || o.all {
		return hits{all: true}
	}
	ids := slices.Concat(h.ids, o.ids)
	slices.Sort(ids)
	return hits{ids: slices.Compact(ids)}
}

// everyBlock numbers all blocks.
func (s *segment) everyBlock() []uint32 {
	ids := make([]uint32, len(s.parts))
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}
