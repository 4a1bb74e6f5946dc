package plan

import (
	"container/heap"
	"slices"
)

// inOrder sorts steps into the order in which they run: of those whose dependencies come before them, the one that the
// plan lists first. Steps that wait for each other have no order: circle is one cycle of them, each before the one that
// waits for it.
func inOrder(steps []*step) (ordered, circle []*step) {
	missing := make([]int, len(steps))
	var ready places
	for i, s := range steps {
		if missing[i] = len(s.needs); missing[i] == 0 {
			ready = append(ready, i)
		}
	}
	ordered = make([]*step, 0, len(steps))
	for len(ready) > 0 {
		s := steps[heap.Pop(&ready).(int)]
		s.order = len(ordered)
		ordered = append(ordered, s)
		for _, next := range s.wanted {
			if missing[next.place]--; missing[next.place] == 0 {
				heap.Push(&ready, next.place)
			}
		}
	}
	if len(ordered) < len(steps) {
		return nil, circular(steps, missing)
	}
	return ordered, nil
}

// circular finds a cycle: following the dependencies of a step that never became ready reaches some step twice.
func circular(steps []*step, missing []int) []*step {
	waits := func(s *step) bool { return missing[s.place] > 0 }
	var way []*step
	at := steps[slices.IndexFunc(steps, waits)]
	for !slices.Contains(way, at) {
		way = append(way, at)
		at = at.needs[slices.IndexFunc(at.needs, waits)]
	}
	way = append(way[slices.Index(way, at):], at)
	slices.Reverse(way) // from dependency to dependent
	return way[:len(way)-1]
}

// places is a heap of indexes, the smallest on top.
type places []int

func (p places) Len() int           { return len(p) }
func (p places) Less(i, j int) bool { return p[i] < p[j] }
func (p places) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }

// Push implements heap.Interface.
func (p *places) Push(x any) { *p = append(*p, x.(int)) }

// Pop implements heap.Interface.
func (p *places) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}
