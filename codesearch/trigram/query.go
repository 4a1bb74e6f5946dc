package trigram

import (
	"cmp"
	"math/bits"
	"slices"

	"toolpost/codesearch/grep"
)

// enough is the number of blocks below which reading another list costs more than searching them.
const enough = 8

// hits are the blocks of a segment that may satisfy a need: all of them, or those with these numbers, in rising order.
type hits struct {
	all bool
	ids []uint32
}

// find returns the blocks that may satisfy the need within one line. It never misses one.
func (s *segment) find(n grep.Need) (hits, error) {
	switch {
	case n.Text != "":
		return s.findText(n)
	case len(n.Any) > 0:
		return s.combine(n.Any, hits{}, hits.or)
	}
	return s.combine(n.All, hits{all: true}, hits.and)
}

func (s *segment) combine(needs []grep.Need, h hits, with func(hits, hits) hits) (hits, error) {
	for _, n := range needs {
		other, err := s.find(n)
		if err != nil {
			return hits{}, err
		}
		h = with(h, other)
	}
	return h, nil
}

// findText returns the blocks that contain every trigram of a text. It reads the shortest lists first.
func (s *segment) findText(n grep.Need) (hits, error) {
	type choice struct {
		grams []uint32
		size  uint64
	}
	var choices []choice
	for i := 0; i+3 <= len(n.Text); i++ {
		c := choice{grams: gramsOf(n.Text[i:i+3], n.Fold)}
		for _, g := range c.grams {
			from, to := s.place(g)
			c.size += to - from
		}
		choices = append(choices, c)
	}
	slices.SortFunc(choices, func(a, b choice) int { return cmp.Compare(a.size, b.size) })
	h := hits{all: true}
	for _, c := range choices {
		ids, err := s.union(c.grams)
		if err != nil {
			return hits{}, err
		}
		if h = h.and(hits{ids: ids}); len(h.ids) <= enough {
			break
		}
	}
	return h, nil
}

// union returns the blocks that contain at least one of the grams.
func (s *segment) union(grams []uint32) ([]uint32, error) {
	if len(grams) == 1 {
		return s.list(grams[0])
	}
	has := make([]uint64, (len(s.parts)+63)/64)
	for _, g := range grams {
		ids, err := s.list(g)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			has[id/64] |= 1 << (id % 64)
		}
	}
	var ids []uint32
	for i, word := range has {
		for ; word != 0; word &= word - 1 {
			ids = append(ids, uint32(i*64+bits.TrailingZeros64(word)))
		}
	}
	return ids, nil
}

// gramsOf returns the trigram of three bytes, or, if case is ignored, one for each way to write them.
func gramsOf(three string, fold bool) []uint32 {
	grams := []uint32{0}
	for _, b := range []byte(three) {
		for i := range grams {
			grams[i] = grams[i]<<8 | uint32(b)
		}
		if fold && 'a' <= b && b <= 'z' {
			for _, g := range grams {
				grams = append(grams, g-'a'+'A')
			}
		}
	}
	return grams
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
	switch {
	case h.all || o.all:
		return hits{all: true}
	case len(h.ids) == 0:
		return o
	case len(o.ids) == 0:
		return h
	}
	ids := slices.Concat(h.ids, o.ids)
	slices.Sort(ids)
	return hits{ids: slices.Compact(ids)}
}
