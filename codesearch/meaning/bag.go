package meaning

import (
	"math"
	"path"
	"strings"

	"toolpost/codesearch/split"
)

// A Term is a word of a chunk and how often it was met.
type Term struct {
	Token Token
	Count uint16
}

// nameCount is what a word of a chunk's own name counts: people name things by what they are for.
const nameCount = 3

// A Bag counts the words of a chunk. It is reused from chunk to chunk; the zero value is ready.
type Bag struct {
	Terms []Term
	slots []int32 // open addressing: a number of Terms plus one, 0 for none
	add   func(Token)
	times uint16
}

// Fill counts the words of a part of a file: those of its text, of its name, of what it belongs to, and of the file's
// name and folder.
func (b *Bag) Fill(file string, p split.Part, src []byte) {
	b.reset()
	b.count([]byte(p.Name), nameCount)
	b.count([]byte(p.Owner), 1)
	b.count([]byte(path.Base(path.Dir(file))), 1)
	b.count([]byte(strings.TrimSuffix(path.Base(file), path.Ext(file))), 1)
	b.count(src[p.Start:p.End], 1)
}

// FillText counts the words of a text.
func (b *Bag) FillText(text []byte) {
	b.reset()
	b.count(text, 1)
}

func (b *Bag) reset() {
	if b.slots == nil {
		b.slots = make([]int32, 1024)
		b.add = b.addOne
	}
	clear(b.slots)
	b.Terms = b.Terms[:0]
}

func (b *Bag) count(text []byte, times uint16) {
	b.times = times
	Tokenise(text, b.add)
}

// find returns the slot of a token: the one that has it, or the free one where it goes.
func (b *Bag) find(t Token) int {
	mask := uint32(len(b.slots) - 1)
	for i := uint32(t) & mask; ; i = (i + 1) & mask {
		if n := b.slots[i]; n == 0 || b.Terms[n-1].Token == t {
			return int(i)
		}
	}
}

func (b *Bag) addOne(t Token) {
	i := b.find(t)
	if n := b.slots[i]; n > 0 {
		if c := &b.Terms[n-1].Count; *c < 1<<15 {
			*c += b.times
		}
		return
	}
	b.Terms = append(b.Terms, Term{t, b.times})
	b.slots[i] = int32(len(b.Terms))
	if len(b.Terms)*2 > len(b.slots) {
		b.grow()
	}
}

func (b *Bag) grow() {
	b.slots = make([]int32, 2*len(b.slots))
	for n, t := range b.Terms {
		b.slots[b.find(t.Token)] = int32(n + 1)
	}
}

// Damp is what a word counts that was met some times: the second time says less than the first.
func Damp(count uint16) float32 {
	if int(count) < len(damped) {
		return damped[count]
	}
	return damp(count)
}

func damp(count uint16) float32 { return float32(1 + math.Log(float64(count))) }

// damped has the first of these.
var damped = func() (t [64]float32) {
	for i := range t {
		t[i] = damp(uint16(max(1, i)))
	}
	return t
}()
