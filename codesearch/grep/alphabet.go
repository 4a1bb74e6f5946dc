package grep

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// An alphabet divides the runes into classes that a program cannot tell apart, so that a state has a
// handful of ways to go on and not a million.
type alphabet struct {
	starts  []rune // where an interval of runes begins, sorted; the first is 0
	classes []uint16
	samples []rune      // by class: one of its runes
	bytes   [256]uint16 // the class of a byte: that of an ASCII rune, or one of the three below
	width   int         // how many classes there are, of runes and of bytes
}

const maxClasses = 1 << 10

// newAlphabet reads a program. It gives nil where the program tells too many runes apart.
func newAlphabet(prog *syntax.Prog) *alphabet {
	tests := distinctTests(prog)
	a := &alphabet{starts: []rune{0}}
	for _, inst := range tests {
		a.starts = append(a.starts, bounds(inst)...)
	}
	for _, r := range "09AZ__az" { // \b tells these from others
		a.starts = append(a.starts, r, r+1)
	}
	slices.Sort(a.starts)
	a.starts = slices.Compact(a.starts)
	known := map[string]uint16{}
	key := make([]byte, len(tests)+1)
	for _, r := range a.starts {
		for i, inst := range tests {
			key[i] = flag(inst.MatchRune(r))
		}
		key[len(tests)] = flag(syntax.IsWordChar(r))
		class, ok := known[string(key)]
		if !ok {
			if class = uint16(len(a.samples)); class == maxClasses {
				return nil
			}
			known[string(key)] = class
			a.samples = append(a.samples, r)
		}
		a.classes = append(a.classes, class)
	}
	a.sortBytes()
	return a
}

// sortBytes gives each byte its class. Newlines, carriage returns and the bytes of longer runes have their own: what
// they do depends on more than the rune.
func (a *alphabet) sortBytes() {
	newline := uint16(len(a.samples))
	for b := range a.bytes {
		switch {
		case b == '\n':
			a.bytes[b] = newline
		case b == '\r':
			a.bytes[b] = newline + 1
		case b >= utf8.RuneSelf:
			a.bytes[b] = newline + 2
		default:
			a.bytes[b] = a.class(rune(b))
		}
	}
	a.width = int(newline) + 3
}

func (a *alphabet) class(r rune) uint16 {
	i, found := slices.BinarySearch(a.starts, r)
	if !found {
		i--
	}
	return a.classes[i]
}

// distinctTests returns the instructions that test a rune, one of each kind.
func distinctTests(prog *syntax.Prog) []*syntax.Inst {
	var tests []*syntax.Inst
	seen := map[string]bool{}
	for i := range prog.Inst {
		inst := &prog.Inst[i]
		if inst.Op != syntax.InstRune && inst.Op != syntax.InstRune1 {
			continue
		}
		key := binary.LittleEndian.AppendUint32(nil, inst.Arg) // whether case counts
		for _, r := range inst.Rune {
			key = binary.LittleEndian.AppendUint32(key, uint32(r))
		}
		if !seen[string(key)] {
			seen[string(key)] = true
			tests = append(tests, inst)
		}
	}
	return tests
}

// bounds returns where the answer of a test may change.
func bounds(inst *syntax.Inst) []rune {
	if len(inst.Rune) != 1 {
		at := slices.Clone(inst.Rune)
		for i := 1; i < len(at); i += 2 {
			at[i]++
		}
		return at
	}
	first := inst.Rune[0]
	at := []rune{first, first + 1}
	for r := unicode.SimpleFold(first); r != first; r = unicode.SimpleFold(r) {
		at = append(at, r, r+1)
	}
	return at
}
