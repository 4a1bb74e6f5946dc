package meaning

import "bytes"

// A Token is the hash of a word in its reduced form. Words are never kept: equal words have equal hashes, and
// two different ones share a hash about once in four thousand million.
type Token uint32

// Limits of what counts as a word.
const (
	minWord = 2
	maxWord = 40
)

// Tokenise calls each for every word of a text. Identifiers are taken apart at capitals, digits and underscores,
// everything is in lower case, and common English endings are cut, so that "parseHeaders", "parse_header" and
// "parsing the header" meet.
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

// classOf sorts bytes; all beyond ASCII are letters, so that words of other scripts stay whole.
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

// stem cuts the endings of English words in place. It is careful rather than thorough: what it makes need not be a
// word, only the same for the forms that belong together.
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

// ends compares where it is inlined, which costs less than a call of bytes.HasSuffix for each word and ending.
func ends(w []byte, suffix string) bool {
	return len(w) >= len(suffix) && string(w[len(w)-len(suffix):]) == suffix
}

func vowel(w []byte) bool { return bytes.ContainsAny(w, "aeiouy") }

// undouble makes "run" of "runn"; "call" and "pass" keep theirs.
func undouble(w []byte) []byte {
	n := len(w)
	if n > 3 && w[n-1] == w[n-2] && w[n-1] != 'l' && w[n-1] != 's' && w[n-1] != 'z' {
		return w[:n-1]
	}
	return w
}
