package grep

import (
	"bytes"
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// A dfa finds the next line that a program matches somewhere. It creates its states only as the text needs them. It knows
// lines: an end of line ends every thread, so one run of the machine covers a whole file, which need not be cut into
// lines first.
//
// It answers yes or no, not where a match begins, so a state is a plain set of instructions: those from which a match may
// still come, at this place in this line. Its lines are those of bufio.ScanLines, and its matches those that package
// regexp finds in each of them.
type dfa struct {
	prog     *syntax.Prog
	alphabet *alphabet
	empties  bool // the program has assertions: ^ $ \b \B

	next   []stateID          // by state and class
	sets   []set              // by state
	ids    map[string]stateID // by the key of a set
	start  stateID            // the state that each line begins with
	cost   int                // of creating the states
	ran    int                // bytes read since the states were last discarded
	failed bool               // the text needs new states faster than they pay off: go on without them

	seen    []uint64 // by instruction: the round in which it was last added to the set under construction
	round   uint64
	stack   []uint32
	settled []uint32
	key     []byte
}

// A stateID is the start of a state's row in next. The lowest values are not rows but instructions to scan.
type stateID uint32

const (
	unknown stateID = iota // not computed yet
	matched                // this line matches, regardless of the rest
	dead                   // this line cannot match any more
	slow                   // the byte alone does not decide
	firstReal

	// A state costs its row and the instructions of its set. Each of these has to serve a few bytes, or it costs more
	// than it saves.
	maxCost      = 1 << 18 // 1 MiB
	bytesPerCost = 4
)

// A set is the meaning of a state.
type set struct {
	insts []uint32 // sorted
	bol   bool     // nothing of the line has been read
	word  bool     // the last rune was a word character
}

func newDFA(prog *syntax.Prog, a *alphabet) *dfa {
	d := &dfa{prog: prog, alphabet: a, seen: make([]uint64, len(prog.Inst))}
	for i := range prog.Inst {
		d.empties = d.empties || prog.Inst[i].Op == syntax.InstEmptyWidth
	}
	d.reset()
	return d
}

// reset discards every state but the start state.
func (d *dfa) reset() {
	d.next, d.sets = d.next[:0], d.sets[:0]
	for range firstReal/stateID(d.alphabet.width) + 1 { // so that no row begins at one of the special values
		d.newRow(set{})
	}
	d.ids, d.ran, d.cost = map[string]stateID{}, 0, 0
	d.round++
	insts, match := d.reach(nil, uint32(d.prog.Start), syntax.EmptyBeginText|syntax.EmptyBeginLine, false)
	d.start = d.intern(set{insts: insts, bol: d.empties}, match)
}

// scan returns a place in the first line at or after from that matches: a byte of it, or its end. from must be the
// beginning of a line. It returns -1 if no line matches, and also if it failed.
func (d *dfa) scan(text []byte, from int) int {
	switch {
	case from >= len(text) || d.start == dead:
		return -1
	case d.start == matched:
		return from
	}
	at, end := d.run(text, from)
	d.ran += end - from
	return at
}

func (d *dfa) run(text []byte, from int) (at, end int) {
	s, i := d.start, from
	for i < len(text) {
		t := unknown
		for next, classes := d.next, &d.alphabet.bytes; i < len(text); i++ { // the hot loop
			t = next[s+stateID(classes[text[i]])]
			if t < firstReal {
				break
			}
			s = t
		}
		if i == len(text) {
			break
		}
		width := 1
		switch t {
		case unknown:
			if s = d.makeRoom(s, i-from); d.failed { // every new state passes through here
				return -1, i
			}
			d.learn(s, text[i])
			continue
		case slow:
			t, width = d.decode(s, text[i:])
		}
		switch t {
		case matched:
			return i, i
		case dead:
			eol := bytes.IndexByte(text[i:], '\n')
			if eol < 0 {
				return -1, len(text)
			}
			t, width = d.start, eol+1
		}
		s = t
		i += width
	}
	if text[len(text)-1] != '\n' && d.eol(s) == matched {
		return len(text), len(text)
	}
	return -1, len(text)
}

// makeRoom discards the states when there are too many, or gives up if they served too few bytes. It returns the
// current id of s.
func (d *dfa) makeRoom(s stateID, ran int) stateID {
	if d.cost < maxCost {
		return s
	}
	if d.failed = d.ran+ran < d.cost*bytesPerCost; d.failed {
		return s
	}
	kept := d.set(s)
	d.reset()
	d.ran = -ran // the bytes of this run so far belong to the discarded states
	return d.intern(kept, false)
}

// learn computes the transition of s for a byte.
func (d *dfa) learn(s stateID, b byte) {
	class := d.alphabet.bytes[b]
	var t stateID
	switch {
	case b == '\n':
		t = d.eol(s)
	case b == '\r' || b >= utf8.RuneSelf:
		t = slow
	default:
		t = d.step(s, class)
	}
	d.next[s+stateID(class)] = t
}

func (d *dfa) set(s stateID) set { return d.sets[int(s)/d.alphabet.width] }

// decode takes a step that one byte cannot decide: a rune that is not ASCII, or a carriage return, which belongs to the
// end of the line if a newline or nothing follows it.
func (d *dfa) decode(s stateID, text []byte) (t stateID, width int) {
	if text[0] == '\r' {
		switch {
		case len(text) == 1:
			if d.eol(s) == matched {
				return matched, 1
			}
			return dead, 1
		case text[1] == '\n':
			return d.eol(s), 2
		}
	}
	r, width := utf8.DecodeRune(text)
	class := d.alphabet.class(r)
	if t = d.next[s+stateID(class)]; t == unknown {
		t = d.step(s, class)
		d.next[s+stateID(class)] = t
	}
	return t, width
}

// step returns the state after a rune of a class.
func (d *dfa) step(s stateID, class uint16) stateID {
	sample := d.alphabet.samples[class]
	insts, match := d.settle(d.set(s), syntax.IsWordChar(sample), false)
	if match {
		return matched
	}
	d.round++
	var to []uint32
	for _, pc := range insts {
		inst := &d.prog.Inst[pc]
		if inst.Op == syntax.InstEmptyWidth || !inst.MatchRune(sample) {
			continue
		}
		if to, match = d.reach(to, inst.Out, 0, false); match {
			return matched
		}
	}
	to, match = d.reach(to, uint32(d.prog.Start), 0, false)
	return d.intern(set{insts: to, word: d.empties && syntax.IsWordChar(sample)}, match)
}

// eol returns the state after the end of the line: the start of the next line, or the match of this one.
func (d *dfa) eol(s stateID) stateID {
	if _, match := d.settle(d.set(s), false, true); match {
		return matched
	}
	return d.start
}

// settle follows the assertions of a set once the next rune is known.
func (d *dfa) settle(from set, nextIsWord, eol bool) (insts []uint32, match bool) {
	if !d.empties {
		return from.insts, false
	}
	place := syntax.EmptyNoWordBoundary
	if from.word != nextIsWord {
		place = syntax.EmptyWordBoundary
	}
	if from.bol {
		place |= syntax.EmptyBeginText | syntax.EmptyBeginLine
	}
	if eol {
		place |= syntax.EmptyEndText | syntax.EmptyEndLine
	}
	d.round++
	d.settled = d.settled[:0]
	for _, pc := range from.insts {
		if d.settled, match = d.reach(d.settled, pc, place, true); match {
			return nil, true
		}
	}
	return d.settled, false
}

// reach adds everything reachable from pc without reading to a set. An assertion stays in the set until its place is
// settled, unless it asserts the beginning of the line and this is not it.
func (d *dfa) reach(to []uint32, pc uint32, place syntax.EmptyOp, settled bool) (_ []uint32, match bool) {
	const begins = syntax.EmptyBeginText | syntax.EmptyBeginLine
	d.stack = append(d.stack[:0], pc)
	for len(d.stack) > 0 {
		pc := d.stack[len(d.stack)-1]
		d.stack = d.stack[:len(d.stack)-1]
		if d.seen[pc] == d.round {
			continue
		}
		d.seen[pc] = d.round
		inst := &d.prog.Inst[pc]
		switch inst.Op {
		case syntax.InstMatch:
			return to, true
		case syntax.InstAlt, syntax.InstAltMatch:
			d.stack = append(d.stack, inst.Arg, inst.Out)
		case syntax.InstCapture, syntax.InstNop:
			d.stack = append(d.stack, inst.Out)
		case syntax.InstEmptyWidth:
			switch asks := syntax.EmptyOp(inst.Arg); {
			case settled && asks&^place == 0:
				d.stack = append(d.stack, inst.Out)
			case !settled && asks&begins&^place == 0:
				to = append(to, pc)
			}
		case syntax.InstFail:
		default:
			to = append(to, pc)
		}
	}
	return to, false
}

// intern returns the id of a set, creating it if necessary.
func (d *dfa) intern(s set, match bool) stateID {
	if match {
		return matched
	}
	if len(s.insts) == 0 {
		return dead
	}
	slices.Sort(s.insts)
	d.key = append(d.key[:0], flag(s.bol)|flag(s.word)<<1)
	for _, pc := range s.insts {
		d.key = binary.LittleEndian.AppendUint32(d.key, pc)
	}
	if id, ok := d.ids[string(d.key)]; ok {
		return id
	}
	id := d.newRow(s)
	d.ids[string(d.key)] = id
	return id
}

func (d *dfa) newRow(s set) stateID {
	id := stateID(len(d.next))
	d.next = append(d.next, make([]stateID, d.alphabet.width)...)
	d.sets = append(d.sets, s)
	d.cost += d.alphabet.width + len(s.insts)
	return id
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// An alphabet divides the runes into classes that a program cannot tell apart, so that a state has a handful of
// transitions and not a million.
type alphabet struct {
	starts  []rune // the start of each interval of runes, sorted; the first is 0
	classes []uint16
	samples []rune      // by class: one of its runes
	bytes   [256]uint16 // the class of a byte: that of an ASCII rune, or one of the three below
	width   int         // the number of classes, of runes and of bytes
}

const maxClasses = 1 << 10

// newAlphabet derives the alphabet of a program. It returns nil if the program tells too many runes apart.
func newAlphabet(prog *syntax.Prog) *alphabet {
	tests := distinctTests(prog)
	a := &alphabet{starts: []rune{0}}
	for _, inst := range tests {
		a.starts = append(a.starts, bounds(inst)...)
	}
	for _, r := range "09AZ__az" { // \b distinguishes these from others
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

// sortBytes assigns a class to each byte. Newlines, carriage returns and the bytes of longer runes have classes of their
// own, because their effect depends on more than the rune.
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

// bounds returns the runes at which the answer of a test may change.
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
