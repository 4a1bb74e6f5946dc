package strictjson

import (
	"math/bits"
	"strings"
	"unicode/utf8"
)

// plainUntil returns the first index from i on of a byte that a JSON string cannot hold as it is. It looks at eight
// bytes at a time while none of them is one.
func plainUntil[T string | []byte](b T, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if s := special(eight(b[i : i+8])); s != 0 {
			return i + bits.TrailingZeros64(s)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// eight is binary.LittleEndian.Uint64, which does not take a string. The compiler makes one load of it.
func eight[T string | []byte](b T) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special is not 0 where one of eight bytes is a control character, a quote or a backslash. It may also be not 0 where
// none is, after one that is.
func special(w uint64) uint64 {
	control := (w - ones*' ') &^ w
	quote := w ^ ones*'"'
	backslash := w ^ ones*'\\'
	return (control | (quote-ones)&^quote | (backslash-ones)&^backslash) & highs
}

// letters are those that stand after a backslash for a character, and meanings the characters; 0: none does.
var (
	letters  = [256]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}
	meanings = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
)

func appendEscaped(out []byte, c byte) []byte {
	if letter := letters[c]; letter != 0 {
		return append(out, '\\', letter)
	}
	const hexDigits = "0123456789abcdef"
	return append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// unquoted reads b where it is one string, with nothing around it and no escape of the \u kind. Others are
// left to the decoder, and so is every fault.
func unquoted(b []byte) (text string, ok bool) {
	last := len(b) - 1
	if last < 1 || b[0] != '"' || b[last] != '"' {
		return "", false
	}
	b = b[1:last]
	i := plainUntil(b, 0)
	if i == len(b) {
		return string(b), utf8.Valid(b)
	}
	var out strings.Builder
	out.Grow(len(b))
	from := 0
	for ; i < len(b); i = plainUntil(b, i+2) {
		if b[i] != '\\' || i+1 == len(b) {
			return "", false
		}
		c := meanings[b[i+1]]
		if c == 0 {
			return "", false
		}
		out.Write(b[from:i])
		out.WriteByte(c)
		from = i + 2
	}
	out.Write(b[from:])
	return out.String(), utf8.ValidString(out.String())
}
