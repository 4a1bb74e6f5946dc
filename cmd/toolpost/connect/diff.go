package connect

import (
	"slices"
	"strings"
)

// A Line of a difference: '+' comes, '-' goes, and a blank stays.
type Line struct {
	Op   byte
	Text string
}

// context is how many lines around a change are shown.
const context = 2

// Diff shows what changes. It is one place: what lies between the first and the last line that differ.
func (c *Change) Diff() (lines []Line) {
	old, now := split(c.Before), split(c.After)
	if c.Gone {
		now = nil
	}
	head := 0
	for head < len(old) && head < len(now) && old[head] == now[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(now)-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	add := func(op byte, text []string) {
		for _, t := range text {
			lines = append(lines, Line{op, strings.TrimRight(t, "\r\n")})
		}
	}
	add(' ', old[max(0, head-context):head])
	add('-', old[head:len(old)-tail])
	add('+', now[head:len(now)-tail])
	add(' ', old[len(old)-tail:min(len(old), len(old)-tail+context)])
	return lines
}

func split(text []byte) []string { return slices.Collect(strings.Lines(string(text))) }
