package strictjson

import (
	"encoding/json"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendString appends text to b as a JSON string, and copies it only once: some contents are large. Text should be
// UTF-8; invalid parts become U+FFFD.
func AppendString[T string | []byte](b []byte, text T) []byte {
	if !valid(text) {
		return AppendString(b, strings.ToValidUTF8(string(text), "\uFFFD"))
	}
	return append(AppendText(append(b, '"'), text), '"')
}

// AppendText appends the content of a string without its quotes, for text that comes in pieces, each of which is UTF-8.
func AppendText[T string | []byte](b []byte, text T) []byte {
	from := 0
	for i := plainUntil(text, 0); i < len(text); i = plainUntil(text, i+1) {
		b = append(b, text[from:i]...)
		b = appendEscaped(b, text[i])
		from = i + 1
	}
	return append(b, text[from:]...)
}

func valid[T string | []byte](text T) bool {
	switch text := any(text).(type) {
	case string:
		return utf8.ValidString(text)
	case []byte:
		return utf8.Valid(text)
	}
	return false
}

// Quote is AppendString for a text alone.
func Quote[T string | []byte](text T) json.RawMessage {
	return AppendString(make([]byte, 0, len(text)+len(text)/16+16), text)
}

// AppendName begins a member of an object. Names are not escaped: they must be plain text of our own.
func AppendName(b []byte, name string) []byte {
	if len(b) > 0 && b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), '"', ':')
}

// AppendList appends a list to b.
func AppendList[T any](b []byte, list []T, item func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, v)
	}
	return append(b, ']')
}

// A Writer writes an object, member by member. It is for documents that every call has, for which Marshal takes five
// times as long. Names are those of AppendName. Empty values are left out.
type Writer struct {
	b []byte
}

// NewWriter makes a writer with room for size bytes.
func NewWriter(size int) *Writer { return &Writer{b: append(make([]byte, 0, size), '{')} }

// Text adds a string.
func (w *Writer) Text(name, value string) {
	if value != "" {
		w.b = AppendString(AppendName(w.b, name), value)
	}
}

// Raw adds a value that is JSON already.
func (w *Writer) Raw(name string, value []byte) {
	if len(value) > 0 {
		w.b = append(AppendName(w.b, name), value...)
	}
}

// Named is Raw for a name that is not our own, and may be any text.
func (w *Writer) Named(name string, value []byte) {
	quoted := Quote(name)
	w.Raw(string(quoted[1:len(quoted)-1]), value)
}

// Whole is Raw for a foreign value, which is checked and written on one line.
func (w *Writer) Whole(name string, value []byte) error {
	if len(value) == 0 {
		return nil
	}
	b, err := jsontext.AppendFormat(AppendName(w.b, name), value)
	if err != nil {
		return explain(err)
	}
	w.b = b
	return nil
}

// Open begins a nested object: members go there until Close.
func (w *Writer) Open(name string) { w.b = append(AppendName(w.b, name), '{') }

// Close ends the object that Open began.
func (w *Writer) Close() { w.b = append(w.b, '}') }

// Len returns the number of bytes so far.
func (w *Writer) Len() int { return len(w.b) }

// Done returns the object. The writer must not be used afterwards.
func (w *Writer) Done() json.RawMessage { return append(w.b, '}') }

// plainUntil returns the first index from i on of a byte that a JSON string cannot hold unescaped. It checks eight
// bytes at a time until it finds one.
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

// eight is binary.LittleEndian.Uint64, which does not take a string. The compiler turns it into one load.
func eight[T string | []byte](b T) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special is not 0 if one of eight bytes is a control character, a quote or a backslash. Its lowest bit marks the first
// such byte; bits after that may be false.
func special(w uint64) uint64 {
	control := (w - ones*' ') &^ w
	quote := w ^ ones*'"'
	backslash := w ^ ones*'\\'
	return (control | (quote-ones)&^quote | (backslash-ones)&^backslash) & highs
}

// letters maps a character to its letter after a backslash, and meanings the letter to its character; 0 if there is
// none.
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

// unquoted decodes b if it is one string, with nothing around it and no \u escape. Everything else is left to the
// decoder, and so is every fault.
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
