package grep

import (
	"bytes"
	"strings"
)

// A finder finds texts of which every match contains at least one. It looks for the byte of a text that is rarest in
// source code, which the standard library does with vector instructions, and compares there.
type finder []probe

// A probe finds one text.
type probe struct {
	text string // in lower case if fold is set
	fold bool
	at   int  // of the rarest byte in text
	b    byte // that byte
	both bool // it is a letter of either case, and b is the lower one

	low, up int // the next positions of b and of its capital in the searched text
	found   int // the next position of the text
}

// common lists the bytes of source code from the most frequent down. All others are rare.
const common = " etrn\tiaos\nlcdu,p\"f.mg0h/():bxy{}=vS1_TCEw2kAIR3N-P4F6D*OL[]8M5`B" +
	"97qUGVH!jWz&'\\%;+K#|<>YXJQZ@$?^~"

// rank returns how rare a byte is, from 0 (the most frequent) up.
func rank(b byte) int {
	if i := strings.IndexByte(common, b); i >= 0 {
		return i
	}
	return len(common)
}

// newFinder makes the finder of a need. It returns nil if the need is empty, or if its texts are so frequent that looking
// for them costs more than it saves.
func newFinder(n Need) finder {
	var f finder
	for _, t := range best(n) {
		p := newProbe(t)
		if len(t.Text) == 1 && rank(p.b) < 20 || len(f) == maxTexts {
			return nil
		}
		f = append(f, p)
	}
	return f
}

// best chooses the rarest texts of which every match contains at least one.
func best(n Need) []Need {
	switch {
	case n.Text != "":
		return []Need{n}
	case len(n.All) > 0:
		var choice []Need
		for _, sub := range n.All {
			if b := best(sub); choice == nil || b != nil && cost(b) < cost(choice) {
				choice = b
			}
		}
		return choice
	}
	var texts []Need
	for _, sub := range n.Any {
		b := best(sub)
		if b == nil {
			return nil
		}
		texts = append(texts, b...)
	}
	return texts
}

// cost estimates how often texts will be found, and the cost of looking for them.
func cost(texts []Need) int {
	sum := 0
	for _, t := range texts {
		bits := 0
		for i := range len(t.Text) {
			bits += 3 + rank(t.Text[i])/16
		}
		sum += 1<<20>>min(bits, 20) + 1<<8
	}
	return sum
}

func newProbe(n Need) probe {
	p := probe{text: n.Text, fold: n.Fold}
	worst := -1
	for i := range len(n.Text) {
		r := rank(n.Text[i])
		letter := n.Fold && 'a' <= n.Text[i] && n.Text[i] <= 'z'
		if letter {
			r = min(r, rank(n.Text[i]-'a'+'A')) - 1
		}
		if r > worst {
			worst, p.at, p.b, p.both = r, i, n.Text[i], letter
		}
	}
	return p
}

// reset prepares for a new text.
func (f finder) reset() {
	for i := range f {
		f[i].low, f[i].up, f[i].found = -1, -1, -1
	}
}

// next returns the position of the first of the texts at or after from, or -1. from must not decrease between two resets.
func (f finder) next(text []byte, from int) int {
	first := len(text)
	for i := range f {
		p := &f[i]
		if p.found < from {
			p.found = p.next(text, from)
		}
		first = min(first, p.found)
	}
	if first == len(text) {
		return -1
	}
	return first
}

// next returns the position of the probe's text at or after from, or len(text) if there is none.
func (p *probe) next(text []byte, from int) int {
	for from+len(p.text) <= len(text) {
		at := p.rarest(text, from+p.at)
		start := at - p.at
		if start+len(p.text) > len(text) {
			break
		}
		if p.equal(text[start : start+len(p.text)]) {
			return start
		}
		from = start + 1
	}
	return len(text)
}

// rarest returns the next position of the rarest byte.
func (p *probe) rarest(text []byte, from int) int {
	if p.low < from {
		p.low = indexFrom(text, from, p.b)
	}
	if !p.both {
		return p.low
	}
	if p.up < from {
		p.up = indexFrom(text, from, p.b-'a'+'A')
	}
	return min(p.low, p.up)
}

func indexFrom(text []byte, from int, b byte) int {
	if i := bytes.IndexByte(text[from:], b); i >= 0 {
		return from + i
	}
	return len(text)
}

func (p *probe) equal(b []byte) bool {
	if !p.fold {
		return string(b) == p.text
	}
	for i, c := range b {
		if lower(c) != p.text[i] {
			return false
		}
	}
	return true
}
