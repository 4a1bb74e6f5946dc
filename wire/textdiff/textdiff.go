// Package textdiff compares two texts, line by line or word by word.
package textdiff

import (
	"slices"
	"strings"

	"toolpost/wire/regex"
)

// A Run is a run of lines or words.
type Run struct {
	Sign   byte // '-' if only the first text has it, '+' if only the second, ' ' if both have it
	Pieces []string
}

// maxCompared bounds how many pairs are compared. Beyond it, all from the first piece that differs to the last is changed.
const maxCompared = 4_000_000

// Lines compares two texts line by line, and returns the runs between the first and the last line that differ, with some
// lines around them. The first line is number from, counted from 0. Texts that are the same have no runs.
func Lines(was, now string, around int) (from int, runs []Run) {
	if was == now {
		return 0, nil
	}
	runs = compare(slices.Collect(strings.Lines(was)), slices.Collect(strings.Lines(now)))
	if first := &runs[0]; first.Sign == ' ' {
		from = max(0, len(first.Pieces)-around)
		first.Pieces = first.Pieces[from:]
	}
	if last := &runs[len(runs)-1]; last.Sign == ' ' {
		last.Pieces = last.Pieces[:min(around, len(last.Pieces))]
	}
	return from, runs
}

// word matches a word, or the blanks between two.
var word = regex.Lazy(`\s+|\S+`)

// Words compares two texts word by word; the blanks between words are pieces too.
func Words(was, now string) []Run {
	return compare(word().FindAllString(was, -1), word().FindAllString(now, -1))
}

// compare returns runs that keep as much as possible. What is removed comes before what is added in its place.
func compare(a, b []string) (runs []Run) {
	head, tail := 0, 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	add := func(sign byte, pieces []string) {
		if n := len(runs); len(pieces) > 0 && n > 0 && runs[n-1].Sign == sign {
			runs[n-1].Pieces = append(runs[n-1].Pieces, pieces...)
		} else if len(pieces) > 0 {
			runs = append(runs, Run{sign, slices.Clip(pieces)})
		}
	}
	add(' ', a[:head])
	ending := a[len(a)-tail:]
	a, b = a[head:len(a)-tail], b[head:len(b)-tail]
	long := common(a, b)
	i, j, from, to := 0, 0, 0, 0
	for i < len(long)-1 && j < len(b) {
		switch {
		case a[i] == b[j]:
			add('-', a[from:i])
			add('+', b[to:j])
			add(' ', a[i:i+1])
			i, j = i+1, j+1
			from, to = i, j
		case long[i+1][j] >= long[i][j+1]:
			i++
		default:
			j++
		}
	}
	add('-', a[from:])
	add('+', b[to:])
	add(' ', ending)
	return runs
}

// common returns how much the rests of two lists have in common, by where they begin, or nil if that would take too long.
func common(a, b []string) [][]int32 {
	if len(a)*len(b) > maxCompared {
		return nil
	}
	long := make([][]int32, len(a)+1)
	for i := range long {
		long[i] = make([]int32, len(b)+1)
	}
	for i, one := range slices.Backward(a) {
		for j, other := range slices.Backward(b) {
			if long[i][j] = max(long[i+1][j], long[i][j+1]); one == other {
				long[i][j] = long[i+1][j+1] + 1
			}
		}
	}
	return long
}
