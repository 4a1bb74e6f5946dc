package meaning

import (
	"bytes"
	"math"
	"path"
	"strings"

	"toolpost/codesearch/split"
)

// A Token is the hash of a stemmed word. The words themselves are not kept: equal words have equal hashes, and two
// different words share a hash about once in four thousand million.
type Token uint32

// Limits of the length of a word.
const (
	minWord = 2
	maxWord = 40
)

// Tokenise calls each for every word of a text. It splits identifiers at capitals, digits and underscores, converts
// everything to lower case, and cuts common English endings, so that "parseHeaders", "parse_header" and "parsing the
// header" share words.
func Tokenise(text []byte, each func(Token)) {
	var word [maxWord]byte
	n := 0
	prev := other
	flush := func() {
		if n >= minWord {
			each(hashWord(stem(word[:n])))
		}
		n = 0
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		k := classOf[c]
		switch {
		case k == other:
			if n > 0 {
				flush()
			}
			prev = other
			continue
		case k == digit && prev != digit, k != digit && prev == digit:
			flush()
		case k == upper && prev == lower:
			flush()
		case k == lower && prev == upper && n > 1:
			// The last capital of HTTPServer begins the next word.
			last := word[n-1]
			n--
			flush()
			word[0], n = last, 1
		}
		if n < maxWord {
			if k == upper {
				c |= 0x20
			}
			word[n] = c
			n++
		}
		prev = k
	}
	flush()
}

type class uint8

const (
	other class = iota
	lower
	upper
	digit
)

// classOf classifies bytes; all beyond ASCII are letters, so that words of other scripts stay whole.
var classOf = func() (t [256]class) {
	for i := range t {
		switch c := byte(i); {
		case c >= 'a' && c <= 'z', c >= 0x80:
			t[i] = lower
		case c >= 'A' && c <= 'Z':
			t[i] = upper
		case c >= '0' && c <= '9':
			t[i] = digit
		}
	}
	return t
}()

// hashWord is FNV-1a, mixed once more because the table is addressed by its low bits.
func hashWord(w []byte) Token {
	h := uint32(2166136261)
	for _, c := range w {
		h = (h ^ uint32(c)) * 16777619
	}
	h ^= h >> 15
	h *= 0x2c1b3c6d
	h ^= h >> 12
	return Token(h)
}

// stem cuts the endings of English words in place. It is careful rather than thorough: the result need not be a word,
// only the same for related forms.
func stem(w []byte) []byte {
	if len(w) < 4 || w[0] >= '0' && w[0] <= '9' {
		return w
	}
	w = plural(w)
	switch {
	case ends(w, "ing") && len(w) > 5 && vowel(w[:len(w)-3]):
		w = undouble(w[:len(w)-3])
	case ends(w, "ed") && len(w) > 4 && vowel(w[:len(w)-2]):
		w = undouble(w[:len(w)-2])
	}
	if len(w) > 4 && w[len(w)-1] == 'e' {
		w = w[:len(w)-1]
	}
	return w
}

func plural(w []byte) []byte {
	n := len(w)
	switch {
	case ends(w, "ies") && n > 4:
		w[n-3] = 'y'
		return w[:n-2]
	case ends(w, "sses"), ends(w, "xes"), ends(w, "ches"), ends(w, "shes"):
		return w[:n-2]
	case w[n-1] == 's' && w[n-2] != 's' && w[n-2] != 'u' && w[n-2] != 'i':
		return w[:n-1]
	}
	return w
}

// ends is bytes.HasSuffix in a form that is inlined, which is cheaper than a call for each word and ending.
func ends(w []byte, suffix string) bool {
	return len(w) >= len(suffix) && string(w[len(w)-len(suffix):]) == suffix
}

func vowel(w []byte) bool { return bytes.ContainsAny(w, "aeiouy") }

// undouble turns "runn" into "run"; "call" and "pass" keep their double letters.
func undouble(w []byte) []byte {
	n := len(w)
	if n > 3 && w[n-1] == w[n-2] && w[n-1] != 'l' && w[n-1] != 's' && w[n-1] != 'z' {
		return w[:n-1]
	}
	return w
}

// A Term is a word of a chunk and the number of its occurrences.
type Term struct {
	Token Token
	Count uint16
}

// nameCount is the weight of a word in a chunk's own name: people name things by what they are for.
const nameCount = 3

// A Bag counts the words of a chunk. It is reused from chunk to chunk; the zero value is ready for use.
type Bag struct {
	Terms []Term
	slots []int32 // open addressing: an index into Terms plus one, or 0 if free
	add   func(Token)
	times uint16
}

// Fill counts the words of a part of a file: those of its text, its name, its owner, and the file's name and folder.
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

// find returns the slot of a token: the one that has it, or the free one for it.
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

// Damp returns the weight of a word that occurs count times: the second occurrence says less than the first.
func Damp(count uint16) float32 {
	if int(count) < len(damped) {
		return damped[count]
	}
	return damp(count)
}

func damp(count uint16) float32 { return float32(1 + math.Log(float64(count))) }

// damped holds the first values of Damp.
var damped = func() (t [64]float32) {
	for i := range t {
		t[i] = damp(uint16(max(1, i)))
	}
	return t
}()
