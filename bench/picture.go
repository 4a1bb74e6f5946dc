package main

import (
	"cmp"
	"fmt"
	"slices"

	"toolpost/bench/curves"
)

// The curves of growth.
const (
	curveTools    = "tools"
	curveSessions = "sessions"
	curveRecord   = "rows"
	curveOutput   = "outputs"
)

// growth is the picture of the curves of growth.
func growth(points []point) curves.Sheet {
	return curves.Sheet{Name: "growth", Title: "What a call costs as everything else grows", Below: fmt.Sprintf(
		"readFile over HTTP with the record on, %d callers; each size by turns with the smallest one, in one run", growthCallers), Panels: panels(points)}
}

// panels sorts the points into curves.
func panels(points []point) (all []curves.Panel) {
	for _, one := range []struct{ curve, title, axis string }{
		{curveTools, "Tools in the catalogue", "calls per second, by the number of tools"},
		{curveSessions, "Sessions, each with a state", "calls per second, by the number of sessions"},
		{curveRecord, "Rows in the store", "calls per second, by the number of records"},
	} {
		p := curves.Panel{
			Title: one.title, Axis: one.axis, Limit: fmt.Sprintf("target: %g of the first", flat), Name: curves.Count, Value: curves.Thousands,
		}
		list := merged(points, one.curve)
		for _, at := range list {
			p.Add(at.size, at.rate, curves.Thousands(at.rate)+"/s", fmt.Sprintf("p99 %.1f ms", at.p99), flat*list[0].rate)
		}
		all = append(all, p)
	}
	out := curves.Panel{
		Title: "Size of an output", Axis: "memory of the server beyond that for a few bytes, by the bytes of an output", Log: true,
		Limit: "target: twice the output + 16 MiB", Name: curves.Bytes, Value: curves.Bytes,
	}
	for _, at := range merged(points, curveOutput) {
		taken := float64(at.memory)
		out.Add(at.size, taken, curves.Bytes(taken), curves.Thousands(at.rate)+"/s", float64(outputLimit(at.size)))
	}
	return append(all, out)
}

// merged returns the points of a curve by size, one for each. The smallest size was measured beside every other one, and
// the machine may have been faster at one time than at another, so only the ratio to it counts.
func merged(points []point, curve string) (list []point) {
	bySize := map[int][]point{}
	var firsts []float64
	for _, p := range points {
		if p.curve == curve {
			bySize[p.size] = append(bySize[p.size], p)
			firsts = append(firsts, p.first)
		}
	}
	first := mean(firsts)
	for _, same := range bySize {
		sum := point{curve: curve, size: same[0].size}
		n := float64(len(same))
		for _, p := range same {
			if p.first > 0 {
				p.rate *= first / p.first
			}
			sum.rate += p.rate / n
			sum.p99 += p.p99 / n
			sum.memory = max(sum.memory, p.memory)
		}
		list = append(list, sum)
	}
	slices.SortFunc(list, func(a, b point) int { return cmp.Compare(a.size, b.size) })
	return list
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}
